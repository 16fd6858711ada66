"""Policies under failures of nodes, by the time between two checkpoints.

Each of 4 nodes of 8 GPUs fails once in two days, or in half a day, on average, and is repaired in two hours.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from allocator.studies.study import Options, Study, side_by_side
from allocator.studies.tables import Shown
from allocator.sweep import Sweep

NEVER = "never"
FAILING: dict[str, Any] = {
    "kind": "static",
    "name": "failures",
    "policies": ["fcfs", "srtf", "tiresias"],
    "jobs": [40],
    "seeds": [0, 1, 2],
    "clusters": [{"gpus": "v100:32", "gpus_per_server": "v100:8"}],
    "cases": [
        {"name": NEVER, "mtbf_hours": "none"},
        {"name": "48 h", "mtbf_hours": 48.0},
        {"name": "12 h", "mtbf_hours": 12.0},
    ],
    "vary": {"checkpoint_seconds": [600.0, 14_400.0]},
    "workload": {"generator": "default", "multi_gpu": True, "mean_interarrival_seconds": 600.0},
}
_SMALL = {"jobs": [10], "seeds": [0, 1], "clusters": [{"gpus": "v100:16", "gpus_per_server": "v100:8"}]}


def _runs(options: Options) -> list[Sweep]:
    return [Sweep.from_dict(FAILING | (_SMALL if options.quick else {}))]


def _once(results: pd.DataFrame) -> pd.DataFrame:
    """Where no node fails checkpoints change nothing, and one row is enough."""
    first = results["checkpoint_seconds"] == results["checkpoint_seconds"].min()
    return results[(results["case"] != NEVER) | first].assign(a_node_fails_every=results["case"])


STUDY = Study(
    "Policies under failures of nodes, by the time between two checkpoints",
    _runs,
    ("policy", "a_node_fails_every", "checkpoint_seconds"),
    {
        "average JCT, h": Shown("average_jct", ".2f", 3600.0),
        "p99 JCT, h": Shown("p99_jct", ".2f", 3600.0),
        "jobs stopped by failures": Shown("failures", ".0f"),
        "GPU hours lost": Shown("lost_gpu_hours", ".0f"),
    },
    derived=_once,
    draw=side_by_side,
)
