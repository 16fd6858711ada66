"""The polytope of allocations that every share policy has in common.

Isolated and proportional shares need no program. Both are also the normalisers of other policies: throughput under the
proportional share normalises max-min fairness, throughput under the isolated share is the denominator of finish-time
fairness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np

from formulations.arguments import figures, instance
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import dot


def isolated_shares(scale_factors: Ints, capacity: Ints | Floats) -> Floats:
    """Each of the N jobs gets one N-th of every type::

        x_ij = (c_j / N) / s_i,  each row scaled to sum to at most 1

    Parameters: (N,) GPUs per gang; (M,) GPUs per type, or (N, M) those that each job may use. Returns (N, M).
    Source: Narayanan et al., OSDI 2020, section 4.3.
    """
    N = len(scale_factors)
    shares = np.asarray(capacity, dtype=np.float64) / max(N, 1) / scale_factors[:, None]
    return np.asarray(shares / np.maximum(shares.sum(1, keepdims=True), 1.0))


def isolated_throughput(rates: Floats, scale_factors: Ints, capacity: Ints | Floats) -> Floats:
    """(N,) steps/s of each job under its isolated share."""
    return np.asarray((rates * isolated_shares(scale_factors, capacity)).sum(axis=1))


def proportional_shares(n_jobs: int, capacity: Ints | Floats) -> Floats:
    """Each job's time is split over the types as their GPUs are: ``x_ij = c_j / sum_k c_k``, (N, M).

    A normaliser, not an allocation: with more jobs than GPUs it exceeds the capacity.
    Source: Narayanan et al., OSDI 2020, section 4.1.
    """
    capacity = np.asarray(capacity, dtype=np.float64)
    total = capacity.sum()
    row = capacity / total if total > 0 else np.zeros_like(capacity)
    return np.tile(row, (n_jobs, 1))


def proportional_throughput(rates: Floats, capacity: Ints | Floats, per_job: int = 1) -> Floats:
    """(N,) steps/s of each job under the proportional share.

    `per_job` is the number of jobs that the GPUs are first divided by, which changes last digits only. The published
    systems divide by N; the last digits of the normaliser decide at which of many optima their solver ends.
    """
    divided: Floats = np.asarray(capacity, dtype=np.float64) / per_job
    return np.asarray((rates * proportional_shares(1, divided)).sum(axis=1))


ROUNDED_UP = 1.0 + 8.0 * float(np.finfo(np.float64).eps)
"""Factor by which prices are raised for a bound, so that rounding is on the safe side."""

_AT_LEAST_0 = "numbers of at least 0"

_LARGEST_SHARE = 1e300
"""What an infinite share is taken for."""


@dataclass(frozen=True, eq=False)
class Polytope:
    """Shares ``x >= 0`` of time that a cluster can give to its jobs::

        sum_j x_ij        <= 1     for every job i          (a job has one life)
        sum_i s_i x_ij    <= c_j   for every type j         (a type has c_j GPUs)

    and the throughput they yield, ``u_i = sum_j T_ij x_ij``. In column form: ``time @ x <= 1``,
    ``usage @ x <= capacity``, ``u = rate @ x``.

    Parameters
    ----------
    columns : the N x M ways to spend GPU time; a rate of 0 says that the job gains nothing from that type.
    capacity : (M,) GPUs of each type.
    counts : (N,) identical jobs that each row stands for; 1 for every row when omitted. Shares are those of one job,
        and the capacity rows read ``sum_i n_i s_i x_ij <= c_j``.

    Source: Narayanan et al., OSDI 2020, section 3.1.
    """

    columns: PlainColumns
    capacity: Floats
    counts: Floats

    time_follows: ClassVar[bool] = True
    """Whether what a job's time is worth follows from prices alone: then only capacity ends a level of water."""

    def __init__(self, columns: PlainColumns, capacity: Ints | Floats, counts: Floats | None = None) -> None:
        instance("polytope", "columns", columns, PlainColumns, "PlainColumns(ThroughputMatrix(...))")
        N, M = columns.matrix.n_jobs, columns.matrix.n_accelerators
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "capacity", figures("polytope", "capacity", capacity, (M,), _AT_LEAST_0))
        counted = np.ones(N) if counts is None else figures("polytope", "counts", counts, (N,), _AT_LEAST_0)
        object.__setattr__(self, "counts", counted)

    @property
    def rates(self) -> Floats:
        """(N, M) throughput of each column."""
        return self.columns.rates

    @property
    def scale_factors(self) -> Ints:
        """(N,) GPUs per gang."""
        return self.columns.scale_factors

    @cached_property
    def loads(self) -> Floats:
        """(N,) GPUs that each row's jobs occupy together."""
        return np.asarray(self.counts * self.scale_factors)

    @cached_property
    def normalised_worth(self) -> Floats:
        """(N,) ``s_i / p_i``, p_i the throughput under the proportional share: by it GPU time is worth the same to all.

        ``sum_i n_i (s_i / p_i) u_i`` is the total normalised throughput.
        """
        normaliser = proportional_throughput(self.rates, self.capacity)
        # who runs nowhere alone has its fastest rate in pairs instead
        return np.asarray(self.scale_factors / np.where(normaliser > 0, normaliser, self.fastest))

    @property
    def n_jobs(self) -> int:
        """N."""
        return self.columns.matrix.n_jobs

    @cached_property
    def fastest(self) -> Floats:
        """(N,) throughput of each row on its fastest type."""
        return np.ascontiguousarray(reduce(np.maximum, self.rates.T))

    def throughput(self, shares: Floats) -> Floats:
        """(N,) throughput u that `shares` (N, M) yield."""
        return np.asarray(np.einsum("ij,ij->i", self.rates, shares))

    def used(self, shares: Floats) -> Floats:
        """(M,) GPUs that `shares` (N, M) take of each type."""
        return np.asarray(np.einsum("i,ij->j", self.loads, shares))

    def violation(self, shares: Floats) -> float:
        """Largest violation of a row, as a fraction of its right-hand side (of 1 GPU where capacity is below)."""
        if shares.size == 0:
            return 0.0
        over_time = float((np.einsum("ij->i", shares) - 1.0).max())
        over_capacity = float(((self.used(shares) - self.capacity) / np.maximum(self.capacity, 1.0)).max())
        return max(over_time, over_capacity, float(-shares.min()), 0.0)

    def repaired(self, shares: Floats) -> Floats:
        """The nearest feasible shares below `shares`: rows, then types, scaled down where they exceed; none for NaN."""
        # maxima that mind no NaN
        repaired = np.fmin(np.fmax(shares, 0.0, order="C"), _LARGEST_SHARE)
        repaired /= np.maximum(np.einsum("ij->i", repaired), 1.0)[:, None]
        used = self.used(repaired)
        repaired *= np.divide(self.capacity, used, out=np.ones_like(used), where=used > self.capacity)
        return repaired

    def profits(self, multipliers: Floats, prices: Floats) -> Floats:
        """(N,) most that a job earns with all of its time, ``max(0, max_j (lambda_i T_ij - s_i p_j))``."""
        sizes, profits = self.scale_factors.astype(np.float64), np.zeros(self.n_jobs)
        # a few last bits up: rounding alone would be a profit larger than the worth of a type with next to no GPUs
        for rates, price in zip(self.rates.T, prices * ROUNDED_UP, strict=True):
            np.maximum(profits, multipliers * rates - sizes * price, out=profits)
        return profits

    def supply_at(self, multipliers: Floats, prices: Floats, time: Floats | None = None) -> float:  # noqa: ARG002
        """Most that the cluster can earn when a unit of throughput is worth `multipliers`: a bound for any p >= 0::

            sum_i n_i max(0, max_j (lambda_i T_ij - s_i p_j)) + c . p   >=   max_x  sum_i n_i lambda_i u_i

        The `time` (N,) of jobs is worth what follows from that.
        """
        return dot(self.counts, self.profits(multipliers, prices)) + dot(self.capacity, prices * ROUNDED_UP)

    def restricted(self, jobs: Positions, types: Positions, counts: Floats | None = None) -> Polytope:
        """The same polytope over some jobs (numbered anew, with new `counts` if given) and some types only."""
        matrix = self.columns.matrix
        rates = matrix.rates.take(jobs, axis=0, mode="clip")
        part = ThroughputMatrix.trusted(
            rates if np.array_equal(types, np.arange(matrix.n_accelerators)) else rates.take(types, axis=1),
            jobs=range(len(jobs)),
            accelerators=[matrix.accelerators[j] for j in types],
            scale_factors=matrix.scale_factors[jobs],
            unit=matrix.unit,
        )
        return Polytope(PlainColumns(part), self.capacity[types], self.counts[jobs] if counts is None else counts)
