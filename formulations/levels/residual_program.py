"""The residual program: what a water level leaves for the levels above it.

Where a level ends, complementary slackness says of every allocation that attains it: a job that holds it has just its
demand, on columns without reduced cost only, and a type with a price is used up. Most jobs that are held have no choice
left. Their shares are final, and the levels above are programs over the other jobs and what is left of each type. That
is exact, and it keeps the programs well posed: a job that is held at its most to the last bit would leave them no
interior.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from formulations.core.certificate import Certificate
from formulations.core.polytope import Polytope
from formulations.solving.uniqueness import degrees_of_freedom, free_columns
from throughputs.arrays import Flags, Floats
from throughputs.numerics import matmul

_FULL = 2e-8
"""Relative distance from the fastest type's throughput up to which a job is full."""

_AS_FAST = 1e-6
"""Relative difference up to which two types may count as equally fast: on the safe side."""

_IN_USE = 1e-6
"""Part of a job's throughput from which a column is in use, whatever its reduced cost."""

_NEGLIGIBLE_YIELD = 1e-8
"""Part of a job's throughput that may be dropped with a type that is used up, where the level is solved well."""

_PRICED = 1e-7
"""Part of what a GPU is worth to the job that would pay most for it from which a type has a price."""

_ROUNDING, _ROUNDING_OF_ALL = 1e-11, 1e-10
"""Part of any type, and of all GPUs, that may be left by rounding."""

_ROUNDING_OF_PRICED = 1e-7
"""Part of a type with a price that may be left by rounding."""


class ResidualProgram:
    """Jobs (N) and types (M) of a polytope of which some are settled for good.

    Attributes
    ----------
    polytope : over the jobs and types that are left.
    jobs, types : their positions.
    """

    def __init__(self, polytope: Polytope) -> None:
        self.whole, self.polytope = polytope, polytope
        self.jobs, self.types = np.arange(polytope.n_jobs), np.arange(len(polytope.capacity))
        self._settled = np.zeros(polytope.rates.shape)

    def among_all(self, proof: Certificate) -> Certificate:
        """A proof over what is left, as one over all jobs and types: with the shares of those that are settled."""
        if self.polytope is self.whole:
            return proof
        shares, multipliers = self._settled.copy(), np.zeros(self.whole.n_jobs)
        prices = np.zeros(len(self.whole.capacity))
        shares[np.ix_(self.jobs, self.types)] = proof.shares
        multipliers[self.jobs], prices[self.types] = proof.multipliers, proof.prices
        return replace(proof, shares=shares, multipliers=multipliers, prices=prices)

    def settle(self, proof: Certificate, fixed: Flags, due: Floats) -> Floats:
        """Settle what the proof of a level leaves no choice about.

        Parameters
        ----------
        proof : of a level, over all jobs and types.
        fixed : (N,) jobs that will not rise any further.
        due : (N,) throughput that the level has brought each job to; some may have been given more.

        Returns
        -------
        (N,) the most throughput that each job can still come to.
        """
        part = self.polytope
        shares, multipliers = proof.shares[np.ix_(self.jobs, self.types)], proof.multipliers[self.jobs]
        prices = proof.prices[self.types]
        x = np.where(part.rates > 0, shares, 0.0)
        u = part.throughput(x)
        most = due.copy()
        worth = multipliers[:, None] * part.rates
        priced = prices > _PRICED * (worth / part.scale_factors[:, None]).max(axis=0)
        priced &= part.capacity - part.used(shares) <= _ROUNDING_OF_PRICED * part.capacity
        open_ = np.ones(len(part.capacity), dtype=bool)
        left = np.ones(part.n_jobs, dtype=bool)
        capacity = part.capacity
        free, idle = free_columns(part, worth, prices)
        free |= part.rates * shares > _IN_USE * u[:, None]
        while True:
            fastest = np.where(open_, part.rates, 0.0).max(axis=1)
            full = due[self.jobs] >= fastest * (1.0 - _FULL)
            done = left & (fixed[self.jobs] | full)
            # whose use of capacity is the same in every allocation that attains the level
            best = np.where(full[:, None], part.rates >= (1.0 - _AS_FAST) * fastest[:, None], free)
            left &= ~(done & (degrees_of_freedom(part, best, idle & ~full, done) <= 0))
            spent = matmul(part.loads[~left], x[~left])
            capacity = np.maximum(part.capacity - spent, 0.0)
            spared = part.rates * x <= max(_NEGLIGIBLE_YIELD, 10.0 * proof.gap) * u[:, None]
            little = capacity <= np.where(priced, _ROUNDING_OF_PRICED, _ROUNDING) * part.capacity
            closing = (spared | ~left[:, None]).all(axis=0) & little
            # of a type with a price those who are not held have nothing but rounding
            next_to_nothing = capacity <= _ROUNDING_OF_ALL * float(self.whole.capacity.sum())
            closing |= (spared | ~(left & done)[:, None]).all(axis=0) & priced & next_to_nothing
            closing &= open_
            if not closing.any():
                break
            open_ &= ~closing
        fastest = np.where(open_, part.rates, 0.0).max(axis=1)
        left &= fastest > 0
        self._settled[np.ix_(self.jobs, self.types)] = x
        most[self.jobs[left]] = fastest[left]
        rows, kept = np.flatnonzero(left), np.flatnonzero(open_)
        if len(rows) < part.n_jobs or len(kept) < len(open_):
            rest = part.restricted(rows, kept)
            self.polytope = Polytope(rest.columns, capacity[kept], rest.counts)
            self.jobs, self.types = self.jobs[rows], self.types[kept]
            self._settled[self.jobs] = 0.0
        return most
