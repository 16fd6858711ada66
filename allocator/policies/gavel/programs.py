"""Gavel's objectives: max-min and finish-time fairness, makespan, throughput; many blind to types and aware of them.

Max-min fairness raises the least normalised throughput and stops there. Water filling fixes the jobs that cannot rise
further, raises the others, and so on: whoever has more has it at nobody's cost. With entities
(`allocator.protocol.entities`) GPU time is shared among them by their weights first, and what an entity cannot use goes
to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.policies.base.packed import PackedPolicy
from allocator.policies.base.programs import BlindPolicy, ProgramPolicy, TimePolicy, fitting_gpus
from allocator.protocol import ClusterState, Need
from allocator.registry import register
from formulations import FinishTimeFairness as FinishTimeObjective
from formulations import Makespan, MaxMin, MaxSum, WaterFilling, isolated_throughput, proportional_throughput
from throughputs.arrays import Floats

_FAIRNESS = "Narayanan et al., OSDI 2020, sec. 4.1"


@register("max_min_fairness_perf", paper=_FAIRNESS, program="max_x min_i s_i T_i.x_i / (w_i p_i)")
@dataclass(frozen=True)
class MaxMinFairnessPerf(ProgramPolicy):
    """Heterogeneity-aware LAS: raise the least normalised throughput.

        max_x  min_i  s_i / (w_i p_i) * sum_j T_ij x_ij          x in the allocation polytope

    T: throughput (N, M) steps/s; s: scale factors; w: priority weights; p_i = sum_j c_j T_ij / sum_j c_j, throughput
    under the proportional share. s_i makes it GPU time that is shared equally.
    """

    def objective(self, state: ClusterState, rates: Floats) -> MaxMin:
        """Throughput in proportional shares, times GPUs, per weight."""
        per_job = max(state.n_jobs, 1) if self.choice != "balanced" else 1
        normaliser = proportional_throughput(rates, state.capacity, per_job)
        return MaxMin(state.priority_weights * normaliser / state.scale_factors)


@register("max_min_fairness", paper=_FAIRNESS + " (baseline)", program="max_x min_i s_i/w_i sum_j x_ij")
@dataclass(frozen=True)
class MaxMinFairness(TimePolicy, MaxMinFairnessPerf):
    """LAS blind to accelerator types: share GPU time equally, all types alike.

        max_x  min_i  s_i / w_i * sum_j x_ij                      x in the allocation polytope

    The same program with every throughput 1. Any mix of types attains the optimum.
    """


_WATER_FILLING = "Narayanan et al., OSDI 2020, sec. 4.3 and app. A.1"


@register(
    "max_min_fairness_water_filling_perf",
    paper=_WATER_FILLING,
    program="lex max_x sort_i s_i T_i.x_i / (w_i p_i), by entities",
)
@dataclass(frozen=True)
class MaxMinFairnessWaterFillingPerf(ProgramPolicy):
    """Heterogeneity-aware LAS with water filling: raise the least normalised throughput, then the next, ...

        lex max_x  sort_i ( v_i(x) / w_i ),   v_i(x) = s_i / p_i * sum_j T_ij x_ij     x in the allocation polytope

    T: throughput (N, M) steps/s; s: scale factors; w: priority weights; p_i = sum_j c_j T_ij / sum_j c_j, throughput
    under the proportional share.

    Through entities, v is handed on from the top: members of the top, and of an entity with the policy fairness, that
    can use more have v in proportion to their weights; in an entity with the policy fifo the first job that can use
    more gets all of it. What an entity has is the sum of what its members have. The level at the top is raised until
    somebody is held, whoever is held is fixed, and the others go on.
    """

    def objective(self, state: ClusterState, rates: Floats) -> WaterFilling:
        """Throughput in proportional shares, times GPUs, per weight; through the entities of the jobs."""
        normaliser = proportional_throughput(rates, state.capacity)
        hierarchy = None if state.membership is None else state.membership.hierarchy
        return WaterFilling(normaliser / state.scale_factors, state.priority_weights, hierarchy)


@register(
    "max_min_fairness_water_filling",
    paper=_WATER_FILLING + " (baseline)",
    program="lex max_x sort_i s_i/w_i sum_j x_ij, by entities",
)
@dataclass(frozen=True)
class MaxMinFairnessWaterFilling(TimePolicy, MaxMinFairnessWaterFillingPerf):
    """LAS with water filling, blind to accelerator types: share GPU time, all types alike, until none is left.

        lex max_x  sort_i ( s_i / w_i * sum_j x_ij )              x in the allocation polytope

    The same program with every throughput 1, with entities as in `max_min_fairness_water_filling_perf`.
    """


@register(
    "max_min_fairness_water_filling_packed",
    paper=_WATER_FILLING + ", sec. 3.1",
    program="lex max_(x,z) sort_i s_i u_i / (w_i p_i), u_i = sum_j (T_ij x_ij + sum_k T'_(i|k,j) z_ikj), by entities",
)
@dataclass(frozen=True)
class MaxMinFairnessWaterFillingPacked(PackedPolicy):
    """Heterogeneity-aware LAS with water filling and space sharing.

        lex max_(x,z)  sort_i ( v_i(x, z) / w_i ),   v_i = s_i u_i / p_i          (x, z) in the polytope with pairs

    p_i is the throughput of the job alone under the proportional share; entities as in
    `max_min_fairness_water_filling_perf`. The polytope is that of `allocator.policies.gavel.packed`.
    """

    alone = MaxMinFairnessWaterFillingPerf()


_FINISH_TIME = "Narayanan et al., OSDI 2020, sec. 4.3; Mahajan et al., NSDI 2020, sec. 3"


@register(
    "finish_time_fairness_perf", paper=_FINISH_TIME, program="min_x max_i (e_i + n_i / T_i.x_i) / (C_i + n_i / q_i)"
)
@dataclass(frozen=True)
class FinishTimeFairnessPerf(ProgramPolicy):
    """Heterogeneity-aware finish-time fairness: lower the worst rho.

        min_x  max_i  rho_i,   rho_i = (e_i + n_i / sum_j T_ij x_ij) / (C_i + n_i / q_i)

    e: seconds since arrival; n: steps left; q: throughput under the isolated share of now; C: seconds that the steps
    already done would have taken on the isolated shares of their time.
    """

    needs = Need.LENGTHS | Need.ISOLATED_TIME

    def objective(self, state: ClusterState, rates: Floats) -> FinishTimeObjective:
        """Time to finish as shared over time to finish as isolated."""
        alone = isolated_throughput(rates, state.scale_factors, fitting_gpus(state))
        left = state.steps_remaining
        return FinishTimeObjective(state.elapsed_seconds, left, self.isolated_seconds(state, rates) + left / alone)

    def isolated_seconds(self, state: ClusterState, rates: Floats) -> Floats:  # noqa: ARG002
        """(N,) C: seconds that the steps already done would have taken on isolated shares."""
        return state.isolated_seconds


@register(
    "finish_time_fairness",
    paper=_FINISH_TIME + " (baseline)",
    program="as finish_time_fairness_perf with T_ij = T_i,ref",
)
@dataclass(frozen=True)
class FinishTimeFairness(BlindPolicy, FinishTimeFairnessPerf):
    """Finish-time fairness blind to accelerator types: every type taken for the reference type, in C too."""

    def isolated_seconds(self, state: ClusterState, rates: Floats) -> Floats:
        """C at the believed rates: on isolated shares a job always has the same mix of types."""
        fits = fitting_gpus(state) > 0
        true, believed = (proportional_throughput(np.where(fits, r, 0.0), state.capacity) for r in (state.rates, rates))
        return state.isolated_seconds * (true / believed)


_MAKESPAN = "Narayanan et al., OSDI 2020, sec. 4.2"


@register("min_total_duration_perf", paper=_MAKESPAN, program="min_x max_i n_i / T_i.x_i")
@dataclass(frozen=True)
class MinTotalDurationPerf(ProgramPolicy):
    """Heterogeneity-aware makespan: the last job ends as early as possible.

        min_x  max_i  n_i / sum_j T_ij x_ij                        x in the allocation polytope

    n: steps left. Solved to optimality as max z with T_i.x_i >= z n_i (the published code bisects and stops at 5 %).
    """

    needs = Need.LENGTHS | Need.ISOLATED_TIME

    def objective(self, state: ClusterState, rates: Floats) -> Makespan:  # noqa: ARG002
        """Steps left over throughput."""
        return Makespan(state.steps_remaining)


@register("min_total_duration", paper=_MAKESPAN + " (baseline)", program="min_x max_i n_i / (T_i,ref sum_j x_ij)")
@dataclass(frozen=True)
class MinTotalDuration(BlindPolicy, MinTotalDurationPerf):
    """Makespan blind to accelerator types: every type taken for the reference type.

    min_x  max_i  n_i / (T_i,ref sum_j x_ij)                   x in the allocation polytope
    """


@register("max_sum_throughput_perf", paper="Narayanan et al., OSDI 2020, sec. 4.2", program="max_x sum_ij T_ij x_ij")
@dataclass(frozen=True)
class MaxSumThroughputPerf(ProgramPolicy):
    """Raise the total number of steps per second of all jobs together.

        max_x  sum_ij T_ij x_ij                                    x in the allocation polytope

    Raw steps/s, as published: models with many short steps count for more, and others may starve.
    """

    def objective(self, state: ClusterState, rates: Floats) -> MaxSum:  # noqa: ARG002
        """Every step counts 1."""
        return MaxSum(np.ones(state.n_jobs))
