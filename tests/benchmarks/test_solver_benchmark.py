"""The studies of solvers at tiny sizes: what they draw, that their paths agree, what they leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocator.studies.study import Options
from benchmarks import solvers
from benchmarks.solvers import DECISIONS, FAMILIES, PATHS, TARGETS, Decision, Problem, problems


def rows_of(monkeypatch: pytest.MonkeyPatch, wanted: list[Problem], **only: Any) -> pd.DataFrame:
    """The rows of these problems."""
    monkeypatch.setattr(solvers, "problems", lambda _: iter(wanted))
    return solvers.STUDY.results(Options(quick=True, only=only))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_types", [2, 16])
def test_every_family_draws_usable_instances_for_any_number_of_types(family: str, n_types: int) -> None:
    problem = Problem("max_min", family, 40, n_types)
    instance = problem.instance()
    assert np.array_equal(instance.rates, problem.instance().rates)
    assert instance.rates.shape == (40, n_types)
    assert instance.scale_factors.shape == instance.weights.shape == (40,)
    assert (instance.fastest > 0).all()
    assert (instance.weights > 0).all()


def test_families_are_what_they_say() -> None:
    drawn = {name: Problem("max_min", name, 400, 3).instance() for name in FAMILIES}
    assert len(np.unique(drawn["published"].rates, axis=0)) <= 26
    assert len(np.unique(drawn["distinct"].rates, axis=0)) == 400
    assert (set(drawn["gangs"].scale_factors), set(drawn["gangs"].weights)) == ({1, 2, 4, 8}, {1.0, 5.0})
    assert drawn["tight"].capacity.sum() < 400 / 7
    assert drawn["slack"].capacity.sum() > 400


@pytest.mark.exhaustive
@pytest.mark.parametrize("decision", ["max_min", "makespan", "finish_time", "max_sum"])
@pytest.mark.parametrize("family", ["gangs", "slack"])
def test_peers_find_the_value_that_is_proven(decision: str, family: str) -> None:
    found = {path: solvers.measured(Problem(decision, family, 20, 3), path, 1, 60.0) for path in PATHS}
    best = found["auto"]["objective"]
    assert found["prices"]["outcome"] == "declined"
    bisected = decision == "makespan"  # which stops within 5 %
    for path, digits in (("structured", 1e-6), ("highs", 1e-6), ("clarabel", 1e-4)):
        near = 0.05 if bisected and path != "structured" else digits
        assert found[path]["objective"] == pytest.approx(best, rel=near)


@pytest.mark.exhaustive
def test_rows_tell_what_declines_and_what_is_left_out_and_compare_with_the_plain_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any, solver: str, **__: Any) -> None:
        raise ArithmeticError("overflow") if solver == "highs" else solvers.SolverError("not today")

    decisions = {**DECISIONS, "broken": Decision(DECISIONS["max_min"].pose, solve=failing)}  # type: ignore[arg-type]
    monkeypatch.setattr(solvers, "DECISIONS", decisions)
    sizes = (8, 16)
    wanted = [Problem(name, "distinct", n, 3) for name in ("max_min", "broken") for n in sizes]
    rows = rows_of(monkeypatch, wanted, path=("auto", "highs", "ecos"), jobs=("8", "16"))
    told = rows.set_index(["decision", "path", "jobs"]).sort_index()
    assert [told.loc[("broken", "highs", n), "outcome"] for n in sizes] == ["failed", "left out"]
    assert told.loc[("broken", "highs", 8), "reason"] == "ArithmeticError: overflow"
    assert [told.loc[("broken", "auto", n), "reason"] for n in sizes] == ["not today"] * 2
    assert (told.loc["max_min"]["gap"] < 1e-3).all()
    assert (told.loc[("max_min", "ecos"), "ratio"] == 1.0).all()
    cells = solvers.STUDY.table(rows)
    assert cells["problem"].iloc[0] == "max_min, distinct, 8 x 3"
    assert cells["to plain"].tolist().count("-") == 6
    pytest.importorskip("matplotlib")
    assert len(solvers.STUDY.draw(solvers.STUDY, rows).axes) == 1  # type: ignore[misc]


def test_a_full_run_holds_every_target_and_a_quick_one_small_problems() -> None:
    assert set(TARGETS) <= set(problems(Options()))
    assert max(problem.jobs for problem in problems(Options(quick=True))) == 128


@pytest.mark.exhaustive
def test_targets_are_compared_with_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Problem("max_min", "published", 8, 3)
    monkeypatch.setattr(solvers, "TARGETS", {small: ("cpu_seconds", 0.5)})
    study = replace(solvers.TARGET_STUDY, runs=lambda options: solvers._targets(options))
    (row,) = study.results(Options(quick=True)).to_dict("records")
    assert row["over"] == row["figure"] / 0.5 == row["cpu_seconds"] / 0.5
    assert solvers._memory(small)["figure"] > 1.0
