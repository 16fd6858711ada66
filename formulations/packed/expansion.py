"""From times beside groups to pairs of jobs.

For a pair of groups (a, b) on a type, lay the times of the jobs of a along a line, one after the other, and those of b
along the same line; both are equally long. Wherever job i of a and job k of b lie side by side, they share GPUs for
that length. This makes at most ``n_a + n_b - 1`` pairs of jobs out of ``n_a n_b``. Within one group the line is cut in
half and the halves are laid side by side; as no job is longer than half, none meets itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.solution import Pairs
from formulations.packed.program import PackedProgram
from throughputs.arrays import Flags, Floats, Positions

_SLIVER = 1e-11
"""Part of both members' times below which a length is rounding."""

_ROUNDING = 1e-14
"""The same as a part of the line."""


@dataclass(frozen=True, eq=False)
class _Side:
    """Intervals along the lines of many slots: job, slot, where it ends, how long it is; sorted by slot and end."""

    job: Positions
    slot: Positions
    end: Floats
    length: Floats


def expand(program: PackedProgram, shared: Floats, of: Positions, jobs: Positions) -> Pairs:
    """Pairs of jobs with the times of `shared` (K, G, M).

    Parameters
    ----------
    of : (N,) class of each job, ascending. jobs : (N,) position to report for each job.
    """
    side = program.total(shared)
    one, other, on = np.nonzero(side > 0)
    kept = one <= other
    one, other, on = one[kept], other[kept], on[kept]
    if not len(one):
        return Pairs.none()
    ends = np.searchsorted(of, np.append(program.starts, program.n_jobs))
    left = _along(shared, of, ends, one, other, on)
    right = _along(shared, of, ends, other, one, on)
    inside = one == other
    if inside.any():
        left, right = _halved(left, right, inside, np.bincount(left.slot, left.length, len(one)).astype(np.float64))
    first, second, slot, share = _side_by_side(left, right)
    first, second = jobs[first], jobs[second]
    first, second = np.minimum(first, second), np.maximum(first, second)
    type_ = on[slot]
    order = np.lexsort((type_, second, first))
    return Pairs(
        first[order].astype(np.int64), second[order].astype(np.int64), type_[order].astype(np.int64), share[order]
    )


def _along(
    shared: Floats, of: Positions, ends: Positions, group: Positions, partner: Positions, on: Positions
) -> _Side:
    """The jobs of each slot's group one after the other."""
    count = ends[group + 1] - ends[group]
    slot = np.repeat(np.arange(len(group)), count)
    start = np.cumsum(count) - count
    job = np.arange(len(slot)) - start[slot] + ends[group][slot]
    length = shared[of[job], partner[slot], on[slot]]
    # each line starts anew, so that its figures do not depend on the lines before
    table = np.zeros((len(group), int(count.max())))
    within = np.arange(len(slot)) - start[slot]
    table[slot, within] = length
    end = np.cumsum(table, axis=1)[slot, within]
    kept = length > 0
    return _Side(job[kept], slot[kept], end[kept], length[kept])


def _halved(left: _Side, right: _Side, inside: Flags, total: Floats) -> tuple[_Side, _Side]:
    """For slots inside one group: the first half of the line on the left, the second on the right."""
    half = np.where(inside, total / 2.0, np.inf)[left.slot]
    begin = left.end - left.length
    mine = begin < half
    first = _Side(left.job[mine], left.slot[mine], np.minimum(left.end, half)[mine], left.length[mine])
    half = np.where(inside, total / 2.0, 0.0)[right.slot]
    theirs = right.end > half
    second = _Side(right.job[theirs], right.slot[theirs], (right.end - half)[theirs], right.length[theirs])
    return first, second


def _side_by_side(left: _Side, right: _Side) -> tuple[Positions, Positions, Positions, Floats]:
    """(P,) left job, right job, slot and common length, wherever two intervals overlap."""
    slot = np.concatenate([left.slot, right.slot])
    end = np.concatenate([left.end, right.end])
    is_left = np.repeat([True, False], [len(left.slot), len(right.slot)])
    order = np.lexsort((~is_left, end, slot))
    slot, end, is_left = slot[order], end[order], is_left[order]
    # the interval of each side that covers the piece which ends here
    before_left = np.cumsum(is_left) - is_left
    before_right = np.cumsum(~is_left) - ~is_left
    i = np.minimum(before_left, len(left.job) - 1)
    k = np.minimum(before_right, len(right.job) - 1)
    begin = np.concatenate([[0.0], end[:-1]])
    begin[np.concatenate([[True], slot[1:] != slot[:-1]])] = 0.0
    length = end - begin
    real = length > _SLIVER * np.minimum(left.length[i], right.length[k]) + _ROUNDING * end
    real &= (left.slot[i] == slot) & (right.slot[k] == slot)
    return left.job[i][real], right.job[k][real], slot[real], length[real]
