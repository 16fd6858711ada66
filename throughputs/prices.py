"""Prices of accelerators: constant, or histories that change in steps.

>>> prices = PriceTable.constant({"v100": 0.74, "k80": 0.135})
>>> prices.price_at(3600.0, ["k80", "v100"])
array([0.135, 0.74 ])
>>> prices.cost(0.0, 7200.0, ["v100"])  # dollars for one GPU over two hours
array([1.48])
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError, expect
from throughputs.files import StrPath, read_rows, write_rows
from throughputs.frames import FINITE, NOT_NEGATIVE, Column, FrameReader
from throughputs.limits import require

if TYPE_CHECKING:
    import pandas as pd

_SECONDS_PER_HOUR = 3600.0

_TIMES = {
    "timestamp": Column("date"),
    "time_seconds": Column("number", None, FINITE, "a finite time in seconds"),
}
_COLUMNS = {
    "accelerator": Column("text"),
    "price": Column("number", None, NOT_NEGATIVE, "a price of at least 0 dollars per GPU hour"),
    "zone": Column("text", ""),
}


class _History(NamedTuple):
    """Of one type: (K,) times of changes, the prices from then on, and the dollars of one GPU from the first on."""

    times: Floats
    prices: Floats
    paid: Floats

    @classmethod
    def checked(cls, when: ArrayLike, prices: ArrayLike, source: str, name: str) -> _History:
        times, values = np.array(when, dtype=float), np.array(prices, dtype=float)
        if times.ndim != 1 or times.shape != values.shape or not len(times):
            found = f"times of shape {times.shape}, prices of shape {values.shape}"
            raise InputError(source, field=name, found=found, expected="one price for each time, at least one")
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = np.diff(times)
            paid = np.append(0.0, np.cumsum(gaps * values[:-1] / _SECONDS_PER_HOUR))
        for good, wrong, expected in (
            (np.isfinite(times) & np.append(True, gaps > 0), times, "finite, strictly ascending times"),
            ((values >= 0) & np.isfinite(values), values, "finite prices of at least 0 dollars per GPU hour"),
            (np.isfinite(paid), values, "a finite sum of dollars"),
        ):
            require(good, wrong, source, name, expected)
        return cls(times, values, paid)

    def step(self, seconds: ArrayLike) -> Ints:
        """Which price holds then."""
        return np.maximum(np.searchsorted(self.times, seconds, side="right") - 1, 0)

    def paid_between(self, start: Floats, end: Floats) -> Floats:
        """Dollars of one GPU."""
        first, last = self.step(start), self.step(end)
        # within one step the difference of two integrals would only lose digits
        within = self.prices[first] * (end - start)
        across = self.prices[last] * (end - self.times[last]) - self.prices[first] * (start - self.times[first])
        whole = self.paid[last] - self.paid[first] + across / _SECONDS_PER_HOUR
        return np.where(first == last, within / _SECONDS_PER_HOUR, whole)

    def __str__(self) -> str:
        if (self.prices == self.prices[0]).all():
            return repr(self.prices[0].item())
        digest = hashlib.sha256(np.stack([self.times, self.prices]).tobytes()).hexdigest()[:16]
        return f"{len(self.prices)} prices {digest}"


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
        self._of = {name: _History.checked(*given, source, name) for name, given in histories.items()}

    @classmethod
    def constant(cls, prices: Mapping[str, float], source: str = "prices") -> PriceTable:
        """Prices that never change, dollars per GPU hour by accelerator type."""
        return cls({name: ([0.0], [price]) for name, price in prices.items()}, source)

    def __repr__(self) -> str:
        """Types in order with their price, or the number of prices and a digest of the history: equal for equal tables.

        Prices have all their digits, so that the text may stand for the table where runs are told apart.
        """
        return f"PriceTable({', '.join(f'{name}: {self._of[name]}' for name in sorted(self._of))})"

    def __eq__(self, other: object) -> bool:
        """Whether the same types have the same histories."""
        return isinstance(other, PriceTable) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerator types that have a price."""
        return tuple(self._of)

    def price_at(self, time_seconds: float, accelerators: Sequence[str]) -> Floats:
        """(M,) dollars per GPU hour at a time, seconds.

        Raises
        ------
        InputError
            An accelerator type has no price.
        """
        return np.array([known.prices[known.step(time_seconds)] for known in map(self._known, accelerators)])

    def next_change(self, time_seconds: float, accelerators: Sequence[str]) -> float:
        """The first time, seconds, after `time_seconds` at which one of the prices changes; inf if none does.

        Raises
        ------
        InputError
            An accelerator type has no price.
        """
        changes = [np.inf]
        for times, prices, _ in map(self._known, accelerators):
            later = times[1:][(np.diff(prices) != 0) & (times[1:] > time_seconds)]
            changes.extend(later[:1].tolist())
        return float(min(changes))

    def cost(self, start_seconds: ArrayLike, end_seconds: ArrayLike, accelerators: Sequence[str]) -> Floats:
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
        start, end = np.asarray(start_seconds, dtype=float), np.asarray(end_seconds, dtype=float)
        for field, values in (("start_seconds", start), ("end_seconds", end)):
            expect(values.shape in ((), (M,)), self.source, field, values.shape, f"a scalar or shape {(M,)}")
        start, end = np.broadcast_to(start, (M,)), np.broadcast_to(end, (M,))
        require(end >= start, end, self.source, "end_seconds", "a time not before the start")
        dollars = np.zeros(M)
        for name in dict.fromkeys(accelerators):
            here = np.array([other == name for other in accelerators])
            dollars[here] = self._known(name).paid_between(start[here], end[here])
        return dollars

    def _known(self, accelerator: str) -> _History:
        if accelerator not in self._of:
            found, known = f"no price of {accelerator}", ", ".join(self._of)
            raise InputError(self.source, found=found, expected=f"one for each type of the cluster; there are {known}")
        return self._of[accelerator]

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "prices", first_line: int = 1) -> PriceTable:
        """Prices from a table with one row per change; columns as `read_prices` describes them.

        Raises
        ------
        InputError
            A column is missing or unknown, a cell is not what it should be, or an accelerator type has two prices
            at one time in one zone.
        """
        import pandas as pd

        reader = FrameReader(frame, source, first_line)
        when = "timestamp" if reader.has("timestamp") else "time_seconds"
        columns = reader.read({when: _TIMES[when]} | _COLUMNS)
        times = columns[when]
        if when == "timestamp" and len(times):
            reader.require(~np.isnat(times), times, when, "a date and time such as 2020-01-31T12:00:00Z")
            times = (times - times.min()) / np.timedelta64(1, "s")
        keys = ["accelerator", "zone", "time"]
        table = pd.DataFrame(columns | {"time": times})
        first = table.groupby(keys)["price"].transform("first").to_numpy()
        expected = "one price of a type at one time, as in the first of such rows"
        reader.require(first == columns["price"], columns["price"], "price", expected)
        histories = {}
        for name, rows in table.drop_duplicates(keys).groupby("accelerator", sort=False):
            least = rows.pivot(index="time", columns="zone", values="price").ffill().min(axis=1)
            histories[str(name)] = least.index.to_numpy(), least.to_numpy()
        return cls(histories, source)

    def to_frame(self) -> pd.DataFrame:
        """Table with columns time_seconds, accelerator, price and one row per change."""
        import pandas as pd

        rows = [
            (time, name, price)
            for name, (times, prices, _) in self._of.items()
            for time, price in zip(times.tolist(), prices.tolist(), strict=True)
        ]
        return pd.DataFrame(rows, columns=["time_seconds", "accelerator", "price"])


def read_prices(path: StrPath) -> PriceTable:
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


def write_prices(prices: PriceTable, path: StrPath) -> None:
    """Write price histories as CSV or Parquet, zones already merged; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    write_rows(path, prices)
