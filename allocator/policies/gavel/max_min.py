"""Max-min fairness (least attained service), blind to accelerator types and aware of them."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base.programs import Array, ProgramPolicy, TimePolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import MaxMin, proportional_throughput

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.1"


@register("max_min_fairness_perf", paper=_PAPER, program="max_x min_i s_i T_i.x_i / (w_i p_i)")
@dataclass(frozen=True)
class MaxMinFairnessPerf(ProgramPolicy):
    """Heterogeneity-aware LAS: raise the least normalised throughput.

        max_x  min_i  s_i / (w_i p_i) * sum_j T_ij x_ij          x in the allocation polytope

    T: throughput (N, M) steps/s; s: scale factors; w: priority weights; p_i = sum_j c_j T_ij / sum_j c_j, throughput
    under the proportional share. s_i makes it GPU time that is shared equally.
    """

    def objective(self, state: ClusterState, rates: Array) -> MaxMin:
        """Throughput in proportional shares, times GPUs, per weight."""
        per_job = max(state.n_jobs, 1) if self.choice != "balanced" else 1
        normaliser = proportional_throughput(rates, state.capacity, per_job)
        return MaxMin(state.priority_weights * normaliser / state.scale_factors)


@register("max_min_fairness", paper=_PAPER + " (baseline)", program="max_x min_i s_i/w_i sum_j x_ij")
@dataclass(frozen=True)
class MaxMinFairness(TimePolicy, MaxMinFairnessPerf):
    """LAS blind to accelerator types: share GPU time equally, all types alike.

        max_x  min_i  s_i / w_i * sum_j x_ij                      x in the allocation polytope

    The same program with every throughput 1. Any mix of types attains the optimum.
    """
