"""From times of pairs of classes to pairs of jobs.

For a pair of classes on a type, lay the jobs of the one along a line, one after the other, and those of the other along
the same line; all jobs of a class have the same length. Wherever two jobs lie side by side, they share GPUs for that
length. This makes at most ``n + m - 1`` pairs of jobs out of ``n m``. Within one class the line is cut in half and the
halves are laid side by side; as no job is longer than half, none meets itself.
"""

from __future__ import annotations

import numpy as np

from formulations.core.solution import Pairs
from formulations.packed.program import PackedProgram
from throughputs.arrays import Floats, Ints, Positions


def expand(program: PackedProgram, shares: Floats, of: Positions, jobs: Positions, types: Positions) -> Pairs:
    """Pairs of jobs with the times of `shares` (C,).

    Parameters
    ----------
    of : (N,) class of each job, ascending. jobs : (N,) position to report for each job. types : (M,) of each type.
    """
    n = program.counts.astype(np.int64)
    begins = np.searchsorted(of, np.arange(len(n)))
    found = [np.zeros((4, 0))]
    for column in program.rates.size + np.flatnonzero(shares[program.rates.size :] > 0):
        one, other = program.members[column]
        first, second, part = _halves(n[one]) if one == other else _side_by_side(n[one], n[other])
        pair = np.sort([jobs[begins[one] + first], jobs[begins[other] + second]], axis=0)
        share = part * (n[one] * program.time[column, 0] * shares[column])
        found.append(np.stack([*pair, np.full(len(share), types[program.type[column]]), share]))
    first, second, type_, share = np.concatenate(found, axis=1)
    order = np.lexsort((type_, second, first))
    first, second, type_ = (each[order].astype(np.int64) for each in (first, second, type_))
    return Pairs(first, second, type_, share[order])


def _side_by_side(n: int, m: int) -> tuple[Positions, Positions, Floats]:
    """Who of n jobs lies beside whom of m, and for which part of the line, which is n m units long."""
    cuts: Ints = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    return (cuts - 1) // m, (cuts - 1) // n, np.diff(cuts, prepend=0) / (n * m)


def _halves(n: int) -> tuple[Positions, Positions, Floats]:
    """The same for the halves of a line of n jobs of two units each."""
    ends = 2 * np.arange(1, n + 1)
    cuts: Ints = np.union1d(ends[ends <= n], ends[ends > n] - n)
    return (cuts - 1) // 2, (cuts - 1 + n) // 2, np.diff(cuts, prepend=0) / (2 * n)
