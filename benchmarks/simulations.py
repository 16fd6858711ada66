"""Studies of whole simulations, measured: what they take of the processor, beside the original's recorded runs.

- `SIMULATIONS`: the published generator's 200 single-GPU jobs (mean inter-arrival 300 s, seed 0) on 36 v100, 36 p100
  and 36 k80, draw for draw the trace of the recorded run: rounds per second;
- `LONG_RUNS`: a month of jobs under an order that decides at events, and one job of a billion equal rounds;
- `VIRTUAL_CLUSTERS`: orders of jobs on virtual clusters as large as those of Helios' Venus, and all jobs of Philly on
  its own, read from a table with the columns timestamp, duration, num_gpus and cluster, where ``ALLOCATOR_DATA`` has
  it (``field/philly_82k.csv.gz``);
- `ELASTIC`: policies that choose numbers of GPUs, on 1,024 GPUs of which 5 % more are asked for than there are.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, SimulationResult, default_table, get_policy, simulate
from allocator.presets import preset, preset_names
from allocator.registry import settings_of
from allocator.simulator.world import Progress
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown
from throughputs import Trace, deadline_trace, gavel_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace

# Rounds and wall seconds of the original on this workload (its public code, ECOS, one loaded two-core machine).
RECORDED = {
    "max_min_fairness_perf": (1584, 28.973),
    "max_min_fairness": (2563, 45.725),
    "isolated": (2565, 30.878),
    "fifo_perf": (1600, 17.009),
}
_TIMES = {
    "policy_calls": Shown("policy_calls", ",.0f", over="median"),
    "least seconds": Shown("seconds", ".2f", over="min"),
}


def timed(repetitions: int, *arguments: Any, **settings: Any) -> Iterator[tuple[SimulationResult, Row]]:
    """A simulation again and again: its result, and CPU seconds, the policy's part of them, and decisions."""
    for repetition in range(repetitions):
        started = time.process_time()
        result = simulate(*arguments, **settings)
        seconds = time.process_time() - started
        row = {"seconds": seconds, "policy_seconds": result.policy_seconds, "policy_calls": result.policy_calls}
        yield result, {"repetition": repetition, **row}


def _simulations(options: Options) -> Iterator[Run]:
    for name in RECORDED:
        for world in ("gavel", "default"):
            yield {"policy": name, "preset": world}, partial(_simulation, name, world, 2 if options.quick else 9)


def _simulation(name: str, world: str, repetitions: int) -> list[Row]:
    trace, cluster = gavel_trace(200, 300.0, seed=0), Cluster(dict.fromkeys(("v100", "p100", "k80"), 36))
    settings = {"choice": preset(world).choice} if "choice" in settings_of(name) else {}
    policy, throughputs = get_policy(name, **settings), default_table()
    simulate(trace.head(20), cluster, policy, throughputs, preset=world)
    rounds, recorded_seconds = RECORDED[name]
    recorded = rounds / recorded_seconds
    rows = []
    for result, row in timed(repetitions, trace, cluster, policy, throughputs, preset=world):
        summary = result.summary()
        speed = summary["rounds"] / row["seconds"]
        figures = {key: summary[key] for key in ("rounds", "average_jct", "makespan")}
        pace = {"rounds_per_second": speed, "recorded_rounds_per_second": recorded, "ratio": speed / recorded}
        rows.append({**row, **figures, **pace})
    return rows


SIMULATIONS = Study(
    "Simulation of 200 jobs on 36:36:36, median CPU time, beside the original's recorded run",
    _simulations,
    by=("policy", "preset"),
    shown={
        "rounds": Shown("rounds", ".0f", over="median"),
        "calls": Shown("policy_calls", ".0f", over="median"),
        "seconds": Shown("seconds", ".3f", over="median"),
        "in policy": Shown("policy_seconds", ".3f", over="median"),
        "rounds/s": Shown("rounds_per_second", ",.0f", over="median"),
        "original rounds/s": Shown("recorded_rounds_per_second", ".1f", over="median"),
        "ratio": Shown("ratio", ".0f", over="median"),
    },
)


def _long_runs(options: Options) -> Iterator[Run]:
    jobs = 1_000 if options.quick else 24_000
    table, cluster = default_table(), Cluster(dict.fromkeys(("v100", "p100", "k80"), 400))
    month = gavel_trace(jobs, 30 * 86_400 / jobs, seed=0)
    repeated = partial(_long_run, 1 if options.quick else 3, throughputs=table)
    yield {"run": f"{jobs:,} jobs, srtf"}, partial(repeated, month, cluster, get_policy("srtf"))
    kind = "LM (batch size 20)"
    steps = table.rates([kind], [1], ["v100"])[0, 0] * 360.0 * 1e9
    alone, policy = Cluster({"v100": 4}), get_policy("max_min_fairness_perf")
    for name in preset_names():
        one = Trace([kind], [1], [steps], [0.0])
        yield {"run": f"1e9 rounds, {name}"}, partial(repeated, one, alone, policy, preset=name)


def _long_run(repetitions: int, *arguments: Any, **settings: Any) -> list[Row]:
    rows = []
    for result, row in timed(repetitions, *arguments, **settings):
        rows.append(row | {"recorded": len(result.record.outcomes)})
    return rows


LONG_RUNS = Study(
    "Long runs, least CPU time of three",
    _long_runs,
    by=("run",),
    shown={**_TIMES, "stretches recorded": Shown("recorded", ",.0f", over="median")},
)


ORDERS = ("fcfs", "sjf", "qssf", "srtf", "tiresias", "tiresias_gittins")
LOAD = 0.85
_VENUS = {f"vc{k}": count for k, count in enumerate((9, 5, 8, 20, 6, 12, 4, 11, 4, 8, 3, 32, 10, 2, 1))}
_PHILLY = {
    "6214e9": 64, "7f04ca": 32, "11cb48": 16, "b436b2": 64, "ee9e8c": 64, "e13805": 16, "6c71a0": 32, "2869ce": 16,
    "ed69ec": 8, "103959": 8, "0e4a51": 32,
}  # fmt: skip


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
    table = pd.read_csv(path)
    table = table[(table["duration"] > 0) & table["cluster"].isin(cluster.accelerators)]
    submitted = pd.to_datetime(table["timestamp"])
    table = table.assign(arrival=(submitted - submitted.min()).dt.total_seconds()).sort_values("arrival", kind="stable")
    seconds = np.maximum(np.rint(table["duration"].to_numpy()), 1.0)
    names = table["cluster"].to_numpy(dtype=object)
    return _trace(table["num_gpus"].to_numpy(), seconds, table["arrival"].to_numpy(), names, np.random.default_rng(0))


def _trace(gpus: Any, seconds: Any, arrival: Any, names: Any, rng: np.random.Generator) -> Trace:
    """The jobs, with predictions that are off by a lognormal factor."""
    predicted = np.maximum(1.0, np.rint(seconds * np.exp(rng.normal(0.0, 1.0, len(seconds)))))
    more = {"duration": seconds, "partition": names, "predicted_seconds": predicted}
    return Trace(["job"] * len(seconds), gpus, seconds, arrival, **more)


def _virtual_clusters(options: Options) -> Iterator[Run]:
    venus, own = cluster_of(_VENUS), cluster_of(_PHILLY)
    trace = drawn(1_000 if options.quick else 24_000, venus)
    runs = [("drawn", trace, venus, name) for name in ORDERS]
    path = Path(os.environ.get("ALLOCATOR_DATA", "")) / "field" / "philly_82k.csv.gz"
    if not options.quick and path.exists():
        runs += [("Philly", philly(path, own), own, name) for name in ("fcfs", "qssf")]
    for label, jobs, cluster, name in runs:
        labels = {"trace": label, "jobs": len(jobs), "gpus": cluster.total_gpus, "policy": name}
        yield labels, partial(_order, jobs, cluster, name, 1 if options.quick else 3)


def _order(trace: Trace, cluster: Cluster, name: str, repetitions: int) -> list[Row]:
    lucid = preset("lucid")
    policy = lucid.make_policy(name, cluster)
    rows = []
    for result, row in timed(repetitions, trace, cluster, policy, preset=lucid):
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        rows.append(row | {"average_jct": float(result.jobs["jct"].mean()), "memory_gb": memory})
    return rows


VIRTUAL_CLUSTERS = Study(
    "Orders on virtual clusters, preset lucid, least CPU time of three",
    _virtual_clusters,
    by=("trace", "jobs", "gpus", "policy"),
    shown={
        **_TIMES,
        "average JCT, h": Shown("average_jct", ".2f", 3600.0, "median"),
        "memory, GB": Shown("memory_gb", ".2f", over="max"),
    },
)


_LOAD_OF_ELASTIC = 1.05
_GPU_SECONDS = {"elasticflow": 70_913.0, "sia": 17_730.0, "pollux": 17_730.0}
"""What the first 20,000 jobs need in the mean: trainings on one GPU, jobs with deadlines on those that they ask for."""


def _elastic(options: Options) -> Iterator[Run]:
    jobs, gpus = (40, 64) if options.quick else (20_000, 1_024)
    for name in _GPU_SECONDS:
        yield {"policy": name, "jobs": jobs, "gpus": gpus}, partial(_elastic_run, name, jobs, gpus)


def _elastic_run(name: str, jobs: int, gpus: int) -> list[Row]:
    train, rng = name != "elasticflow", np.random.default_rng(0)
    every = _GPU_SECONDS[name] / (_LOAD_OF_ELASTIC * gpus)
    known = default_profiles()
    trace = training_trace(jobs, every, rng=rng, trainings=known) if train else deadline_trace(jobs, every, rng=rng)
    kind, per_node = ("t4", 4) if train else ("v100", 8)
    cluster, world = Cluster({kind: gpus}, {kind: per_node}), preset("default").replace(slot_seconds=60.0)
    rows = timed(1, trace, cluster, get_policy(name), known if train else None, preset=world, progress=_told())
    return [row | {"average_jct": float(result.jobs["jct"].mean())} for result, row in rows]


def _told() -> Progress:
    """Says how far a long run is, every tenth of its jobs."""
    tenths = set[int]()

    def progress(clock: float, completed: int, jobs: int) -> None:
        if (tenth := 10 * completed // jobs) not in tenths and jobs > 1_000:
            tenths.add(tenth)
            print(f"{completed:,} of {jobs:,} jobs, {clock / 3600:.0f} h", flush=True)

    return progress


ELASTIC = Study(
    f"Elastic policies, {_LOAD_OF_ELASTIC:.2f} of the capacity asked for, a decision a minute, CPU time",
    _elastic,
    by=("policy", "jobs", "gpus"),
    shown={**_TIMES, "average JCT, h": Shown("average_jct", ".2f", 3600.0, "median")},
)
