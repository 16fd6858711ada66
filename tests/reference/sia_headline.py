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

from allocator.published import sia_headline as of_sia
from allocator.published.pollux.trainings import read_trainings
from allocator.published.sia_headline import CLUSTERS as CLUSTERS
from allocator.published.sia_headline import DRAWS, PRINTED
from tests.conftest import _data_root
from throughputs.goodput.trainings import Trainings

RECORDED = Path(__file__).with_name("sia_headline.csv")
ARCHIVES = ("sia_traces", "sia_workloads")
"""Measured tables and workloads in the public data."""

FIGURES = ("average", "p99", "makespan", "gpu_hours")
"""Average and 99th percentile of JCT and makespan in hours, and GPU hours of a job."""

NAMES = {
    "sia": "`sia`",
    "pollux": "`pollux`",
    "shockwave": "`shockwave`",
    "max_sum_throughput_perf": "`max_sum_throughput_perf` (Gavel)",
    "finish_time_fairness_perf": "`finish_time_fairness_perf` (Themis)",
}
WORKLOADS = {"philly": "Philly", "saturn": "Helios", "newtrace": "newTrace"}
"""What the paper calls a workload."""


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
        name, draws = WORKLOADS[workload], DRAWS[workload]
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
    result = of_sia.run(cluster, workload, policy, number, trainings, workloads, **more)
    times = np.sort(result.jobs["jct"].to_numpy())
    longest = times[-1 - len(times) * DRAWS[workload] // 100 :]
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
        for number in range(1, DRAWS[workload] + 1):
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
