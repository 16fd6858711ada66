"""Columns of tables, declared once: from a pandas table, or from arrays, to checked columns.

    class Steps:
        gpus: Ints = column("whole", within=Range(1), expected="at least 1 GPU")
        seconds: Floats = column("number", np.nan, Range(0, above=True), "seconds above 0, or nothing")

`FrameReader.read` makes arrays of a table by these declarations, `keep_columns` the fields of a dataclass; both
name source, line and column of what is wrong. A column of a table may hold numbers already, or text as read from a CSV
file; an empty cell stands for "not given".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from throughputs.arrays import Dates, Flags, Floats, Ints, Texts, Values
from throughputs.errors import InputError, did_you_mean, expect
from throughputs.limits import Range, require

if TYPE_CHECKING:
    import pandas as pd

Owner = TypeVar("Owner", bound=Any)

POSITIVE = Range(0, above=True)
NOT_NEGATIVE = Range(0)
FINITE = Range(-np.inf)
SHARE = Range(0, 1, above=True)

_DTYPES: Mapping[str, Any] = {
    "text": object,
    "name": object,
    "number": np.float64,
    "whole": np.int64,
    "flag": np.bool_,
    "date": "datetime64[us]",
    "ids": object,
}

_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no"})


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes
    ----------
    kind : "text", "name" (text, also where a table has numbers), "number", "whole", "flag", "date", or "ids", tuples of
        whole numbers.
    empty : what an empty cell stands for, and each cell of a column that is not there; None: there has to be something.
    within : the numbers, or the words, that it may hold; None: any. What stands for an empty cell is among them.
    expected : these in words.
    needed : whether the column has to be there, even if cells may be empty.
    """

    kind: str
    empty: Any = None
    within: Range | tuple[str, ...] | None = None
    expected: str = ""
    needed: bool = False

    def array(self, values: Any, n: int) -> Values:
        """The values as an array of the column's type; (n,) of `empty` where there are none."""
        dtype = _DTYPES[self.kind]
        if self.kind == "ids":
            listed = np.empty(n, dtype=dtype)
            listed[:] = [()] * n if values is None else [tuple(ids) for ids in values]
            return listed
        if values is None:
            return np.full(n, self.empty, dtype=dtype)
        array = np.array(values, dtype=dtype)
        if self.kind == "whole" and (array != values).any():
            raise ValueError("a number that is not whole")
        return array

    def good(self, values: Values) -> Flags:
        """(N,) whether the column may hold a value."""
        if isinstance(self.within, Range):
            unknown = np.isnan(values) & (self.empty is not None and bool(np.isnan(self.empty)))
            return np.asarray((np.isfinite(values) & self.within.holds(values)) | unknown)
        if self.within is not None:
            return np.isin(values.astype(str), self.within)
        return np.asarray(values != "") if self.kind == "text" and self.empty is None else np.ones(len(values), bool)

    def require(self, values: Values, source: str, name: str, first_line: int = 1) -> None:
        """Raise `InputError` for the first value that the column may not hold."""
        require(self.good(values), values, source, name, self.expected, first_line, self.within)


def column(kind: str, empty: Any = None, within: Range | tuple[str, ...] | None = None, expected: str = "") -> Any:
    """A field of a dataclass that is a `Column`."""
    return field(metadata={"column": Column(kind, empty, within, expected)})


_declared: dict[Any, Mapping[str, Column]] = {}


def columns_of(owner: Any) -> Mapping[str, Column]:
    """The columns of a dataclass by name."""
    if owner not in _declared:
        _declared[owner] = {each.name: each.metadata["column"] for each in fields(owner) if "column" in each.metadata}
    return _declared[owner]


def keep_columns(owner: Any, given: Mapping[str, Any], source: str, first_line: int = 1) -> None:
    """Set the columns of a dataclass from what is given by name, an array for each; the first one tells how many rows.

    Raises
    ------
    InputError
        Arrays of another type or length, or a value that its column may not hold.
    """
    columns = columns_of(type(owner))
    n = np.size(given[next(iter(columns))])
    for name, declared in columns.items():
        try:
            array = declared.array(given.get(name), n)
        except (TypeError, ValueError, OverflowError) as error:
            expected = "a column" if declared.kind in ("text", "name") else "a column of numbers"
            raise InputError(source, field=name, found=str(error), expected=expected) from None
        expect(array.shape == (n,), source, name, array.shape, f"shape ({n},)")
        object.__setattr__(owner, name, array)
    for name, declared in columns.items():
        declared.require(getattr(owner, name), source, name, first_line)


@dataclass(frozen=True)
class FrameReader:
    """Reads typed columns out of `frame`, naming `source`, line and column where something is wrong.

    `first_line` is the line of the source that holds the frame's first row: 1 for a table in memory, 2 for a
    CSV file below its header.
    """

    frame: pd.DataFrame
    source: str
    first_line: int = 1

    def read(self, columns: Mapping[str, Column], ignored: Sequence[str] = ()) -> dict[str, Values]:
        """All declared columns, each checked; of others only those that are `ignored` may be there."""
        needed = [name for name, declared in columns.items() if declared.needed or declared.empty is None]
        self.check_columns(needed, [*(name for name in columns if name not in needed), *ignored])
        n = len(self.frame)
        return {
            name: self.cells(name, declared) if self.has(name) else declared.array(None, n)
            for name, declared in columns.items()
        }

    def cells(self, name: str, declared: Column) -> Values:
        """(N,) the values of a column."""
        kind, empty = declared.kind, declared.empty
        if kind in ("text", "name"):
            values: Values = self.text(name, empty=empty) if kind == "text" else self.names(name)
        elif kind == "number":
            values = self.numbers(name, empty=empty)
        else:
            readers = {"whole": self.whole_numbers, "flag": self.flags, "date": self.dates, "ids": self.ids}
            values = readers[kind](name)
        declared.require(values, self.source, name, self.first_line)
        return values

    def require(self, good: Flags, values: Any, name: str, expected: str) -> None:
        """Raise `InputError` for the first row whose value (N,) is not good (N,)."""
        require(good, values, self.source, name, expected, self.first_line)

    def error(self, row: int, name: str | None, found: object, expected: str) -> InputError:
        """What is wrong with a cell; with a row where no column is named."""
        return InputError(self.source, line=self.first_line + row, field=name, found=found, expected=expected)

    def require_once(self, keys: Values, values: Any, name: str, expected: str) -> None:
        """Raise `InputError` for the first row whose key (N,) an earlier row has."""
        first = np.unique(keys, return_index=True)[1]
        self.require(np.isin(np.arange(len(keys)), first), values, name, expected)

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
            expect(name in found, self.source, name, found, "this column to be present")

    def has(self, name: str) -> bool:
        """Whether the frame has the column."""
        return name in self.frame.columns

    def text(self, name: str, *, empty: str | None = None) -> Texts:
        """(N,) str. An empty cell becomes `empty`, or is an error when `empty` is None."""
        values: Values = self._column(name).to_numpy(dtype=object, copy=True)
        if all(type(value) is str and value for value in values):
            return values
        blank = _blank(values)
        values[blank] = None
        good = np.array([isinstance(value, str) for value in values], dtype=bool)
        self.require(good if empty is None else good | blank, values, name, "text")
        return np.where(blank, empty or "", values).astype(object)

    def names(self, name: str) -> Texts:
        """(N,) str of cells of any type, as names that consist of digits are numbers in some tables; empty for none."""
        cells = self._column(name).to_numpy(dtype=object)
        return np.array(["" if _is_missing(cell) else str(cell) for cell in cells], dtype=object)

    def numbers(self, name: str, *, empty: float | None = None) -> Floats:
        """(N,) float. An empty cell becomes `empty`, or is an error when `empty` is None."""
        column = self._column(name)
        numeric = column.dtype.kind in "iuf"
        values = column.to_numpy(dtype=float, na_value=np.nan) if numeric else self._parsed(name)
        missing = np.isnan(values)
        if empty is None:
            self.require(~missing, values, name, "a number")
        return values if empty is None else np.where(missing, empty, values)

    def whole_numbers(self, name: str) -> Ints:
        """(N,) int; every cell must hold a whole number."""
        values = self.numbers(name)
        self.require((values == np.rint(values)) & (np.abs(values) <= 2**53), values, name, "a whole number")
        return values.astype(np.int64)

    def flags(self, name: str) -> Flags:
        """(N,) bool from booleans, 0 and 1, or the words true and false; an empty cell is False."""
        column = self._column(name)
        if column.dtype.kind == "b":
            return column.to_numpy(dtype=bool)
        cells = column.to_numpy(dtype=object)
        words = ["" if _is_missing(cell) else str(cell).lower().removesuffix(".0") for cell in cells]
        self.require(np.array([not word or word in _TRUE | _FALSE for word in words], bool), cells, name, "0 or 1")
        return np.array([word in _TRUE for word in words], dtype=bool)

    def dates(self, name: str) -> Dates:
        """(N,) datetime64[us] in UTC, from dates or their text (ISO 8601), in UTC if they name no zone; empty: NaT."""
        import pandas as pd

        column = self._column(name)
        cells = column if column.dtype.kind == "M" else pd.Series(self.text(name, empty=""), dtype=object)
        read = pd.to_datetime(cells, utc=True, format="ISO8601", errors="coerce")
        good = read.notna().to_numpy() | ~cells.notna().to_numpy() | (cells == "").to_numpy()
        if cells is not column:
            # pandas takes -1 and .5 for dates, too
            good &= cells.str.match(r"\d{4}|$").to_numpy(dtype=bool)
        self.require(good, cells, name, "a date (ISO 8601), as 2024-05-31T08:15:00+02:00")
        dates: Dates = read.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        return dates

    def ids(self, name: str) -> Texts:
        """(N,) tuples of whole numbers, from lists, or from text with spaces between them, as older versions wrote."""
        cells, read = self._column(name).tolist(), dict[str, tuple[int, ...]]()
        values = np.empty(len(cells), dtype=object)
        for row, cell in enumerate(cells):
            try:
                if not isinstance(cell, str):
                    values[row] = () if _is_missing(cell) else tuple(map(int, cell))
                    continue
                if cell not in read:
                    read[cell] = tuple(map(int, cell.split()))
                values[row] = read[cell]
            except (TypeError, ValueError):
                raise self.error(row, name, cell, "a list of whole numbers") from None
        return values

    def _column(self, name: str) -> pd.Series[Any]:
        """The one column of that name."""
        found = self.frame.columns.tolist().count(name)
        expect(found <= 1, self.source, name, f"{found} columns", "one")
        return self.frame[name]

    def _parsed(self, name: str) -> Floats:
        cells = self.frame[name].to_numpy(dtype=object)
        try:
            plain = parsed_numbers(cells)
        except (TypeError, ValueError, OverflowError):
            plain = np.full(1, np.nan)
        if not np.isnan(plain).any():
            return plain
        # cell by cell: some are empty, or one is no number
        values = np.array([_number_or_nan(cell) for cell in cells], dtype=float)
        # the word "nan" is not an empty cell
        self.require(~np.isnan(values) | _blank(cells), cells, name, "a number")
        return values


def parsed_number(cell: Any) -> float:
    """The number in a cell; raises ValueError for text with digits of other scripts, which Python would read."""
    if isinstance(cell, str) and not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def parsed_numbers(cells: Texts) -> Floats:
    """(N,) numbers, if all cells hold some; raises as `parsed_number` does."""
    if not all(cell.isascii() for cell in cells if isinstance(cell, str)):
        raise ValueError("text that is not ASCII")
    return cells.astype(float)


def _number_or_nan(cell: Any) -> float:
    try:
        return np.nan if _is_missing(cell) else parsed_number(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _blank(cells: Texts) -> Flags:
    """(N,) whether a cell says nothing."""
    return np.array([_is_missing(cell) or (isinstance(cell, str) and not cell) for cell in cells], dtype=bool)


def _is_missing(value: object) -> bool:
    # cells may hold anything, arrays too, which are not to be compared
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )
