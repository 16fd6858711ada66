"""One decision of Sia and of Pollux, by the program and by Pollux' genetic search.

Jobs train the embedded models (`throughputs.goodput.profiles`) and are at some point of their training. The embedded
figures are of one accelerator type; others here are faster by a factor that is drawn for each model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.protocol import Assignment
from benchmarks.timing import cpu_seconds
from throughputs import Configurations
from throughputs.goodput import best_batch_sizes
from throughputs.goodput.profiles import default_profiles

if TYPE_CHECKING:
    import pandas as pd

Whole = NDArray[np.int64]

LARGE = {"t4": (768, 4), "v100": (512, 8), "a100": (768, 8)}
SMALL = {"t4": (24, 4), "v100": (16, 8), "a100": (24, 8)}
ONE_TYPE = {"t4": (64, 4)}
"""GPUs of each type, and how many are in a node. The small ones have 64 in all, the large ones 2,048."""

MODELS = ("cifar10", "deepspeech2", "bert", "yolov3", "imagenet", "ncf")

DECISIONS: tuple[tuple[str, dict[str, Any], int, dict[str, tuple[int, int]]], ...] = (
    ("sia", {}, 160, SMALL),
    ("sia", {"rounded": True}, 160, SMALL),
    ("sia", {}, 1024, LARGE),
    ("sia", {"rounded": True}, 1024, LARGE),
    ("pollux", {}, 160, ONE_TYPE),
    ("pollux", {"search": "genetic", "generations": 100}, 160, ONE_TYPE),
    ("pollux", {"search": "genetic"}, 12, {"t4": (32, 4)}),
)
"""Policy, its settings, jobs and cluster."""


def draw_state(n_jobs: int, cluster: dict[str, tuple[int, int]], seed: int = 0) -> ClusterState:
    """Jobs that run on some GPUs, or wait, in the midst of their training."""
    rng = np.random.default_rng(seed)
    counts = {name: configurations(*size) for name, size in cluster.items()}
    known = sorted({(g, n) for found in counts.values() for g, n in found.tolist()})
    gpus, nodes = np.array(known).T
    names = rng.integers(len(MODELS), size=n_jobs)
    models = default_profiles().goodput([MODELS[k] for k in names], "t4", progress=rng.uniform(0, 1, n_jobs))
    goodput = best_batch_sizes(models, nodes=nodes, gpus=gpus).goodput
    factors = rng.uniform(1.5, 4.0, (len(MODELS), len(cluster)))
    factors[:, 0] = 1.0
    most = 2 ** rng.integers(1, 7, n_jobs)
    rows = [
        (job, pool, g, goodput[job, known.index((g, n))] * factors[names[job], pool])
        for job in range(n_jobs)
        for pool, found in enumerate(counts.values())
        for g, n in found.tolist()
        if g <= most[job] and goodput[job, known.index((g, n))] > 0
    ]
    job, pool, count, rate = map(np.array, zip(*rows, strict=True))
    ways = Configurations(job, pool, count, rate, pools=tuple(cluster))
    of = Cluster({name: size[0] for name, size in cluster.items()}, {name: size[1] for name, size in cluster.items()})
    first = ways.offsets[:-1]
    rates = np.zeros((n_jobs, len(cluster)))
    rates[np.arange(n_jobs), ways.pool[first]] = ways.rate[first]
    matrix = ThroughputMatrix(rates, ways.jobs, tuple(cluster), ways.gpus[first])
    elapsed = rng.uniform(60.0, 4e4, n_jobs)
    running = _running(ways, of.capacity.copy(), rng)
    return ClusterState(of, matrix, configurations=ways, elapsed_seconds=elapsed, running=running)


def configurations(gpus: int, per_node: int) -> Whole:
    """(C, 2) GPUs and nodes of Sia's configurations, of at most 64 GPUs: powers of two of a node, or whole nodes."""
    inside = [(1 << k, 1) for k in range(per_node.bit_length())]
    return np.array([*inside, *((n * per_node, n) for n in range(2, min(gpus, 64) // per_node + 1))])


def _running(ways: Configurations, left: Whole, rng: np.random.Generator) -> Assignment:
    """Jobs in an order that is drawn run on a number of GPUs that is drawn, while there are some."""
    rows = []
    for job in rng.permutation(ways.n_jobs).tolist():
        row = int(rng.integers(ways.offsets[job], ways.offsets[job + 1]))
        if ways.gpus[row] <= left[ways.pool[row]]:
            left[ways.pool[row]] -= ways.gpus[row]
            rows.append(row)
    chosen = np.array(rows)
    return Assignment.of(ways.job[chosen], ways.pool[chosen], ways.gpus[chosen])


SIZES = (64, 128, 256, 512, 1024, 2048)
"""GPUs of one type, with half as many jobs."""

CHOOSING = ("sia", "pollux", "optimus", "max_sum_throughput_perf")


def measure_sizes(sizes: Sequence[int] = SIZES, *, draws: int = 3, repetitions: int = 3) -> pd.DataFrame:
    """CPU time of decisions about clusters of several sizes, with half as many jobs as T4 GPUs.

    Returns
    -------
    One row for each policy of `CHOOSING`, size and draw, with the columns policy, gpus, seed, status and
    decision_seconds: the median of the repetitions, of which one more comes first and does not count.
    """
    import pandas as pd

    rows = []
    for gpus in sizes:
        states = [draw_state(gpus // 2, {"t4": (gpus, 4)}, seed) for seed in range(draws)]
        for name in CHOOSING:
            policy = get_policy(name)
            for seed, state in enumerate(states):
                policy.allocate(state)
                seconds = cpu_seconds(lambda policy=policy, state=state: policy.allocate(state), repetitions)
                rows.append((name, gpus, seed, "completed", seconds))
    return pd.DataFrame(rows, columns=["policy", "gpus", "seed", "status", "decision_seconds"])


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per kind of decision: the median and worst over states of the median CPU time of each."""
    seeds, repetitions = (1, 1) if quick else (5, 3)
    rows = []
    for name, settings, n_jobs, cluster in DECISIONS[:1] + DECISIONS[4:5] if quick else DECISIONS:
        with console.status(f"{name}, {n_jobs} jobs"):
            states = [draw_state(n_jobs, cluster, seed) for seed in range(seeds)]
            rows.append(measure_one(name, settings, states, repetitions))
    return rows


def measure_one(name: str, settings: dict[str, Any], states: list[ClusterState], repetitions: int) -> dict[str, Any]:
    """CPU time and proven gap of a decision about each of the states."""
    policy = get_policy(name, **settings)
    found = [policy.allocate(state) for state in states]
    seconds = [cpu_seconds(lambda state=state: policy.allocate(state), repetitions) for state in states]
    return {
        "policy": name,
        "settings": settings,
        "jobs": states[0].n_jobs,
        "gpus": states[0].cluster.total_gpus,
        "columns": max(state.configurations.n_columns for state in states if state.configurations is not None),
        "median_seconds": float(np.median(seconds)),
        "worst_seconds": max(seconds),
        "worst_gap": max(each.gap for each in found),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="One decision by goodput, CPU time (gap: worst of the states)")
    for name in ("policy", "settings", "jobs", "GPUs", "columns", "median ms", "worst ms", "gap"):
        shown.add_column(name, justify="left" if name in ("policy", "settings") else "right")
    for row in rows:
        settings = ", ".join(f"{key}={value}" for key, value in row["settings"].items())
        figures = (row["jobs"], row["gpus"], row["columns"])
        times = (f"{row[name] * 1e3:.1f}" for name in ("median_seconds", "worst_seconds"))
        shown.add_row(row["policy"], settings, *map(str, figures), *times, f"{row['worst_gap']:.0e}")
    return shown
