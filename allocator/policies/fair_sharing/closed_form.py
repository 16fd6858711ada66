"""Isolated, proportional and equal shares, which need no program, and proportional fairness, which is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.policies.base.programs import ClosedFormPolicy, ProgramPolicy, fitting_gpus
from allocator.protocol import ClusterState
from allocator.registry import register
from formulations import NashWelfare, isolated_shares, proportional_shares
from throughputs.arrays import Floats

_GAVEL = "Narayanan et al., OSDI 2020, sec. 4.1 and 4.3"
_SHOCKWAVE = "Zheng et al., NSDI 2023, sec. 8 (baseline)"


@register("isolated", paper=_GAVEL, program="x_ij = (c_j / N) / s_i where s_i <= c_j, rows capped at 1")
@dataclass(frozen=True)
class Isolated(ClosedFormPolicy):
    """Give each of the N jobs one N-th of every accelerator type that its gang fits on.

        x_ij = (c_j / N) / s_i where s_i <= c_j, else 0;  each row scaled to sum to at most 1

    What a job would have if the cluster were cut into equal parts; the denominator of finish-time fairness.
    """

    def shares(self, state: ClusterState) -> Floats:
        """Isolated shares."""
        return isolated_shares(state.scale_factors, fitting_gpus(state))


@register("proportional", paper=_GAVEL, program="x_ij = c_j / sum_k c_k")
@dataclass(frozen=True)
class Proportional(ClosedFormPolicy):
    """Split each job's time over the accelerator types as their GPUs are.

        x_ij = c_j / sum_k c_k

    The normaliser of throughput in max-min fairness. Every job is busy all the time, so with more jobs
    than GPUs the shares exceed the capacity; a round mechanism then takes them as relative priorities.
    """

    relative_shares: ClassVar[bool] = True

    def shares(self, state: ClusterState) -> Floats:
        """Proportional shares."""
        return proportional_shares(state.n_jobs, state.capacity)


@dataclass(frozen=True)
class _EqualShares(ClosedFormPolicy):
    """The time of every accelerator type in N equal parts, however many GPUs a gang takes."""

    relative_shares: ClassVar[bool] = True

    def shares(self, state: ClusterState) -> Floats:
        """Equal shares of time."""
        capacity = state.capacity.astype(np.float64)
        return np.tile(capacity / max(state.n_jobs, capacity.sum(), 1.0), (state.n_jobs, 1))


@register("gandiva_fair", paper=_SHOCKWAVE, program="x_ij = c_j / N, rows capped at 1")
@dataclass(frozen=True)
class GandivaFair(_EqualShares):
    """Give each of the N jobs the same time on every accelerator type.

        x_ij = c_j / N,  each row scaled to sum to at most 1

    Tickets go to jobs, not to GPUs: the scale factor does not count, and with wide gangs the shares exceed the
    capacity. A round mechanism then takes them as relative priorities. A gang that does not fit lets others pass.
    """


@register(
    "isolated_plus", paper=_SHOCKWAVE, program="x_ij = c_j / N, rows capped at 1; no job passes a gang without room"
)
@dataclass(frozen=True)
class IsolatedPlus(_EqualShares):
    """Give each job the same time, and let nobody pass a gang that waits for room.

        x_ij = c_j / N,  each row scaled to sum to at most 1

    The fair share that finish-time fairness compares with, as rounds that really happen. GPUs may stay idle.

    Attributes
    ----------
    strict_queue : the mechanism stops at the first gang that does not fit.
    """

    strict_queue: ClassVar[bool] = True
    fills_idle_gpus: ClassVar[bool] = False


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

    def objective(self, state: ClusterState, rates: Floats) -> NashWelfare:  # noqa: ARG002
        """Budgets are the priority weights."""
        return NashWelfare(state.priority_weights)
