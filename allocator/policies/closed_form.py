"""Policies that need no program: isolated and proportional shares."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

from allocator.allocation import Allocation
from allocator.protocol import ClusterState
from allocator.registry import register

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.1 and 4.3"


@register("isolated", paper=_PAPER, program="x_ij = (c_j / N) / s_i, rows capped at 1")
@dataclass(frozen=True)
class Isolated:
    """Give each of the N jobs one N-th of every accelerator type.

        x_ij = (c_j / N) / s_i,  each row scaled to sum to at most 1

    What a job would have if the cluster were cut into equal parts; the denominator of finish-time fairness.
    """

    name: ClassVar[str] = ""
    heterogeneity_aware: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def allocate(self, state: ClusterState) -> Allocation:
        """Isolated shares."""
        from formulations import isolated_shares

        started = perf_counter()
        shares = isolated_shares(state.scale_factors, state.capacity)
        return Allocation(self.name, state.throughputs, shares, "closed form", seconds=perf_counter() - started)


@register("proportional", paper=_PAPER, program="x_ij = c_j / sum_k c_k")
@dataclass(frozen=True)
class Proportional:
    """Split each job's time over the accelerator types as their GPUs are.

        x_ij = c_j / sum_k c_k

    The yardstick that normalises throughput in max-min fairness. Every job is busy all the time, so with more jobs
    than GPUs the shares exceed the capacity; a round mechanism then takes them as relative priorities.
    """

    name: ClassVar[str] = ""
    heterogeneity_aware: ClassVar[bool] = False
    fills_idle_gpus: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def allocate(self, state: ClusterState) -> Allocation:
        """Proportional shares."""
        from formulations import proportional_shares

        started = perf_counter()
        shares = proportional_shares(state.n_jobs, state.capacity)
        return Allocation(self.name, state.throughputs, shares, "closed form", seconds=perf_counter() - started)
