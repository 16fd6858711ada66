"""Figures of parts of a run's jobs: by weight, by size, by user, by partition, by entity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.results.deadlines import deadline_figures
from allocator.results.measures.completion import completion_figures, percentiles_by_group
from formulations import proportional_throughput
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints
from throughputs.files import JsonObject
from throughputs.numerics import quotient

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.entities import Membership
    from allocator.results.record import RunRecord


SIZE_CLASSES = (1, 2, 5, 9, 17)
"""Smallest gang of each size class: one GPU, part of a server of eight, such a server, two, more."""


def priorities_table(jobs: pd.DataFrame, measure: str = "first") -> pd.DataFrame:
    """One row per priority weight, heaviest first, of rows of a run's table of jobs.

    Columns priority_weight, jobs, the `completion_figures` of the jobs, deadline_jobs, deadline_ratio (by the `measure`
    of `deadlines.deadline_figures`); empty where there is nothing to measure.
    """

    def due(group: pd.DataFrame) -> JsonObject:
        found = {"deadline_jobs": 0, "deadline_ratio": None} | deadline_figures(group, measure)
        return {name: found[name] for name in ("deadline_jobs", "deadline_ratio")}

    return _figures_by("priority_weight", jobs, reversed(list(jobs.groupby("priority_weight"))), due)


def _figures_by(
    key: str,
    jobs: pd.DataFrame,
    groups: Iterable[tuple[Any, pd.DataFrame]],
    further: Callable[[pd.DataFrame], JsonObject],
) -> pd.DataFrame:
    """A row for each group of the jobs, with what tells it apart under `key`, its figures and `further` ones."""
    import pandas as pd

    rows = [
        {key: name, "jobs": len(group)} | completion_figures(group) | further(group)
        for name, group in [("", jobs.iloc[:0]), *groups]
    ]
    return pd.DataFrame(rows[1:], columns=list(rows[0]))


def sizes_table(jobs: pd.DataFrame, classes: Sequence[int] = SIZE_CLASSES) -> pd.DataFrame:
    """One row per size class that some of a run's jobs have.

    Columns gpus (text, as in "5-8"), jobs, the `completion_figures` of the jobs and restart_gpu_hours; empty where
    there is nothing to measure.

    Parameters
    ----------
    jobs : rows of `SimulationResult.jobs`.
    classes : smallest number of GPUs of each class, ascending from 1; the last class has no end.

    Raises
    ------
    InputError
        Classes that do not ascend from 1.
    """
    if not classes or classes[0] != 1 or any(one >= other for one, other in pairwise(classes)):
        raise InputError("size classes", found=list(classes), expected="ascending numbers of GPUs that begin with 1")
    names, of = size_names(jobs["scale_factor"].to_numpy(), classes)
    groups = ((name, jobs[of == position]) for position, name in enumerate(names))
    return _figures_by("gpus", jobs, groups, lambda group: {"restart_gpu_hours": restart_gpu_hours(group)})


def size_names(gpus: Ints, classes: Sequence[int] = SIZE_CLASSES) -> tuple[list[str], Ints]:
    """Names of the size classes that some of N jobs are in, as "5-8", and (N,) which of these each is in."""
    names = [str(first) if first == end - 1 else f"{first}-{end - 1}" for first, end in pairwise(classes)]
    names.append(f"{classes[-1]}+")
    some, of = np.unique(np.searchsorted(classes, gpus, side="right") - 1, return_inverse=True)
    return [names[position] for position in some.tolist()], of


def named_parts_table(jobs: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row per user, or partition (virtual cluster), of some of a run's jobs, those with the most GPU time first.

    Columns user or partition (empty: jobs that name none), jobs, completed_jobs, gpu_hours, gpu_share (of the GPU time
    of all these jobs), and of the completed jobs average and percentiles of jct and queueing_time (seconds; without
    GPUs, from arrival on and whenever preempted), average_rho and worst_rho; nan where there is nothing to measure.

    Parameters
    ----------
    jobs : rows of `SimulationResult.jobs`.
    column : that has their names; there may be thousands.
    """
    import pandas as pd

    names, of = np.unique(jobs[column].to_numpy(dtype=np.str_), return_inverse=True)
    n = len(names)
    used = np.bincount(of, jobs["gpu_seconds"].to_numpy(float), n)
    jct, rho = jobs["jct"].to_numpy(float), jobs["rho"].to_numpy(float)
    worst = np.full(n, np.nan)
    np.fmax.at(worst, of, rho)
    columns = {
        column: names,
        "jobs": np.bincount(of, minlength=n),
        "completed_jobs": np.bincount(of[~np.isnan(jct)], minlength=n),
        "gpu_hours": used / 3600.0,
        "gpu_share": used / max(float(used.sum()), 1e-300),
    }
    queueing = np.where(np.isnan(jct), np.nan, jobs["queueing_time"].to_numpy(float))

    def averages(name: str, values: Floats) -> dict[str, Floats]:
        return {f"average_{name}": _means(values, of, n)} | percentiles_by_group(values, of, n, name)

    columns |= averages("jct", jct) | averages("queueing_time", queueing)
    columns |= {"average_rho": _means(rho, of, n), "worst_rho": worst}
    if "bounded_slowdown" in jobs:
        columns |= averages("bounded_slowdown", jobs["bounded_slowdown"].to_numpy(float))
    return pd.DataFrame(columns).iloc[np.argsort(-used, kind="stable")].reset_index(drop=True)


def _means(values: Floats, of: Ints, n: int) -> Floats:
    """(n,) means of the values of each part, without nan; nan where there are none."""
    there = ~np.isnan(values)
    counts = np.bincount(of[there], minlength=n)
    return quotient(np.bincount(of[there], values[there], n), counts, np.nan)


def restart_gpu_hours(jobs: pd.DataFrame) -> float | None:
    """What the starts of the jobs took; None for those of a job log."""
    if len(jobs) and jobs["restart_gpu_seconds"].isna().all():
        return None
    return float(jobs["restart_gpu_seconds"].sum()) / 3600.0


def rows_of(table: pd.DataFrame) -> list[JsonObject]:
    """The rows as JSON has them; None for nan."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def entities_table(jobs: pd.DataFrame, record: RunRecord, membership: Membership) -> pd.DataFrame:
    """One row per entity, parents first, with all that is inside it; the last row, if any, is of jobs outside entities.

    Columns: entity (empty in the last row), parent (empty at the top), weight, policy, jobs, completed_jobs,
    average_jct, median_jct, p99_jct (seconds), average_rho, worst_rho, unfair_fraction, gpu_share (of the busy GPU
    time), throughput_share (of the work done). The work of a job is ``steps_i s_i / p_i``: the GPU seconds its steps
    would have taken under the proportional share, where it makes p_i steps/s with s_i GPUs. Only measured jobs count,
    with a window.
    """
    import pandas as pd

    entities, measured = membership.entities, record.measured
    gpu, work = jobs["gpu_seconds"].to_numpy(dtype=float), _work(record)
    totals = [max(float(values[measured].sum()), 1e-300) for values in (gpu, work)]
    groups: list[tuple[Flags, dict[str, Any]]] = [
        (
            np.isin(membership.of_job, entities.inside(position)),
            {"entity": each.name, "parent": each.parent or "", "weight": each.weight, "policy": each.policy},
        )
        for position, each in enumerate(entities)
    ]
    outside = membership.of_job < 0
    if (outside & measured).any():
        groups.append((outside, {"entity": "", "parent": "", "weight": np.nan, "policy": ""}))
    rows = []
    for inside, about in groups:
        mine = inside & measured
        shares = [float(values[mine].sum()) / total for values, total in zip((gpu, work), totals, strict=True)]
        figures = about | {"jobs": int(mine.sum())} | completion_figures(jobs[mine])
        rows.append(figures | {"gpu_share": shares[0], "throughput_share": shares[1]})
    return pd.DataFrame(rows)


def _work(record: RunRecord) -> Floats:
    """(N,) GPU seconds that the steps done would have taken under the proportional share; 0 if the job cannot run."""
    jobs = record.jobs
    rate = proportional_throughput(jobs.rates, record.cluster.capacity)
    return quotient(jobs.steps_done * jobs.gpus_taken, rate, 0.0)
