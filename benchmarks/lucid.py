"""Lucid: its three forms under score budgets from 0 to 4, and CPU time of a large run, on 15 virtual clusters.

The jobs are drawn here. Their kinds have made-up profiles, how much of a GPU's cores and of its memory bandwidth they
use alone; two of them slow each other down as far as they ask for more than there is of either.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from allocator import Cluster, SimulationResult, get_policy, simulate
from allocator.presets import preset
from throughputs import RetainedFractions, ThroughputTable, Trace

# Virtual clusters by number of servers with eight GPUs, as those of a cluster of 1,080.
SERVERS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)
SIZES, SIZE_SHARES = (1, 2, 4, 8, 16), (0.6, 0.12, 0.1, 0.15, 0.03)
KINDS = 24
BUDGETS = (0, 1, 2, 4)
LARGE = 24_000
# GPU time asked for while jobs arrive, over what there is: of a few jobs, most of which come at once, and of many.
CROWDED, BUSY = 4.0, 1.2
GANGS_THAT_SHARE = (1, 2, 4, 8)

# The published rules: a job looks for a host before it looks for free GPUs, and guests never recover.
FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "as published": ("lucid", "lucid", {}),
    "lucid": ("default", "lucid", {}),
    "lucid_program": ("default", "lucid_program", {}),
}


def retained() -> NDArray[np.float64]:
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
    def drawn(cls, jobs: int, seed: int, load: float) -> Setting:
        """`jobs` jobs that ask for `load` times the GPU time that there is while they arrive."""
        rng = np.random.default_rng(seed)
        pools = tuple(f"vc{k + 1}" for k in range(len(SERVERS)))
        cluster = Cluster({p: 8 * n for p, n in zip(pools, SERVERS, strict=True)}, dict.fromkeys(pools, 8))
        share = np.array(SERVERS) / sum(SERVERS)
        home = rng.choice(len(pools), jobs, p=share)
        size = np.minimum(rng.choice(SIZES, jobs, p=SIZE_SHARES), 8 * np.array(SERVERS)[home])
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

    def run(self, form: str, **settings: Any) -> SimulationResult:
        """The jobs under one of the forms, placed alike and with free starts."""
        world, name, own = FORMS[form]
        chosen = preset(world)
        policy = get_policy(name, **chosen.settings_of_policy(name, self.cluster) | own | settings)
        alike = chosen.in_run(name, self.cluster).replace(placement="best_fit", restart_penalty_seconds=0.0)
        return simulate(self.trace, self.cluster, policy, self.table, preset=alike)


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per form and score budget: average JCT over the draws; and per form CPU time of one large run."""
    jobs, seeds, large = (100, (0,), 300) if quick else (600, (0, 1, 2), LARGE)
    drawn = [Setting.drawn(jobs, seed, CROWDED) for seed in seeds]
    setting, rows = Setting.drawn(large, 0, BUSY), []
    for form in FORMS:
        with console.status(form):
            for budget in BUDGETS:
                means = [one.run(form, score_budget=budget).jobs["jct"].mean() for one in drawn]
                rows.append({"form": form, "jobs": jobs, "score_budget": budget, "hours": float(np.mean(means)) / 3600})
            started = time.process_time()
            run = setting.run(form)
            seconds = time.process_time() - started
            rows.append({"form": form, "jobs": large, "seconds": seconds, "policy_calls": run.policy_calls})
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="Lucid: average JCT by score budget, and CPU time of a large run")
    for name in ("form", "jobs", *(f"budget {budget}, h" for budget in BUDGETS), "large run, jobs", "CPU, s"):
        shown.add_column(name, justify="left" if name == "form" else "right")
    for form in dict.fromkeys(row["form"] for row in rows):
        own = [row for row in rows if row["form"] == form]
        means, large = [row for row in own if "hours" in row], next(row for row in own if "seconds" in row)
        cells = [f"{row['hours']:.2f}" for row in means]
        shown.add_row(form, f"{means[0]['jobs']:,}", *cells, f"{large['jobs']:,}", f"{large['seconds']:.1f}")
    return shown
