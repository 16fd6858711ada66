"""The decisions: objectives with the figures of jobs in the middle of their work.

Times are drawn so that the jobs contend: with fewer GPUs than are asked for, no job alone holds the optimum. (With the
published spread of durations one long job does, and the program is an easy one.)
"""

from __future__ import annotations

import numpy as np

from benchmarks.solvers.registry import Instance, decision
from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    PackedPolytope,
    WaterFilling,
    proportional_throughput,
    solve_packed,
)
from throughputs import PackedColumns, default_colocation, default_table, retained_fractions

HOUR = 3600.0


@decision("max_min", "Max-min fairness")
def max_min(instance: Instance, rng: np.random.Generator) -> MaxMin:  # noqa: ARG001
    """Least throughput relative to the proportional share, per weight and GPU."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return MaxMin(instance.weights * proportional / instance.scale_factors)


@decision("makespan", "Makespan")
def makespan(instance: Instance, rng: np.random.Generator) -> Makespan:
    """One to two hours left on the fastest type, times the weight."""
    return Makespan(instance.weights * instance.fastest * rng.uniform(HOUR, 2 * HOUR, len(instance.rates)))


@decision("finish_time", "Finish-time fairness")
def finish_time(instance: Instance, rng: np.random.Generator) -> FinishTimeFairness:
    """Up to an hour spent, one to two left on the fastest type; isolated, each would take up to half as long again.

    At the level that the worst job could attain alone every job needs nearly its fastest rate.
    """
    N = len(instance.rates)
    spent, left = rng.uniform(0, HOUR, N), instance.weights * rng.uniform(HOUR, 2 * HOUR, N)
    isolated = (spent + left) * rng.uniform(1.0, 1.5, N)
    return FinishTimeFairness(spent, left * instance.fastest, isolated)


@decision("max_sum", "Sum of throughputs")
def max_sum(instance: Instance, rng: np.random.Generator) -> MaxSum:  # noqa: ARG001
    """Steps per second of all jobs, by weight."""
    return MaxSum(instance.weights)


@decision("water_filling", "Water filling")
def water_filling(instance: Instance, rng: np.random.Generator) -> WaterFilling:  # noqa: ARG001
    """Max-min fairness of all levels: who can have more without taking from those below gets it."""
    proportional = proportional_throughput(instance.rates, instance.capacity)
    return WaterFilling(proportional / instance.scale_factors, instance.weights)


@decision("proportional_fairness", "Proportional fairness")
def proportional_fairness(instance: Instance, rng: np.random.Generator) -> NashWelfare:  # noqa: ARG001
    """The largest product of throughputs, by weight."""
    return NashWelfare(instance.weights)


def _packed(instance: Instance) -> PackedPolytope:
    """The jobs of an instance of published types, which may also share GPUs two by two."""
    table = default_table().with_colocation(default_colocation())
    rows, group = np.unique(instance.rates, axis=0, return_inverse=True)
    known = table.rates(table.job_types, [1] * len(table.job_types), table.accelerators)
    types = [table.job_types[int(np.abs(known[:, : rows.shape[1]] - row).sum(axis=1).argmin())] for row in rows]
    kept = retained_fractions(table, types, table.accelerators, 1)
    columns = PackedColumns(group.ravel(), rows, kept * rows[:, None, :])
    return PackedPolytope(columns, instance.capacity)


@decision(
    "packed_max_min",
    "Max-min fairness with space sharing",
    polytope=_packed,
    solve=solve_packed,
    most_jobs=2048,
    families=("published",),
)
def packed_max_min(instance: Instance, rng: np.random.Generator) -> MaxMin:
    """As without sharing, over single jobs and all pairs of them, expanded to the pairs of jobs."""
    return max_min(instance, rng)
