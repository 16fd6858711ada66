"""Themis: finish-time fairness in leases of whole gangs."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.policies.base.one_type import the_one_type
from allocator.policies.base.ordering import fill_in_order
from allocator.policies.base.programs import Array
from allocator.policies.time_sharing.lines import carried_over, in_order_of_arrival, positions_of
from allocator.protocol import Assignment, ClusterState, Plan, PlanPolicy, PlanStep, Trigger
from allocator.registry import register
from formulations import FinishTimeFairness, Polytope, solve
from throughputs import InputError, PlainColumns, ThroughputMatrix

_Ids = NDArray[np.int64]


def _nothing() -> Array:
    return np.empty(0)


@dataclass(eq=False)
class ThemisMemory:
    """What jobs would have had on isolated shares, and the line from lease to lease.

    Attributes
    ----------
    jobs : labels of the N jobs of the last decision, in its order.
    turn : (N,) ascending in the order of the last decision.
    isolated_seconds : (N,) c, what the steps done would have taken on the isolated shares of their time.
    steps_left : (N,) steps left at the last decision.
    isolated_rate : (N,) q, steps per second on the isolated share of the last decision.
    changed : when the set of jobs last changed, seconds.
    """

    jobs: tuple[Hashable, ...] = ()
    turn: _Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    isolated_seconds: Array = field(default_factory=_nothing)
    steps_left: Array = field(default_factory=_nothing)
    isolated_rate: Array = field(default_factory=_nothing)
    changed: float = 0.0

    def recall(self, state: ClusterState) -> None:
        """Make the memory one of the jobs of `state`; new ones are last in line."""
        before = positions_of(state.throughputs.jobs, self.jobs)
        if (before < 0).any() or len(before) != len(self.jobs):
            self.changed = state.clock
        new = in_order_of_arrival(state, np.flatnonzero(before < 0))
        self.jobs = state.throughputs.jobs
        self.isolated_seconds, left, rate = (
            carried_over(column, before, new) for column in (self.isolated_seconds, self.steps_left, self.isolated_rate)
        )
        known = before >= 0
        self.isolated_seconds[known] += (left - state.steps_remaining)[known] / rate[known]
        self.turn = carried_over(self.turn, before, new)
        self.turn[new] = self.turn.max(initial=0) + 1 + np.arange(len(new))

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; labels are ids of jobs."""
        return deepcopy(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        vars(self).update(state, jobs=tuple(state["jobs"]))


@register(
    "themis",
    paper="Mahajan et al. (Themis), NSDI 2020, sec. 3; as a baseline in Gu et al. (ElasticFlow), ASPLOS 2023, sec. 6",
    program="gangs in order of x_i: min_x max_i (e_i + n_i / (T_i x_i)) / (c_i + n_i / q_i), sum_i s_i x_i <= G",
)
@dataclass(frozen=True)
class Themis(PlanPolicy):
    """Lease the GPUs to the jobs whose finish-time fairness is worst, until the leases run out.

        min_x  max_i  (e_i + n_i / (T_i x_i)) / (c_i + n_i / q_i)         0 <= x_i <= 1,  sum_i s_i x_i <= G
        q_i = T_i min(1, ceil(G / N) / s_i)

    e_i: seconds since arrival; n_i: steps left; T_i: steps/s of the gang of s_i GPUs; q_i: those on an isolated share
    of the G GPUs among the N jobs; c_i: seconds that the steps done would have taken on the isolated shares of their
    time. In order of x_i, the largest first, gangs are leased GPUs; one that does not fit lets smaller ones pass. Of
    equal x_i the one ahead at the last decision is. All leases begin together: at an arrival, a completion, and when
    the last ones have run out. Where there are GPUs for all nothing is solved.

    There are neither auctions nor shorter leases nor placement preferences, which the paper has. For clusters with one
    type of accelerator. Source of the details: the simulator published with ElasticFlow.

    Parameters
    ----------
    lease_seconds : length of a lease.
    solver : of the program, as in `ProgramPolicy`.
    """

    lease_seconds: float = 240.0
    solver: str = "auto"

    choice: ClassVar[str] = "balanced"
    """Which of the optima: the shares of jobs that do not determine the worst rho are often not unique."""

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.lease_seconds > 0:
            raise InputError("policy themis", field="lease_seconds", found=self.lease_seconds, expected="above 0")

    def prepare(self) -> None:
        """Import the solver, by a program for two jobs of which one has to wait."""
        matrix = ThroughputMatrix([[1.0], [1.0]], ["one", "other"], ["v100"])
        self.allocate(ClusterState(Cluster({"v100": 1}), matrix))

    def new_memory(self) -> ThemisMemory:
        """An empty memory."""
        return ThemisMemory()

    def plan(self, state: ClusterState, memory: ThemisMemory) -> Plan:
        """Who has a lease; until the next arrival or completion where that is everybody."""
        pool = the_one_type(state, self.name)
        memory.recall(state)
        gpus, capacity = state.scale_factors, int(state.capacity[pool])
        rates = state.rates[:, pool]
        share = np.minimum(1.0, -(-capacity // max(state.n_jobs, 1)) / gpus)
        memory.steps_left = state.steps_remaining.copy()
        memory.isolated_rate = self.isolated_rate(rates, share)
        able = np.flatnonzero((rates > 0) & (gpus <= capacity) & (state.steps_remaining > 0))
        order = able[np.argsort(memory.turn[able], kind="stable")]
        contended = int(gpus[able].sum()) > capacity
        if contended:
            wanted = np.zeros(state.n_jobs)
            wanted[able] = self._shares(state, memory, able, pool)
            order = order[np.argsort(-wanted[order], kind="stable")]
            memory.turn[order] = np.arange(len(order)) - len(order)
        chosen, _ = fill_in_order(order, gpus, rates[:, None], np.array([capacity]))
        assignment = Assignment.of(chosen, np.full(len(chosen), pool), gpus[chosen])
        return Plan((PlanStep(assignment, self.lease_seconds if contended else np.inf),))

    def _shares(self, state: ClusterState, memory: ThemisMemory, jobs: _Ids, pool: int) -> Array:
        """(K,) x of the `jobs` (positions)."""
        matrix = state.throughputs
        columns = ThroughputMatrix.trusted(
            matrix.rates[jobs][:, [pool]],
            jobs=[matrix.jobs[i] for i in jobs.tolist()],
            accelerators=[matrix.accelerators[pool]],
            scale_factors=matrix.scale_factors[jobs],
            unit=matrix.unit,
        )
        left = state.steps_remaining[jobs]
        elapsed = self.elapsed(state, memory)[jobs]
        isolated = memory.isolated_seconds[jobs] + left / memory.isolated_rate[jobs]
        polytope = Polytope(PlainColumns(columns), state.capacity[[pool]])
        fairness = FinishTimeFairness(elapsed, left, isolated)
        return np.asarray(solve(polytope, fairness, solver=self.solver, choice=self.choice).shares[:, 0])

    def isolated_rate(self, rates: Array, share: Array) -> Array:
        """(N,) q, from steps/s of the gangs and isolated shares."""
        return np.asarray(np.where(rates > 0, rates, 1.0) * share)

    def elapsed(self, state: ClusterState, memory: ThemisMemory) -> Array:  # noqa: ARG002
        """(N,) e, seconds."""
        return state.elapsed_seconds
