"""Deadlines and priorities: drawn, shown to the policy, measured."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from allocator.simulator import PUBLISHED_SLOS, assign_slos, priorities_table, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, Trace, default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})


def test_slos_are_drawn_with_the_published_probabilities() -> None:
    trace = make_trace([1] * 6000)
    drawn = assign_slos(trace, np.random.default_rng(0)).slo
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [1.2, 2.0, 10.0]
    assert counts / 6000 == pytest.approx(list(PUBLISHED_SLOS.values()), abs=0.02)
    assert np.array_equal(drawn, assign_slos(trace, np.random.default_rng(0)).slo)
    assert not np.array_equal(drawn, assign_slos(trace, np.random.default_rng(1)).slo)


def test_slos_are_drawn_as_often_as_asked() -> None:
    drawn = assign_slos(make_trace([1] * 6000), np.random.default_rng(0), {2.0: 0.7, 5.0: 0.0, 3.0: 0.3}).slo
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [2.0, 3.0]
    assert counts / 6000 == pytest.approx([0.7, 0.3], abs=0.02)


def test_a_job_that_has_an_slo_keeps_it_and_does_not_disturb_the_others() -> None:
    n = 50
    plain = assign_slos(make_trace([1] * n), np.random.default_rng(3))
    partly = Trace(["job"] * n, [1] * n, [1] * n, [0] * n, slo=[7.0] + [np.nan] * (n - 1))
    drawn = assign_slos(partly, np.random.default_rng(3), {1.2: 0.33, 2.0: 0.34, 10.0: 0.33})
    assert drawn.slo[0] == 7.0
    assert np.array_equal(drawn.slo[1:], plain.slo[1:])
    none = assign_slos(partly, np.random.default_rng(3), {np.nan: 1.0})
    assert np.isnan(none.slo[1:]).all()


def test_bad_slos_are_named() -> None:
    for slos in ({}, {1.0: 0.5}, {0.0: 1.0}, {1.0: 1.5, 2.0: -0.5}):
        with pytest.raises(InputError, match="slos"):
            assign_slos(make_trace([1]), np.random.default_rng(0), slos)


def test_deadlines_follow_from_duration_or_from_the_reference_type() -> None:
    cluster = Cluster({"k80": 1, "v100": 1})
    trace = Trace(
        ["a"] * 5, [1] * 5, [100.0] * 5, [0.0, 10.0, 20.0, 30.0, 40.0],
        slo=[2.0, 2.0, 2.0, np.nan, 2.0], duration=[70.0, np.nan, np.nan, 9.0, np.nan],
    )  # fmt: skip
    jobs = JobTable(trace, [[1.0, 2.0], [5.0, 2.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], cluster)
    assert jobs.deadline[:3].tolist() == [140.0, 10.0 + 2 * 50.0, 20.0 + 2 * 100.0]
    assert np.isnan(jobs.deadline[3])
    assert jobs.deadline[4] == np.inf
    no_v100 = JobTable(trace, [[1.0, 2.0]] * 5, Cluster({"k80": 1, "p100": 1}))
    assert no_v100.deadline[1] == 10.0 + 2 * 50.0


def test_the_policy_sees_the_time_left_and_the_result_who_kept_it() -> None:
    policy = SharesPolicy()
    trace = Trace(
        ["a"] * 3, [1] * 3, [720.0, 720.0, 720.0], [0.0, 0.0, 5000.0],
        slo=[2.0, 1.2, np.nan], duration=[720.0] * 3, priority_weight=[1.0, 5.0, 1.0],
    )  # fmt: skip
    result = simulate(trace, ONE_GPU, policy, np.ones((3, 1)))
    assert policy.states[0].slo_seconds.tolist() == [1440.0, 864.0]
    # The first is through at 1080; the other, due at 864, is asked about then.
    assert policy.states[1].slo_seconds.tolist() == [864.0 - 1080.0]
    assert policy.states[-1].slo_seconds.tolist() == [np.inf]
    assert result.jobs["deadline"].tolist()[:2] == [1440.0, 864.0]
    assert result.jobs["met"].tolist() == [True, False, None]
    summary = result.summary()
    assert (summary["deadline_jobs"], summary["deadline_ratio"]) == (2, 0.5)
    by_weight = summary["by_priority"]
    assert [row["priority_weight"] for row in by_weight] == [5.0, 1.0]
    assert [row["deadline_ratio"] for row in by_weight] == [0.0, 1.0]


def test_a_job_that_never_completed_missed_its_deadline() -> None:
    trace = Trace(["a"] * 2, [1, 1], [720.0, 720.0], [0.0, 0.0], slo=[9.0, 9.0], duration=[720.0] * 2)
    result = simulate(trace, ONE_GPU, SharesPolicy(), [[1.0], [0.0]])
    assert result.jobs["met"].tolist() == [True, False]
    assert result.summary()["deadline_ratio"] == 0.5


def test_runs_without_deadlines_do_not_mention_them() -> None:
    result = simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0]])
    assert "deadline" not in result.jobs
    assert not [name for name in result.summary() if "deadline" in name]
    assert "by_priority" not in result.summary()


def test_figures_by_weight_add_up() -> None:
    trace = gavel_trace(40, 600.0, seed=3, priorities=True)
    cluster = Cluster({"v100": 4, "p100": 4, "k80": 4})
    result = simulate(trace, cluster, get_policy("max_min_fairness_perf"), default_table())
    table, jobs, summary = result.priorities, result.jobs, result.summary()
    assert table["priority_weight"].tolist() == [5.0, 1.0]
    assert table["jobs"].sum() == 40
    weighted = (table["average_jct"] * table["completed_jobs"]).sum() / table["completed_jobs"].sum()
    assert weighted == pytest.approx(summary["average_jct"])
    for row in table.itertuples():
        assert row.average_jct == pytest.approx(jobs["jct"][jobs["priority_weight"] == row.priority_weight].mean())
    assert table["worst_rho"].max() == summary["worst_rho"]
    assert priorities_table(jobs.iloc[:0]).columns.tolist() == table.columns.tolist()
