"""C columns of N jobs on M pools: arrays, their order, their slices and their sparse matrices."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.configurations.arrays import (
    Arrays,
    canonical_order,
    check_columns,
    check_labels,
    columns_of_frame,
    frame_of_columns,
)
from throughputs.errors import InputError, did_you_mean
from throughputs.files import read_rows, write_rows
from throughputs.matrix import ThroughputMatrix
from throughputs.packed import Columns, PackedColumns
from throughputs.tables.table import ThroughputTable

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array


Array = NDArray[np.float64]
Whole = NDArray[np.int64]

_SOURCE = "configurations"

# The rates of so few jobs are looked up one by one.
_FEW = 16


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

    Raises
    ------
    InputError
        Arrays differ in length, a position is unknown, a rate is negative or not finite, GPUs are not positive whole
        numbers, a job is its own partner, there is a rate without a partner, or a column is given twice.
    """

    job: Whole
    pool: Whole
    gpus: Whole
    rate: Array
    batch_size: Whole
    partner: Whole
    partner_rate: Array
    jobs: tuple[Hashable, ...]
    pools: tuple[str, ...]
    offsets: Whole

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
    ) -> None:
        columns = Arrays.parsed(_SOURCE, job, pool, gpus, rate, batch_size, partner, partner_rate)
        labels, names = check_labels(_SOURCE, columns, jobs, pools)
        check_columns(_SOURCE, columns, labels, names)
        self._set(canonical_order(columns), labels, names)

    def _set(self, columns: Arrays, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> None:
        offsets = np.searchsorted(columns.job, np.arange(len(jobs) + 1))
        vars(self).update(vars(columns), jobs=jobs, pools=pools, offsets=offsets)

    @classmethod
    def _trusted(cls, columns: Arrays, jobs: tuple[Hashable, ...], pools: tuple[str, ...]) -> Configurations:
        """From columns in their order, which are not checked."""
        made = object.__new__(cls)
        made._set(columns, jobs, pools)
        return made

    @classmethod
    def from_matrix(cls, matrix: ThroughputMatrix) -> Configurations:
        """Each job with its fixed gang on each accelerator type: column ``i M + j`` is job i on type j."""
        N, M = matrix.rates.shape
        job, pool = np.repeat(np.arange(N), M), np.tile(np.arange(M), N)
        gpus, rate = np.repeat(matrix.scale_factors, M), np.ravel(matrix.rates).copy()
        return cls._trusted(Arrays.single(job, pool, gpus, rate), tuple(matrix.jobs), matrix.accelerators)

    @classmethod
    def from_packed(cls, packed: PackedColumns) -> Configurations:
        """Jobs alone and every pair that has a rate. Grows with the square of N, as `PackedColumns.general` does."""
        N, M = packed.rates.shape
        first, second = np.triu_indices(N, 1)
        a, b = packed.group[first], packed.group[second]
        pair, on = np.nonzero((packed.together[a, b] > 0) | (packed.together[b, a] > 0))
        first, second, a, b = first[pair], second[pair], a[pair], b[pair]
        alone = np.repeat(np.arange(N), M)
        nobody = np.full(N * M, -1)
        columns = Arrays(
            job=np.concatenate([alone, first]),
            pool=np.concatenate([np.tile(np.arange(M), N), on]),
            gpus=packed.scale_factors[np.concatenate([alone, first])],
            rate=np.concatenate([packed.rates.ravel(), packed.together[a, b, on]]),
            batch_size=np.zeros(N * M + len(first), dtype=np.int64),
            partner=np.concatenate([nobody, second]),
            partner_rate=np.concatenate([np.zeros(N * M), packed.together[b, a, on]]),
        )
        return cls._trusted(canonical_order(columns), packed.jobs, packed.accelerators)

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
        names = sorted(set(job_types))
        wanted = None if gpus is None else {int(count) for count in gpus}
        sizes = [[s for s in table.scale_factors_of(name) if wanted is None or s in wanted] for name in names]
        for name, found in zip(names, sizes, strict=True):
            if not found:
                known = ", ".join(str(size) for size in table.scale_factors_of(name))
                raise InputError(_SOURCE, field=f"gpus of {name!r}", found=gpus, expected=f"some of {known}")
        lengths = np.array([len(found) for found in sizes], dtype=np.int64)
        size = np.array([s for found in sizes for s in found], dtype=np.int64)
        rates = table.rates([names[t] for t in np.repeat(np.arange(len(names)), lengths)], size, pools)
        position = {name: t for t, name in enumerate(names)}
        kind = np.fromiter((position[name] for name in job_types), dtype=np.int64, count=len(job_types))
        # the rows of the type, once for each job of it
        job, row = expanded(np.cumsum(lengths) - lengths, lengths, kind)
        entry, pool = np.nonzero(rates[row] > 0)
        columns = Arrays.single(job[entry], pool, size[row[entry]], rates[row[entry], pool])
        labels = tuple(range(len(job_types))) if jobs is None else tuple(jobs)
        made = cls(columns.job, columns.pool, columns.gpus, columns.rate, jobs=labels, pools=pools)
        if len(labels) != len(job_types):
            raise InputError(_SOURCE, field="jobs", found=labels, expected=f"{len(job_types)} labels")
        return made

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
        arrays, labels, names = columns_of_frame(frame, jobs, pools, source, first_line)
        return cls(**arrays, jobs=labels, pools=names)

    def to_frame(self) -> pd.DataFrame:
        """Tidy table, one row per column; as `from_frame` reads it. Batch sizes and partners only where there are."""
        return frame_of_columns(Arrays.of(self, slice(None)), self.jobs, self.pools)

    def to_matrix(self) -> ThroughputMatrix:
        """The N x M matrix of gangs, where each job has one number of GPUs; 0 where it has no column.

        Raises
        ------
        InputError
            A job has columns with different numbers of GPUs, with partners, or several on one pool; or none at all.
        """
        N, M = len(self.jobs), len(self.pools)
        sizes = self._one_size_each()
        if self.has_pairs:
            raise InputError(_SOURCE, found="pairs of jobs", expected="jobs alone, or `to_packed`")
        rates = np.zeros((N, M))
        rates[self.job, self.pool] = self.rate
        if len(np.unique(self.job * M + self.pool)) != self.n_columns:
            raise InputError(_SOURCE, field="batch_size", found="several of one job", expected="one for each job")
        return ThroughputMatrix(rates, self.jobs, self.pools, sizes)

    def to_packed(self) -> PackedColumns:
        """Jobs alone and in pairs by groups of equal jobs, where each job has one number of GPUs.

        Raises
        ------
        InputError
            As `to_matrix`, pairs excepted.
        """
        alone, pairs = self.take(self.partner < 0), self.partner >= 0
        together = np.zeros((self.n_jobs, self.n_jobs, len(self.pools)))
        job, partner, pool = self.job[pairs], self.partner[pairs], self.pool[pairs]
        self._one_size_each()
        together[job, partner, pool], together[partner, job, pool] = self.rate[pairs], self.partner_rate[pairs]
        return PackedColumns.from_jobs(alone.to_matrix(), together)

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

    def counts_of(self, job: Hashable) -> tuple[int, ...]:
        """Numbers of GPUs that one job (label) has columns for, ascending; as the first of a pair, or alone."""
        if job not in self.jobs:
            hint = did_you_mean(job, self.jobs)
            raise InputError(_SOURCE, field="job", found=job, expected=f"a job of the configurations{hint}")
        i = self.jobs.index(job)
        return tuple(np.unique(self.gpus[self.offsets[i] : self.offsets[i + 1]]).tolist())

    def of(self, jobs: ArrayLike) -> Configurations:
        """The columns of some jobs (K distinct positions), numbered anew in the order given.

        A pair stays where both its jobs do. The cost is linear in the columns of these jobs and in K, not in C.

        Raises
        ------
        InputError
            A position is repeated or unknown.
        """
        wanted = np.asarray(jobs, dtype=np.int64).reshape(-1)
        ordered = np.argsort(wanted, kind="stable")
        ascending = wanted[ordered]
        if len(wanted) and (ascending[0] < 0 or ascending[-1] >= self.n_jobs or (np.diff(ascending) == 0).any()):
            expected = f"distinct positions below {self.n_jobs}"
            raise InputError(_SOURCE, field="jobs", found=wanted.tolist(), expected=expected)
        starts = self.offsets[wanted]
        job, taken = expanded(starts, self.offsets[wanted + 1] - starts)
        partner = self.partner[taken]
        paired = np.flatnonzero(partner >= 0)
        if len(paired):
            place = np.minimum(np.searchsorted(ascending, partner[paired]), len(wanted) - 1)
            there = ascending[place] == partner[paired]
            partner[paired] = ordered[place]
            keep = np.ones(len(taken), dtype=bool)
            keep[paired[~there]] = False
            job, taken, partner = job[keep], taken[keep], partner[keep]
        columns = replace(Arrays.of(self, taken), job=job, partner=partner)
        # without pairs the order of the columns is the old one
        columns = canonical_order(columns) if len(paired) else columns
        return self._trusted(columns, tuple(self.jobs[i] for i in wanted.tolist()), self.pools)

    def rates_at(self, job: Whole, pool: Whole, gpus: Whole) -> Array:
        """(K,) throughput of jobs (positions) alone on so many GPUs of a pool, steps/s; 0 where there is no column."""
        if len(job) <= _FEW:
            rows = zip(job.tolist(), pool.tolist(), gpus.tolist(), strict=True)
            return np.array([self._rate_by_gpus.get(row, 0.0) for row in rows])
        keys = self._keys
        if not len(keys):
            return np.zeros(len(job))
        key = (job * len(self.pools) + pool) * self._keys_per_pool + np.minimum(gpus, self._keys_per_pool - 1)
        at = keys.searchsorted(key)
        rate: Array = self._rate_alone.take(at, mode="clip")
        other = keys.take(at, mode="clip") != key
        if np.count_nonzero(other):
            rate[other] = 0.0
        return rate

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
    def _alone(self) -> Whole:
        """(A,) the columns of jobs alone with their own batch size, by job, pool and GPUs."""
        return np.flatnonzero((self.partner < 0) & (self.batch_size == 0))

    @cached_property
    def _rate_by_gpus(self) -> dict[tuple[int, int, int], float]:
        """Throughput of jobs alone by job, pool and GPUs, steps/s."""
        columns = (column[self._alone].tolist() for column in (self.job, self.pool, self.gpus))
        return dict(zip(zip(*columns, strict=True), self._rate_alone.tolist(), strict=True))

    @cached_property
    def _rate_alone(self) -> Array:
        """(A,) their throughput, steps/s."""
        return np.asarray(self.rate[self._alone])

    @cached_property
    def _keys_per_pool(self) -> int:
        return int(self.gpus.max(initial=0)) + 2

    @cached_property
    def _keys(self) -> Whole:
        """(A,) job, pool and GPUs of these columns in one number each, ascending."""
        a = self._alone
        return np.asarray((self.job[a] * len(self.pools) + self.pool[a]) * self._keys_per_pool + self.gpus[a])

    def relabelled(self, jobs: Sequence[Hashable]) -> Configurations:
        """The same with other labels of the N jobs."""
        labels = tuple(jobs)
        if len(labels) != self.n_jobs or len(set(labels)) != len(labels):
            raise InputError(_SOURCE, field="jobs", found=labels, expected=f"{self.n_jobs} distinct labels")
        return self._trusted(Arrays.of(self, slice(None)), labels, self.pools)

    def joined(self, later: Configurations) -> Configurations:
        """The jobs of both, those of `later` behind, numbered anew from 0; of the same pools.

        Raises
        ------
        InputError
            Other pools.
        """
        if later.pools != self.pools:
            raise InputError(_SOURCE, field="pools", found=later.pools, expected=str(self.pools))
        n = self.n_jobs
        own, others = Arrays.of(self, slice(None)), Arrays.of(later, slice(None))
        behind = np.where(later.partner < 0, -1, later.partner + n)
        others = replace(others, job=later.job + n, partner=behind)
        columns = Arrays(**{name: np.concatenate([part, vars(others)[name]]) for name, part in vars(own).items()})
        return self._trusted(columns, tuple(range(n + later.n_jobs)), self.pools)

    def take(self, columns: ArrayLike) -> Configurations:
        """Some of the columns (a mask (C,), or ascending positions), of the same jobs and pools."""
        chosen = np.asarray(columns)
        chosen = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        return self._trusted(Arrays.of(self, chosen), self.jobs, self.pools)

    def fitting(self, capacity: ArrayLike) -> Configurations:
        """The columns that gain something and fit in: a rate above 0 of any job, and at most `capacity` (M,) GPUs."""
        room = np.asarray(capacity)
        if room.shape != (len(self.pools),):
            raise InputError(_SOURCE, field="capacity", found=room.shape, expected=f"shape ({len(self.pools)},)")
        return self.take((self.gpus <= room[self.pool]) & ((self.rate > 0) | (self.partner_rate > 0)))

    @cached_property
    def _members(self) -> tuple[Whole, Whole, Array]:
        """(E,) job, column and rate: an entry for each job of each column."""
        paired = np.flatnonzero(self.partner >= 0)
        job = np.concatenate([self.job, self.partner[paired]])
        return (
            job,
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
        return self._sparse(self.gpus.astype(np.float64), self.pool, np.arange(self.n_columns), len(self.pools))

    def _sparse(self, values: Array, row: Whole, column: Whole, rows: int) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array((values, (row, column)), shape=(rows, self.n_columns))

    def throughput(self, x: Array) -> Array:
        """(N,) effective throughput u of shares `x` (C,), steps/s."""
        job, column, rate = self._members
        return np.asarray(np.bincount(job, rate * x[column], minlength=self.n_jobs), dtype=np.float64)

    def busy(self, x: Array) -> Array:
        """(N,) share of each job's time that `x` (C,) takes."""
        job, column, _ = self._members
        return np.asarray(np.bincount(job, x[column], minlength=self.n_jobs), dtype=np.float64)

    def used(self, x: Array) -> Array:
        """(M,) GPUs of each pool that `x` (C,) takes."""
        return np.asarray(np.bincount(self.pool, self.gpus * x, minlength=len(self.pools)), dtype=np.float64)

    @cached_property
    def general(self) -> Columns:
        """The same columns as the sparse matrices of `Columns`."""
        pairs = zip(self.job.tolist(), self.partner.tolist(), strict=True)
        return Columns(
            time=self.time,
            rate=self.rates,
            usage=self.usage,
            members=tuple((i,) if k < 0 else (i, k) for i, k in pairs),
            accelerator=self.pool,
            jobs=self.jobs,
            accelerators=self.pools,
        )

    def _one_size_each(self) -> Whole:
        """(N,) GPUs of each job, where it has one number of them in all of its columns."""
        job, column, _ = self._members
        gpus = self.gpus[column]
        most, least = np.zeros(self.n_jobs, np.int64), np.full(self.n_jobs, np.iinfo(np.int64).max)
        np.maximum.at(most, job, gpus)
        np.minimum.at(least, job, gpus)
        if (least != most).any():
            i = int(np.argmax(least != most))
            found = "no column" if most[i] == 0 else f"{least[i]} and {most[i]}"
            raise InputError(_SOURCE, field=f"GPUs of job {self.jobs[i]!r}", found=found, expected="one number of GPUs")
        return most


def expanded(starts: Whole, lengths: Whole, of: Whole | None = None) -> tuple[Whole, Whole]:
    """Ranges written out: which range each entry is of, and its position; of the ranges `of` where given."""
    if of is not None:
        starts, lengths = starts[of], lengths[of]
    which = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.arange(len(which)) - before[which] + starts[which]


def read_configurations(path: str | os.PathLike[str]) -> Configurations:
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


def write_configurations(configurations: Configurations, path: str | os.PathLike[str]) -> None:
    """Write configurations as CSV or Parquet; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    write_rows(path, configurations)
