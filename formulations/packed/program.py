"""The program over classes of interchangeable jobs, and the form in which its solutions are written.

Which job of group b is the partner of a job does not matter to it: only how long it shares type j with that group. So
a solution is, for each class k of n_k equal jobs in group a = g(k)::

    x_kj       time of one job alone on type j
    y_kbj      time of one job on type j beside jobs of group b

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

import numpy as np

from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import matmul


@dataclass(frozen=True, eq=False)
class PackedProgram:
    """K classes of jobs in G groups on M accelerator types, each with GPUs.

    Attributes
    ----------
    group : (K,) group of each class, ascending; every group has a class.
    counts : (K,) jobs in each class.
    alone, together : (G, M) and (G, G, M) rates, steps/s, as in `PackedColumns`.
    scale_factors : (G,) GPUs per gang.
    capacity : (M,) GPUs, above 0.
    useful : (G, G, M) symmetric; pairs of groups that some optimum may need (`useful_pairs`).
    """

    group: Positions
    counts: Floats
    alone: Floats
    together: Floats
    scale_factors: Floats
    capacity: Floats
    useful: Flags

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.group)

    @cached_property
    def rates(self) -> Floats:
        """(K, M) rates alone."""
        return self.alone[self.group]

    @cached_property
    def partner_rates(self) -> Floats:
        """(K, G, M) rates beside each group; 0 where the pair is of no use."""
        return np.where(self.useful, self.together, 0.0)[self.group]

    @cached_property
    def gangs(self) -> Floats:
        """(K,) GPUs per gang."""
        return self.scale_factors[self.group]

    @cached_property
    def fastest(self) -> Floats:
        """(K,) the most that any column yields."""
        most: Floats = np.maximum(self.rates.max(axis=1), self.partner_rates.max(axis=(1, 2)))
        return most

    @cached_property
    def starts(self) -> Positions:
        """(G,) first class of each group."""
        return np.searchsorted(self.group, np.arange(len(self.alone)))

    def total(self, times: Floats) -> Floats:
        """(G, ...) sum of `times` (K, ...) of one job over the jobs of each group."""
        counts = self.counts.reshape(-1, *(1,) * (times.ndim - 1))
        return np.asarray(np.add.reduceat(counts * times, self.starts))

    def used(self, point: PackedPoint) -> Floats:
        """(M,) GPUs in use, those of a pair counted once."""
        return np.asarray(matmul(self.counts * self.gangs, point.alone + 0.5 * point.shared.sum(axis=1)))

    def throughput_by_type(self, point: PackedPoint) -> Floats:
        """(K, M) throughput of one job of each class on each type."""
        return np.asarray(self.rates * point.alone + (self.partner_rates * point.shared).sum(axis=1))

    def throughput(self, point: PackedPoint) -> Floats:
        """(K,) throughput of one job of each class."""
        return np.asarray((self.rates * point.alone).sum(1) + (self.partner_rates * point.shared).sum((1, 2)))


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


@dataclass(frozen=True, eq=False)
class PackedPoint:
    """An unproven solution.

    Attributes
    ----------
    alone : (K, M) x. shared : (K, G, M) y.
    demand_multipliers : (K,) lambda, of one job's demand; zeros without demands.
    time_multipliers : (K,) m, of one job's time.
    prices : (M,) p, of a GPU.
    """

    alone: Floats
    shared: Floats
    demand_multipliers: Floats
    time_multipliers: Floats
    prices: Floats
    iterations: int


def useful_pairs(alone: Floats, together: Floats, scale_factors: Floats, jobs: Floats) -> Flags:
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
