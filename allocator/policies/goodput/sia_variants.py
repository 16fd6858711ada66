"""Sia with less to choose from: fixed numbers of GPUs, or no knowledge of accelerator types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocator.policies.goodput.selection import OwnGangs, Restarts, Selected
from allocator.policies.goodput.sia import Sia
from allocator.protocol import ClusterState
from allocator.protocol.plan import of_each_job
from allocator.protocol.state import the_one_type
from allocator.registry import register
from throughputs import Configurations
from throughputs.arrays import Flags, Floats, Ints

_VIRTUAL_NODE = 4
"""GPUs of a node."""


@register(
    "sia_fixed",
    paper="Sia with the GPUs that jobs ask for, Jayaram Subramanya et al. (Sia), SOSP 2023, sec. 4",
    program="min_x sum_i w_i (sum_j (r_i g_ij)^p x_ij + l (1 - sum_j x_ij)), sum_i s_i x_ij <= c_j, x_ij in {0, 1}",
)
@dataclass(frozen=True)
class SiaFixed(OwnGangs, Sia):
    """Give each job the accelerator type that is worth most to all, on as many GPUs as it asks for.

    `sia` without a choice of GPUs, so that what the choice is worth can be told. Goodput is in multiples of that on the
    slowest type, which counts as the GPUs of the job.
    """


@dataclass(eq=False)
class WaitingMemory(Restarts):
    """Restarts, and how often each job was left without GPUs.

    Attributes
    ----------
    left_out : (N,) decisions that gave a job nothing.
    """

    left_out: Ints = of_each_job(0)


@register(
    "sia_unaware",
    paper="Sia on one accelerator type, as in the simulator of Jayaram Subramanya et al. (Sia), SOSP 2023",
    program="min_x sum_i (w_i + n_i) (sum_c (r_i g_c)^p x_c + l (1 - sum_c x_c)), one c per job, GPUs of c <= c",
)
@dataclass(frozen=True)
class SiaUnaware(Sia):
    """Give each job the number of GPUs that is worth most to all, more so the more often it got none.

    `sia` on GPUs of one type in nodes of four, on 1, 2 or 4 GPUs or whole nodes. n: decisions that left the job without
    GPUs; each raises its weight by 1, and for good.
    """

    def new_memory(self) -> WaitingMemory:
        """Nobody has run or waited."""
        return WaitingMemory()

    def eligible(self, state: ClusterState, ways: Configurations) -> Flags:
        """1, 2 or 4 GPUs, or whole nodes of four."""
        the_one_type(state, self.name, "its weights do not tell types apart")
        return np.asarray((ways.gpus <= 2) | (ways.gpus % _VIRTUAL_NODE == 0))

    def choose(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats, memory: Any) -> Selected:
        """The choice of the least cost, with the weights of those who wait."""
        program = self.program_of(state, ways, held, kept)
        found = self.solved(replace(program, weights=state.priority_weights + memory.left_out))
        waits = np.ones(state.n_jobs, dtype=np.bool_)
        waits[ways.job[found.x > 0.5]] = False
        memory.left_out += waits
        return found
