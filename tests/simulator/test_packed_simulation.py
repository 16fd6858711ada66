"""Simulations in which jobs share GPUs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.packed_worlds import PairPolicy, always_together
from tests.simulator.worlds import make_trace
from throughputs import (
    PackedColumns,
    default_colocation,
    default_table,
    gavel_trace,
    read_trace,
    write_trace,
)

ONE_GPU = Cluster({"v100": 1})
TWO_JOBS = PackedColumns([0, 1], [[1.0], [2.0]], [[[0.0], [0.8]], [[1.2], [0.0]]], accelerators=["v100"])
PRESETS = {"default": preset("default"), "gavel": preset("gavel"), "ideal": preset("default").replace(ideal=True)}


def table(sizes=(1, 2, 4, 8)):
    return default_table().with_colocation(default_colocation(), sizes)


def test_both_jobs_of_a_pair_go_at_their_colocated_rates():
    trace = make_trace([360.0, 1000.0])
    result = simulate(trace, ONE_GPU, PairPolicy(always_together), TWO_JOBS)
    # 360 steps at 0.8/s take 450 s. Job 1 has then done 2 rounds at 1.2/s = 864, and 136 at 2/s are left.
    assert result.jobs["completion_time"].tolist() == [450.0, 788.0]
    assert result.rounds["partner"].tolist()[:4] == [1, 0, 1, 0]
    assert result.rounds["partner"].isna().tolist() == [False] * 4 + [True]
    assert result.rounds["gpus"].tolist() == ["0"] * 5
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


def test_ideal_shares_of_pairs_beyond_the_gpus_are_cut():
    columns = PackedColumns([0] * 4, [[1.0]], [[[0.5]]], accelerators=["v100"])
    greedy = PairPolicy(
        lambda state: (
            (
                np.zeros((state.n_jobs, 1)),
                {(i, k, 0): 1.0 for i in range(state.n_jobs) for k in range(i + 1, state.n_jobs)},
            )
            if state.n_jobs > 1
            else (np.ones((1, 1)), {})
        )
    )
    result = simulate(make_trace([100.0] * 4), ONE_GPU, greedy, columns, preset=PRESETS["ideal"])
    assert (result.timeline["busy_gpus"] <= 1 + 1e-9).all()
    # 6 pairs share one GPU: each job is in 3 of them, half a step per second in each sixth.
    assert result.jobs["completion_time"].tolist() == pytest.approx([400.0] * 4)


@pytest.mark.parametrize(
    "name", ["max_min_fairness_packed", "finish_time_fairness_packed", "min_total_duration_packed"]
)
@pytest.mark.parametrize("chosen", sorted(PRESETS))
def test_packed_policies_run_multi_gpu_traces(name, chosen):
    trace = gavel_trace(24, 600.0, seed=3, multi_gpu=True, priorities=True)
    cluster = Cluster({"v100": 8, "p100": 8, "k80": 8})
    result = simulate(trace, cluster, get_policy(name), table(), preset=PRESETS[chosen])
    assert (result.jobs["status"] == "completed").all()
    partner = result.rounds["partner"]
    assert partner.notna().any()
    paired = result.rounds[partner.notna()]
    sizes = trace.scale_factor
    assert (sizes[paired["job_id"]] == sizes[paired["partner"].astype(int)]).all()


def test_a_window_lengthens_the_trace():
    def jobs(n):
        return gavel_trace(n, 20000.0, seed=6)

    result = simulate(
        jobs(12),
        Cluster({"v100": 3, "p100": 3, "k80": 3}),
        get_policy("max_min_fairness_packed"),
        table(),
        window=(5, 12),
        extend=jobs,
    )
    assert len(result.jobs) > 12
    assert (result.jobs["status"][5:12] == "completed").all()


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_the_command_line_adds_colocation_where_a_policy_packs(command, tmp_path):
    """With the embedded table; plain policies beside it see the same throughputs as without."""
    trace = tmp_path / "jobs.csv"
    write_trace(gavel_trace(10, 300.0, seed=8), trace)
    chosen = ["--policy", "max_min_fairness_packed"]
    if command == "compare":
        chosen = ["--policies", "max_min_fairness_packed,max_min_fairness_perf"]
    options = ["--trace", str(trace), "--cluster", "v100:1,p100:1,k80:1", "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [command, *chosen, *options])
    assert answer.exit_code == 0, answer.output
    folder = tmp_path / "out" if command == "simulate" else tmp_path / "out" / "max_min_fairness_packed"
    assert pd.read_parquet(folder / "rounds.parquet")["partner"].notna().any()
    if command == "compare":
        plain = pd.read_csv(tmp_path / "out" / "max_min_fairness_perf" / "jobs.csv")
        alone = simulate(
            read_trace(trace),
            Cluster({"v100": 1, "p100": 1, "k80": 1}),
            get_policy("max_min_fairness_perf"),
            default_table(),
        )
        assert plain["jct"].to_numpy() == pytest.approx(alone.jobs["jct"].to_numpy())
