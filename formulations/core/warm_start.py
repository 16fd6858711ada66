"""Warm starts: what one decision leaves for the next, when some jobs have come and others have gone.

A decision about thousands of jobs leaves M prices and a level behind. As long as most jobs stay, they are near those of
the next decision, whoever the jobs are: nothing about single jobs has to be carried over. A start from them saves the
search for a first guess. It changes nothing else: the answer is certified as any other, and an attempt that does not
get there is followed by those from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from throughputs import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Start:
    """Prices (M,), finite, at least 0 and not all 0, and a level to begin from."""

    prices: Array
    level: float


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Prices and levels of a decision, for the next one (`formulations.solve`, parameter `warm`).

    Parameters
    ----------
    objective : name of the objective's class: another one has other prices.
    accelerators : names of the M types.
    prices : (L, M) for each program of the decision (water filling has one for each level, the others have one) the
        prices of the types: of a level in any unit, otherwise in that of the objective.
    levels : (L,) the level that each of them attained; 0 where there is none.

    Raises
    ------
    InputError
        Arrays of other shapes. Figures that make no sense are no error: such a start is not used.
    """

    objective: str
    accelerators: tuple[str, ...]
    prices: Array
    levels: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "prices", np.asarray(self.prices, dtype=np.float64))
        object.__setattr__(self, "levels", np.asarray(self.levels, dtype=np.float64))
        expected = (len(self.levels), len(self.accelerators))
        if self.levels.ndim != 1 or self.prices.shape != expected:
            raise InputError("warm start", field="prices", found=self.prices.shape, expected=f"shape {expected}")

    def starts(self, objective: str, accelerators: tuple[str, ...], types: NDArray[np.intp]) -> tuple[Start, ...]:
        """Where to begin on the `types` (positions) with GPUs among `accelerators`; empty where it says nothing.

        That is where another objective or other types are asked for, up to the first program without sensible figures.
        """
        if objective != self.objective or accelerators != self.accelerators:
            return ()
        found = []
        for prices, level in zip(self.prices[:, types], self.levels, strict=True):
            if not (np.isfinite(level) and np.isfinite(prices).all() and (prices >= 0).all() and prices.any()):
                break
            found.append(Start(prices, float(level)))
        return tuple(found)
