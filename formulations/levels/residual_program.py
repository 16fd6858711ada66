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

_ROUNDING, _ROUNDING_OF_ALL = 1e-7, 1e-10
"""Part of a type, and of all GPUs where that is less than half of it, that may be left by rounding."""


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
        shares = np.where(part.rates > 0, proof.shares[np.ix_(self.jobs, self.types)], 0.0)
        worth = proof.multipliers[self.jobs, None] * part.rates
        full = due[self.jobs] >= part.fastest * (1.0 - _FULL)
        done = fixed[self.jobs] | full
        free, idle = free_columns(part, worth, proof.prices[self.types])
        # what is in use costs nothing more, whatever multipliers near 0 say
        free |= shares > _ROUNDING
        # the use of capacity of those without freedom is the same in every allocation that attains the level
        left = ~(done & (degrees_of_freedom(part, free, idle & ~full, done) <= 0))
        capacity = np.maximum(part.capacity - matmul(part.loads[~left], shares[~left]), 0.0)
        rounding = np.minimum(_ROUNDING_OF_ALL * float(self.whole.capacity.sum()), 0.5 * part.capacity)
        open_ = capacity > np.maximum(_ROUNDING * part.capacity, rounding)
        fastest = np.where(open_, part.rates, 0.0).max(axis=1)
        left &= fastest > 0
        self._settled[np.ix_(self.jobs, self.types)] = shares
        most = due.copy()
        most[self.jobs[left]] = fastest[left]
        rows, kept = np.flatnonzero(left), np.flatnonzero(open_)
        if len(rows) < part.n_jobs or len(kept) < len(open_):
            rest = part.restricted(rows, kept)
            self.polytope = Polytope(rest.columns, capacity[kept], rest.counts)
            self.jobs, self.types = self.jobs[rows], self.types[kept]
            self._settled[self.jobs] = 0.0
        return most
