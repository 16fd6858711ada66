"""The main comparison of Sia (Jayaram Subramanya et al., SOSP 2023, sec. 5): its workloads on 64 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from allocator import Cluster
from allocator.data import path_of
from allocator.presets import preset
from allocator.published.pollux.trainings import read_trainings
from allocator.report.progress import Advance
from allocator.results.result import SimulationResult
from allocator.simulator.engine import simulate
from allocator.studies.headline import Made, headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown
from throughputs import read_trace
from throughputs.goodput.trainings import Trainings

CLUSTERS = {
    "three types": Cluster({"aws": 24, "dgx-ext": 16, "rtx": 24}, gpus_per_server={"aws": 4, "dgx-ext": 8, "rtx": 8}),
    "T4": Cluster({"aws": 64}, gpus_per_server={"aws": 4}),
}
"""64 GPUs each: T4, A100 and RTX 2080 Ti as the artifact names them, or T4 alone."""

PRINTED: dict[tuple[str, str, str], tuple[float, float, float, float]] = {
    ("three types", "philly", "sia"): (0.6, 9.5, 14.2, 4.0),
    ("three types", "philly", "max_sum_throughput_perf"): (1.9, 30.0, 33.8, 9.0),
    ("three types", "saturn", "sia"): (0.7, 10.9, 14.9, 4.8),
    ("three types", "saturn", "max_sum_throughput_perf"): (2.5, 38.7, 43.0, 12.1),
    ("three types", "newtrace", "sia"): (0.7, 4.6, 52.2, 3.0),
    ("three types", "newtrace", "max_sum_throughput_perf"): (11.3, 98.1, 110.0, 6.4),
    ("three types", "philly", "pollux"): (1.0, 14.9, 24.5, 5.6),
    ("three types", "saturn", "pollux"): (1.0, 15.0, 25.5, 5.9),
    ("three types", "newtrace", "pollux"): (1.5, 10.3, 62.3, 3.4),
    ("T4", "philly", "sia"): (1.9, 18.1, 21.4, 8.4),
    ("T4", "philly", "pollux"): (2.0, 19.3, 21.7, 8.6),
    ("T4", "philly", "shockwave"): (3.6, 32.8, 35.0, 12.5),
    ("T4", "philly", "max_sum_throughput_perf"): (4.3, 37.1, 44.3, 15.3),
    ("T4", "philly", "finish_time_fairness_perf"): (5.4, 44.7, 49.7, 17.2),
}
"""What the paper prints by cluster, workload and policy: average JCT, p99 and makespan in hours, GPU hours of a job.

Themis is finish-time fairness, Gavel total throughput."""

DRAWS = {"philly": 8, "saturn": 10, "newtrace": 10}
"""How many draws of a workload are public."""


def settings_of(cluster: str, policy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the world and of the policy, beside those of the preset.

    Throughput models have the least loss. Sia has the profiles of its paper (sec. 3.2), which its public simulator
    leaves out; Pollux takes types for equal where there are several, and a job has at most the GPUs of the smallest.
    """
    if policy == "sia":
        return {"goodput_fit": "least_loss", "goodput_knowledge": "profiled"}, {}
    if policy != "pollux":
        return {}, {}
    world = {"goodput_fit": "least_loss"}
    if len(CLUSTERS[cluster].gpus) == 1:
        return world, {}
    return world | {"goodput_models": "merged", "goodput_most_gpus": 16}, {"types": "alike"}


def run(
    cluster: str,
    workload: str,
    policy: str,
    number: int,
    trainings: Trainings,
    workloads: Path,
    *,
    progress: Advance | None = None,
    **more: Any,
) -> SimulationResult:
    """One of the runs; `more` are other settings of the world."""
    world, own = settings_of(cluster, policy)
    chosen, gpus = preset("sia").replace(**world, **more), CLUSTERS[cluster]
    trace = read_trace(workloads / workload / f"workload-{number}.csv")
    made = chosen.make_policy(policy, gpus, **own)
    return simulate(trace, gpus, made, trainings, preset=chosen, progress=progress)


def _runs(options: Options) -> Iterator[Made]:
    trainings, workloads = read_trainings(path_of("sia-profiles")), path_of("sia-workloads")
    for key in PRINTED:
        if key[:2] == ("three types", "philly") or not options.quick:
            for number in (1,) if options.quick else range(1, DRAWS[key[1]] + 1):
                yield key, number, partial(run, *key, number, trainings, workloads)


STUDY = headline(
    "Sia: its workloads on 64 GPUs",
    ("GPUs", "workload", "policy"),
    {
        "average JCT, h": Shown("average_jct", unit=3600.0),
        "makespan, h": Shown("makespan", ".1f", 3600.0),
        "GPU hours of a job": Shown("gpu_hours_per_job", ".1f"),
    },
    # a 99th percentile is of the jobs of all draws together
    {key: (average, makespan, gpu_hours) for key, (average, _, makespan, gpu_hours) in PRINTED.items()},
    _runs,
)
