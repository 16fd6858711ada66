"""Words for figures: comparisons that are true of what is compared.

Findings never say "less" by themselves. They ask here, so that another run gives other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures.means import interval
from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

ALIKE = 0.005
"""Figures that differ by less than this fraction of the second are called the same."""


def few(count: int) -> str:
    """A count in words up to twelve, else in digits."""
    return NUMBERS[count] if 0 <= count < len(NUMBERS) else f"{count:,}"


def listed(parts: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def sentence(text: str) -> str:
    """The same with a capital at the start and a point at the end."""
    return f"{text[0].upper()}{text[1:]}."


def compared(figure: float, base: float, *, more: str, less: str, same: str = "about the same") -> str:
    """How a figure stands to another: ``24 % shorter``, ``1.4 % longer``, ``about the same``.

    Parameters
    ----------
    figure, base : positive, in the same unit.
    more, less : what follows the difference in per cent of `base`; `same` stands for less than half a per cent.
    """
    difference = figure / base - 1.0
    if abs(difference) < ALIKE:
        return same
    digits = 0 if abs(difference) >= 0.0995 else 1
    return f"{100 * abs(difference):.{digits}f} % {more if difference > 0 else less}"


def plus_minus(figures: Iterable[float], *, unit: float = 1.0, digits: int = 1, name: str = "") -> str:
    """Mean and half width of its 95 % confidence interval: ``18.2 ± 1.1 h``; the mean alone of a single figure."""
    mean, half_width = interval(np.asarray(list(figures), dtype=np.float64) / unit)
    width = f" \N{PLUS-MINUS SIGN} {half_width:.{digits}f}" if np.isfinite(half_width) else ""
    return f"{mean:.{digits}f}{width}{f' {name}' if name else ''}"


class Paired:
    """Two variants on the same draws.

    Attributes
    ----------
    first, second : (S,) figures of the variants by draw, both known.
    """

    def __init__(self, first: Sequence[float], second: Sequence[float]) -> None:
        self.first = np.asarray(first, dtype=np.float64)
        self.second = np.asarray(second, dtype=np.float64)

    @property
    def means(self) -> tuple[float, float]:
        """Means over the draws."""
        return float(self.first.mean()), float(self.second.mean())

    def difference(self) -> tuple[float, float]:
        """First minus second, mean over draws, and half width of its confidence interval; nan for one draw."""
        return interval(self.first - self.second)

    def agreement(self) -> str:
        """In how many draws the first is on the side on which it is in the mean: ``in each of the three draws``."""
        draws = len(self.first)
        same = int(((self.first < self.second) == (self.means[0] < self.means[1])).sum())
        if draws == 1:
            return "in the one draw that was made"
        return f"in each of the {few(draws)} draws" if same == draws else f"in {few(same)} of {few(draws)} draws"

    def on_same_jobs(self, unit: str = "h", digits: int = 1) -> str:
        """Agreement, and the paired difference with its 95 % interval, with a word where draws alone may explain it."""
        mean, half_width = self.difference()
        if not np.isfinite(half_width):
            return self.agreement()
        width = f"{abs(mean):.{digits}f} \N{PLUS-MINUS SIGN} {half_width:.{digits}f} {unit}".rstrip()
        doubt = "" if abs(mean) > half_width else ", no more than draws of jobs differ by"
        return f"{self.agreement()} (difference on the same jobs {width}{doubt})"


def paired(results: pd.DataFrame, *, value: str, series: str, first: str, second: str, unit: float = 1.0) -> Paired:
    """A figure of two variants, seed by seed, of runs that completed.

    Raises
    ------
    InputError
        There is no seed that both have completed.
    """
    done = results[results["status"] == "completed"].pivot_table(index="seed", columns=series, values=value)
    both = done.reindex(columns=[first, second]).dropna() / unit
    if not len(both):
        raise InputError(
            "results of a sweep", field=series, found=f"{first}, {second}", expected="runs of both on one seed"
        )
    return Paired(both[first].to_numpy(), both[second].to_numpy())
