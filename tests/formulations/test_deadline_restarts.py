"""Minimum shares where restarts take time: every level and every start is tried, and the job is followed forward."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.deadlines import DeadlineJob, Filling, FreeProfile, JobPlan, ScalingCurve, earliest_share

NOW = 100.0

APART = 40.0
"""Seconds, twice the longest restart: what a start is found by takes intervals to be longer than that."""

LEVELS = [1, 2, 4]

Steps = list[tuple[float, int]]
"""From each of these instants (seconds) on so many GPUs."""


def follow(steps: Steps, job: DeadlineJob, restart: float, until: float) -> tuple[float, float]:
    """Steps that are left at `until`, and when the job is through; inf for not by then."""
    left, held, ready = job.work, job.held, NOW + job.starting
    for (start, gpus), end in zip(steps, [*(start for start, _ in steps[1:]), until], strict=True):
        if gpus:
            if gpus != held:
                ready = start + restart
            rate = job.curve.rate_of[gpus]
            through = max(start, ready) + left / rate
            if through <= end:
                return 0.0, through
            left -= max(end - max(start, ready), 0.0) * rate
        held = gpus
    return left, math.inf


def merged(steps: Steps) -> Steps:
    return [step for k, step in enumerate(steps) if not k or step[1] != steps[k - 1][1]]


def thinnest(profile: FreeProfile, job: DeadlineJob, restart: float, first: int | None) -> tuple[Steps, float] | None:
    """The first level, then the last breakpoint from which on it does what is left; None where none does."""
    before = [k for k, time in enumerate(profile.times) if time < job.deadline]
    forced: Steps = [] if first is None else [(NOW, first)]
    rest = before if first is None else before[1:]
    until = profile.times[rest[0]] if rest else job.deadline
    if forced and follow(forced, job, restart, until)[1] < math.inf:
        return forced, follow(forced, job, restart, until)[1]
    left = follow(forced, job, restart, until)[0] if forced else job.work
    held, starting = (job.held, job.starting) if first is None else (first, 0.0)
    below = 0
    for quota in job.curve.levels:
        for p in reversed(rest):
            steps = [(profile.times[k], job.curve.level_within[min(profile.free[k], quota)]) for k in rest if k >= p]
            # from a later breakpoint on there is a restart in any case
            alone = DeadlineJob(job.curve, left, job.deadline, held if p == rest[0] else -1, starting)
            if follow(steps, alone, restart, job.deadline)[1] < math.inf:
                thin = [(profile.times[k], job.curve.level_within[min(profile.free[k], below)]) for k in rest if k < p]
                plan = merged(forced + thin + steps)
                _, end = follow(plan, job, restart, job.deadline)
                return [step for step in plan if step[0] < end], end
        below = quota
    return None


@st.composite
def asked(draw: st.DrawFn, apart: float = APART) -> tuple[FreeProfile, DeadlineJob, float]:
    """Free GPUs that go up and down, so long apart; a job that runs already or not; seconds of a restart."""
    frees = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 5]), min_size=1, max_size=5))
    lengths = draw(st.lists(st.floats(apart, 150.0), min_size=len(frees), max_size=len(frees)))
    times = [NOW + sum(lengths[:k]) for k in range(len(frees) + 1)]
    frees.append(5)
    kept = merged(list(zip(times, frees, strict=True)))
    restart = draw(st.floats(1.0, APART / 2))
    rates = [draw(st.floats(0.7, 1.3)) * rate for rate in (1.0, 1.8, 3.1)]
    held = draw(st.sampled_from([0, *LEVELS]))
    starting = draw(st.floats(0.0, restart)) if held else 0.0
    # not within a restart of a breakpoint
    due = draw(st.sampled_from(kept))[0] + draw(st.floats(APART / 2, APART))
    work = draw(st.floats(10.0, 600.0))
    return FreeProfile.of(kept), DeadlineJob(ScalingCurve(LEVELS, rates, 5), work, due, held, starting), restart


def steps_of(plan: JobPlan) -> Steps:
    return list(zip(plan.starts, plan.gpus, strict=True))


@settings(max_examples=40)
@given(asked(), st.sampled_from([None, *LEVELS]))
def test_minimum_shares_with_restarts_are_the_thinnest(world, first) -> None:
    profile, job, restart = world
    plan = Filling(restart_seconds=restart).minimum_share(profile, job, first)
    expected = thinnest(profile, job, restart, first)
    assert plan.met == (expected is not None)
    if expected is not None:
        steps, end = expected
        assert steps_of(plan) == steps
        assert plan.real_end == pytest.approx(end, rel=1e-9)


def test_who_stops_in_between_starts_anew() -> None:
    """A job on two GPUs, of which none are free from 200 s to 250 s: 180 steps are too many for the 80 s after."""
    profile = FreeProfile.of([(NOW, 2), (200.0, 0), (250.0, 2)])
    job = DeadlineJob(ScalingCurve([2], [2.0], capacity=2), 180.0, 350.0, held=2)
    plan = Filling(restart_seconds=20.0).minimum_share(profile, job)
    assert (steps_of(plan), plan.real_end, plan.met) == ([(NOW, 2)], 190.0, True)


def test_who_goes_on_as_before_has_no_restart() -> None:
    """95 s of work in 100 s: a restart of 20 s would be too much, and needs two GPUs."""
    filling, curve = Filling(restart_seconds=20.0), ScalingCurve([1, 2], [1.0, 2.0], capacity=2)
    for held, starting, expected in ((1, 0.0, 1), (1, 4.0, 1), (1, 6.0, 2), (0, 0.0, 2)):
        job = DeadlineJob(curve, 95.0, NOW + 100.0, held, starting)
        plan = filling.minimum_share(FreeProfile(NOW, 2), job)
        assert plan.met
        assert plan.gpus[-1] == expected
    # 50 s on one GPU without a restart, then a restart, and 60 steps at four a second
    faster = DeadlineJob(ScalingCurve([1, 2], [1.0, 4.0], capacity=4), 110.0, NOW + 100.0, held=1)
    plan = filling.minimum_share(FreeProfile.of([(NOW, 3), (NOW + 50.0, 4)]), faster)
    assert (steps_of(plan), plan.real_end) == ([(NOW, 1), (NOW + 50.0, 2)], NOW + 85.0)


def largest(profile: FreeProfile, job: DeadlineJob) -> Steps:
    return merged(
        [(time, job.curve.level_within[free]) for time, free in zip(profile.times, profile.free, strict=True)]
    )


def assert_followed(plan: JobPlan, steps: Steps, job: DeadlineJob, restart: float) -> None:
    _, end = follow(steps, job, restart, math.inf)
    assert steps_of(plan) == [step for step in steps if step[0] < end]
    assert plan.real_end == pytest.approx(end, rel=1e-9)
    assert plan.met == (plan.real_end <= job.deadline)


@settings(max_examples=40)
@given(asked(apart=1.0))
def test_who_takes_all_there_is_has_its_restarts(world) -> None:
    profile, job, restart = world
    filling = Filling(restart_seconds=restart)
    assert_followed(earliest_share(filling, profile, job), largest(profile, job), job, restart)
    # a deadline that has passed: as soon as possible
    late = DeadlineJob(job.curve, job.work, NOW, job.held, job.starting)
    assert_followed(filling.minimum_share(profile, late), largest(profile, late), late, restart)


@settings(max_examples=40)
@given(asked(apart=1.0), st.floats(0.0, 300.0))
def test_a_plan_carried_on_ends_when_following_it_does(world, wait) -> None:
    """With what is left of the job, at any moment of the plan: also while it is still getting going."""
    profile, job, restart = world
    filling = Filling(restart_seconds=restart)
    plan = filling.minimum_share(profile, job)
    carried = filling.carried_on(plan, job, NOW)
    assert carried.real_end == pytest.approx(plan.real_end, rel=1e-9)
    assert carried.met == (plan.real_end <= job.deadline)
    # the GPUs of now stay until the next decision, and what follows is as it was
    settled = filling.carried_on(plan, job, NOW, wait)
    steps = merged([(NOW, plan.gpus[0]), *((max(t, NOW + wait), g) for t, g in _after(steps_of(plan), NOW + wait))])
    _, end = follow(steps, job, restart, math.inf)
    assert settled.met == (end <= min(job.deadline, max(plan.end, NOW + wait)) * (1 + 1e-12))


def _after(steps: Sequence[tuple[float, int]], time: float) -> Steps:
    """What holds at `time` and after."""
    at = max(k for k, (start, _) in enumerate(steps) if start <= time)
    return list(steps[at:])
