"""The types of arrays, by what they hold (docstrings say the shape, as (N,)), and bases of dataclasses of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias, cast

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


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """The array, into which nobody can write from now on."""
    values.flags.writeable = False
    return values


class Rowed:
    """Base of a dataclass whose arrays have an entry for each of its rows."""

    def __len__(self) -> int:
        whole: Any = self
        return len(getattr(self, fields(whole)[0].name))

    def take(self, rows: Any) -> Self:
        """Some of the rows, by position or by mask; they are not checked again."""
        whole, made = cast(Any, self), object.__new__(type(self))
        for each in fields(whole):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray | Rowed):
                value = value.take(rows) if isinstance(value, Rowed) else value[rows]
            object.__setattr__(made, each.name, value)
        return made


def offsets_of(lengths: Any) -> Ints:
    """(N + 1,) where the entries of each of N jobs begin, and those of the last end, from (N,) how many each has."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def ragged_rows(offsets: Ints, some: Any) -> tuple[Ints, Ints]:
    """Offsets, and places of the entries, of `some` (positions) of ragged arrays, in that order; those of i stand from
    ``offsets[i]`` to ``offsets[i + 1] - 1``.
    """
    starts = offsets[:-1][some]
    lengths = offsets[1:][some] - starts
    ends = offsets_of(lengths)
    return ends, np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)


class Ragged:
    """Base of a dataclass with arrays of N jobs: those `per_job` have an entry for each, the others any number, one job
    after the other: those of job i stand from ``offsets[i]`` to ``offsets[i + 1] - 1``.
    """

    per_job: ClassVar[tuple[str, ...]] = ()
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def job(self) -> Ints:
        """The job (position) of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, jobs: Ints | Positions) -> Self:
        """Some of the jobs (positions), in that order."""
        offsets, rows = ragged_rows(self.offsets, jobs)
        return self._with(offsets, lambda name: getattr(self, name)[jobs if name in self.per_job else rows])

    def joined(self, later: Self) -> Self:
        """These jobs, and behind them those of `later`."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + later.offsets[1:]])
        return self._with(offsets, lambda name: np.concatenate([getattr(self, name), getattr(later, name)]))

    def _with(self, offsets: Ints, column: Callable[[str], Values]) -> Self:
        whole: Any = self
        columns = {each.name: column(each.name) for each in fields(whole) if each.name != "offsets"}
        made: Self = replace(whole, offsets=offsets, **columns)
        return made
