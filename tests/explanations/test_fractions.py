"""Waits of jobs that share GPUs in fractions: what was free, what the policy says, what would have let them run."""

from __future__ import annotations

from typing import Any

import pytest

from allocator import Cluster, explain
from allocator.explanations.redecide import can_redecide
from allocator.explanations.run import FinishedRun
from tests.explanations.worlds import run_of, trace_of


def texts(result: Any, job: int, **when: float) -> list[str]:
    moment = explain(result, job, **when).waits[0].moment
    assert moment is not None
    assert moment.redecided
    return [change.text for change in moment.changes]


def says(result: Any, job: int) -> str:
    moment = explain(result, job).waits[0].moment
    assert moment is not None
    return moment.policy_says


def test_changes_that_let_a_fraction_run() -> None:
    """0.5 and 0.25 share a GPU, a whole job has the other; 0.3 waits, as only 0.25 is left."""
    trace = trace_of([600, 600, 1800, 600], [1, 1, 1, 1], gpu_fraction=[0.5, 0.25, 1.0, 0.3])
    result = run_of(trace, "gpu:2", "fcfs")
    assert texts(result, 3) == ["1 GPU more of gpu", "0.15 of a GPU, as fast for its size", "no job 2 (1 GPU; ran)"]


def test_parts_that_are_free_are_told() -> None:
    trace = trace_of([600, 600, 600, 600, 600], [1, 1, 1, 1, 3], gpu_fraction=[0.5, 0.25, 0.7, 0.7, 1.0])
    result = run_of(trace, Cluster({"gpu": 5}, {"gpu": 2}), "fcfs")
    told = explain(result, 4)
    free = told.waits[0].moment.free["gpu"]  # type: ignore[union-attr]
    assert (free.gpus, free.servers, free.largest, free.whole, free.parts) == (pytest.approx(2.85), 1, 2, 2, 3)
    assert free.largest_part == 0.3
    assert told.waits[0].free_gpu_hours == pytest.approx(2.85 * 600 / 3600)
    assert [holder.gpus for holder in told.waits[0].holders] == [0.7, 0.7, 0.5, 0.25]
    assert "gang_does_not_fit" in told.waits[0].reasons


def test_free_in_sum_does_not_let_a_fraction_run() -> None:
    """0.4 is free on each of two GPUs: half a GPU would not run without who waits before it, but without who runs."""
    trace = trace_of([900, 900, 100, 100], [1, 1, 2, 1], gpu_fraction=[0.6, 0.6, 1.0, 0.5])
    result = run_of(trace, "gpu:2", "fcfs", policy_settings={"backfill": "skip"})
    assert texts(result, 3) == [
        "1 GPU more of gpu",
        "0.25 of a GPU, as fast for its size",
        "no job 1 (0.6 of a GPU; ran)",
    ]
    assert says(result, 3) == "place 4 in line"
    blocked = run_of(trace, "gpu:2", "fcfs")
    assert says(blocked, 3) == "place 4 in line"


def test_a_fraction_that_would_fit_is_held_up_by_the_line() -> None:
    trace = trace_of([900, 900, 100, 100], [1, 1, 1, 1], gpu_fraction=[0.6, 0.6, 0.5, 0.4])
    result = run_of(trace, "gpu:2", "fcfs")
    assert says(result, 3) == "place 4 in line; job 2 before it needs 0.5 of a GPU, and lets nobody pass"
    assert texts(result, 3) == ["1 GPU more of gpu", "no job 1 (0.6 of a GPU; ran)"]


def test_decisions_are_made_again_from_the_predictions_of_the_run() -> None:
    trace = trace_of([300, 200, 100], [1, 1, 1], gpu_fraction=[0.6, 0.6, 0.6], predicted_seconds=[10.0, 20.0, 30.0])
    run = FinishedRun.of(run_of(trace, "gpu:1", "qssf"))
    assert run.jobs.predicted_seconds.tolist() == [10.0, 20.0, 30.0]
    assert can_redecide(run)
    # the shortest was told to be the longest
    assert says(run_of(trace, "gpu:1", "qssf"), 2) == "place 3 in line"
    without = trace_of([300, 200, 100], [1, 1, 1], gpu_fraction=[0.6, 0.6, 0.6])
    assert can_redecide(FinishedRun.of(run_of(without, "gpu:1", "qssf")))
