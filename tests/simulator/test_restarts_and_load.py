"""What restarts take, how long jobs wait, how full a cluster is while jobs come, and what owning it costs."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd
import pytest

from allocator import Cluster, default_table, get_policy, simulate
from allocator.presets import Preset
from allocator.presets.default import DEFAULT
from allocator.results.measures.parts import users_table
from allocator.results.tables import jobs_table
from allocator.simulator import SimulationResult, SimulationStalledError
from tests.simulator.event_policies import OrderPolicy
from tests.simulator.packed_worlds import PairPolicy, always_together
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import PackedColumns, Trace, gavel_trace

ONE = Cluster({"v100": 1})
SMALL = Cluster({"v100": 4, "p100": 4, "k80": 12})


def gangs(**changes: object) -> SimulationResult:
    trace = gavel_trace(40, 1500.0, seed=3, multi_gpu=True)
    policy = get_policy("max_min_fairness_perf")
    return simulate(trace, SMALL, policy, default_table(), preset=DEFAULT.replace(**changes))


def test_every_start_of_a_gang_is_paid_for_once_by_its_size() -> None:
    """In rounds of 360 s nothing is cut short: a job starts once, and once more after each preemption."""
    jobs = gangs().jobs
    assert jobs["preemptions"].sum() > 50
    assert (jobs["scale_factor"] > 1).any()
    starts = jobs["preemptions"] + 1
    assert jobs["restart_gpu_seconds"].tolist() == (30.0 * jobs["scale_factor"] * starts).tolist()


def test_gpus_that_two_jobs_share_are_lost_once() -> None:
    """Two gangs of two on the same GPUs that both take 30 s to start: 60 GPU seconds are lost, not 120."""
    trace = make_trace([100.0, 100.0], [2, 2])
    rates = PackedColumns(
        np.zeros(2, dtype=np.int64), np.ones((1, 1)), np.full((1, 1, 1), 0.5), np.array([2]), accelerators=["v100"]
    )
    result = simulate(trace, Cluster({"v100": 2}), PairPolicy(always_together), rates, preset=DEFAULT)
    assert result.jobs["restart_gpu_seconds"].tolist() == [30.0, 30.0]


def test_gangs_over_several_servers_pay_more() -> None:
    cluster = Cluster({"v100": 16})
    result = simulate(make_trace([100.0, 100.0], [8, 9]), cluster, SharesPolicy(), np.ones((2, 1)), preset=DEFAULT)
    assert result.jobs["completion_time"].tolist() == [360.0 + 130.0, 160.0]
    assert result.jobs["restart_gpu_seconds"].tolist() == [8 * 30.0, 9 * 60.0]
    assert result.summary()["restart_gpu_hours"] == pytest.approx((240 + 540) / 3600)


def test_another_penalty_is_that_of_every_gang() -> None:
    assert DEFAULT.replace(restart_penalty_seconds=10.0).simulator.restart_penalty_by_gpus == ()
    assert DEFAULT.replace(restart_penalty_seconds=30.0) == DEFAULT
    given = DEFAULT.replace(restart_penalty_seconds=10.0, restart_penalty_by_gpus=((4, 20.0),))
    assert given.simulator.restart_penalty_by_gpus == ((4, 20.0),)


def test_restarts_of_a_policy_that_decides_at_events() -> None:
    """The short job takes the GPU at 50 s; the long one starts again at 50 + 30 + 20 s."""
    trace = make_trace([100.0, 20.0], arrivals=[0.0, 50.0])
    result = simulate(trace, ONE, OrderPolicy(), np.ones((2, 1)), preset=DEFAULT)
    assert result.jobs["completion_time"].tolist() == [100.0 + 30.0 + 80.0, 100.0]
    assert result.jobs["restart_gpu_seconds"].tolist() == [60.0, 30.0]
    assert result.jobs["running_time"].tolist() == [50.0 + 110.0, 50.0]
    assert result.jobs["queueing_time"].tolist() == [50.0, 0.0]
    summary = result.summary()
    assert summary["average_queueing_time"] == 25.0
    assert summary["average_running_time"] == 105.0


def test_sums_of_stretches_that_round_up_are_no_waiting() -> None:
    """A job that ran all the time has waited for nothing, but what is more than rounding is not hidden."""
    result = simulate(make_trace([100.0, 20.0], arrivals=[0.0, 50.0]), ONE, OrderPolicy(), np.ones((2, 1)))
    for factor, waited in ((1.0 + 1e-13, 0.0), (1.0 + 1e-6, pytest.approx(-2e-5))):
        record = copy(result.record)
        record.row_seconds = result.record.row_seconds * factor
        assert jobs_table(record)["queueing_time"][1] == waited


@pytest.mark.parametrize("changes", [{}, {"ideal": True}, {"restart_penalty_seconds": 0.0}])
def test_waiting_and_running_make_up_the_completion_time(changes: dict[str, object]) -> None:
    jobs = gangs(**changes).jobs
    np.testing.assert_allclose(jobs["running_time"] + jobs["queueing_time"], jobs["jct"])
    assert (jobs["running_time"] > 0).all()
    assert (jobs["queueing_time"] >= 0).all()


def test_utilisation_while_jobs_come_and_what_owning_costs() -> None:
    """Two GPUs, jobs of 300 s on one at 0 and at 900 s: of the 1,800 GPU seconds until then 300 are busy."""
    trace = make_trace([300.0, 300.0], arrivals=[0.0, 900.0])
    prices = {"v100": 3.6}
    run = simulate(trace, Cluster({"v100": 2}), OrderPolicy(), np.ones((2, 1)), preset=Preset(), prices=prices)
    summary = run.summary()
    assert summary["loaded_utilization"] == pytest.approx(300 / 1800)
    assert summary["utilization"] == pytest.approx(600 / 2400)
    assert summary["cost"] == pytest.approx(600 * 0.001)
    assert summary["owned_cost"] == pytest.approx(2 * 1200 * 0.001)


def test_jobs_that_all_come_at_once_load_nothing_for_long() -> None:
    summary = simulate(make_trace([10.0, 20.0]), ONE, OrderPolicy(), np.ones((2, 1))).summary()
    assert summary["loaded_utilization"] is None
    assert summary["owned_cost"] is None


def test_rows_by_size() -> None:
    result = gangs()
    rows = result.summary()["by_size"]
    sizes = result.jobs["scale_factor"]
    assert [row["gpus"] for row in rows] == ["1", "2-4", "5-8"][: len(rows)]
    assert sum(row["jobs"] for row in rows) == len(result.jobs)
    alone = result.jobs[sizes == 1]
    assert rows[0]["jobs"] == len(alone)
    assert rows[0]["average_jct"] == pytest.approx(alone["jct"].mean())
    assert rows[0]["restart_gpu_hours"] == pytest.approx(alone["restart_gpu_seconds"].sum() / 3600)
    assert "by_size" not in simulate(make_trace([10.0, 20.0]), ONE, OrderPolicy(), np.ones((2, 1))).summary()


def test_rows_by_user() -> None:
    trace = make_trace([1000.0, 200.0, 3000.0, 400.0, 500.0], sizes=[1, 2, 1, 1, 1])
    told = Trace.from_frame(trace.to_frame().assign(user=["ann", "bob", "ann", "", "bob"]))
    result = simulate(told, Cluster({"v100": 2}), OrderPolicy(), np.ones((5, 1)))
    jobs, rows = result.jobs, result.summary()["by_user"]
    assert [row["user"] for row in rows] == ["ann", "bob", ""]
    assert [row["jobs"] for row in rows] == [2, 2, 1]
    for row in rows:
        own = jobs[jobs["user"] == row["user"]]
        assert row["gpu_hours"] == pytest.approx(own["gpu_seconds"].sum() / 3600)
        assert row["gpu_share"] == pytest.approx(own["gpu_seconds"].sum() / jobs["gpu_seconds"].sum())
        for name, column in (("jct", "jct"), ("queueing_time", "queueing_time"), ("rho", "rho")):
            assert row[f"average_{name}"] == pytest.approx(own[column].mean())
        assert row["worst_rho"] == pytest.approx(own["rho"].max())
    plain = simulate(trace, Cluster({"v100": 2}), OrderPolicy(), np.ones((5, 1)))
    assert "user" not in plain.jobs
    assert "by_user" not in plain.summary()


def test_users_whose_jobs_did_not_complete_have_no_completion_times() -> None:
    jobs = pd.DataFrame(
        {"user": ["ann", "bob", "ann"], "jct": [np.nan, 5.0, np.nan], "rho": [np.nan, 2.0, np.nan],
         "gpu_seconds": [10.0, 20.0, 0.0], "queueing_time": [np.nan, 1.0, np.nan]}
    )  # fmt: skip
    table = users_table(jobs).set_index("user")
    assert table["completed_jobs"].to_dict() == {"bob": 1, "ann": 0}
    assert table.loc["ann", ["average_jct", "average_queueing_time", "average_rho", "worst_rho"]].isna().all()


def test_starts_that_take_all_of_a_round_are_told() -> None:
    """Two jobs that take turns, and are never done starting."""
    settings = DEFAULT.replace(restart_penalty_seconds=400.0)
    two = Trace(["a", "b"], [1, 1], [3600.0, 3600.0], [0.0, 0.0])
    with pytest.raises(SimulationStalledError, match=r"in 100 rounds up to 35640 s; 2 active jobs: 0, 1"):
        simulate(two, ONE, get_policy("max_min_fairness_perf"), np.ones((2, 1)), preset=settings)
    alone = simulate(two.head(1), ONE, get_policy("max_min_fairness_perf"), np.ones((1, 1)), preset=settings)
    assert alone.makespan == 360.0 + 3600.0
