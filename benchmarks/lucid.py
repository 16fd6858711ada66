"""Lucid: its three forms under score budgets from 0 to 4, and how long a large run takes.

    python -m benchmarks.lucid                    # 1,000 jobs, three draws: a table of completion times
    python -m benchmarks.lucid --jobs 24000       # processor time on 15 virtual clusters with 1,080 GPUs

The jobs are drawn here. Their kinds have made-up profiles, how much of a GPU's cores and of its memory bandwidth they
use alone; two of them slow each other down as far as they ask for more than there is of either.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator import Cluster, SimulationResult, get_policy, simulate
from allocator.presets import preset
from throughputs import RetainedFractions, ThroughputTable, Trace

# Virtual clusters by number of servers with eight GPUs, as those of a cluster of 1,080.
SERVERS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)
SIZES, SIZE_SHARES = (1, 2, 4, 8, 16), (0.6, 0.12, 0.1, 0.15, 0.03)
KINDS = 24
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
        seconds = np.rint(np.minimum(rng.lognormal(7.0, 1.7, jobs), 86_400.0)) + 1.0
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


def budgets(jobs: int, seeds: tuple[int, ...], load: float) -> str:
    """Average JCT in hours by form and score budget."""
    lines = ["score budget      0      1      2      4   (average JCT, hours)"]
    for form in FORMS:
        means = []
        for budget in (0, 1, 2, 4):
            drawn = [Setting.drawn(jobs, seed, load).run(form, score_budget=budget) for seed in seeds]
            means.append(np.mean([run.jobs["jct"].mean() for run in drawn]) / 3600.0)
        lines.append(f"{form:14s}" + "".join(f"{mean:7.2f}" for mean in means))
    return "\n".join(lines)


def speed(jobs: int, load: float) -> str:
    """Processor seconds of one run by form."""
    setting, lines = Setting.drawn(jobs, 0, load), []
    for form in FORMS:
        started = time.process_time()
        run = setting.run(form)
        spent = time.process_time() - started
        lines.append(f"{form:14s} {spent:6.1f} s of processor time, {run.policy_calls} decisions")
    return "\n".join(lines)


def main() -> None:
    """Print a table, or times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--load", type=float, default=1.2)
    args = parser.parse_args()
    large = args.jobs > 5000
    print(speed(args.jobs, args.load) if large else budgets(args.jobs, (0, 1, 2), args.load))


if __name__ == "__main__":
    main()
