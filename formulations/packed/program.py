"""The program over classes of interchangeable jobs, and the form in which its solutions are written.

Which job of group b is the partner of a job does not matter to it: only how long it shares type j with that group. So
a solution is, for each class k of n_k equal jobs in group a = g(k)::

    x_kj       time of one job alone on type j
    y_kbj      time of one job on type j beside jobs of group b

in one array of shares (K, 1 + G, M), x first,
and such times can be realised by pairs of jobs exactly when the two sides of every (a, b, j) are in balance::

    sum_{k in a} n_k y_kbj = sum_{k in b} n_k y_kaj          a != b
    y_kaj <= 1/2 sum_{k' in a} n_k' y_k'aj                   (nobody is beside itself)

Necessity is counting. Sufficiency is a construction: `formulations.packed.expansion` lays the two sides along one line
and cuts. The rest is as without sharing, a pair taking its GPUs once::

    sum_j ( x_kj + sum_b y_kbj )  <= 1          u_k = sum_j ( T_aj x_kj + sum_b T'_{a|b,j} y_kbj )
    sum_k n_k s_k ( x_kj + 1/2 sum_b y_kbj ) <= c_j
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from formulations.core.polytope import Polytope
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import matmul


class PackedProgram(Polytope):
    """K classes of jobs in G groups on M accelerator types: the polytope of the classes alone, and time in pairs.

    Parameters
    ----------
    alone : the classes without pairs, on types with GPUs.
    group : (K,) group of each class, ascending; every group has a class.
    together : (G, G, M) rates, steps/s, as in `PackedColumns`.
    useful : (G, G, M) symmetric; pairs of groups that some optimum may need (`useful_pairs`).
    """

    time_follows = False

    def __init__(self, alone: Polytope, group: Positions, together: Floats, useful: Flags) -> None:
        super().__init__(alone.columns, alone.capacity, alone.counts)
        vars(self).update(alone=alone, group=group, together=together, useful=useful)

    alone: Polytope
    group: Positions
    together: Floats
    useful: Flags

    @cached_property
    def partner_rates(self) -> Floats:
        """(K, G, M) rates beside each group; 0 where the pair is of no use."""
        return np.where(self.useful, self.together, 0.0)[self.group]

    @cached_property
    def fastest(self) -> Floats:
        """(K,) the most that any column yields."""
        most: Floats = np.maximum(self.rates.max(axis=1), self.partner_rates.max(axis=(1, 2)))
        return most

    @cached_property
    def starts(self) -> Positions:
        """(G,) first class of each group."""
        return np.searchsorted(self.group, np.arange(len(self.together)))

    @cached_property
    def single(self) -> Flags:
        """(K,) classes of one job, which is not its own partner."""
        return np.asarray(self.counts == 1)

    def total(self, times: Floats) -> Floats:
        """(G, ...) sum of `times` (K, ...) of one job over the jobs of each group."""
        counts = self.counts.reshape(-1, *(1,) * (times.ndim - 1))
        return np.asarray(np.add.reduceat(counts * times, self.starts))

    def used(self, shares: Floats) -> Floats:
        """(M,) GPUs in use, those of a pair counted once."""
        return np.asarray(matmul(self.loads, shares[:, 0] + 0.5 * shares[:, 1:].sum(axis=1)))

    def throughput_by_type(self, shares: Floats) -> Floats:
        """(K, M) throughput of one job of each class on each type."""
        return np.asarray(self.rates * shares[:, 0] + (self.partner_rates * shares[:, 1:]).sum(axis=1))

    def throughput(self, shares: Floats) -> Floats:
        """(K,) throughput of one job of each class."""
        return np.asarray((self.rates * shares[:, 0]).sum(1) + (self.partner_rates * shares[:, 1:]).sum((1, 2)))

    def repaired(self, shares: Floats) -> Floats:
        """The same times, lowered where they exceed a row or their other side; nothing is ever raised.

        In order: time of each class, balance of each pair of groups, no job beside itself, capacity of each type. As
        each step only lowers (the last one lowers both sides of a pair alike), no step undoes an earlier one.
        """
        g = self.group
        shares = np.clip(np.nan_to_num(shares), 0.0, None)
        x, y = shares[:, 0], np.where(self.useful[g], shares[:, 1:], 0.0)
        busy = np.maximum(x.sum(1) + y.sum((1, 2)), 1.0)
        x, y = x / busy[:, None], self._not_beside_itself(y / busy[:, None, None])
        side = self.total(y)
        lower = np.minimum(side, side.transpose(1, 0, 2))
        y *= np.divide(lower, side, out=np.zeros_like(side), where=side > 0)[g]
        lowered = np.concatenate([x[:, None], y], axis=1)
        used = self.used(lowered)
        return lowered * np.divide(self.capacity, used, out=np.ones_like(used), where=used > self.capacity)

    def _not_beside_itself(self, y: Floats) -> Floats:
        """Lower the time inside a group of a single job that exceeds what the others of its group have."""
        k = np.arange(len(y))
        inside = y[k, self.group]
        others = self.total(inside)[self.group] - inside
        y[k, self.group] = np.where(self.single[:, None] & (inside > others), np.maximum(others, 0.0), inside)
        return y

    def supply_at(self, multipliers: Floats, prices: Floats, time: Floats | None = None, gpu_cost: Any = 0.0) -> float:
        """Most that the cluster can earn, ``max sum_kj n_k weight_kj u_kj``: `time_worth` and prices pay for it.

        Parameters
        ----------
        multipliers : (K,) or (K, M) weights.
        gpu_cost : (M,) d, where GPUs in use cost something and ``sum_j d_j v_j`` is taken off.
        """
        assert time is not None
        paid = self.time_worth(multipliers, time, prices + gpu_cost)
        return float(matmul(self.counts, paid) + matmul(self.capacity, prices))

    def time_worth(self, weights: Floats, time: Floats, due: Floats) -> Floats:
        """(K,) worth m of one job's time, at least `time` (K,), that pays for every column with what is `due` (M,)::

            m_k >= weight_kj T_kj - s_k due_j
            m_k + m_l >= weight_kj T'_{k|l,j} + weight_lj T'_{l|k,j} - s_k due_j

        Without sharing the least m has a closed form; with it `time` is raised: first to the columns alone, then each
        class by half of the worst of its pairs (both members of a pair that lacks d are raised by at least d / 2).
        """
        weights = weights[:, None] if weights.ndim == 1 else weights
        due = self.scale_factors[:, None] * due
        m = np.maximum(time, (weights * self.rates - due).max(axis=1))
        if self.useful.any():
            earned = self.beyond_time(weights, self.partner_rates, m) - due[:, None]
            m = m + 0.5 * np.maximum(np.where(self.useful[self.group], earned, 0.0).max(axis=(1, 2)), 0.0)
        return np.asarray(m)

    def beyond_time(self, weights: Floats, partner_rates: Floats, time: Floats) -> Floats:
        """(K, G, M) what a pair of a class and the best partner in each group earns beyond what their time is worth.

        The best partner within a group is the same for all classes of another group, so this costs O(K G M).
        """
        g, k = self.group, np.arange(len(self.group))
        profit = weights[:, None, :] * partner_rates - time[:, None, None]
        partner = np.maximum.reduceat(profit, self.starts).transpose(1, 0, 2)[g]
        partner[k, g] = self._best_other(profit[k, g])
        return np.asarray(profit + partner)

    def _best_other(self, profit: Floats) -> Floats:
        """(K, M) best of `profit` (K, M) among the other jobs of the group: a single job is not its own partner."""
        best = np.maximum.reduceat(profit, self.starts)[self.group]
        at_top = profit >= best
        alone_there = np.add.reduceat(at_top, self.starts, dtype=np.int64)[self.group] == 1
        unrivalled = at_top & self.single[:, None] & alone_there
        second = np.maximum.reduceat(np.where(unrivalled, -np.inf, profit), self.starts)[self.group]
        return np.where(unrivalled, second, best)


@dataclass(frozen=True, eq=False)
class Goal:
    """What is wanted: ``max t + sum_kj n_k g_kj u_kj - sum_j d_j v_j`` subject to ``sum_j u_kj >= f_k + w_k t``.

    u_kj is the throughput of a job of class k on type j, v_j the GPUs of type j in use. `slopes` w (K,) bring the level
    t in; `floors` f (K,), `gains` g, (K,) or by type (K, M), and `gpu_cost` d (M,) may each be absent.
    """

    slopes: Floats | None = None
    floors: Floats | None = None
    gains: Floats | None = None
    gpu_cost: Floats | None = None

    def gains_by_type(self, program: PackedProgram) -> Floats:
        """(K, M) g."""
        if self.gains is None:
            return np.zeros(program.rates.shape)
        return self.gains if self.gains.ndim == 2 else np.repeat(self.gains[:, None], len(program.capacity), axis=1)

    def costs(self, program: PackedProgram) -> Floats:
        """(M,) d."""
        return np.zeros(len(program.capacity)) if self.gpu_cost is None else self.gpu_cost


def useful_pairs(alone: Floats, together: Floats, scale_factors: Ints, jobs: Floats | Ints) -> Flags:
    """(G, G, M) pairs of groups that are worth a column, given how many jobs each group has.

    A pair on type j is of no use when ``T'_a / T_a + T'_b / T_b <= 1`` (0/0 counts as 0, anything else over 0 as
    infinite). Write r_a, r_b for the two ratios. Instead of sharing for a time z, let a run alone for r_a z and then
    b alone for r_b z: both have the same throughput as before, they take ``(r_a + r_b) s z <= s z`` GPU time, and
    neither is busy for longer than z. So every objective that looks at throughputs on types and wants GPUs in use to
    be few has an optimum without such pairs, and multipliers that allow for the jobs alone allow for these pairs.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(together > 0, together / alone[:, None, :], 0.0)
    useful = ratio + ratio.transpose(1, 0, 2) > 1.0
    useful &= (scale_factors[:, None] == scale_factors[None, :])[:, :, None]
    enough = (jobs[:, None] > 0) & (jobs[None, :] > 0)
    np.fill_diagonal(enough, jobs > 1)
    return np.asarray(useful & enough[:, :, None])
