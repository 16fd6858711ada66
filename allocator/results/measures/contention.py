"""Contention and isolated runs after the fact, as studies of goodput schedulers measure them.

A job saw n_avg jobs in the cluster, itself included, on the time average from its arrival to its completion. Its
*isolated* completion time is that of a run alone on ``G_m / n_avg`` of the G_m GPUs of each type m, averaged over the
types with weights G_m; rho is the completion time over it, and a job with rho > 1 was treated unfairly (Jayaram
Subramanya et al., Sia, SOSP 2023, and its artifact; finish-time fairness is from Mahajan et al., Themis, NSDI 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs import InputError

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

RunAlone = Callable[[str, _Ints, _Ints], _Floats]
"""What an isolated run takes. Given an accelerator type, (K,) positions of jobs in `SimulationResult.jobs` and the (K,)
GPUs of that type that each has to itself all the time: (K,) seconds until it completes, inf or nan where it cannot."""


def average_concurrency(result: SimulationResult, every: float | None = None) -> _Floats:
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
    arrival, leave, there = _stays(result)
    passed = _Passed.of(arrival[there], leave[there], every)
    seen, stay = passed.between(arrival, leave)
    average = np.divide(seen, stay, out=np.full(len(arrival), np.nan), where=stay > 0)
    # whoever comes and goes at once, or between two looks, is seen by nobody else
    average[(stay <= 0) & np.isfinite(leave)] = 1.0
    return np.where(np.isfinite(leave), average, np.nan)


def contention(result: SimulationResult, every: float | None = None) -> tuple[float, float]:
    """Mean and largest number of jobs in the cluster, over the time in which there was any; nan where there never was.

    Parameters as for `average_concurrency`.
    """
    arrival, leave, there = _stays(result)
    return _Passed.of(arrival[there], leave[there], every).mean_and_most()


@dataclass(frozen=True, eq=False)
class _Passed:
    """The number of jobs over time: `active` jobs for `weight` seconds, or at so many looks, from each of the times."""

    times: _Floats
    active: _Floats
    weight: _Floats

    @classmethod
    def of(cls, arrival: _Floats, leave: _Floats, every: float | None) -> _Passed:
        if every is not None and not 0 < every < np.inf:
            raise InputError("contention", field="every", found=every, expected="seconds above 0")
        times = np.unique(np.concatenate([arrival, leave[np.isfinite(leave)]]))
        if every is None:
            return cls(times, _present(times, arrival, leave), np.append(np.diff(times), 0.0)[: len(times)])
        looks = every * np.arange(np.ceil(times.max(initial=0.0) / every) + 1)
        return cls(looks, _present(looks, arrival, leave), np.ones(len(looks)))

    def between(self, start: _Floats, end: _Floats) -> tuple[_Floats, _Floats]:
        """What was seen from `start` to before `end`: sums of jobs times weight, and of weight."""
        first, last = (self.times.searchsorted(np.where(np.isfinite(t), t, np.inf)) for t in (start, end))
        sums = (np.append(0.0, np.cumsum(each)) for each in (self.active * self.weight, self.weight))
        seen, weight = (total[last] - total[first] for total in sums)
        return seen, weight

    def mean_and_most(self) -> tuple[float, float]:
        """Over the times at which somebody was there."""
        some = (self.active > 0) & (self.weight > 0)
        if not some.any():
            return float("nan"), float("nan")
        mean = (self.active[some] * self.weight[some]).sum() / self.weight[some].sum()
        return float(mean), float(self.active[some].max())


def _present(times: _Floats, arrival: _Floats, leave: _Floats) -> _Floats:
    """Jobs that have arrived at each of the times and not left."""
    came, went = (np.sort(each).searchsorted(times, "right") for each in (arrival, leave))
    return (came - went).astype(np.float64)


def _stays(result: SimulationResult) -> tuple[_Floats, _Floats, NDArray[np.bool_]]:
    """(N,) arrival and departure (seconds; inf for a job that never left), and whether the job could run at all."""
    jobs = result.jobs
    leave = jobs["completion_time"].to_numpy(np.float64)
    if "leave_time" in jobs:
        leave = np.where(np.isnan(leave), jobs["leave_time"].to_numpy(np.float64), leave)
    there = jobs["status"].astype(str).to_numpy() != "unserved"
    return jobs["arrival_time"].to_numpy(np.float64), np.where(np.isnan(leave), np.inf, leave), there


def isolated_run_jct(result: SimulationResult, run_alone: RunAlone) -> _Floats:
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
    concurrency = np.where(np.isnan(result.jobs["jct"].to_numpy(np.float64)), np.nan, average_concurrency(result))
    known = np.flatnonzero(~np.isnan(concurrency))
    total, weights = np.zeros(len(known)), np.zeros(len(known))
    for name, gpus in result.cluster.gpus.items():
        if not gpus:
            continue
        share = gpus / concurrency[known]
        below = np.maximum(np.floor(share), 1).astype(np.int64)
        above = np.maximum(np.ceil(share), 1).astype(np.int64)
        low, high = (_asked(run_alone, name, known, count) for count in (below, above))
        between = np.where(above > below, share - below, 0.0)
        with np.errstate(invalid="ignore"):
            seconds = (low + (high - low) * between) / np.minimum(share, 1.0)
        able = np.isfinite(seconds)
        total[able] += gpus * seconds[able]
        weights[able] += gpus
    isolated = np.full(len(concurrency), np.nan)
    np.divide(total, weights, out=total, where=weights > 0)
    isolated[known] = np.where(weights > 0, total, np.nan)
    return isolated


def isolated_run_rho(result: SimulationResult, run_alone: RunAlone) -> _Floats:
    """(N,) completion times over those of `isolated_run_jct`; nan where there is none."""
    rho: _Floats = result.jobs["jct"].to_numpy(np.float64) / isolated_run_jct(result, run_alone)
    return rho


def unfair_share(rho: _Floats, above: float = 1.0) -> float:
    """Share of the jobs with a rho, nan left out, whose rho is larger than `above`; nan where there is none."""
    known = rho[~np.isnan(rho)]
    return float((known > above).mean()) if known.size else float("nan")


def _asked(run_alone: RunAlone, name: str, jobs: _Ints, gpus: _Ints) -> _Floats:
    seconds = np.asarray(run_alone(name, jobs, gpus), dtype=np.float64)
    if seconds.shape != jobs.shape:
        raise InputError("run_alone", field=name, found=seconds.shape, expected=f"a time for each of {len(jobs)} jobs")
    return seconds
