"""The main comparison of Sia (SOSP 2023, sec. 5) beside runs on the public workloads: table of docs/fidelity.md.

Runs take from under a second (policies of Gavel) to some minutes (Sia, 960 jobs), so their figures are kept in
`RECORDED`. ``python -m tests.reference.sia_headline`` makes those that are not there yet.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from tests.conftest import _data_root
from throughputs import read_trace
from throughputs.goodput.trainings import Trainings, read_trainings

RECORDED = Path(__file__).with_name("sia_headline.csv")
ARCHIVES = ("sia_traces", "sia_workloads")
"""Measured tables and workloads in the public data."""

CLUSTERS = {
    "three types": Cluster({"aws": 24, "dgx-ext": 16, "rtx": 24}, gpus_per_server={"aws": 4, "dgx-ext": 8, "rtx": 8}),
    "T4": Cluster({"aws": 64}, gpus_per_server={"aws": 4}),
}
"""64 GPUs each: T4, A100 and RTX 2080 Ti as the artifact names them, or T4 alone."""

SETTINGS = {"goodput_fit": "least_loss"}
"""In place of those of the preset: throughput models with the least loss."""

FIGURES = ("average", "p99", "makespan", "gpu_hours")
"""Average and 99th percentile of JCT and makespan in hours, and GPU hours of a job."""

PRINTED: dict[tuple[str, str, str], tuple[float, float, float, float]] = {
    ("three types", "philly", "sia"): (0.6, 9.5, 14.2, 4.0),
    ("three types", "philly", "max_sum_throughput_perf"): (1.9, 30.0, 33.8, 9.0),
    ("three types", "saturn", "sia"): (0.7, 10.9, 14.9, 4.8),
    ("three types", "saturn", "max_sum_throughput_perf"): (2.5, 38.7, 43.0, 12.1),
    ("three types", "newtrace", "sia"): (0.7, 4.6, 52.2, 3.0),
    ("three types", "newtrace", "max_sum_throughput_perf"): (11.3, 98.1, 110.0, 6.4),
    ("T4", "philly", "sia"): (1.9, 18.1, 21.4, 8.4),
    ("T4", "philly", "pollux"): (2.0, 19.3, 21.7, 8.6),
    ("T4", "philly", "max_sum_throughput_perf"): (4.3, 37.1, 44.3, 15.3),
    ("T4", "philly", "finish_time_fairness_perf"): (5.4, 44.7, 49.7, 17.2),
}
"""What the paper prints by cluster, workload and policy. Themis is finish-time fairness, Gavel total throughput."""

NAMES = {
    "sia": "`sia`",
    "pollux": "`pollux`",
    "max_sum_throughput_perf": "`max_sum_throughput_perf` (Gavel)",
    "finish_time_fairness_perf": "`finish_time_fairness_perf` (Themis)",
}
WORKLOADS = {"philly": ("Philly", 8), "saturn": ("Helios", 10), "newtrace": ("newTrace", 10)}
"""What the paper calls a workload, and how many draws of it are public."""


def recorded() -> pd.DataFrame:
    """A row for each run: cluster, workload, policy, number of the draw, jobs, restarts of a job, and `FIGURES`."""
    return pd.read_csv(RECORDED)


def table() -> str:
    """The table of the recorded runs: printed / measured, the mean over the draws that were run."""
    rows = recorded()
    lines = [
        "| GPUs | workload | policy | draws | average JCT, h | p99 JCT, h | makespan, h | GPU hours of a job |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (cluster, workload, policy), printed in PRINTED.items():
        runs = runs_of(rows, cluster, workload, policy)
        name, draws = WORKLOADS[workload]
        digits = (2, 1, 1, 1)
        cells = [
            f"{given:.1f} / {mean:.{d}f}"
            for given, mean, d in zip(printed, runs[list(FIGURES)].mean(), digits, strict=True)
        ]
        lines.append(f"| {cluster} | {name} | {NAMES[policy]} | {len(runs)} of {draws} | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_of(rows: pd.DataFrame, cluster: str, workload: str, policy: str) -> pd.DataFrame:
    """Those of one line of the table."""
    return rows[(rows["cluster"] == cluster) & (rows["workload"] == workload) & (rows["policy"] == policy)]


def unpacked(folder: Path) -> tuple[Trainings, Path]:
    """Measured trainings, and the folder of the workloads.

    Raises
    ------
    FileNotFoundError
        The public data is not there (docs/contributing.md).
    """
    for name in ARCHIVES:
        with tarfile.open(_data_root() / f"pollux_sia/{name}.tar.xz") as archive:
            archive.extractall(folder / name, filter="data")
    trainings = read_trainings(next((folder / ARCHIVES[0]).glob("**/cifar10")).parent)
    return trainings, next((folder / ARCHIVES[1]).glob("**/philly")).parent


def run(cluster: str, workload: str, policy: str, number: int, trainings: Trainings, workloads: Path) -> dict[str, Any]:
    """The row of one run, made now."""
    chosen, gpus = preset("sia").replace(**SETTINGS), CLUSTERS[cluster]
    trace = read_trace(workloads / workload / f"workload-{number}.csv")
    asked = get_policy(policy, **chosen.settings_of_policy(policy, gpus))
    result = simulate(trace, gpus, asked, trainings, preset=chosen)
    times = np.sort(result.jobs["jct"].to_numpy())
    return {
        "cluster": cluster,
        "workload": workload,
        "policy": policy,
        "number": number,
        "jobs": len(times),
        "average": float(times.mean()) / 3600.0,
        "p99": float(times[int(0.99 * len(times))]) / 3600.0,
        "makespan": result.makespan / 3600.0,
        "gpu_hours": float(result.jobs["gpu_seconds"].mean()) / 3600.0,
        "restarts": float(result.jobs["preemptions"].mean()),
    }


def missing() -> Iterator[tuple[str, str, str, int]]:
    """Runs that are not recorded, the quickest policies first."""
    there = set(recorded()[["cluster", "workload", "policy", "number"]].itertuples(index=False, name=None))
    for cluster, workload, policy in sorted(PRINTED, key=lambda key: key[2]):
        for number in range(1, WORKLOADS[workload][1] + 1):
            if (cluster, workload, policy, number) not in there:
                yield cluster, workload, policy, number


def keep(rows: pd.DataFrame) -> None:
    """Store the rows, in one order."""
    ordered = rows.sort_values(["cluster", "workload", "policy", "number"])
    ordered.to_csv(RECORDED, index=False, float_format="%.10g", lineterminator="\n")


def main() -> None:
    """Make the runs that are not recorded, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        trainings, workloads = unpacked(Path(folder))
        for key in list(missing()):
            row = run(*key, trainings, workloads)
            keep(pd.concat([recorded(), pd.DataFrame([row])]))
            print(row)


if __name__ == "__main__":
    main()
