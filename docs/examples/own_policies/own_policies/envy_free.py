"""Rows between jobs: no job would go faster with the GPU time of another."""

from dataclasses import dataclass

import numpy as np

from allocator import ConvexPolicy


@dataclass(frozen=True)
class EnvyFree(ConvexPolicy):
    """The most normalised throughput at which no job envies another its GPU time."""

    paper = "an example"
    program = "max_x sum_i v_i.x_i, v_i = T_i / max_j T_ij, s_i v_i.x_i >= v_i.(s_k x_k) for all i, k"

    def statement(self, cp, shares, state):
        """Objective and rows; a gang of s GPUs that runs for a share x of the time has s x GPUs of it."""
        speed = state.rates / state.rates.max(axis=1, keepdims=True)
        gpu_time = cp.multiply(state.scale_factors[:, None], shares)
        own = cp.sum(cp.multiply(speed, gpu_time), axis=1, keepdims=True)
        others = speed @ gpu_time.T
        return cp.Maximize(cp.sum(cp.multiply(speed, shares))), [own @ np.ones((1, state.n_jobs)) >= others]
