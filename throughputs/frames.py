"""Columns of tables, declared once: from a pandas table, or from arrays, to checked columns.

    class Steps:
        gpus: NDArray[np.int64] = column("whole", within=Range(1), expected="at least 1 GPU")
        seconds: NDArray[np.float64] = column("number", np.nan, Range(0, above=True), "seconds above 0, or nothing")

`FrameReader.read` makes arrays of a table by these declarations, `keep_columns` the fields of a dataclass; both
name source, line and column of what is wrong. A column of a table may hold numbers already, or text as read from a CSV
file; an empty cell stands for "not given".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError, did_you_mean
from throughputs.limits import Range, require, require_shape

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

    def array(self, values: Any, n: int) -> NDArray[Any]:
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

    def good(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """(N,) whether the column may hold a value."""
        if isinstance(self.within, Range):
            unknown = np.isnan(values) & (self.empty is not None and bool(np.isnan(self.empty)))
            return np.asarray((np.isfinite(values) & self.within.holds(values)) | unknown)
        if self.within is not None:
            return np.isin(values.astype(str), self.within)
        return (
            np.asarray(values != "") if self.kind == "text" and self.empty is None else np.ones(len(values), np.bool_)
        )

    def require(self, values: NDArray[Any], source: str, name: str, first_line: int = 1) -> None:
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
        require_shape(array, (n,), source, name)
        object.__setattr__(owner, name, array)
    for name, declared in columns.items():
        declared.require(getattr(owner, name), source, name, first_line)


def taken(owner: Owner, rows: Any) -> Owner:
    """The same dataclass with some of the rows of its columns, which are not checked again."""
    made: Owner = object.__new__(type(owner))
    columns = columns_of(type(owner))
    for one in fields(owner):
        value = getattr(owner, one.name)
        object.__setattr__(made, one.name, value[rows] if one.name in columns else value)
    return made


@dataclass(frozen=True)
class FrameReader:
    """Reads typed columns out of `frame`, naming `source`, line and column where something is wrong.

    `first_line` is the line of the source that holds the frame's first row: 1 for a table in memory, 2 for a
    CSV file below its header.
    """

    frame: pd.DataFrame
    source: str
    first_line: int = 1

    def read(self, columns: Mapping[str, Column], ignored: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
        """All declared columns, each checked; of others only those that are `ignored` may be there."""
        needed = [name for name, declared in columns.items() if declared.needed or declared.empty is None]
        self.check_columns(needed, [*(name for name in columns if name not in needed), *ignored])
        n = len(self.frame)
        return {
            name: self.cells(name, declared) if self.has(name) else declared.array(None, n)
            for name, declared in columns.items()
        }

    def cells(self, name: str, declared: Column) -> NDArray[Any]:
        """(N,) the values of a column."""
        kind, empty = declared.kind, declared.empty
        others = {
            "name": self.names,
            "whole": self.whole_numbers,
            "flag": self.flags,
            "date": self.dates,
            "ids": self.ids,
        }
        if kind in others:
            values: NDArray[Any] = others[kind](name)
        else:
            values = self.text(name, empty=empty) if kind == "text" else self.numbers(name, empty=empty)
        declared.require(values, self.source, name, self.first_line)
        return values

    def require(self, good: NDArray[np.bool_], values: Any, name: str, expected: str) -> None:
        """Raise `InputError` for the first row whose value (N,) is not good (N,)."""
        require(good, values, self.source, name, expected, self.first_line)

    def error(self, row: int, name: str | None, found: object, expected: str) -> InputError:
        """What is wrong with a cell; with a row where no column is named."""
        return InputError(self.source, line=self.first_line + row, field=name, found=found, expected=expected)

    def require_once(self, keys: NDArray[Any], values: Any, name: str, expected: str) -> None:
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
            if name not in found:
                raise InputError(self.source, field=name, found=found, expected="this column to be present")

    def has(self, name: str) -> bool:
        """Whether the frame has the column."""
        return name in self.frame.columns

    def text(self, name: str, *, empty: str | None = None) -> NDArray[np.object_]:
        """(N,) str. An empty cell becomes `empty`, or is an error when `empty` is None."""
        cells, blank = self._cells(name)
        cells[blank] = empty
        self.require(np.array([isinstance(cell, str) for cell in cells], dtype=np.bool_), cells, name, "text")
        return cells

    def names(self, name: str) -> NDArray[np.object_]:
        """(N,) str of cells of any type, as names that consist of digits are numbers in some tables; empty for none."""
        return np.array(["" if cell is None else str(cell) for cell in self._cells(name)[0]], dtype=object)

    def numbers(self, name: str, *, empty: float | None = None) -> NDArray[np.float64]:
        """(N,) float. An empty cell becomes `empty`, or is an error when `empty` is None."""
        column = self._column(name)
        numeric = column.dtype.kind in "iuf"
        values = column.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else self._parsed(name)
        missing = np.isnan(values)
        if empty is None:
            self.require(~missing, values, name, "a number")
        return values if empty is None else np.where(missing, empty, values)

    def whole_numbers(self, name: str) -> NDArray[np.int64]:
        """(N,) int; every cell must hold a whole number."""
        values = self.numbers(name)
        self.require((values == np.rint(values)) & (np.abs(values) <= 2**53), values, name, "a whole number")
        return values.astype(np.int64)

    def flags(self, name: str) -> NDArray[np.bool_]:
        """(N,) bool from booleans, 0 and 1, or the words true and false; an empty cell is False."""
        cells, blank = self._cells(name)
        words = [str(cell).lower().removesuffix(".0") for cell in cells]
        self.require(np.isin(words, [*_TRUE, *_FALSE]) | blank, cells, name, "0 or 1")
        return np.isin(words, list(_TRUE))

    def dates(self, name: str) -> NDArray[np.datetime64]:
        """(N,) datetime64[us] in UTC, from dates or their text (ISO 8601), in UTC if they name no zone; empty: NaT."""
        import pandas as pd

        column = self._column(name)
        cells = column if column.dtype.kind == "M" else pd.Series(self.text(name, empty=""), dtype=object)
        read = pd.to_datetime(cells, utc=True, format="ISO8601", errors="coerce")
        good = read.notna().to_numpy() | ~cells.notna().to_numpy() | (cells == "").to_numpy()
        self.require(good, cells, name, "a date (ISO 8601), as 2024-05-31T08:15:00+02:00")
        dates: NDArray[np.datetime64] = read.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        return dates

    def ids(self, name: str) -> NDArray[np.object_]:
        """(N,) tuples of whole numbers, from lists, or from text with spaces between them, as older versions wrote."""
        cells = self._cells(name)[0]
        values = np.empty(len(cells), dtype=object)
        for row, cell in enumerate(cells):
            try:
                values[row] = () if cell is None else tuple(map(int, cell.split() if isinstance(cell, str) else cell))
            except (TypeError, ValueError):
                raise self.error(row, name, cell, "a list of whole numbers") from None
        return values

    def _column(self, name: str) -> pd.Series[Any]:
        """The one column of that name."""
        found = self.frame.columns.tolist().count(name)
        if found > 1:
            raise InputError(self.source, field=name, found=f"{found} columns", expected="one")
        return self.frame[name]

    def _cells(self, name: str) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
        """(N,) a copy of the cells, None for empty ones, and which these are."""
        column = self._column(name)
        cells = column.to_numpy(dtype=object, copy=True)
        blank = column.isna().to_numpy() | np.array([isinstance(cell, str) and not cell for cell in cells], np.bool_)
        cells[blank] = None
        return cells, blank

    def _parsed(self, name: str) -> NDArray[np.float64]:
        cells, blank = self._cells(name)
        values, told = np.full(len(cells), np.nan), ~blank
        try:
            values[told] = parsed_numbers(cells[told])
        except (TypeError, ValueError, OverflowError):  # one is no number: cell by cell, to find it
            values[told] = [_number_or_nan(cell) for cell in cells[told]]
        # the word "nan" is not an empty cell
        self.require(~np.isnan(values) | blank, cells, name, "a number")
        return values


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


def _number_or_nan(cell: Any) -> float:
    try:
        return parsed_number(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan
