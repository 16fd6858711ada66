"""Levels in closed form: of a single type, and such as one job holds alone.

On a single type, at a price of 1, a unit of job i's throughput costs ``s_i / T_i``. The level at which all demands
together cost as much as there are GPUs is the best one (`Threshold.bound`), unless a job is held by its own time first.

No allocation beats the level of the job that can do no better with all of its time on its fastest type
(`Threshold.easiest_level`). Where the others meet their demands beside it, GPUs are to spare and prices are 0. Whether
they do is asked of the points between two, so that a program of which this is not so loses next to nothing: all jobs on
their fastest types, as far as they need them; and on all types, as many as the cluster has of each, but for the time in
which a job cannot do without its fastest type.
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
    """The best level of a threshold objective; NotAcceptedError where it is not found so."""
    return objective.accept(_ClosedForm(polytope))


@dataclass(frozen=True, eq=False)
class _ClosedForm(Method[Answer]):
    polytope: Polytope

    def level(self, objective: Threshold) -> Answer:
        """Of one type, else of one job."""
        polytope, fastest, M = self.polytope, self.polytope.fastest, len(self.polytope.capacity)
        easiest = objective.easiest_level(fastest)
        if M == 1:
            cost = polytope.scale_factors / fastest
            level = objective.bound(polytope.counts * cost, float(polytope.capacity[0]))
            if objective.worse(level, easiest) == level:
                return Answer((objective.demand(level) / fastest)[:, None], cost, np.ones(1))
        shares = _fitting_shares(polytope, np.minimum(objective.demand(easiest), fastest))
        return Answer(shares, objective.held_alone(fastest) / polytope.counts, np.zeros(M))


def _fitting_shares(polytope: Polytope, demand: Floats) -> Floats:
    """(N, M) shares that yield the `demand` (N,), which a job's fastest type can meet.

    NotAcceptedError where none of the points that are tried fits.
    """
    rates, fastest, capacity = polytope.rates, polytope.fastest, polytope.capacity
    own = np.zeros(rates.shape)
    best = np.arange(len(rates)), rates.argmax(axis=1)
    own[best] = demand / fastest
    used = polytope.used(own)
    if used.sum() > capacity.sum():
        # nowhere do they need less GPU time
        raise NotAcceptedError("jobs hold the level together")
    share_of_type = capacity / capacity.sum()
    mixed = matmul(rates, share_of_type)
    with np.errstate(divide="ignore", invalid="ignore"):
        # of its time in which a job cannot do without its fastest type
        more = np.where(demand > mixed, (demand - mixed) / (fastest - mixed), 0.0)
        shared = np.where(demand > mixed, 1.0 - more, demand / mixed)[:, None] * share_of_type
    shared[best] += more
    # the part of the second point at which each type has as many GPUs as are used
    slope = polytope.used(shared) - used
    with np.errstate(divide="ignore", invalid="ignore"):
        even = (capacity - used) / slope
    least, most = np.max(even, where=slope < 0, initial=0.0), np.min(even, where=slope > 0, initial=1.0)
    shares = own + 0.5 * (least + most) * (shared - own)
    if not (least <= most and (polytope.used(shares) <= capacity).all()):
        raise NotAcceptedError("jobs hold the level together")
    return np.asarray(shares)
