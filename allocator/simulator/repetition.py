"""Many equal rounds as one step.

Where nothing can change, every round adds the same to every sum that the world keeps: to the clock, to the steps of
each job, to the time that it received. In floating point that holds exactly as long as no sum passes a power of two:
between two of them every addition of the same number is rounded in the same way. So two rounds are run to see what they
add, and then as many at once as stay below the next power of two of every sum; the result is that of running them one
by one, to the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_ROUNDS = 4096
"""Fewer equal rounds are run one by one, and are told apart in the tables."""

_Floats = NDArray[np.float64]


def equal_increments(first: Sequence[_Floats], second: Sequence[_Floats], third: Sequence[_Floats]) -> list[_Floats]:
    """What a round added to every sum, by the sums before, between and after two rounds.

    Zeros where the two did not add the same, or where a sum passed a power of two in them.
    """
    added = [b - a for a, b in zip(second, third, strict=True)]
    for a, b, c, step in zip(first, second, third, added, strict=True):
        if not (np.array_equal(b - a, step) and np.array_equal(np.frexp(a)[1], np.frexp(c)[1])):
            return [np.zeros_like(values) for values in added]
    return added


def rounds_ahead(sums: Sequence[_Floats], added: Sequence[_Floats]) -> int:
    """How many more rounds can be taken at once before a sum passes a power of two.

    Parameters
    ----------
    sums : as they are now.
    added : what each of the last two rounds added to them.
    """
    least = np.inf
    for values, step in zip(sums, added, strict=True):
        moving = step != 0
        if not moving.any():
            continue
        x, d = values[moving], step[moving]
        if not (np.isfinite(x).all() and (d > 0).all() and (x > 0).all()):
            return 0
        bound = np.ldexp(1.0, np.frexp(x)[1])
        least = min(least, float(np.floor((bound - x) / d).min()) - 1)
    return int(max(least, 0)) if np.isfinite(least) else 0


def advance(sums: Sequence[_Floats], added: Sequence[_Floats], rounds: int) -> None:
    """Add what so many rounds add, in place."""
    for values, step in zip(sums, added, strict=True):
        values += rounds * step
