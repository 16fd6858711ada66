"""The price of an accelerator type without GPUs, with space sharing (see `formulations.solving.absent_types`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.packed.certificate import best_other
from formulations.packed.polytope import PackedPolytope
from formulations.packed.reduction import Reduction

__all__ = ["prices_of_nobody", "with_absent_types"]

Array = NDArray[np.float64]


def with_absent_types(
    polytope: PackedPolytope,
    reduction: Reduction,
    weights: Array,
    time: Array,
    prices: Array,
    gpu_cost: Array | None = None,
) -> Array:
    """(M,) prices of all types, given those of the types with GPUs.

    The least price at which no column of a type without GPUs earns more than the time of its jobs is worth.

    Parameters
    ----------
    weights : (K,) or (K, M) worth of a unit of throughput, by class.
    time : (K,) worth of one job's time.
    prices : of the types with GPUs, in the order of `reduction.types`.
    gpu_cost : (M,) cost of a GPU in use; none when omitted.
    """
    completed = np.zeros(len(polytope.capacity))
    completed[reduction.types] = prices
    absent, program = np.flatnonzero(~(polytope.capacity > 0)), reduction.program
    if not len(absent) or program is None:
        return completed
    columns = polytope.columns
    groups = columns.group[reduction.first[program.starts]]
    weights = np.broadcast_to(weights[:, None] if weights.ndim == 1 else weights, (len(time), len(completed)))[
        :, absent
    ]
    alone = (weights * columns.alone[groups][program.group][:, absent] - time[:, None]) / program.gangs[:, None]
    worth = alone.max(axis=0)
    together = columns.together[np.ix_(groups, groups, absent)]
    met = (together > 0) | (together > 0).transpose(1, 0, 2)
    if met.any():
        g, k = program.group, np.arange(len(time))
        profit = weights[:, None, :] * together[g] - time[:, None, None]
        partner = np.maximum.reduceat(profit, program.starts).transpose(1, 0, 2)[g]
        partner[k, g] = best_other(program, profit[k, g])
        paired = np.where(met[g], (profit + partner) / program.gangs[:, None, None], 0.0)
        worth = np.maximum(worth, paired.max(axis=(0, 1)))
    cost = np.zeros(len(absent)) if gpu_cost is None else gpu_cost[absent]
    completed[absent] = np.maximum(worth - cost, 0.0)
    return completed


def prices_of_nobody(polytope: PackedPolytope, served: NDArray[np.bool_]) -> Array:
    """(M,) not known for types that jobs run on which take no part: on any of its GPUs they would."""
    columns = polytope.columns
    outside, all_groups = np.unique(columns.group[~served]), np.unique(columns.group)
    runs = (columns.alone[outside] > 0).any(axis=0)
    runs |= (columns.together[np.ix_(outside, all_groups)] > 0).any(axis=(0, 1))
    return np.where(runs & ~(polytope.capacity > 0), np.nan, 0.0)
