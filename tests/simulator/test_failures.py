"""Nodes fail, and jobs go back to their last checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import cli
from allocator.cluster import Cluster
from allocator.plugins import rule_of_text
from allocator.presets import Preset, preset
from allocator.registry import get_policy
from allocator.simulator import SimulationStalledError, simulate
from allocator.simulator.rules import failures
from allocator.simulator.rules.base import Rule, RunningRule
from allocator.simulator.rules.failures import NodesFail
from allocator.simulator.world import World
from tests.simulator.worlds import make_trace
from throughputs import InputError, Trace

POLICIES = ("srtf", "fcfs", "tiresias", "max_min_fairness_perf", "fifo", "allox")
ON_SERVERS = Cluster({"slow": 4, "fast": 6}, {"slow": 2, "fast": 4})


def ups_and_downs(monkeypatch, *seconds_up):
    """Servers are up for these seconds, one after the other, and then for good."""
    draws = [iter(times) for times in seconds_up]
    monkeypatch.setattr(failures._Nodes, "_uptime", lambda _, server: next(draws[server], 1e12))


def ran(result):
    """(job, start, end, steps, GPUs) of every row of the record."""
    record = result.record
    gpus = list(map(set, result.rounds["gpus"])) if "gpus" in result.rounds else []
    columns = record.row_job.tolist(), record.row_start.tolist(), record.row_finish.tolist(), record.row_steps.tolist()
    return [(*row, held) for *row, held in zip(*columns, gpus or [set()] * len(record.row_job), strict=True)]


# Reckoned by hand: one GPU at a step/s fails after 250 s and is back 100 s later; a checkpoint every 100 s.
BY_HAND = [
    ("srtf", {}, [1150.0], [(0, 0.0, 250.0, 250.0), (0, 350.0, 1150.0, 800.0)]),
    # the round ends at 360 s, and in the last one the job has 80 steps left at 1080 s
    ("fifo", {}, [1160.0], [(0, 0.0, 250.0, 250.0), (0, 360.0, 720.0, 360.0), (0, 720.0, 1080.0, 360.0),
                            (0, 1080.0, 1160.0, 80.0)]),
    # a start takes 30 s, in which nothing is trained that could be lost: 220 s, of which 200 are kept
    ("srtf", {"restart_penalty_seconds": 30.0}, [1180.0], [(0, 0.0, 250.0, 220.0), (0, 350.0, 1180.0, 800.0)]),
]  # fmt: skip


@pytest.mark.parametrize("placement", ["consolidated", "off"])
@pytest.mark.parametrize(("policy", "changes", "ends", "rows"), BY_HAND)
def test_a_job_goes_back_to_its_checkpoint(policy, changes, ends, rows, placement, monkeypatch):
    ups_and_downs(monkeypatch, [250.0])
    rule = NodesFail(mtbf_hours=1.0, repair_hours=100 / 3600, checkpoint_seconds=100.0)
    chosen = Preset().with_rules(rule).replace(placement=placement, **changes)
    result = simulate(make_trace([1000.0]), Cluster({"v100": 1}), get_policy(policy), [[1.0]], preset=chosen)
    assert result.jobs["completion_time"].tolist() == pytest.approx(ends)
    assert [row[:4] for row in ran(result)] == [pytest.approx(row) for row in rows]
    lost = rows[0][3] - 200.0
    assert result.jobs[["failures", "lost_gpu_seconds"]].to_numpy().tolist() == [[1, pytest.approx(lost)]]
    summary = result.summary()
    assert (summary["failures"], summary["lost_gpu_hours"]) == (1, pytest.approx(lost / 3600))


def test_only_who_was_there_is_stopped_and_a_gang_waits_for_its_server(monkeypatch):
    """Two servers of 2 GPUs; that of the gang fails at 50 s for 100 s, while the other job goes on."""
    ups_and_downs(monkeypatch, [50.0], [])
    rule = NodesFail(mtbf_hours=1.0, repair_hours=100 / 3600, checkpoint_seconds=1000.0)
    trace = make_trace([200.0, 300.0], [2, 2], [0.0, 0.0])
    chosen = Preset().with_rules(rule)
    result = simulate(trace, Cluster({"v100": 4}, {"v100": 2}), get_policy("fcfs"), np.ones((2, 1)), preset=chosen)
    hit = int(result.jobs["failures"].argmax())
    assert result.jobs["failures"].sum() == 1
    assert result.jobs["completion_time"][1 - hit] == [200.0, 300.0][1 - hit]
    assert result.jobs["completion_time"][hit] == [200.0, 300.0][hit] + 150.0
    assert [row[1:3] for row in ran(result) if row[0] == hit] == [(0.0, 50.0), (150.0, [350.0, 450.0][hit])]


@st.composite
def runs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 10))
    jobs = make_trace(
        rng.uniform(50, 5000, n).tolist(), rng.integers(1, 4, n).tolist(), np.sort(rng.uniform(0, 3000, n)).tolist()
    )
    hours = draw(st.sampled_from([0.2, 1.0, 5.0])), draw(st.sampled_from([0.0, 0.1, 1.0]))
    rule = NodesFail(*hours, draw(st.sampled_from([60.0, 1000.0])), draw(st.integers(0, 99)))
    return jobs, rng.uniform(0.5, 3, (n, 2)), rule


def down_times(rule, server, until):
    """(start, end) of each time that a server is down, as the draws say."""
    clock, k = 0.0, 0
    while clock <= until:
        up = np.random.default_rng((rule.failure_seed or 0, server, k)).random()
        start = clock - rule.mtbf_hours * 3600.0 * np.log(1.0 - up)
        clock, k = start + rule.repair_hours * 3600.0, k + 1
        yield start, clock


@pytest.mark.parametrize("policy", POLICIES)
@given(runs(), st.sampled_from([("consolidated", 0.0), ("in_order", 30.0), ("off", 30.0)]))
@settings(max_examples=15)
def test_no_gpu_of_a_failed_server_is_used_and_no_work_is_done_twice_but_what_was_lost(policy, run, world):
    jobs, rates, rule = run
    chosen = preset("default").with_rules(rule).replace(placement=world[0], restart_penalty_seconds=world[1])
    result = simulate(jobs, ON_SERVERS, get_policy(policy), rates, preset=chosen)
    rows, end = ran(result), float(result.makespan)
    down = {server: list(down_times(rule, server, end)) for server in range(4)}
    for _, start, finish, _, gpus in rows:
        for server in {ON_SERVERS.servers[gpu] for gpu in gpus}:
            assert all(finish <= since + 1e-6 or start >= until - 1e-6 for since, until in down[server])
    table, total = result.jobs, jobs.total_steps
    assert (table["status"] == "completed").all()
    done = np.bincount([row[0] for row in rows], [row[3] for row in rows], len(table))
    lost = done - total
    assert (lost >= -1e-6 * total).all()
    assert (lost[table["failures"] == 0] <= 1e-6 * total[table["failures"] == 0]).all()
    # at most what is trained between two checkpoints, at the fastest, each time
    fastest = rates.max(axis=1) * rule.checkpoint_seconds * table["failures"]
    assert (lost <= fastest + 1e-6 * total).all()
    assert (
        table["lost_gpu_seconds"] <= rule.checkpoint_seconds * table["scale_factor"] * table["failures"] + 1e-6
    ).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_world_in_which_nothing_fails_in_time_is_as_one_without_failures(policy):
    trace = make_trace([500.0, 900.0, 4000.0], [1, 2, 3], [0.0, 10.0, 400.0])
    rates = np.array([[1.0, 2.0], [0.5, 1.0], [1.0, 1.0]])
    usual = simulate(trace, ON_SERVERS, get_policy(policy), rates)
    rare = preset("default").with_rules(NodesFail(mtbf_hours=1e9))
    other = simulate(trace, ON_SERVERS, get_policy(policy), rates, preset=rare)
    more = ["failures", "lost_gpu_seconds"]
    assert not set(more) & {*usual.jobs, *usual.summary()}
    pd.testing.assert_frame_equal(usual.jobs, other.jobs.drop(columns=more), check_exact=True)
    pd.testing.assert_frame_equal(usual.rounds, other.rounds, check_exact=True)


@pytest.mark.parametrize(("policy", "world"), [("chronus", "default"), ("gandiva_time_slicing", "elasticflow")])
def test_planners_that_keep_places_give_them_back_and_fill_them_again(policy, world, monkeypatch):
    """Of three servers two are down for two hours, while all six GPUs have leases."""
    ups_and_downs(monkeypatch, [700.0], [900.0, 5000.0], [])
    lengths = [6000.0] * 6
    slo = [3.0, 4.0, 5.0, 6.0, 7.0, np.nan]
    trace = Trace(["job"] * 6, [2, 2, 1, 1, 2, 1], lengths, [0.0] * 6, duration=lengths, slo=slo)
    chosen = preset(world).with_rules(NodesFail(mtbf_hours=1.0, repair_hours=2.0))
    cluster = Cluster({"v100": 6}, {"v100": 2})
    result = simulate(trace, cluster, chosen.make_policy(policy, cluster), np.ones((6, 1)), preset=chosen)
    assert (result.jobs["status"] == "completed").all()
    assert result.jobs["failures"].sum() >= 2
    down = [(700.0, 7900.0), (900.0, 8100.0)]
    for _, start, finish, _, gpus in ran(result):
        for server in {gpu // 2 for gpu in gpus} & {0, 1}:
            since, until = down[server]
            assert finish <= since or start >= until


def test_servers_fail_alike_under_every_policy(monkeypatch):
    seen, withhold = [], World.withhold

    def noted(world, rule, away, stopped):
        seen[-1].append((world.clock, tuple(away)))
        withhold(world, rule, away, stopped)

    monkeypatch.setattr(World, "withhold", noted)
    chosen = preset("default").replace(mtbf_hours=0.5, repair_hours=0.1, failure_seed=3)
    for policy in ("srtf", "fcfs"):
        seen.append([])
        simulate(make_trace([3000.0] * 8, [2] * 8), ON_SERVERS, get_policy(policy), np.ones((8, 2)), preset=chosen)
    both = min(map(len, seen))
    assert both > 10
    assert seen[0][:both] == seen[1][:both]


def test_a_long_calm_is_taken_at_once_and_nothing_is_forgotten_in_it(monkeypatch):
    """A million equal rounds, then a failure: the checkpoint is that of the last hour."""
    ups_and_downs(monkeypatch, [360.0 * 1_000_000 + 100.0])
    rule = NodesFail(mtbf_hours=1.0, repair_hours=0.0, checkpoint_seconds=3600.0)
    chosen = Preset().with_rules(rule)
    result = simulate(make_trace([5e8]), Cluster({"v100": 1}), get_policy("fifo"), [[1.0]], preset=chosen)
    # 100,000 hours and 100 s
    assert result.jobs["lost_gpu_seconds"].tolist() == pytest.approx([100.0], abs=1e-3)


def test_ideal_shares_are_on_no_server():
    with pytest.raises(InputError, match=r"mtbf_hours.*ideal"):
        preset("default").replace(ideal=True, mtbf_hours=10.0)


def test_general_rules_go_by_their_bare_names(tmp_path, monkeypatch, capsys):
    assert rule_of_text("NodesFail(mtbf_hours=200)") == NodesFail(200.0)
    with pytest.raises(InputError, match="did you mean 'NodesFail'"):
        rule_of_text("NodeFail(mtbf_hours=200)")
    monkeypatch.chdir(tmp_path)
    line = "compare --jobs 8 --cluster v100:8 --policies srtf,fcfs --world NodesFail(mtbf_hours=5) --out out"
    monkeypatch.setattr("sys.argv", ["allocator", *line.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None), capsys.readouterr().err


@dataclass(frozen=True)
class GoneForGood(Rule):
    """After 250 s only `left` GPUs are there."""

    left: int

    def start(self, world):
        return (_GoneInRun(self, world),)


class _GoneInRun(RunningRule):
    def __init__(self, rule, world):
        self.rule, self.world, self.at = rule, world, 250.0

    def next_event(self):
        return self.at

    def rounds_left(self, jobs, seconds):  # noqa: ARG002
        return (self.at - self.world.clock) / seconds

    def happen(self):
        if self.at <= self.world.clock:
            self.at = np.inf
            gone = range(self.rule.left, self.world.core.cluster.total_gpus)
            self.world.withhold(self, gone, self.world.core.running.jobs.tolist())


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("policy", ["srtf", "fifo", "max_min_fairness_perf", "tiresias"])
def test_jobs_whose_gpus_are_gone_for_good_are_named(policy, left):
    trace = make_trace([100.0, 1000.0, 1000.0], [2, 2, 2])
    chosen = preset("default").with_rules(GoneForGood(left))
    with pytest.raises(SimulationStalledError, match=r"2 .*jobs.*: 1, 2"):
        simulate(trace, Cluster({"v100": 2}), get_policy(policy), np.ones((3, 1)), preset=chosen)


def test_times_are_drawn_from_the_seed_of_the_run_unless_there_is_one_of_their_own():
    def ends(seed, **own):
        world = Preset().with_rules(NodesFail(mtbf_hours=0.5, **own))
        trace = make_trace([5000.0], [1], [0.0])
        return simulate(trace, "v100:1", get_policy("srtf"), [[1.0]], preset=world, seed=seed).jobs["completion_time"][
            0
        ]

    assert ends(1) == ends(2, failure_seed=1) != ends(2)
