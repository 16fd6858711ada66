"""Limits that cut a run short."""

from __future__ import annotations

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from throughputs import default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})


def test_an_overloaded_cluster_with_endless_arrivals_ends():
    def jobs(n):
        return gavel_trace(n, 60.0, seed=0)

    result = simulate(
        jobs(10), Cluster({"v100": 2}), get_policy("isolated"), default_table(),
        preset=preset("gavel").replace(max_waiting_jobs=50), window=(400, 500), extend=jobs,
    )  # fmt: skip
    assert result.status == "saturated"
    assert result.summary()["completed_jobs"] == 0
    assert result.summary()["average_jct"] is None
