"""Real powers that are the same on every processor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.numerics.elementary import exp, log

Array = NDArray[np.float64]


def power(base: ArrayLike, exponent: float) -> Array:
    """Each entry of `base`, above 0, to the power of `exponent`; roots and quotients where these do."""
    x = np.asarray(base, dtype=np.float64)
    size = abs(exponent)
    if size in (0.5, 1.0, 2.0):
        raised = np.sqrt(x) if size == 0.5 else x if size == 1.0 else x * x
        return np.asarray(1.0 / raised if exponent < 0 else raised, dtype=np.float64)
    return exp(exponent * log(x))
