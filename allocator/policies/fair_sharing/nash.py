"""Nash welfare: proportional fairness over throughputs."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base.programs import Array, ProgramPolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import NashWelfare


@register(
    "nash_welfare",
    paper="Eisenberg and Gale, Ann. Math. Stat. 30(1), 1959; Kelly et al., J. Oper. Res. Soc. 49, 1998",
    program="max_x sum_i w_i log(T_i.x_i)",
)
@dataclass(frozen=True)
class ProportionalFairness(ProgramPolicy):
    """Proportional fairness: raise the product of all throughputs, weighted by priority.

        max_x  sum_i w_i log(sum_j T_ij x_ij)                      x in the allocation polytope

    No other allocation raises throughputs by more per cent, summed with weights w, than it lowers them. It is the
    equilibrium of a market in which job i spends w_i on GPU time. The unit of a job's throughput changes nothing.
    """

    def objective(self, state: ClusterState, rates: Array) -> NashWelfare:  # noqa: ARG002
        """Budgets are the priority weights."""
        return NashWelfare(state.priority_weights)
