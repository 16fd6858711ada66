"""Tie order: an order of jobs, or of pools, that depends on their labels alone, to draw at random or break ties."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def tie_order(labels: Sequence[Hashable]) -> NDArray[np.intp]:
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
