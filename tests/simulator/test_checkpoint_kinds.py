"""Every kind of run goes on from its checkpoint as if it had never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocator import Estimation
from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.results.deadlines import assign_slos
from allocator.simulator import SimulationResult, StretchOutcome, preset, simulate
from tests.simulator.event_policies import EveryThirtySeconds, OrderPolicy, Pairing, Selective, Timetable
from tests.simulator.packed_worlds import PairPolicy, random_shares
from tests.simulator.test_checkpoints import CrashError, StopAt, assert_same
from tests.simulator.worlds import make_trace
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
Run = dict[str, Any]


def gavel_jobs(n: int) -> Trace:
    return gavel_trace(n, 9000.0, seed=2, multi_gpu=True, priorities=True)


def changing(n: int) -> Trace:
    """Jobs that change their batch size."""
    modes = [("gns", "accordion", "static")[i % 3] for i in range(n)]
    steps = [60_000.0 + 9_000 * (i % 5) for i in range(n)]
    return Trace(["LM (batch size 10)"] * n, [1 + i % 2 for i in range(n)], steps, np.arange(n) * 150.0, mode=modes)


def usual(policy: str, name: str, **changes: Any) -> Run:
    trace, cluster = (changing(12), V100) if name.startswith("shockwave") else (gavel_jobs(12), TYPES)
    chosen = preset(name).replace(**changes)
    made = get_policy(policy, **chosen.settings_of_policy(policy, cluster))
    return {"trace": trace, "cluster": cluster, "policy": made, "throughputs": TABLE, "preset": chosen}


def with_deadlines(name: str) -> Run:
    """Jobs of minutes with two deadlines, one or none, some of which cannot be kept."""
    rng = np.random.default_rng(2)
    minutes, arrival = rng.integers(20, 90, 16), np.sort(rng.integers(0, 60, 16)) * 60.0
    due = arrival + minutes * 60.0 * rng.uniform(1.2, 3.0, 16)
    options = [((float(d), 10.0), (float(d) + 3600.0, 5.0))[: (2, 1, 0)[i % 3]] for i, d in enumerate(due)]
    trace = Trace(["job"] * 16, [1, 2] * 8, minutes * 60.0, arrival, deadline_options=options)
    chosen, cluster = preset(name), Cluster({"v100": 6}, {"v100": 3})
    policy = get_policy("chronus", **chosen.settings_of_policy("chronus", cluster), **NOISY)
    return {"trace": trace, "cluster": cluster, "policy": policy, "throughputs": np.ones((16, 1)), "preset": chosen}


NOISY = {"noise": 0.1}


def packed(**more: Any) -> Run:
    run = usual("max_min_fairness_packed", more.pop("name", "default"), **more.pop("changes", {}))
    return run | {"throughputs": TABLE.with_colocation(default_colocation())} | more


def at_events(policy: OrderPolicy, **changes: Any) -> Run:
    rng = np.random.default_rng(1)
    trace = make_trace(rng.uniform(20, 400, 14).tolist(), [1, 2] * 7, np.cumsum(rng.uniform(0, 60, 14)).tolist())
    run = {"trace": trace, "cluster": Cluster({"slow": 2, "fast": 3}), "policy": policy}
    return run | {"throughputs": rng.uniform(0.5, 3, (14, 2)), "preset": preset("default").replace(**changes)}


def sharing_at_events() -> Run:
    rng = np.random.default_rng(4)
    together = rng.uniform(0.3, 0.9, (2, 2, 1))
    columns = PackedColumns(rng.integers(0, 2, 10), [[1.0], [1.5]], together, accelerators=["v100"])
    trace = make_trace(rng.uniform(20, 90, 10).tolist(), arrivals=np.cumsum(rng.uniform(0, 20, 10)).tolist())
    return {"trace": trace, "cluster": Cluster({"v100": 2}), "policy": Pairing(), "throughputs": columns}


def sharing_by_chance() -> Run:
    columns = PackedColumns([0, 1] * 4, [[1.0], [1.3]], [[[0.7], [0.6]], [[0.8], [0.9]]], accelerators=["v100"])
    trace = make_trace([5_000.0 + 500 * i for i in range(8)], arrivals=[700.0 * i for i in range(8)])
    policy = PairPolicy(random_shares(3))
    return {"trace": trace, "cluster": Cluster({"v100": 2}), "policy": policy, "throughputs": columns}


def spread(policy: Any) -> Run:
    """Gangs of two on servers of three GPUs."""
    table = ThroughputTable([("a", 1), ("a", 2)], ["v100", "v100_unconsolidated"], [[1.0, 1.0], [1.9, 1.3]])
    trace = Trace(["a"] * 10, [1, 2] * 5, [3_000.0 + 500 * i for i in range(10)], [400.0 * i for i in range(10)])
    chosen = preset("default").replace(unconsolidated_throughputs=True)
    cluster = Cluster({"v100": 5}, {"v100": 3})
    return {"trace": trace, "cluster": cluster, "policy": policy, "throughputs": table, "preset": chosen}


PRICES = {"v100": ([0.0, 30_000.0, 90_000.0], [1.0, 3.0, 0.5]), "p100": ([0.0], [0.4]), "k80": ([0.0], [0.1])}


def due(policy: str, **settings: Any) -> Run:
    """Jobs with deadlines, some of which cannot be met, and restarts that the policy knows of."""
    trace = assign_slos(gavel_trace(16, 4000.0, seed=2), np.random.default_rng(0), {0.6: 0.3, 1.5: 0.5, np.nan: 0.2})
    made = get_policy(policy, restart_seconds=30.0, **settings)
    chosen = preset("default").replace(restart_penalty_seconds=30.0)
    return {"trace": trace, "cluster": V100, "policy": made, "throughputs": TABLE, "preset": chosen}


RUNS: dict[str, Callable[[], Run]] = {
    "default": lambda: usual("max_min_fairness", "default"),
    "a draw of types": lambda: usual("fifo", "default"),
    "buddy placement": lambda: usual("fifo_perf", "default", placement="buddy"),
    "no placement": lambda: usual("isolated", "default", placement="off"),
    "gavel": lambda: usual("finish_time_fairness", "gavel"),
    "without preemption": lambda: usual("allox", "gavel") | {"trace": gavel_trace(12, 4000.0, seed=2)},
    "warm starts": lambda: usual("max_min_fairness_perf", "default"),
    "shockwave": lambda: usual("shockwave", "shockwave"),
    "shockwave, jobs linger": lambda: usual("shockwave", "shockwave_published"),
    "shares under the preset shockwave": lambda: usual("max_min_fairness", "shockwave"),
    "exact batch sizes": lambda: usual("shockwave", "shockwave", batch_size_adaptation="exact"),
    "packed": packed,
    "packed, gavel": lambda: packed(name="gavel"),
    "packed, gandiva": lambda: packed(policy=get_policy("gandiva")),
    "packed, estimated": lambda: packed(estimation=Estimation(0.5, 2)),
    "packed, ideal, estimated": lambda: packed(changes={"ideal": True}, estimation=Estimation(0.5, 2)),
    "packed by chance": sharing_by_chance,
    "window": lambda: usual("isolated", "gavel") | {"window": (5, 12), "extend": gavel_jobs},
    "window, shockwave": lambda: usual("max_min_fairness", "shockwave") | {"window": (3, 9), "extend": changing},
    "ideal": lambda: usual("max_min_fairness_perf", "default", ideal=True),
    "prices": lambda: usual("max_sum_throughput_normalized_by_cost_perf", "default") | {"prices": PriceTable(PRICES)},
    "servers": lambda: spread(get_policy("fifo")),
    "servers, order": lambda: spread(OrderPolicy()),
    "order": lambda: at_events(OrderPolicy()),
    "order, without placement": lambda: at_events(OrderPolicy(), placement="off"),
    "order, starts cost time": lambda: at_events(OrderPolicy(), restart_penalty_seconds=7.0, restart_when_moved=True),
    "order, period": lambda: at_events(EveryThirtySeconds()),
    "deadlines": lambda: due("elasticflow"),
    "deadlines, repair": lambda: due("elasticflow", admission="repair"),
    "deadlines, a program": lambda: due("elasticflow_mip"),
    "deadlines, earliest first": lambda: due("edf_admission"),
    "steps": lambda: at_events(Timetable([(0, 10.0), (1, 25.0), (2, 5.0)])),
    "selection": lambda: at_events(Selective(most_seconds=150.0)),
    "order, shared": sharing_at_events,
    "lucid": lambda: usual("lucid", "default") | {"throughputs": COLOCATED},
    "lucid, published": lambda: usual("lucid", "lucid", gang_rates="table") | {"throughputs": COLOCATED},
    "chronus": lambda: with_deadlines("default"),
    "chronus, published": lambda: with_deadlines("chronus"),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_resumed_run_is_the_run(kind: str, tmp_path: Path) -> None:
    whole = simulate(**RUNS[kind](), seed=5)
    last = len(whole.timeline) - 1
    files = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": max(last // 7, 1), "seed": 5}
    for crash in (last // 3, 2 * last // 3):
        with pytest.raises(CrashError):
            simulate(**RUNS[kind](), **files, resume=True, observers=[StopAt(crash)])
        assert files["checkpoint"].exists()
    seen: list[int] = []

    class Watcher(StopAt):
        def round_ended(self, outcome: StretchOutcome) -> None:
            seen.append(outcome.index)

    resumed = simulate(**RUNS[kind](), **files, resume=True, observers=[Watcher(0)])
    assert_same(whole, resumed)
    assert seen[0] > 0
    assert_same_columns(whole, resumed)


def assert_same_columns(whole: SimulationResult, resumed: SimulationResult) -> None:
    for name in ("jobs", "rounds", "timeline"):
        pd.testing.assert_frame_equal(getattr(whole, name), getattr(resumed, name), check_exact=True)
    assert whole.policy_calls == resumed.policy_calls


def test_a_run_with_many_rounds_at_once_is_resumed(tmp_path: Path) -> None:
    run = {"trace": make_trace([3.6e8, 1.8e8]), "cluster": Cluster({"v100": 2}), "policy": get_policy("fifo")}
    run |= {"throughputs": np.full((2, 1), 1.1)}
    whole = simulate(**run)
    assert whole.record is not None
    index = whole.record.outcomes[-20].index
    files = {"checkpoint": tmp_path / "run.checkpoint", "checkpoint_every": 1000}
    with pytest.raises(CrashError):
        simulate(**run, **files, observers=[StopAt(index)])
    resumed = simulate(**run, **files, resume=True)
    pd.testing.assert_frame_equal(
        whole.jobs.drop(columns="gpu_seconds"), resumed.jobs.drop(columns="gpu_seconds"), check_exact=True
    )
    np.testing.assert_allclose(whole.jobs["gpu_seconds"], resumed.jobs["gpu_seconds"], rtol=1e-12)
    assert whole.summary()["rounds"] == resumed.summary()["rounds"]


def test_a_run_with_other_prices_is_another_run(tmp_path: Path) -> None:
    """Whether the policy reads them, or they are for the costs of the run alone."""
    for policy in ("max_sum_throughput_normalized_by_cost_perf", "isolated"):
        run = usual(policy, "default") | {"checkpoint": tmp_path / policy}
        with pytest.raises(CrashError):
            simulate(**run, prices=PriceTable(PRICES), checkpoint_every=5, observers=[StopAt(30)])
        for other in (PriceTable(PRICES | {"k80": ([0.0], [0.2])}), None):
            with pytest.raises(InputError, match="field 'prices'"):
                simulate(**run, prices=other, resume=True)
        simulate(**run, prices=PriceTable(PRICES), resume=True)


@pytest.mark.parametrize("part", ["state", "outcomes"])
def test_a_changed_byte_anywhere_is_noticed(part: str, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    run = at_events(OrderPolicy()) | {"checkpoint": path}
    with pytest.raises(CrashError):
        simulate(**run, checkpoint_every=3, observers=[StopAt(15)])
    whole = path.read_bytes()
    where = (
        np.linspace(0, len(whole) - 1, 25).astype(int) if part == "state" else range(len(whole) // 2, len(whole), 97)
    )
    for at in where:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="checkpoint"):
            simulate(**run, resume=True)
    path.write_bytes(whole)
    simulate(**run, resume=True)
