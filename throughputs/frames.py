"""From the columns of a pandas table to checked arrays.

A column may hold numbers already, or text as read from a CSV file; an empty cell stands for "not given".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no"})


@dataclass(frozen=True)
class FrameReader:
    """Reads typed columns out of `frame`, naming `source`, line and column where something is wrong.

    `first_line` is the line of the source that holds the frame's first row: 1 for a table in memory, 2 for a
    CSV file below its header.
    """

    frame: pd.DataFrame
    source: str
    first_line: int = 1

    def check_columns(self, required: Sequence[str], optional: Sequence[str]) -> None:
        """Raise `InputError` for a missing, repeated or unknown column."""
        found = [str(c) for c in self.frame.columns]
        known = (*required, *optional)
        for name in found:
            if name not in known:
                hint = did_you_mean(name, known) or f" (one of {', '.join(known)})"
                raise InputError(self.source, field=name, found=name, expected=f"a known column{hint}")
            if found.count(name) > 1:
                raise InputError(self.source, field=name, found=f"{found.count(name)} columns", expected="one")
        for name in required:
            if name not in found:
                raise InputError(self.source, field=name, found=found, expected="this column to be present")

    def has(self, name: str) -> bool:
        """Whether the frame has the column."""
        return name in self.frame.columns

    def text(self, name: str, *, empty: str | None = None) -> NDArray[np.object_]:
        """(N,) str. An empty cell becomes `empty`, or is an error when `empty` is None."""
        values = self._column(name).to_numpy(dtype=object)
        if all(type(value) is str and value for value in values):
            return values.copy()
        blank = np.array([_is_missing(value) or (isinstance(value, str) and not value) for value in values], dtype=bool)
        if empty is None and blank.any():
            self._fail(name, int(np.argmax(blank)), None, "text")
        for row, value in enumerate(values):
            if not isinstance(value, str) and not blank[row]:
                self._fail(name, row, value, "text")
        return np.where(blank, empty or "", values).astype(object)

    def numbers(self, name: str, *, empty: float | None = None) -> NDArray[np.float64]:
        """(N,) float. An empty cell becomes `empty`, or is an error when `empty` is None."""
        column = self._column(name)
        numeric = column.dtype.kind in "iuf"
        values = column.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else self._parsed(name)
        missing = np.isnan(values)
        if not missing.any():
            return values
        if empty is None:
            self._fail(name, int(np.argmax(missing)), None, "a number")
        else:
            values = np.where(missing, empty, values)
        return values

    def whole_numbers(self, name: str) -> NDArray[np.int64]:
        """(N,) int; every cell must hold a whole number."""
        values = self.numbers(name)
        bad = values != np.rint(values)
        bad |= ~np.isfinite(values) | (np.abs(values) > 2**53)
        if bad.any():
            row = int(np.argmax(bad))
            self._fail(name, row, float(values[row]), "a whole number")
        return values.astype(np.int64)

    def flags(self, name: str) -> NDArray[np.bool_]:
        """(N,) bool from booleans, 0 and 1, or the words true and false; an empty cell is False."""
        column = self._column(name)
        if column.dtype.kind == "b":
            return column.to_numpy(dtype=np.bool_)
        result = np.zeros(len(column), dtype=np.bool_)
        for row, value in enumerate(column.to_numpy(dtype=object)):
            word = "" if _is_missing(value) else str(value).lower().removesuffix(".0")
            if word in _TRUE:
                result[row] = True
            elif word and word not in _FALSE:
                self._fail(name, row, value, "0 or 1")
        return result

    def dates(self, name: str) -> NDArray[np.datetime64]:
        """(N,) datetime64[us] in UTC, from dates or their text (ISO 8601), in UTC if they name no zone; empty: NaT."""
        import pandas as pd

        column = self._column(name)
        cells = column if column.dtype.kind == "M" else pd.Series(self.text(name, empty=""), dtype=object)
        read = pd.to_datetime(cells, utc=True, format="ISO8601", errors="coerce")
        wrong = read.isna().to_numpy() & cells.notna().to_numpy() & (cells != "").to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            self._fail(name, row, cells.iloc[row], "a date (ISO 8601), as 2024-05-31T08:15:00+02:00")
        dates: NDArray[np.datetime64] = read.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        return dates

    def _column(self, name: str) -> pd.Series[Any]:
        """The one column of that name."""
        found = self.frame.columns.tolist().count(name)
        if found > 1:
            raise InputError(self.source, field=name, found=f"{found} columns", expected="one")
        return self.frame[name]

    def _parsed(self, name: str) -> NDArray[np.float64]:
        cells = self.frame[name].to_numpy(dtype=object)
        try:
            plain = parsed_numbers(cells)
        except (TypeError, ValueError, OverflowError):
            plain = np.full(1, np.nan)
        if not np.isnan(plain).any():
            return plain
        # cell by cell: some are empty, or one is no number
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if _is_missing(cell) or (isinstance(cell, str) and not cell):
                continue
            try:
                values[row] = parsed_number(cell)
            except (TypeError, ValueError, OverflowError):
                self._fail(name, row, cell, "a number")
            if np.isnan(values[row]):  # the word "nan" is not an empty cell
                self._fail(name, row, cell, "a number")
        return values

    def _fail(self, name: str, row: int, found: Any, expected: str) -> None:
        raise InputError(self.source, line=self.first_line + row, field=name, found=found, expected=expected)


def parsed_number(cell: Any) -> float:
    """The number in a cell; raises ValueError for text with digits of other scripts, which Python would read."""
    if isinstance(cell, str) and not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def parsed_numbers(cells: NDArray[np.object_]) -> NDArray[np.float64]:
    """(N,) numbers, if all cells hold some; raises as `parsed_number` does."""
    if not all(cell.isascii() for cell in cells if isinstance(cell, str)):
        raise ValueError("text that is not ASCII")
    return cells.astype(np.float64)


def _is_missing(value: object) -> bool:
    # cells may hold anything, arrays too, which are not to be compared
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )
