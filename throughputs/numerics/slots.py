"""Borders of slots as the clock shows them: whoever looks from one of them sees that one, and not its neighbour."""

from __future__ import annotations

from math import ceil, inf

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
