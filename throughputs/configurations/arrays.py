"""The arrays of configurations: parsing, checks, the one order in which columns are kept, and tidy tables of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError, did_you_mean
from throughputs.frames import Column, FrameReader
from throughputs.limits import require_all, require_distinct

if TYPE_CHECKING:
    import pandas as pd


Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrays:
    """The (C,) arrays of `Configurations`."""

    job: Whole
    pool: Whole
    gpus: Whole
    rate: Array
    batch_size: Whole
    partner: Whole
    partner_rate: Array

    @classmethod
    def single(cls, job: Whole, pool: Whole, gpus: Whole, rate: Array) -> Arrays:
        """Columns of jobs alone, with their own batch size."""
        C = len(job)
        return cls(job, pool, gpus, rate, np.zeros(C, np.int64), np.full(C, -1), np.zeros(C))

    @classmethod
    def of(cls, owner: Any, chosen: Whole | slice) -> Arrays:
        """The `chosen` entries of the arrays of the same names of `owner`."""
        return cls(**{field.name: getattr(owner, field.name)[chosen] for field in fields(cls)})

    @classmethod
    def parsed(cls, source: str, *given: ArrayLike | None) -> Arrays:
        """Arrays of what was given, in the order of the fields; InputError unless they have one length."""
        names = [field.name for field in fields(cls)]
        C = np.size(given[0]) if given[0] is not None else 0
        absent = {"batch_size": 0, "partner": -1, "partner_rate": 0.0}
        parsed: dict[str, Any] = {}
        for name, values in zip(names, given, strict=True):
            array = np.full(C, absent[name]) if values is None else np.asarray(values)
            if array.shape != (C,):
                raise InputError(source, field=name, found=array.shape, expected=f"shape ({C},)")
            if C and array.dtype.kind not in "iuf":
                raise InputError(source, field=name, found=str(array.dtype), expected="numbers")
            if name in ("rate", "partner_rate"):
                parsed[name] = array.astype(np.float64)
                continue
            whole = np.isfinite(array) & (array == np.rint(array))
            require_all(whole, array, source, lambda c, name=name: f"{name} of column {c}", "whole numbers")
            parsed[name] = array.astype(np.int64)
        return cls(**parsed)


def check_labels(
    source: str, columns: Arrays, jobs: Sequence[Hashable] | None, pools: Sequence[str] | None
) -> tuple[tuple[Hashable, ...], tuple[str, ...]]:
    """Labels of jobs and pools, distinct, with one for every position."""
    last_job = max(columns.job.max(initial=-1), columns.partner.max(initial=-1))
    labels = tuple(range(last_job + 1)) if jobs is None else tuple(jobs)
    names = tuple(f"pool{m}" for m in range(columns.pool.max(initial=-1) + 1)) if pools is None else tuple(pools)
    require_distinct(labels, source, "jobs")
    require_distinct(names, source, "pools")
    for field, positions, least, count in (
        ("job", columns.job, 0, len(labels)),
        ("pool", columns.pool, 0, len(names)),
        ("partner", columns.partner, -1, len(labels)),
    ):
        require_all(
            (positions >= least) & (positions < count),
            positions,
            source,
            lambda c, field=field: f"{field} of column {c}",
            f"a position below {count}" + (", or -1 for none" if least < 0 else ""),
        )
    return labels, names


def check_columns(source: str, columns: Arrays, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> None:
    """InputError for a column that cannot be, or that is given twice."""
    finite = "a finite throughput of at least 0 steps/s"
    single = columns.partner < 0
    for name, good, expected in (
        ("rate", np.isfinite(columns.rate) & (columns.rate >= 0), finite),
        ("partner_rate", np.isfinite(columns.partner_rate) & (columns.partner_rate >= 0), finite),
        ("gpus", columns.gpus >= 1, "at least 1 GPU"),
        ("batch_size", columns.batch_size >= 0, "at least 1, or 0 for the job's own"),
        ("partner", columns.partner != columns.job, "another job"),
        ("partner_rate", ~single | (columns.partner_rate == 0), "0, or a partner"),
    ):
        values = getattr(columns, name)
        require_all(good, values, source, lambda c, name=name: f"{name} of {_name(columns, c, jobs, pools)}", expected)
    ordered = canonical_order(columns)
    keys = np.column_stack([ordered.job, ordered.pool, ordered.gpus, ordered.batch_size, ordered.partner])
    again = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
    if len(again):
        where = _name(ordered, int(again[0]), jobs, pools)
        raise InputError(source, field=where, found="two rates", expected="each column once")


def canonical_order(columns: Arrays) -> Arrays:
    """The columns by job, pool, GPUs, batch size and partner, a pair at the earlier of its jobs."""
    swapped = (columns.partner >= 0) & (columns.partner < columns.job)
    if swapped.any():
        turned = ("job", "partner"), ("partner", "job"), ("rate", "partner_rate"), ("partner_rate", "rate")
        given = vars(columns)
        columns = replace(columns, **{a: np.where(swapped, given[b], given[a]) for a, b in turned})
    order = np.lexsort((columns.partner, columns.batch_size, columns.gpus, columns.pool, columns.job))
    return Arrays.of(columns, order)


def _name(columns: Arrays, c: int, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> str:
    job, gpus, pool = jobs[columns.job[c]], columns.gpus[c], pools[columns.pool[c]]
    beside = f" beside {jobs[columns.partner[c]]!r}" if columns.partner[c] >= 0 else ""
    return f"job {job!r} with {gpus} GPUs of {pool!r}{beside}"


_REQUIRED = ("job", "pool", "gpus", "rate")
_OPTIONAL = ("batch_size", "partner", "partner_rate")
_NUMBERS = {
    "gpus": Column("whole"),
    "rate": Column("number"),
    "batch_size": Column("number", 0.0),
    "partner_rate": Column("number", 0.0),
}


def columns_of_frame(
    frame: pd.DataFrame,
    jobs: Sequence[Hashable] | None,
    pools: Sequence[str] | None,
    source: str,
    first_line: int,
) -> tuple[dict[str, Any], list[Hashable], list[str]]:
    """Arrays by name, labels of the jobs and names of the pools; see `Configurations.from_frame`."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_REQUIRED, _OPTIONAL)
    partners = reader.has("partner")
    labels = _appearing(frame, ("job", "partner") if partners else ("job",)) if jobs is None else list(jobs)
    names = [str(name) for name in _appearing(frame, ("pool",))] if pools is None else list(pools)
    columns = {name: reader.cells(name, _NUMBERS[name]) for name in _NUMBERS if reader.has(name)}
    arrays: dict[str, Any] = {
        "job": _positions(reader, "job", labels),
        "pool": _positions(reader, "pool", names),
        **columns,
    }
    if partners:
        arrays["partner"] = _positions(reader, "partner", labels, may_be_empty=True)
    return arrays, labels, names


def frame_of_columns(columns: Arrays, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> pd.DataFrame:
    """Tidy table; see `Configurations.to_frame`."""
    import pandas as pd

    labels = pd.Series(list(jobs), dtype=None if jobs else "object").to_numpy()
    figures: dict[str, Any] = {
        "job": labels[columns.job],
        "pool": np.array(pools, dtype=object)[columns.pool],
        "gpus": columns.gpus,
        "rate": columns.rate,
    }
    if (columns.batch_size > 0).any():
        own = columns.batch_size == 0
        figures["batch_size"] = pd.Series(columns.batch_size, dtype="Int64").mask(own)
    alone = columns.partner < 0
    if not alone.all():
        figures["partner"] = np.where(alone, np.array(None), labels.astype(object)[columns.partner])
        figures["partner_rate"] = np.where(alone, np.nan, columns.partner_rate)
    return pd.DataFrame(figures)


def _appearing(frame: pd.DataFrame, columns: tuple[str, ...]) -> list[Hashable]:
    """Labels in the order in which they first appear, down the first column and then down the others."""
    import pandas as pd

    cells: Any = pd.concat([frame[name] for name in columns])
    return list(cells[~_blank(cells)].unique())


def _blank(cells: Any) -> NDArray[np.bool_]:
    return np.asarray(cells.isna() | (cells == ""))


def _positions(
    reader: FrameReader, name: str, labels: Sequence[Hashable], *, may_be_empty: bool = False
) -> NDArray[np.int64]:
    """(C,) position of each cell's label, -1 for an empty cell."""
    import pandas as pd

    cells = reader.frame[name]
    blank = _blank(cells)
    index: Any = pd.Index
    found = index(labels, dtype=object).get_indexer(cells.astype(object))
    wrong = (found < 0) & ~(blank & may_be_empty)
    if wrong.any():
        row = int(np.argmax(wrong))
        cell = None if blank[row] else cells.iloc[row]
        expected = f"a known {'pool' if name == 'pool' else 'job'}{did_you_mean(cell, labels)}"
        raise InputError(reader.source, line=reader.first_line + row, field=name, found=cell, expected=expected)
    return np.where(blank, -1, found).astype(np.int64)
