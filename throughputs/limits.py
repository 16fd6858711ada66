"""What values may be: ranges, stated maxima, beyond which memory would run out, and checks that say what is wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Flags, Ints, Values
from throughputs.errors import InputError, did_you_mean, expect


@dataclass(frozen=True)
class Range:
    """The numbers that a setting or a column may have; stands behind the type of a setting in `Annotated`.

    Attributes
    ----------
    least, most : both included, unless `above` leaves the least out.
    """

    least: float = 0.0
    most: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return bool(self.holds(value))

    def holds(self, values: Any) -> Any:
        """Whether a number, or each number of an array, is one of these; nan never is."""
        return ((self.least < values) if self.above else (self.least <= values)) & (values <= self.most)

    def __str__(self) -> str:
        low = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
        return f"{low}, at most {self.most:g}" if self.most < math.inf else low


LARGEST_WHOLE_NUMBER = 2**53
"""Whole numbers beyond it are not exact as floats, which is what most of them become."""

AMOUNT = Range(1e-6, 1e15)
"""Weights and the like: programs over numbers of other sizes have no good solution, for any of the jobs."""

LEAST_STEPS = 1e-6
"""Of a job: rates and ratios of fewer are lost in rounding."""

LATEST_TIME = 1e12
"""Seconds, some thirty thousand years: until then a clock tells tenths of a millisecond apart."""

LARGEST_UNPACKED = 2 * 2**30
"""Bytes that a compressed file may unpack to: a line of some 200 bytes, as sacct prints it, for each of `MOST_JOBS`."""

MOST_JOBS = 10_000_000
"""Jobs of one trace, at most; the longest public ones have 3.4 million."""


def check_number_of_jobs(n_jobs: int, source: object, field: str = "n_jobs") -> None:
    """Raise `InputError` for fewer than 0 jobs, or more than `MOST_JOBS`."""
    expect(n_jobs >= 0, source, field, n_jobs, "at least 0")
    expect(n_jobs <= MOST_JOBS, source, field, n_jobs, f"at most {MOST_JOBS:,} jobs")


def require(
    good: Flags,
    values: Any,
    source: object,
    name: str,
    expected: str,
    first_line: int = 1,
    words: Any = None,
) -> None:
    """Raise `InputError` for the first row whose value is not good, with the word that is closest to it, if any."""
    if not good.all():
        row = int(np.argmin(good))
        found = values[row : row + 1].tolist()[0]
        hint = did_you_mean(found, words) if isinstance(words, tuple) else ""
        found = None if isinstance(found, float) and found != found else found
        raise InputError(source, line=first_line + row, field=name, found=found, expected=expected + hint)


def require_all(good: Flags, values: Values, source: object, where: Callable[..., str], expected: str) -> None:
    """Raise `InputError` for the first entry of an array that is not good; `where` names it by its positions."""
    if not good.all():
        at = tuple(int(i) for i in np.argwhere(~good)[0])
        raise InputError(source, field=where(*at), found=values[at].item(), expected=expected)


def require_distinct(labels: Sequence[Any], source: object, field: str) -> None:
    """Raise `InputError` for a label that is there twice, or is neither a number nor text."""
    try:
        distinct = len(set(labels)) == len(labels)
    except TypeError as error:
        raise InputError(source, field=field, found=str(error), expected="numbers or text") from None
    if not distinct:
        repeated = next(label for label, count in Counter(labels).items() if count > 1)
        raise InputError(source, field=field, found=repeated, expected="distinct labels")


def whole_numbers(values: ArrayLike, source: object, field: str) -> Ints:
    """The values as whole numbers; raises `InputError` where they are none, or too large to be exact."""
    array = np.asarray(values)
    whole = not array.size or (array.dtype.kind in "iuf" and np.array_equal(array, np.rint(array)))
    if not whole or (array.size and np.abs(array).max() > LARGEST_WHOLE_NUMBER):
        raise InputError(source, field=field, found=array.tolist(), expected="whole numbers")
    return array.astype(np.int64)
