"""Whether an optimum is the only one, told from its prices.

By complementary slackness every optimum uses only columns whose reduced cost is zero. With exact prices most jobs have
as many of those as they have rows (time; demand), and so no choice. What freedom the other jobs have shows in the use
of capacity: the optimum is unique if no combination of it leaves the use of every priced type as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.polytope import Polytope

__all__ = ["is_unique"]

Array = NDArray[np.float64]

_TIED = 1e-7
"""Reduced cost, relative to what the job earns, up to which a column counts as free: on the safe side."""

_INDEPENDENT = 1e-6
"""Smallest relative singular value of independent directions."""


def is_unique(polytope: Polytope, worth: Array, prices: Array, demanding: NDArray[np.bool_]) -> bool:
    """Whether the shares that earn the most at these prices are determined.

    Parameters
    ----------
    worth : (N, M) what a share of each column earns its job, multipliers of its demand included.
    prices : (M,) of an optimum.
    demanding : (N,) jobs whose throughput is held by a demand.
    """
    cost = polytope.scale_factors[:, None] * prices
    profit = np.maximum((worth - cost).max(axis=1), 0.0)
    scale = worth.max(axis=1)
    free = (cost + profit[:, None] - worth <= _TIED * scale[:, None]) & (polytope.rates > 0)
    idle = profit <= _TIED * scale
    # where all free columns yield the same, the row of the demand is that of time again
    most = np.where(free, polytope.rates, 0.0).max(axis=1)
    least = np.where(idle, 0.0, np.where(free, polytope.rates, np.inf).min(axis=1))
    freedom = free.sum(axis=1) + idle - 1 - (demanding & (most - least > _INDEPENDENT * most))
    loose = np.flatnonzero(freedom > 0)
    priced = prices * polytope.capacity > _TIED * float(polytope.counts @ profit + polytope.capacity @ prices)
    if not len(loose):
        return True
    if int(freedom[loose].sum()) > int(priced.sum()):
        return False
    effects = [_directions(polytope.rates[i], free[i], bool(idle[i]), bool(demanding[i])) for i in loose]
    moves = np.concatenate(effects)[:, priced]
    size = np.linalg.norm(np.concatenate(effects), axis=1, keepdims=True)
    singular = np.linalg.svd(moves / size, compute_uv=False)
    return len(singular) == len(moves) and bool(singular[-1] > _INDEPENDENT)


def _directions(rates: Array, free: NDArray[np.bool_], idle: bool, demanding: bool) -> Array:
    """(freedom, M) independent changes of a job's shares that keep its time and its throughput."""
    types = np.flatnonzero(free)
    rows = [np.ones(len(types) + idle)]
    if demanding:
        # idle time gives no throughput
        rows.append(np.append(rates[types], 0.0) if idle else rates[types])
    _, singular, basis = np.linalg.svd(np.array(rows))
    rank = int((singular > _INDEPENDENT * singular[0]).sum())
    moves = np.zeros((len(basis) - rank, len(rates)))
    moves[:, types] = basis[rank:, : len(types)]
    return moves
