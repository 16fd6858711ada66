"""Products as sums of one order, quotients, borders of slots, and the order of labels by which ties are broken.

Borders of slots are compared as the clock shows them: whoever looks from one of them sees that one, not its neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import ceil, inf
from typing import Any

import numpy as np

from throughputs.arrays import Floats, Positions, Values

_wrapped: Any = getattr(np.einsum, "__wrapped__", np.einsum)
einsum: Callable[..., Any] = getattr(_wrapped, "__globals__", {}).get("c_einsum", np.einsum)
"""`numpy.einsum` itself, without the search for operands that are no arrays of NumPy, which outlasts short sums."""

_SUBSCRIPTS = {
    (1, 1): "i,i",
    (2, 1): "ij,j->i",
    (1, 2): "i,ij->j",
    (2, 2): "ij,jk->ik",
    (3, 1): "hij,j->hi",
    (2, 3): "ij,hjk->hik",
}


def dot(a: Values, b: Values) -> float:
    """``a . b`` of two vectors by NumPy's pairwise sum, whose order is the same on every processor."""
    return float(np.add.reduce(a * b))


def matmul(a: Values, b: Values) -> Any:
    """``a @ b`` for vectors and matrices by `numpy.einsum`, whose loops are the same on every processor.

    A stack of matrices may be multiplied by a vector, and a matrix by a stack.
    """
    return einsum(_SUBSCRIPTS[a.ndim, b.ndim], a, b)


def quotient(dividend: Values, divisor: Values, otherwise: float) -> Floats:
    """(n,) dividend / divisor where the divisor is above 0, `otherwise` elsewhere."""
    usable = divisor > 0
    if np.count_nonzero(usable) == len(divisor):
        return np.asarray(dividend / divisor)
    result = np.full(len(divisor), otherwise)
    np.divide(dividend, divisor, out=result, where=usable)
    return result


_COUNTABLE = 2.0**53
"""Slots from which on a time is at the border of one, as far as floats tell."""


def slot_end(origin: float, slot: float, time: float) -> float:
    """The first of the borders ``origin + k slot`` that is not before `time`, seconds; `time` itself without slots.

    >>> slot_end(0.1, 0.2, 0.1 + 3 * 0.2) == 0.1 + 3 * 0.2
    True
    """
    slots = (time - origin) / slot if slot else inf
    if not slots < _COUNTABLE:
        return time
    # the quotient is rounded: borders, compared as they are, say which of two slots it is
    k = ceil(slots)
    if origin + k * slot < time:
        k += 1
    elif origin + (k - 1) * slot >= time:
        k -= 1
    return origin + k * slot


def slot_begin(origin: float, slot: float, time: float) -> float:
    """The last of the borders ``origin + k slot`` that is not after `time`, seconds; `time` itself without slots."""
    return -slot_end(-origin, slot, -time)


def interval_means(start: Floats, end: Floats, height: Floats, edges: Floats) -> Floats:
    """Mean over each bin of the sum of rectangular pulses, exactly.

    Parameters
    ----------
    start, end, height : (K,) pulse k has `height[k]` from `start[k]` to `end[k]`, seconds.
    edges : (B + 1,) ascending edges of the bins, seconds.

    Returns
    -------
    (B,) time-weighted means, by differences of the integral at the edges: linear in K, whatever the bins.
    """
    if not len(start):
        return np.zeros(len(edges) - 1)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    times = times[order]
    slope = np.cumsum(np.concatenate([height, -height])[order])
    integral = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    means: Floats = np.diff(np.interp(edges, times, integral)) / np.diff(edges)
    return means


def tie_order(labels: Sequence[Hashable]) -> Positions:
    """(N,) positions of the labels in order: whole numbers ascending, then all others by their text."""
    numbers = np.asarray(labels)
    if numbers.dtype.kind == "i":
        return numbers.argsort(kind="stable")

    def key(i: int) -> tuple[bool, int, str]:
        label = labels[i]
        if isinstance(label, int | np.integer):
            return False, int(label), ""
        return True, 0, str(label)

    return np.array(sorted(range(len(labels)), key=key), dtype=np.intp)
