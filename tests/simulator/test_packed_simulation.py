"""Simulations in which jobs share GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import SimulationResult, preset, simulate
from tests.simulator.packed_worlds import PairPolicy, always_together, packed_worlds, random_shares
from tests.simulator.worlds import make_trace
from throughputs import (
    InputError,
    PackedColumns,
    Trace,
    default_colocation,
    default_table,
    gavel_trace,
    read_trace,
    write_trace,
)

ONE_GPU = Cluster({"v100": 1})
TWO_JOBS = PackedColumns([0, 1], [[1.0], [2.0]], [[[0.0], [0.8]], [[1.2], [0.0]]], accelerators=["v100"])
PRESETS = {"default": preset("default"), "gavel": preset("gavel"), "ideal": preset("default").replace(ideal=True)}


def table(sizes: tuple[int, ...] = (1, 2, 4, 8)):
    return default_table().with_colocation(default_colocation(), sizes)


def test_both_jobs_of_a_pair_go_at_their_colocated_rates() -> None:
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


def test_gpus_are_busy_until_the_later_of_two_jobs_is_through() -> None:
    result = simulate(make_trace([80.0, 240.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS)
    assert result.jobs["completion_time"].tolist() == [100.0, 200.0]
    assert result.jobs["gpu_seconds"].tolist() == [100.0, 100.0]
    assert result.utilization == 1.0


def test_under_gavel_both_jobs_of_a_pair_end_when_the_later_one_does() -> None:
    result = simulate(make_trace([80.0, 240.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset="gavel")
    assert result.jobs["completion_time"].tolist() == [200.0, 200.0]
    each = preset("gavel").replace(pairs_end_together=False)
    result = simulate(make_trace([80.0, 240.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset=each)
    assert result.jobs["completion_time"].tolist() == [100.0, 200.0]


def test_pairs_in_the_ideal_world() -> None:
    result = simulate(
        make_trace([360.0, 1000.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, preset=PRESETS["ideal"]
    )
    # Job 0 ends at 450 s, job 1 has done 540 by then; 460 at 2/s are left.
    assert result.jobs["completion_time"].tolist() == pytest.approx([450.0, 680.0])
    assert result.rounds["partner"].tolist()[:2] == [1, 0]
    assert result.rounds["share"].tolist() == [1.0, 1.0, 1.0]
    assert result.utilization == pytest.approx(1.0)
    assert result.jobs["gpu_seconds"].tolist() == pytest.approx([225.0, 455.0])


def test_ideal_shares_of_pairs_beyond_the_gpus_are_cut() -> None:
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


def test_cost_is_paid_once() -> None:
    result = simulate(
        make_trace([360.0, 1000.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS, prices={"v100": 3600.0}
    )
    assert result.jobs["cost"].sum() == pytest.approx(788.0)


def test_leases_of_pairs() -> None:
    result = simulate(make_trace([360.0, 1000.0]), ONE_GPU, PairPolicy(always_together), TWO_JOBS)
    # Together in rounds 0 and 1; in round 2 job 1 is alone, which is another lease.
    assert result.record is not None
    assert result.record.leases == (1, 2)


@settings(max_examples=60)
@given(world=packed_worlds(), seed=st.integers(0, 1000), chosen=st.sampled_from(sorted(PRESETS)))
def test_every_job_gets_its_steps_and_no_gpu_is_used_twice(
    world: tuple[Trace, Cluster, PackedColumns], seed: int, chosen: str
) -> None:
    trace, cluster, columns = world

    def decide(state):
        shares, pairs = random_shares(seed)(state)
        if PRESETS[chosen].simulator.ideal:
            # Without rounds a job needs a share to get on.
            shares = shares / 2 + 1 / (2 * state.n_jobs * state.scale_factors[:, None]) * (state.rates > 0) / 4
            pairs = {key: share / 4 for key, share in pairs.items()}
        return shares, pairs

    result = simulate(trace, cluster, PairPolicy(decide), columns, preset=PRESETS[chosen], seed=seed)
    jobs, rounds = result.jobs, result.rounds
    fits = (columns.rates > 0) & (columns.scale_factors[:, None] <= cluster.capacity)
    assert (jobs["status"] == np.where(fits.any(axis=1), "completed", "unserved")).all()
    done = rounds.groupby("job_id")["steps"].sum().reindex(np.flatnonzero(fits.any(axis=1)), fill_value=0.0)
    assert done.to_numpy() == pytest.approx(trace.total_steps[fits.any(axis=1)], rel=1e-9)
    record = result.record
    assert record is not None
    busy = np.zeros((len(record.outcomes), len(cluster.capacity)))
    np.add.at(busy, (record.row_round, record.row_accelerator), record.row_gpus)
    assert (busy <= cluster.capacity + 1e-9).all()
    assert 0 <= result.utilization <= 1 + 1e-9
    assert jobs["gpu_seconds"].sum() == pytest.approx(record.row_gpu_seconds.sum())
    if not record.packed:
        return
    shared = rounds[rounds["partner"].notna()]
    mirrored = set(zip(shared["round"], shared["job_id"], shared["partner"], shared["accelerator"], strict=True))
    assert {(rnd, partner, job, name) for rnd, job, partner, name in mirrored} == mirrored
    if not record.fluid:
        of_row = set(zip(shared["round"], shared["job_id"], shared["gpus"], strict=True))
        assert {(rnd, partner) for rnd, _, partner, _ in mirrored} == {(rnd, job) for rnd, job, _ in of_row}


@pytest.mark.parametrize(
    "name", ["max_min_fairness_packed", "finish_time_fairness_packed", "min_total_duration_packed"]
)
@pytest.mark.parametrize("chosen", sorted(PRESETS))
def test_packed_policies_run_multi_gpu_traces(name: str, chosen: str) -> None:
    trace = gavel_trace(24, 600.0, seed=3, multi_gpu=True, priorities=True)
    cluster = Cluster({"v100": 8, "p100": 8, "k80": 8})
    result = simulate(trace, cluster, get_policy(name), table(), preset=PRESETS[chosen])
    assert (result.jobs["status"] == "completed").all()
    partner = result.rounds["partner"]
    assert partner.notna().any()
    paired = result.rounds[partner.notna()]
    sizes = trace.scale_factor
    assert (sizes[paired["job_id"]] == sizes[paired["partner"].astype(int)]).all()


def test_sharing_shortens_the_wait() -> None:
    trace, cluster = gavel_trace(40, 300.0, seed=2), Cluster({"v100": 3, "p100": 3, "k80": 3})

    def average(policy: str) -> float:
        return simulate(trace, cluster, get_policy(policy), table()).summary()["average_jct"]

    assert average("max_min_fairness_packed") < average("max_min_fairness_perf")


def test_rounds_come_close_to_the_ideal_world() -> None:
    trace, cluster = gavel_trace(20, 1800.0, seed=4), Cluster({"v100": 3, "p100": 3, "k80": 3})

    def average(**changes) -> float:
        chosen = preset("default").replace(**changes)
        result = simulate(trace, cluster, get_policy("max_min_fairness_packed"), table(), preset=chosen)
        return result.summary()["average_jct"]

    ideal = average(ideal=True)
    assert average(round_seconds=90.0, idle_fill="off") == pytest.approx(ideal, rel=0.03)


def test_a_table_without_colocation_is_refused() -> None:
    with pytest.raises(InputError, match="with_colocation"):
        simulate(gavel_trace(3, 0.0, seed=0), ONE_GPU, get_policy("max_min_fairness_packed"), default_table())
    with pytest.raises(InputError, match="co-location"):
        simulate(make_trace([1.0]), ONE_GPU, get_policy("max_min_fairness_packed"), [[1.0]])


def test_columns_of_other_jobs_are_refused() -> None:
    policy = get_policy("max_min_fairness_packed")
    with pytest.raises(InputError, match="the 3 jobs of the trace"):
        simulate(make_trace([1.0] * 3), ONE_GPU, policy, TWO_JOBS)
    with pytest.raises(InputError, match="types of the cluster"):
        simulate(make_trace([1.0] * 2), Cluster({"k80": 1}), policy, TWO_JOBS)


def test_gangs_larger_than_a_type_do_not_share_there() -> None:
    columns = PackedColumns([0, 0], [[1.0, 1.0]], [[[0.9, 0.9]]], [2], accelerators=["v100", "k80"])
    cluster = Cluster({"v100": 1, "k80": 2})
    result = simulate(make_trace([100.0, 100.0], sizes=[2, 2]), cluster, get_policy("max_min_fairness_packed"), columns)
    assert set(result.rounds["accelerator"]) == {"k80"}
    assert result.jobs["completion_time"].tolist() == pytest.approx([1000 / 9] * 2)


def test_spread_gangs_lose_beside_another_what_they_lose_alone(public_data) -> None:
    from throughputs import read_table

    figures = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    trace = gavel_trace(12, 0.0, seed=5, multi_gpu=True)
    cluster = Cluster({"v100": 4, "p100": 4, "k80": 4}, {"v100": 2, "p100": 2, "k80": 2})
    spread = preset("default").replace(unconsolidated_throughputs=True)
    policy = get_policy("max_min_fairness_packed")
    slow, fast = (simulate(trace, cluster, policy, figures, preset=chosen) for chosen in (spread, PRESETS["default"]))
    assert (slow.jobs["status"] == fast.jobs["status"]).all()
    assert slow.rounds["partner"].notna().any()
    assert slow.makespan >= fast.makespan


def same(one: SimulationResult, other: SimulationResult) -> None:
    for name in ("jobs", "rounds", "timeline"):
        assert getattr(one, name).to_csv() == getattr(other, name).to_csv()


@pytest.mark.parametrize("chosen", sorted(PRESETS))
def test_a_run_that_was_put_away_goes_on_as_if_nothing_had_been(chosen: str, tmp_path: Path) -> None:
    trace, cluster = gavel_trace(16, 600.0, seed=1, multi_gpu=True), Cluster({"v100": 8, "p100": 8, "k80": 8})
    policy, file = get_policy("max_min_fairness_packed"), tmp_path / "run.checkpoint"
    whole = simulate(trace, cluster, policy, table(), preset=PRESETS[chosen])

    class Crash:
        def decided(self, *_: object) -> None: ...

        def round_ended(self, outcome) -> None:
            if outcome.index == 20:
                raise KeyboardInterrupt

    options = {"preset": PRESETS[chosen], "checkpoint": file, "checkpoint_every": 7}
    with pytest.raises(KeyboardInterrupt):
        simulate(trace, cluster, policy, table(), observers=[Crash()], **options)
    assert file.exists()
    same(simulate(trace, cluster, policy, table(), resume=True, **options), whole)


def test_a_window_lengthens_the_trace() -> None:
    def jobs(n: int) -> Trace:
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


@pytest.mark.parametrize("chosen", sorted(PRESETS))
@pytest.mark.parametrize("name", ["gandiva", "fifo_packed"])
def test_rules_that_pack_run_to_the_end(name: str, chosen: str) -> None:
    trace, cluster = gavel_trace(30, 300.0, seed=7), Cluster({"v100": 3, "p100": 3, "k80": 3})
    result = simulate(trace, cluster, get_policy(name), table(), preset=PRESETS[chosen])
    assert (result.jobs["status"] == "completed").all()
    assert result.rounds["partner"].notna().any()


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_the_command_line_adds_colocation_where_a_policy_packs(command: str, tmp_path: Path) -> None:
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
