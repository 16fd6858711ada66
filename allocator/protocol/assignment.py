"""Who runs as what: the one form in which plans, mechanism, placement, simulator and adapters speak of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike

from allocator.fractions import WHOLE, taken_of
from throughputs import InputError
from throughputs.arrays import Flags, Ints, Positions, Values

NOBODY: Final[Ints] = np.empty(0, dtype=np.int64)
"""No jobs."""

# Up to so many numbers plain Python is faster than arrays.
_FEW = 64

# The partners of so many jobs alone.
_MOST_ALONE = 4096
_ALONE: Ints = np.full(_MOST_ALONE, -1, dtype=np.int64)
_ALONE.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Assignment:
    """K jobs that run from now on, each as what: its pool, its number of GPUs and the job it shares them with.

    Two jobs on the same GPUs are two rows that follow each other, the lower id first; they name each other as partner
    and have the same pool and number of GPUs. A fixed gang is the case in which the number is the scale factor.

    Attributes
    ----------
    jobs : (K,) ids; in a policy's plan, positions in its state.
    pool : (K,) positions of the pools (accelerator types) of the cluster.
    gpus : (K,) GPUs of each row, at least 1.
    partner : (K,) the job on the same GPUs, -1 for none.
    thousandths : (K,) of each of its GPUs that a row takes; None: all rows have their GPUs whole. The core fills it in
        by what the jobs ask for: a policy need not say it.

    >>> both = Assignment.of([3, 5, 8], pool=[0, 0, 1], gpus=[2, 2, 4], partner=[5, 3, -1])
    >>> both.gpus_used(2)
    array([2, 4])
    >>> both.among(np.array([5, 8])).partner
    array([-1, -1])
    >>> Assignment.of([3, 5, 8], pool=[0, 0, 1], gpus=[1, 1, 4]).with_fractions(np.array([250, 500, 1000])).gpus_used(2)
    array([0.75, 4.  ])
    """

    jobs: Ints
    pool: Ints
    gpus: Ints
    partner: Ints
    thousandths: Ints | None = None

    # Of each assignment, once it is known: whether any two jobs share, GPUs taken in all, and of each pool.
    _shares_gpus: ClassVar[bool | None] = None
    _busy_gpus: ClassVar[float | None] = None
    _used: ClassVar[Values | None] = None
    # Of rows whose jobs are positions: the ids behind these positions, and the same rows by id.
    _named: ClassVar[tuple[Ints, Assignment] | None] = None
    # Of rows that `followed_by` joined: the two parts.
    _parts: ClassVar[tuple[Assignment, Assignment] | None] = None

    @classmethod
    def of(cls, jobs: ArrayLike, pool: ArrayLike, gpus: ArrayLike, partner: ArrayLike | None = None) -> Assignment:
        """From anything array-like; without `partner` nobody shares."""
        ids, pools, counts = _whole(jobs, "jobs"), _whole(pool, "pool"), _whole(gpus, "gpus")
        if partner is None:
            return cls.alone(ids, pools, counts)
        return cls(ids, pools, counts, _whole(partner, "partner"))

    @classmethod
    def alone(cls, jobs: Ints, pool: Ints, gpus: Ints, thousandths: Ints | None = None) -> Assignment:
        """Of arrays, where nobody shares and nobody needs to look whether anybody does."""
        k = len(jobs)
        partner = _ALONE[:k] if k <= _MOST_ALONE else np.full(k, -1, dtype=np.int64)
        rows = object.__new__(cls)
        rows.__dict__.update(
            jobs=jobs, pool=pool, gpus=gpus, partner=partner, thousandths=thousandths, _shares_gpus=False
        )
        return rows

    @classmethod
    def none(cls) -> Assignment:
        """Nobody runs."""
        return cls.of([], [], [])

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def shares_gpus(self) -> bool:
        """Whether any two jobs share."""
        # Asked of every assignment: the lock of a cached property would take longer than the look at the partners.
        known = self._shares_gpus
        if known is None:
            known = self.__dict__["_shares_gpus"] = bool(np.count_nonzero(self.partner >= 0))
        return known

    @cached_property
    def firsts(self) -> Flags:
        """(K,) true once for each set of GPUs: jobs alone, and of two that share the lower id."""
        return np.asarray((self.partner < 0) | (self.jobs < self.partner))

    def with_fractions(self, thousandths: Ints) -> Assignment:
        """The same rows, which take so many `thousandths` (K,) of each of their GPUs."""
        return Assignment(self.jobs, self.pool, self.gpus, self.partner, thousandths)

    @property
    def parts(self) -> Ints:
        """(K,) thousandths of each GPU that the rows take."""
        return np.full(len(self), WHOLE) if self.thousandths is None else self.thousandths

    @property
    def gpus_taken(self) -> Values:
        """(K,) GPUs that each row takes: whole numbers where all rows have their GPUs whole."""
        return taken_of(self.gpus, self.thousandths)

    @property
    def busy_gpus(self) -> float:
        """GPUs taken in all; those that two jobs share count once, fractions as such."""
        known = self._busy_gpus
        if known is None:
            gpus = self.gpus if self.thousandths is None else self.gpus * self.thousandths
            taken = int((gpus[self.firsts] if self.shares_gpus else gpus).sum())
            known = self.__dict__["_busy_gpus"] = taken if self.thousandths is None else taken / WHOLE
        return known

    def gpus_used(self, pools: int) -> Values:
        """(M,) GPUs taken of each of `pools` pools; those that two jobs share count once, fractions as such."""
        if self._used is not None and len(self._used) == pools:
            return self._used
        rows = self.take(self.firsts) if self.shares_gpus else self
        if rows.thousandths is not None:
            used = np.rint(np.bincount(rows.pool, rows.gpus * rows.thousandths, pools)) / WHOLE
        else:
            used = np.bincount(rows.pool, rows.gpus, pools).astype(np.int64)
        self.__dict__["_used"] = used
        return used

    def take(self, rows: Positions | Flags | slice) -> Assignment:
        """Some of the rows."""
        part = None if self.thousandths is None else self.thousandths[rows]
        if not self.shares_gpus:
            return self.alone(self.jobs[rows], self.pool[rows], self.gpus[rows], part)
        return Assignment(self.jobs[rows], self.pool[rows], self.gpus[rows], self.partner[rows], part)

    def followed_by(self, rows: Assignment) -> Assignment:
        """These rows, and then others of other jobs."""
        if self._named is not None and not rows.shares_gpus:
            ids, own = self._named
            both = own.followed_by(rows.named(ids)).numbered(ids)
        else:
            both = self._joined(rows)
        both.__dict__["_parts"] = self, rows
        # Only the last join is asked for; without the parts of earlier ones these can be freed.
        self.__dict__.pop("_parts", None)
        return both

    def beyond(self, first: Assignment) -> Assignment:
        """The rows that follow those that stand `first`, where these are known to; else all."""
        return self if self._parts is None or self._parts[0] is not first else self._parts[1]

    def _joined(self, rows: Assignment) -> Assignment:
        jobs, pool = np.concatenate((self.jobs, rows.jobs)), np.concatenate((self.pool, rows.pool))
        gpus, parts = np.concatenate((self.gpus, rows.gpus)), None
        if self.thousandths is not None or rows.thousandths is not None:
            parts = np.concatenate((self.parts, rows.parts))
        if self.shares_gpus or rows.shares_gpus:
            return Assignment(jobs, pool, gpus, np.concatenate((self.partner, rows.partner)), parts)
        return Assignment.alone(jobs, pool, gpus, parts)

    def named(self, ids: Ints) -> Assignment:
        """The same with ids in place of positions; the very rows from which `numbered` made these."""
        if self._named is not None and self._named[0] is ids:
            return self._named[1]
        if not self.shares_gpus:
            return self.alone(ids.take(self.jobs), self.pool, self.gpus, self.thousandths)
        partner = np.where(self.partner < 0, -1, ids[np.maximum(self.partner, 0)])
        return Assignment(ids[self.jobs], self.pool, self.gpus, partner, self.thousandths)

    def numbered(self, ids: Ints) -> Assignment:
        """The same, where nobody shares, with the positions of the jobs in `ids` (ascending) in place of them."""
        rows: Assignment = object.__new__(_Numbered)
        rows.__dict__.update(self.__dict__)
        del rows.__dict__["jobs"]
        rows.__dict__["_named"], rows.__dict__["_parts"] = (ids, self), None
        return rows

    def among(self, live: Ints) -> Assignment:
        """Without jobs that are not `live` (ascending ids); who shared with one of them is alone."""
        return self._where(among_ids(self.jobs, live))

    def without(self, gone: Ints) -> Assignment:
        """Without the jobs that are `gone` (ids); who shared with one of them is alone."""
        return self._where(~among_ids(self.jobs, np.sort(gone)))

    def _where(self, there: Flags) -> Assignment:
        if there.all():
            return self
        kept = self.take(there)
        if not self.shares_gpus:
            return kept
        return replace(kept, partner=np.where(np.isin(kept.partner, kept.jobs), kept.partner, -1))

    def in_pairs(self) -> Assignment:
        """The same rows, two jobs that share following each other, the lower one first, where the lower one stood."""
        if not self.shares_gpus or self._pairs() is not None:
            return self
        by_job = self.jobs.argsort(kind="stable")
        lower = np.where(self.partner < 0, self.jobs, np.minimum(self.jobs, self.partner))
        row_of_lower = by_job[self.jobs[by_job].searchsorted(lower)]
        return self.take(np.lexsort((self.jobs, row_of_lower)))

    def _pairs(self) -> tuple[Ints, Ints] | None:
        """Rows of those who share, the lower of each two and the higher; None where they do not follow each other."""
        shared = (self.partner >= 0).nonzero()[0]
        first, second = shared[::2], shared[1::2]
        if len(first) != len(second) or np.count_nonzero(first + 1 != second):
            return None
        lower, higher = self.jobs[first], self.jobs[second]
        wrong = (lower != self.partner[second]) | (higher != self.partner[first]) | (lower > higher)
        return None if np.count_nonzero(wrong) else (first, second)

    def has_any(self, jobs: Ints) -> bool:
        """Whether any of the `jobs`, of which there are few, has a row."""
        own, asked = self, jobs
        if self._named is not None:
            ids, own = self._named
            asked = ids.take(jobs)
        return bool((own.jobs[:, None] == asked).any())

    def check(self, capacity: Ints, source: str) -> None:
        """Raise InputError, naming `source`, where this is none that pools of `capacity` GPUs (M,) can run."""

        def expected() -> str:
            return f"each job once, at least 1 GPU a job, and at most {capacity.tolist()} GPUs"

        k, pools = len(self.jobs), len(capacity)
        if not len(self.pool) == len(self.gpus) == len(self.partner) == k:
            raise InputError(source, field="assignment", found="columns of different length", expected="(K,) each")
        if k == 0:
            return
        if not within(self.pool, pools):
            raise InputError(source, field="assignment", found=self.pool.tolist(), expected=f"pools below {pools}")
        if not _distinct(self.jobs) or np.count_nonzero(self.gpus < 1):
            raise InputError(source, field="assignment", found="a job twice, or without GPUs", expected=expected())
        if self.shares_gpus:
            self._check_pairs(source)
        if pools == 1 and not self.shares_gpus and self.thousandths is None:
            fits = self.gpus.sum() <= capacity[0]
        else:
            fits = not np.count_nonzero(self.gpus_used(pools) > capacity)
        if not fits:
            found = f"{self.gpus_used(pools).tolist()} GPUs"
            raise InputError(source, field="assignment", found=found, expected=expected())

    def _check_pairs(self, source: str) -> None:
        pairs = self._pairs()
        if pairs is not None:
            first, second = pairs
            unlike = (self.pool[first] != self.pool[second]) | (self.gpus[first] != self.gpus[second])
            if not np.count_nonzero(unlike):
                return
        rows = np.flatnonzero(self.partner >= 0)
        order = self.jobs.argsort(kind="stable")
        at = order.take(self.jobs[order].searchsorted(self.partner[rows]), mode="clip")
        good = (self.jobs[at] == self.partner[rows]) & (self.partner[at] == self.jobs[rows])
        good &= (self.pool[at] == self.pool[rows]) & (self.gpus[at] == self.gpus[rows]) & (at != rows)
        if not good.all():
            job = int(self.jobs[rows[np.argmin(good)]])
            expected = "two jobs that name each other, with the same pool and number of GPUs"
            raise InputError(source, field="assignment", found=f"partner of job {job}", expected=expected)


class _Numbered(Assignment):
    """Rows whose jobs are positions, which are looked up when they are first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name != "jobs" or self._named is None:
            raise AttributeError(f"an Assignment has no {name!r}")
        ids, rows = self._named
        jobs = self.__dict__["jobs"] = ids.searchsorted(rows.jobs)
        return jobs


def _whole(values: ArrayLike, field: str) -> Ints:
    """(K,) whole numbers; InputError for others."""
    given = np.asarray(values)
    if given.ndim == 1 and given.dtype == np.int64:
        return given
    numbers = given.dtype.kind in "iuf" or not given.size
    if given.ndim != 1 or not numbers or (given != np.rint(given)).any():
        raise InputError("assignment", field=field, found=given.tolist(), expected="a list of whole numbers")
    return given.astype(np.int64, copy=False)


def within(numbers: Ints, limit: int) -> bool:
    """Whether all are from 0 and below `limit`."""
    if limit == 1:
        return not np.count_nonzero(numbers)
    return not len(numbers) or bool(numbers[numbers.argmin()] >= 0 and numbers[numbers.argmax()] < limit)


def _distinct(ids: Ints) -> bool:
    """Whether the (K,) ids, K > 0, are from 0 and each there once; in a time that grows with K alone."""
    if len(ids) <= _FEW:
        listed = ids.tolist()
        return min(listed) >= 0 and len(set(listed)) == len(listed)
    if ids[ids.argmin()] < 0:
        return False
    # Scatter the row numbers by id and gather them again: of equal ids only the last row finds its own number. Entries
    # of `put` that are not written are not read.
    numbers, put = np.arange(len(ids)), np.empty(ids[ids.argmax()] + 1, dtype=np.int64)
    put[ids] = numbers
    return bool(np.count_nonzero(put[ids] == numbers) == len(ids))


def among_ids(ids: Ints, live: Ints) -> Flags:
    """Which of `ids` are in `live`, which is ascending."""
    if not len(live):
        return np.zeros(len(ids), dtype=np.bool_)
    return np.asarray(live.take(live.searchsorted(ids), mode="clip") == ids)
