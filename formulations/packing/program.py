"""The best pairs of waiting and running jobs: an assignment problem, proven by prices.

Waiting job i beside host j starts now instead of after a wait, and both go slower for as long as they share. In GPU
time this saves

    b_ij = g_i (w_i - r_i (1 / R_ij - 1) - r_j (1 / R_ji - 1))

with gangs of g_i GPUs, r seconds left alone, an expected wait of w_i seconds and retained fractions R. That the two
share to the end is assumed, so b_ij is what is saved at least. Each guest joins at most one host and each host takes at
most one guest::

    max  sum_ij b_ij z_ij    sum_j z_ij <= 1,   sum_i z_ij <= 1,   z_ij in {0, 1},  z_ij = 0 where the two may not share

The matrix is totally unimodular, so that the relaxation has a whole optimum, and prices u_i + v_j >= b_ij of its dual
prove it: no assignment saves more than ``sum u + sum v``. Limits on scores, memory, sizes and lengths are constraints,
not penalties: who may not share does not, however much it would save.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.packing.jobs import PackingJobs, PackingLimits, admissible_pairs, checked_retained
from throughputs.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class PairSolution:
    """The pairs that save most, and the proof.

    Attributes
    ----------
    host : (W,) the host that each guest joins, -1 for none.
    value : GPU seconds that they save.
    bound : no pairs save more, proven.
    guest_prices, host_prices : (W,), (R,) prices that prove the bound, GPU seconds.
    """

    host: Ints
    value: float
    bound: float
    guest_prices: Floats
    host_prices: Floats

    @property
    def gap(self) -> float:
        """Relative distance of the value from its bound."""
        return max(self.bound - self.value, 0.0) / self.bound if self.bound > 0 else 0.0


def pair_savings(
    guests: PackingJobs,
    hosts: PackingJobs,
    retained: ArrayLike,
    limits: PackingLimits,
    *,
    remaining: ArrayLike,
    host_remaining: ArrayLike,
    wait: ArrayLike,
) -> Floats:
    """(W, R) GPU seconds that each pair saves, b_ij; -inf for two that may not share.

    Parameters
    ----------
    retained : (K, K) fractions of throughput kept by kind beside kind.
    remaining, host_remaining : (W,), (R,) seconds that the jobs are predicted to need alone.
    wait : (W,) seconds that each guest is expected to wait for GPUs of its own.

    Raises
    ------
    InputError
        A column of another length, or times below 0 or not finite.
    """
    kept = checked_retained(retained)
    r = figures("packing", "remaining", remaining, (len(guests),), "numbers of at least 0")
    r_host = figures("packing", "host_remaining", host_remaining, (len(hosts),), "numbers of at least 0")
    w = figures("packing", "wait", wait, (len(guests),), "numbers of at least 0")
    allowed = admissible_pairs(guests, hosts, kept, limits)
    slower = 1.0 / np.where(kept > 0, kept, 1.0) - 1.0
    rows, columns = guests.kind[:, None], hosts.kind[None, :]
    lost = r[:, None] * slower[rows, columns] + r_host * slower[columns, rows]
    return np.where(allowed, guests.gpus[:, None] * (w[:, None] - lost), -np.inf)


def best_pairs(
    guests: PackingJobs,
    hosts: PackingJobs,
    retained: ArrayLike,
    limits: PackingLimits,
    *,
    remaining: ArrayLike,
    host_remaining: ArrayLike,
    wait: ArrayLike,
) -> PairSolution:
    """The pairs that save most GPU time; pairs that save nothing are left out.

    Gangs of one size are a program of their own (`scipy.optimize.linear_sum_assignment`). Parameters and errors are
    those of `pair_savings`.
    """
    from scipy.optimize import linear_sum_assignment

    savings = pair_savings(
        guests, hosts, retained, limits, remaining=remaining, host_remaining=host_remaining, wait=wait
    )
    host, saves = np.full(len(guests), -1, dtype=np.int64), (savings > 0).any(axis=1)
    guest_prices, host_prices = np.zeros(len(guests)), np.zeros(len(hosts))
    value = 0.0
    for size in np.unique(guests.gpus[saves]):
        rows, columns = np.flatnonzero(saves & (guests.gpus == size)), np.flatnonzero(hosts.gpus == size)
        part = np.maximum(savings[np.ix_(rows, columns)], 0.0)
        who, joins = linear_sum_assignment(part, maximize=True)
        who, joins = who[part[who, joins] > 0], joins[part[who, joins] > 0]
        host[rows[who]] = columns[joins]
        value += float(part[who, joins].sum())
        host_prices[columns] = _host_prices(part, who, joins)
        guest_prices[rows] = np.maximum((part - host_prices[columns]).max(axis=1), 0.0)
    bound = max(float(guest_prices.sum() + host_prices.sum()), value)
    return PairSolution(host, value, bound, guest_prices, host_prices)


def _host_prices(savings: Floats, inside: Ints, at: Ints) -> Floats:
    """(R,) the least prices of hosts at which nobody gains by another host, with the guests `inside` on the hosts `at`.

    They begin at what outsiders would pay. A guest at host k that would save more at host j by x asks for
    ``v_j >= v_k + x``. At an optimum these asks have no ascending circle, so that prices settle after as many passes as
    the longest chain has guests.
    """
    more: Floats = savings[inside] - savings[inside, at][:, None]
    outside = np.delete(savings, inside, axis=0)
    prices: Floats = outside.max(axis=0, initial=0.0)
    for _ in range(len(inside)):
        asked = np.maximum(prices, (prices[at][:, None] + more).max(axis=0, initial=0.0))
        if (asked <= prices).all():
            break
        prices = asked
    return prices
