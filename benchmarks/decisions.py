"""One decision: the `auto` path beside the plain cvxpy + ECOS path, on the same state, in one run.

Families of jobs on a cluster with a quarter as many GPUs of each type as there are jobs:

- published: single-GPU jobs of the published 26 types, as in the original's run-time study;
- gangs: published types with the published mix of gangs and priorities;
- distinct: no two jobs alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from allocator import Cluster, ClusterState, ThroughputMatrix, default_table, get_policy
from benchmarks.timing import cpu_seconds
from throughputs import TraceGenerator
from throughputs.traces.generator import PUBLISHED_PRIORITIES

POLICIES = (
    "max_min_fairness_perf",
    "finish_time_fairness_perf",
    "min_total_duration_perf",
    "max_sum_throughput_perf",
)
FAMILIES = ("published", "gangs", "distinct")


def draw_state(family: str, n_jobs: int, seed: int = 2) -> ClusterState:
    """A cluster in the middle of its work: jobs with some steps done and some time spent."""
    rng = np.random.default_rng(seed)
    gangs: dict[str, Any] = {} if family == "gangs" else {"scale_factors": {1: 1.0}}
    priorities = PUBLISHED_PRIORITIES if family == "gangs" else None
    trace = TraceGenerator(n_jobs=n_jobs, priorities=priorities, **gangs).generate(rng)
    quarter = n_jobs // 4
    cluster = Cluster({"v100": quarter, "p100": quarter, "k80": quarter})
    matrix = default_table().matrix(range(n_jobs), trace.job_type, trace.scale_factor, cluster.accelerators)
    if family == "distinct":
        spread = rng.uniform(0.8, 1.25, matrix.rates.shape)
        matrix = ThroughputMatrix(matrix.rates * spread, matrix.jobs, matrix.accelerators, matrix.scale_factors)
    return ClusterState(
        cluster,
        matrix,
        priority_weights=trace.priority_weight,
        steps_remaining=trace.total_steps * rng.uniform(0.05, 1.0, n_jobs),
        elapsed_seconds=rng.uniform(0, 1e5, n_jobs),
        isolated_seconds=rng.uniform(0, 1e5, n_jobs),
    )


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per family, size and policy."""
    sizes, repetitions = ((128,), 3) if quick else ((128, 512, 2048), 15)
    rows = []
    for family in FAMILIES:
        for n_jobs in sizes:
            state = draw_state(family, n_jobs)
            for name in POLICIES:
                with console.status(f"{family}, {n_jobs} jobs, {name}"):
                    rows.append(measure_one(family, state, name, repetitions))
    return rows


def measure_one(family: str, state: ClusterState, name: str, repetitions: int) -> dict[str, Any]:
    """CPU time, objective and proven gap of both paths."""
    auto, plain = get_policy(name), get_policy(name, solver="ecos", choice="published")
    ours, theirs = auto.allocate(state), plain.allocate(state)
    ours_s = cpu_seconds(lambda: auto.allocate(state), repetitions)
    plain_s = cpu_seconds(lambda: plain.allocate(state), max(3, repetitions // 4))
    return {
        "family": family,
        "jobs": state.n_jobs,
        "policy": name,
        "auto_seconds": ours_s,
        "plain_seconds": plain_s,
        "ratio": plain_s / ours_s,
        "solver": ours.solver,
        "status": ours.status,
        "objective": ours.objective,
        "gap": ours.gap,
        "plain_objective": theirs.objective,
        "plain_gap": theirs.gap,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="One decision, median CPU time (auto: solve, prove, choose; plain: cvxpy + ECOS)")
    for name in ("family", "jobs", "policy", "auto ms", "gap", "plain ms", "gap", "ratio"):
        shown.add_column(name, justify="left" if name in ("family", "policy") else "right")
    for row in rows:
        shown.add_row(
            row["family"],
            str(row["jobs"]),
            row["policy"],
            f"{row['auto_seconds'] * 1e3:.2f}",
            f"{row['gap']:.0e}",
            f"{row['plain_seconds'] * 1e3:.1f}",
            f"{row['plain_gap']:.0e}",
            f"{row['ratio']:.0f}x",
        )
    return shown
