"""A job table that grows and shrinks, and a core that lives through it."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.protocol import Need
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import PackedColumns, Trace

CLUSTER = Cluster({"v100": 2, "k80": 2})


def part(trace, first, end):
    return Trace(**{name: getattr(trace, name)[first:end] for name in Trace.column_names()})


def test_ids_stay_what_they_are_and_are_never_used_again():
    trace = make_trace([5, 6, 7, 8, 9, 10])
    jobs = JobTable.from_trace(part(trace, 0, 3), np.ones((3, 2)), CLUSTER)
    jobs.register("kept_for_somebody", 7)
    jobs.columns["kept_for_somebody"][:] = [1, 2, 3]
    jobs.retire([1])
    assert jobs.ids.tolist() == [0, 2]
    assert jobs.rows(np.array([2, 0])).tolist() == [1, 0]
    assert jobs.total_steps.tolist() == [5, 7]
    assert jobs.columns["kept_for_somebody"].tolist() == [1, 3]
    assert jobs.submit(JobTable.from_trace(part(trace, 3, 5), np.ones((2, 2)), CLUSTER)).tolist() == [3, 4]
    assert jobs.ids.tolist() == [0, 2, 3, 4]
    assert jobs.columns["kept_for_somebody"].tolist() == [1, 3, 7, 7]
    jobs.retire([0, 2, 3, 4])
    assert len(jobs) == 0
    assert jobs.submit(JobTable.from_trace(part(trace, 5, 6), np.ones((1, 2)), CLUSTER)).tolist() == [5]
    assert jobs.rows(np.array([5])).tolist() == [0]
    assert jobs.snapshot(np.array([5]), 0.0, CLUSTER).steps_remaining.tolist() == [10.0]


def test_jobs_told_column_by_column_are_those_of_a_trace():
    trace = Trace(["a", "b"], [1, 4], [6.0, 8.0], [0.0, 5.0], deadline=[np.nan, 9.0], gpu_type=["k80", ""])
    rates = [[2.0, 1.0], [2.0, 1.0]]
    told = {name: getattr(trace, name).tolist() for name in ("job_type", "scale_factor", "total_steps", "arrival_time")}
    given = JobTable(told | {"deadline": [np.nan, 9.0], "gpu_type": ["k80", ""]}, rates, CLUSTER)
    table = JobTable.from_trace(trace, rates, CLUSTER)
    for name in ("rates", "predicted_seconds", "deadline", "priority_weight", "entity"):
        np.testing.assert_array_equal(getattr(given, name), getattr(table, name))
    assert given.rates.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert given.predicted_seconds.tolist() == [6.0, 0.0]
    assert given.deadline_options.seconds.tolist() == table.deadline_options.seconds.tolist() == [9.0]


def test_views_are_of_those_who_are_left():
    """Co-location, training and entities are cut down with the table, and its labels are the ids."""
    n = 5
    trace = Trace(["job"] * n, [1] * n, [10.0 * (i + 1) for i in range(n)], [0.0] * n, entity=["a", "b", "a", "b", "a"])
    columns = PackedColumns([0, 1, 1, 0, 2], [[1.0], [2.0], [3.0]], np.full((3, 3, 1), 0.5), accelerators=["v100"])
    cluster = Cluster({"v100": 2})
    entities = Entities.parse({"a": 1.0, "b": 2.0})
    jobs = JobTable.from_trace(trace, columns, cluster, needs=Need.COLOCATION | Need.TRAINING, entities=entities)
    whole = jobs.snapshot(np.array([1, 3, 4]), 0.0, cluster, needs=Need.COLOCATION | Need.TRAINING)
    whole.read_all()
    jobs.retire([0, 2])
    left = jobs.snapshot(np.array([1, 3, 4]), 0.0, cluster, needs=Need.COLOCATION | Need.TRAINING)
    for state in (whole, left):
        assert state.throughputs.jobs == (1, 3, 4)
        assert state.rates.ravel().tolist() == [2.0, 1.0, 3.0]
        assert state.colocation.rates.ravel().tolist() == [2.0, 1.0, 3.0]
        assert state.training.profiles.total_seconds.tolist() == pytest.approx([10.0, 40.0, 50 / 3])
        assert state.membership.of_job.tolist() == [1, 1, 0]


@pytest.mark.parametrize("aware", [True, False])
def test_a_core_decides_on_a_table_without_those_who_left_as_on_the_whole(aware):
    sizes = [1, 2, 1, 1, 2, 1, 1, 2]
    rates = np.random.default_rng(3).uniform(1, 2, (8, 2))
    played = []
    for retires in (False, True):
        trace = make_trace([500] * 8, sizes=sizes)
        jobs = JobTable.from_trace(part(trace, 0, 5), rates[:5], CLUSTER)
        core = DecisionCore(SharesPolicy(heterogeneity_aware=aware), CLUSTER, jobs)
        core.arrive([0, 1, 2, 3, 4])
        rounds = []
        for number in range(12):
            if number in (2, 5):
                gone = [0, 4] if number == 2 else [1]
                core.complete(gone)
                if retires:
                    jobs.retire(gone)
            if number == 4:
                core.arrive(jobs.submit(JobTable.from_trace(part(trace, 5, 7), rates[5:7], CLUSTER)))
            if number == 6:  # one leaves who was there when the policy was last asked, and the one behind was not
                core.next(360.0 * number)
                core.arrive(jobs.submit(JobTable.from_trace(part(trace, 7, 8), rates[7:], CLUSTER)))
                core.complete([6])
                if retires:
                    jobs.retire([6])
            decision = core.next(360.0 * number)
            rounds.append((decision.jobs.tolist(), decision.assignment.pool.tolist(), decision.gpus))
            jobs.steps_done[jobs.rows(decision.jobs)] += 10.0 + decision.jobs
            core.record(decision, np.full(len(decision.jobs), 360.0))
        still = core.active
        played.append((rounds, still.tolist(), jobs.isolated_seconds[jobs.rows(still)].tolist()))
    assert played[0] == played[1]
    assert played[1][1] == [2, 3, 5, 7]
