"""The short way in: one call from a table of throughputs to an allocation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.allocation import Allocation
from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Policy
from allocator.registry import get_policy
from throughputs import InputError, ThroughputMatrix

if TYPE_CHECKING:
    import pandas as pd

    from throughputs import ThroughputTable

__all__ = ["load_throughputs", "solve"]


def solve(
    policy: str | Policy,
    throughputs: ThroughputMatrix | pd.DataFrame,
    cluster: Cluster | str,
    *,
    jobs: pd.DataFrame | None = None,
    **settings: Any,
) -> Allocation:
    """One decision: shares of time for every job on every accelerator type.

    Parameters
    ----------
    policy : name of a policy (with its `settings`), or a policy.
    throughputs : (N, M) steps/s, one row per job and one column per accelerator type; a column ``scale_factor``
        gives the GPUs of each gang.
    cluster : the cluster, or text such as ``"v100:4,k80:8"``.
    jobs : what else the policy may read, by job label: priority_weight, steps_remaining, elapsed_seconds,
        isolated_seconds. What is missing takes its default.

    Raises
    ------
    InputError
        Names of types or jobs that do not match, or values that cannot be used.
    """
    cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    matrix = throughputs if isinstance(throughputs, ThroughputMatrix) else ThroughputMatrix.from_frame(throughputs)
    if isinstance(policy, str):
        policy = get_policy(policy, **settings)
    elif settings:
        raise InputError(
            "solve",
            field=", ".join(settings),
            found="settings beside a policy object",
            expected="a policy by name",
        )
    return policy.allocate(ClusterState(cluster, _in_cluster_order(matrix, cluster), **_job_columns(jobs, matrix)))


def load_throughputs(source: str | Path | None = None) -> ThroughputTable:
    """The throughput table in a file (public JSON, tidy CSV or Parquet), or the embedded one."""
    from throughputs import default_table, read_table

    return default_table() if source is None else read_table(source)


def _in_cluster_order(matrix: ThroughputMatrix, cluster: Cluster) -> ThroughputMatrix:
    if matrix.accelerators == cluster.accelerators:
        return matrix
    missing = [name for name in cluster.accelerators if name not in matrix.accelerators]
    if missing:
        raise InputError(
            "throughputs",
            field="accelerators",
            found=matrix.accelerators,
            expected=f"also a column {missing[0]!r}, as in the cluster",
        )
    columns = [matrix.accelerators.index(name) for name in cluster.accelerators]
    return ThroughputMatrix(
        matrix.rates[:, columns], matrix.jobs, cluster.accelerators, matrix.scale_factors, matrix.unit
    )


_COLUMNS = {"priority_weight": "priority_weights", "steps_remaining": "steps_remaining",
            "elapsed_seconds": "elapsed_seconds", "isolated_seconds": "isolated_seconds"}  # fmt: skip


def _job_columns(jobs: pd.DataFrame | None, matrix: ThroughputMatrix) -> dict[str, Any]:
    if jobs is None:
        return {}
    unknown = [str(column) for column in jobs.columns if column not in _COLUMNS]
    if unknown:
        raise InputError("jobs", field=unknown[0], found="an unknown column", expected=f"some of {', '.join(_COLUMNS)}")
    absent = [job for job in matrix.jobs if job not in jobs.index]
    if absent:
        raise InputError(
            "jobs",
            field="index",
            found=f"no row {absent[0]!r}",
            expected="a row for every job of the throughputs",
        )
    ordered = jobs.loc[list(matrix.jobs)]
    return {_COLUMNS[str(column)]: ordered[column].to_numpy(dtype=np.float64) for column in jobs.columns}
