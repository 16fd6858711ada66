"""Limits that cut a run short."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, Trace, default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})


@pytest.mark.parametrize("ideal", [False, True])
def test_too_many_waiting_jobs_end_the_run(ideal: bool) -> None:
    chosen = preset("default").replace(max_waiting_jobs=3, ideal=ideal)
    first_come = SharesPolicy(lambda state: np.eye(state.n_jobs)[:, :1])
    trace = make_trace([10_000] * 20, arrivals=[400.0 * i for i in range(20)])
    result = simulate(trace, ONE_GPU, first_come, np.ones((20, 1)), preset=chosen)
    assert result.status == "saturated"
    summary = result.summary()
    assert summary["status"] == "saturated"
    assert "4 jobs waiting, more than 3" in summary["status_detail"]
    # The fifth job arrives at 1600; the run ends with the round or interval in which it waits.
    assert 1600 < result.timeline["end_time"].iloc[-1] <= 2200
    assert summary["unfinished_jobs"] == 20
    assert np.isfinite(result.utilization)
    assert np.isnan(result.jobs["isolated_jct"].to_numpy()[10:]).all()


@pytest.mark.parametrize("ideal", [False, True])
def test_the_clock_ends_the_run(ideal: bool) -> None:
    chosen = preset("default").replace(max_clock_seconds=1000.0, ideal=ideal)
    trace = make_trace([500, 5000], arrivals=[0.0, 0.0])
    result = simulate(trace, Cluster({"v100": 2}), SharesPolicy(), np.ones((2, 1)), preset=chosen)
    assert (result.status, result.status_detail) == ("saturated", "clock beyond 1000 s")
    assert result.jobs["status"].tolist()[0] == "completed"
    if not ideal:
        assert result.jobs["status"].tolist()[1] == "unfinished"
        assert result.timeline["end_time"].iloc[-1] == 1080.0
        # Busy to the end, not to the last completion only.
        assert result.utilization == pytest.approx((500 + 1080) / (2 * 1080))


def test_limits_that_are_not_met_change_nothing() -> None:
    trace = make_trace([500, 700, 900], arrivals=[0.0, 10.0, 20.0])
    plain = simulate(trace, ONE_GPU, SharesPolicy(), np.ones((3, 1)))
    chosen = preset("default").replace(max_waiting_jobs=2, max_clock_seconds=1e9)
    limited = simulate(trace, ONE_GPU, SharesPolicy(), np.ones((3, 1)), preset=chosen)
    assert (plain.status, limited.status, limited.status_detail) == ("completed", "completed", "")
    assert limited.jobs.equals(plain.jobs)


def test_an_overloaded_cluster_with_endless_arrivals_ends() -> None:
    def jobs(n: int) -> Trace:
        return gavel_trace(n, 60.0, seed=0)

    result = simulate(
        jobs(10), Cluster({"v100": 2}), get_policy("isolated"), default_table(),
        preset=preset("gavel").replace(max_waiting_jobs=50), window=(400, 500), extend=jobs,
    )  # fmt: skip
    assert result.status == "saturated"
    assert result.summary()["completed_jobs"] == 0
    assert result.summary()["average_jct"] is None


def test_bad_limits_are_named() -> None:
    for name in ("max_waiting_jobs", "max_clock_seconds"):
        with pytest.raises(InputError, match=name):
            preset("default").replace(**{name: -1})
    with pytest.raises(InputError, match="ideal"):
        preset("default").replace(ideal="yes")
