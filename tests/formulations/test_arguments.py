"""What the public functions say of arguments that they cannot use: one line with the field and what was found."""

from __future__ import annotations

from typing import Any

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
    WaterFilling,
    keep_most_floors,
    maximise_packed_ratio,
    maximise_packed_worth,
    maximise_ratio,
    maximise_worth,
    solve,
    solve_packed,
    solve_plan,
    solve_stated,
)
from throughputs import InputError, PlainColumns, ThroughputMatrix

MATRIX = ThroughputMatrix(np.ones((5, 2)) * [1, 2], range(5), ("a", "b"))
P, W, WORTH = Polytope(PlainColumns(MATRIX), [2, 2]), np.ones(5), np.ones((5, 2))
OBJECTIVES = {
    MaxMin: (W,),
    Makespan: (W,),
    FinishTimeFairness: (W, W, W),
    MaxSum: (W,),
    NashWelfare: (W,),
    WaterFilling: (W, W),
}
BAD_FIGURES = {
    "shape (5, 1)": W[:, None],
    "nan": np.where(np.arange(5) == 3, np.nan, 1.0),
    "-1.0": -W,
    "'abc'": "abc",
    "nothing": None,
    "[[1], [1, 2]]": [[1], [1, 2]],
}


def message(call: Any) -> str:
    """The one line that a call fails with."""
    with pytest.raises(InputError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("found", BAD_FIGURES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_figures_of_objectives(objective: Any, found: str) -> None:
    """Each figure by itself: type, shape, nan and sign."""
    good = OBJECTIVES[objective]
    for at, field in enumerate(objective.__dataclass_fields__):
        if at < len(good):
            said = message(lambda at=at: objective(*good[:at], BAD_FIGURES[found], *good[at + 1 :]))
            assert f"'{field}'" in said
            assert found in said


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_over_other_jobs_than_the_polytope(objective: Any) -> None:
    said = message(lambda: solve(P, objective(*(figures[:3] for figures in OBJECTIVES[objective]))))
    assert "'objective'" in said
    assert f"{objective.__name__} over 3 jobs" in said
    assert "5 jobs" in said


@pytest.mark.parametrize("counts", [W[:2], -W, W * np.nan, "x"])
@pytest.mark.parametrize("objective", [MaxSum, NashWelfare, WaterFilling])
def test_counts(objective: Any, counts: Any) -> None:
    assert "'counts'" in message(lambda: objective(*OBJECTIVES[objective], counts=counts))
    assert "'counts'" in message(lambda: Polytope(PlainColumns(MATRIX), [2, 2], counts))


@pytest.mark.parametrize("given", ["maxmin", "max_min", "MaxMn", MaxMin])
def test_a_misspelt_objective_is_told_its_name(given: Any) -> None:
    assert "MaxMin(" in message(lambda: solve(P, given))


def test_a_misspelt_name_of_the_module() -> None:
    with pytest.raises(AttributeError, match=r"MaxMn.*'MaxMin'"):
        _ = formulations.MaxMn


CALLS = {
    "solve": lambda p: solve(p, MaxMin(W)),
    "maximise_worth": lambda p: maximise_worth(p, WORTH),
    "maximise_ratio": lambda p: maximise_ratio(p, W, WORTH),
    "keep_most_floors": lambda p: keep_most_floors(p, W),
    "statement": lambda p: solve_stated(p, lambda cp, shares: (cp.Maximize(cp.sum(shares)), [])),
    "solve_packed": lambda p: solve_packed(p, MaxMin(W)),
    "maximise_packed_worth": lambda p: maximise_packed_worth(p, W),
    "maximise_packed_ratio": lambda p: maximise_packed_ratio(p, W),
    "solve_plan": solve_plan,
    "polytope": lambda p: Polytope(p, [2, 2]),
    "packed polytope": lambda p: PackedPolytope(p, [2, 2]),
}


@pytest.mark.parametrize("given", [MATRIX, WORTH, "x", None], ids=["matrix", "array", "text", "none"])
@pytest.mark.parametrize("name", CALLS)
def test_something_else_in_place_of_a_program(name: str, given: Any) -> None:
    said = message(lambda: CALLS[name](given))
    assert said.startswith(f"{name}: field")
    named = {"MATRIX": "ThroughputMatrix", "WORTH": "ndarray of shape (5, 2)"}
    assert (named["MATRIX"] if given is MATRIX else named["WORTH"] if given is WORTH else "found") in said


@pytest.mark.parametrize("capacity", ["x", None, [np.nan, 1], [1], [-1, 1], {"a": 1}, [[1], [1, 2]]])
def test_capacity(capacity: Any) -> None:
    assert "'capacity'" in message(lambda: Polytope(PlainColumns(MATRIX), capacity))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("tolerance", -1),
        ("tolerance", np.nan),
        ("tolerance", "x"),
        ("warm", "x"),
        ("choice", "balancd"),
        ("choice", None),
        ("solver", "hihgs"),
        ("solver", None),
        ("solver", ["highs"]),
    ],
)
def test_how_to_solve(field: str, given: Any) -> None:
    said = message(lambda: solve(P, MaxMin(W), **{field: given}))
    assert field in said
    assert ("nothing" if given is None else str(given)) in said
    assert given not in ("balancd", "hihgs") or ("balanced" in said or "'highs'" in said)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("worth", lambda bad: maximise_worth(P, bad)),
        ("floors", lambda bad: maximise_worth(P, WORTH, bad)),
        ("gains", lambda bad: maximise_ratio(P, bad, WORTH)),
        ("cost", lambda bad: maximise_ratio(P, W, bad)),
        ("floors", lambda bad: keep_most_floors(P, bad)),
    ],
)
@pytest.mark.parametrize("bad", [W[:3], W[:3, None] * WORTH[:3], np.full(5, np.nan), np.full((5, 2), np.nan)])
def test_worth_and_floors(field: str, call: Any, bad: Any) -> None:
    assert f"'{field}'" in message(lambda: call(bad))


@pytest.mark.parametrize(
    ("field", "given"),
    [("parent", [5, -1]), ("parent", "x"), ("weights", [1.0, -1.0]), ("of_job", [9] * 5)],
)
def test_hierarchies_take_lists_and_name_what_is_wrong(field: str, given: Any) -> None:
    good: dict[str, Any] = {"parent": [-1, -1], "weights": [1, 2], "fifo": [0, 0], "of_job": [0, 0, 1, 1, 1]}
    good["rank"] = range(5)
    assert solve(P, WaterFilling(W, W, Hierarchy(**good))).status == "optimal"
    assert f"'{field}'" in message(lambda: Hierarchy(**good | {field: given}))


def test_a_hierarchy_over_other_jobs() -> None:
    assert "hierarchy" in message(lambda: WaterFilling(W, W, Hierarchy.flat(3)))
    assert "'hierarchy'" in message(lambda: WaterFilling(W, W, "x"))  # type: ignore[arg-type]
