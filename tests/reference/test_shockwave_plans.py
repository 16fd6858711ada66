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
BY_ROUND = [pytest.param(state, id=f"round{state['round']}") for state in STATES]
SMALL = [pytest.param(state, id=f"round{state['round']}") for state in STATES if len(state["widths"]) <= 40]


def rest_exhaustive(states: list[Any], always: int) -> list[Any]:
    """The first few, and the others for those who have more time."""
    rest = [pytest.param(*state.values, id=state.id, marks=pytest.mark.exhaustive) for state in states[always:]]
    return states[:always] + rest


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
    assert plan.status == "optimal"
    for name, recorded in state.items():
        if name.startswith("objective") and recorded is not None:
            assert plan.objective >= recorded - plan.gap * abs(recorded) - 2e-6 * max(1.0, abs(recorded))
            assert plan.bound >= recorded - 2e-6 * max(1.0, abs(recorded))


@pytest.mark.parametrize("state", BY_ROUND)
def test_priorities(state: dict[str, Any]) -> None:
    assert program_of(state).priorities == pytest.approx(state["priorities"], rel=1e-12)


@pytest.mark.parametrize("state", BY_ROUND)
def test_numbers_of_rounds(state: dict[str, Any]) -> None:
    plan = solve_plan(program_of(state), relative_gap=1e-9, ordering="greedy")
    check(state, plan)
    assert plan.solver == "knapsack"
    assert (plan.rounds_per_job == plan.schedule.sum(axis=1)).all()
    assert plan.ordering_gap <= 5e-3


@pytest.mark.parametrize("state", BY_ROUND)
def test_numbers_of_rounds_and_their_order_at_the_default_gap(state: dict[str, Any]) -> None:
    plan = solve_plan(program_of(state))
    check(state, plan)
    assert plan.ordering_gap <= 1e-3


@pytest.mark.parametrize("state", rest_exhaustive(BY_ROUND, 5))
def test_counts(state: dict[str, Any]) -> None:
    check(state, solve_plan(program_of(state), form="counts", time_limit_seconds=600.0))


@pytest.mark.parametrize("state", rest_exhaustive(SMALL, 3))
def test_binaries(state: dict[str, Any]) -> None:
    check(state, solve_plan(program_of(state), form="binaries", time_limit_seconds=600.0))


@pytest.mark.parametrize("state", rest_exhaustive(SMALL[:4], 2))
def test_binaries_with_cbc(state: dict[str, Any]) -> None:
    check(state, solve_plan(program_of(state), form="binaries", solver="cbc", time_limit_seconds=600.0))


@pytest.mark.parametrize("state", BY_ROUND)
def test_published_fairness_rows_hold_for_no_state(state: dict[str, Any]) -> None:
    plan = solve_plan(program_of(state, fairness_rows="published"), ordering="greedy")
    assert plan.stage == 2
