"""Jobs drawn for virtual clusters, and the policies that they run under.

The kinds of jobs have made-up profiles: how much of a GPU's cores and of its memory bandwidth they use alone. Two of
them slow each other down as far as they ask for more than there is of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator import Cluster, SimulationResult, simulate
from allocator.presets import preset
from throughputs import RetainedFractions, ThroughputTable, Trace

# Virtual clusters by number of servers with eight GPUs, as those of a cluster of 1,080.
SERVERS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)
SIZES, SIZE_SHARES = (1, 2, 4, 8, 16), (0.6, 0.12, 0.1, 0.15, 0.03)
KINDS = 24
BUDGETS = (0, 1, 2, 4)
# GPU time asked for while jobs arrive, over what there is: of a few jobs, most of which come at once, and of many.
CROWDED, BUSY = 4.0, 1.2
GANGS_THAT_SHARE = (1, 2, 4, 8)

# Preset, policy and settings. The published rules: a job looks for a host before it looks for free GPUs, and guests
# never recover.
FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lucid, as published": ("lucid", "lucid", {}),
    "lucid": ("default", "lucid", {}),
    "lucid_program": ("default", "lucid_program", {}),
}
ORDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fifo": ("default", "fcfs", {}),
    "sjf": ("default", "sjf", {}),
    "srtf": ("default", "srtf", {}),
    "qssf": ("default", "qssf", {}),
    "tiresias": ("default", "tiresias", {}),
}
"""What Lucid was compared with; nobody shares GPUs under these. `fifo` is that of the paper, which passes nobody."""


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
    def drawn(cls, jobs: int, seed: int, load: float, servers: tuple[int, ...] = SERVERS) -> Setting:
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
        world, name, own = (FORMS | ORDERS)[label]
        chosen = preset(world)
        policy = chosen.make_policy(name, self.cluster, **own | settings)
        alike = chosen.in_run(name, self.cluster).replace(placement="best_fit", restart_penalty_seconds=0.0)
        return simulate(self.trace, self.cluster, policy, self.table, preset=alike)
