"""Small sweeps for the tests, and one run of a point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from allocator.experiments.execute import Outcome, carried_out
from allocator.experiments.run import Materials
from allocator.sweep import Point
from throughputs import Trace

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sweeps.md"

TINY = "v100:2,p100:2,k80:2"

USUAL: dict[str, dict[str, Any]] = {
    "continuous": {"policies": ["fifo_perf", "isolated"], "rates": [0.4, 0.6], "seeds": [0, 1], "window": [10, 20]},
    "static": {"policies": ["fifo_perf"], "jobs": [5, 8], "seeds": [0, 1]},
    "decision": {
        "policies": ["max_min_fairness_perf"],
        "jobs": [4, 9],
        "seeds": [0],
        "workload": {"generator": "gavel", "multi_gpu": True},
    },
    "trace": {"policies": ["fifo"], "seeds": [0], "clusters": ["a100:4"]},
}


def definition(kind: str, **changes: Any) -> dict[str, Any]:
    return {"kind": kind, "clusters": [TINY]} | USUAL[kind] | changes


continuous, static, decision = (partial(definition, kind) for kind in ("continuous", "static", "decision"))

DYNAMIC = {"generator": "shockwave", "multi_gpu": True, "mean_interarrival_seconds": 40}
"""Jobs that change as they train."""

ENTITIES = [
    {"name": "above", "weight": 2},
    {"name": "first", "parent": "above", "jobs": 2},
    {"name": "second", "weight": 3, "policy": "fifo"},
]


def single(point: Point, **options: Any) -> Outcome:
    return carried_out(point, Materials.of([point]), **{"log": lambda _: None, "report": lambda _: None} | options)


def trace_of(point: Point, table: Any) -> Callable[[int], Trace]:
    """The jobs of a point by their number, on these throughputs."""
    return Materials({(point.speeds, point.accelerator): table}, {}).jobs_of(point)


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """Without what tells of the machine and the moment, not of the run."""
    moment = ["policy_seconds", "wall_seconds", "cpu_seconds", "run_seconds", "started_at", "host"]
    return table.drop(columns=moment)


def timeless(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in ("policy_seconds", "wall_seconds")}
