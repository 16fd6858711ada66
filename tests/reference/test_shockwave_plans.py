"""Planner states of the published system with the objectives that Gurobi and HiGHS found for them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formulations.shockwave import PlanningProgram, PlanSolution, solve_plan

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "shockwave_plans.json.gz").read_bytes()))
STATES: list[dict[str, Any]] = RECORDED["states"]
JOBS = ("epochs", "epochs_done", "epoch_seconds", "remaining_seconds", "target_seconds")


def states(*, daily: int, gate: int, most_jobs: float = np.inf) -> Any:
    """The first few always, a few more in the gate, all others deep; those with so many jobs at most."""
    found = [state for state in STATES if len(state["widths"]) <= most_jobs]
    marks = [()] * daily + [pytest.mark.exhaustive] * gate + [pytest.mark.deep] * len(found)
    rows = zip(found, marks, strict=False)
    return pytest.mark.parametrize(
        "state", [pytest.param(state, id=f"round{state['round']}", marks=mark) for state, mark in rows]
    )


def program_of(state: dict[str, Any], **changes: Any) -> PlanningProgram:
    """The recorded planner state; stage 2 at once, as in the recorded figures."""
    figures: dict[str, Any] = RECORDED["common"] | {name: np.array(state[name]) for name in JOBS}
    figures |= {"widths": np.array(state["widths"]), "share": state["share"], "fairness_rows": "off"}
    figures["now_seconds"] = state["round"] * figures["round_seconds"]
    figures["bases"] = tuple(figures["bases"])
    return PlanningProgram(**(figures | changes))


def check(state: dict[str, Any], plan: PlanSolution) -> None:
    """At least as good as recorded within the stated gap, and no recorded objective beyond the bound.

    The recorded objectives are as exact as the solvers' tolerances, some 1e-6 of them.
    """
    assert plan.stage == 2
    assert plan.gap <= 1e-3 + 1e-6
    assert (plan.status == "optimal") == (plan.gap <= 1e-7)
    for name, recorded in state.items():
        if name.startswith("objective") and recorded is not None:
            assert plan.objective >= recorded - plan.gap * abs(recorded) - 2e-6 * max(1.0, abs(recorded))
            assert plan.bound >= recorded - 2e-6 * max(1.0, abs(recorded))


@states(daily=3, gate=5)
def test_numbers_of_rounds_and_their_order(state: dict[str, Any]) -> None:
    program = program_of(state)
    assert program.priorities == pytest.approx(state["priorities"], rel=1e-12)
    greedy, usual = solve_plan(program, relative_gap=1e-9, ordering="greedy"), solve_plan(program)
    for plan, gap in ((greedy, 5e-3), (usual, 1e-3)):
        check(state, plan)
        assert plan.ordering_gap <= gap
    assert greedy.solver == "knapsack"
    assert (greedy.rounds_per_job == greedy.schedule.sum(axis=1)).all()
    # published fairness rows hold for no state
    assert solve_plan(program_of(state, fairness_rows="published"), ordering="greedy").stage == 2


@states(daily=1, gate=2)
def test_counts(state: dict[str, Any]) -> None:
    check(state, solve_plan(program_of(state), form="counts", time_limit_seconds=600.0))
