"""Planning of jobs with deadlines: against a plain re-implementation, and what must hold whatever the instance."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocator.published.elasticflow.scaling import scale_as_published
from formulations.deadlines import (
    DeadlineJob,
    DeadlineOrder,
    Filling,
    FreeProfile,
    JobPlan,
    ScalingCurve,
    earliest_share,
    use_left_over,
)
from tests.formulations.deadline_reference import FAR, Job, Planned, Profile, Reference, subtract

NOW = 1000


@st.composite
def curves(draw: st.DrawFn, most: int = 64) -> dict[int, float]:
    """Throughput on powers of two: mostly rising, with gaps, bends and falls."""
    levels = sorted(draw(st.sets(st.sampled_from([g for g in (1, 2, 4, 8, 16, 32, 64) if g <= most]), min_size=1)))
    return {g: draw(st.floats(0.05, 4.0)) * g**0.8 for g in levels}


@st.composite
def jobs(draw: st.DrawFn, gpus: int) -> Job:
    rates = draw(curves(gpus))
    seconds = draw(st.integers(1, 4000))
    slack = draw(st.floats(0.3, 3.0))
    due = FAR if draw(st.integers(0, 9)) == 0 else NOW + math.ceil(seconds * slack) - draw(st.integers(0, 60))
    return Job(rates, seconds * draw(st.sampled_from(sorted(rates.values()))), due, draw(st.sampled_from([4, 16, 64])))


@st.composite
def instances(draw: st.DrawFn) -> tuple[int, int, list[Job]]:
    """GPUs, slot, jobs in the order of their deadlines."""
    gpus = draw(st.sampled_from([4, 8, 16, 64]))
    found = draw(st.lists(jobs(gpus), min_size=1, max_size=10))
    found = [job for job in found if min(job.rates) <= job.most]
    return gpus, draw(st.sampled_from([1, 60, 240])), sorted(found, key=lambda job: job.deadline)


def fast(job: Job, gpus: int) -> DeadlineJob:
    return DeadlineJob(ScalingCurve(list(job.rates), list(job.rates.values()), gpus, job.most), job.work, job.deadline)


def assert_same(plan: JobPlan, reference: Planned) -> None:
    assert list(zip(plan.starts, plan.gpus, strict=True)) == reference.steps
    assert (plan.met, plan.end, plan.real_end) == (reference.met, reference.end, reference.real_end)


def listed(profile: FreeProfile) -> Profile:
    return list(zip(profile.times, profile.free, strict=True))


@settings(max_examples=40)
@given(instances())
def test_least_shares_and_scaling_are_those_of_the_description(instance) -> None:
    gpus, slot, found = instance
    reference, filling = Reference(gpus, slot), Filling(slot, whole_seconds=True)
    plans, profile = reference.in_order(found, NOW)
    order = DeadlineOrder.filled(filling, FreeProfile(NOW, gpus))
    order.add(fast(job, gpus) for job in found)
    for plan, expected in zip(order.plans, plans, strict=True):
        assert_same(plan, expected)
    left, scaled = order.left_over, list(order.plans)
    assert listed(left) == profile
    if left.free[0] >= 0:
        scale_as_published(filling, left, order.jobs, scaled)
        reference.use_left_over(found, plans, profile, NOW)
        for plan, expected in zip(scaled, plans, strict=True):
            assert_same(plan, expected)


# after two jobs, 5058 steps take 2937 s: the seconds left at 2147 s are 1790, and 2e-13 more by rounding
_ROUNDED_UP = [
    Job({1: 1.0}, 2937.0, FAR, 4),
    Job({1: 1.0, 2: 1.7411011265922482}, 1997.0429922013088, FAR, 4),
    Job({1: 1.722181771466997}, 5058.04786279857, FAR, 4),
]


@settings(max_examples=40)
@given(instances())
@example((4, 1, _ROUNDED_UP))
def test_earliest_deadline_first_is_that_of_the_description(instance) -> None:
    gpus, slot, found = instance
    reference, profile = Reference(gpus, slot), [(NOW, gpus)]
    order = DeadlineOrder(FreeProfile(NOW, gpus), partial(earliest_share, Filling(slot, whole_seconds=True)))
    order.add(fast(job, gpus) for job in found)
    for job, plan in zip(found, order.plans, strict=True):
        expected = reference.earliest(job, profile, NOW)
        assert_same(plan, expected)
        profile = subtract(profile, expected)


def work_done(plan: JobPlan, job: DeadlineJob, restart: float = 0.0) -> float:
    """Steps until the job's end, restarts taken off."""
    held, done = job.held, 0.0
    ends = [*plan.starts[1:], plan.real_end]
    idle = job.starting
    for start, gpus, end in zip(plan.starts, plan.gpus, ends, strict=True):
        if gpus:
            idle = restart if gpus != held else idle
            done += max(end - start - idle, 0.0) * job.curve.rate_of[gpus]
            idle = max(idle - (end - start), 0.0)
        held = gpus
    return done


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, Filling, list[DeadlineJob]]:
    """Any clock, slots or none, restarts or none, jobs that run already."""
    gpus = draw(st.sampled_from([4, 8, 16, 64]))
    filling = Filling(draw(st.sampled_from([0.0, 60.0])), restart_seconds=draw(st.sampled_from([0.0, 0.0, 30.0])))
    found = []
    for job in draw(st.lists(jobs(gpus), min_size=1, max_size=10)):
        curve = ScalingCurve(list(job.rates), list(job.rates.values()), gpus, job.most, useful_only=draw(st.booleans()))
        if curve.levels:
            held = draw(st.sampled_from([0, *curve.levels]))
            due = math.inf if job.deadline == FAR else job.deadline + draw(st.floats(0, 1))
            found.append(DeadlineJob(curve, job.work, due, held, draw(st.floats(0, filling.restart_seconds))))
    return gpus, filling, found


@settings(max_examples=40)
@given(worlds(), st.booleans())
def test_plans_fit_together_do_the_work_and_keep_what_they_promise(world, scale) -> None:
    gpus, filling, found = world
    order = DeadlineOrder.filled(filling, FreeProfile(NOW + 0.25, gpus))
    for job in found:
        before = list(order.jobs), list(order.plans), listed(order.left_over)
        if not order.admit([job]):
            assert before == (order.jobs, order.plans, listed(order.left_over))
    assert order.all_met
    free, plans = order.left_over, list(order.plans)
    if scale:
        use_left_over(filling, free, order.jobs, plans)
    again = FreeProfile(NOW + 0.25, gpus)
    for job, plan in zip(order.jobs, plans, strict=True):
        again.take(plan)
        assert plan.met
        assert plan.real_end <= job.deadline
        assert plan.real_end <= plan.end
        assert work_done(plan, job, filling.restart_seconds) == pytest.approx(job.work, rel=1e-6, abs=1e-6)
    assert min(again.free) >= 0
    # equal up to the order in which the plans were taken
    assert listed(again) == listed(free)


@settings(max_examples=40)
@given(worlds(), st.integers(0, 10))
def test_jobs_that_come_in_parts_leave_the_plans_that_planning_all_of_them_does(world, there) -> None:
    """Some together, then the others one by one."""
    gpus, filling, found = world
    in_parts = DeadlineOrder.filled(filling, FreeProfile(NOW, gpus))
    for part in (found[:there], *([job] for job in found[there:])):
        in_parts.add(part)
    together = DeadlineOrder.filled(filling, FreeProfile(NOW, gpus))
    together.add(found)
    assert in_parts.jobs == together.jobs == sorted(found, key=lambda job: job.deadline)
    assert listed(in_parts.left_over) == listed(together.left_over)


@pytest.mark.parametrize("filling", [Filling(), Filling(60.0, True), Filling(60.0, True, 30.0)], ids=repr)
@pytest.mark.parametrize(("offers", "gpus"), [(120, 24), pytest.param(300, 64, marks=pytest.mark.exhaustive)])
def test_plans_that_a_newcomer_leaves_alone_are_those_of_planning_anew(filling, offers, gpus) -> None:
    curves = [
        ScalingCurve([1, 2, 4, 8], rates, capacity=gpus) for rates in ([1.0, 2.0, 3.0, 3.5], [1.0, 1.5, 3.2, 3.1])
    ]
    rng = np.random.default_rng(0)
    order = DeadlineOrder.filled(filling, FreeProfile(0.0, gpus))
    admitted: list[DeadlineJob] = []
    for _ in range(offers):
        seconds = float(rng.integers(60, 4000))
        due = math.inf if rng.random() < 0.1 else float(math.ceil(seconds * rng.uniform(0.4, 4.0)))
        job = DeadlineJob(curves[rng.integers(2)], seconds, due)
        if order.admit([job]):
            admitted.append(job)
    assert offers / 6 < len(admitted) < offers
    anew = DeadlineOrder.filled(filling, FreeProfile(0.0, gpus))
    anew.add(admitted)
    assert order.jobs == anew.jobs
    for plan, other in zip(order.plans, anew.plans, strict=True):
        for name in ("starts", "gpus", "end", "real_end", "met", "charged_until"):
            assert getattr(plan, name) == getattr(other, name)
    assert listed(anew.left_over) == listed(order.left_over)


def test_worked_by_hand() -> None:
    """Two jobs on four GPUs: the later one fills what the earlier leaves, from its deadline backwards."""
    curve = ScalingCurve([1, 2, 4], [1.0, 2.0, 4.0], capacity=4)
    order = DeadlineOrder.filled(Filling(), FreeProfile(0.0, 4))
    assert order.admit([DeadlineJob(curve, 200.0, 60.0)])
    # one GPU would do 60 steps and two 120 in 60 s
    assert (order.plans[0].starts, order.plans[0].gpus, order.plans[0].real_end) == ([0.0], [4], 50.0)
    assert order.admit([DeadlineJob(curve, 70.0, 100.0)])
    assert (order.plans[1].starts, order.plans[1].gpus) == ([0.0, 50.0], [0, 2])
    assert order.plans[1].real_end == 85.0
    # one GPU for 45 s leaves the first job two until then, 90 + 4 * 15 steps
    assert not order.admit([DeadlineJob(curve, 45.0, 49.0)])
    # from 50 s on there are two GPUs beside the second job's
    assert order.admit([DeadlineJob(curve, 20.0, 90.0)])


def test_what_is_left_goes_where_it_saves_most() -> None:
    """A linear curve loses nothing by more GPUs; a flat one would pay for nothing."""
    linear = ScalingCurve([1, 2, 4], [1.0, 2.0, 4.0], capacity=4)
    flat = ScalingCurve([1, 2, 4], [1.0, 1.1, 1.2], capacity=4)
    for first, second in ((linear, flat), (flat, linear)):
        found = [DeadlineJob(first, 100.0, 500.0), DeadlineJob(second, 100.0, 500.0)]
        for scale, expected in ((use_left_over, 2), (scale_as_published, 1)):
            order = DeadlineOrder.filled(Filling(), FreeProfile(0.0, 3))
            order.add(found)
            free, plans = order.left_over, list(order.plans)
            scale(Filling(), free, found, plans)
            assert plans[0 if first is linear else 1].gpus[0] == expected


def test_a_forced_level_is_given_back_when_others_begin() -> None:
    """Slots of the others are counted from elsewhere: theirs begins at 50 s, before the one of 60 s ends."""
    profile = FreeProfile.of([(0.0, 2), (50.0, 4)])
    job = DeadlineJob(ScalingCurve([1], [1.0], capacity=4), 40.0, 200.0)
    plan = Filling(slot_seconds=60.0).minimum_share(profile, job, first=1)
    assert (plan.gpus, plan.real_end, plan.end) == ([1], 40.0, 50.0)


def test_useful_levels_are_those_that_are_faster() -> None:
    curve = ScalingCurve([1, 2, 4, 8, 16], [1.0, 3.0, 2.0, 3.0, 4.0], capacity=20, useful_only=True)
    assert curve.levels == [1, 2, 16]
    assert [curve.level_within[free] for free in (0, 1, 3, 8, 15, 20)] == [0, 1, 2, 2, 2, 16]
