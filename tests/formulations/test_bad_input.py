"""What the public functions say of arguments that they cannot use: one line with the field and what was found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import formulations
from formulations import (
    FinishTimeFairness,
    Hierarchy,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    PackedPolytope,
    Polytope,
    SolverError,
    WaterFilling,
    keep_most_floors,
    maximise_ratio,
    maximise_worth,
    solve,
    solve_plan,
    solve_stated,
)
from formulations.solving.backends import BACKENDS
from throughputs import InputError, PackedColumns, PlainColumns, ThroughputMatrix

MATRIX = ThroughputMatrix(np.ones((5, 2)) * [1, 2], range(5), ("a", "b"))
COLUMNS = PlainColumns(MATRIX)
P, W, WORTH = Polytope(COLUMNS, [2, 2]), np.ones(5), np.ones((5, 2))
PACKED = PackedPolytope(PackedColumns([0, 1], [[1.0], [0.0]], np.zeros((2, 2, 1))), [1])
OBJECTIVES = {MaxMin: 1, Makespan: 1, FinishTimeFairness: 3, MaxSum: 1, NashWelfare: 1, WaterFilling: 2}
BAD_FIGURES = {
    "shape (5, 1)": W[:, None],
    "nan": np.where(np.arange(5) == 3, np.nan, 1.0),
    "-1.0": -W,
    "'abc'": "abc",
    "nothing": None,
    "[[1], [1, 2]]": [[1], [1, 2]],
}
FOREST = {"parent": [-1, -1], "weights": [1, 2], "fifo": [0, 0], "of_job": [0, 0, 1, 1, 1], "rank": range(5)}


def refused(call, *named):
    """InputError of one line that names what it must."""
    with pytest.raises(InputError) as error:
        call()
    assert "\n" not in str(error.value)
    for each in named:
        assert each in str(error.value)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_figures_of_objectives(objective):
    """Each figure by itself: type, shape, nan and sign; counts; other jobs than the polytope's."""
    fields, n = list(objective.__dataclass_fields__), OBJECTIVES[objective]
    for at in range(n):
        for found, bad in BAD_FIGURES.items():
            refused(
                lambda at=at, bad=bad: objective(*[bad if i == at else W for i in range(n)]), f"'{fields[at]}", found
            )
        if objective is not MaxSum and fields[at] != "elapsed":
            refused(lambda at=at: objective(*[0 * W if i == at else W for i in range(n)]), f"'{fields[at]}")
    for counts in (W[:2], -W, W * np.nan, "x"):
        if "counts" in fields:
            refused(lambda counts=counts: objective(*[W] * n, counts=counts), "'counts")
        refused(lambda counts=counts: Polytope(COLUMNS, [2, 2], counts), "'counts")
    refused(lambda: solve(P, objective(*[W[:3]] * n)), "'objective'", f"{objective.__name__} over 3 jobs", "5 jobs")


CALLS = {
    "keep_most_floors": lambda p: keep_most_floors(p, W),
    "statement": lambda p: solve_stated(p, lambda cp, shares: (cp.Maximize(cp.sum(shares)), [])),
    "solve": lambda p: solve(p, MaxMin(W)),
    "maximise_worth": lambda p: maximise_worth(p, W),
    "maximise_ratio": lambda p: maximise_ratio(p, W),
    "solve_plan": solve_plan,
    "polytope": lambda p: Polytope(p, [2, 2]),
    "packed polytope": lambda p: PackedPolytope(p, [2, 2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_something_else_in_place_of_a_program(name):
    for bad, named in (
        (MATRIX, "ThroughputMatrix"),
        (WORTH, "ndarray of shape (5, 2)"),
        ("x", "found"),
        (None, "found"),
    ):
        refused(lambda bad=bad: CALLS[name](bad), f"{name}: field", named)


def over(function, *before):
    return [
        lambda bad=bad: function(*before, bad)
        for bad in (W[:3], W[:3, None] * np.ones((3, 2)), W * np.nan, WORTH * np.nan)
    ]


TABLE = {
    "capacity": [
        *(lambda c=c: Polytope(COLUMNS, c) for c in ("x", None, [np.nan, 1], [1], [-1, 1], {"a": 1}, [[1], [1, 2]])),
        *(lambda c=c: PackedPolytope(PACKED.columns, c) for c in ([1, 1], [-1])),
    ],
    "gains": [
        *over(maximise_worth, P),
        lambda: maximise_worth(PACKED, [1.0]),
    ],
    "gpu_cost": [*over(maximise_ratio, P), lambda: maximise_ratio(PACKED, [0.0])],
    "floors": [
        *over(maximise_worth, P, WORTH),
        *over(keep_most_floors, P),
        lambda: maximise_worth(PACKED, np.ones(2), [-1.0, 0.0]),
    ],
    "floor of job 1": [lambda: maximise_worth(PACKED, np.ones(2), [0.0, 0.1])],
    "parent": [lambda v=v: Hierarchy(**FOREST | {"parent": v}) for v in ([5, -1], "x", [0, -1])],
    "weights": [lambda v=v: Hierarchy(**FOREST | {"weights": v}) for v in ([1.0, -1.0], [0.0, 1.0])],
    "of_job": [lambda: Hierarchy(**FOREST | {"of_job": [9] * 5})],
    "hierarchy": [
        *(lambda h=h: WaterFilling(W, W, h) for h in (Hierarchy.flat(3), "x")),
        lambda: Hierarchy(**FOREST | {"of_job": [0] * 4}),
    ],
    "tolerance": [lambda t=t: solve(P, MaxMin(W), tolerance=t) for t in (-1, np.nan, "x")],
    # names get the nearest that there is
    "MaxMin(": [lambda o=o: solve(P, o) for o in ("maxmin", "max_min", "MaxMn", MaxMin)],
    "balanced": [lambda c=c: solve(P, MaxMin(W), choice=c) for c in ("balancd", None)],
    "highs": [
        *(lambda s=s: solve(P, MaxMin(W), solver=s) for s in ("hihgs", None, ["highs"])),
    ],
    "class_pairs": [
        *(lambda s=s: solve(PACKED, MaxMin([1, 1]), solver=s) for s in ("high", None)),
        lambda: maximise_worth(PACKED, np.ones(2), solver="high"),
    ],
    "clarabel": [lambda: solve_stated(P, lambda c, x: (c.Maximize(c.sum(x)), []), solver="clarabell")],
}


@pytest.mark.parametrize("named", TABLE)
def test_bad_arguments_are_named(named):
    for call in TABLE[named]:
        refused(call, named)
    assert solve(P, WaterFilling(W, W, Hierarchy(**FOREST))).status == "optimal"


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (lambda c, x: (c.Maximize(c.sum_squares(x)), []), "concave"),
        (lambda c, x: (c.Maximize(c.sum(x)), [c.sqrt(x[0, 0]) <= 0.5]), "constraint 1"),
        (lambda c, x: (c.Maximize(c.sum(x) + c.Variable(boolean=True)), []), "boolean"),
        (lambda c, x: c.Maximize(c.sum(x)), "a pair"),
        (lambda c, x: (c.Maximize(c.sum(x)), None), "a pair"),
        (lambda c, x: (c.Maximize(c.sum(x)), x <= 0.5), "a pair"),
        (lambda c, x: (c.Maximize(c.sum(x)), [x <= 0.5, True]), "constraint 2"),
        (lambda c, x: (c.sum(x), []), "Maximize"),
    ],
)
def test_what_is_no_convex_program_is_told(statement, named):
    refused(lambda: solve_stated(P, statement), named)


def test_rows_that_exclude_each_other_and_solvers_that_take_no_floors_are_told(monkeypatch):
    with pytest.raises(SolverError, match="policy mine: no shares keep all rows"):
        solve_stated(P, lambda c, x: (c.Maximize(c.sum(x)), [c.sum(x) >= 50]), source="policy mine")
    with pytest.raises(SolverError, match="nothing bounds the objective"):
        solve_stated(P, lambda c, x: (c.Maximize(c.sum(x) + c.Variable()), []))
    with pytest.raises(SolverError, match=r"structured: .*floors"):
        maximise_worth(P, WORTH, 0.1 * W, solver="structured")
    monkeypatch.setitem(BACKENDS, "ecos", replace(BACKENDS["ecos"], requires=("no_such_package",)))
    refused(lambda: solve(P, MaxMin(W), solver="ecos"), "no_such_package", "pip install cluster-allocator[ecos]")
    with pytest.raises(AttributeError, match=r"MaxMn.*'MaxMin'"):
        _ = formulations.MaxMn
