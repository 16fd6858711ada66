"""Small runs for reports: policies on one list of jobs that ask for more GPUs than there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from allocator.report.page.payload import build_payload
from allocator.results.result import SimulationResult
from throughputs import Trace

POLICIES = ("fifo", "isolated", "max_min_fairness")
JOB_TYPES = ("ResNet-18 (batch size 64)", "ResNet-50 (batch size 128)", "Transformer (batch size 32)")
FREE_STARTS = preset("default").replace(restart_penalty_seconds=0.0, restart_penalty_per_doubling_seconds=0.0)


def make_result(
    policy: str = "max_min_fairness",
    *,
    n_jobs: int = 14,
    hours: float = 12.0,
    cluster: str = "v100:4,p100:4,k80:4",
    seed: int = 0,
    job_types: Sequence[str] = JOB_TYPES,
) -> SimulationResult:
    """Jobs of up to so many hours, which come within a third of the longest."""
    rng = np.random.default_rng(seed)
    machine = Cluster.of(cluster)
    speed = np.array([1.0, 0.6, 0.25])[: len(machine.accelerators)]
    trace = Trace(
        [job_types[k] for k in rng.integers(len(job_types), size=n_jobs)],
        rng.choice([1, 2, 4], p=[0.6, 0.2, 0.2], size=n_jobs),
        rng.uniform(600, 3600 * hours, size=n_jobs).round(),
        np.sort(rng.uniform(0, 1200 * hours, size=n_jobs)).round(1),
    )
    known = get_policy(policy if policy in POLICIES else "max_min_fairness")
    made = simulate(trace, machine, known, np.tile(speed, (n_jobs, 1)), preset=FREE_STARTS, seed=seed)
    return made if policy in POLICIES else changed(made, policy=policy, label=policy)


def changed(result: SimulationResult, **changes: Any) -> SimulationResult:
    """The result with some of its attributes or tables replaced."""
    fixed = {field.name for field in fields(result)}
    made = replace(result, **{name: value for name, value in changes.items() if name in fixed})
    shown = {name: getattr(result, name) for name in ("jobs", "rounds", "timeline")}
    made.__dict__.update(shown, **{name: value for name, value in changes.items() if name not in fixed})
    return made


def make_results(*policies: str, **options: Any) -> list[SimulationResult]:
    """Several policies on one trace."""
    return [make_result(policy, **options) for policy in policies or POLICIES]


def payload_of(results: Sequence[SimulationResult]) -> dict[str, Any]:
    """What a page embeds of runs, each of a policy of its own."""
    names = [result.label for result in results]
    return build_payload(results, names, names, range(len(names)), "rho")
