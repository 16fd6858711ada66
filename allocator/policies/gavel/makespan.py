"""Makespan: finish the last job as early as possible."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base.programs import Array, BlindPolicy, ProgramPolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import Makespan

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.2"


@register("min_total_duration_perf", paper=_PAPER, program="min_x max_i n_i / T_i.x_i")
@dataclass(frozen=True)
class MinTotalDurationPerf(ProgramPolicy):
    """Heterogeneity-aware makespan: the last job ends as early as possible.

        min_x  max_i  n_i / sum_j T_ij x_ij                        x in the allocation polytope

    n: steps left. Solved to optimality as max z with T_i.x_i >= z n_i (the published code bisects and stops at 5 %).
    """

    def objective(self, state: ClusterState, rates: Array) -> Makespan:  # noqa: ARG002
        """Steps left over throughput."""
        return Makespan(state.steps_remaining)


@register("min_total_duration", paper=_PAPER + " (baseline)", program="min_x max_i n_i / (T_i,ref sum_j x_ij)")
@dataclass(frozen=True)
class MinTotalDuration(BlindPolicy, MinTotalDurationPerf):
    """Makespan blind to accelerator types: every type taken for the reference type.

    min_x  max_i  n_i / (T_i,ref sum_j x_ij)                   x in the allocation polytope
    """
