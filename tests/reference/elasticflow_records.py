"""Recorded runs of the simulator published with ElasticFlow: how to repeat one, and how each job ended."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocator import Cluster, simulate
from allocator.cluster_spec import read_cluster
from allocator.presets import preset
from allocator.registry import settings_of
from allocator.results.result import SimulationResult
from throughputs import ThroughputTable, Trace, read_table, read_trace

RECORDED: dict[str, dict[str, Any]] = {
    run["run"]: run
    for run in json.loads(gzip.decompress((Path(__file__).parent / "elasticflow_runs.json.gz").read_bytes()))
}
"""Runs of figures 8 to 11 and of five jobs by name: how each was made, and how its jobs ended."""

ACCELERATORS = {"A100": "a100", "T4": "t4"}


NAMES = {
    "ef-accessctrl": "elasticflow",
    "ef": "elasticflow_no_admission",
    "edf": "edf",
    "edf-accessctrl": "edf_admission",
    "dlas-gpu": "tiresias",
    "gandiva": "gandiva_time_slicing",
    "themis": "themis",
}
"""Policies by the names of the published simulator."""


def repetition(
    folder: Path, trace: Path, policy: str, cluster: str, slot_seconds: float, gpu_type: str, **own: object
) -> Callable[[], SimulationResult]:
    """What makes a recorded run anew, all files read.

    Parameters
    ----------
    folder : of the public data of ElasticFlow.
    policy, cluster, gpu_type : as the published simulator names them.
    own : settings of the policy in place of the published ones.
    """
    gpus = read_cluster(folder / "cluster_specs" / f"{cluster}.csv", ACCELERATORS[gpu_type])
    chosen = preset("elasticflow").replace(slot_seconds=float(slot_seconds))
    name = chosen.policy_names.get(policy, policy)
    settings = {"slot_seconds": float(slot_seconds)} | own
    known = settings_of(name)
    made = chosen.make_policy(name, gpus, **{key: value for key, value in settings.items() if key in known})
    table = read_table(folder / f"throughputs_{gpu_type}", accelerator=ACCELERATORS[gpu_type])
    return functools.partial(simulate, read_trace(trace), gpus, made, table, preset=chosen)


def replay(
    policy: str, trace: Trace, table: ThroughputTable, servers: int, per_server: int, slot: float, **settings: object
) -> SimulationResult:
    """The run under the preset "elasticflow", on servers of the one type of the table."""
    (gpu,) = table.accelerators
    cluster = Cluster({gpu: servers * per_server}, {gpu: per_server})
    chosen = preset("elasticflow").replace(slot_seconds=slot)
    made = chosen.make_policy(policy, cluster, **settings)
    return simulate(trace, cluster, made, table, preset=chosen)
