"""Total throughput."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.policies.base.programs import Array, ProgramPolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import MaxSum


@register("max_sum_throughput_perf", paper="Narayanan et al., OSDI 2020, sec. 4.2", program="max_x sum_ij T_ij x_ij")
@dataclass(frozen=True)
class MaxSumThroughputPerf(ProgramPolicy):
    """Raise the total number of steps per second of all jobs together.

        max_x  sum_ij T_ij x_ij                                    x in the allocation polytope

    Raw steps/s, as published: models with many short steps count for more, and others may starve.
    """

    def objective(self, state: ClusterState, rates: Array) -> MaxSum:  # noqa: ARG002
        """Every step counts 1."""
        return MaxSum(np.ones(state.n_jobs))
