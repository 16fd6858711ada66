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

from allocator import Cluster, simulate
from allocator.presets import preset
from allocator.published.pollux.trainings import read_trainings
from tests.conftest import _data_root
from throughputs import read_trace
from throughputs.goodput.trainings import Trainings

RECORDED = Path(__file__).with_name("sia_headline.csv")
ARCHIVES = ("sia_traces", "sia_workloads")
"""Measured tables and workloads in the public data."""

CLUSTERS = {
    "three types": Cluster({"aws": 24, "dgx-ext": 16, "rtx": 24}, gpus_per_server={"aws": 4, "dgx-ext": 8, "rtx": 8}),
    "T4": Cluster({"aws": 64}, gpus_per_server={"aws": 4}),
}
"""64 GPUs each: T4, A100 and RTX 2080 Ti as the artifact names them, or T4 alone."""

FIGURES = ("average", "p99", "makespan", "gpu_hours")
"""Average and 99th percentile of JCT and makespan in hours, and GPU hours of a job."""

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
"""What the paper prints by cluster, workload and policy. Themis is finish-time fairness, Gavel total throughput."""

NAMES = {
    "sia": "`sia`",
    "pollux": "`pollux`",
    "shockwave": "`shockwave`",
    "max_sum_throughput_perf": "`max_sum_throughput_perf` (Gavel)",
    "finish_time_fairness_perf": "`finish_time_fairness_perf` (Themis)",
}
WORKLOADS = {"philly": ("Philly", 8), "saturn": ("Helios", 10), "newtrace": ("newTrace", 10)}
"""What the paper calls a workload, and how many draws of it are public."""


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


def recorded() -> pd.DataFrame:
    """A row for each run: cluster, workload, policy, number of the draw, jobs, restarts of a job, `FIGURES`, and JCTs.

    These are the longest of the run, in seconds: as many as may be among the longest hundredth of all draws.
    """
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
        means = runs[list(FIGURES)].mean()
        means["p99"] = p99_of_all(runs)
        cells = [f"{given:.1f} / {mean:.{d}f}" for given, mean, d in zip(printed, means, digits, strict=True)]
        lines.append(f"| {cluster} | {name} | {NAMES[policy]} | {len(runs)} of {draws} | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_of(rows: pd.DataFrame, cluster: str, workload: str, policy: str) -> pd.DataFrame:
    """Those of one line of the table."""
    return rows[(rows["cluster"] == cluster) & (rows["workload"] == workload) & (rows["policy"] == policy)]


def p99_of_all(runs: pd.DataFrame) -> float:
    """99th percentile of JCT over the jobs of all these runs, h, as the artifact takes it."""
    total = int(runs["jobs"].sum())
    longest = np.sort(np.concatenate([np.array(text.split(), dtype=np.float64) for text in runs["longest"]]))
    return float(longest[len(longest) - total + int(0.99 * total)]) / 3600.0


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
    return trainings_in(folder), workloads_in(folder)


def trainings_in(folder: Path) -> Trainings:
    """The measured trainings of the unpacked archives."""
    return read_trainings(next((folder / ARCHIVES[0]).glob("**/cifar10")).parent)


def workloads_in(folder: Path) -> Path:
    """The workloads of the unpacked archives."""
    return next((folder / ARCHIVES[1]).glob("**/philly")).parent


def run(
    cluster: str, workload: str, policy: str, number: int, trainings: Trainings, workloads: Path, **more: Any
) -> dict[str, Any]:
    """The row of one run, made now; `more` are other settings of the world."""
    world, own = settings_of(cluster, policy)
    chosen, gpus = preset("sia").replace(**world, **more), CLUSTERS[cluster]
    trace = read_trace(workloads / workload / f"workload-{number}.csv")
    asked = chosen.make_policy(policy, gpus, **own)
    result = simulate(trace, gpus, asked, trainings, preset=chosen)
    times = np.sort(result.jobs["jct"].to_numpy())
    longest = times[-1 - len(times) * WORKLOADS[workload][1] // 100 :]
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
        "longest": " ".join(f"{seconds:.0f}" for seconds in longest),
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
