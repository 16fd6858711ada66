"""Shares of time: max-min, makespan, finish-time fairness, sums, costs, Nash welfare, envy; alone and in pairs.

Narayanan et al., OSDI 2020; x_ij is the share of time of job i on type j, u_i = sum_j T_ij x_ij its throughput.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from formulations.core.objectives import FinishTimeFairness, MaxMin, MaxSum, NashWelfare, Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import NotAcceptedError
from formulations.levels.water_filling import WaterFilling
from formulations.packed.polytope import PackedPolytope
from formulations.statements import cp
from throughputs.arrays import Floats, Positions

Program = Polytope | PackedPolytope


class Times:
    """The variables x (N, M) of jobs alone and z (P, M) of pairs of jobs, at least 0, and what they come to.

    Parameters
    ----------
    x : the variable, where it is to be another one than usual.

    Attributes
    ----------
    speed : (N, M) throughput of each job on each type, ``T_ij x_ij + sum_k T'_{i|k,j} z_ikj``. u : (N,) over all types.
    used : (M,) GPUs, those of a pair counted once. time : (N,) of each job.
    """

    def __init__(self, program: Program, x: Any = None) -> None:
        rates, sizes = program.columns.rates, program.columns.scale_factors
        loads = program.loads if isinstance(program, Polytope) else sizes
        x = self.x = cp.Variable(rates.shape, nonneg=True, name="x") if x is None else x
        self.speed = cp.multiply(rates, x)
        self.used = cp.sum(cp.multiply(loads[:, None], x), axis=0)
        self.time = cp.sum(x, axis=1)
        if isinstance(program, PackedPolytope):
            one, other = np.triu_indices(len(sizes), 1)
            alike = sizes[one] == sizes[other]
            if alike.any():
                self._add_pairs(program, one[alike], other[alike])
        self.u = cp.sum(self.speed, axis=1)

    def _add_pairs(self, program: PackedPolytope, one: Positions, other: Positions) -> None:
        group, together = program.columns.group, program.columns.together
        z = cp.Variable((len(one), len(program.capacity)), nonneg=True, name="z")
        for member, beside in ((one, other), (other, one)):
            of_job = np.equal.outer(np.arange(program.n_jobs), member).astype(float)
            self.speed += of_job @ cp.multiply(together[group[member], group[beside]], z)
            self.time += of_job @ cp.sum(z, axis=1)
        self.used += program.columns.scale_factors[one] @ z

    def rows(self, capacity: Floats, life: Any = 1) -> list[Any]:
        """The polytope: no more GPUs than there are, and one life."""
        return [self.used <= life * capacity, self.time <= life]


@singledispatch
def goal(objective: Objective, u: Any) -> Any:  # noqa: ARG001
    """An objective as an expression of throughputs u (N,); one of your own is registered here."""
    raise NotAcceptedError(f"{type(objective).__name__} has no statement in cvxpy")


@goal.register
def max_min(objective: MaxMin, u: Any) -> Any:
    """Max-min fairness, ``max_x min_i u_i / d_i``; and the makespan, whose inverse is ``max_x min_i u_i / n_i``."""
    return cp.Maximize(cp.min(cp.multiply(1.0 / objective.weights, u)))


@goal.register
def finish_time_fairness(objective: FinishTimeFairness, u: Any) -> Any:
    """``min_x max_i (e_i + n_i / u_i) / D_i``."""
    seconds = objective.elapsed + cp.multiply(objective.remaining, cp.inv_pos(u))
    return cp.Minimize(cp.max(cp.multiply(1.0 / objective.isolated, seconds)))


@goal.register
def max_sum(objective: MaxSum, u: Any) -> Any:
    """``max_x sum_i g_i u_i``."""
    return cp.Maximize(objective.totals @ u)


@goal.register
def nash_welfare(objective: NashWelfare, u: Any) -> Any:
    """``max_x sum_i B_i log u_i``."""
    return cp.Maximize(objective.totals @ cp.log(u))


@goal.register
def water_filling(objective: WaterFilling, u: Any) -> Any:
    """The first level: the most that everybody can have, ``max_x min_i u_i / (w_i d_i)``, where there are no entities.

    The lexicographic optimum is a sequence of programs; who can have no more keeps what it has in those that follow.
    """
    if (objective.hierarchy.of_job >= 0).any():
        raise NotAcceptedError("water that flows through entities is no single program")
    return cp.Maximize(cp.min(cp.multiply(1.0 / (objective.weights * objective.units), u)))


def best(program: Program, objective: Objective) -> Any:
    """The best shares by an objective; the last two rows are capacity and time."""
    times = Times(program)
    return cp.Problem(goal(objective, times.u), times.rows(program.capacity))


def most_worth(program: Program, gains: Floats, floors: Floats) -> Any:
    """``max_x sum_ij g_ij u_ij``, ``u_i >= f_i``; per cost with g = 1 / c_j, in time with f = n_i / S_i."""
    times = Times(program)
    rows = [*times.rows(program.capacity), times.u >= floors]
    return cp.Problem(cp.Maximize(cp.sum(cp.multiply(gains, times.speed))), rows)


def most_per_cost(program: Program, gains: Floats, gpu_cost: Floats, floors: Floats) -> Any:
    """``max_x sum_i g_i u_i / sum_j d_j v_j`` with ``u_i >= f_i``, v_j GPUs of type j in use.

    Times are stated in a life of such a length that what is used costs 1 (Charnes and Cooper, Naval Research Logistics
    Quarterly 9, 1962).
    """
    times, life = Times(program), cp.Variable(nonneg=True, name="life")
    rows = [*times.rows(program.capacity, life), gpu_cost @ times.used == 1, times.u >= floors * life]
    return cp.Problem(cp.Maximize(gains @ times.u), rows)


def most_floors(program: Program, floors: Floats) -> Any:
    """As many jobs as possible keep their floors: ``max_(x,k) sum_i k_i`` with ``u_i >= f_i k_i``, k_i 0 or 1."""
    times, kept = Times(program), cp.Variable(program.n_jobs, boolean=True, name="kept")
    rows = [*times.rows(program.capacity), times.u >= cp.multiply(floors, kept)]
    return cp.Problem(cp.Maximize(cp.sum(kept)), rows)


def envy_free(program: Polytope, weights: Floats, *, equal: bool = False) -> Any:
    """OEF: the most normalised throughput, ``max_x sum_i s_i a_i.x_i``, at which nobody envies another its GPU time::

        s_i / w_i a_i.x_i  >=  s_k / w_k a_i.x_k    for all i, k

    or, where misreporting may not pay, at which all ``s_i / w_i a_i.x_i`` are `equal`. Rates of `program` are the a_i.
    """
    times, a, sizes = Times(program), program.rates, program.scale_factors
    held = cp.multiply((sizes / weights)[:, None], times.x)
    own = cp.sum(cp.multiply(a, held), axis=1, keepdims=True)
    rows = [own == own[0]] if equal else [own @ np.ones((1, program.n_jobs)) >= a @ held.T]
    return cp.Problem(cp.Maximize(sizes @ times.u), [*times.rows(program.capacity), *rows])
