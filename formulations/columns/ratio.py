"""The largest ratio of two sums, by a sequence of programs with one sum.

Dinkelbach's method (Management Science 13(7), 1967): a ratio N(x) / D(x) with D > 0 is at most r exactly when no x is
worth more than 0 in ``N(x) - r D(x)``. The optimum of that at the ratio found so far has a better ratio, and the steps
are Newton's on a convex function, so a few programs suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

NEGLIGIBLE_SPENDING = 1e-9
"""Part of what is gained up to which limits are worth nothing."""

_MOST_PROGRAMS = 40

_SAME, _PROVEN = 1e-14, 1e-11
"""Relative improvement of a ratio that is none, and distance from its bound at which it is the largest."""


@dataclass(frozen=True, eq=False)
class LargestRatio(Generic[T]):
    """The answer of the largest `ratio`, and the answer `proof`, at the ratio `proven_at`, that proves its `bound`."""

    best: T
    ratio: float
    bound: float
    proof: T
    proven_at: float


def largest_ratio(at: Callable[[float], tuple[T, float, float]], start: float, least: float) -> LargestRatio[T]:
    """The largest ratio N / D.

    Parameters
    ----------
    at : for a ratio r the optimum of ``N - r D``, the ratio N / D there, and a bound b on ``N - r D``, which proves
        that no ratio exceeds ``r + b / least``.
    start : a ratio to begin at, no larger than the largest.
    least : above 0, at most D at any point.
    """
    ratio, bound = start, float("inf")
    best: T | None = None
    for _ in range(_MOST_PROGRAMS):
        answer, attained, left = at(ratio)
        proven = ratio + max(left, 0.0) / least
        if proven < bound or best is None:
            bound, proof, proven_at = proven, answer, ratio
        if best is not None and attained <= ratio + _SAME * abs(ratio):
            break
        best, ratio = answer, attained
        if bound <= ratio + _PROVEN * abs(ratio):
            break
    assert best is not None
    return LargestRatio(best, ratio, max(bound, ratio), proof, proven_at)
