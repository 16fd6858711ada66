"""The types of arrays, by what they hold; docstrings say the shape, as (N,)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

Texts: TypeAlias = NDArray[np.object_]
"""Of `str`, or of other objects where the docstring says so."""

Names: TypeAlias = Sequence[str] | Texts
Sizes: TypeAlias = Sequence[int] | Ints
Numbers: TypeAlias = Sequence[float] | Floats
"""What is given for jobs, one of each: lists do as well as arrays."""

Positions: TypeAlias = NDArray[np.intp]
"""Places in another array, as NumPy returns them."""

Dates: TypeAlias = NDArray[np.datetime64]
"""In UTC; NaT for none."""

Values: TypeAlias = NDArray[Any]
"""Of any kind."""
