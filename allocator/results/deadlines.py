"""Deadlines (service level objectives): drawn for a trace, and kept or missed.

A job's SLO is a multiple of its duration: it is due `slo` durations after its arrival. A job with a deadline on the
clock is due then; one with several is worth less by each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs import Trace
from throughputs.errors import expect
from throughputs.files import JsonObject
from throughputs.numerics import quotient
from throughputs.traces.drawing import probabilities

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.record import RunRecord

PUBLISHED_SLOS: Mapping[float, float] = MappingProxyType({1.2: 0.33, 2.0: 0.34, 10.0: 0.33})
"""Probability of each multiple of the duration in the workload with SLOs of Narayanan et al., OSDI 2020."""


def assign_slos(trace: Trace, rng: np.random.Generator, slos: Mapping[float, float] = PUBLISHED_SLOS) -> Trace:
    """The same jobs, each with an SLO drawn from `slos`; jobs that have one, or a deadline, keep it.

    One number is drawn for every job, whether or not it is needed, so that jobs draw alike whoever has an SLO already.

    Parameters
    ----------
    trace : the jobs.
    rng : the generator to draw with.
    slos : probability of each multiple of the duration; nan as a multiple stands for no deadline.

    Raises
    ------
    InputError
        Probabilities that are negative or do not add up to 1, or a multiple that is not positive.
    """
    factors, shares = np.array(list(slos), dtype=float), probabilities(slos, trace.source, "slos")
    good = (np.isnan(factors) | ((factors > 0) & np.isfinite(factors))).all()
    expect(good, trace.source, "slos", dict(slos), "positive multiples of the duration")
    drawn = factors[rng.choice(len(factors), size=len(trace), p=shares)]
    return replace(trace, slo=np.where(np.isnan(trace.slo) & np.isnan(trace.deadline), drawn, trace.slo))


def deadline_columns(record: RunRecord) -> dict[str, Any]:
    """What the table of jobs says of deadlines; nothing where no job has one.

    deadline (the first, seconds on the clock) and met (whether it was kept); where jobs have several deadlines also
    last_deadline and value_kept, the value of the deadline that was kept over that of the first.
    """
    jobs = record.jobs
    if np.isnan(jobs.deadline).all():
        return {}
    ended = record.judged_time
    met = (ended <= jobs.deadline).astype(object)
    met[np.isnan(jobs.deadline)] = None
    columns: dict[str, Any] = {"deadline": jobs.deadline, "met": met}
    options = jobs.deadline_options
    if np.diff(options.offsets).max(initial=0) > 1:
        last = np.full(len(jobs), np.nan)
        last[options.job] = options.seconds
        kept = quotient(options.value_at(ended), options.best_value, np.nan)
        columns |= {"last_deadline": last, "value_kept": kept}
    return columns


def deadline_figures(jobs: pd.DataFrame, measure: str = "first") -> JsonObject:
    """Figures of the deadlines of a table of jobs, ready for JSON; nothing where the table has none.

    - deadline_jobs: jobs with a deadline; admitted and rejected (not admitted by the policy) make up all of them.
    - met, late: those that were in time, and those that completed and were not.
    - deadline_ratio: the share of jobs with a deadline that were in time (the deadline satisfactory ratio).
    - value_miss_rate: 1 less the average share of the first deadline's value that was kept.
    - best_effort_jobs, best_effort_average_jct (seconds): of the jobs without a deadline.
    - wasted_gpu_hours: spent on jobs with a deadline that were not in time.

    In time means by the first deadline, or with `measure` "last" or "value" by any; the ratio is then a share of jobs,
    or with "value" of value. A job that did not complete is in time for nothing.
    """
    if "deadline" not in jobs:
        return {}
    due = jobs["deadline"].notna().to_numpy()
    first = jobs["met"].to_numpy() == True  # noqa: E712 - None for best effort
    kept = np.nan_to_num(jobs["value_kept"].to_numpy(dtype=float)) if "value_kept" in jobs else first.astype(float)
    status, jct = jobs["status"].astype(str).to_numpy(), jobs["jct"].to_numpy(dtype=float)
    in_time = first if measure == "first" else kept > 0
    count, rejected = int(due.sum()), int((due & (status == "rejected")).sum())
    worth = kept if measure == "value" else in_time
    free = jct[~due & ~np.isnan(jct)]
    wasted = jobs["gpu_seconds"].to_numpy(dtype=float)[due & ~in_time]
    return {
        "deadline_jobs": count,
        "deadline_ratio": float(worth[due].sum()) / count if count else None,
        "value_miss_rate": 1.0 - float(kept[due].sum()) / count if count else None,
        "admitted": count - rejected,
        "rejected": rejected,
        "met": int((due & in_time).sum()),
        "late": int((due & ~in_time & ~np.isnan(jct) & (status != "cut_off")).sum()),
        "best_effort_jobs": int((~due).sum()),
        "best_effort_average_jct": float(free.mean()) if len(free) else None,
        "wasted_gpu_hours": float(wasted.sum()) / 3600.0,
    }
