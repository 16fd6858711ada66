"""From times beside groups to pairs of jobs.

For a pair of groups (a, b) on a type, lay the times of the jobs of a along a line, one after the other, and those of b
along the same line; both are equally long. Wherever job i of a and job k of b lie side by side, they share GPUs for
that length. This makes at most ``n_a + n_b - 1`` pairs of jobs out of ``n_a n_b``. Within one group the line is cut in
half and the halves are laid side by side; as no job is longer than half, none meets itself.
"""

from __future__ import annotations

import numpy as np

from formulations.core.solution import Pairs
from formulations.packed.program import PackedProgram
from throughputs.arrays import Floats, Positions

_SLIVER = 1e-11
"""Part of both members' times below which a length is rounding."""

_ROUNDING = 1e-14
"""The same as a part of the line."""


def expand(program: PackedProgram, shares: Floats, of: Positions, jobs: Positions, types: Positions) -> Pairs:
    """Pairs of jobs with the times of `shares` (C,).

    Parameters
    ----------
    of : (N,) class of each job, ascending. jobs : (N,) position to report for each job. types : (M,) of each type.
    """
    (one, other), g = program.members[: len(shares)].T, program.group
    beside = np.zeros((len(g), len(program.together), len(types)))
    times, on = program.time[: len(shares)] * shares[:, None], program.type[: len(shares)]
    paired = np.flatnonzero((np.arange(len(shares)) >= program.rates.size) & (shares > 0))
    one, other, times, on = one[paired], other[paired], times[paired], on[paired]
    np.add.at(beside, (one, g[other], on), times[:, 0])
    np.add.at(beside, (other, g[one], on), times[:, 1])
    ends = np.searchsorted(of, np.append(program.starts, len(g)))
    found = [np.zeros((4, 0))]
    slots = np.sort(np.stack([g[one], g[other]]), axis=0)
    for a, b, j in np.unique([*slots, on], axis=1).T:
        members = [np.arange(ends[group], ends[group + 1]) for group in (a, b)]
        left, right = beside[of[members[0]], b, j], beside[of[members[1]], a, j]
        first, second, share = _side_by_side(left, right, halved=a == b)
        pair = np.sort([jobs[members[0][first]], jobs[members[1][second]]], axis=0)
        found.append(np.stack([*pair, np.full(len(share), types[j]), share]))
    first, second, type_, share = np.concatenate(found, axis=1)
    order = np.lexsort((type_, second, first))
    first, second, type_ = (each[order].astype(np.int64) for each in (first, second, type_))
    return Pairs(first, second, type_, share[order])


def _side_by_side(left: Floats, right: Floats, *, halved: bool) -> tuple[Positions, Positions, Floats]:
    """Who lies beside whom on two lines of times, and for how long; `halved`: on the two halves of one line."""
    line, beside = np.cumsum(left), np.cumsum(right)
    length, skipped = (line[-1] / 2.0, line[-1] / 2.0) if halved else (line[-1], 0.0)
    cuts = np.unique(np.concatenate([line, beside - skipped, [length]]))
    cuts = cuts[(cuts > 0) & (cuts <= length)]
    shared = np.diff(cuts, prepend=0.0)
    middle = cuts - shared / 2.0
    i = np.searchsorted(line, middle)
    k = np.minimum(np.searchsorted(beside, middle + skipped), len(right) - 1)
    real = shared > _SLIVER * np.minimum(left[i], right[k]) + _ROUNDING * cuts
    return i[real], k[real], shared[real]
