"""Families of instances: published mixes of job types, distinct jobs, degenerate ones; tight and slack capacity.

The published table has three accelerator types; further ones are blends of them, the same for every job of a type,
so that identical jobs stay identical.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.solvers.registry import Array, Instance, family
from throughputs import default_table
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

QUARTER = 0.75
"""GPUs per GPU asked for; on three types a quarter as many of each as there are single-GPU jobs."""
TIGHT, SLACK = 0.125, 1.5

SIZES = (128, 512, 2048, 8192)
LARGE = (*SIZES, 32_768, 100_000)


@family("published", "published types, single GPUs", sizes={3: LARGE, 4: (1_000_000,)})
def published(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Single-GPU jobs of the 26 published types: 26 classes of identical jobs at any size."""
    return _instance(*_published_jobs(n_jobs, n_types, {1: 1.0}, rng), QUARTER)


@family("gangs", "published types, gangs, priorities", sizes={3: SIZES})
def gangs(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Published types with the published mix of gang sizes and priorities."""
    rates, sizes = _published_jobs(n_jobs, n_types, PUBLISHED_SCALE_FACTORS, rng)
    weights = rng.choice(list(PUBLISHED_PRIORITIES), n_jobs, p=list(PUBLISHED_PRIORITIES.values()))
    return _instance(rates, sizes, QUARTER, weights)


@family("distinct", "all jobs distinct", sizes={3: LARGE, 4: (1_000_000,)})
def distinct(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Published types, each rate moved by up to a quarter: no two jobs alike."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), QUARTER)


@family("tight", "distinct, 8 jobs per GPU", sizes={3: SIZES})
def tight(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on one GPU for eight that are asked for."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), TIGHT)


@family("slack", "distinct, 1.5 GPUs per job", sizes={3: SIZES})
def slack(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on more GPUs than are asked for; the fast types stay contended."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), SLACK)


@family("degenerate", "ties, zeros, weights over six decades", sizes={3: SIZES})
def degenerate(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """All that spoils a solver at once: rounded and repeated rows, rates of zero, a type that nobody can use and one
    with next to no GPUs, gangs larger than a type, weights over six decades.
    """
    rates = np.round(rng.uniform(0.1, 1.0, (n_jobs, n_types)), 1) * 10.0 ** rng.integers(-1, 3, (n_jobs, 1))
    rates[rng.random((n_jobs, n_types)) < 0.3] = 0.0
    rates[:, 0] = np.where(rates.any(axis=1), rates[:, 0], 1.0)
    repeated = rng.random(n_jobs) < 0.5
    rates[repeated] = rates[rng.integers(0, min(n_jobs, 8), int(repeated.sum()))]
    sizes = rng.choice([1, 2, 4, 64], n_jobs, p=[0.7, 0.15, 0.1, 0.05])
    capacity = _capacity(sizes, n_types, QUARTER)
    if n_types > 1:
        capacity[-1] = 1e-3
    if n_types > 2:
        rates[:, -2] = 0.0
    stranded = ~rates[:, : max(1, n_types - 2)].any(axis=1)
    rates[stranded, 0] = 1.0
    return Instance(rates, sizes, capacity, 10.0 ** rng.uniform(-3, 3, n_jobs))


@family("many_types", "distinct, 2 to 16 types", sizes=dict.fromkeys((2, 4, 8, 16), (2048,)))
def many_types(n_jobs: int, n_types: int, rng: np.random.Generator) -> Instance:
    """Distinct jobs on more and more accelerator types."""
    return _instance(*_distinct_jobs(n_jobs, n_types, rng), QUARTER)


def _published_jobs(
    n_jobs: int, n_types: int, mix: Mapping[int, float], rng: np.random.Generator
) -> tuple[Array, NDArray[np.int64]]:
    """(N, M) rates and (N,) gang sizes of jobs drawn from the published table."""
    shares = dict(mix)
    table = default_table()
    sizes = rng.choice(list(shares), n_jobs, p=list(shares.values()))
    rates = np.empty((n_jobs, n_types))
    for size in shares:
        known = [name for name in table.job_types if size in table.scale_factors_of(name)]
        profiled = table.rates(known, [size] * len(known), table.accelerators)
        # a job type is drawn only where the reference type, the first, was profiled
        rows = _with_blends(profiled[profiled[:, 0] > 0], n_types)
        here = np.flatnonzero(sizes == size)
        rates[here] = rows[rng.integers(0, len(rows), len(here))]
    return rates, sizes.astype(np.int64)


def _with_blends(rates: Array, n_types: int) -> Array:
    """The first `n_types` of: the three published types, then geometric blends of them, moved a little per row."""
    rng = np.random.default_rng(26)
    columns = list(rates.T)
    while len(columns) < n_types:
        part = rng.dirichlet(np.ones(rates.shape[1]))
        columns.append(np.prod(rates**part, axis=1) * rng.uniform(0.8, 1.25, len(rates)))
    return np.column_stack(columns[:n_types])


def _distinct_jobs(n_jobs: int, n_types: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    rates, sizes = _published_jobs(n_jobs, n_types, {1: 1.0}, rng)
    rates *= rng.uniform(0.8, 1.25, rates.shape)
    return rates, sizes


def _instance(rates: Array, sizes: NDArray[np.int64], fraction: float, weights: Array | None = None) -> Instance:
    capacity = _capacity(sizes, rates.shape[1], fraction)
    return Instance(rates, sizes, capacity, np.ones(len(rates)) if weights is None else weights)


def _capacity(sizes: NDArray[np.int64], n_types: int, fraction: float) -> Array:
    """As many GPUs of each type; together `fraction` of what is asked for."""
    return np.full(n_types, max(1.0, float(sizes.sum() * fraction // n_types)))
