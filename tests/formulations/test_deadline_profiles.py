"""Plans and what they leave free, by hand; who is given the GPUs that are left; and who is late by rounding."""

from __future__ import annotations

import pytest

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


def test_gpu_time_and_gpus_of_a_plan_by_hand() -> None:
    """Two GPUs from 10 s, none from 20 s, four from 25 s: through at 28 s, given back at 30 s, charged until 40 s."""
    plan = JobPlan([10.0, 20.0, 25.0], [2, 0, 4], end=30.0, real_end=28.0, met=True, charged_until=40.0)
    assert [plan.gpu_seconds(until) for until in (28.0, 30.0, 40.0)] == [20 + 12, 20 + 20, 20 + 60]
    clocks = (9.0, 10.0, 19.0, 20.0, 25.0, 29.0, 30.0)
    assert [plan.gpus_at(clock) for clock in clocks] == [0, 2, 2, 0, 4, 4, 0]
    # the number of now is kept, for so long
    assert plan.rest(22.0, 22.0) == ([22.0, 25.0], [0, 4])
    assert plan.rest(12.0, 23.0) == ([12.0, 23.0, 25.0], [2, 0, 4])
    assert plan.rest(10.0, 26.0) == ([10.0, 26.0], [2, 4])


def test_a_job_that_rounding_has_made_late_keeps_newcomers_out() -> None:
    """60.2 s of work until 60.5 s end at 61 s in whole seconds, whatever a short job on another GPU does before."""
    curve = ScalingCurve([1], [1.0], capacity=3)
    filling = Filling(whole_seconds=True)
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(filling, FreeProfile(0.0, 3))
    # the job that ends at 55 s leaves the end of the late one to be decided after that
    order.add([DeadlineJob(curve, 55.0, 55.0), DeadlineJob(curve, 60.2, 60.5)])
    assert not order.all_met
    assert not order.admit([DeadlineJob(curve, 10.0, 10.0)])
    assert not order.admit([DeadlineJob(curve, 10.0, 90.0)])
    assert len(order.jobs) == 2


def scaled(free: FreeProfile, found: list[DeadlineJob], filling: Filling | None = None) -> list[JobPlan]:
    """Plans once what is left over is used."""
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(filling or Filling(), free)
    order.add(found)
    plans = list(order.plans)
    use_left_over(filling or Filling(), order.left_over, order.jobs, plans)
    return plans


def test_scores_are_looked_at_again_when_their_turn_comes() -> None:
    """Three jobs on one of five GPUs each until their deadlines, at 40, 90 and 100 s; two GPUs are left.

    With a second one, the last job ends at 25 s and saves 50 of 100 GPU seconds, most of all. Before that the second
    one would have saved 30 of 90, until 30 s. Now GPUs change hands at 25 s: 75 of its steps by then, and 15 s on one
    GPU, save 25. The first job, which would end at 6.7 s, saves 26.7 of 40.
    """
    jobs = [
        DeadlineJob(ScalingCurve([1, 2], [1.0, rate], capacity=5), work, work)
        for work, rate in ((40.0, 6.0), (90.0, 3.0), (100.0, 4.0))
    ]
    assert [plan.gpus[0] for plan in scaled(FreeProfile(0.0, 5), jobs)] == [2, 1, 2]
    assert [plan.gpus[0] for plan in scaled(FreeProfile(0.0, 4), jobs)] == [1, 1, 2]


def test_what_is_saved_counts_by_the_gpus_of_the_step() -> None:
    """One more GPU saves the first job 30 of 60 GPU seconds, two more save the second one 40; two are left."""
    jobs = [
        DeadlineJob(ScalingCurve([1, level], [1.0, rate], capacity=4), 60.0, 60.0)
        for level, rate in ((2, 4.0), (3, 9.0))
    ]
    assert [plan.gpus[0] for plan in scaled(FreeProfile(0.0, 4), jobs)] == [2, 1]


def test_a_job_that_is_scaled_again_has_its_own_gpus_besides() -> None:
    """Three GPUs for 10 s, one from then on: 30 of 60 steps on three, and the other 30 on the one."""
    job = DeadlineJob(ScalingCurve([1, 2, 3], [1.0, 2.0, 3.0], capacity=3), 60.0, 100.0)
    (plan,) = scaled(FreeProfile.of([(0.0, 3), (10.0, 1)]), [job])
    assert (plan.starts, plan.gpus, plan.real_end) == ([0.0, 10.0], [3, 1], 40.0)


@pytest.mark.parametrize(
    ("rate", "restart", "starting", "gpus"),
    [
        # 100 s on one GPU; 50 s and a restart on two
        (2.0, 49.0, 0.0, 2),
        (2.0, 50.0, 0.0, 1),
        # 100 s, and 30 s to get going, on one GPU; 67 s and a restart on two
        (1.5, 40.0, 0.0, 1),
        (1.5, 40.0, 30.0, 2),
    ],
)
def test_a_job_that_runs_is_scaled_where_that_is_a_gain(rate, restart, starting, gpus) -> None:
    job = DeadlineJob(ScalingCurve([1, 2], [1.0, rate], capacity=2), 100.0, 500.0, held=1, starting=starting)
    (plan,) = scaled(FreeProfile(0.0, 2), [job], Filling(restart_seconds=restart))
    assert plan.gpus[0] == gpus


def test_earliest_deadline_first_gives_gpus_back_when_others_begin() -> None:
    """The slots of the others are counted from elsewhere: theirs begins at 50 s, before the one of 60 s ends."""
    job = DeadlineJob(ScalingCurve([1, 2], [1.0, 2.0], capacity=4), 80.0, 200.0)
    plan = earliest_share(Filling(slot_seconds=60.0), FreeProfile.of([(0.0, 2), (50.0, 4)]), job)
    assert (plan.gpus, plan.real_end, plan.end, plan.charged_until) == ([2], 40.0, 50.0, 50.0)


def test_two_that_come_together_are_put_before_and_behind_one_who_is_there() -> None:
    """All three for 40 s on the only GPU."""
    one = ScalingCurve([1], [1.0], capacity=1)
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(Filling(), FreeProfile(0.0, 1))
    order.add([DeadlineJob(one, 40.0, 100.0)])
    assert [plan.real_end for plan in order.plans] == [40.0]
    order.add([DeadlineJob(one, 40.0, 150.0), DeadlineJob(one, 40.0, 50.0)])
    assert [job.deadline for job in order.jobs] == [50.0, 100.0, 150.0]
    assert [plan.real_end for plan in order.plans] == [40.0, 80.0, 120.0]
    # of equal deadlines those that were there come first
    there, equal = order.jobs[2], DeadlineJob(one, 10.0, 150.0)
    order.add([DeadlineJob(one, 10.0, 60.0), equal])
    assert order.jobs[-2:] == [there, equal]


def test_ends_that_are_passed_are_those_at_which_gpus_would_have_come_back():
    """50 s on one GPU, which comes back with the slot of 60 s; on two GPUs the job ends at 25 s."""
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(Filling(60.0), FreeProfile(0.0, 2))
    order.add([DeadlineJob(ScalingCurve([1, 2], [1.0, 2.0], capacity=2), 50.0, 100.0)])
    plans = list(order.plans)
    assert scale_as_published(Filling(60.0), order.left_over, order.jobs, plans) == ([0], {60.0})
    assert (plans[0].gpus, plans[0].real_end) == ([2], 25.0)
