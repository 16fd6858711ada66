"""Policies with space sharing: two jobs may have the same GPUs at the same time.

The objectives are those of the plain policies of the same name; what changes is the polytope (`formulations.packed`):

    sum_j ( x_ij + sum_k z_ikj ) <= 1,   sum_i s_i x_ij + sum_{i<k} s_i z_ikj <= c_j,   z_ikj = 0 where s_i != s_k
    throughput of job i:   u_i = sum_j ( T_ij x_ij + sum_k T'_{i|k,j} z_ikj )

x: share of time of job i alone on type j; z: share of time of jobs i and k together; T' (steps/s): what i does beside
k. A job's normaliser (proportional or isolated throughput) is that of T, jobs alone.

Source: Narayanan et al., OSDI 2020, section 3.1.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.policies.base import Array, Named, certified, named_accelerator
from allocator.policies.finish_time import FinishTimeFairnessPerf
from allocator.policies.makespan import MinTotalDurationPerf
from allocator.policies.max_min import MaxMinFairnessPerf
from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from throughputs import PackedColumns, ThroughputMatrix

if TYPE_CHECKING:
    from formulations import Makespan, Objective, PackedPolytope, PackedSolution, Pairs

__all__ = [
    "FinishTimeFairnessPacked",
    "MaxMinFairnessPacked",
    "MinTotalDurationPacked",
    "PackedPolicy",
    "PairingPolicy",
    "ServedPart",
    "served_part",
]

_PAPER = "Narayanan et al., OSDI 2020, sec. 3.1 and "


@dataclass(frozen=True)
class PairingPolicy(SharePolicy):
    """A policy that is a program over the polytope with pairs.

    Parameters
    ----------
    solver : "auto" or the name of an engine (`formulations.packed.engines`).
    """

    solver: str = "auto"

    needs: ClassVar[Need] = Need.COLOCATION | Need.ISOLATED_TIME

    @abstractmethod
    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""

    def prepare(self) -> None:
        """Import the solver, by a decision about two jobs that may share."""
        name = named_accelerator(self)
        matrix = ThroughputMatrix([[1.0], [1.0]], [0, 1], [name])
        pairs = PackedColumns([0, 0], [[1.0]], [[[0.6]]], accelerators=[name])
        self.allocate(ClusterState(Cluster({name: 1}), matrix, colocation=pairs))


@dataclass(frozen=True)
class PackedPolicy(PairingPolicy):
    """A policy that is an objective over the polytope with pairs."""

    @abstractmethod
    def objective(self, state: ClusterState) -> Objective:
        """The objective for the jobs of `state`."""

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        from formulations import solve_packed

        started = perf_counter()
        part = served_part(state)
        solution = solve_packed(part.polytope, self.objective(part.state), solver=self.solver)
        return part.allocation(self, solution, started)


@dataclass(frozen=True, eq=False)
class ServedPart:
    """The jobs of a state that gain something alone and have steps left.

    Attributes
    ----------
    whole : the state with all N jobs. state : that with these jobs only.
    able : (N,) which they are.
    polytope : over these jobs, without columns on types that have fewer GPUs than the gang needs.
    """

    whole: ClusterState
    state: ClusterState
    able: NDArray[np.bool_]
    polytope: PackedPolytope

    def allocation(self, policy: Named, solution: PackedSolution, started: float, **more: Any) -> Allocation:
        """Of all jobs, from the solution for these; `started` is when the decision began, `more` as in `certified`."""
        from formulations import Pairs

        jobs, found = np.flatnonzero(self.able), solution.pairs
        shares = np.zeros(self.whole.rates.shape)
        shares[jobs] = solution.shares
        pairs = Pairs(jobs[found.first], jobs[found.second], found.accelerator, np.clip(found.share, 0.0, 1.0))
        rates = _pair_rates(self.polytope.columns, found)
        more |= {"pairs": pairs, "pair_rates": rates}
        return certified(policy, self.whole, solution, shares, ~self.able, perf_counter() - started, **more)


def served_part(state: ClusterState) -> ServedPart:
    """What a program with pairs is about: a job that gains nothing alone has no normaliser, one that is through needs
    nothing."""
    from formulations import PackedPolytope

    able = np.asarray((_fitting(state.packed, state).rates > 0).any(axis=1) & (state.steps_remaining > 0))
    part = state if able.all() else state.subset(np.flatnonzero(able))
    return ServedPart(state, part, able, PackedPolytope(_fitting(part.packed, part), state.capacity))


def _fitting(columns: PackedColumns, state: ClusterState) -> PackedColumns:
    """The columns with 0 on types that have fewer GPUs than a gang needs."""
    fits = columns.group_scale_factors[:, None] <= state.capacity
    if fits.all():
        return columns
    return PackedColumns(
        columns.group,
        np.where(fits, columns.alone, 0.0),
        np.where(fits[:, None, :], columns.together, 0.0),
        columns.group_scale_factors,
        jobs=columns.jobs,
        accelerators=columns.accelerators,
    )


def _pair_rates(columns: PackedColumns, pairs: Pairs) -> Array:
    """(P, 2) throughput of the two jobs of each pair, steps/s."""
    one, other = columns.group[pairs.first], columns.group[pairs.second]
    j = pairs.accelerator
    return np.stack([columns.together[one, other, j], columns.together[other, one, j]], axis=1)


@register(
    "max_min_fairness_packed",
    paper=_PAPER + "4.1",
    program="max_(x,z) min_i s_i u_i / (w_i p_i), u_i = sum_j (T_ij x_ij + sum_k T'_(i|k,j) z_ikj)",
)
@dataclass(frozen=True)
class MaxMinFairnessPacked(PackedPolicy):
    """Heterogeneity-aware LAS with space sharing.

        max_(x,z)  min_i  s_i u_i / (w_i p_i)                      (x, z) in the polytope with pairs

    s: scale factors; w: priority weights; p_i = sum_j c_j T_ij / sum_j c_j, throughput under the proportional share.
    """

    def objective(self, state: ClusterState) -> Objective:
        """As of `max_min_fairness_perf`."""
        return MaxMinFairnessPerf().objective(state, state.rates)


@register(
    "finish_time_fairness_packed",
    paper=_PAPER + "4.3; Mahajan et al., NSDI 2020, sec. 3",
    program="min_(x,z) max_i (e_i + n_i / u_i) / (C_i + n_i / q_i), u_i with pairs",
)
@dataclass(frozen=True)
class FinishTimeFairnessPacked(PackedPolicy):
    """Heterogeneity-aware finish-time fairness with space sharing.

        min_(x,z)  max_i  rho_i,   rho_i = (e_i + n_i / u_i) / (C_i + n_i / q_i)    (x, z) in the polytope with pairs

    e: seconds since arrival; n: steps left; q: throughput under the isolated share; C: seconds that the steps already
    done would have taken on isolated shares. Priority weights play no part, as in the plain policy (the published code
    divides u_i by them here).
    """

    def objective(self, state: ClusterState) -> Objective:
        """As of `finish_time_fairness_perf`."""
        return FinishTimeFairnessPerf().objective(state, state.rates)


@register(
    "min_total_duration_packed",
    paper=_PAPER + "4.2",
    program="min_(x,z) max_i n_i / u_i, u_i with pairs",
)
@dataclass(frozen=True)
class MinTotalDurationPacked(PackedPolicy):
    """Heterogeneity-aware makespan with space sharing: the last job ends as early as possible.

        min_(x,z)  max_i  n_i / u_i                                 (x, z) in the polytope with pairs

    n: steps left.

    Parameters
    ----------
    choice : which of the optima: "balanced" (`formulations.packed.choice`), or "published", the point on which the
        published system acts, up to 5 % above the optimum (`formulations.published.packed_makespan`).
    """

    choice: str = "balanced"

    def objective(self, state: ClusterState) -> Makespan:
        """As of `min_total_duration_perf`."""
        return MinTotalDurationPerf().objective(state, state.rates)

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`, and choose."""
        from formulations import solve_packed
        from formulations.published.packed_makespan import published_makespan
        from formulations.solving.choice import check_choice

        check_choice(self.choice)
        started = perf_counter()
        part = served_part(state)
        objective = self.objective(part.state)
        solution = solve_packed(part.polytope, objective, solver=self.solver)
        if self.choice == "published":
            solution = published_makespan(part.polytope, objective, solution)
        return part.allocation(self, solution, started)
