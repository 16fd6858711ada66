"""Themis: finish-time fairness in leases of whole gangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.conversion import PositiveSeconds
from allocator.policies.base.ordering import Turns, fill_in_order
from allocator.policies.base.programs import Prepared
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.plan import of_each_job
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations import FinishTimeFairness, Polytope, solve
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints


@dataclass(eq=False)
class ThemisMemory(Turns):
    """What jobs would have had on isolated shares, and the line from lease to lease.

    Attributes
    ----------
    isolated_seconds : (N,) c, what the steps done would have taken on the isolated shares of their time.
    steps_left : (N,) steps left at the last decision.
    isolated_rate : (N,) q, steps per second on the isolated share of the last decision.
    changed : when the set of jobs last changed, seconds.
    """

    isolated_seconds: Floats = of_each_job(0.0)
    steps_left: Floats = of_each_job(0.0)
    isolated_rate: Floats = of_each_job(0.0)
    changed: float = 0.0

    def recall(self, state: ClusterState) -> Ints:
        """See `Turns`."""
        number, before = len(self.jobs), super().recall(state)
        known = before >= 0
        if number != len(known) or not known.all():
            self.changed = state.clock
        done = self.steps_left - state.steps_remaining
        self.isolated_seconds[known] += done[known] / self.isolated_rate[known]
        return before


@register(
    "themis",
    paper="Mahajan et al. (Themis), NSDI 2020, sec. 3; as a baseline in Gu et al. (ElasticFlow), ASPLOS 2023, sec. 6",
    program="gangs in order of x_i: min_x max_i (e_i + n_i / (T_i x_i)) / (c_i + n_i / q_i), sum_i s_i x_i <= G",
)
@dataclass(frozen=True)
class Themis(Prepared, PlanPolicy):
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

    needs = Need.LENGTHS

    lease_seconds: PositiveSeconds = 240.0
    solver: str = "auto"

    choice: ClassVar[str] = "balanced"
    """Which of the optima: the shares of jobs that do not determine the worst rho are often not unique."""

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    heterogeneity_aware: ClassVar[bool] = False

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

    def _shares(self, state: ClusterState, memory: ThemisMemory, jobs: Ints, pool: int) -> Floats:
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

    def isolated_rate(self, rates: Floats, share: Floats) -> Floats:
        """(N,) q, from steps/s of the gangs and isolated shares."""
        return np.asarray(np.where(rates > 0, rates, 1.0) * share)

    def elapsed(self, state: ClusterState, memory: ThemisMemory) -> Floats:  # noqa: ARG002
        """(N,) e, seconds."""
        return state.elapsed_seconds
