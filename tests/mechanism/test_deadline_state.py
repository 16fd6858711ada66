"""Deadlines on their way from the trace to the policy, and rates that only the trace states."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol import Need
from allocator.protocol.jobs import JobTable
from throughputs import ThroughputTable, Trace

ONE = Cluster({"a100": 8})
SOFT = ((100.0, 10.0), (200.0, 8.0))


def trace(**columns):
    made = {"deadline": [np.nan, 1e12, np.nan, np.nan], "deadline_options": [SOFT, (), (), ()]} | columns
    return Trace(["a"] * 4, [1, 2, 1, 4], [10.0] * 4, [0.0, 5.0, 5.0, 6.0], **made)


def part(whole, first, end):
    return Trace(**{name: getattr(whole, name)[first:end] for name in Trace.column_names()})


def test_policies_see_deadlines_on_the_clock():
    jobs = JobTable.from_trace(trace(slo=[np.nan, np.nan, np.nan, 2.0], duration=[9.0] * 4), np.ones((4, 1)), ONE)
    state = jobs.snapshot(np.array([0, 1, 3]), 50.0, ONE, needs=Need.DEADLINE_OPTIONS)
    assert state.deadlines.tolist() == [100.0, 1e12, 24.0]
    assert state.slo_seconds.tolist() == [50.0, 1e12 - 50, -26.0]
    options = state.deadline_options
    assert options.seconds.tolist() == [100.0, 200.0, 1e12, 24.0]
    assert options.value.tolist() == [10.0, 8.0, 1.0, 1.0]
    assert options.offsets.tolist() == [0, 2, 3, 4]
    assert jobs.snapshot(np.array([2]), 0.0, ONE).deadlines.tolist() == [np.inf]
    with pytest.raises(AttributeError, match=r"deadline_options.*Need\.DEADLINE_OPTIONS"):
        _ = jobs.snapshot(np.array([2]), 0.0, ONE).deadline_options


def test_a_table_that_grows_and_shrinks_keeps_them():
    whole = trace()
    jobs = JobTable.from_trace(part(whole, 0, 2), np.ones((2, 1)), ONE)
    jobs.submit(JobTable.from_trace(part(whole, 2, 4), np.ones((2, 1)), ONE))
    known = JobTable.from_trace(whole, np.ones((4, 1)), ONE)
    for name in ("offsets", "seconds", "value"):
        assert np.array_equal(getattr(jobs.deadline_options, name), getattr(known.deadline_options, name))
    jobs.retire([0, 2])
    assert jobs.deadline_options.offsets.tolist() == [0, 1, 1]
    assert jobs.deadline_options.seconds.tolist() == [1e12]


TABLE = ThroughputTable([("known", 1), ("known", 2)], ["a100", "t4"], [[5.0, 1.0], [8.0, 2.0]])


def stated(types, gpus, duration):
    return Trace(types, gpus, [100.0] * len(types), [0.0] * len(types), duration=duration)


def test_a_job_that_the_table_does_not_have_goes_as_its_trace_says():
    jobs = stated(["known", "known", "other"], [2, 4, 2], [50.0, 20.0, 10.0])
    table = JobTable.from_trace(jobs, TABLE, ONE, needs=Need.CONFIGURATIONS)
    assert table.rates.tolist() == [[8.0], [5.0], [10.0]]
    ways = table.configurations
    # A type that was profiled keeps its columns; one that was not has its own gang.
    assert [sorted(set(ways.gpus[ways.job == i].tolist())) for i in range(3)] == [[1, 2], [1, 2], [2]]
    alone = JobTable.from_trace(stated(["other"], [2], [10.0]), TABLE, ONE, needs=Need.CONFIGURATIONS)
    assert alone.rates.tolist() == [[10.0]]
    assert alone.configurations.rate.tolist() == [10.0]
