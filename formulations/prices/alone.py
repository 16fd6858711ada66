"""A level that one job holds alone: the others have room to spare, so that all prices are 0.

No allocation beats the level of the job that can do no better with all of its time on its fastest type
(`Threshold.easiest_level`). Whether the others meet their demands beside it is asked of one point only, so that a
program of which this is not so loses next to nothing: a job mixes the types as the cluster does, up to the part of its
time in which its fastest type has to make up for what it still lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import Method, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from throughputs.arrays import Floats
from throughputs.numerics import matmul


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Shares at the easiest level of a threshold objective; NotAcceptedError where they do not fit."""
    return objective.accept(_Alone(polytope))


@dataclass(frozen=True, eq=False)
class _Alone(Method[Answer]):
    polytope: Polytope

    def level(self, objective: Threshold) -> Answer:
        """At prices of 0."""
        polytope, fastest = self.polytope, self.polytope.fastest
        demand = np.minimum(objective.demand(objective.easiest_level(fastest)), fastest)
        shares = mixed_shares(polytope, demand)
        if (polytope.used(shares) > polytope.capacity).any():
            raise NotAcceptedError("jobs hold the level together")
        held = objective.held_alone(fastest) / polytope.counts
        return Answer(shares, held, np.zeros(len(polytope.capacity)))


def mixed_shares(polytope: Polytope, demand: Floats) -> Floats:
    """(N, M) shares that yield the `demand` (N,), which a job's fastest type can meet; capacity may be exceeded."""
    rates, fastest = polytope.rates, polytope.fastest
    share_of_type = polytope.capacity / polytope.capacity.sum()
    mixed = matmul(rates, share_of_type)
    with np.errstate(divide="ignore", invalid="ignore"):
        on_fastest = np.where(demand > mixed, (demand - mixed) / (fastest - mixed), 0.0)
        of_mix = np.where(demand > mixed, 1.0 - on_fastest, demand / mixed)
    shares = of_mix[:, None] * share_of_type
    shares[np.arange(len(shares)), rates.argmax(axis=1)] += on_fastest
    return np.asarray(shares)
