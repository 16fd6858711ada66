"""Shares that need no program: isolated and proportional.

Both are also the normalisers of other policies: throughput under the proportional share normalises max-min fairness,
throughput under the isolated share is the denominator of finish-time fairness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def isolated_shares(scale_factors: NDArray[np.int64], capacity: NDArray[np.int64] | Array) -> Array:
    """Each of the N jobs gets one N-th of every type::

        x_ij = (c_j / N) / s_i,  each row scaled to sum to at most 1

    Parameters: (N,) GPUs per gang; (M,) GPUs per type, or (N, M) those that each job may use. Returns (N, M).
    Source: Narayanan et al., OSDI 2020, section 4.3.
    """
    N = len(scale_factors)
    shares = np.asarray(capacity, dtype=np.float64) / max(N, 1) / scale_factors[:, None]
    return np.asarray(shares / np.maximum(shares.sum(1, keepdims=True), 1.0))


def isolated_throughput(rates: Array, scale_factors: NDArray[np.int64], capacity: NDArray[np.int64] | Array) -> Array:
    """(N,) steps/s of each job under its isolated share."""
    return np.asarray((rates * isolated_shares(scale_factors, capacity)).sum(axis=1))


def proportional_shares(n_jobs: int, capacity: NDArray[np.int64] | Array) -> Array:
    """Each job's time is split over the types as their GPUs are: ``x_ij = c_j / sum_k c_k``, (N, M).

    A normaliser, not an allocation: with more jobs than GPUs it exceeds the capacity.
    Source: Narayanan et al., OSDI 2020, section 4.1.
    """
    capacity = np.asarray(capacity, dtype=np.float64)
    total = capacity.sum()
    row = capacity / total if total > 0 else np.zeros_like(capacity)
    return np.tile(row, (n_jobs, 1))


def proportional_throughput(rates: Array, capacity: NDArray[np.int64] | Array, per_job: int = 1) -> Array:
    """(N,) steps/s of each job under the proportional share.

    `per_job` is the number of jobs that the GPUs are first divided by, which changes last digits only. The published
    systems divide by N; the last digits of the normaliser decide at which of many optima their solver ends.
    """
    divided: Array = np.asarray(capacity, dtype=np.float64) / per_job
    return np.asarray((rates * proportional_shares(1, divided)).sum(axis=1))
