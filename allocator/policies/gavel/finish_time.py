"""Finish-time fairness (Themis), blind to accelerator types and aware of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.policies.base.programs import Array, BlindPolicy, ProgramPolicy, fitting_gpus
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import FinishTimeFairness as FinishTimeObjective
from formulations import isolated_throughput, proportional_throughput

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.3; Mahajan et al., NSDI 2020, sec. 3"


@register("finish_time_fairness_perf", paper=_PAPER, program="min_x max_i (e_i + n_i / T_i.x_i) / (C_i + n_i / q_i)")
@dataclass(frozen=True)
class FinishTimeFairnessPerf(ProgramPolicy):
    """Heterogeneity-aware finish-time fairness: lower the worst rho.

        min_x  max_i  rho_i,   rho_i = (e_i + n_i / sum_j T_ij x_ij) / (C_i + n_i / q_i)

    e: seconds since arrival; n: steps left; q: throughput under the isolated share of now; C: seconds that the steps
    already done would have taken on the isolated shares of their time.
    """

    def objective(self, state: ClusterState, rates: Array) -> FinishTimeObjective:
        """Time to finish as shared over time to finish as isolated."""
        alone = isolated_throughput(rates, state.scale_factors, fitting_gpus(state))
        left = state.steps_remaining
        return FinishTimeObjective(state.elapsed_seconds, left, self.isolated_seconds(state, rates) + left / alone)

    def isolated_seconds(self, state: ClusterState, rates: Array) -> Array:  # noqa: ARG002
        """(N,) C: seconds that the steps already done would have taken on isolated shares."""
        return state.isolated_seconds


@register(
    "finish_time_fairness",
    paper=_PAPER + " (baseline)",
    program="as finish_time_fairness_perf with T_ij = T_i,ref",
)
@dataclass(frozen=True)
class FinishTimeFairness(BlindPolicy, FinishTimeFairnessPerf):
    """Finish-time fairness blind to accelerator types: every type taken for the reference type, in C too."""

    def isolated_seconds(self, state: ClusterState, rates: Array) -> Array:
        """C at the believed rates: on isolated shares a job always has the same mix of types."""
        fits = fitting_gpus(state) > 0
        true, believed = (proportional_throughput(np.where(fits, r, 0.0), state.capacity) for r in (state.rates, rates))
        return state.isolated_seconds * (true / believed)
