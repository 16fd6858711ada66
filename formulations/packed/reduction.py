"""From jobs to classes: who can be served, who is interchangeable, in an order that depends on content alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.certificate import Certificate
from formulations.core.polytope import Polytope
from formulations.core.reductions import spread_weights
from formulations.core.solution import Pairs
from formulations.packed.choice import AmongPairs
from formulations.packed.class_pairs import ClassPairs
from formulations.packed.expansion import expand
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import useful_pairs
from formulations.solving.choice import Among
from formulations.solving.reduction import Reduction
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.packed import PackedColumns


@dataclass(frozen=True, eq=False)
class PackedReduction(Reduction):
    """The reduction of a polytope with pairs.

    `jobs` are in canonical order: by group, then by what the objective wants of them; `of` ascends.
    """

    program: ClassPairs
    whole: PackedPolytope

    @classmethod
    def of_polytope(cls, polytope: PackedPolytope, key: Floats) -> PackedReduction:
        """Classes of jobs that are equal in their group and in `key` (N, k).

        The program is convex and looks at interchangeable jobs alike, so averaging an optimum over their permutations
        gives an optimum in which they all have the same times alone and beside each group: one class stands for them.
        A job that gains nothing from any column takes no part, not even as somebody's partner.
        """
        columns = polytope.columns
        G = len(columns.alone)
        types = np.flatnonzero(polytope.capacity > 0)
        alone, together = columns.alone[:, types], columns.together[:, :, types]
        jobs_of = np.bincount(columns.group, minlength=G).astype(np.float64)
        useful = _without_idlers(alone, together, columns.group_scale_factors, jobs_of)
        of_group = _gains(alone, together, useful) & (jobs_of > 0)
        served = of_group[columns.group]
        groups = _content_order(columns, types, np.flatnonzero(of_group))
        rank = np.empty(G, dtype=np.intp)
        rank[groups] = np.arange(len(groups))
        jobs = np.flatnonzero(served)
        group = rank[columns.group[jobs]]
        wanted = key[jobs]
        order = np.lexsort((*wanted.T[::-1], group))
        jobs, group, wanted = jobs[order], group[order], wanted[order]
        begins = np.ones(len(jobs), dtype=bool)
        begins[1:] = (group[1:] != group[:-1]) | (wanted[1:] != wanted[:-1]).any(axis=1)
        first = np.flatnonzero(begins)
        counts = np.diff(np.append(first, len(jobs))).astype(np.float64)
        among = np.ix_(groups, groups)
        program = ClassPairs(
            Polytope(columns.plain, polytope.capacity).restricted(jobs[first], types, counts),
            group[first],
            together[among],
            useful[among],
        )
        return cls(served, types, jobs, np.cumsum(begins) - 1, jobs[first], program, polytope, np.arange(len(types)))

    def among(self, best: Certificate) -> Among:
        """In times alone and beside groups."""
        return AmongPairs(self.program, best)

    def allocation(self, shares: Floats) -> tuple[Floats, Pairs]:
        """Pairs of jobs by `expand`."""
        alone = shares[: self.program.rates.size].reshape(self.program.rates.shape)
        whole = np.zeros(self.whole.columns.rates.shape)
        whole[np.ix_(self.jobs, self.types)] = np.where(self.program.rates > 0, alone, 0.0)[self.of]
        return whole, expand(self.program, shares, self.of, self.jobs, self.types)

    def all_prices(self, worth: Floats, prices: Floats, time: Floats, gpu_cost: Floats | None = None) -> Floats:
        """`time` is raised to pay for all columns."""
        polytope, program = self.whole, self.program
        completed = self.prices_of_others()
        cost = np.zeros(len(completed)) if gpu_cost is None else gpu_cost
        completed[self.types] = prices
        absent = np.flatnonzero(~(polytope.capacity > 0))
        if not len(absent) or not len(self.first):
            return completed
        columns, weights = polytope.columns, worth[self.first]
        weights = weights if weights.ndim == 2 else np.repeat(weights[:, None], len(completed), axis=1)
        time = program.time_worth(weights[:, self.types], time, prices + cost[self.types])
        weights, sizes = weights[:, absent], program.scale_factors
        groups = columns.group[self.first[program.starts]]
        earned = ((weights * columns.rates[self.first][:, absent] - time[:, None]) / sizes[:, None]).max(axis=0)
        together = columns.together[np.ix_(groups, groups, absent)]
        met = (together > 0) | (together > 0).transpose(1, 0, 2)
        paired = program.beyond_time(weights, together[program.group], time) / sizes[:, None, None]
        earned = np.maximum(earned, np.where(met[program.group], paired, 0.0).max(axis=(0, 1)))
        completed[absent] += np.maximum(earned - cost[absent], 0.0)
        return completed

    def prices_of_others(self) -> Floats:
        """By their rates, alone and in pairs."""
        columns = self.whole.columns
        outside, all_groups = np.unique(columns.group[~self.served]), np.unique(columns.group)
        runs = (columns.alone[outside] > 0).any(axis=0)
        runs |= (columns.together[np.ix_(outside, all_groups)] > 0).any(axis=(0, 1))
        return np.where(runs & ~(self.whole.capacity > 0), np.nan, 0.0)


@dataclass(frozen=True, eq=False)
class ReductionWithoutPairs(Reduction):
    """That of a polytope without pairs to a program in which no group has company."""

    program: ClassPairs

    @classmethod
    def of_polytope(cls, polytope: Polytope, key: Floats) -> ReductionWithoutPairs:
        """Classes of jobs that are equal in rates, gang and `key` (N, k)."""
        plain = Reduction.of_figures(polytope, list(key.T))
        nobody = np.zeros((1, 1, len(plain.types)))
        program = ClassPairs(plain.program, np.zeros(len(plain.first), dtype=np.intp), nobody, nobody > 0)
        return cls(**vars(plain) | {"program": program})

    def allocation(self, shares: Floats) -> tuple[Floats, Pairs]:
        """From times alone."""
        return super().allocation(shares.reshape(self.program.rates.shape))


def reduced(polytope: Polytope | PackedPolytope, key: Floats) -> PackedReduction | ReductionWithoutPairs:
    """To a program over classes of jobs with an equal `key` (N, k) that a model of pairs solves."""
    if isinstance(polytope, PackedPolytope):
        return PackedReduction.of_polytope(polytope, key)
    return ReductionWithoutPairs.of_polytope(polytope, key)


def _gains(alone: Floats, together: Floats, useful: Flags) -> Flags:
    """(G,) whether a job of the group has a rate in any column."""
    return np.asarray((alone > 0).any(axis=1) | (useful & (together > 0)).any(axis=(1, 2)))


def _without_idlers(alone: Floats, together: Floats, sizes: Ints, jobs_of: Floats) -> Flags:
    """Useful pairs of groups, without those of groups that gain nothing anywhere."""
    while True:
        useful = useful_pairs(alone, together, sizes, jobs_of)
        idle = (jobs_of > 0) & ~_gains(alone, together, useful)
        if not idle.any():
            return useful
        jobs_of = np.where(idle, 0.0, jobs_of)


def _content_order(columns: PackedColumns, types: Positions, groups: Positions) -> Positions:
    """The groups by their figures, whatever their numbers: gang, rates alone, then all they meet, sorted."""
    alone = columns.alone[np.ix_(groups, types)]
    keys = [columns.group_scale_factors[groups], *alone.T]
    ranked = np.lexsort(keys[::-1])
    rows = np.column_stack(keys)[ranked]
    if (rows[1:] == rows[:-1]).all(axis=1).any():
        together = columns.together[np.ix_(groups, groups, types)]
        both = np.concatenate([together, together.transpose(1, 0, 2)], axis=2)
        met = np.sort(both, axis=1).reshape(len(groups), -1)
        weight = spread_weights(met.shape[1])
        keys.append((met * weight).sum(axis=1))
        ranked = np.lexsort(keys[::-1])
    return groups[ranked]
