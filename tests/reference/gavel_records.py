"""Single decisions of the original system that were recorded, and the states they were made from (OSDI 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator import ClusterState
from allocator.instance import state_from_json

INSTANCES = (
    "i01_n3_single",
    "i02_n4_multi_prio",
    "i03_n8_single_prio",
    "i05_n12_single",
    "i06_n16_single_prio",
    "i08_n20_multi_prio",
    "i09_n32_multi",
    "i11_n64_multi_prio",
    "i12_n100_multi",
    "i14_n200_multi_prio",
    "i16_n10_single_gpu_same_sf_pairs",
)

WITH_PAIRS = tuple(
    name for name in INSTANCES if name.split("_")[0] in ("i01", "i02", "i03", "i05", "i06", "i08", "i16")
)
"""The small ones, for which the original's packed policies were recorded, its constraints corrected."""


def state_of(record: dict[str, Any], *, pairs: bool = False) -> ClusterState:
    """State with the recorded prices and deadlines; with `pairs` what jobs do on shared GPUs."""
    instance = record["instance"]
    stated = {
        "cluster": instance["cluster"],
        "gpu_prices": instance["instance_costs"],
        "jobs": [job | {"slo_seconds": job["SLO_s_left"]} for job in instance["jobs"]],
    }
    return state_from_json(stated | ({"pairs": instance["pairs"]} if pairs else {}))


def recorded_throughput(recorded: dict[str, Any], state: ClusterState) -> np.ndarray:
    """(N,) steps/s of the recorded decision."""
    return np.array([recorded["effective_throughput"][str(job)] for job in state.throughputs.jobs])
