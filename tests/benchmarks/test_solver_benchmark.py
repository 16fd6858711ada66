"""The study of solvers at tiny sizes: what it draws, that its paths agree, what it leaves out, what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import solvers
from benchmarks.solvers.measure import TARGETS, Budget, Chosen, Target, against_targets, plan
from benchmarks.solvers.problems import (
    DECISIONS,
    FAMILIES,
    PATHS,
    DeclinedError,
    Instance,
    Outcome,
    Problem,
    decision,
    family,
    path,
)
from formulations import MaxMin

PLAIN = ("max_min", "makespan", "finish_time", "max_sum")


def measured(*chosen: Any, **more: Any) -> list[dict[str, Any]]:
    """The rows of what is chosen."""
    return solvers.study(Chosen(*chosen, **more)).results().to_dict("records")


def problem(decision_name: str, family_name: str, n_jobs: int = 20, n_types: int = 3) -> Problem:
    return Problem(DECISIONS[decision_name], FAMILIES[family_name], n_jobs, n_types)


def value_of(path_name: str, posed: Problem) -> float:
    """Objective of the path's answer once it is scaled into the polytope."""
    program = posed.pose()
    outcome = PATHS[path_name].prepare(posed)(program)
    assert program.polytope.violation(outcome.shares) < 1e-5
    return program.objective.value(program.polytope.throughput(program.polytope.repaired(outcome.shares)))


@pytest.mark.parametrize("family_name", list(FAMILIES))
@pytest.mark.parametrize("n_types", [2, 16])
def test_every_family_draws_usable_instances_for_any_number_of_types(family_name: str, n_types: int) -> None:
    posed = problem("max_min", family_name, 40, n_types)
    instance = posed.instance
    assert np.array_equal(instance.rates, problem("max_min", family_name, 40, n_types).instance.rates)
    assert instance.rates.shape == (40, n_types)
    assert instance.scale_factors.shape == instance.weights.shape == (40,)
    assert (instance.capacity > 0).any()
    assert (instance.fastest > 0).all()
    assert (instance.weights > 0).all()


def test_families_are_what_they_say() -> None:
    published = problem("max_min", "published", 400).instance
    assert len(np.unique(published.rates, axis=0)) <= 26
    distinct = problem("max_min", "distinct", 400).instance
    assert len(np.unique(distinct.rates, axis=0)) == 400
    gangs = problem("max_min", "gangs", 400).instance
    assert (set(gangs.scale_factors), set(gangs.weights)) == ({1, 2, 4, 8}, {1.0, 5.0})
    assert problem("max_min", "tight", 400).instance.capacity.sum() < 400 / 7
    assert problem("max_min", "slack", 400).instance.capacity.sum() > 400


@pytest.mark.exhaustive
@pytest.mark.parametrize("decision_name", PLAIN)
@pytest.mark.parametrize("family_name", ["gangs", "slack"])
def test_peers_find_the_value_that_is_proven(decision_name: str, family_name: str) -> None:
    posed = problem(decision_name, family_name)
    best = value_of("auto", posed)
    for name in ("structured", "highs", "highs_ipm"):
        assert value_of(name, posed) == pytest.approx(best, rel=1e-6)
    for name in ("cvxpy_vectorised", "cvxpy_parameters"):
        assert value_of(name, posed) == pytest.approx(best, rel=1e-4)


def test_what_declines_or_fails_is_recorded_with_its_reason() -> None:
    def decline(_: Problem) -> object:
        raise DeclinedError("not today")

    def fail(_: Problem) -> object:
        def solve(_: object) -> Outcome:
            raise ArithmeticError("overflow")

        return solve

    added = {"declining": decline, "failing": fail}
    try:
        for name, prepare in added.items():
            path(name, name, kind="peer")(prepare)  # type: ignore[arg-type]
        rows = measured(("distinct",), ("max_min",), (*added, "structured"), sizes=(16, 128), repetitions=1)
    finally:
        for name in added:
            PATHS.pop(name, None)
    found = {(row["path"], row["jobs"]): (row["outcome"], row["reason"]) for row in rows}
    assert found["declining", 16] == ("skipped", "not today")
    assert found["failing", 16] == ("failed", "ArithmeticError: overflow")
    assert found["failing", 128] == ("skipped", "gave up at 16 jobs")
    assert found["structured", 16] == ("measured", "")


def test_an_interrupted_run_keeps_what_it_measured() -> None:
    def interrupt_later(posed: Problem) -> object:
        def solve(_: object) -> Outcome:
            if posed.n_jobs > 12:
                raise KeyboardInterrupt
            return Outcome(np.zeros(posed.instance.rates.shape), "none", {"build": 0.0, "solve": 0.0, "recover": 0.0})

        return solve

    try:
        path("interrupted", "interrupted", kind="peer")(interrupt_later)  # type: ignore[arg-type]
        rows = measured(("distinct",), ("max_sum",), ("interrupted",), sizes=(8, 16), repetitions=1)
    finally:
        PATHS.pop("interrupted", None)
    assert [(row["jobs"], row["objective"], row["gap"]) for row in rows] == [(8, 0.0, 1.0)]


@pytest.mark.parametrize(
    ("taken", "n_jobs", "refused"),
    [
        ([], 10**6, False),
        ([(100, 0.9)], 200, True),
        ([(100, 0.1), (200, 0.4)], 300, False),
        ([(100, 0.1), (200, 0.4)], 400, True),
        ([(100, 0.3), (200, 0.1)], 3000, True),
        ([(100, np.inf)], 200, True),
    ],
)
def test_the_budget_foresees_growth(taken: list[tuple[int, float]], n_jobs: int, refused: bool) -> None:
    budget = Budget(1.0)
    for size, seconds in taken:
        budget.note("p", size, seconds)
    assert bool(budget.refuses("p", n_jobs)) is refused
    assert budget.refuses("another", n_jobs) == ""


def test_the_full_plan_holds_every_target_of_a_registered_decision() -> None:
    points = {(p.decision.name, p.family.name, p.n_jobs, p.n_types) for p in plan(Chosen())}
    wanted = {(t.decision, t.family, t.jobs, t.types) for t in TARGETS if t.decision in DECISIONS}
    assert wanted <= points
    only = {(p.decision.name, p.family.name, p.n_jobs, p.n_types) for p in plan(Chosen(targets_only=True))}
    assert only == wanted


def test_quick_and_chosen_sizes_leave_out_what_is_there_for_a_million_jobs() -> None:
    quick = plan(Chosen(quick=True))
    assert max(point.n_jobs for point in quick) <= 128
    chosen = plan(Chosen(("distinct",), ("max_min",), sizes=(64, 8, 64)))
    assert [(point.n_jobs, point.n_types) for point in chosen] == [(8, 3), (64, 3)]


def test_targets_are_compared_with_the_right_figure() -> None:
    row = {"decision": "d", "family": "f", "jobs": 5, "types": 2, "path": "auto", "outcome": "measured"}
    row |= {"cpu_seconds": 4.0, "wall_seconds": 3.0, "memory_factor": 7.0, "status": "optimal"}
    targets = (
        Target("d", "f", 5, 2, 2.0),
        Target("d", "f", 5, 2, 6.0, cores=2),
        Target("d", "f", 5, 2, 6.0, quantity="memory"),
        Target("d", "f", 6, 2, 1.0),
    )
    compared = against_targets(pd.DataFrame([row | {"path": "highs", "cpu_seconds": 0.1}, row]), targets)
    assert compared[["measured", "factor"]].to_numpy()[:3].tolist() == [[4.0, 2.0], [3.0, 0.5], [7.0, 7.0 / 6.0]]
    assert compared["met"].tolist() == [False, True, False, None]
    assert not against_targets(pd.DataFrame([row | {"status": "feasible"}]), targets[1:2])["met"][0]


def test_families_and_decisions_register_themselves() -> None:
    try:

        @family("two_alike", "two equal jobs", sizes={1: (2,)})
        def two_alike(n_jobs: int, n_types: int, _: np.random.Generator) -> Instance:
            ones = np.ones(n_jobs)
            return Instance(np.ones((n_jobs, n_types)), ones.astype(np.int64), np.ones(n_types), ones)

        @decision("equal_steps", "Equal steps")
        def equal_steps(instance: Instance, _: np.random.Generator) -> MaxMin:
            return MaxMin(np.ones(len(instance.rates)))

        decision("small", "Small", most_jobs=600, families=("published", "two_alike"))(equal_steps)
        small = {(point.family.name, point.n_jobs) for point in plan(Chosen(decisions=("small",)))}
        assert small == {("published", 128), ("published", 512), ("two_alike", 2)}
        rows = measured(("two_alike",), ("equal_steps",), ("auto", "highs"), repetitions=1)
        assert [row["objective"] for row in rows] == pytest.approx([0.5, 0.5])
        with pytest.raises(ValueError, match="registered twice"):
            family("two_alike", "again", sizes={1: (2,)})(two_alike)
    finally:
        FAMILIES.pop("two_alike", None)
        DECISIONS.pop("equal_steps", None)
        DECISIONS.pop("small", None)


@pytest.mark.exhaustive
def test_the_command_writes_figures_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "figures.json", tmp_path / "picture.png"
    command = [sys.executable, "-m", "benchmarks", "solvers", "--quick", "--out", str(out), "--plot", str(picture)]
    command += [
        "--family",
        "published",
        "--family",
        "many_types",
        "--decision",
        "max_min",
        "--path",
        "auto",
        "--path",
        "highs",
        "--sizes",
        "8,16",
    ]
    root = Path(solvers.__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert "Targets for auto" in done.stdout
    assert (tmp_path / "solvers.csv").exists()
    rows = json.loads(out.read_text())["solvers"]
    assert {row["types"] for row in rows} == {2, 3, 4, 8, 16}
    for row in rows:
        assert all(row[f"{phase}_seconds"] >= 0 for phase in ("build", "solve", "recover"))
        assert 0 <= row["gap"] < 1e-3
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "picture-types.png").exists()
