"""What restarts take, how long jobs wait, how full a cluster is while jobs come, and what owning it costs."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, simulate
from allocator.presets.default import DEFAULT
from tests.simulator.event_policies import order
from tests.simulator.packed_worlds import PairPolicy, always_together
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns, Trace


def test_gpus_that_two_jobs_share_are_lost_once():
    """Two gangs of two on the same GPUs that both take 30 s to start: 60 GPU seconds are lost, not 120."""
    trace = make_trace([100.0, 100.0], [2, 2])
    rates = PackedColumns(
        np.zeros(2, dtype=np.int64), np.ones((1, 1)), np.full((1, 1, 1), 0.5), np.array([2]), accelerators=["v100"]
    )
    result = simulate(trace, Cluster({"v100": 2}), PairPolicy(always_together), rates, preset=DEFAULT)
    assert result.jobs["restart_gpu_seconds"].tolist() == [30.0, 30.0]


def test_rows_by_user():
    trace = make_trace([1000.0, 200.0, 3000.0, 400.0, 500.0], sizes=[1, 2, 1, 1, 1])
    told = Trace.from_frame(trace.to_frame().assign(user=["ann", "bob", "ann", "", "bob"]))
    result = simulate(told, Cluster({"v100": 2}), order(), np.ones((5, 1)))
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
    plain = simulate(trace, Cluster({"v100": 2}), order(), np.ones((5, 1)))
    assert "user" not in plain.jobs
    assert "by_user" not in plain.summary()
