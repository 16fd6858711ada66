"""Deadlines (service level objectives): drawn for a trace, and kept or missed.

A job's SLO is a multiple of its duration: it is due `slo` durations after its arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from throughputs import InputError, Trace

__all__ = ["PUBLISHED_SLOS", "assign_slos", "met_deadlines"]

PUBLISHED_SLOS: Mapping[float, float] = MappingProxyType({1.2: 0.33, 2.0: 0.34, 10.0: 0.33})
"""Probability of each multiple of the duration in the workload with SLOs of Narayanan et al., OSDI 2020."""


def assign_slos(trace: Trace, rng: np.random.Generator, slos: Mapping[float, float] = PUBLISHED_SLOS) -> Trace:
    """The same jobs, each with an SLO drawn from `slos`; jobs that have one, or a deadline, keep it.

    One number is drawn for every job, whether or not it is needed, so that jobs draw alike whoever has an SLO already.

    Parameters
    ----------
    trace : the jobs.
    rng : the generator to draw with.
    slos : probability of each multiple of the duration; nan as a multiple stands for no deadline.

    Raises
    ------
    InputError
        Probabilities that are negative or do not add up to 1, or a multiple that is not positive.
    """
    factors, probabilities = np.array(list(slos), dtype=np.float64), np.array(list(slos.values()), dtype=np.float64)
    if not len(factors) or (probabilities < 0).any() or abs(probabilities.sum() - 1) > 1e-9:
        raise InputError("slos", found=dict(slos), expected="probabilities of at least 0 that add up to 1")
    if not (np.isnan(factors) | ((factors > 0) & np.isfinite(factors))).all():
        raise InputError("slos", found=dict(slos), expected="positive multiples of the duration")
    drawn = factors[rng.choice(len(factors), size=len(trace), p=probabilities)]
    columns = {name: getattr(trace, name) for name in Trace.column_names()}
    columns["slo"] = np.where(np.isnan(trace.slo) & np.isnan(trace.deadline), drawn, trace.slo)
    return Trace(**columns, source=trace.source)


def met_deadlines(deadline: NDArray[np.float64], completion_time: NDArray[np.float64]) -> NDArray[np.object_]:
    """(N,) True or False for jobs with a deadline, None for the others. A job that did not complete missed its own."""
    met = np.full(len(deadline), None, dtype=object)
    due = ~np.isnan(deadline)
    met[due] = (completion_time <= deadline)[due]
    return met
