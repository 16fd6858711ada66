"""Policies that need no program: isolated and proportional shares."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.policies.base import Array, ClosedFormPolicy
from allocator.protocol import ClusterState
from allocator.registry import register

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.1 and 4.3"


@register("isolated", paper=_PAPER, program="x_ij = (c_j / N) / s_i, rows capped at 1")
@dataclass(frozen=True)
class Isolated(ClosedFormPolicy):
    """Give each of the N jobs one N-th of every accelerator type.

        x_ij = (c_j / N) / s_i,  each row scaled to sum to at most 1

    What a job would have if the cluster were cut into equal parts; the denominator of finish-time fairness.
    """

    def shares(self, state: ClusterState) -> Array:
        """Isolated shares."""
        from formulations import isolated_shares

        return isolated_shares(state.scale_factors, state.capacity)


@register("proportional", paper=_PAPER, program="x_ij = c_j / sum_k c_k")
@dataclass(frozen=True)
class Proportional(ClosedFormPolicy):
    """Split each job's time over the accelerator types as their GPUs are.

        x_ij = c_j / sum_k c_k

    The yardstick that normalises throughput in max-min fairness. Every job is busy all the time, so with more jobs
    than GPUs the shares exceed the capacity; a round mechanism then takes them as relative priorities.
    """

    def shares(self, state: ClusterState) -> Array:
        """Proportional shares."""
        from formulations import proportional_shares

        return proportional_shares(state.n_jobs, state.capacity)
