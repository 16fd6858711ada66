"""What restarts take, how long jobs wait, how full a cluster is while jobs come, and what owning it costs."""

from __future__ import annotations

import numpy as np

from allocator import Cluster, simulate
from allocator.presets.preset import DEFAULT
from tests.simulator.packed_worlds import PairPolicy, always_together
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns


def test_gpus_that_two_jobs_share_are_lost_once():
    """Two gangs of two on the same GPUs that both take 30 s to start: 60 GPU seconds are lost, not 120."""
    trace = make_trace([100.0, 100.0], [2, 2])
    rates = PackedColumns(
        np.zeros(2, dtype=np.int64), np.ones((1, 1)), np.full((1, 1, 1), 0.5), np.array([2]), accelerators=["v100"]
    )
    result = simulate(trace, Cluster({"v100": 2}), PairPolicy(always_together), rates, preset=DEFAULT)
    assert result.jobs["restart_gpu_seconds"].tolist() == [30.0, 30.0]
