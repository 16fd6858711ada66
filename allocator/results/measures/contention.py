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

from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.errors import expect
from throughputs.numerics import quotient

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult


RunAlone = Callable[[str, Ints, Ints], Floats]
"""What an isolated run takes. Given an accelerator type, (K,) positions of jobs in `SimulationResult.jobs` and the (K,)
GPUs of that type that each has to itself all the time: (K,) seconds until it completes, inf or nan where it cannot."""


def average_concurrency(result: SimulationResult, every: float | None = None) -> Floats:
    """(N,) n_avg: jobs in the cluster on the time average over each job's stay, itself included; nan if it stayed.

    Parameters
    ----------
    result : a run.
    every : seconds between the times at which jobs are counted, as simulators do that look once a round; a job is there
        from its arrival to before it leaves. None: always, the exact mean.

    Raises
    ------
    InputError
        `every` is not above 0.
    """
    times, active, weight, arrival, leave = _active(result, every)
    first, last = times.searchsorted(arrival), times.searchsorted(leave)
    seen, stay = (np.append(0.0, np.cumsum(each)) for each in (active * weight, weight))
    seen, stay = seen[last] - seen[first], stay[last] - stay[first]
    # whoever comes and goes at once, or between two looks, is seen by nobody else
    average = quotient(seen, stay, 1.0)
    return np.where(np.isfinite(leave), average, np.nan)


def contention(result: SimulationResult, every: float | None = None) -> tuple[float, float]:
    """Mean and largest number of jobs in the cluster, over the time in which there was any; nan where there never was.

    Parameters as for `average_concurrency`.
    """
    _, active, weight, _, _ = _active(result, every)
    some = (active > 0) & (weight > 0)
    if not some.any():
        return float("nan"), float("nan")
    mean = (active[some] * weight[some]).sum() / weight[some].sum()
    return float(mean), float(active[some].max())


def _active(result: SimulationResult, every: float | None) -> tuple[Floats, ...]:
    """Jobs over time, `active` of them for `weight` seconds, or at so many looks, from each of the `times`; and (N,)
    arrival and departure of each job (seconds; inf for a job that never left).
    """
    if every is not None and not 0 < every < np.inf:
        raise InputError("contention", field="every", found=every, expected="seconds above 0")
    jobs = result.jobs
    done = jobs["completion_time"]
    left = done.fillna(jobs["leave_time"]) if "leave_time" in jobs else done
    leave = left.fillna(np.inf).to_numpy(float)
    arrival = jobs["arrival_time"].to_numpy(float)
    # those that no type can run are not there
    came, went = (np.sort(each[(jobs["status"] != "unserved").to_numpy()]) for each in (arrival, leave))
    times = np.unique(np.concatenate([came, went[np.isfinite(went)]]))
    weight = np.append(np.diff(times), 0.0)[: len(times)]
    if every is not None:
        times = every * np.arange(np.ceil(times.max(initial=0.0) / every) + 1)
        weight = np.ones(len(times))
    active = came.searchsorted(times, "right") - went.searchsorted(times, "right")
    return times, active.astype(float), weight, arrival, leave


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


def isolated_run_rho(result: SimulationResult, run_alone: RunAlone) -> Floats:
    """(N,) completion times over those of `isolated_run_jct`; nan where there is none."""
    rho: Floats = result.jobs["jct"].to_numpy(float) / isolated_run_jct(result, run_alone)
    return rho


def unfair_share(rho: Floats, above: float = 1.0) -> float:
    """Share of the jobs with a rho, nan left out, whose rho is larger than `above`; nan where there is none."""
    known = rho[~np.isnan(rho)]
    return float((known > above).mean()) if known.size else float("nan")


def _asked(run_alone: RunAlone, name: str, jobs: Ints, gpus: Ints) -> Floats:
    seconds = np.asarray(run_alone(name, jobs, gpus), dtype=float)
    expect(seconds.shape == jobs.shape, "run_alone", name, seconds.shape, f"a time for each of {len(jobs)} jobs")
    return seconds
