"""The judge: feasible times, and bounds and prices by weak duality, from products that no backend had a hand in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import PackedPoint, PackedProgram
from formulations.packed.reduction import Reduction
from throughputs.arrays import Flags, Floats
from throughputs.numerics import matmul

_NEGLIGIBLE_WORTH = 1e-9
"""Part of what the cluster can earn below which the worth of a type's capacity is taken for nothing."""


def repaired(program: PackedProgram, point: PackedPoint) -> PackedPoint:
    """The same times, lowered where they exceed a row or their other side; nothing is ever raised.

    In order: time of each class, balance of each pair of groups, no job beside itself, capacity of each type. As each
    step only lowers (the last one lowers both sides of a pair alike), no step undoes an earlier one.
    """
    g = program.group
    x = np.clip(np.nan_to_num(point.alone), 0.0, None)
    y = np.where(program.useful[g], np.clip(np.nan_to_num(point.shared), 0.0, None), 0.0)
    busy = np.maximum(x.sum(1) + y.sum((1, 2)), 1.0)
    x, y = x / busy[:, None], y / busy[:, None, None]
    y = _not_beside_itself(program, y)
    side = program.total(y)
    lower = np.minimum(side, side.transpose(1, 0, 2))
    y *= np.divide(lower, side, out=np.zeros_like(side), where=side > 0)[g]
    used = program.used(replace(point, alone=x, shared=y))
    fits = np.divide(program.capacity, used, out=np.ones_like(used), where=used > program.capacity)
    return replace(point, alone=x * fits, shared=y * fits)


def _not_beside_itself(program: PackedProgram, y: Floats) -> Floats:
    """Lower the time inside a group of a single job that exceeds what the others of its group have."""
    k = np.arange(program.n_classes)
    inside = y[k, program.group]
    total = program.total(inside)
    others = total[program.group] - inside
    single = (program.counts == 1)[:, None] & (inside > others)
    if single.any():
        y[k, program.group] = np.where(single, np.maximum(others, 0.0), inside)
    return y


@dataclass(frozen=True, eq=False)
class Dual:
    """What a weighted sum of throughputs can come to, ``supply >= max sum_kj n_k weight_kj u_kj``, and what proves it.

    Where GPUs in use cost something, ``sum_j d_j v_j`` is taken off the sum. `prices` (M,) and `time` (K,), what one
    job's time is worth, pay for every column.
    """

    supply: float
    prices: Floats
    time: Floats


def dual_bound(
    program: PackedProgram, weights: Floats, time_multipliers: Floats, prices: Floats, gpu_cost: Floats | None = None
) -> Dual:
    """Bound the weighted throughput from any prices and any multipliers of time.

    For weights (K,) or (K, M), cost d (M,) of a GPU in use (none when omitted) and ``m, p >= 0`` that pay for every
    column::

        m_k >= weight_kj T_kj - s_k (p_j + d_j)
        m_k + m_l >= weight_kj T'_{k|l,j} + weight_lj T'_{l|k,j} - s_k (p_j + d_j)

    the cluster earns at most ``sum_k n_k m_k + c . p``. Without sharing the least m has a closed form; with it the
    given m are taken and raised: first to the columns alone, then each class by half of the worst of its pairs (both
    members of a pair that lacks d are raised by at least d / 2). The worst partner within a group is the same for all
    classes of another group, so this costs O(K G M).
    """
    prices = np.clip(np.nan_to_num(prices), 0.0, None)
    m = np.clip(np.nan_to_num(time_multipliers), 0.0, None)
    weights = weights[:, None] if weights.ndim == 1 else weights
    d = np.zeros_like(prices) if gpu_cost is None else gpu_cost
    best, time = _paid(program, weights, m, prices, d)
    negligible = prices * program.capacity <= _NEGLIGIBLE_WORTH * best
    if (prices[negligible] > 0).any():
        # a type with next to no GPUs may be worth little and yet have a price that the bound needs
        without = np.where(negligible, 0.0, prices)
        free, time_at_free = _paid(program, weights, m, without, d)
        if free <= best * (1.0 + _NEGLIGIBLE_WORTH):
            return Dual(free, without, time_at_free)
    return Dual(best, prices, time)


def _paid(program: PackedProgram, weights: Floats, m: Floats, prices: Floats, gpu_cost: Floats) -> tuple[float, Floats]:
    g, due = program.group, prices + gpu_cost
    m = np.maximum(m, (weights * program.rates - program.gangs[:, None] * due).max(axis=1))
    if program.useful.any():
        # profit of a member before its half of the pair is paid for
        profit = weights[:, None, :] * program.partner_rates - m[:, None, None]
        partner = np.maximum.reduceat(profit, program.starts).transpose(1, 0, 2)[g]
        k = np.arange(len(g))
        partner[k, g] = _best_other(program, profit[k, g])
        lacking = np.where(program.useful[g], profit + partner - program.gangs[:, None, None] * due, 0.0)
        m = m + 0.5 * np.maximum(lacking.max(axis=(1, 2)), 0.0)
    return float(matmul(program.counts, m) + matmul(program.capacity, prices)), m


def _best_other(program: PackedProgram, profit: Floats) -> Floats:
    """(K, M) best of `profit` (K, M) among the other jobs of the group: a single job is not its own partner."""
    best = np.maximum.reduceat(profit, program.starts)[program.group]
    at_top = profit >= best
    single = (program.counts == 1)[:, None]
    unrivalled = at_top & single & (np.add.reduceat(at_top, program.starts, dtype=np.int64)[program.group] == 1)
    second = np.maximum.reduceat(np.where(unrivalled, -np.inf, profit), program.starts)[program.group]
    return np.where(unrivalled, second, best)


def with_absent_types(
    polytope: PackedPolytope,
    reduction: Reduction,
    weights: Floats,
    time: Floats,
    prices: Floats,
    gpu_cost: Floats | None = None,
) -> Floats:
    """(M,) prices of all types, given those of the types with GPUs (see `formulations.solving.absent_types`).

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
        partner[k, g] = _best_other(program, profit[k, g])
        paired = np.where(met[g], (profit + partner) / program.gangs[:, None, None], 0.0)
        worth = np.maximum(worth, paired.max(axis=(0, 1)))
    cost = np.zeros(len(absent)) if gpu_cost is None else gpu_cost[absent]
    completed[absent] = np.maximum(worth - cost, 0.0)
    return completed


def prices_of_nobody(polytope: PackedPolytope, served: Flags) -> Floats:
    """(M,) not known for types that jobs run on which take no part: on any of its GPUs they would."""
    columns = polytope.columns
    outside, all_groups = np.unique(columns.group[~served]), np.unique(columns.group)
    runs = (columns.alone[outside] > 0).any(axis=0)
    runs |= (columns.together[np.ix_(outside, all_groups)] > 0).any(axis=(0, 1))
    return np.where(runs & ~(polytope.capacity > 0), np.nan, 0.0)
