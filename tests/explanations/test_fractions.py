"""Waits of jobs that share GPUs in fractions: what was free, what the policy says, what would have let them run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, explain
from allocator.explanations.explanation import Explanation
from allocator.explanations.redecide import EventReplay, can_redecide, comes_out_the_same, decided
from allocator.explanations.run import FinishedRun
from allocator.explanations.text import explanation_text
from tests.explanations.worlds import run_of, trace_of


def texts(result: Any, job: int, **when: float) -> list[str]:
    moment = explain(result, job, **when).waits[0].moment
    assert moment is not None
    assert moment.redecided
    return [change.text for change in moment.changes]


def lines(told: Explanation) -> list[str]:
    return [line for line in explanation_text(told) if isinstance(line, str)]


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
    assert "  2.85 of 5 gpu free: 2 whole on 1 server, and parts of 3 GPUs, at most 0.3 of one" in lines(told)
    assert "gang_does_not_fit" in told.waits[0].reasons
    shared = run_of(trace_of([9, 9, 9], [1, 1, 1], gpu_fraction=[0.5, 0.25, 0.5]), "gpu:1", "fcfs")
    assert "  0.25 of 1 gpu free: 0.25 of one GPU that jobs share" in lines(explain(shared, 2))


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


def test_gpus_of_the_types_behind_keep_their_jobs() -> None:
    """One GPU more of the first type: those who share a GPU of the second one still do."""
    trace = trace_of([900, 900, 900, 100], [1, 1, 1, 1], [0, 0, 0, 50], gpu_fraction=[1.0, 0.5, 0.25, 0.5])
    rates = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    result = run_of(trace, "v100:1,k80:1", "fcfs", rates)
    told = texts(result, 3)
    assert told[0] == "1 GPU more of v100"
    # without the first, the others keep theirs as well
    assert told[-1] == "no job 0 (1 GPU; ran)"


@pytest.mark.parametrize(
    ("policy", "placement", "backfill"),
    [("fcfs", "consolidated", "off"), ("sjf", "best_fit", "skip"), ("fcfs", "best_fit", "easy")],
)
def test_lines_decide_as_they_did(policy: str, placement: str, backfill: str) -> None:
    rng = np.random.default_rng(3)
    n = 24
    sizes = rng.choice([0.1, 0.25, 0.5, 0.6, 1, 2], n)
    trace = trace_of(
        np.round(rng.uniform(50, 900, n)).tolist(), np.maximum(sizes, 1).astype(int).tolist(),
        np.sort(np.round(rng.uniform(0, 1500, n))).tolist(), gpu_fraction=np.minimum(sizes, 1),
    )  # fmt: skip
    cluster = Cluster({"gpu": 4}, {"gpu": 2})
    result = run_of(trace, cluster, policy, policy_settings={"backfill": backfill}, placement=placement)
    run = FinishedRun.of(result)
    assert can_redecide(run)
    replay = EventReplay(run)
    asked = [replay.instant(clock) for clock in np.unique(run.rows.start).tolist()]
    same = [comes_out_the_same(run, instant) for instant in asked]
    assert all(same)
    assert any(len(decided(run, instant).jobs) < len(instant.active) for instant in asked)


def test_predictions_are_not_written_down() -> None:
    trace = trace_of([300, 200, 100], [1, 1, 1], gpu_fraction=[0.6, 0.6, 0.6], predicted_seconds=[10.0, 20.0, 30.0])
    assert not can_redecide(FinishedRun.of(run_of(trace, "gpu:1", "qssf")))
    assert can_redecide(FinishedRun.of(run_of(trace, "gpu:1", "fcfs")))
    without = trace_of([300, 200, 100], [1, 1, 1], gpu_fraction=[0.6, 0.6, 0.6])
    assert can_redecide(FinishedRun.of(run_of(without, "gpu:1", "qssf")))
    burst = run_of(without, "gpu:1", "qssf", policy_settings={"burst_seconds": 1.0})
    assert not can_redecide(FinishedRun.of(burst))


def test_an_order_that_preempts_is_placed_as_in_the_run() -> None:
    trace = trace_of([100, 200, 300, 300], [1, 1, 1, 1], gpu_fraction=[0.6, 0.6, 0.5, 0.25])
    result = run_of(trace, "gpu:2", "srtf")
    assert "0.25 of a GPU, as fast for its size" in texts(result, 2)
