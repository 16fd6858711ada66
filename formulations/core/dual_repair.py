"""Dual repair by complementary slackness: prices and multipliers recomputed from the shares.

Any prices and multipliers prove a bound, and what is missing at good ones is rounding. Where capacity is next to
nothing, or some jobs' demands are a millionth of others', rounding is not small: a share's reduced cost is found to
the precision of what the share is worth, and the bound pays for it as if the job had the whole of its time.
Complementary slackness says what the figures should be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.core.polytope import Polytope

Array = NDArray[np.float64]

_SPARE = 1e-6
"""Part of its time from which a job has some to spare."""

_IN_USE = 1e-3
"""Part of a job's largest share from which a share counts as in use."""


def repair_duals(
    polytope: Polytope, shares: Array, multipliers: Array, prices: Array, *, given: bool = False
) -> tuple[Array, Array]:
    """Multipliers (N,) and prices (M,) for which the same shares are as good, with less left by rounding.

    The time of a job that has some to spare is worth nothing; other time is worth what the job's shares in use earn. No
    share may earn more than the time and the GPUs that it takes. Where one does, either the type's price rises, which
    costs as much as there are GPUs, or the job bears it: one with time to spare by a multiplier that makes its
    throughput worth what its GPUs cost, others by time that is worth more. Each price rises to where both cost the
    same. Where multipliers are `given`, only prices change.
    """
    s, worth = polytope.scale_factors[:, None], multipliers[:, None] * polytope.rates
    spare = 1.0 - np.einsum("ij->i", shares) > _SPARE
    in_use = shares > _IN_USE * shares.max(axis=1, keepdims=True)
    of_time = np.where(in_use, worth - s * prices, 0.0).max(axis=1)
    of_time[spare] = 0.0
    beyond = np.maximum((worth - of_time[:, None]) / s - prices, 0.0)
    # GPUs of each type that a job would take for its throughput, or all the time
    u = polytope.throughput(shares)
    takes = np.divide(u[:, None], polytope.rates, out=np.ones(shares.shape), where=polytope.rates > 0)
    takes[~spare | given] = 1.0
    takes *= polytope.loads[:, None]
    order = np.argsort(-beyond, axis=0, kind="stable")
    covered = np.cumsum(np.take_along_axis(takes, order, axis=0), axis=0) <= polytope.capacity
    sorted_ = np.append(np.take_along_axis(beyond, order, axis=0), np.zeros((1, len(prices))), axis=0)
    prices = prices + np.take_along_axis(sorted_, covered.sum(axis=0)[None], axis=0)[0]
    if given:
        return multipliers, prices
    cost = np.divide(s * prices, polytope.rates, out=np.full(shares.shape, np.inf), where=polytope.rates > 0)
    return np.where(spare, cost.min(axis=1), multipliers), prices
