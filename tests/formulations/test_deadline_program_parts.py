"""What a deadline program counts: time before deadlines, deadlines that are past, and what tolerances leave of work."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.columns import InfeasibleError
from formulations.deadlines import DeadlineJob, Filling, JobPlan, ScalingCurve
from formulations.deadlines.patterns import plans_by_patterns
from formulations.deadlines.program import DeadlineProgram, MostDeadlines, least_gpu_seconds, most_value
from throughputs import InputError

CURVE = ScalingCurve([1, 2], [1.0, 1.5], capacity=2)


def test_parts_of_work_by_hand() -> None:
    """Slots of 15 s, until the first job is due, and of another 15 s."""
    program = DeadlineProgram([DeadlineJob(CURVE, 30.0, 15.0), DeadlineJob(CURVE, 60.0, 30.0)], 2, 0.0)
    assert program.borders.tolist() == [0.0, 15.0, 30.0]
    # steps/s times seconds by steps
    assert program.done() == pytest.approx(np.array([[30, 0], [45, 0], [15, 15], [22.5, 22.5]]) / 60)


def test_deadlines_that_are_past_are_worth_nothing() -> None:
    late = [DeadlineJob(CURVE, 10.0, due) for due in (50.0, 100.0)]
    assert most_value(DeadlineProgram(late, 2, 100.0)).bound == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InfeasibleError):
        most_value(DeadlineProgram(late, 2, 100.0, let_in=[True, False]))
    assert least_gpu_seconds(late, 2, 100.0) == np.inf
    # beside them, what can be met is
    open_yet = [*late, DeadlineJob(CURVE, 10.0, 200.0)]
    program = DeadlineProgram(open_yet, 2, 100.0)
    assert MostDeadlines(program).met(np.ravel(most_value(program).x.T)).tolist() == [False, False, True]


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_what_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="values"):
        DeadlineProgram([DeadlineJob(CURVE, 10.0, 10.0)], 2, 0.0, values=value)


def test_plans_to_begin_with_that_take_more_gpus_than_there_are_count_for_nothing() -> None:
    """Two gangs of two for 60 s until 100 s on three GPUs; plans in which both run at once are no schedule."""
    two = ScalingCurve([2], [1.0], capacity=3)
    jobs = [DeadlineJob(two, 60.0, 100.0) for _ in range(2)]
    start = [JobPlan([0.0], [2], 60.0, 60.0, True, 60.0) for _ in jobs]
    found = plans_by_patterns(Filling(), 3, 0.0, jobs, start)
    assert (found.status, found.plans, found.bound) == ("infeasible", None, np.inf)
