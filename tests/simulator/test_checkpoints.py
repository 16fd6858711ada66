"""Every kind of run goes on from its checkpoint as if it had never stopped, and from no other run's."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator import Estimation
from allocator.checkpoint.state_file import StateFile
from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.results.deadlines import assign_slos
from allocator.simulator import SimulationStalledError, preset, simulate
from tests.simulator.cases import rows, with_settings, world_of
from tests.simulator.event_policies import order, pairing, selective, turns
from tests.simulator.goodput_worlds import jobs as trainees
from tests.simulator.goodput_worlds import profile, trainings
from tests.simulator.packed_worlds import PairPolicy, random_shares
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import (
    InputError,
    PackedColumns,
    PriceTable,
    ThroughputTable,
    Trace,
    default_colocation,
    default_table,
    gavel_trace,
)

TYPES = Cluster({"v100": 4, "p100": 4, "k80": 4}, {"v100": 2, "p100": 2, "k80": 2})
V100 = Cluster({"v100": 8}, {"v100": 4})
TABLE = default_table()
COLOCATED = TABLE.with_colocation(default_colocation())
HISTORY = {"v100": ([0.0, 30_000.0], [1.0, 3.0]), "p100": ([0.0], [0.4]), "k80": ([0.0], [0.1])}


class CrashError(Exception):
    """Stands in for a crash."""


class StopAt:
    """Observer that crashes the run in a given round, and keeps the rounds that it saw."""

    def __init__(self, index):
        self.index, self.seen = index, []

    def decided(self, *_):
        """Go on."""

    def round_ended(self, outcome):
        """Crash, or go on."""
        self.seen.append(outcome.index)
        if outcome.index == self.index:
            raise CrashError


def assert_same(one, other):
    """All tables byte for byte, all decisions, and the summary but for the times that were measured."""
    for name in ("jobs", "rounds", "timeline"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    assert len(one.decisions) == len(other.decisions)
    for (index, clock, mine), (same_index, same_clock, its) in zip(one.decisions, other.decisions, strict=True):
        assert (index, clock, mine.throughputs.jobs) == (same_index, same_clock, its.throughputs.jobs)
        assert np.array_equal(mine.shares, its.shares)
        for name in ("first", "second", "accelerator", "share") if mine.pairs is not None else ():
            assert np.array_equal(getattr(mine.pairs, name), getattr(its.pairs, name))
    mine, its = (dict(result.summary()) for result in (one, other))
    for measured in ("wall_seconds", "policy_seconds"):
        del mine[measured], its[measured]
    assert mine == its
    assert (one.settings, one.policy_calls) == (other.settings, other.policy_calls)


def drawn(n):
    return gavel_trace(n, 9000.0, seed=2, multi_gpu=True, priorities=True)


def changing(n):
    """Jobs that change their batch size."""
    modes = [("gns", "accordion", "static")[i % 3] for i in range(n)]
    steps = [60_000.0 + 9_000 * (i % 5) for i in range(n)]
    return Trace(["LM (batch size 10)"] * n, [1 + i % 2 for i in range(n)], steps, np.arange(n) * 150.0, mode=modes)


def usual(policy, name="default", of_policy=None, *, of_run=None, **changes):
    """Jobs of half a day in rounds of 24 minutes, or of those of Shockwave in rounds of its own."""
    theirs = name.startswith("shockwave")
    trace, cluster = (changing(12), V100) if theirs else (drawn(8), TYPES)
    chosen = with_settings(preset(name), **(({} if theirs else {"round_seconds": 1440.0}) | changes))
    made = chosen.make_policy(policy, cluster, **(of_policy or {}))
    return {"trace": trace, "cluster": cluster, "policy": made, "throughputs": TABLE, "preset": chosen} | (of_run or {})


def packed(policy="max_min_fairness_packed", name="default", **more):
    changes = more.pop("changes", {})
    return usual(policy, name, of_run={"throughputs": COLOCATED} | more, **changes)


def chronus(name):
    """Jobs of minutes with two deadlines, one or none, some of which cannot be kept."""
    rng = np.random.default_rng(2)
    minutes, arrival = rng.integers(20, 90, 16), np.sort(rng.integers(0, 60, 16)) * 60.0
    due = arrival + minutes * 60.0 * rng.uniform(1.2, 3.0, 16)
    options = [((float(d), 10.0), (float(d) + 3600.0, 5.0))[: (2, 1, 0)[i % 3]] for i, d in enumerate(due)]
    trace = Trace(["job"] * 16, [1, 2] * 8, minutes * 60.0, arrival, deadline_options=options)
    run = {"trace": trace, "cluster": Cluster({"v100": 6}, {"v100": 3}), "throughputs": np.ones((16, 1))}
    return usual("chronus", name, {"noise": 0.1}, of_run=run)


def due(policy, **settings):
    """Jobs with deadlines, some of which cannot be met, and restarts that the policy knows of."""
    trace = assign_slos(gavel_trace(16, 4000.0, seed=2), np.random.default_rng(0), {0.6: 0.3, 1.5: 0.5, np.nan: 0.2})
    run = {"trace": trace, "cluster": V100}
    return usual(policy, "default", settings | {"restart_seconds": 30.0}, of_run=run, restart_penalty_seconds=30.0)


def at_events(policy, **changes):
    rng = np.random.default_rng(1)
    trace = make_trace(rng.uniform(20, 400, 14).tolist(), [1, 2] * 7, np.cumsum(rng.uniform(0, 60, 14)).tolist())
    run = {"trace": trace, "cluster": Cluster({"slow": 2, "fast": 3}), "policy": policy}
    return run | {"throughputs": rng.uniform(0.5, 3, (14, 2)), "preset": with_settings(preset("default"), **changes)}


def sharing(policy, gap):
    columns = PackedColumns([0, 1] * 4, [[1.0], [1.3]], [[[0.7], [0.6]], [[0.8], [0.9]]], accelerators=["v100"])
    trace = make_trace([gap * (8 + i) for i in range(8)], arrivals=[gap * i for i in range(8)])
    return {"trace": trace, "cluster": Cluster({"v100": 2}), "policy": policy, "throughputs": columns}


def spread(policy):
    """Gangs of two on servers of three GPUs."""
    table = ThroughputTable([("a", 1), ("a", 2)], ["v100", "v100_unconsolidated"], [[1.0, 1.0], [1.9, 1.3]])
    trace = Trace(["a"] * 10, [1, 2] * 5, [3_000.0 + 500 * i for i in range(10)], [400.0 * i for i in range(10)])
    chosen = preset("default").replace(unconsolidated_throughputs=True)
    cluster = Cluster({"v100": 5}, {"v100": 3})
    return {"trace": trace, "cluster": cluster, "policy": policy, "throughputs": table, "preset": chosen}


def goodput(policy, name="default", samples=16.0, **changes):
    models = trainings(net=profile(noise=(50.0, 800.0, 3000.0), sync=0.05, steps=3000.0))
    trace = replace(trainees(*np.arange(4) * 20.0, gpus=2), total_steps=np.full(4, samples / 16.0))
    run = {"trace": trace, "cluster": Cluster({"gpu": 8}, {"gpu": 4})}
    return usual(policy, name, of_run=run | {"throughputs": models}, **({"round_seconds": 60.0} | changes))


def fractions(policy):
    rng = np.random.default_rng(7)
    seconds, part = rng.uniform(50, 900, 40), rng.choice([0.1, 0.25, 0.5, 0.75, 1.0], 40)
    arrival = np.sort(rng.uniform(0, 2000, 40))
    trace = Trace(["a"] * 40, [1] * 40, seconds, arrival, duration=seconds, gpu_fraction=part)
    return {"trace": trace, "cluster": Cluster({"gpu": 4}, {"gpu": 2}), "policy": get_policy(policy)}


def entities():
    names = ["queue", "inner", "team", ""] * 2
    trace = Trace(["job"] * 8, [1] * 8, [3600.0] * 8, [600.0 * i for i in range(8)], entity=names)
    known = {"queue": {"policy": "fifo"}, "team": 2, "inner": {"parent": "team"}}
    run = {"trace": trace, "cluster": "v100:2", "throughputs": np.ones((8, 1)), "entities": known}
    return usual("max_min_fairness_water_filling_perf", of_run=run, ideal=True)


SLOTS = """slot_seconds=30 ends=slot overhead=running overhead_base_seconds=2 overhead_doubling_seconds=3 placement=anew
overhead_reuses_groups=true overhead_restart_decisions=5"""
PRICED = {"prices": PriceTable(HISTORY)}

# name | policy | preset | settings
USUAL = """
a draw of types | fifo | |
buddy placement | fifo_perf | | placement=buddy
gavel | finish_time_fairness | gavel |
without preemption | allox | gavel |
shockwave, jobs linger | shockwave | shockwave_published |
exact batch sizes | shockwave | shockwave | batch_size_adaptation=exact
ideal | max_min_fairness_perf | | ideal=true
nodes fail, rounds | max_min_fairness_perf | | mtbf_hours=4 repair_hours=1
nodes fail, one after the other | tiresias | | mtbf_hours=4 repair_hours=1
"""


def of_row(policy, name, settings):
    run = usual(policy, name or "default")
    changed, _ = world_of(
        f"preset={name or 'default'} round_seconds={run['preset'].mechanism.round_seconds} {settings}"
    )
    of_run = {"trace": gavel_trace(12, 4000.0, seed=2)} if policy == "allox" else {}
    return run | {"preset": changed} | of_run


RUNS = {row.id: partial(of_row, *row.values) for row in rows(USUAL)} | {
    "packed": packed,
    "packed, gandiva": lambda: packed("gandiva"),
    "packed, estimated": lambda: sharing(PairPolicy(random_shares(3)), 700.0) | {"estimation": Estimation(1.0, 1)},
    "packed, ideal, estimated": lambda: packed(changes={"ideal": True}, estimation=Estimation(0.5, 2)),
    "packed by chance": lambda: sharing(PairPolicy(random_shares(3)), 700.0),
    "window, shockwave": lambda: usual("max_min_fairness", "shockwave", of_run={"window": (3, 9), "extend": changing}),
    "prices": lambda: usual("max_sum_throughput_normalized_by_cost_perf", of_run=PRICED),
    "servers, order": lambda: spread(order()),
    "order, starts cost time": lambda: at_events(order(), restart_penalty_seconds=7.0, restart_when_moved=True),
    "order, slots and overheads": lambda: at_events(order()) | {"preset": world_of(SLOTS)[0]},
    "deadlines": lambda: due("elasticflow"),
    "deadlines, a program": lambda: due("elasticflow_mip"),
    "steps": lambda: at_events(turns(0, 10.0, 1, 25.0, 2, 5.0)),
    "selection": lambda: at_events(selective(most_seconds=150.0)),
    "order, shared": lambda: sharing(pairing(), 10.0),
    "lucid": lambda: packed("lucid"),
    "lucid, published": lambda: packed("lucid", "lucid", changes={"gang_rates": "table"}),
    "chronus": lambda: chronus("default"),
    "goodput, sia": lambda: goodput("sia"),
    "goodput, sia, published": lambda: goodput("sia", "sia"),
    "goodput, pollux": lambda: goodput("pollux"),
    "goodput, samples": lambda: goodput("sia", goodput_work="samples", samples=20_000.0),
    "goodput, in rounds": lambda: goodput("max_sum_throughput_perf", goodput_in_rounds="trained", round_seconds=30.0),
    "fractions": lambda: fractions("fcfs"),
    "entities": entities,
}


EVERYDAY = {
    "a draw of types", "gavel", "shockwave, jobs linger", "packed by chance", "window, shockwave", "ideal",
    "servers, order", "order, slots and overheads", "deadlines", "steps", "order, shared", "lucid",
    "goodput, sia", "goodput, in rounds", "goodput, samples", "fractions", "entities", "packed, estimated",
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [kind if kind in EVERYDAY else pytest.param(kind, marks=pytest.mark.exhaustive) for kind in RUNS]
)
def test_a_resumed_run_is_the_run(kind, tmp_path):
    whole = simulate(**RUNS[kind](), seed=5)
    last = len(whole.timeline) - 1
    files = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": max(last // 7, 1), "seed": 5}
    # crashed twice, the second time in the run that was resumed
    for crash in (last // 3, 2 * last // 3):
        with pytest.raises(CrashError):
            simulate(**RUNS[kind](), **files, resume=True, observers=[StopAt(crash)])
        assert files["checkpoint"].exists()
    watcher = StopAt(-1)
    assert_same(whole, simulate(**RUNS[kind](), **files, resume=True, observers=[watcher]))
    assert watcher.seen[0] > 0
    assert not list(tmp_path.iterdir())


def test_a_run_with_many_rounds_at_once_is_resumed(tmp_path):
    run = {"trace": make_trace([3.6e8, 1.8e8]), "cluster": "v100:2", "policy": get_policy("fifo")}
    run |= {"throughputs": np.full((2, 1), 1.1)}
    whole = simulate(**run)
    files = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 1000}
    with pytest.raises(CrashError):
        simulate(**run, **files, observers=[StopAt(whole.record.outcomes[-20].index)])
    one, other = whole.jobs, simulate(**run, **files, resume=True).jobs
    assert one.drop(columns="gpu_seconds").equals(other.drop(columns="gpu_seconds"))
    np.testing.assert_allclose(one["gpu_seconds"], other["gpu_seconds"], rtol=1e-12)


def test_a_standstill_is_told_as_early_after_a_checkpoint(tmp_path):
    run = {"trace": make_trace([10.0]), "cluster": "v100:1", "policy": SharesPolicy(), "throughputs": [[0.001]]}
    run["preset"] = with_settings(preset("default"), max_rounds_without_progress=7, whole_steps=True)
    files = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 1}
    whole, again = StopAt(-1), StopAt(-1)
    for more in (
        {"observers": [whole]},
        files | {"observers": [StopAt(4)]},
        files | {"resume": True, "observers": [again]},
    ):
        with pytest.raises((SimulationStalledError, CrashError)):
            simulate(**run, **more)
    assert len(again.seen) < len(whole.seen)
    assert again.seen[-1] == whole.seen[-1]


SCRIPT = """
import sys, time
from tests.simulator.test_checkpoints import simulate, usual

class Slow:
    def decided(self, *_): pass
    def round_ended(self, outcome):
        time.sleep(600 if outcome.index >= 100 else 0.002)

simulate(**usual("isolated", "gavel"), seed=3, checkpoint=sys.argv[1], checkpoint_every=25, observers=[Slow()])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_process_is_resumed(tmp_path):
    path = tmp_path / "run.checkpoint"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], cwd=Path(__file__).parents[2])
    written = 0.0
    for _ in range(3):  # so that it dies at some moment between or within them
        while not (path.exists() and path.stat().st_mtime_ns > written):
            assert process.poll() is None
            time.sleep(0.005)
        written = path.stat().st_mtime_ns
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=300) == -signal.SIGKILL
    watcher, run = StopAt(-1), usual("isolated", "gavel") | {"seed": 3}
    resumed = simulate(**run, checkpoint=path, checkpoint_every=10_000, resume=True, observers=[watcher])
    assert watcher.seen[0] >= 50
    assert_same(simulate(**run), resumed)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """What a run is made of that crashed, with the file that it left."""
    path = tmp_path_factory.mktemp("crashed") / "run.checkpoint"
    run = usual("fifo", "gavel", {"seed": 1}, of_run={"prices": PriceTable(HISTORY), "checkpoint": path, "seed": 3})
    with pytest.raises(CrashError):
        simulate(**run, checkpoint_every=10, observers=[StopAt(25)])
    return run


OTHERS = {
    "trace": {"trace": drawn(9)},
    "cluster": {"cluster": Cluster({"v100": 4, "p100": 4, "k80": 4})},
    "policy": {"policy": get_policy("fifo_perf")},
    "policy: ": {"policy": get_policy("fifo", seed=2)},
    "throughputs": {"throughputs": TABLE.rates(drawn(8).job_type, drawn(8).scale_factor, TYPES.accelerators) * 1.5},
    "setting round_seconds": {"preset": preset("gavel").replace(round_seconds=720.0)},
    "setting seed": {"seed": 4},
    "prices": {"prices": None},
    "prices: when": {"prices": PriceTable(HISTORY | {"v100": ([0, 30_001], [1.0, 3.0])})},
    "prices: swapped": {"prices": PriceTable(HISTORY | {"k80": ([0], [0.4]), "p100": ([0], [0.1])})},
    "setting estimation": {"estimation": Estimation(0.2, 3)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_run_is_refused(other, crashed):
    before = crashed["checkpoint"].read_bytes()
    with pytest.raises(InputError, match=f"field '{other.partition(':')[0]}'"):
        simulate(**(crashed | OTHERS[other]), resume=True)
    assert crashed["checkpoint"].read_bytes() == before


def test_a_checkpoint_of_another_version_is_refused(crashed, monkeypatch):
    monkeypatch.setattr("allocator.checkpoint.checkpoint.package_version", lambda: "another version")
    with pytest.raises(InputError, match="field 'version'"):
        simulate(**crashed, resume=True)


def flipped(whole, at):
    return whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-100],
        lambda whole: flipped(whole, len(whole) // 2),
        lambda whole: flipped(whole, len(whole) - 100),
        lambda _: b"",
        lambda _: b"job_id,job_type\n0,LM\n",
        lambda _: pickle.dumps(CrashError()),
    ],
)
def test_a_damaged_checkpoint_is_refused(damage, crashed, tmp_path):
    path = tmp_path / "run.checkpoint"
    path.write_bytes(damage(crashed["checkpoint"].read_bytes()))
    with pytest.raises(InputError, match=str(path)):
        simulate(**(crashed | {"checkpoint": path}), resume=True)


@pytest.mark.parametrize("missing", ["world", "seconds", "jobs"])
def test_a_state_of_another_form_is_refused(missing, crashed, tmp_path):
    saved, file = StateFile(crashed["checkpoint"]).read(), StateFile(tmp_path / "run.checkpoint")
    file.write(saved.header, {k: v for k, v in saved.state.items() if k != missing}, saved.parts)
    with pytest.raises(InputError, match="a checkpoint of this version"):
        simulate(**(crashed | {"checkpoint": file.path}), resume=True)


def test_arguments_of_checkpoints(tmp_path):
    run = usual("isolated")
    for given, named in (
        ({"checkpoint": tmp_path / "c", "checkpoint_every": 0}, "checkpoint_every"),
        ({"resume": True}, "resume"),
        ({"checkpoint": tmp_path / "nowhere" / "c"}, "a folder that exists"),
    ):
        with pytest.raises(InputError, match=named):
            simulate(**run, **given)
    assert_same(simulate(**run), simulate(**run, checkpoint=tmp_path / "c", resume=True))
