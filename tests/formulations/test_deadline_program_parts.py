"""What a deadline program counts: time before deadlines, deadlines that are past, and what tolerances leave of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from formulations.columns import InfeasibleError
from formulations.deadlines import DeadlineJob, Filling, JobPlan, ScalingCurve
from formulations.deadlines.patterns import plans_by_patterns
from formulations.deadlines.program import DeadlineProgram, all_can_be_met, most_value, solve_deadlines
from throughputs import InputError

CURVE = ScalingCurve([1, 2], [1.0, 1.5], capacity=2)


def test_parts_of_work_and_gpu_time_by_hand() -> None:
    """Slots of 10 s and 20 s; the first job is due at 15 s, after a quarter of the second slot."""
    jobs = [DeadlineJob(CURVE, 30.0, 15.0), DeadlineJob(CURVE, 60.0, 30.0)]
    program = DeadlineProgram(jobs, 2, [0.0, 10.0, 30.0])
    assert program.usable.tolist() == [[10.0, 5.0], [10.0, 20.0]]
    # steps/s times seconds by steps
    assert program.done() == pytest.approx(np.array([[10, 5], [15, 7.5], [5, 10], [7.5, 15]]) / 30)
    # relative to two GPUs for 20 s
    assert program.gpu_time == pytest.approx(np.array([[10, 20], [20, 40], [10, 20], [20, 40]]) / 40)


def test_deadlines_that_are_past_are_worth_nothing() -> None:
    late = [DeadlineJob(CURVE, 10.0, due) for due in (50.0, 100.0)]
    assert most_value(DeadlineProgram.interval_bound(late, 2, 100.0)).bound == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InfeasibleError):
        most_value(DeadlineProgram.interval_bound(late, 2, 100.0, let_in=[True, False]))
    assert not all_can_be_met(late, 2, 100.0)
    # beside them, what can be met is
    open_yet = [*late, DeadlineJob(CURVE, 10.0, 200.0)]
    assert solve_deadlines(DeadlineProgram.interval_bound(open_yet, 2, 100.0)).met.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("field", "value"),
    [("borders", [0.0]), ("borders", [0.0, 10.0, 10.0]), ("borders", [10.0, 0.0])]
    + [("values", value) for value in (0.0, -1.0, np.inf, np.nan)],
)
def test_what_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=field):
        DeadlineProgram([DeadlineJob(CURVE, 10.0, 10.0)], 2, **{"borders": [0.0, 10.0], field: value})


def test_a_plan_that_ends_with_its_slot() -> None:
    """Ten steps in each of two slots of 10 s."""
    (plan,) = solve_deadlines(DeadlineProgram([DeadlineJob(CURVE, 20.0, 20.0)], 1, [0.0, 10.0, 20.0])).plans or ()
    assert (plan.starts, plan.gpus, plan.end) == ([0.0], [1], 20.0)


def test_plans_to_begin_with_that_take_more_gpus_than_there_are_count_for_nothing() -> None:
    """Two gangs of two for 60 s until 100 s on three GPUs; plans in which both run at once are no schedule."""
    two = ScalingCurve([2], [1.0], capacity=3)
    jobs = [DeadlineJob(two, 60.0, 100.0) for _ in range(2)]
    start = [JobPlan([0.0], [2], 60.0, 60.0, True, 60.0) for _ in jobs]
    found = plans_by_patterns(Filling(), 3, 0.0, jobs, start)
    assert (found.status, found.plans, found.bound) == ("infeasible", None, np.inf)
