"""Finish-time fairness after the fact: how long each job would have needed with a fair share of its own.

Several yardsticks are in use. `isolated_jct` follows the number of jobs in the cluster from moment to moment. The two
of Shockwave (NSDI'23, artifact) stretch the time a job needs by itself by one figure of contention: jobs per GPU of the
whole trace (`static_contention`), or of the rounds of the job (`round_contention`). `compare`
divides by the completion times of a run in which every job has its fair share, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from throughputs.arrays import Flags, Floats, Ints, Values
from throughputs.numerics import matmul


def isolated_jct(
    arrival_time: Floats,
    leave_time: Floats,
    total_steps: Floats,
    gpus: Values,
    rates: Floats,
    capacity: Ints,
    allowed: Flags | None = None,
) -> Floats:
    """Time from arrival that each of N jobs needs if it always gets the isolated share.

    With n(t) jobs in the cluster (this run's own, those with arrival_time <= t < leave_time, at least 1), a job has 1/n
    of every type and goes at

        q_i(n) = sum_j c_j T_ij / max(n s_i, sum_j c_j)    steps/s

    (Themis, NSDI'20, sec. 3; Gavel, OSDI'20, sec. 4.2). The job itself may stay longer here than in the run.

    A job that may use some types only, as those of a virtual cluster, divides these and no others: sums are over them,
    and n counts the jobs that may use them. Of a job that may use other types as well it counts the part that its GPUs
    here are of all that it may use; n is at least 1.

    Parameters
    ----------
    arrival_time, leave_time : (N,) seconds; leave_time inf for a job that never left.
    total_steps : (N,).
    gpus : (N,) s_i, GPUs that the job takes: its gang, or its fraction of one.
    rates : (N, M) T_ij, steps/s.
    capacity : (M,) c_j, GPUs.
    allowed : (N, M) which types each job may use; all of them if omitted.

    Returns
    -------
    (N,) seconds; inf where no type can run the job.
    """
    with np.errstate(divide="ignore"):
        work = total_steps / matmul(rates, capacity)
    result = np.full(len(arrival_time), np.inf)
    for members, counted, total in _divided(len(arrival_time), capacity, allowed):
        there = counted > 0
        times, active = _active_jobs(arrival_time[there], leave_time[there], counted[there])
        for size in np.unique(gpus[members]).tolist():
            speed = 1.0 / np.maximum(active * size, total)
            done = np.concatenate([[0.0], np.cumsum(np.diff(times) * speed[:-1])])
            mine = np.flatnonzero(members & (gpus == size) & np.isfinite(work))
            target = np.interp(arrival_time[mine], times, done) + work[mine]
            finish = np.interp(target, done, times)
            beyond = target > done[-1]
            finish[beyond] = times[-1] + (target[beyond] - done[-1]) / speed[-1]
            result[mine] = finish - arrival_time[mine]
    return result


def _divided(n_jobs: int, capacity: Ints, allowed: Flags | None) -> Iterator[tuple[Flags, Floats, float]]:
    """The jobs that may use the same types, (N,) bool; what each job counts among them, (N,); and the GPUs of these."""
    if allowed is None:
        yield np.ones(n_jobs, dtype=bool), np.ones(n_jobs), float(capacity.sum())
        return
    kinds, of = np.unique(allowed, axis=0, return_inverse=True)
    gpus = (kinds * capacity).sum(axis=1)
    for kind, types in enumerate(kinds):
        common = (kinds & types) * capacity
        yield of == kind, (common.sum(axis=1) / np.maximum(gpus, 1))[of], float(gpus[kind])


def _active_jobs(arrival_time: Floats, leave_time: Floats, counted: Floats) -> tuple[Floats, Floats]:
    """Times at which the number of jobs changes, and the number from then on, at least 1; each counts `counted`."""
    left = np.isfinite(leave_time)
    events = np.concatenate([arrival_time, leave_time[left]])
    if not len(events):
        return np.zeros(1), np.ones(1)
    times, position = np.unique(events, return_inverse=True)
    change = np.concatenate([counted, -counted[left]])
    active = np.cumsum(np.bincount(position, change, len(times)))
    return times, np.maximum(active, 1.0)


def static_contention(n_jobs: int, gpus: float) -> float:
    """Jobs of the trace per GPU, at least 1, however wide their gangs are and whenever they come."""
    return max(1.0, n_jobs / gpus)


def round_contention(active: Ints, first: Ints, end: Ints, gpus: float, lengths: Ints | None = None) -> Floats:
    """(N,) jobs per GPU, at least 1, on the mean over the rounds of each job; nan for a job without one.

    Parameters
    ----------
    active : (R,) jobs in the cluster in each round.
    first, end : (N,) round in which the job was admitted, and the one after that in which it completed.
    gpus : of the cluster.
    lengths : (R,) how many equal rounds each of them stands for; one each where it is not given.
    """
    lengths = np.ones(len(active), dtype=np.int64) if lengths is None else lengths
    before = np.concatenate([[0], np.cumsum(active * lengths)])
    passed = np.concatenate([[0], np.cumsum(lengths)])
    rounds = passed[end] - passed[first]
    mean = np.full(len(first), np.nan)
    some = rounds > 0
    mean[some] = (before[end[some]] - before[first[some]]) / rounds[some]
    return np.maximum(mean / gpus, 1.0)


def pairwise_envy(scheduled_fraction: Floats) -> tuple[float, float]:
    """Mean and largest difference between any two jobs in the fraction of their rounds in which they ran."""
    values = np.sort(scheduled_fraction)
    n = len(values)
    if n < 2:
        return 0.0, 0.0
    total = float(((2 * np.arange(n) - n + 1) * values).sum())
    return total / (n * (n - 1) / 2), float(values[-1] - values[0])
