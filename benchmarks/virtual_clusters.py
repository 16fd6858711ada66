"""Orders of jobs on virtual clusters: CPU time of whole simulations, drawn jobs and all those of Philly.

The virtual clusters are as large as those of Helios' Venus and of Philly. Philly's jobs are read from a table with the
columns timestamp, duration, num_gpus and cluster, where ``ALLOCATOR_DATA`` has it (``field/philly_82k.csv.gz``).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from allocator import Cluster, simulate
from allocator.presets import preset
from throughputs import Trace

JOBS = 24_000
POLICIES = ("fcfs", "sjf", "qssf", "srtf", "tiresias", "tiresias_gittins")
LOAD = 0.85
_VENUS = (9, 5, 8, 20, 6, 12, 4, 11, 4, 8, 3, 32, 10, 2, 1)
_PHILLY = {
    "6214e9": 64,
    "7f04ca": 32,
    "11cb48": 16,
    "b436b2": 64,
    "ee9e8c": 64,
    "e13805": 16,
    "6c71a0": 32,
    "2869ce": 16,
    "ed69ec": 8,
    "103959": 8,
    "0e4a51": 32,
}


def cluster_of(servers: Mapping[str, int]) -> Cluster:
    """Virtual clusters with so many servers of eight GPUs each."""
    return Cluster({name: 8 * count for name, count in servers.items()}, dict.fromkeys(servers, 8))


def drawn(jobs: int, cluster: Cluster, seed: int = 0) -> Trace:
    """Jobs of lognormal length, mostly on one GPU, that would keep all GPUs busy for `LOAD` of the time."""
    rng = np.random.default_rng(seed)
    own = rng.choice(len(cluster.capacity), jobs, p=cluster.capacity / cluster.total_gpus)
    gpus = rng.choice([1, 2, 4, 8, 16, 32], jobs, p=[0.55, 0.12, 0.13, 0.15, 0.04, 0.01])
    gpus = np.minimum(gpus, cluster.capacity[own])
    seconds = np.minimum(np.rint(np.exp(rng.normal(np.log(900.0), 2.0, jobs))) + 1, 3 * 86_400.0)
    span = (gpus * seconds).sum() / (cluster.total_gpus * LOAD)
    arrival = np.sort(np.rint(rng.random(jobs) * span))
    names = np.array(cluster.accelerators, dtype=object)
    return _trace(gpus, seconds, arrival, names[own], rng)


def philly(path: Path, cluster: Cluster) -> Trace:
    """All jobs of the table on the virtual clusters that are left in it, a handful excepted."""
    import pandas as pd

    table = pd.read_csv(path)
    table = table[(table["duration"] > 0) & table["cluster"].isin(cluster.accelerators)]
    submitted = pd.to_datetime(table["timestamp"])
    table = table.assign(arrival=(submitted - submitted.min()).dt.total_seconds()).sort_values("arrival", kind="stable")
    seconds = np.maximum(np.rint(table["duration"].to_numpy()), 1.0)
    names = table["cluster"].to_numpy(dtype=object)
    arrival = table["arrival"].to_numpy()
    return _trace(table["num_gpus"].to_numpy(), seconds, arrival, names, np.random.default_rng(0))


def _trace(gpus: Any, seconds: Any, arrival: Any, names: Any, rng: np.random.Generator) -> Trace:
    """The jobs, with predictions that are off by a lognormal factor."""
    predicted = np.maximum(1.0, np.rint(seconds * np.exp(rng.normal(0.0, 1.0, len(seconds)))))
    return Trace(
        ["job"] * len(seconds),
        gpus,
        seconds,
        arrival,
        duration=seconds,
        partition=names,
        predicted_seconds=predicted,
    )


def _runs(quick: bool) -> Iterator[tuple[str, Trace, Cluster, str]]:
    venus = cluster_of({f"vc{number}": count for number, count in enumerate(_VENUS)})
    jobs = 1_000 if quick else JOBS
    trace = drawn(jobs, venus)
    for name in POLICIES:
        yield f"{jobs:,} jobs, {venus.total_gpus:,} GPUs", trace, venus, name
    path = Path(os.environ.get("ALLOCATOR_DATA", "")) / "field" / "philly_82k.csv.gz"
    if quick or not path.exists():
        return
    cluster = cluster_of(_PHILLY)
    trace = philly(path, cluster)
    for name in ("fcfs", "qssf"):
        yield f"Philly, {len(trace):,} jobs, {cluster.total_gpus:,} GPUs", trace, cluster, name


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per run: least CPU time of three, decisions, average JCT, most memory of the process so far."""
    rows = []
    lucid = preset("lucid")
    for label, trace, cluster, name in _runs(quick):
        policy = lucid.make_policy(name, cluster)
        seconds = []
        with console.status(f"{label}, {name}"):
            for _ in range(1 if quick else 3):
                started = time.process_time()
                result = simulate(trace, cluster, policy, preset=lucid)
                seconds.append(time.process_time() - started)
        rows.append(
            {
                "run": label,
                "policy": name,
                "seconds": min(seconds),
                "policy_calls": result.policy_calls,
                "average_jct": float(result.jobs["jct"].mean()),
                "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="Orders on virtual clusters, preset lucid, least CPU time of three")
    for name in ("run", "policy", "seconds", "decisions", "average JCT (h)", "memory (GB)"):
        shown.add_column(name, justify="left" if name in ("run", "policy") else "right")
    for row in rows:
        hours, memory = f"{row['average_jct'] / 3600:.2f}", f"{row['memory_gb']:.2f}"
        shown.add_row(row["run"], row["policy"], f"{row['seconds']:.2f}", f"{row['policy_calls']:,}", hours, memory)
    return shown
