"""From jobs to classes: who can be served, who is interchangeable, in an order that depends on content alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.reductions import spread_weights
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import PackedProgram, useful_pairs
from throughputs.arrays import Flags, Floats, Positions
from throughputs.packed import PackedColumns


@dataclass(frozen=True, eq=False)
class Reduction:
    """A program over classes, and the way back.

    Attributes
    ----------
    served : (N,) whether the job gains anything from any column.
    types : positions of the accelerator types that have GPUs.
    jobs : (N',) positions of the served jobs, in canonical order: by group, then by what the objective wants of them.
    of : (N',) class of each of them, ascending.
    first : (K,) position of one job of each class.
    """

    program: PackedProgram | None
    served: Flags
    types: Positions
    jobs: Positions
    of: Positions
    first: Positions


def reduce(polytope: PackedPolytope, key: Floats) -> Reduction:
    """Classes of jobs that are equal in their group and in `key` (N, k).

    The program is convex and looks at interchangeable jobs alike, so averaging an optimum over their permutations
    gives an optimum in which they all have the same times alone and beside each group: one class stands for them. A
    job that gains nothing from any column takes no part, not even as somebody's partner.
    """
    columns = polytope.columns
    N, G = columns.n_jobs, len(columns.alone)
    types = np.flatnonzero(polytope.capacity > 0)
    alone, together = columns.alone[:, types], columns.together[:, :, types]
    sizes = columns.group_scale_factors.astype(np.float64)
    jobs_of = np.bincount(columns.group, minlength=G).astype(np.float64)
    useful = _without_idlers(alone, together, sizes, jobs_of)
    of_group = _gains(alone, together, useful) & (jobs_of > 0)
    served = of_group[columns.group] if N else np.zeros(0, dtype=bool)
    if not served.any():
        nobody = np.zeros(0, dtype=np.intp)
        return Reduction(None, served, types, nobody, nobody, nobody)
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
    program = PackedProgram(
        group=group[first],
        counts=np.diff(np.append(first, len(jobs))).astype(np.float64),
        alone=alone[groups],
        together=together[np.ix_(groups, groups)],
        scale_factors=sizes[groups],
        capacity=polytope.capacity[types],
        useful=useful[np.ix_(groups, groups)],
    )
    return Reduction(program, served, types, jobs, np.cumsum(begins) - 1, jobs[first])


def _gains(alone: Floats, together: Floats, useful: Flags) -> Flags:
    """(G,) whether a job of the group has a rate in any column."""
    return np.asarray((alone > 0).any(axis=1) | (useful & (together > 0)).any(axis=(1, 2)))


def _without_idlers(alone: Floats, together: Floats, sizes: Floats, jobs_of: Floats) -> Flags:
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
