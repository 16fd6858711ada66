"""Figures of the original systems to compare with: what was printed, and what was recorded, where it is at hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from allocator.published.elasticflow.headline import RATIOS, TESTBED

_PUBLISHED = "gavel/published_mean_jct_by_rate.csv"
_RECORDED_TIMES = "gavel/policy_runtime_scaling.csv"


def published_curves(trace: str, policies: Iterable[str]) -> pd.DataFrame | None:
    """The mean completion times that the paper's notebooks print: seed 0, jobs 4000 to 4999, 36 GPUs of each type.

    Parameters
    ----------
    trace : "single" or "multi", for jobs of one GPU and gangs.
    policies : names.

    Returns
    -------
    pandas.DataFrame or None
        Columns policy, jobs_per_hour and value, hours. None without the file, which the folder that the variable
        ALLOCATOR_REFERENCE names may hold: ``gavel/published_mean_jct_by_rate.csv``.
    """
    path = reference_file(_PUBLISHED)
    if path is None:
        return None
    table = pd.read_csv(path)
    wanted = (
        (table["trace"] == trace)
        & table["policy"].isin(list(policies))
        & table["meaning"].str.startswith("mean JCT hours")
    )
    chosen = table[wanted].rename(columns={"input_job_rate_per_hr": "jobs_per_hour"})
    columns = ["policy", "jobs_per_hour", "value"]
    return chosen[columns].drop_duplicates(["policy", "jobs_per_hour"]).reset_index(drop=True)


def recorded_decision_times() -> pd.DataFrame | None:
    """Seconds of wall time that the original system took for a decision with ECOS, recorded from its public code.

    Single-GPU jobs, a quarter as many GPUs of each of three types, a loaded machine.

    Returns
    -------
    pandas.DataFrame or None
        Columns policy, jobs (ascending for each policy) and seconds. None without the file
        ``gavel/policy_runtime_scaling.csv`` in the folder that the variable ALLOCATOR_REFERENCE names.
    """
    path = reference_file(_RECORDED_TIMES)
    if path is None:
        return None
    table = pd.read_csv(path)
    chosen = table[(table["solver"] == "ECOS") & ~table["multi_gpu_and_prio"] & table["wall_s"].notna()]
    chosen = chosen.rename(columns={"n": "jobs", "wall_s": "seconds"})[["policy", "jobs", "seconds"]]
    return chosen.sort_values(["policy", "jobs"]).reset_index(drop=True)


def reference_file(relative: str) -> Path | None:
    """A file of the folder that the variable ALLOCATOR_REFERENCE names; None if there is none."""
    folder = os.environ.get("ALLOCATOR_REFERENCE")
    path = Path(folder) / relative if folder else None
    return path if path is not None and path.exists() else None


_SUMMARY = "shockwave/published/summary.csv"
_COLUMNS = {
    "makespan": "makespan",
    "avg_jct": "average_jct",
    "worst_rho": "worst_rho_static",
    "unfair_pct_gt1_05": "unfair_fraction_static",
}


def published_comparison() -> pd.DataFrame | None:
    """What the artifact of Zheng et al., NSDI 2023, recorded in simulation: 120 jobs, 32 GPUs, seven policies.

    Its jobs come from its own throughput table, ``tacc_throughputs.json``.

    Returns
    -------
    pandas.DataFrame or None
        Indexed by policy, with columns makespan and average_jct (seconds), worst_rho_static and
        unfair_fraction_static (rho above 1.05). None without the file ``shockwave/published/summary.csv`` in the folder
        that the variable ALLOCATOR_REFERENCE names.
    """
    path = reference_file(_SUMMARY)
    if path is None:
        return None
    table = pd.read_csv(path)
    own_name = table["policy_file"] == table["policy_field"]  # other rows have other settings or older code
    rows = table[(table["group"] == "tacc_32gpus") & (table["kind"] == "simulation") & own_name]
    chosen = rows.rename(columns=_COLUMNS | {"policy_field": "policy"}).set_index("policy")[list(_COLUMNS.values())]
    return chosen.assign(unfair_fraction_static=chosen["unfair_fraction_static"] / 100)


TESTBED_RATIOS: Mapping[str, float] = RATIOS[TESTBED]
"""Figure 6b of ElasticFlow: 195 jobs on a testbed of 16 servers of 8 A100."""

CLUSTER_RATIOS: Mapping[str, Mapping[str, float]] = {name: row for name, row in RATIOS.items() if name != TESTBED}
"""Figure 8b, simulated: the traces of ten clusters, by the names of their files."""
