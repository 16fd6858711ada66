"""The program over classes of interchangeable jobs, and the form in which its solutions are written.

Which job of a class is the partner of a job does not matter to it. So a column is a class alone on a type, or a pair of
classes on a type: the total time that jobs of the one share GPUs with jobs of the other, spread evenly over them. With
x_kj the time of one job of class k of n_k jobs alone on type j, z_klj the total time of pairs, g(k) the group of k, and
rates T and T' as in `PackedColumns`::

    u_k = sum_j ( T_kj x_kj + sum_l T'_{k|l,j} z_klj / n_k )
    sum_j ( x_kj + sum_l z_klj / n_k )                        <= 1
    sum_k n_k s_k x_kj + sum_{k<=l} s_k z_klj                 <= c_j

where a pair of a class with itself counts both of its jobs. Such times are realised by pairs of jobs
(`formulations.packed.expansion`): nobody is beside itself, as no column is a pair of a class of one job with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from formulations.core.polytope import Polytope
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import dot


class PackedProgram(Polytope):
    """K classes of jobs in G groups on M accelerator types: the polytope of the classes alone, and time in pairs.

    Shares (C,) are the times of the columns listed so far; columns are only ever added, behind the others.

    Parameters
    ----------
    alone : the classes without pairs, on types with GPUs.
    group : (K,) group of each class, ascending; every group has a class.
    together : (G, G, M) rates, steps/s, as in `PackedColumns`.
    useful : (G, G, M) symmetric; pairs of groups that some optimum may need (`useful_pairs`).

    Attributes
    ----------
    members, type : (C, 2) classes and (C,) type of each column: first every class alone, on every type.
    time, speed : (C, 2) time and throughput of a job of each member per unit of the column; 0 for the second member
        where there is none.
    gpus : (C,) GPUs that all jobs of the column take per unit.
    """

    time_follows = False

    def __init__(self, alone: Polytope, group: Positions, together: Floats, useful: Flags) -> None:
        super().__init__(alone.columns, alone.capacity, alone.counts)
        k, j = (each.ravel() for each in np.indices(alone.rates.shape))
        second = np.zeros(len(k))
        vars(self).update(
            alone=alone,
            group=group,
            together=together,
            useful=useful,
            members=np.stack([k, k], axis=1),
            type=j,
            time=np.stack([np.ones(len(k)), second], axis=1),
            speed=np.stack([alone.rates.ravel(), second], axis=1),
            gpus=alone.loads[k],
        )

    alone: Polytope
    group: Positions
    together: Floats
    useful: Flags
    members: Positions
    type: Positions
    time: Floats
    speed: Floats
    gpus: Floats

    def add_pairs(self, codes: Positions) -> int:
        """List pairs of classes one <= other on a type, ``(one K + other) M + type``; the number of those that are new.

        The unit of a column is such that no job spends more than all its time in one.
        """
        (K, M), g, n = self.rates.shape, self.group, self.counts
        known = self.code(self.members[K * M :, 0], self.members[K * M :, 1], self.type[K * M :])
        codes = np.setdiff1d(codes, known)
        one, other, j = codes // M // K, codes // M % K, codes % M
        same, jobs = one == other, np.minimum(n[one], n[other])
        time = np.stack([jobs / n[one], np.where(same, 0.0, jobs / n[other])], axis=1)
        rates = np.stack([self.together[g[one], g[other], j], self.together[g[other], g[one], j]], axis=1)
        more = {
            "members": np.stack([one, other], axis=1),
            "type": j,
            "time": time,
            "speed": time * rates,
            "gpus": self.scale_factors[one] * jobs / np.where(same, 2.0, 1.0),
        }
        vars(self).update({name: np.concatenate([getattr(self, name), each]) for name, each in more.items()})
        return len(codes)

    def code(self, one: Positions, other: Positions, type_: Positions) -> Positions:
        """One number for each pair of classes on a type."""
        K, M = self.rates.shape
        return np.asarray((np.minimum(one, other) * K + np.maximum(one, other)) * M + type_)

    @cached_property
    def partner_rates(self) -> Floats:
        """(K, G, M) rates beside each group; 0 where the pair is of no use."""
        return np.where(self.useful, self.together, 0.0)[self.group]

    @cached_property
    def fastest(self) -> Floats:
        """(K,) the most that any column yields."""
        most: Floats = np.maximum(self.rates.max(axis=1, initial=0.0), self.partner_rates.max(axis=(1, 2), initial=0.0))
        return most

    @cached_property
    def reach(self) -> Floats:
        """(K,) the most that a job has of any one type: its time or the type's GPUs are used up."""
        rates = np.maximum(self.rates, self.partner_rates.max(axis=1))
        fits = np.minimum(self.capacity / self.scale_factors[:, None], 1.0)
        return np.asarray((rates * fits).max(axis=1))

    @cached_property
    def starts(self) -> Positions:
        """(G,) first class of each group."""
        return np.searchsorted(self.group, np.arange(len(self.together)))

    def of_classes(self, each: Floats, shares: Floats) -> Floats:
        """(K,) sums over columns of what `each` (C, 2) of their members has of a unit."""
        C = len(shares)
        total = np.bincount(self.members[:C].ravel(), (each[:C] * shares[:, None]).ravel(), len(self.counts))
        return total.astype(np.float64)

    def used(self, shares: Floats) -> Floats:
        """(M,) GPUs in use, those of a pair counted once."""
        C = len(shares)
        return np.bincount(self.type[:C], self.gpus[:C] * shares, len(self.capacity)).astype(np.float64)

    def throughput(self, shares: Floats) -> Floats:
        """(K,) throughput of one job of each class."""
        return self.of_classes(self.speed, shares)

    def worth(self, goal: Goal) -> Floats:
        """(C,) what a unit of each column adds to a goal: the gains of its steps, less the cost of its GPUs."""
        gains = np.broadcast_to(goal.gains, self.rates.shape)[self.members, self.type[:, None]]
        of_steps = (self.counts[self.members] * gains * self.speed).sum(axis=1)
        return np.asarray(of_steps - np.broadcast_to(goal.gpu_cost, self.capacity.shape)[self.type] * self.gpus)

    def repaired(self, shares: Floats) -> Floats:
        """The same times, lowered where they exceed the time of a class, then where they exceed a type's capacity."""
        shares = np.clip(np.nan_to_num(shares), 0.0, None)
        busy = np.maximum(self.of_classes(self.time, shares), 1.0)
        shares = shares / busy[self.members[: len(shares)]].max(axis=1)
        used = self.used(shares)
        fits = np.divide(self.capacity, used, out=np.ones_like(used), where=used > self.capacity)
        return np.asarray(shares * fits[self.type[: len(shares)]])

    def supply_at(self, multipliers: Floats, prices: Floats, time: Floats | None = None, gpu_cost: Any = 0.0) -> float:
        """Most that the cluster can earn, ``max sum_kj n_k weight_kj u_kj``: `time_worth` and prices pay for it.

        Parameters
        ----------
        multipliers : (K,) or (K, M) weights.
        gpu_cost : (M,) d, where GPUs in use cost something and ``sum_j d_j v_j`` is taken off.
        """
        assert time is not None
        paid = self.time_worth(multipliers, time, prices + gpu_cost)
        return dot(self.counts, paid) + dot(self.capacity, prices)

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
        """(K, G, M) what a pair of a class and the best partner in each group earns beyond what their time is worth;
        -inf where a single job would be its own partner."""
        offers, k = weights[:, None, :] * partner_rates - time[:, None, None], np.arange(len(time))[:, None, None]
        partner = self.partners(self.ranked(offers))
        earned = offers + offers[partner, self.group[:, None, None], np.arange(offers.shape[2])]
        return np.where((partner == k) & (self.counts[k] == 1), -np.inf, earned)

    def ranked(self, offers: Floats) -> Positions:
        """(K, G, M) the classes of each group, one group after the other, by falling `offers` (K, G, M) to a partner of
        each group."""
        group = np.broadcast_to(self.group[:, None, None], offers.shape)
        return np.asarray(np.lexsort((-offers, group), axis=0))

    def partners(self, order: Positions, rank: Positions | int = 0) -> Positions:
        """(K, G, M) for each class the class in each group that has a `rank` (K, G, M) in `order` (K, G, M), or the
        last.

        The best partner within a group is the same for all classes of another group, so this costs O(K G M). A single
        job is its own partner only where it is the group.
        """
        k, group, j = np.arange(len(self.group))[:, None, None], self.group[:, None, None], np.arange(order.shape[2])
        first, last = self.starts[:, None], np.append(self.starts[1:], len(k))[:, None] - 1
        partner = order[np.minimum(first + rank, last), group, j]
        second = order[np.minimum(first + 1, last), group, j]
        return np.asarray(np.where((partner == k) & (self.counts[k] == 1), second, partner))


@dataclass(frozen=True, eq=False)
class Goal:
    """What is wanted: ``max t + sum_kj n_k g_kj u_kj - sum_j d_j v_j`` subject to ``sum_j u_kj >= f_k + w_k t``.

    u_kj is the throughput of a job of class k on type j, v_j the GPUs of type j in use. `slopes` w (K,) bring the level
    t in; `floors` f (K,) may be absent; `gains` g, (K, 1) or by type (K, M), and `gpu_cost` d, (M,) or one for all, are
    0 where they are.
    """

    slopes: Floats | None = None
    floors: Floats | None = None
    gains: Floats = field(default_factory=lambda: np.zeros((1, 1)))
    gpu_cost: Floats = field(default_factory=lambda: np.zeros(1))


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
