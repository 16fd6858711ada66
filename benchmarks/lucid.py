"""Lucid on virtual clusters: its three forms under score budgets from 0 to 4, beside the orders of its paper.

    python -m benchmarks lucid          # JCT and queueing by score budget, CPU time of large runs
    python notebooks/run.py lucid       # by virtual cluster and by size too

The kinds of jobs have made-up profiles: how much of a GPU's cores and of its memory bandwidth they use alone. Two of
them slow each other down as far as they ask for more than there is of either.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, SimulationResult, simulate
from allocator.presets import preset
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown
from throughputs import RetainedFractions, ThroughputTable, Trace
from throughputs.arrays import Floats

# Virtual clusters by number of servers with eight GPUs, as those of a cluster of 1,080.
SERVERS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)
SIZES, SIZE_SHARES = (1, 2, 4, 8, 16), (0.6, 0.12, 0.1, 0.15, 0.03)
KINDS = 24
BUDGETS = (0, 1, 2, 4)
LOAD = 1.2
"""GPU time asked for while jobs arrive, over what there is."""

GANGS_THAT_SHARE = (1, 2, 4, 8)

# Preset and policy. The published rules: a job looks for a host before it looks for free GPUs, and guests
# never recover.
FORMS = {
    "lucid, as published": ("lucid", "lucid"),
    "lucid": ("default", "lucid"),
    "lucid_program": ("default", "lucid_program"),
}
ORDERS = {"fifo": ("default", "fcfs")} | {name: ("default", name) for name in ("sjf", "srtf", "qssf", "tiresias")}
"""What Lucid was compared with; nobody shares GPUs under these. `fifo` is that of the paper, which passes nobody."""


def retained() -> Floats:
    """(K, K) what each kind keeps beside each other: one over the more contended of cores and bandwidth, at most 1."""
    rng = np.random.default_rng(7)
    cores, bandwidth = rng.uniform(0.1, 1.0, KINDS), rng.uniform(0.05, 0.9, KINDS)
    asked = np.maximum(cores[:, None] + cores, bandwidth[:, None] + bandwidth)
    return 1.0 / np.maximum(asked, 1.0)


@dataclass(frozen=True)
class Setting:
    """Jobs, and the cluster and speeds that go with them."""

    trace: Trace
    cluster: Cluster
    table: ThroughputTable

    @classmethod
    def drawn(cls, jobs: int, seed: int, load: float = LOAD, servers: tuple[int, ...] = SERVERS) -> Setting:
        """`jobs` jobs that ask for `load` times the GPU time that there is while they arrive.

        Parameters
        ----------
        servers : of each virtual cluster; jobs are drawn for them in proportion.
        """
        rng = np.random.default_rng(seed)
        pools = tuple(f"vc{k + 1}" for k in range(len(servers)))
        cluster = Cluster({p: 8 * n for p, n in zip(pools, servers, strict=True)}, dict.fromkeys(pools, 8))
        share = np.array(servers) / sum(servers)
        home = rng.choice(len(pools), jobs, p=share)
        size = np.minimum(rng.choice(SIZES, jobs, p=SIZE_SHARES), 8 * np.array(servers)[home])
        seconds = np.rint(np.minimum(rng.lognormal(8.0, 1.3, jobs), 28_800.0)) + 1.0
        span = float((seconds * size).sum()) / (load * cluster.total_gpus)
        kinds = [f"kind {k + 1}" for k in range(KINDS)]
        trace = Trace(
            [kinds[k] for k in rng.integers(0, KINDS, jobs).tolist()],
            size,
            seconds,
            np.sort(np.rint(rng.uniform(0.0, span, jobs))),
            duration=seconds,
            partition=[pools[k] for k in home.tolist()],
            predicted_seconds=seconds * rng.lognormal(0.0, 0.8, jobs),
        )
        keys = [(kind, s) for s in SIZES for kind in kinds]
        fractions = RetainedFractions(tuple(kinds), pools, np.repeat(retained()[:, :, None], len(pools), axis=2))
        alone = ThroughputTable(keys, pools, np.ones((len(keys), len(pools))))
        return cls(trace, cluster, alone.with_colocation(fractions, GANGS_THAT_SHARE))

    def run(self, label: str, **settings: Any) -> SimulationResult:
        """The jobs under one of the forms or orders, placed alike and with free starts."""
        world, name = (FORMS | ORDERS)[label]
        chosen = preset(world)
        policy = chosen.make_policy(name, self.cluster, **settings)
        alike = chosen.in_run(name, self.cluster).replace(placement="best_fit", restart_penalty_seconds=0.0)
        return simulate(self.trace, self.cluster, policy, self.table, preset=alike)


LARGEST_SMALL_GANG = 8
"""Jobs with more GPUs are large (Lucid, table 5)."""

PUBLISHED_BUDGET = 2
SMALL_SERVERS = (12, 8, 5, 3, 1)


def _runs(options: Options) -> Iterator[Run]:
    """Three draws of 400 jobs on five virtual clusters with 232 GPUs, or of 6,000 on fifteen with 1,080."""
    yield from runs_of(*((400, SMALL_SERVERS) if options.quick else (6_000, SERVERS)))


def runs_of(
    jobs: int, servers: tuple[int, ...], load: float = LOAD, seeds: tuple[int, ...] = (0, 1, 2)
) -> Iterator[Run]:
    """All forms under all score budgets, and all orders."""
    for seed in seeds:
        setting = Setting.drawn(jobs, seed, load, servers)
        for policy in (*FORMS, *ORDERS):
            for budget in BUDGETS if policy in FORMS else (np.nan,):
                labels = {"policy": policy, "score_budget": float(budget), "seed": seed}
                yield labels, partial(_run, setting, policy, budget)


def _run(setting: Setting, policy: str, budget: float) -> list[Row]:
    """The run, and under the published budget of 2, with a ``virtual_cluster``, each group of jobs in it."""
    usual = np.isnan(budget)
    started = time.process_time()
    result = setting.run(policy, **({} if usual else {"score_budget": budget}))
    jobs = result.jobs
    row = {
        "cpu_seconds": time.process_time() - started,
        "submitted_jobs": len(jobs),
        "average_jct": float(jobs["jct"].mean()),
        "p99_jct": float(jobs["jct"].quantile(0.99)),
        "average_queueing": float(jobs["queueing_time"].mean()),
    }
    groups = _groups(setting, jobs) if usual or budget == PUBLISHED_BUDGET else []
    return [{"status": result.status, **each} for each in (row, *groups)]


def _groups(setting: Setting, jobs: pd.DataFrame) -> list[Row]:
    """Jobs, and sums of their JCT and queueing in seconds, by virtual cluster, its GPUs, and size."""
    small = jobs["scale_factor"] <= LARGEST_SMALL_GANG
    capacity = dict(zip(setting.cluster.accelerators, setting.cluster.capacity.tolist(), strict=True))
    gpus = jobs["partition"].map(capacity)
    sizes = np.where(small, f"up to {LARGEST_SMALL_GANG} GPUs", "more")
    grouped = jobs.assign(virtual_cluster=jobs["partition"], gpus=gpus, size=sizes).groupby(
        ["virtual_cluster", "gpus", "size"], sort=False
    )
    summed = grouped.agg(jobs=("jct", "size"), jct=("jct", "sum"), queueing=("queueing_time", "sum"))
    return summed.reset_index().to_dict("records")


def _large(options: Options) -> Iterator[Run]:
    setting = Setting.drawn(300 if options.quick else 24_000, 0)
    for policy in FORMS:
        yield {"policy": policy, "score_budget": np.nan}, partial(_run, setting, policy, np.nan)


_SHOWN = {
    "jobs": Shown("submitted_jobs", ",.0f", over="max"),
    "average JCT, h": Shown("average_jct", ".2f", 3600.0),
    "average queueing, h": Shown("average_queueing", ".2f", 3600.0),
    "CPU, s": Shown("cpu_seconds", ".1f"),
}
STUDIES = {
    "lucid": Study("Lucid: JCT and queueing by score budget", _runs, ("policy", "score_budget"), _SHOWN),
    "lucid_large": Study("Lucid: CPU time of large runs", _large, ("policy",), _SHOWN),
}
