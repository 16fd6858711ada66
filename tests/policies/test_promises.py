"""Whose promises are tried for again in other orders, and plans that are carried on."""

from __future__ import annotations

import pytest

from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.promises import Promises, Repair
from formulations.deadlines import Filling, JobPlan, ScalingCurve

LINEAR = ScalingCurve([1, 2], [1.0, 2.0], capacity=2)
FLAT = ScalingCurve([1, 2], [1.0, 1.0], capacity=2)


def planned(work: float, curve: ScalingCurve = LINEAR, due: float = 100.0) -> PlannedJob:
    return PlannedJob(curve, work, due, 0, 0.0, f"job of {work}", 0)


@pytest.mark.parametrize(
    ("repair", "work", "expected"),
    [
        (Repair(0, 10, 1.0), 1.0, False),
        (Repair(1, 5, 1.0), 50.0, True),
        (Repair(1, 4, 1.0), 50.0, False),
        (Repair(1, 9, 1.0), 50.1, False),
        (Repair(1, 9, 0.4), 20.0, True),
        (Repair(1, 9, 0.4), 20.1, False),
        (Repair(1, 9, 0.0), 10.0, True),
        (Repair(1, 9, 0.0), 10.1, False),
    ],
)
def test_repair_is_for_jobs_that_need_little(repair: Repair, work: float, expected: bool) -> None:
    """Of the least GPU time of the others, which are 10, 20, 40 and 50 GPU seconds."""
    others = [planned(40.0), planned(10.0), planned(50.0, FLAT), planned(20.0)]
    assert repair.is_for([planned(work)], others) is expected
    # two GPUs are no faster, and one is enough
    assert repair.is_for([planned(work, FLAT)], others) is expected
    if expected:
        assert not repair.is_for([planned(work), planned(60.0)], others)
        assert Repair(1, 1, 0.0).is_for([planned(1e6)], [])


def test_plans_are_carried_on_if_there_are_gpus_for_them_and_only_then() -> None:
    made = Promises(Filling(), 0.0, gpus=2)
    jobs = [planned(100.0), planned(99.0)]
    plans = [JobPlan([0.0], [1], 100.0, 100.0, True, 100.0), JobPlan([0.0], [1], 99.0, 99.0, True, 99.0)]
    assert made.fix(jobs, plans)
    assert made.jobs == jobs
    assert made.left_over.free[0] == 0
    third = JobPlan([98.0], [1], 100.0, 100.0, True, 100.0)
    assert not made.fix([*jobs, planned(2.0)], [*plans, third])
    # those of before stand
    assert (made.jobs, made.plans) == (jobs, plans)
    assert not made.admit([planned(2.0)])
    assert made.admit([planned(1.0)])
