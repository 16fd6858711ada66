"""Stated maxima: what is beyond them is refused before memory runs out, with a word about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from throughputs.errors import InputError


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

LATEST_TIME = 1e12
"""Seconds, some thirty thousand years: until then a clock tells tenths of a millisecond apart."""

LARGEST_UNPACKED = 2 * 2**30
"""Bytes that a compressed file may unpack to: a line of some 200 bytes, as sacct prints it, for each of `MOST_JOBS`."""

MOST_JOBS = 10_000_000
"""Jobs of one trace, at most; the longest public ones have 3.4 million."""


def check_number_of_jobs(n_jobs: int, source: object, field: str = "n_jobs") -> None:
    """Raise `InputError` for fewer than 0 jobs, or more than `MOST_JOBS`."""
    if n_jobs < 0:
        raise InputError(source, field=field, found=n_jobs, expected="at least 0")
    if n_jobs > MOST_JOBS:
        raise InputError(source, field=field, found=n_jobs, expected=f"at most {MOST_JOBS:,} jobs")
