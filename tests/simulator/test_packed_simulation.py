"""Simulations in which jobs share GPUs."""

from __future__ import annotations

import pytest

from allocator.cluster import Cluster
from allocator.simulator import SimulationStalledError, preset, simulate
from tests.simulator.packed_worlds import PairPolicy, always_together
from tests.simulator.worlds import make_trace
from throughputs import (
    PackedColumns,
)

ONE_GPU = Cluster({"v100": 1})
TWO_JOBS = PackedColumns([0, 1], [[1.0], [2.0]], [[[0.0], [0.8]], [[1.2], [0.0]]], accelerators=["v100"])
PRESETS = {"default": preset("default"), "gavel": preset("gavel"), "ideal": preset("default").replace(ideal=True)}


def test_both_jobs_of_a_pair_go_at_their_colocated_rates():
    trace = make_trace([360.0, 1000.0])
    result = simulate(trace, ONE_GPU, PairPolicy(always_together), TWO_JOBS)
    # 360 steps at 0.8/s take 450 s. Job 1 has then done 2 rounds at 1.2/s = 864, and 136 at 2/s are left.
    assert result.jobs["completion_time"].tolist() == [450.0, 788.0]
    assert result.rounds["partner"].tolist()[:4] == [1, 0, 1, 0]
    assert result.rounds["partner"].isna().tolist() == [False] * 4 + [True]
    assert result.rounds["gpus"].tolist() == [(0,)] * 5
    assert result.rounds["steps"].tolist() == pytest.approx([288.0, 432.0, 72.0, 432.0, 136.0])
    # The GPU is busy from 0 to 788 and counts once; what the two share counts half for each.
    assert result.utilization == pytest.approx(1.0)
    assert result.timeline["busy_gpus"].tolist() == [1, 1, 1]
    assert result.timeline["running_jobs"].tolist() == [2, 2, 1]
    assert result.jobs["gpu_seconds"].tolist() == pytest.approx([360.0, 428.0])
    assert result.jobs["preemptions"].tolist() == [0, 0]


def test_under_gavel_both_jobs_of_a_pair_end_when_the_later_one_does():
    result = simulate(make_trace([80.0, 240.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset="gavel")
    assert result.jobs["completion_time"].tolist() == [200.0, 200.0]
    each = preset("gavel").replace(pairs_end_together=False)
    result = simulate(make_trace([80.0, 240.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset=each)
    assert result.jobs["completion_time"].tolist() == [100.0, 200.0]


def test_pairs_in_the_ideal_world():
    result = simulate(
        make_trace([360.0, 1000.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset=PRESETS["ideal"]
    )
    # Job 0 ends at 450 s, job 1 has done 540 by then; 460 at 2/s are left.
    assert result.jobs["completion_time"].tolist() == pytest.approx([450.0, 680.0])
    assert result.rounds["partner"].tolist()[:2] == [1, 0]
    assert result.rounds["share"].tolist() == [1.0, 1.0, 1.0]
    assert result.utilization == pytest.approx(1.0)
    assert result.jobs["gpu_seconds"].tolist() == pytest.approx([225.0, 455.0])


def test_jobs_share_only_where_both_make_progress():
    one_way = PackedColumns([0, 1], [[1.0], [2.0]], [[[0.0], [0.8]], [[0.0], [0.0]]], accelerators=["v100"])
    with pytest.raises(SimulationStalledError):
        simulate(make_trace([360.0, 1000.0]), ONE_GPU, PairPolicy(always_together), one_way, preset=PRESETS["ideal"])
