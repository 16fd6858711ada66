"""Deadlines on their way from the trace to the policy, and rates that only the trace states."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.checkpoint.checkpoint import _digest, identity
from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Need
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from allocator.simulator import assign_slos
from allocator.simulator.arrivals import preload
from allocator.simulator.truth import Truth
from throughputs import InputError, ThroughputMatrix, ThroughputTable, Trace
from throughputs.deadlines import DeadlineOptions

ONE = Cluster({"a100": 8})
SOFT = ((100.0, 10.0), (200.0, 8.0))


def trace(**columns: object) -> Trace:
    made = {"deadline": [np.nan, 2.0**53 - 1, np.nan, np.nan], "deadline_options": [SOFT, (), (), ()]} | columns
    return Trace(["a"] * 4, [1, 2, 1, 4], [10.0] * 4, [0.0, 5.0, 5.0, 6.0], **made)  # type: ignore[arg-type]


def part(whole: Trace, first: int, end: int) -> Trace:
    return Trace(**{name: getattr(whole, name)[first:end] for name in Trace.column_names()})


def test_policies_see_deadlines_on_the_clock() -> None:
    jobs = JobTable(trace(slo=[np.nan, np.nan, np.nan, 2.0], duration=[9.0] * 4), np.ones((4, 1)), ONE)
    state = jobs.snapshot(np.array([0, 1, 3]), 50.0, ONE, needs=Need.DEADLINE_OPTIONS)
    assert state.deadlines.tolist() == [100.0, 2.0**53 - 1, 24.0]
    assert state.slo_seconds.tolist() == [50.0, 2.0**53 - 51, -26.0]
    options = state.deadline_options
    assert options.seconds.tolist() == [100.0, 200.0, 2.0**53 - 1, 24.0]
    assert options.value.tolist() == [10.0, 8.0, 1.0, 1.0]
    assert options.offsets.tolist() == [0, 2, 3, 4]
    assert jobs.snapshot(np.array([2]), 0.0, ONE).deadlines.tolist() == [np.inf]
    with pytest.raises(AttributeError, match=r"deadline_options.*Need\.DEADLINE_OPTIONS"):
        _ = jobs.snapshot(np.array([2]), 0.0, ONE).deadline_options


def test_a_table_that_grows_and_shrinks_keeps_them() -> None:
    whole = trace()
    jobs = JobTable(part(whole, 0, 2), np.ones((2, 1)), ONE)
    jobs.submit(JobTable(part(whole, 2, 4), np.ones((2, 1)), ONE))
    known = JobTable(whole, np.ones((4, 1)), ONE)
    for name in ("offsets", "seconds", "value"):
        assert np.array_equal(getattr(jobs.deadline_options, name), getattr(known.deadline_options, name))
    jobs.retire([0, 2])
    assert jobs.deadline_options.offsets.tolist() == [0, 1, 1]
    assert jobs.deadline_options.seconds.tolist() == [2.0**53 - 1]


def test_states_made_by_hand() -> None:
    matrix = ThroughputMatrix(np.ones((2, 1)), ["x", "y"], ["a100"])
    by_clock = ClusterState(ONE, matrix, clock=10.0, deadlines=[30.0, np.inf])
    assert by_clock.slo_seconds.tolist() == [20.0, np.inf]
    by_time_left = ClusterState(ONE, matrix, clock=10.0, slo_seconds=[20.0, np.inf])
    assert by_time_left.deadlines.tolist() == [30.0, np.inf]
    assert ClusterState(ONE, matrix).deadlines.tolist() == [np.inf, np.inf]
    options = DeadlineOptions.of_rows([SOFT, ()])
    state = ClusterState(ONE, matrix, deadline_options=options).subset(np.array([1, 0]))
    assert state.deadline_options.offsets.tolist() == [0, 0, 2]
    with pytest.raises(InputError, match="deadline_options"):
        ClusterState(ONE, matrix, deadline_options=DeadlineOptions.of_rows([SOFT]))


def test_runs_with_other_deadlines_are_other_runs() -> None:
    def text(of: Trace) -> str:
        return _digest(*(getattr(of, name) for name in Trace.column_names()))

    soft = [((100.0, 10.0), (200.0, 7.0)), (), (), ()]
    texts = {text(trace()), text(trace(deadline=[np.nan] * 4)), text(trace(deadline_options=soft))}
    assert len(texts) == 3
    assert text(trace()) == text(trace())


def test_preloaded_jobs_keep_the_time_they_have() -> None:
    made = Trace(["a"] * 3, [8, 1, 1], [1.0] * 3, [3.0, 5.0, 9.0], deadline_options=[(), ((25.0, 2.0),), ()])
    moved = preload(made, ONE)
    assert moved.arrival_time.tolist() == [0.0, 0.0, 4.0]
    assert np.array_equal(moved.deadline, [np.nan, 20.0, np.nan], equal_nan=True)
    assert moved.deadline_options[1] == ((20.0, 2.0),)


def test_jobs_with_a_deadline_are_not_given_another() -> None:
    drawn = assign_slos(trace(), np.random.default_rng(0))
    assert np.isnan(drawn.slo).tolist() == [True, True, False, False]


TABLE = ThroughputTable([("known", 1), ("known", 2)], ["a100", "t4"], [[5.0, 1.0], [8.0, 2.0]])


def stated(types: list[str], gpus: list[int], duration: list[float]) -> Trace:
    return Trace(types, gpus, [100.0] * len(types), [0.0] * len(types), duration=duration)


def test_a_job_that_the_table_does_not_have_goes_as_its_trace_says() -> None:
    jobs = stated(["known", "known", "other"], [2, 4, 2], [50.0, 20.0, 10.0])
    table = JobTable.from_trace(jobs, TABLE, ONE, needs=Need.CONFIGURATIONS)
    assert table.rates.tolist() == [[8.0], [5.0], [10.0]]
    ways = table.configurations
    assert ways is not None
    # A type that was profiled keeps its columns; one that was not has its own gang.
    assert [ways.counts_of(i) for i in range(3)] == [(1, 2), (1, 2), (2,)]
    alone = JobTable.from_trace(stated(["other"], [2], [10.0]), TABLE, ONE, needs=Need.CONFIGURATIONS)
    assert alone.rates.tolist() == [[10.0]]
    assert alone.configurations is not None
    assert alone.configurations.rate.tolist() == [10.0]


@pytest.mark.parametrize("jobs", [stated(["other"], [1], [np.nan]), stated(["known"], [4], [np.nan])])
def test_without_a_duration_it_is_an_error(jobs: Trace) -> None:
    with pytest.raises(InputError, match=r"job type of the table|one of 1, 2"):
        JobTable.from_trace(jobs, TABLE, ONE)


def test_on_several_types_it_is_an_error() -> None:
    jobs = stated(["other"], [1], [10.0])
    with pytest.raises(InputError, match="job type of the table"):
        JobTable.from_trace(jobs, TABLE, Cluster({"a100": 1, "t4": 1}))


def test_runs_with_other_rates_by_number_of_gpus_are_other_runs() -> None:
    jobs = Trace(["a"], [1], [10.0], [0.0])
    said = []
    for fast in (8.0, 9.0):
        table = ThroughputTable([("a", 1), ("a", 2)], ["a100"], [[5.0], [fast]])
        known = JobTable.from_trace(jobs, table, ONE, needs=Need.CONFIGURATIONS)
        truth = Truth(known.rates, known.scale_factor)
        said.append(identity(jobs, known, truth, ONE, get_policy("fifo"), {})["throughputs"])
    assert said[0] != said[1]
