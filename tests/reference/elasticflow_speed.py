"""CPU time of the recorded runs of ElasticFlow's simulator, beside that of the same runs here.

    python -m tests.reference.elasticflow_speed        # measures anew

The published simulator was timed as a process for each run, imports and reading included, to a tenth of a second; five
jobs, which take it no time that could be measured, say what the process itself costs. Here a run is timed as a process
of its own, the command ``allocator simulate``, and in one process for all of them, files read, as in a sweep.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from allocator.cluster_spec import read_cluster
from tests.conftest import _data_root, _reference_root
from tests.reference.elasticflow_records import ACCELERATORS, NAMES, RECORDED, repetition

SPEED = Path(__file__).with_name("elasticflow_speed.csv")
"""A row for each run: run, policy, jobs, and CPU seconds: recorded, of a process here, of the simulation alone here."""

SUMMARY = "elasticflow/results_summary.csv"
ARCHIVE = "elasticflow/traces/elasticflow-traces.tar.gz"

FIVE_JOBS = "cifar5_edf"
"""A run that tells what a process costs: what it simulates takes milliseconds."""

_REPETITIONS = 3
_ENOUGH_SECONDS = 3.0


def table() -> str:
    """The table of what was measured."""
    return markdown(pd.read_csv(SPEED))


def record() -> None:
    """Measure anew, which takes three minutes of CPU time."""
    measured().to_csv(SPEED, index=False, float_format="%.4g", lineterminator="\n")


def measured() -> pd.DataFrame:
    """All recorded runs, made anew."""
    with (_reference_root() / SUMMARY).open() as lines:
        seconds = {row["tag"]: float(row["cpu_s"]) for row in csv.DictReader(lines)}
    folder, rows = _data_root() / "elasticflow", []
    with tempfile.TemporaryDirectory() as made:
        with tarfile.open(_data_root() / ARCHIVE) as archive:
            archive.extractall(made, filter="data")
        five = RECORDED[FIVE_JOBS]
        # compiles all modules, once
        _of_a_process(folder, folder / "traces" / five["trace"], five, Path(made))
        for name, run in RECORDED.items():
            places = (folder / "traces" / run["trace"], Path(made) / run["trace"])
            (trace,) = (place for place in places if place.exists())
            again = repetition(folder, trace, *(run[key] for key in ("policy", "cluster", "slot_seconds", "gpu_type")))
            rows.append({
                "run": name,
                "policy": NAMES[run["policy"]],
                "jobs": len(run["ends"]),
                "recorded": seconds[name],
                "process": _of_a_process(folder, trace, run, Path(made)),
                "simulation": _least_seconds(again),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _least_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of a call, the least of a few: whatever else runs on a machine only adds to them."""
    found: list[float] = []
    while len(found) < _REPETITIONS and sum(found) < _ENOUGH_SECONDS:
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


def _of_a_process(folder: Path, trace: Path, run: dict[str, Any], scratch: Path) -> float:
    """CPU seconds of the command that makes one run, files included; bytecode is there."""
    kind = ACCELERATORS[run["gpu_type"]]
    cluster = read_cluster(folder / "cluster_specs" / f"{run['cluster']}.csv", kind)
    command = [
        *(sys.executable, "-m", "allocator", "simulate", "--preset", "elasticflow", "--policy", NAMES[run["policy"]]),
        *("--trace", str(trace), "--throughputs", str(folder / f"throughputs_{run['gpu_type']}")),
        *("--cluster", f"{kind}:{cluster.gpus[kind]}"),
        *("--gpus-per-server", f"{kind}:{cluster.gpus_per_server[kind]}", "--slot", str(run["slot_seconds"])),
        *("--out", str(scratch / "run")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def once() -> float:
        before = os.times()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return min(once(), once())


def markdown(rows: pd.DataFrame) -> str:
    """A row for each policy and one for all runs: medians, and what all runs together took."""
    heads = (
        *("policy", "runs", "a process, published, s", "here, s", "times as fast"),
        *("the simulation in it, published, s", "here, s", "times as fast", "times as fast, all runs together"),
    )
    costs = process_costs(rows)
    lines = [_line(heads), _line(["---"] * len(heads))]
    for policy in (*NAMES.values(), None):
        of = rows if policy is None else rows[rows["policy"] == policy]
        longer = of[of["recorded"] > costs["recorded"]]
        net = longer["recorded"] - costs["recorded"]
        cells = [
            f"{len(of)}",
            f"{of['recorded'].median():.1f}",
            f"{of['process'].median():.2f}",
            f"{(of['recorded'] / of['process']).median():.1f}",
            f"{net.median():.1f}",
            f"{longer['simulation'].median():.3f}",
            f"{(net / longer['simulation']).median():.1f}",
            f"{net.sum() / longer['simulation'].sum():.1f}",
        ]
        lines.append(_line([f"`{policy}`" if policy else "all", *cells]))
    return "\n".join(lines)


def process_costs(rows: pd.DataFrame) -> dict[str, float]:
    """CPU seconds of a process that has hardly anything to simulate: recorded, and here."""
    five = rows[rows["run"] == FIVE_JOBS].iloc[0]
    return {column: float(five[column]) for column in ("recorded", "process")}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    record()
