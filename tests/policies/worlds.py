"""Jobs of published types for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator import Cluster, ClusterState, default_table
from allocator.protocol.colocated import of_trace, take
from throughputs import Trace, default_colocation

TYPES = ["v100", "p100", "k80"]
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
TABLE = default_table().with_colocation(default_colocation(), (1, 2, 4))


def state_of(
    n: int,
    cluster: str = "v100:4,p100:4,k80:4",
    seed: int = 0,
    *,
    sizes: Any = (1, 1, 1, 2, 4),
    slo_hours: tuple[float, float] | None = None,
    even: bool = False,
    sharing: bool = False,
    **columns: Any,
) -> ClusterState:
    """Mixed gangs, weights, prices and progress; `slo_hours`: of three in five jobs; `even`: as much work for all."""
    rng = np.random.default_rng(seed)
    gpus, gangs = Cluster.parse(cluster), rng.choice(sizes, n)
    able = {s: [t for t in TABLE.job_types if s in TABLE.scale_factors_of(t)] for s in set(sizes)}
    kinds = [able[int(s)][rng.integers(len(able[int(s)]))] for s in gangs]
    matrix = TABLE.matrix(range(n), kinds, gangs, gpus.accelerators)
    known = {
        "priority_weights": rng.choice([1.0, 5.0], n),
        # else one long job decides alone
        "steps_remaining": rng.uniform(1e4, 2e4, n) * matrix.rates.max(axis=1) if even else rng.uniform(1e3, 1e6, n),
        "elapsed_seconds": rng.uniform(0, 1e5, n),
        "isolated_seconds": rng.uniform(0, 1e4, n),
        "gpu_prices": np.array([PRICES[name] for name in gpus.accelerators]),
    }
    if slo_hours:
        known["slo_seconds"] = np.where(rng.random(n) < 0.6, rng.uniform(*slo_hours, n) * 3600, np.inf)
    if sharing:
        known["colocation"] = take(
            of_trace(Trace(kinds, gangs, np.ones(n), np.zeros(n)), TABLE, gpus, ()), np.arange(n)
        )
    return ClusterState(gpus, matrix, **known | columns)
