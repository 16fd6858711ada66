"""The polytope of allocations that every share policy has in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.closed_forms import proportional_throughput
from throughputs import InputError, PlainColumns, ThroughputMatrix

__all__ = ["Polytope"]

Array = NDArray[np.float64]


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
    capacity: Array
    counts: Array

    def __init__(self, columns: PlainColumns, capacity: NDArray[np.int64] | Array, counts: Array | None = None) -> None:
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "capacity", np.asarray(capacity, dtype=np.float64))
        object.__setattr__(self, "counts", np.ones(columns.matrix.n_jobs) if counts is None else counts)
        expected = (columns.matrix.n_accelerators,)
        if self.capacity.shape != expected:
            raise InputError("polytope", field="capacity", found=self.capacity.shape, expected=f"shape {expected}")
        if not (np.isfinite(self.capacity).all() and (self.capacity >= 0).all()):
            raise InputError("polytope", field="capacity", found=self.capacity.tolist(), expected="finite, at least 0")

    @property
    def rates(self) -> Array:
        """(N, M) throughput of each column."""
        return self.columns.rates

    @property
    def scale_factors(self) -> NDArray[np.int64]:
        """(N,) GPUs per gang."""
        return self.columns.scale_factors

    @cached_property
    def loads(self) -> Array:
        """(N,) GPUs that each row's jobs occupy together."""
        return np.asarray(self.counts * self.scale_factors)

    @cached_property
    def normalised_worth(self) -> Array:
        """(N,) ``s_i / p_i``, p_i the throughput under the proportional share: by it GPU time is worth the same to all.

        ``sum_i n_i (s_i / p_i) u_i`` is the total normalised throughput.
        """
        return np.asarray(self.scale_factors / proportional_throughput(self.rates, self.capacity))

    @property
    def n_jobs(self) -> int:
        """N."""
        return self.columns.matrix.n_jobs

    def throughput(self, shares: Array) -> Array:
        """(N,) throughput u that `shares` (N, M) yield."""
        return np.asarray((self.rates * shares).sum(axis=1))

    def violation(self, shares: Array) -> float:
        """Largest violation of a row, as a fraction of its right-hand side (of 1 GPU where capacity is below)."""
        if shares.size == 0:
            return 0.0
        over_time = float((shares.sum(1) - 1.0).max())
        over_capacity = float(((self.loads @ shares - self.capacity) / np.maximum(self.capacity, 1.0)).max())
        return max(over_time, over_capacity, float(-shares.min()), 0.0)

    def repaired(self, shares: Array) -> Array:
        """The nearest feasible shares below `shares`: rows, then types, scaled down where they exceed."""
        shares = np.clip(shares, 0.0, None)
        shares = shares / np.maximum(shares.sum(1, keepdims=True), 1.0)
        used = self.loads @ shares
        fits = np.divide(self.capacity, used, out=np.ones_like(used), where=used > self.capacity)
        return shares * fits

    def supply(self, worth: Array, prices: Array) -> float:
        """Most that the cluster can earn when column (i, j) is worth `worth`: an upper bound for any prices >= 0::

        sum_i n_i max(0, max_j (worth_ij - s_i p_j)) + c . p   >=   max_x  sum_i n_i worth_i . x_i
        """
        profit = (worth - self.scale_factors[:, None] * prices).max(axis=1, initial=0.0)
        return float(self.counts @ profit + self.capacity @ prices)

    def restricted(self, jobs: NDArray[np.intp], types: NDArray[np.intp], counts: Array | None = None) -> Polytope:
        """The same polytope over some jobs (numbered anew, with new `counts` if given) and some types only."""
        matrix = self.columns.matrix
        rates = matrix.rates[jobs]
        part = ThroughputMatrix.trusted(
            rates if np.array_equal(types, np.arange(matrix.n_accelerators)) else rates[:, types],
            jobs=range(len(jobs)),
            accelerators=[matrix.accelerators[j] for j in types],
            scale_factors=matrix.scale_factors[jobs],
            unit=matrix.unit,
        )
        return Polytope(PlainColumns(part), self.capacity[types], self.counts[jobs] if counts is None else counts)
