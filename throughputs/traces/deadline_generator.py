"""A workload of jobs with deadlines, drawn by the rules of ElasticFlow's generator.

>>> import numpy as np
>>> trace = deadline_trace(3, 1500.0, rng=np.random.default_rng(1))
>>> len(trace), bool((trace.deadline > trace.arrival_time).all())
(3, True)

The published generator draws its deadlines without a seed, so its traces cannot be drawn again; these follow the same
distributions. Source: D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
Learning", ASPLOS 2023 (public artifact, generate_trace.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from throughputs.errors import expect
from throughputs.limits import require
from throughputs.numerics import power_of_ten
from throughputs.tables.files import default_table
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace
from throughputs.traces.drawing import check_arrivals, poisson_arrivals, probabilities, types_by_size

DEADLINE_SCALE_FACTORS: Mapping[int, float] = MappingProxyType({1: 0.83, 2: 0.03, 4: 0.03, 8: 0.10, 16: 0.01})
"""Share of jobs by GPUs asked for, Gu et al., ASPLOS 2023. Sizes that a table does not have count for the largest."""

DEADLINE_FACTORS = (0.5, 1.5)
"""Bounds of the time to the deadline as a multiple of the duration, uniform between them, in the same workloads."""

_SOURCE = "deadline_trace"
_LONG_JOBS = 0.2
"""Part of the jobs that are long."""
_LONG, _SHORT = (2.5, 4.0), (1.0, 2.5)
"""Decimal exponents of minutes that lengths are drawn between."""
_MINUTE = 60.0


def deadline_trace(
    n_jobs: int,
    mean_interarrival: float,
    *,
    rng: np.random.Generator,
    factors: tuple[float, float] = DEADLINE_FACTORS,
    best_effort: float = 0.0,
    scale_factors: Mapping[int, float] = DEADLINE_SCALE_FACTORS,
    table: ThroughputTable | None = None,
    reference_accelerator: str | None = None,
) -> Trace:
    """Jobs with deadlines and best-effort jobs.

    Durations are 60 * 10**U(1, 2.5) s for four jobs of five and 60 * 10**U(2.5, 4) s for the others, on the GPUs that
    the job asks for; a job may well get more. Job types are drawn evenly from those that the table knows on so many.
    Every kind of figure has a stream of its own, derived from `rng`, so that a longer trace begins with a shorter one.

    Parameters
    ----------
    n_jobs : number of jobs.
    mean_interarrival : mean time between arrivals in seconds, Poisson, the first job at 0.
    rng : the generator that the streams are derived from.
    factors, best_effort : see `with_deadlines`.
    scale_factors : probability of each number of GPUs that a job asks for.
    table : throughputs that turn durations into steps; the embedded table when omitted.
    reference_accelerator : accelerator type on which the durations are meant; that of the table when omitted.

    Raises
    ------
    InputError
        A setting is out of range, or the table has no job type on that accelerator.
    """
    check_arrivals(n_jobs, mean_interarrival, _SOURCE)
    table = default_table() if table is None else table
    accelerator = reference_accelerator or table.reference_accelerator
    by_size = types_by_size(table, accelerator)
    expect(by_size, _SOURCE, "table", accelerator, "a job type on this accelerator")
    arrivals, durations, kinds, deadlines = rng.spawn(4)
    long, exponent = durations.random((n_jobs, 2)).T
    low, high = np.where(long >= 1 - _LONG_JOBS, np.array(_LONG)[:, None], np.array(_SHORT)[:, None])
    seconds = _MINUTE * power_of_ten(low + (high - low) * exponent)
    sizes, names = _kinds(kinds, n_jobs, scale_factors, by_size)
    rates = table.rates(names, sizes, [accelerator])[:, 0]
    times = poisson_arrivals(arrivals, n_jobs, mean_interarrival)
    trace = Trace(names, sizes, np.maximum(np.floor(seconds * rates), 1.0), times, duration=seconds, source=_SOURCE)
    return with_deadlines(trace, deadlines, factors, best_effort)


def with_deadlines(
    trace: Trace,
    rng: np.random.Generator,
    factors: tuple[float, float] | None = DEADLINE_FACTORS,
    best_effort: float = 0.0,
) -> Trace:
    """The same jobs with other deadlines, and a part of them without.

    Parameters
    ----------
    trace : the jobs, with their durations.
    rng : the generator to draw with, two numbers for every job.
    factors : the deadline is the arrival and U(low, high) times the duration, in whole seconds; the same for all
        where both are equal. None: deadlines stay as they are.
    best_effort : probability of having no deadline, 0 to 1.

    Raises
    ------
    InputError
        A setting is out of range, or a job has no duration.
    """
    low, high = (1.0, 1.0) if factors is None else factors
    expect(0 <= low <= high < math.inf, _SOURCE, "factors", factors, "the least of at least 0, then the most")
    expect(0 <= best_effort <= 1, _SOURCE, "best_effort", best_effort, "a probability, 0 to 1")
    drawn, without = rng.random((len(trace), 2)).T
    columns: dict[str, Any] = {}
    if factors is not None:
        known = ~np.isnan(trace.duration)
        require(known, trace.duration, trace.source, "duration", "seconds, for a deadline")
        deadline = trace.arrival_time + np.floor((low + (high - low) * drawn) * trace.duration)
        columns = {"deadline": deadline, "deadline_options": None, "slo": None}
    drawn_anew = replace(trace, **columns)
    if not best_effort:
        return drawn_anew
    none = without < best_effort
    options = [() if gone else row for gone, row in zip(none.tolist(), drawn_anew.deadline_options, strict=True)]
    slo, deadline = (np.where(none, np.nan, times) for times in (drawn_anew.slo, drawn_anew.deadline))
    columns = {"slo": slo, "deadline": deadline, "deadline_options": options}
    return replace(drawn_anew, **columns)


def _kinds(
    rng: np.random.Generator, n: int, scale_factors: Mapping[int, float], by_size: Mapping[int, list[str]]
) -> tuple[list[int], list[str]]:
    """Number of GPUs and type of each job: both from one row of random numbers."""
    shares = probabilities(scale_factors, _SOURCE, "scale_factors")
    asked, known = np.array(list(scale_factors)), np.array(sorted(by_size))
    sizes, names = [], []
    for of_size, of_type in rng.random((n, 2)).tolist():
        chosen = int(asked[min(int(np.searchsorted(np.cumsum(shares), of_size, side="right")), len(asked) - 1)])
        size = int(known[max(int(np.searchsorted(known, chosen, side="right")) - 1, 0)])
        sizes.append(size)
        names.append(by_size[size][int(of_type * len(by_size[size]))])
    return sizes, names
