"""Policies with space sharing: two jobs may have the same GPUs at the same time.

The objectives are those of the plain policies of the same name; what changes is the polytope (`formulations.packed`):

    sum_j ( x_ij + sum_k z_ikj ) <= 1,   sum_i s_i x_ij + sum_{i<k} s_i z_ikj <= c_j,   z_ikj = 0 where s_i != s_k
    throughput of job i:   u_i = sum_j ( T_ij x_ij + sum_k T'_{i|k,j} z_ikj )

x: share of time of job i alone on type j; z: share of time of jobs i and k together; T' (steps/s): what i does beside
k. A job's normaliser (proportional or isolated throughput) is that of T, jobs alone.

Source: Narayanan et al., OSDI 2020, section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base.packed import PackedPolicy
from allocator.policies.gavel.programs import FinishTimeFairnessPerf, MaxMinFairnessPerf, MinTotalDurationPerf
from allocator.protocol import Need
from allocator.registry import register

_PAPER = "Narayanan et al., OSDI 2020, sec. 3.1 and "


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

    alone = MaxMinFairnessPerf()


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

    needs = PackedPolicy.needs | Need.LENGTHS

    alone = FinishTimeFairnessPerf()


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
    """

    needs = PackedPolicy.needs | Need.LENGTHS

    alone = MinTotalDurationPerf()
