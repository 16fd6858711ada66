"""What each entity got out of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.results.measures.completion import completion_figures
from formulations import proportional_throughput
from throughputs.numerics import quotient

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord


def entities_table(jobs: pd.DataFrame, record: RunRecord) -> pd.DataFrame:
    """One row per entity, parents first, with all that is inside it; the last row, if any, is of jobs outside entities.

    Columns: entity (empty in the last row), parent (empty at the top), weight, policy, jobs, completed_jobs,
    average_jct, median_jct, p99_jct (seconds), average_rho, worst_rho, unfair_fraction, gpu_share (of the busy GPU
    time), throughput_share (of the work done). The work of a job is ``steps_i s_i / p_i``: the GPU seconds its steps
    would have taken under the proportional share, where it makes p_i steps/s with s_i GPUs. Only measured jobs count,
    with a window. Empty for a run without entities.
    """
    import pandas as pd

    known = ["entity", "parent", "weight", "policy", "jobs", *completion_figures(jobs.iloc[:0])]
    columns = [*known, "gpu_share", "throughput_share"]
    membership = record.jobs.membership
    if membership is None:
        return pd.DataFrame(columns=columns)
    entities = membership.entities
    measured = record.measured
    gpu, work = jobs["gpu_seconds"].to_numpy(dtype=np.float64), _work(record)
    totals = [max(float(values[measured].sum()), 1e-300) for values in (gpu, work)]
    rows: list[dict[str, Any]] = []

    def add(inside: NDArray[np.bool_], about: dict[str, Any]) -> None:
        mine = inside & measured
        shares = [float(values[mine].sum()) / total for values, total in zip((gpu, work), totals, strict=True)]
        figures = completion_figures(jobs[mine])
        rows.append(
            about | {"jobs": int(mine.sum())} | figures | {"gpu_share": shares[0], "throughput_share": shares[1]}
        )

    for position, entity in enumerate(entities):
        within = np.isin(membership.of_job, entities.inside(position))
        about = {"parent": entity.parent or "", "weight": entity.weight, "policy": entity.policy}
        add(within, {"entity": entity.name} | about)
    outside = membership.of_job < 0
    if (outside & measured).any():
        add(outside, {"entity": "", "parent": "", "weight": np.nan, "policy": ""})
    return pd.DataFrame(rows, columns=columns)


def _work(record: RunRecord) -> NDArray[np.float64]:
    """(N,) GPU seconds that the steps done would have taken under the proportional share; 0 if the job cannot run."""
    jobs = record.jobs
    rate = proportional_throughput(jobs.rates, record.cluster.capacity)
    return quotient(jobs.steps_done * jobs.gpus_taken, rate, 0.0)
