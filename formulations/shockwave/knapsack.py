"""Rounds to jobs under one capacity, exactly, when every width divides the next wider one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from throughputs.arrays import Floats, Ints, Positions


def divides(widths: Ints) -> bool:
    """Whether each of the distinct widths divides the next wider one."""
    distinct = np.unique(widths)
    return bool((distinct[1:] % distinct[:-1] == 0).all())


@dataclass(frozen=True, eq=False)
class _Level:
    """Jobs of one width.

    Attributes
    ----------
    width : GPUs per job.
    items : positions of the jobs' rounds in the flat table of gains, best first.
    per_round : jobs of this width that a round holds.
    single : places of a window that hold a job of this width, and none of the next wider one.
    group : jobs of this width in a place of the next wider one (1 for the widest).
    """

    width: int
    items: Positions
    per_round: int
    single: int
    group: int


@dataclass(frozen=True, eq=False)
class DivisibleKnapsack:
    """Best numbers of rounds ``n_j``, at least a given floor::

        max  sum_j sum_{n <= n_j} gain_jn
        s.t. sum_{j: w_j >= w} (w_j / w) n_j <= R floor(G / w)     for every width w that occurs
             floor_j <= n_j <= R

    with gains that do not rise along a row. The rows of the program follow from room for every job in every round;
    where G is a multiple of the widest width they say no more than ``sum_j w_j n_j <= R G``.

    From the narrowest width up: places that hold no wider job go to the best rounds at hand, and the others are
    filled with groups of rounds, best first, which then compete with the rounds of the next width. Exact, since an
    exchange argument allows any solution to be brought into this form, and only comparisons between gains and sums of
    a few of them are made, so gains of any scales may stand side by side.

    Parameters
    ----------
    gains : (N, R) value of the n-th round of each job, at least 0; 0 for jobs wider than the cluster.
    widths : (N,) with each distinct width dividing the next.
    gpus : G.
    """

    gains: Floats
    widths: Ints
    gpus: int

    @cached_property
    def levels(self) -> tuple[_Level, ...]:
        """The widths that the cluster holds, narrowest first."""
        n_rounds = self.gains.shape[1]
        distinct = [int(width) for width in np.unique(self.widths) if width <= self.gpus]
        levels = []
        for width, wider in pairwise([*distinct, 0]):
            rows = np.flatnonzero(self.widths == width)
            flat = (rows[:, None] * n_rounds + np.arange(n_rounds)).ravel()
            best_first = flat[np.argsort(-self.gains.ravel()[flat], kind="stable")]
            group = wider // width if wider else 1
            per_round = self.gpus // width
            single = n_rounds * (per_round - group * (self.gpus // wider) if wider else per_round)
            levels.append(_Level(width, best_first, per_round, single, group))
        return tuple(levels)

    def fits(self, rounds_per_job: Ints) -> bool:
        """Whether these numbers of rounds fulfil the rows."""
        if (rounds_per_job[self.widths > self.gpus] > 0).any():
            return False
        n_rounds = self.gains.shape[1]
        loads = rounds_per_job * self.widths
        return all(loads[self.widths >= lv.width].sum() <= n_rounds * lv.per_round * lv.width for lv in self.levels)

    def best(self, floors: Ints) -> Ints | None:
        """(N,) best numbers of rounds that are at least the floors; None where none fit."""
        if not self.fits(floors):
            return None
        n_rounds = self.gains.shape[1]
        values = np.where(np.arange(n_rounds) < floors[:, None], np.inf, self.gains).ravel()
        chosen = [np.empty(0, dtype=np.intp)]
        carried_values, carried = np.empty(0), np.empty((0, 1), dtype=np.intp)
        for level in self.levels:
            own = values[level.items]
            forced = np.isinf(own)
            items = np.concatenate((level.items[forced], level.items[~forced]))
            room = n_rounds * level.per_round
            items = items[:room]
            rows = np.full((len(items), carried.shape[1]), -1, dtype=np.intp)
            rows[:, 0] = items
            at_hand = np.concatenate((carried_values, values[items]))
            order = np.argsort(-at_hand, kind="stable")[:room]
            groups = np.concatenate((carried, rows))[order]
            chosen.append(groups[: level.single].ravel())
            carried_values, carried = _grouped(at_hand[order][level.single :], groups[level.single :], level.group)
        picked = np.concatenate(chosen)
        picked = picked[picked >= 0]
        picked = picked[values[picked] > 0]
        return np.bincount(picked // n_rounds, minlength=len(self.widths)).astype(np.int64)


def _grouped(values: Floats, members: Positions, size: int) -> tuple[Floats, Positions]:
    """Groups of `size` neighbours in order; the last one may be smaller."""
    if size == 1:
        return values, members
    missing = -len(values) % size
    if missing:
        values = np.concatenate((values, np.zeros(missing)))
        members = np.concatenate((members, np.full((missing, members.shape[1]), -1, dtype=np.intp)))
    return values.reshape(-1, size).sum(axis=1), members.reshape(-1, size * members.shape[1])
