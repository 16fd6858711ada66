"""Whether an optimum is the only one, told from its prices.

By complementary slackness every optimum uses only columns whose reduced cost is zero. With exact prices most jobs have
as many of those as they have rows (time; demand), and so no choice. What freedom the other jobs have shows in the use
of capacity: the optimum is unique if every change of their shares changes the use of a priced type.
"""

from __future__ import annotations

import numpy as np

from formulations.core.polytope import Polytope
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import dot
from throughputs.numerics.systems import null_space

_FREE_COST = 1e-7
"""Reduced cost, relative to what the job earns, up to which a column counts as free: on the safe side."""

_NEGLIGIBLE_WORTH = 1e-7
"""Worth of a job relative to the mean below which it is rounding, and says nothing about the columns of the job."""

_INDEPENDENT = 1e-6
"""Relative distance from which rows are no combination of each other, and from which two rates differ."""


def is_unique(polytope: Polytope, worth: Floats, prices: Floats, demanding: Flags) -> bool:
    """Whether the shares that earn the most at these prices are determined.

    Parameters
    ----------
    worth : (N, M) what a share of each column earns its job, multipliers of its demand included.
    prices : (M,) of an optimum.
    demanding : (N,) jobs whose throughput is held by a demand.
    """
    free, idle = free_columns(polytope, worth, prices)
    freedom = degrees_of_freedom(polytope, free, idle, demanding)
    loose = np.flatnonzero(freedom > 0)
    if not len(loose):
        return True
    profit = np.maximum((worth - polytope.scale_factors[:, None] * prices).max(axis=1), 0.0)
    paid = prices * polytope.capacity
    priced = paid > _FREE_COST * (float(np.add.reduce(paid)) + dot(polytope.counts, profit))
    if int(freedom[loose].sum()) > int(priced.sum()):
        return False
    # columns: the free shares of the loose jobs, and where they may be idle; rows: time, demand, use of priced types
    rates = np.where(free, polytope.rates, 0.0)[loose]
    relative = np.append(rates / rates.max(axis=1, keepdims=True), np.zeros((len(loose), 1)), axis=1)
    job, kind = np.nonzero(np.column_stack([free, idle])[loose])
    time = np.arange(len(loose))[:, None] == job
    demand = time * np.where(demanding[loose][job], relative[job, kind], 0.0)
    used = np.flatnonzero(priced)[:, None] == kind
    return not len(null_space(np.concatenate([time, demand, used]), _INDEPENDENT))


def free_columns(polytope: Polytope, worth: Floats, prices: Floats) -> tuple[Flags, Flags]:
    """(N, M) columns without reduced cost, and (N,) jobs whose time is worth nothing, so that they may idle."""
    cost = polytope.scale_factors[:, None] * prices
    profit = np.maximum((worth - cost).max(axis=1), 0.0)
    scale = worth.max(axis=1)
    unknown = scale <= _NEGLIGIBLE_WORTH * scale.mean()
    free = ((cost + profit[:, None] - worth <= _FREE_COST * scale[:, None]) | unknown[:, None]) & (polytope.rates > 0)
    return free, profit <= _FREE_COST * scale


def degrees_of_freedom(polytope: Polytope, free: Flags, idle: Flags, demanding: Flags) -> Ints:
    """(N,) number of independent changes of each job's shares that leave its time and its throughput as they are.

    Parameters
    ----------
    free : (N, M) columns that may be used.
    idle : (N,) jobs that may leave time unused.
    demanding : (N,) jobs whose throughput must stay.
    """
    # where all free columns yield the same, the row of the demand is that of time again
    most = np.where(free, polytope.rates, 0.0).max(axis=1)
    least = np.where(idle, 0.0, np.where(free, polytope.rates, np.inf).min(axis=1))
    return np.asarray(free.sum(axis=1) + idle - 1 - (demanding & (most - least > _INDEPENDENT * most)))
