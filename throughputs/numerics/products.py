"""Products of vectors and matrices as sums of one order, and quotients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

einsum: Callable[..., Any] = getattr(np.einsum, "__wrapped__", np.einsum)
"""`numpy.einsum` itself, without the search for operands that are no arrays of NumPy, which outlasts short sums."""

_SUBSCRIPTS = {
    (1, 1): "i,i",
    (2, 1): "ij,j->i",
    (1, 2): "i,ij->j",
    (2, 2): "ij,jk->ik",
    (3, 1): "hij,j->hi",
    (2, 3): "ij,hjk->hik",
}


def dot(a: NDArray[Any], b: NDArray[Any]) -> float:
    """``a . b`` of two vectors by NumPy's pairwise sum, whose order is the same on every processor."""
    return float(np.add.reduce(a * b))


def matmul(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """``a @ b`` for vectors and matrices by `numpy.einsum`, whose loops are the same on every processor.

    A stack of matrices may be multiplied by a vector, and a matrix by a stack.
    """
    return einsum(_SUBSCRIPTS[a.ndim, b.ndim], a, b)


def quotient(dividend: NDArray[np.float64], divisor: NDArray[np.float64], otherwise: float) -> NDArray[np.float64]:
    """(n,) dividend / divisor where the divisor is above 0, `otherwise` elsewhere."""
    usable = divisor > 0
    if np.count_nonzero(usable) == len(divisor):
        return np.asarray(dividend / divisor)
    result = np.full(len(divisor), otherwise)
    np.divide(dividend, divisor, out=result, where=usable)
    return result
