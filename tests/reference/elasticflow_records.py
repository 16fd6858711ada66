"""Recorded runs of the simulator published with ElasticFlow: how to repeat one, and how each job ended."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from allocator.simulator import SimulationResult
from throughputs import ThroughputTable, Trace

RESULTS = "elasticflow/results_jobs.csv.gz"


def replay(
    policy: str, trace: Trace, table: ThroughputTable, servers: int, per_server: int, slot: float, **settings: object
) -> SimulationResult:
    """The run under the preset "elasticflow", on servers of the one type of the table."""
    (gpu,) = table.accelerators
    cluster = Cluster({gpu: servers * per_server}, {gpu: per_server})
    chosen = preset("elasticflow").replace(slot_seconds=slot)
    made = get_policy(policy, **(chosen.settings_of_policy(policy, cluster) | settings))
    return simulate(trace, cluster, made, table, preset=chosen)


def recorded(path: Path, tag: str) -> pd.DataFrame:
    """One row for each job of a recorded run, in the order of its trace."""
    every = _all_recorded(path)
    return every[every["tag"] == tag].sort_values(["submit", "job_idx"], kind="stable")


@functools.cache
def _all_recorded(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)
