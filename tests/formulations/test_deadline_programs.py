"""Programs over slots with deadlines, what they bound, and admission that tries several orders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.columns import InfeasibleError
from formulations.deadlines import (
    DeadlineJob,
    DeadlineOrder,
    Filling,
    FreeProfile,
    JobPlan,
    ScalingCurve,
    cheapest_share,
    plans_by_repair,
)
from formulations.deadlines.patterns import plans_by_patterns
from formulations.deadlines.program import DeadlineProgram, least_gpu_seconds, most_value
from tests.formulations.test_deadline_planning import work_done

LEVELS = [1, 2, 4, 8]
A100 = {
    "bert": [10.5, 13.3, 15.1, 15.6], "vgg16": [7.4, 13.2, 23.6, 35.0], "gpt2": [2.0, 3.5, 5.0, 6.1],
    "resnet50": [9.0, 16.0, 27.0, 36.0],
}  # fmt: skip
BENT = {"cifar": [0.71, 1.19, 2.54, 3.85], "yolo": [0.44, 0.83, 1.32, 0.61], "ncf": [47.0, 37.6, 56.3, 23.2]}


def offered(seed: int, n: int, gpus: int, kinds: dict[str, list[float]] = A100) -> list[DeadlineJob]:
    """Jobs that could each meet their deadlines alone, about twice as much work as there is room for."""
    rng = np.random.default_rng(seed)
    curves = [ScalingCurve(LEVELS, rates, gpus, useful_only=True) for rates in kinds.values()]
    found = []
    while len(found) < n:
        curve = curves[rng.integers(len(curves))]
        seconds = 10 ** rng.uniform(2.0, 3.3)
        work = seconds * curve.rates[rng.integers(len(curve.rates))]
        due = float(seconds * rng.uniform(0.6, 1.6))
        if work / curve.rates[-1] <= due:
            found.append(DeadlineJob(curve, work, due))
    return found


def admitted_by_filling(jobs: list[DeadlineJob], gpus: int) -> DeadlineOrder[DeadlineJob]:
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(Filling(), FreeProfile(0.0, gpus))
    for job in jobs:
        order.admit([job])
    return order


def gpu_seconds(plans: list[JobPlan]) -> float:
    return sum(plan.gpu_seconds(plan.real_end) for plan in plans)


@given(st.integers(0, 10**6), st.sampled_from([4, 8, 16]), st.booleans())
@settings(max_examples=15)
def test_what_filling_admits_the_bound_admits_with_no_more_gpu_time(seed, gpus, bent) -> None:
    jobs = offered(seed, 8, gpus, BENT if bent else A100)
    order = admitted_by_filling(jobs, gpus)
    assert least_gpu_seconds(order.jobs, gpus, 0.0) <= gpu_seconds(order.plans) * (1 + 1e-6)
    most = most_value(DeadlineProgram(jobs, gpus, 0.0))
    assert most.objective >= len(order.jobs)
    assert most.status == "optimal"


def test_by_hand() -> None:
    """Two GPUs for 100 s are 200 GPU seconds; no two of these jobs fit, and the last one is worth most."""
    curve = ScalingCurve([1, 2], [1.0, 2.0], capacity=2)
    jobs = [DeadlineJob(curve, work, 100.0) for work in (100.0, 150.0, 160.0)]
    assert most_value(DeadlineProgram(jobs, 2, 0.0, values=[1.0, 1.0, 3.0])).objective == pytest.approx(3.0)
    assert least_gpu_seconds(jobs[:1], 2, 0.0) == pytest.approx(100.0)
    with pytest.raises(InfeasibleError):
        most_value(DeadlineProgram(jobs, 2, 0.0, let_in=[True, True, False]))
    assert least_gpu_seconds(jobs, 2, 0.0) == math.inf
    assert least_gpu_seconds(jobs[:1], 2, 200.0) == math.inf


@given(st.integers(0, 10**6), st.sampled_from([4, 8, 16]), st.booleans(), st.sampled_from([0.0, 10.0]))
@settings(max_examples=25)
def test_repaired_plans_fit_and_meet_deadlines(seed, gpus, bent, restart) -> None:
    filling = Filling(restart_seconds=restart)
    jobs = offered(seed, 6, gpus, BENT if bent else A100)
    plans = plans_by_repair(filling, FreeProfile(0.0, gpus), jobs, 10)
    if plans is None:
        return
    free = FreeProfile(0.0, gpus)
    for job, plan in zip(jobs, plans, strict=True):
        free.take(plan)
        assert plan.met
        assert plan.real_end <= plan.end <= job.deadline
        if restart == 0.0:
            assert work_done(plan, job, restart) == pytest.approx(job.work, rel=1e-6)
    assert min(free.free) >= 0
    assert least_gpu_seconds(jobs, gpus, 0.0) < math.inf


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=25)
def test_cheapest_steps_cost_no_more_gpu_time_than_a_quota(seed, bent) -> None:
    rng = np.random.default_rng(seed)
    job = offered(seed, 1, 8, BENT if bent else A100)[0]
    cuts = np.sort(rng.uniform(0.0, job.deadline, 3)).tolist()
    frees = [int(free) for free in rng.permutation([1, 2, 4, 8])]
    profile = FreeProfile.of(zip([0.0, *cuts], frees, strict=True))
    plan = cheapest_share(Filling(), profile, job)
    least = Filling().minimum_share(profile, job)
    if plan is None:
        assert not least.met
        return
    assert plan.met
    if least.met:
        assert plan.gpu_seconds(plan.real_end) <= least.gpu_seconds(least.real_end) * (1 + 1e-6)
    assert all(
        gpus <= frees[np.searchsorted(cuts, start, "right")] for start, gpus in zip(plan.starts, plan.gpus, strict=True)
    )


def test_what_fails_moves_to_the_front() -> None:
    """In the order of deadlines these find no room, whatever is tried with the same order."""
    for seed, gpus in ((30, 4), (36, 8), (101, 8), (147, 8)):
        jobs = offered(seed, 4, gpus, BENT)
        assert plans_by_repair(Filling(), FreeProfile(0.0, gpus), jobs, 1) is None
        plans = plans_by_repair(Filling(), FreeProfile(0.0, gpus), jobs, 10)
        assert plans is not None
        checked(jobs, gpus, plans)


def test_time_for_restarts_and_late_rises() -> None:
    """A restart of 30 s takes 300 steps at 10 a second; only what rises may come a slot late."""
    fast = ScalingCurve([1], [10.0], capacity=1)
    plan = cheapest_share(Filling(restart_seconds=30.0), FreeProfile(0.0, 1), DeadlineJob(fast, 1000.0, 200.0))
    assert plan is not None
    assert (plan.gpus, plan.starts) == ([0, 1], [0.0, pytest.approx(70.0, abs=0.01)])
    linear, slots = ScalingCurve([1, 2], [1.0, 2.0], capacity=2), Filling(10.0)
    falls, rises = (FreeProfile.of([(0.0, first), (100.0, 3 - first)]) for first in (2, 1))
    plan = cheapest_share(slots, falls, DeadlineJob(linear, 299.0, 200.0))
    assert plan is not None
    assert (plan.gpus, plan.starts) == ([2, 1], [0.0, 100.0])
    assert cheapest_share(slots, rises, DeadlineJob(linear, 299.0, 200.0)) is None


def test_steps_are_those_of_the_hull() -> None:
    curve = ScalingCurve(LEVELS, BENT["cifar"], 8)
    # two GPUs are passed over: four do more than twice as much
    assert [level for _, level, _ in curve.efficient_steps(8)] == [1, 4, 8]
    assert [level for _, level, _ in curve.efficient_steps(3)] == [1, 2]
    assert curve.efficient_steps(0) == []
    assert [level for _, level, _ in ScalingCurve(LEVELS, BENT["yolo"], 8).efficient_steps(8)] == [1, 2, 4]
    assert math.isclose(sum(gain for _, _, gain in curve.efficient_steps(8)), 3.85)


def checked(jobs: list[DeadlineJob], gpus: int, plans: list[JobPlan]) -> None:
    """All deadlines met on the GPUs that there are."""
    free = FreeProfile(0.0, gpus)
    for job, plan in zip(jobs, plans, strict=True):
        free.take(plan)
        assert plan.met
        assert plan.real_end <= plan.end <= job.deadline
    assert min(free.free) >= 0


@given(st.integers(0, 10**6), st.sampled_from([4, 8, 16]), st.booleans(), st.sampled_from([0.0, 10.0]))
@settings(max_examples=25)
def test_patterns_meet_deadlines_with_the_least_gpu_time(seed, gpus, bent, restart) -> None:
    filling = Filling(restart_seconds=restart)
    jobs = offered(seed, 6, gpus, BENT if bent else A100)
    found = plans_by_patterns(filling, gpus, 0.0, jobs, relative_gap=1e-6)
    repaired = plans_by_repair(filling, FreeProfile(0.0, gpus), jobs, 10)
    if found.status == "infeasible":
        assert repaired is None
        return
    assert found.status == "optimal" if restart == 0.0 else found.status in ("optimal", "unknown")
    if found.plans is None:
        return
    checked(jobs, gpus, found.plans)
    assert least_gpu_seconds(jobs, gpus, 0.0) <= found.bound * (1 + 1e-5)
    assert found.bound <= found.gpu_seconds * (1 + 1e-9)
    if restart == 0.0:
        assert found.gpu_seconds <= found.bound * (1 + 1e-5)
        if repaired is not None:
            assert found.bound <= gpu_seconds(repaired) * (1 + 1e-5)


def test_patterns_are_exact_where_shares_are_not() -> None:
    """Two jobs that need all three GPUs half of the time, and a third that needs two of them for longer than that."""
    wide = ScalingCurve([3], [1.0], capacity=3)
    pair = ScalingCurve([2], [1.0], capacity=3)
    jobs = [DeadlineJob(wide, 50.0, 100.0), DeadlineJob(pair, 60.0, 100.0)]
    assert least_gpu_seconds(jobs, 3, 0.0) < math.inf
    assert plans_by_patterns(Filling(), 3, 0.0, jobs).status == "infeasible"
    jobs[1] = DeadlineJob(pair, 49.0, 100.0)
    found = plans_by_patterns(Filling(), 3, 0.0, jobs)
    assert found.plans is not None
    checked(jobs, 3, found.plans)
    assert plans_by_patterns(Filling(), 3, 0.0, jobs, seconds=0.0).status == "unknown"


def test_restarts_by_hand_in_patterns() -> None:
    """85 s of work on the one GPU there is, and 10 s to get going: what a plan takes, and what it takes at least."""
    one = ScalingCurve([1], [1.0], capacity=1)
    filling = Filling(restart_seconds=10.0)
    found = plans_by_patterns(filling, 1, 0.0, [DeadlineJob(one, 85.0, 100.0)])
    assert found.status == "optimal"
    assert found.gpu_seconds == pytest.approx(95.0, rel=1e-5)
    # restarts are not in the program
    assert found.bound == pytest.approx(85.0, rel=1e-5)
    running = plans_by_patterns(filling, 1, 0.0, [DeadlineJob(one, 85.0, 100.0, held=1)])
    assert running.gpu_seconds == pytest.approx(85.0, rel=1e-5)
    # 95 s and a restart are too much, which the program does not prove
    late = plans_by_patterns(filling, 1, 0.0, [DeadlineJob(one, 95.0, 100.0)])
    assert (late.status, late.plans) == ("unknown", None)
    assert math.isnan(late.gpu_seconds)


def test_plans_that_nothing_is_proven_of_are_feasible() -> None:
    """Without time the plan to begin with is all there is: two GPUs for 60 s, where one would do for 90 s."""
    curve = ScalingCurve([1, 2], [1.0, 1.5], capacity=2)
    job, start = DeadlineJob(curve, 90.0, 100.0), JobPlan([0.0], [2], 60.0, 60.0, True, 60.0)
    found = plans_by_patterns(Filling(), 2, 0.0, [job], [start], seconds=0.0)
    assert (found.status, found.gpu_seconds) == ("feasible", pytest.approx(120.0, rel=1e-5))
    assert found.bound <= 90.0
    proven = plans_by_patterns(Filling(), 2, 0.0, [job], [start])
    assert (proven.status, proven.gpu_seconds) == ("optimal", pytest.approx(90.0, rel=1e-5))
    assert proven.bound == pytest.approx(90.0, rel=1e-3)


@pytest.mark.parametrize("first", [0, 1])
def test_patterns_begin_with_who_runs_already(first) -> None:
    one = ScalingCurve([1], [1.0], capacity=1)
    jobs = [DeadlineJob(one, 40.0, 100.0, held=int(j == first)) for j in range(2)]
    plans = plans_by_patterns(Filling(), 1, 0.0, jobs).plans
    assert plans is not None
    assert plans[first].gpus[0] == 1
    assert plans[1 - first].gpus == [0, 1]


def test_cheapest_steps_are_the_latest() -> None:
    profile = FreeProfile.of([(0.0, 2), (50.0, 3)])
    plan = cheapest_share(Filling(), profile, DeadlineJob(ScalingCurve([1, 2], [1.0, 2.0], 3), 40.0, 100.0))
    assert plan is not None
    assert plan.gpus == [0, 2]
    assert plan.starts == pytest.approx([0.0, 80.0], abs=1e-4)
