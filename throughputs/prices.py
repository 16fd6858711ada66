"""Prices of accelerators: constant, or histories that change in steps.

>>> prices = PriceTable.constant({"v100": 0.74, "k80": 0.135})
>>> prices.price_at(3600.0, ["k80", "v100"])
array([0.135, 0.74 ])
>>> prices.cost(0.0, 7200.0, ["v100"])  # dollars for one GPU over two hours
array([1.48])
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError, one_of
from throughputs.files import read_rows, write_rows
from throughputs.frames import FINITE, NOT_NEGATIVE, Column, FrameReader

if TYPE_CHECKING:
    import pandas as pd

PREEMPTIBLE_PRICES: Mapping[str, float] = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
"""Dollars per GPU hour of preemptible GPUs on one cloud. Source: D. Narayanan et al., OSDI 2020, public artifact."""

_SECONDS_PER_HOUR = 3600.0

_TIMES = {
    "timestamp": Column("text"),
    "time_seconds": Column("number", None, FINITE, "a finite time in seconds"),
}
_COLUMNS = {
    "accelerator": Column("text"),
    "price": Column("number", None, NOT_NEGATIVE, "a price of at least 0 dollars per GPU hour"),
    "zone": Column("text", ""),
}


class PriceTable:
    """Price of each accelerator type over time: constant from one change to the next.

    Parameters
    ----------
    histories : by accelerator type, times (K,) of its changes in seconds, strictly ascending, and prices (K,) in
        dollars per GPU hour that hold from then on; the first price also holds before the first change. K is at
        least 1.
    source : where the prices came from, for messages.

    Raises
    ------
    InputError
        A history is empty or not ascending, or a price or time is negative, infinite or nan (times may be negative).
    """

    def __init__(self, histories: Mapping[str, tuple[ArrayLike, ArrayLike]], source: str = "prices") -> None:
        self.source = source
        self._times: dict[str, NDArray[np.float64]] = {}
        self._prices: dict[str, NDArray[np.float64]] = {}
        self._paid: dict[str, NDArray[np.float64]] = {}
        for name, (when, prices) in histories.items():
            times, values = np.array(when, dtype=np.float64), np.array(prices, dtype=np.float64)
            if times.ndim != 1 or times.shape != values.shape or not len(times):
                found = f"times of shape {times.shape}, prices of shape {values.shape}"
                raise InputError(source, field=name, found=found, expected="one price for each time, at least one")
            if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
                raise InputError(source, field=name, found=times.tolist(), expected="finite, strictly ascending times")
            bad = ~((values >= 0) & np.isfinite(values))
            if bad.any():
                found, expected = values[bad][0].item(), "a finite price of at least 0 dollars per GPU hour"
                raise InputError(source, field=name, found=found, expected=expected)
            self._times[name], self._prices[name] = times, values
            # dollars of one GPU from the first change to each change
            with np.errstate(over="ignore"):
                steps = np.diff(times) * values[:-1] / _SECONDS_PER_HOUR
                self._paid[name] = np.concatenate([[0.0], np.cumsum(steps)])
            if not np.isfinite(self._paid[name]).all():
                found = f"{values.max():g} dollars per GPU hour over {times[-1] - times[0]:g} s"
                raise InputError(source, field=name, found=found, expected="a finite sum of dollars")

    @classmethod
    def constant(cls, prices: Mapping[str, float], source: str = "prices") -> PriceTable:
        """Prices that never change, dollars per GPU hour by accelerator type."""
        return cls({name: ([0.0], [price]) for name, price in prices.items()}, source)

    def __repr__(self) -> str:
        """Types in order with their price, or the number of prices and a digest of the history: equal for equal tables.

        Prices have all their digits, so that the text may stand for the table where runs are told apart.
        """
        return f"PriceTable({', '.join(f'{name}: {self._told(name)}' for name in sorted(self._times))})"

    def _told(self, name: str) -> str:
        times, prices = self._times[name], self._prices[name]
        if (prices == prices[0]).all():
            return repr(prices[0].item())
        digest = hashlib.sha256(np.stack([times, prices]).tobytes()).hexdigest()[:16]
        return f"{len(prices)} prices {digest}"

    def __eq__(self, other: object) -> bool:
        """Whether the same types have the same histories."""
        if not isinstance(other, PriceTable):
            return NotImplemented
        return self._times.keys() == other._times.keys() and all(
            np.array_equal(mine[name], theirs[name])
            for mine, theirs in ((self._times, other._times), (self._prices, other._prices))
            for name in mine
        )

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerator types that have a price."""
        return tuple(self._times)

    @property
    def is_constant(self) -> bool:
        """Whether no price ever changes."""
        return all((prices == prices[0]).all() for prices in self._prices.values())

    def history(self, accelerator: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(K,) times in seconds and (K,) prices in dollars per GPU hour of one accelerator type."""
        name = self._known(accelerator)
        return self._times[name].copy(), self._prices[name].copy()

    def price_at(self, time_seconds: float, accelerators: Sequence[str]) -> NDArray[np.float64]:
        """(M,) dollars per GPU hour at a time, seconds.

        Raises
        ------
        InputError
            An accelerator type has no price.
        """
        return np.array([self._prices[name][self._step(name, time_seconds)] for name in map(self._known, accelerators)])

    def next_change(self, time_seconds: float, accelerators: Sequence[str]) -> float:
        """The first time, seconds, after `time_seconds` at which one of the prices changes; inf if none does.

        Raises
        ------
        InputError
            An accelerator type has no price.
        """
        changes = [np.inf]
        for name in map(self._known, accelerators):
            times, prices = self._times[name], self._prices[name]
            later = times[1:][(np.diff(prices) != 0) & (times[1:] > time_seconds)]
            changes.extend(later[:1].tolist())
        return float(min(changes))

    def cost(
        self, start_seconds: ArrayLike, end_seconds: ArrayLike, accelerators: Sequence[str]
    ) -> NDArray[np.float64]:
        """(M,) dollars for one GPU of each type from start to end: the integral of its price.

        Parameters
        ----------
        start_seconds, end_seconds : scalars, or (M,) when each entry has its own interval, as runs of jobs have;
            an end is not before its start.
        accelerators : M accelerator types, which may repeat.

        Raises
        ------
        InputError
            An accelerator type has no price, an interval ends before it starts, or the lengths differ.
        """
        M = len(accelerators)
        start, end = np.asarray(start_seconds, dtype=np.float64), np.asarray(end_seconds, dtype=np.float64)
        for field, values in (("start_seconds", start), ("end_seconds", end)):
            if values.shape not in ((), (M,)):
                raise InputError(self.source, field=field, found=values.shape, expected=f"a scalar or shape {(M,)}")
        start, end = np.broadcast_to(start, (M,)), np.broadcast_to(end, (M,))
        if not (end >= start).all():
            i = int(np.argmin(end >= start))
            expected = f"a time not before the start, {start[i]}"
            raise InputError(self.source, field="end_seconds", found=end[i].item(), expected=expected)
        names = [self._known(name) for name in accelerators]
        dollars = np.zeros(M)
        for name in dict.fromkeys(names):
            here = np.array([other == name for other in names])
            dollars[here] = self._paid_between(name, start[here], end[here])
        return dollars

    def _paid_between(self, name: str, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        first, last = self._step(name, start), self._step(name, end)
        times, prices, paid = self._times[name], self._prices[name], self._paid[name]
        # within one step the difference of two integrals would only lose digits
        within = prices[first] * (end - start)
        across = prices[last] * (end - times[last]) - prices[first] * (start - times[first])
        return np.where(
            first == last, within / _SECONDS_PER_HOUR, paid[last] - paid[first] + across / _SECONDS_PER_HOUR
        )

    def _step(self, name: str, seconds: ArrayLike) -> NDArray[np.int64]:
        return np.maximum(np.searchsorted(self._times[name], seconds, side="right") - 1, 0)

    def _known(self, accelerator: str) -> str:
        if accelerator not in self._times:
            expected = one_of(accelerator, self._times)
            raise InputError(self.source, field="accelerator", found=accelerator, expected=expected)
        return accelerator

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "prices", first_line: int = 1) -> PriceTable:
        """Prices from a table with one row per change; columns as `read_prices` describes them.

        Raises
        ------
        InputError
            A column is missing or unknown, a cell is not what it should be, or an accelerator type has two prices
            at one time in one zone.
        """
        reader = FrameReader(frame, source, first_line)
        when = "timestamp" if reader.has("timestamp") else "time_seconds"
        columns = reader.read({when: _TIMES[when]} | _COLUMNS)
        times = _clock_seconds(reader) if when == "timestamp" else columns[when]
        names = columns["accelerator"].tolist()
        zones = columns["zone"].tolist()
        changes: dict[str, dict[str, dict[float, float]]] = {}
        rows = zip(names, zones, times.tolist(), columns["price"].tolist(), strict=True)
        for line, (name, zone, time, price) in enumerate(rows, start=first_line):
            known = changes.setdefault(name, {}).setdefault(zone, {})
            if known.setdefault(time, price) != price:
                expected = f"one price of {name!r} at one time, there is {known[time]} already"
                raise InputError(source, line=line, field="price", found=price, expected=expected)
        return cls({name: _cheapest(by_zone) for name, by_zone in changes.items()}, source)

    def to_frame(self) -> pd.DataFrame:
        """Table with columns time_seconds, accelerator, price and one row per change."""
        import pandas as pd

        return pd.DataFrame(
            {
                "time_seconds": np.concatenate([[], *self._times.values()]),
                "accelerator": [name for name, times in self._times.items() for _ in times],
                "price": np.concatenate([[], *self._prices.values()]),
            }
        )


def read_prices(path: str | os.PathLike[str]) -> PriceTable:
    """Price histories from a CSV (``.csv``, ``.csv.gz``) or Parquet file.

    One row per change, in any order; lines that start with ``#`` above the header are skipped.

    ================  ==============================================================================================
    column            meaning
    ================  ==============================================================================================
    ``time_seconds``  number: seconds since the start of the simulation or run; or, in its place,
    ``timestamp``     text: ISO 8601 date and time, UTC where no offset is given; the earliest of the file is second 0
    ``accelerator``   text: accelerator type
    ``price``         number, at least 0: dollars per GPU hour from this time on; an instance with several GPUs is to
                      be divided by their number
    ``zone``          text, may be left out: availability zone, region or cloud. Each zone has its own history, on
                      offer from its first row on, and the price is the least among those on offer
    ================  ==============================================================================================

    Before its first row an accelerator type has the price of that row. The spot histories that clouds publish (AWS
    ``describe-spot-price-history``, Azure price sheets) have these fields under other names.

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    return read_rows(path, PriceTable.from_frame)


def write_prices(prices: PriceTable, path: str | os.PathLike[str]) -> None:
    """Write price histories as CSV or Parquet, zones already merged; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    write_rows(path, prices)


def _clock_seconds(reader: FrameReader) -> NDArray[np.float64]:
    """(N,) seconds since the earliest time stamp."""
    moments = []
    for row, cell in enumerate(reader.text("timestamp").tolist()):
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            expected = "a date and time such as 2020-01-31T12:00:00Z"
            line = reader.first_line + row
            raise InputError(reader.source, line=line, field="timestamp", found=cell, expected=expected) from None
        moments.append(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    first = min(moments, default=datetime.now(UTC))
    return np.array([(moment - first).total_seconds() for moment in moments], dtype=np.float64)


def _cheapest(by_zone: Mapping[str, Mapping[float, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times at which the least price on offer is told anew, and that price."""
    times = np.unique(np.concatenate([list(changes) for changes in by_zone.values()]))
    offers = np.full((len(by_zone), len(times)), np.inf)
    for z, changes in enumerate(by_zone.values()):
        when = np.array(sorted(changes))
        prices = np.array([changes[time] for time in when.tolist()])
        step = np.searchsorted(when, times, side="right") - 1
        offers[z] = np.where(step >= 0, prices[np.maximum(step, 0)], np.inf)
    return times, offers.min(axis=0)
