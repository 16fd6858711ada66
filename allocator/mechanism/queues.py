"""Queues: the (row, type) of a ledger that may run in a round, by priority."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Flags = NDArray[np.bool_]


class Queues:
    """Orders the eligible (row, type) by priority; holds what stays the same from round to round.

    Priorities are given negated, (M, R), as sorting is ascending; those that are inf stay out of a round.

    Parameters
    ----------
    eligible : (M, R) the rows that may ever be chosen.
    ties : (M, R) arrays that decide between equal priorities, the most important last, smaller first; then the lower
        job id.
    """

    def __init__(self, eligible: _Flags, ties: Sequence[_Floats]) -> None:
        self.eligible = eligible
        # Ties are settled once: rows are stored in tie order, and the stable sort of a round keeps it.
        self._tie_order = np.lexsort(ties, axis=-1)
        self._row_start = eligible.shape[1] * np.arange(len(eligible))[:, None]
        self._rows = self._tie_order + self._row_start

    def per_type(self, negated: _Floats) -> list[list[int]]:
        """For each type the rows, as positions in the ledger, highest priority first."""
        values = negated.take(self._rows)
        order = values.argsort(axis=1, kind="stable")
        rows = self._tie_order.take(order + self._row_start)
        lengths = np.count_nonzero(values < np.inf, axis=1).tolist()
        return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]

    def merged(self, negated: _Floats, visit_order: Sequence[int]) -> tuple[list[int], list[int]]:
        """All rows and the type of each, highest priority first, equal ones in `visit_order` of the types."""
        visit = np.array(visit_order)
        values = negated.take(self._rows.take(visit, axis=0)).ravel()
        order = values.argsort(kind="stable")[: np.count_nonzero(values < np.inf)]
        rows = self._tie_order.take(visit, axis=0).ravel().take(order)
        return rows.tolist(), visit.take(order // self._tie_order.shape[1]).tolist()
