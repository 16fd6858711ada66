"""Water filling: max-min fairness that goes on until nobody can be raised, among jobs and through entities.

Max-min fairness raises the least normalised throughput and stops there. Water filling fixes the jobs that cannot rise
further, raises the others, and so on: whoever has more has it at nobody's cost. With entities
(`allocator.protocol.entities`) GPU time is shared among them by their weights first, and what an entity cannot use goes
to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base.packed import PackedPolicy
from allocator.policies.base.programs import Array, ProgramPolicy, TimePolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import WaterFilling, proportional_throughput

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.3 and app. A.1"


@register(
    "max_min_fairness_water_filling_perf", paper=_PAPER, program="lex max_x sort_i s_i T_i.x_i / (w_i p_i), by entities"
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

    def objective(self, state: ClusterState, rates: Array) -> WaterFilling:
        """Throughput in proportional shares, times GPUs, per weight; through the entities of the jobs."""
        normaliser = proportional_throughput(rates, state.capacity)
        hierarchy = None if state.membership is None else state.membership.hierarchy
        return WaterFilling(normaliser / state.scale_factors, state.priority_weights, hierarchy)


@register(
    "max_min_fairness_water_filling",
    paper=_PAPER + " (baseline)",
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
    paper=_PAPER + ", sec. 3.1",
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
