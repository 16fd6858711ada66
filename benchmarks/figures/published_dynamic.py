"""Figures of the original system for jobs that change as they train, where they are at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures.published import reference_file

if TYPE_CHECKING:
    import pandas as pd

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
    import pandas as pd

    table = pd.read_csv(path)
    own_name = table["policy_file"] == table["policy_field"]  # other rows have other settings or older code
    rows = table[(table["group"] == "tacc_32gpus") & (table["kind"] == "simulation") & own_name]
    chosen = rows.rename(columns=_COLUMNS | {"policy_field": "policy"}).set_index("policy")[list(_COLUMNS.values())]
    return chosen.assign(unfair_fraction_static=chosen["unfair_fraction_static"] / 100)
