"""Which iterate of an interior point method is its answer, and when there is no better one to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

__all__ = ["NEARLY_SOLVED", "Progress"]

NEARLY_SOLVED = 1e-5
"""Relative gap from which iterates are compared: further off, residuals do not say which is best."""

_PATIENCE = 4
"""Iterates without progress, near the optimum, after which rounding has stopped it."""

Point = TypeVar("Point")


class Progress(Generic[Point]):
    """The best iterate so far, `best`, beginning with the first one."""

    def __init__(self, first: Point) -> None:
        self.best = first
        self._merit, self._stalled = np.inf, 0

    def see(self, gap: float, merit: float, snapshot: Callable[[], Point], *, last: bool = False) -> None:
        """Take note of an iterate with a relative gap and a merit (the less the better); `last`: there is no other."""
        if gap < NEARLY_SOLVED:
            if merit < self._merit:
                self.best, self._merit, self._stalled = snapshot(), merit, 0
            else:
                self._stalled += 1
        elif last or self._merit == np.inf:
            self.best = snapshot()

    @property
    def stopped(self) -> bool:
        """Whether rounding has stopped all progress."""
        return self._stalled > _PATIENCE
