"""Plans of rounds: forms against each other and against enumeration, stages, hard and empty cases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from formulations.shockwave import PlanningProgram, PlanSolution, solve_plan
from tests.formulations.planning_programs import draw_program, is_fair, objective_of, schedules
from throughputs import InputError

ODD = (1, 2, 3, 5)


def alike(n_jobs: int = 1, **changes: Any) -> PlanningProgram:
    """Equal jobs of one GPU on two GPUs and four rounds."""
    figures: dict[str, Any] = {
        "gpus": 2,
        "rounds": 4,
        "round_seconds": 120.0,
        "widths": np.ones(n_jobs, dtype=np.int64),
        "epochs": np.full(n_jobs, 10.0),
        "epochs_done": np.zeros(n_jobs),
        "epoch_seconds": np.full(n_jobs, 60.0),
        "remaining_seconds": np.full(n_jobs, 600.0),
        "target_seconds": np.full(n_jobs, 5000.0),
        "now_seconds": 0.0,
        "share": 1.0,
    }
    return PlanningProgram(**(figures | changes))


def check(program: PlanningProgram, plan: PlanSolution) -> None:
    """What must hold of any plan."""
    for schedule in (plan.schedule, plan.backfilled):
        assert schedule.shape == (program.n_jobs, program.rounds)
        assert (program.widths @ schedule <= program.gpus).all()
    assert (plan.backfilled >= plan.schedule).all()
    assert (plan.schedule.sum(axis=1) == plan.rounds_per_job).all()
    idle = program.gpus - program.widths @ plan.backfilled
    for now in range(program.rounds):
        assert not (program.widths[~plan.backfilled[:, now]] <= idle[now]).any()
    assert plan.objective == pytest.approx(objective_of(program, plan.schedule, plan.stage), rel=1e-9, abs=1e-12)
    assert plan.bound >= plan.objective
    if plan.stage == 1:
        assert is_fair(program, plan.schedule)
    if not math.isnan(plan.ordering_bound):
        assert plan.ordering_bound <= plan.ordering_cost * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_better(seed: int) -> None:
    program = draw_program(seed + 500, jobs=3, rounds=3, widths=ODD if seed % 3 == 2 else (1, 2, 4))
    plan = solve_plan(program, relative_gap=1e-9)
    check(program, plan)
    best = {1: -math.inf, 2: -math.inf}
    for schedule in schedules(program):
        best[2] = max(best[2], objective_of(program, schedule, 2))
        if program.fairness_rows != "off" and is_fair(program, schedule):
            best[1] = max(best[1], objective_of(program, schedule, 1))
    assert plan.stage == (1 if math.isfinite(best[1]) else 2)
    assert plan.objective == pytest.approx(best[plan.stage], rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_no_order_is_cheaper(seed: int) -> None:
    program = draw_program(seed + 900, jobs=3, rounds=3, fairness_rows="off")
    plan = solve_plan(program, relative_gap=1e-9, ordering="exact")
    weights = program.priorities / np.maximum(plan.rounds_per_job, 1)
    cheapest = min(
        float((weights * (schedule * np.arange(program.rounds)).sum(axis=1)).sum())
        for schedule in schedules(program)
        if (schedule.sum(axis=1) == plan.rounds_per_job).all()
    )
    assert plan.ordering_cost == pytest.approx(cheapest, rel=1e-9, abs=1e-9)
    assert plan.ordering_gap <= 1e-6


def test_rounds_that_collide_are_noticed() -> None:
    """Two GPUs, ten rounds: five rounds of both GPUs and ten of one are as many as there are, and yet do not fit."""
    program = alike(
        2,
        rounds=10,
        widths=np.array([2, 1]),
        remaining_seconds=np.array([600.0, 1200.0]),
        epoch_seconds=np.array([60.0, 120.0]),
        fairness_rows="off",
    )
    plan = solve_plan(program, relative_gap=1e-9)
    exact = solve_plan(program, form="binaries", relative_gap=1e-9)
    check(program, plan)
    assert plan.rounds_per_job.tolist() != [5, 10]
    assert plan.objective == pytest.approx(exact.objective, rel=1e-7)
    assert plan.status == "optimal"
    assert any("without a place" in attempt.note and "0 rounds" not in attempt.note for attempt in plan.attempts)
    relaxed = solve_plan(replace(program, widths=np.array([1, 1])))
    assert relaxed.rounds_per_job.tolist() == [5, 10]


@pytest.mark.parametrize("form", ["rounds", "counts", "binaries"])
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_every_solver_takes_every_form(form: str, solver: str) -> None:
    program = draw_program(8, jobs=6, fairness_rows="off")
    plan = solve_plan(program, form=form, solver=solver, relative_gap=1e-6)
    check(program, plan)
    assert plan.objective == pytest.approx(solve_plan(program, relative_gap=1e-9).objective, rel=1e-5, abs=1e-6)
    assert plan.solver == solver


@pytest.mark.parametrize("form", ["rounds", "counts", "binaries"])
def test_a_job_wider_than_the_cluster_gets_nothing(form: str) -> None:
    program = alike(2, widths=np.array([4, 1]))
    plan = solve_plan(program, form=form)
    assert plan.rounds_per_job[0] == 0
    assert plan.rounds_per_job[1] == 4
    assert not plan.backfilled[0].any()
    nobody = solve_plan(alike(2, widths=np.array([4, 8])), form=form)
    assert not nobody.backfilled.any()


@pytest.mark.parametrize("form", ["rounds", "counts", "binaries"])
def test_empty_and_small_cases(form: str) -> None:
    empty = solve_plan(alike(0), form=form)
    assert (empty.status, empty.schedule.shape, empty.gap) == ("empty", (0, 4), 0.0)
    assert math.isnan(empty.objective)
    no_gpus = solve_plan(alike(3, gpus=0), form=form)
    assert not no_gpus.backfilled.any()
    one = solve_plan(alike(1, rounds=1), form=form)
    assert one.backfilled.tolist() == [[True]]
    done = alike(2, epochs_done=np.full(2, 10.0), remaining_seconds=np.zeros(2))
    plan = solve_plan(done, form=form)
    check(done, plan)
    assert plan.objective == pytest.approx(0.0, abs=1e-9)
    assert plan.backfilled.all()


def test_no_round_is_planned_for_nothing() -> None:
    plan = solve_plan(alike(2, epochs_done=np.array([8.0, 10.0]), remaining_seconds=np.array([120.0, 0.0])))
    assert plan.rounds_per_job.tolist() == [1, 0]
    assert (plan.objective, plan.bound) == (0.0, 0.0)


def test_a_job_that_finishes_in_the_window_is_held_to_its_own_finish() -> None:
    """Two jobs on one GPU: one is due after its two rounds exactly, the other after the window."""
    program = alike(
        2, gpus=1, remaining_seconds=np.array([200.0, 600.0]), target_seconds=np.array([200.0, 2000.0]), share=0.5
    )
    plan = solve_plan(program)
    check(program, plan)
    assert plan.stage == 1
    assert plan.schedule[0].tolist() == [True, True, False, False]
    assert solve_plan(replace(program, fairness_rows="published")).stage == 2
    late = replace(program, target_seconds=np.array([199.0, 2000.0]))
    assert solve_plan(late).stage == 2
    assert solve_plan(late, form="binaries").stage == 2


def test_a_late_job_is_served_first() -> None:
    program = alike(3, gpus=1, target_seconds=np.array([2000.0, 350.0, 2000.0]), share=1 / 3)
    plan = solve_plan(program)
    assert plan.stage == 2
    assert plan.rounds_per_job.argmax() == 1
    first = plan.schedule.argmax(axis=1)
    assert first[1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_jobs_does_not_matter(seed: int) -> None:
    program = draw_program(seed + 40, jobs=12)
    shuffle = np.random.default_rng(seed).permutation(program.n_jobs)
    plan, moved = solve_plan(program), solve_plan(program.take(shuffle))
    # jobs with equally much left may trade backfilled rounds
    assert (moved.schedule == plan.schedule[shuffle]).all()
    assert moved.objective == plan.objective


def test_idle_gpus_go_to_those_with_most_left() -> None:
    program = alike(
        4,
        rounds=1,
        gpus=4,
        widths=np.array([1, 2, 2, 1]),
        epochs_done=np.array([9.0, 10.0, 10.0, 10.0]),
        remaining_seconds=np.array([60.0, 300.0, 500.0, 100.0]),
    )
    plan = solve_plan(program)
    assert plan.schedule[:, 0].tolist() == [True, False, False, False]
    # the longest fits, the next is too wide for what is left, the one after that is not
    assert plan.backfilled[:, 0].tolist() == [True, False, True, True]


def test_bad_settings_are_named() -> None:
    program = alike(1)
    for settings in ({"form": "round"}, {"solver": "gurobi"}, {"ordering": "none"}, {"relative_gap": 0.0}):
        with pytest.raises(InputError, match=next(iter(settings))):
            solve_plan(program, **settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="time_limit_seconds"):
        solve_plan(program, time_limit_seconds=math.inf)


def test_priorities_beyond_double_precision() -> None:
    """One job far beyond all others changes nothing between them."""
    rng = np.random.default_rng(0)
    N = 30
    remaining, target = np.full(N, 3000.0), rng.uniform(9000, 15000, N)
    remaining[0], target[0] = 60.0, 220.0
    figures: dict[str, Any] = {
        "gpus": 8,
        "rounds": 10,
        "round_seconds": 120.0,
        "widths": rng.choice([1, 2], N),
        "epochs": np.full(N, 50.0),
        "epochs_done": rng.integers(1, 40, N).astype(float),
        "epoch_seconds": np.full(N, 60.0),
        "remaining_seconds": remaining,
        "target_seconds": target,
        "now_seconds": 240.0,
        "share": 0.3,
        "fairness_rows": "off",
    }
    program = PlanningProgram(**figures, priority_cap=None)
    assert program.priorities[0] > 1e28
    assert program.priorities[1:].max() < 100
    plan = solve_plan(program, relative_gap=1e-6, ordering="greedy")
    capped = solve_plan(PlanningProgram(**figures, priority_cap=1e4), relative_gap=1e-6, ordering="greedy")
    assert plan.status == "optimal"
    assert plan.schedule[0, 0]
    assert (plan.rounds_per_job == capped.rounds_per_job).all()
    assert plan.ordering_gap <= 1e-2
