"""C columns of N jobs on M pools: arrays, their order, their slices and their sparse matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Flags, Floats, Ints, Values, ragged_rows
from throughputs.errors import InputError, did_you_mean, expect
from throughputs.files import StrPath, read_rows, write_rows
from throughputs.frames import NOT_NEGATIVE, Column, FrameReader, column, columns_of, keep_columns
from throughputs.limits import Range, require, require_distinct
from throughputs.matrix import ThroughputMatrix
from throughputs.packed import PackedColumns
from throughputs.tables.table import ThroughputTable

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array


_SOURCE = "configurations"
_RATE = NOT_NEGATIVE, "a finite throughput of at least 0 steps/s"
_KEYS = ("job", "pool", "gpus", "batch_size", "partner")
_TURNED = {"job": "partner", "partner": "job", "rate": "partner_rate", "partner_rate": "rate"}
"""What a column of a pair has where it stands at the other job."""

_NUMBERS = {
    "gpus": Column("whole"),
    "rate": Column("number"),
    "batch_size": Column("number", 0.0),
    "partner_rate": Column("number", 0.0),
}
"""Columns of a table that are no labels."""


@dataclass(frozen=True, eq=False)
class Configurations:
    """What N jobs can do on M pools: (job, pool, GPUs, and where it matters batch size and partner) -> rate.

    A *configuration* (a column) is a job on a pool of GPUs with a number of them, or two jobs that share the same
    GPUs. Jobs may have any number of columns. Columns are kept sorted by job, pool, GPUs, batch size and partner,
    those of job i at ``offsets[i]:offsets[i + 1]``; a pair stands once, at the earlier of its two jobs.

    Parameters
    ----------
    job : (C,) position of the job of each column.
    pool : (C,) position of its pool: an accelerator type, or a partition of one.
    gpus : (C,) GPUs that the column takes while it runs, at least 1.
    rate : (C,) throughput of the job, steps/s; 0 where it cannot run.
    batch_size : (C,) batch size of the job or of both jobs of a pair; 0, also when omitted: its own.
    partner : (C,) position of the job on the same GPUs; -1, also when omitted: none.
    partner_rate : (C,) throughput of the partner, steps/s; 0 where there is none.
    jobs : N distinct labels; 0 .. N - 1, up to the largest position, when omitted.
    pools : M distinct names; ``pool0`` .. when omitted.
    source, first_line : for messages: the file, and the line of it that holds the first column.

    Raises
    ------
    InputError
        Arrays differ in length, a position is unknown, a rate is negative or not finite, GPUs are not positive whole
        numbers, a job is its own partner, there is a rate without a partner, or a column is given twice.
    """

    job: Ints = column("whole", within=NOT_NEGATIVE, expected="the position of a job")
    pool: Ints = column("whole", within=NOT_NEGATIVE, expected="the position of a pool")
    gpus: Ints = column("whole", within=Range(1), expected="at least 1 GPU")
    rate: Floats = column("number", None, *_RATE)
    batch_size: Ints = column("whole", 0, NOT_NEGATIVE, "at least 1, or 0 for the job's own")
    partner: Ints = column("whole", -1, Range(-1), "the position of a job, or -1 for none")
    partner_rate: Floats = column("number", 0.0, *_RATE)
    jobs: tuple[Hashable, ...] = ()
    pools: tuple[str, ...] = ()
    offsets: Ints = field(init=False)

    def __init__(
        self,
        job: ArrayLike,
        pool: ArrayLike,
        gpus: ArrayLike,
        rate: ArrayLike,
        *,
        batch_size: ArrayLike | None = None,
        partner: ArrayLike | None = None,
        partner_rate: ArrayLike | None = None,
        jobs: Sequence[Hashable] | None = None,
        pools: Sequence[str] | None = None,
        source: str = _SOURCE,
        first_line: int = 1,
    ) -> None:
        given = {"job": job, "pool": pool, "gpus": gpus, "rate": rate}
        more = {"batch_size": batch_size, "partner": partner, "partner_rate": partner_rate}
        keep_columns(self, given | more, source, first_line)
        last = max(self.job.max(initial=-1), self.partner.max(initial=-1))
        labels = tuple(range(last + 1)) if jobs is None else tuple(jobs)
        names = tuple(f"pool{m}" for m in range(self.pool.max(initial=-1) + 1)) if pools is None else tuple(pools)
        require_distinct(labels, source, "jobs")
        require_distinct(names, source, "pools")
        columns, alone = self._columns(), self.partner < 0
        ordered = _in_order(columns)
        keys = np.stack([ordered[name] for name in _KEYS])
        again = np.append(False, (keys[:, 1:] == keys[:, :-1]).all(axis=0))[: len(self.job)]
        for name, good, expected in (
            ("job", self.job < len(labels), f"a position below {len(labels)}"),
            ("pool", self.pool < len(names), f"a position below {len(names)}"),
            ("partner", self.partner < len(labels), f"a position below {len(labels)}, or -1 for none"),
            ("partner", self.partner != self.job, "another job"),
            ("partner_rate", ~alone | (self.partner_rate == 0), "0, or a partner"),
        ):
            require(good, columns[name], source, name, expected, first_line)
        if again.any():
            c = int(np.argmax(again))
            found = f"two rates with {ordered['gpus'][c]} GPUs of {names[ordered['pool'][c]]!r}"
            where = f"job {labels[ordered['job'][c]]!r}"
            raise InputError(source, field=where, found=found, expected="each column once")
        self._set(ordered, labels, names)

    def _columns(self, chosen: Ints | slice = slice(None)) -> dict[str, Values]:
        """The `chosen` entries of the arrays by name."""
        return {name: getattr(self, name)[chosen] for name in _ARRAYS}

    def _set(self, columns: Mapping[str, Any], jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> None:
        offsets = np.searchsorted(columns["job"], np.arange(len(jobs) + 1))
        vars(self).update(columns, jobs=jobs, pools=pools, offsets=offsets)

    @classmethod
    def _trusted(cls, columns: Mapping[str, Any], jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> Configurations:
        """From columns in their order, which are not checked; jobs run alone where nobody says otherwise."""
        made = object.__new__(cls)
        C = len(columns["job"])
        absent = {"batch_size": np.zeros(C, np.int64), "partner": np.full(C, -1), "partner_rate": np.zeros(C)}
        made._set(absent | dict(columns), jobs, pools)
        return made

    @classmethod
    def from_matrix(cls, matrix: ThroughputMatrix) -> Configurations:
        """Each job with its fixed gang on each accelerator type: column ``i M + j`` is job i on type j."""
        N, M = matrix.rates.shape
        columns = {
            "job": np.repeat(np.arange(N), M),
            "pool": np.tile(np.arange(M), N),
            "gpus": np.repeat(matrix.scale_factors, M),
            "rate": np.ravel(matrix.rates).copy(),
        }
        return cls._trusted(columns, tuple(matrix.jobs), matrix.accelerators)

    @classmethod
    def from_packed(cls, packed: PackedColumns) -> Configurations:
        """Jobs alone and every pair that has a rate. Grows with the square of N."""
        N, M = packed.rates.shape
        first, second = np.triu_indices(N, 1)
        a, b = packed.group[first], packed.group[second]
        pair, on = np.nonzero((packed.together[a, b] > 0) | (packed.together[b, a] > 0))
        first, second, a, b = first[pair], second[pair], a[pair], b[pair]
        job = np.append(np.repeat(np.arange(N), M), first)
        return cls(
            job,
            np.append(np.tile(np.arange(M), N), on),
            packed.scale_factors[job],
            np.append(packed.rates, packed.together[a, b, on]),
            partner=np.append(np.full(N * M, -1), second),
            partner_rate=np.append(np.zeros(N * M), packed.together[b, a, on]),
            jobs=packed.jobs,
            pools=packed.accelerators,
        )

    @classmethod
    def from_table(
        cls,
        table: ThroughputTable,
        job_types: Sequence[str],
        pools: Sequence[str],
        gpus: Sequence[int] | None = None,
        jobs: Sequence[Hashable] | None = None,
    ) -> Configurations:
        """Columns of N jobs for the numbers of GPUs that a table has figures for; columns of rate 0 are left out.

        Parameters
        ----------
        table : rates by job type, number of GPUs (scale factor) and accelerator type.
        job_types : N names of job types.
        pools : M accelerator types of the table.
        gpus : numbers of GPUs that are wanted; all of the table when omitted. A job type without a figure for one of
            them has no such column.
        jobs : N labels; 0 .. N - 1 when omitted.

        Raises
        ------
        InputError
            Names the job type or accelerator type that the table does not know, or a job type with none of `gpus`.
        """
        sizes: dict[str, list[int]] = {}
        for name in dict.fromkeys(job_types):
            known = table.scale_factors_of(name)
            sizes[name] = [size for size in known if gpus is None or size in gpus]
            if not sizes[name]:
                expected = f"some of {', '.join(map(str, known))}"
                raise InputError(_SOURCE, field=f"gpus of {name!r}", found=gpus, expected=expected)
        labels = tuple(range(len(job_types))) if jobs is None else tuple(jobs)
        expect(len(labels) == len(job_types), _SOURCE, "jobs", labels, f"{len(job_types)} labels")
        row = np.repeat(np.arange(len(job_types)), [len(sizes[name]) for name in job_types])
        size = np.array([size for name in job_types for size in sizes[name]], dtype=np.int64)
        rates = table.rates(np.array(job_types, dtype=object)[row], size, pools)
        entry, pool = np.nonzero(rates > 0)
        return cls(row[entry], pool, size[entry], rates[entry, pool], jobs=labels, pools=pools)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        jobs: Sequence[Hashable] | None = None,
        pools: Sequence[str] | None = None,
        source: str = _SOURCE,
        first_line: int = 1,
    ) -> Configurations:
        """Columns from a tidy table, one row each.

        Parameters
        ----------
        frame : columns job (label), pool, gpus, rate, and where wanted batch_size, partner (label), partner_rate; an
            empty cell of these stands for none.
        jobs, pools : all labels, in the order wanted; those of the frame, as they first appear, when omitted.
        source, first_line : for messages: the file, and the line of it that holds the first row.

        Raises
        ------
        InputError
            A column is missing or unknown, a label is not one of `jobs` or `pools`, or as the constructor.
        """
        reader = FrameReader(frame, source, first_line)
        reader.check_columns(("job", "pool", "gpus", "rate"), ("batch_size", "partner", "partner_rate"))
        of_jobs = [name for name in ("job", "partner") if reader.has(name)]
        labels = _appearing(frame, of_jobs) if jobs is None else list(jobs)
        names = list(map(str, _appearing(frame, ["pool"]))) if pools is None else list(pools)
        columns: dict[str, Any] = {name: reader.cells(name, _NUMBERS[name]) for name in _NUMBERS if reader.has(name)}
        columns |= {name: _positions(reader, name, labels) for name in of_jobs}
        columns["pool"] = _positions(reader, "pool", names)
        return cls(**columns, jobs=labels, pools=names, source=source, first_line=first_line)

    def to_frame(self) -> pd.DataFrame:
        """Tidy table, one row per column; as `from_frame` reads it. Batch sizes and partners only where there are."""
        import pandas as pd

        labels = pd.Series(list(self.jobs), dtype=None if self.jobs else "object").to_numpy()
        figures: dict[str, Any] = {
            "job": labels[self.job],
            "pool": np.array(self.pools, dtype=object)[self.pool],
            "gpus": self.gpus,
            "rate": self.rate,
        }
        if (self.batch_size > 0).any():
            figures["batch_size"] = pd.Series(self.batch_size, dtype="Int64").mask(self.batch_size == 0)
        if self.has_pairs:
            alone = self.partner < 0
            figures["partner"] = np.where(alone, np.array(None), labels.astype(object)[self.partner])
            figures["partner_rate"] = np.where(alone, np.nan, self.partner_rate)
        return pd.DataFrame(figures)

    @property
    def n_jobs(self) -> int:
        """N, the number of jobs."""
        return len(self.jobs)

    @property
    def n_columns(self) -> int:
        """C, the number of columns."""
        return len(self.job)

    @property
    def has_pairs(self) -> bool:
        """Whether any column runs two jobs."""
        return bool((self.partner >= 0).any())

    def of(self, jobs: ArrayLike) -> Configurations:
        """The columns of some jobs (K distinct positions), numbered anew in the order given.

        A pair stays where both its jobs do. The cost is linear in the columns of these jobs and in K, not in C.

        Raises
        ------
        InputError
            A position is repeated or unknown.
        """
        wanted = np.asarray(jobs, dtype=np.int64).reshape(-1)
        if ((wanted < 0) | (wanted >= self.n_jobs)).any() or len(np.unique(wanted)) < len(wanted):
            expected = f"distinct positions below {self.n_jobs}"
            raise InputError(_SOURCE, field="jobs", found=wanted.tolist(), expected=expected)
        offsets, taken = ragged_rows(self.offsets, wanted)
        columns = self._columns(taken) | {"job": np.repeat(np.arange(len(wanted)), np.diff(offsets))}
        paired = np.flatnonzero(columns["partner"] >= 0)
        if len(paired):
            place = np.full(self.n_jobs, -1)
            place[wanted] = np.arange(len(wanted))
            columns["partner"][paired] = place[columns["partner"][paired]]
            gone = paired[columns["partner"][paired] < 0]
            # without pairs the order of the columns is the old one
            columns = _in_order({name: np.delete(array, gone) for name, array in columns.items()})
        return self._trusted(columns, tuple(self.jobs[i] for i in wanted.tolist()), self.pools)

    def rates_at(self, job: Ints, pool: Ints, gpus: Ints) -> Floats:
        """(K,) throughput of jobs (positions) alone on so many GPUs of a pool, steps/s; 0 where there is no column."""
        keys, rates, most = self._alone
        if not len(keys):
            return np.zeros(len(job))
        key = (job * len(self.pools) + pool) * most + np.minimum(gpus, most - 1)
        at = keys.searchsorted(key)
        return np.where(keys.take(at, mode="clip") == key, rates.take(at, mode="clip"), 0.0)

    def rates_by_gpus(self, job: int, pool: int) -> dict[int, float]:
        """Best throughput of one job (position) alone in a pool by number of GPUs, steps/s."""
        columns = slice(self.offsets[job], self.offsets[job + 1])
        own = (column[columns].tolist() for column in (self.pool, self.partner, self.gpus, self.rate))
        best: dict[int, float] = {}
        for there, partner, gpus, rate in zip(*own, strict=True):
            if there == pool and partner < 0:
                best[gpus] = max(rate, best.get(gpus, 0.0))
        return best

    @cached_property
    def _alone(self) -> tuple[Ints, Floats, int]:
        """Of the columns of jobs alone with their own batch size: job, pool and GPUs in one number each, ascending; the
        rates, steps/s; and how many numbers there are for each pool.
        """
        most = int(self.gpus.max(initial=0)) + 2
        a = np.flatnonzero((self.partner < 0) & (self.batch_size == 0))
        return (self.job[a] * len(self.pools) + self.pool[a]) * most + self.gpus[a], self.rate[a], most

    def relabelled(self, jobs: Sequence[Hashable]) -> Configurations:
        """The same with N other, distinct labels of the jobs."""
        return self._trusted(self._columns(), tuple(jobs), self.pools)

    def joined(self, later: Configurations) -> Configurations:
        """The jobs of both, those of `later` behind, numbered anew from 0; of the same pools.

        Raises
        ------
        InputError
            Other pools.
        """
        expect(later.pools == self.pools, _SOURCE, "pools", later.pools, str(self.pools))
        n = self.n_jobs
        behind = np.where(later.partner < 0, -1, later.partner + n)
        others = later._columns() | {"job": later.job + n, "partner": behind}
        columns = {name: np.concatenate([part, others[name]]) for name, part in self._columns().items()}
        return self._trusted(columns, tuple(range(n + later.n_jobs)), self.pools)

    def take(self, columns: ArrayLike) -> Configurations:
        """Some of the columns (a mask (C,), or ascending positions), of the same jobs and pools."""
        return self._trusted(self._columns(np.asarray(columns)), self.jobs, self.pools)

    def fitting(self, capacity: ArrayLike) -> Configurations:
        """The columns that gain something and fit in: a rate above 0 of any job, and at most `capacity` (M,) GPUs."""
        room = np.asarray(capacity)
        expect(room.shape == (len(self.pools),), _SOURCE, "capacity", room.shape, f"shape ({len(self.pools)},)")
        return self.take((self.gpus <= room[self.pool]) & ((self.rate > 0) | (self.partner_rate > 0)))

    @cached_property
    def _members(self) -> tuple[Ints, Ints, Floats]:
        """(E,) job, column and rate: an entry for each job of each column."""
        paired = np.flatnonzero(self.partner >= 0)
        return (
            np.concatenate([self.job, self.partner[paired]]),
            np.concatenate([np.arange(self.n_columns), paired]),
            np.concatenate([self.rate, self.partner_rate[paired]]),
        )

    @cached_property
    def time(self) -> csr_array:
        """(N, C) 1 where the column occupies the job's time."""
        job, column, rate = self._members
        return self._sparse(np.ones(len(rate)), job, column, self.n_jobs)

    @cached_property
    def rates(self) -> csr_array:
        """(N, C) throughput of the job in the column, steps/s."""
        job, column, rate = self._members
        return self._sparse(rate, job, column, self.n_jobs)

    @cached_property
    def usage(self) -> csr_array:
        """(M, C) GPUs of each pool that the column takes."""
        return self._sparse(self.gpus.astype(float), self.pool, np.arange(self.n_columns), len(self.pools))

    def _sparse(self, values: Floats, row: Ints, column: Ints, rows: int) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array((values, (row, column)), shape=(rows, self.n_columns))

    def throughput(self, x: Floats) -> Floats:
        """(N,) effective throughput u of shares `x` (C,), steps/s."""
        job, column, rate = self._members
        return np.bincount(job, rate * x[column], minlength=self.n_jobs).astype(float)

    def busy(self, x: Floats) -> Floats:
        """(N,) share of each job's time that `x` (C,) takes."""
        job, column, _ = self._members
        return np.bincount(job, x[column], minlength=self.n_jobs).astype(float)

    def used(self, x: Floats) -> Floats:
        """(M,) GPUs of each pool that `x` (C,) takes."""
        return np.bincount(self.pool, self.gpus * x, minlength=len(self.pools)).astype(float)


_ARRAYS = tuple(columns_of(Configurations))


def _in_order(columns: Mapping[str, Values]) -> dict[str, Values]:
    """The columns by job, pool, GPUs, batch size and partner, a pair at the earlier of its jobs."""
    swapped = (columns["partner"] >= 0) & (columns["partner"] < columns["job"])
    turned = {name: np.where(swapped, columns[_TURNED.get(name, name)], array) for name, array in columns.items()}
    order = np.lexsort([turned[name] for name in reversed(_KEYS)])
    return {name: array[order] for name, array in turned.items()}


def _appearing(frame: pd.DataFrame, names: Sequence[str]) -> list[Hashable]:
    """Labels in the order in which they first appear, down the first column and then down the others."""
    import pandas as pd

    cells: Any = pd.concat([frame[name] for name in names])
    return list(cells[~_blank(cells)].unique())


def _blank(cells: Any) -> Flags:
    return np.asarray(cells.isna() | (cells == ""))


def _positions(reader: FrameReader, name: str, labels: Sequence[Hashable]) -> Ints:
    """(C,) position of each cell's label; -1 for an empty cell of partners."""
    import pandas as pd

    cells = reader.frame[name]
    blank = _blank(cells)
    index: Any = pd.Index
    found = index(labels, dtype=object).get_indexer(cells.astype(object))
    wrong = (found < 0) & ~(blank & (name == "partner"))
    if wrong.any():
        row = int(np.argmax(wrong))
        cell = None if blank[row] else cells.iloc[row]
        expected = f"a known {'pool' if name == 'pool' else 'job'}{did_you_mean(cell, labels)}"
        raise reader.error(row, name, cell, expected)
    return np.where(blank, -1, found).astype(np.int64)


def read_configurations(path: StrPath) -> Configurations:
    """Configurations from a CSV (``.csv``, ``.csv.gz``) or Parquet file, one row per column.

    ================  ============================================================================================
    column            meaning
    ================  ============================================================================================
    ``job``           label of the job; text in CSV files
    ``pool``          text: accelerator type, or a partition of one
    ``gpus``          whole number, at least 1
    ``rate``          number, at least 0: throughput of the job, steps/s
    ``batch_size``    whole number or empty, may be left out: batch size, where a job may choose
    ``partner``       label or empty, may be left out: the job on the same GPUs. A pair stands once
    ``partner_rate``  number or empty, may be left out: its throughput, steps/s
    ================  ============================================================================================

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    return read_rows(path, Configurations.from_frame)


def write_configurations(configurations: Configurations, path: StrPath) -> None:
    """Write configurations as CSV or Parquet; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    write_rows(path, configurations)
