"""Contention and isolated runs after the fact, as studies of goodput schedulers measure them.

A job saw n_avg jobs in the cluster, itself included, on the time average from its arrival to its completion. Its
*isolated* completion time is that of a run alone on ``G_m / n_avg`` of the G_m GPUs of each type m, averaged over the
types with weights G_m; rho is the completion time over it, and a job with rho > 1 was treated unfairly (Jayaram
Subramanya et al., Sia, SOSP 2023, and its artifact; finish-time fairness is from Mahajan et al., Themis, NSDI 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats, Ints
from throughputs.errors import expect
from throughputs.numerics import quotient

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult


RunAlone = Callable[[str, Ints, Ints], Floats]
"""What an isolated run takes. Given an accelerator type, (K,) positions of jobs in `SimulationResult.jobs` and the (K,)
GPUs of that type that each has to itself all the time: (K,) seconds until it completes, inf or nan where it cannot."""


def average_concurrency(result: SimulationResult) -> Floats:
    """(N,) n_avg: jobs in the cluster on the time average over each job's stay, itself included; nan if it stayed."""
    jobs = result.jobs
    done = jobs["completion_time"]
    left = done.fillna(jobs["leave_time"]) if "leave_time" in jobs else done
    leave, arrival = left.fillna(np.inf).to_numpy(float), jobs["arrival_time"].to_numpy(float)
    # those that no type can run are not there
    came, went = (np.sort(each[(jobs["status"] != "unserved").to_numpy()]) for each in (arrival, leave))
    times = np.unique(np.concatenate([came, went[np.isfinite(went)]]))
    seconds = np.append(np.diff(times), 0.0)[: len(times)]
    active = came.searchsorted(times, "right") - went.searchsorted(times, "right")
    first, last = times.searchsorted(arrival), times.searchsorted(leave)
    seen, stay = (np.append(0.0, np.cumsum(each)) for each in (active * seconds, seconds))
    seen, stay = seen[last] - seen[first], stay[last] - stay[first]
    # whoever comes and goes at once is seen by nobody else
    return np.where(np.isfinite(leave), quotient(seen, stay, 1.0), np.nan)


def isolated_run_jct(result: SimulationResult, run_alone: RunAlone) -> Floats:
    """(N,) seconds each job would have taken alone on its share of each type, averaged over types by their GPUs.

    With k = G_m / n_avg GPUs of type m: between floor(k) and ceil(k) GPUs on the line between their two times, and for
    k < 1 the time on one GPU over k. Types on which the job cannot run do not count; nan where there is no other, or
    the job did not complete.

    Parameters
    ----------
    result : a run.
    run_alone : how long a job takes by itself.

    Raises
    ------
    InputError
        `run_alone` returns another number of times than it was asked for.
    """
    completed = result.jobs["jct"].notna().to_numpy()
    concurrency = average_concurrency(result)
    known = np.flatnonzero(completed & ~np.isnan(concurrency))
    total, weights = np.zeros(len(known)), np.zeros(len(known))
    for name, gpus in result.cluster.gpus.items():
        share = gpus / concurrency[known]
        below, above = (np.maximum(side(share), 1).astype(np.int64) for side in (np.floor, np.ceil))
        low, high = (_asked(run_alone, name, known, count) for count in (below, above))
        between = np.where(above > below, share - below, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            seconds = (low + (high - low) * between) / np.minimum(share, 1.0)
        able = np.isfinite(seconds)
        total[able] += gpus * seconds[able]
        weights[able] += gpus
    isolated = np.full(len(concurrency), np.nan)
    isolated[known] = quotient(total, weights, np.nan)
    return isolated


def _asked(run_alone: RunAlone, name: str, jobs: Ints, gpus: Ints) -> Floats:
    seconds = np.asarray(run_alone(name, jobs, gpus), dtype=float)
    expect(seconds.shape == jobs.shape, "run_alone", name, seconds.shape, f"a time for each of {len(jobs)} jobs")
    return seconds
