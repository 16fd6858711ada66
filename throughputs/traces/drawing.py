"""What generators of workloads have in common: checks of their settings, and arrivals."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from throughputs.arrays import Floats
from throughputs.entry_points import load
from throughputs.errors import expect
from throughputs.limits import check_number_of_jobs
from throughputs.numerics import log
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace


def published_trace(system: str, n_jobs: int, mean_interarrival: float, **settings: Any) -> Trace:
    """Jobs drawn as the generator of a published system, "gavel" or "shockwave", draws them, with its settings."""
    trace: Trace = load("draws", system)(n_jobs, mean_interarrival, **settings)
    return trace


def check_arrivals(n_jobs: int, mean_interarrival: float, source: object) -> None:
    """Raise `InputError` for a number of jobs, or a mean time between arrivals, that cannot be."""
    check_number_of_jobs(n_jobs, source)
    expect(0 <= mean_interarrival < math.inf, source, "mean_interarrival", mean_interarrival, "seconds, at least 0")


def probabilities(mix: Mapping[Any, float], source: object, field: str) -> Floats:
    """The shares of the values of a mix; raises `InputError` unless they add up to 1."""
    shares = np.array(list(mix.values()), dtype=float)
    expect(
        len(shares) and (shares >= 0).all() and abs(shares.sum() - 1) < 1e-9,
        source,
        field,
        dict(mix),
        "probabilities that add up to 1",
    )
    return shares


def types_by_size(
    table: ThroughputTable, accelerator: str, job_types: Sequence[str] | None = None
) -> dict[int, list[str]]:
    """Job types, of the table's or of these, that run on so many GPUs of a type."""
    names = table.job_types if job_types is None else job_types
    keys = [(name, size) for name in names for size in table.scale_factors_of(name)]
    rates = table.rates([name for name, _ in keys], [size for _, size in keys], [accelerator])[:, 0]
    found: dict[int, list[str]] = {}
    for (name, size), rate in zip(keys, rates.tolist(), strict=True):
        if rate > 0:
            found.setdefault(size, []).append(name)
    return found


def poisson_arrivals(rng: np.random.Generator, n_jobs: int, mean_interarrival: float) -> Floats:
    """(N,) seconds; the first job arrives at 0, and a longer trace begins with a shorter one."""
    gaps = -log(1.0 - rng.random(n_jobs)) * mean_interarrival
    return np.concatenate([np.zeros(1), np.cumsum(gaps)])[:n_jobs]


def published_arrivals(rng: random.Random, n_jobs: int, mean_interarrival: float) -> Floats:
    """(N,) seconds as the generators of Gavel and Shockwave draw them, the first job at 0."""
    times = np.zeros(n_jobs)
    for i in range(1, n_jobs):
        times[i] = times[i - 1] - math.log(1.0 - rng.random()) * mean_interarrival
    return times
