"""Recorded runs of real processes beside simulations of the same jobs, made anew.

`python -m benchmarks.runtime.fidelity --out tests/reference/runtime_runs.json` records; that takes some minutes of real
time, in which the machine should have little else to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.results.result import SimulationResult
from allocator.simulator import simulate
from throughputs import ThroughputTable, Trace

RUNS = Path(__file__).with_name("runtime_runs.json")


@cache
def recorded() -> dict[str, Any]:
    """The recording."""
    found: dict[str, Any] = json.loads(RUNS.read_text())
    return found


def simulated(run: Mapping[str, Any], round_seconds: float) -> SimulationResult:
    """The jobs of a run under its policy, with what a start cost it on average."""
    keys = [(name, gpus) for name, gpus, *_ in run["rates"]]
    table = ThroughputTable(keys, run["accelerators"], [rates for _, _, *rates in run["rates"]])
    job_type, gpus, steps, arrival, _ = zip(*run["jobs"], strict=True)
    costs = {"restart_penalty_seconds": run["restart_seconds"], "restart_when_moved": True, "restart_delays": True}
    # the recorded services had no hysteresis
    settings = preset("default").replace(round_seconds=round_seconds, hysteresis_rounds=0.0, **costs)
    trace, cluster = Trace(job_type, gpus, steps, arrival), Cluster.parse(run["cluster"])
    return simulate(trace, cluster, get_policy(run["policy"]), table, preset=settings)


def errors(run: Mapping[str, Any], round_seconds: float) -> tuple[dict[str, tuple[float, float]], float]:
    """(Real, simulated) of each figure, and the mean absolute relative error of completion times job by job."""
    result = simulated(run, round_seconds)
    summary, real = result.summary(), np.array([job[-1] for job in run["jobs"]])
    figures = {name: (value, summary[name]) for name, value in run["real"].items()}
    return figures, float(np.abs(result.jobs["jct"].to_numpy() / real - 1).mean())


def rows() -> Iterator[str]:
    """Of the table."""
    for run in recorded()["runs"]:
        figures, by_job = errors(run, recorded()["round_seconds"])
        jct, makespan, busy, moves = (
            figures[name] for name in ("average_jct", "makespan", "utilization", "preemptions")
        )
        yield (
            f"| {run['policy']} | {run['cluster']} | {_seconds(jct)} | {_seconds(makespan)} | "
            f"{100 * busy[0]:.1f} / {100 * busy[1]:.1f} % | {moves[0]} / {moves[1]} | {100 * by_job:.1f} % |"
        )


def _seconds(pair: tuple[float, float]) -> str:
    real, other = pair
    return f"{real:.1f} / {other:.1f} s ({100 * (other / real - 1):+.1f} %)"


def table() -> str:
    """Real / simulated by policy."""
    head = "| policy | GPUs | average JCT | makespan | GPUs busy | preemptions | JCT job by job |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows()])
