"""Whether an optimum is the only one, told from its prices.

By complementary slackness every optimum uses only columns whose reduced cost is zero. With exact prices most jobs have
as many of those as they have rows (time; demand), and so no choice. What freedom the other jobs have shows in the use
of capacity: the optimum is unique if no combination of it leaves the use of every priced type as it is.
"""

from __future__ import annotations

import numpy as np

from formulations.core.polytope import Polytope
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics.systems import null_space, singular_values

_FREE_COST = 1e-7
"""Reduced cost, relative to what the job earns, up to which a column counts as free: on the safe side."""

_NEGLIGIBLE_WORTH = 1e-7
"""Worth of a job relative to the mean below which it is rounding, and says nothing about the columns of the job."""

_LEAST_SINGULAR_VALUE = 1e-6
"""Smallest relative singular value of independent directions."""


def is_unique(polytope: Polytope, worth: Floats, prices: Floats, demanding: Flags) -> bool:
    """Whether the shares that earn the most at these prices are determined.

    Parameters
    ----------
    worth : (N, M) what a share of each column earns its job, multipliers of its demand included.
    prices : (M,) of an optimum.
    demanding : (N,) jobs whose throughput is held by a demand.
    """
    freedom = Freedom(polytope, *free_columns(polytope, worth, prices), demanding)
    loose = np.flatnonzero(freedom.degrees > 0)
    if not len(loose):
        return True
    total = polytope.supply(worth, prices)
    priced = prices * polytope.capacity > _FREE_COST * total
    if int(freedom.degrees[loose].sum()) > int(priced.sum()):
        return False
    moves = freedom.moves(loose)[:, priced]
    return rank_of(moves) == len(moves)


def free_columns(polytope: Polytope, worth: Floats, prices: Floats) -> tuple[Flags, Flags]:
    """(N, M) columns without reduced cost, and (N,) jobs whose time is worth nothing, so that they may idle."""
    cost = polytope.scale_factors[:, None] * prices
    profit = np.maximum((worth - cost).max(axis=1), 0.0)
    scale = worth.max(axis=1)
    unknown = scale <= _NEGLIGIBLE_WORTH * scale.mean()
    free = ((cost + profit[:, None] - worth <= _FREE_COST * scale[:, None]) | unknown[:, None]) & (polytope.rates > 0)
    return free, profit <= _FREE_COST * scale


class Freedom:
    """What jobs may change about their shares without a change of their time or their throughput.

    Parameters
    ----------
    polytope : N jobs.
    free : (N, M) columns that may be used.
    idle : (N,) jobs that may leave time unused.
    demanding : (N,) jobs whose throughput must stay.

    Attributes
    ----------
    degrees : (N,) number of independent changes.
    """

    def __init__(self, polytope: Polytope, free: Flags, idle: Flags, demanding: Flags) -> None:
        self._rates, self._free, self._idle, self._demanding = polytope.rates, free, idle, demanding
        # where all free columns yield the same, the row of the demand is that of time again
        most = np.where(free, polytope.rates, 0.0).max(axis=1)
        least = np.where(idle, 0.0, np.where(free, polytope.rates, np.inf).min(axis=1))
        self.degrees = free.sum(axis=1) + idle - 1 - (demanding & (most - least > _LEAST_SINGULAR_VALUE * most))

    def moves(self, jobs: Positions) -> Floats:
        """(sum of degrees, M) independent changes of the jobs' shares, each of length 1."""
        moves = np.concatenate([self._moves(job) for job in jobs])
        return np.asarray(moves / np.sqrt((moves * moves).sum(axis=1, keepdims=True)))

    def _moves(self, job: int) -> Floats:
        rates, idle = self._rates[job], bool(self._idle[job])
        types = np.flatnonzero(self._free[job])
        rows = [np.ones(len(types) + idle)]
        if self._demanding[job]:
            # idle time gives no throughput; beside rates of millions of steps/s the row of time would count as none
            scaled = rates[types] / rates[types].max(initial=np.finfo(np.float64).tiny)
            rows.append(np.append(scaled, 0.0) if idle else scaled)
        basis = null_space(np.array(rows), _LEAST_SINGULAR_VALUE)
        moves = np.zeros((len(basis), len(rates)))
        moves[:, types] = basis[:, : len(types)]
        return moves


def rank_of(moves: Floats, least: float = _LEAST_SINGULAR_VALUE) -> int:
    """Number of independent ones among `moves` (k, M) of length 1, up to singular values of `least`."""
    return int((singular_values(moves) > least).sum()) if moves.size else 0
