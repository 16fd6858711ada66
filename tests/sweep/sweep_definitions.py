"""Small sweeps for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sweeps.md"

TINY = "v100:2,p100:2,k80:2"

CONTINUOUS: dict[str, Any] = {
    "kind": "continuous",
    "policies": ["fifo_perf", "isolated"],
    "rates": [0.4, 0.6],
    "seeds": [0, 1],
    "clusters": [TINY],
    "window": [10, 20],
}

STATIC: dict[str, Any] = {
    "kind": "static",
    "policies": ["fifo_perf"],
    "jobs": [5, 8],
    "seeds": [0, 1],
    "clusters": [TINY],
}

# Columns that tell of the machine and the moment, not of the run.
OF_THE_MOMENT = ("policy_seconds", "wall_seconds", "cpu_seconds", "run_seconds", "started_at", "host")


def continuous(**changes: Any) -> dict[str, Any]:
    return CONTINUOUS | changes


def static(**changes: Any) -> dict[str, Any]:
    return STATIC | changes
