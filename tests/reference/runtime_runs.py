"""Recorded runs of real processes beside simulations of the same jobs, made anew.

`python -m benchmarks.runtime.fidelity --out tests/reference/runtime_runs.json` records, and `python -m
tests.runtime.ray.fidelity --out tests/reference/ray_runs.json` on Ray; that takes some minutes of real time, in which
the machine should have little else to do.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.results.result import SimulationResult
from allocator.simulator import simulate
from allocator.studies import figures
from throughputs import ThroughputTable, Trace

RUNS, ON_RAY = (Path(__file__).with_name(name) for name in ("runtime_runs.json", "ray_runs.json"))


@cache
def recorded(path: Path = RUNS) -> dict[str, Any]:
    """A recording."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def simulated(run: Mapping[str, Any], settings: Mapping[str, Any]) -> SimulationResult:
    """The jobs of a run under its policy, with what a start cost it on average."""
    keys = [(name, gpus) for name, gpus, *_ in run["rates"]]
    table = ThroughputTable(keys, run["accelerators"], [rates for _, _, *rates in run["rates"]])
    job_type, gpus, steps, arrival, _ = zip(*run["jobs"], strict=True)
    costs = {"restart_penalty_seconds": run["restart_seconds"], "restart_when_moved": True, "restart_delays": True}
    chosen = preset("default").replace(**settings, **costs)
    trace, cluster = Trace(job_type, gpus, steps, arrival), Cluster.parse(run["cluster"], run.get("gpus_per_server"))
    policy = get_policy(run["policy"], **run.get("policy_settings", {}))
    return simulate(trace, cluster, policy, table, preset=chosen)


def errors(run: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[dict[str, tuple[float, float]], float]:
    """(Real, simulated) of each figure, and the mean absolute relative error of completion times job by job."""
    result = simulated(run, settings)
    summary, real = result.summary(), np.array([job[-1] for job in run["jobs"]])
    figures = {name: (value, summary[name]) for name, value in run["real"].items()}
    return figures, float(np.abs(result.jobs["jct"].to_numpy() / real - 1).mean())


def rows() -> Iterator[str]:
    """Of the table."""
    for run in recorded()["runs"]:
        figures, by_job = errors(run, recorded()["settings"])
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


DRAWS = 12


def nearby(run: Mapping[str, Any], settings: Mapping[str, Any]) -> pd.DataFrame:
    """Figures of simulations of nearly the same jobs, which differ in what milliseconds decide in a real run.

    They come up to half a second earlier or later, and have up to 1 % more or fewer steps.
    """
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        moved, more = rng.uniform(-0.5, 0.5, len(run["jobs"])), rng.uniform(0.99, 1.01, len(run["jobs"]))
        jobs = [
            (name, gpus, steps * factor, max(at + by, 0.0), jct)
            for (name, gpus, steps, at, jct), by, factor in zip(run["jobs"], moved, more, strict=True)
        ]
        found.append(simulated({**run, "jobs": sorted(jobs, key=lambda job: job[3])}, settings).summary())
    return pd.DataFrame(found)[list(run["real"])]


@cache
def ray_rows() -> pd.DataFrame:
    """A row for each run on Ray: what a start cost; each figure, and mean and deviation of simulations of it."""
    rows = []
    for run in recorded(ON_RAY)["runs"]:
        others = nearby(run, recorded(ON_RAY)["settings"])
        row = {"policy": run.get("name", run["policy"]), "start": run["restart_seconds"], "status": "completed"}
        for name in ("average_jct", "makespan"):
            row |= {name: run["real"][name], f"{name} simulated": others[name].mean(), f"{name} +-": others[name].std()}
        rows.append(row)
    return pd.DataFrame(rows)


def ray_table() -> str:
    """Real / simulated by policy."""
    head = "| | average JCT, real / simulated | makespan, real / simulated | a start cost |"
    cells = (
        f"| {row['policy']} | {_spread(row, 'average_jct')} | {_spread(row, 'makespan')} | {row['start']:.1f} s |"
        for _, row in ray_rows().iterrows()
    )
    return "\n".join([head, "|---|---|---|---|", *cells])


def _spread(row: Mapping[str, Any], name: str) -> str:
    real, other, width = row[name], row[f"{name} simulated"], row[f"{name} +-"]
    return f"{real:.1f} / {other:.1f} ± {width:.1f} s ({100 * (other / real - 1):+.1f} %)"


def ray_picture() -> str:
    """The same as bars, simulations as hollow marks."""
    import matplotlib

    rows, file = ray_rows(), io.StringIO()
    with matplotlib.rc_context():
        figures.use_style()
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ray"})
        figure, axes = figures.panels(2, width=4.6, height=2.4)
        for panel, name in zip(axes, ("average_jct", "makespan"), strict=True):
            other = rows.set_index("policy")[f"{name} simulated"].to_dict()
            figures.bars(panel, rows, value=name, digits=0, names=panel is axes[0], published=other)
            panel.set_title(f"{name.replace('_jct', ' JCT')}, s: bars real, marks simulated", fontsize=9)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
