"""Whole columns near the relaxation: a search among the few variables that can matter.

By weak duality a whole variable that is elsewhere than at the better of its limits loses at least its reduced cost
against the bound of the relaxation. Jobs couple through few rows of capacity, so the optimum is close to that bound,
and all but a few hundred variables would lose more than is missing: these stay where the relaxation has them. What is
found among the others proves that, or how far it may be from the best; then twice as many are searched, as far as that.

Source: E. Balas and E. Zemel, "An Algorithm for Large Zero-One Knapsack Problems", Operations Research 28 (1980), for
one row of capacity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formulations.columns.written import Written
from formulations.core.solution import InfeasibleError
from throughputs.arrays import Flags, Floats

_MORE_THAN_ROWS = 256
"""Variables that are open at first beyond as many as there are rows, which is how many a vertex may have between its
limits."""

_ROUNDING = 1e-9
"""Relative to the largest cost: reduced costs that differ by less are equal."""

Search = Callable[[Flags, Floats, Floats | None], tuple[Floats, float, bool]]
"""Searches the variables that are open (V,), the others being at their values in a point (V,), from a known point; says
what point (V,) was found, what no point with the others where they are exceeds, and whether it came to its end."""


def search_near(
    written: Written, cost: Floats, multipliers: Floats, aim: float, search: Search
) -> tuple[Floats, float]:
    """The point of the most `cost` z with whole variables whole, and a bound that no point exceeds.

    Parameters
    ----------
    multipliers : (rows,) of the relaxation.
    aim : a bound so little above a point proves it.

    Raises
    ------
    InfeasibleError
        There is no such point.
    """
    most, left = written.dual(cost, multipliers)
    loss = np.where(written.whole, np.abs(left), 0.0)
    better = np.where(left > 0, written.upper, written.lower)
    rounding, ascending = _ROUNDING * float(np.abs(cost).max(initial=0.0)), np.sort(loss)
    rows, more, needed, start = len(written.row_lower), _MORE_THAN_ROWS, np.inf, None
    while True:
        last = min(rows + more, len(loss)) - 1
        opened = loss <= min(float(ascending[last]), needed) + rounding
        elsewhere = most - float(loss[~opened].min(initial=np.inf))
        # equal losses are opened together
        more = 2 * max(int(np.count_nonzero(opened)) - rows, more)
        try:
            start, bound, proven = search(opened, better, start)
        except InfeasibleError:
            if opened.all():
                raise
            continue
        value = float(np.add.reduce(cost * start))
        if elsewhere <= value + aim or not proven:
            return start, max(bound, elsewhere)
        needed = most - value
