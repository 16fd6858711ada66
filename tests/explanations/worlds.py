"""Small runs of which it is known why each job waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocator import Cluster, Policy, SimulationResult, get_policy, simulate
from allocator.simulator import preset
from throughputs import Trace

ROUND = 100.0


def trace_of(
    seconds: Sequence[float], gpus: Sequence[int], arrivals: Sequence[float] | None = None, **columns: Any
) -> Trace:
    """Jobs that take so many seconds at one step a second."""
    n = len(seconds)
    return Trace(["job"] * n, gpus, seconds, [0.0] * n if arrivals is None else arrivals, **columns)


def run_of(
    trace: Trace,
    cluster: str | Cluster,
    policy: str | Policy,
    rates: Any = None,
    policy_settings: dict[str, Any] | None = None,
    entities: Any = None,
    **settings: Any,
) -> SimulationResult:
    """Simulated in rounds of 100 s, with free restarts and turns of a round unless `settings` say otherwise."""
    gpus = Cluster.of(cluster)
    speeds = np.ones((len(trace), len(gpus.accelerators))) if rates is None else rates
    usual = {"round_seconds": ROUND, "restart_penalty_seconds": 0.0, "hysteresis_rounds": 0.0}
    chosen = preset("default").replace(**(usual | settings))
    asked = get_policy(policy, **(policy_settings or {})) if isinstance(policy, str) else policy
    return simulate(trace, gpus, asked, speeds, preset=chosen, entities=entities)
