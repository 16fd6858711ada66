"""Any number of rows for each of N jobs: the rows of all jobs one behind the other, and where those of each begin."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray


def row_offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N + 1,) where the rows of N jobs begin, of which each has so many, and where the last ones end."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def ragged_rows(offsets: NDArray[np.int64], some: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets, and positions of the rows, of `some` of the jobs (positions), in that order."""
    starts = offsets[:-1][some]
    lengths = offsets[1:][some] - starts
    ends = row_offsets(lengths)
    return ends, np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)


@dataclass(frozen=True, eq=False)
class Ragged:
    """A dataclass of arrays, those in `per_row` with an entry for each row, the others with one for each of N jobs.

    Attributes
    ----------
    offsets : (N + 1,) job i has the rows from ``offsets[i]`` to ``offsets[i + 1] - 1``.
    """

    per_row: ClassVar[tuple[str, ...]] = ()

    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def job(self) -> NDArray[np.int64]:
        """(R,) position of the job of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, jobs: NDArray[np.int64] | NDArray[np.intp]) -> Self:
        """Some of the jobs (positions), in that order."""
        offsets, rows = ragged_rows(self.offsets, jobs)
        columns = {name: getattr(self, name)[rows if name in self.per_row else jobs] for name in self._columns()}
        return replace(self, offsets=offsets, **columns)

    def joined(self, later: Self) -> Self:
        """These jobs, and behind them those of `later`."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + later.offsets[1:]])
        columns = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in self._columns()}
        return replace(self, offsets=offsets, **columns)

    def _columns(self) -> list[str]:
        return [field.name for field in fields(self) if field.name != "offsets"]
