"""The book of plans: plays a plan back step by step, and says when a new one is due."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from allocator.mechanism.checks import checked_plan
from allocator.mechanism.executor import Answer, Executor, Step
from allocator.protocol.assignment import NOBODY, Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import PlanStep
from allocator.protocol.policy import Need, PlanPolicy
from allocator.protocol.state import ClusterState
from throughputs.arrays import Ints

# Relative to the clock.
_ROUNDING = 1e-12


class PlanBook(Executor[PlanPolicy]):
    """The plan in force, and the memory of its planner.

    Parameters
    ----------
    policy : its class data are read.
    jobs : the job table; who shares with whom is noted there.
    round_seconds : length of a step under a policy that plans in rounds.
    """

    def __init__(self, policy: PlanPolicy, jobs: JobTable, round_seconds: float) -> None:
        self._table = jobs
        self._in_rounds = policy.in_rounds
        self._replan_steps = policy.replan_steps
        self._round_seconds = round_seconds
        self.memory = policy.new_memory()
        # Who has left since the plan was made.
        self._gone = NOBODY
        self._packs = Need.COLOCATION in policy.needs
        self._since_periodic = 0
        self._begin([])

    def arrived(self, jobs: Ints) -> None:
        """Nothing changes before the next plan."""

    def left(self, jobs: Ints) -> None:
        """The steps of the plan go on without them."""
        self._gone = np.concatenate([self._gone, jobs]) if len(self._gone) else jobs

    def due(self, clock: float, news: bool, waive_interval: bool) -> bool:
        """At any news, at the end of the plan, and regularly, whatever other plans there were in between."""
        at_end = self._next >= len(self._steps) and self._over(clock)
        return news or waive_interval or at_end or self._periodic

    def _over(self, clock: float) -> bool:
        """Whether the present step is over, but for the rounding of sums of times."""
        return clock >= self._ends_at - _ROUNDING * abs(clock)

    @property
    def _periodic(self) -> bool:
        return self._replan_steps is not None and self._since_periodic >= self._replan_steps

    def ask(self, policy: PlanPolicy, state: ClusterState, active: Ints) -> Answer:
        """A new plan, in place of the rest of the old one."""
        started = perf_counter()
        plan = policy.plan(state, self.memory)
        seconds = perf_counter() - started
        plan = checked_plan(plan, state, policy.name, policy.needs)
        state.close()
        self._begin([self._step(step, active) for step in plan.steps])
        if self._packs:
            first = plan.steps[0].assignment
            pair = first.take(first.firsts & (first.partner >= 0))
            self._table.note_partners(active, pair.jobs, pair.partner)
        if self._periodic:
            self._since_periodic = 0
        return Answer(plan.allocation, seconds, active[plan.rejected])

    def _step(self, step: PlanStep, active: Ints) -> Step:
        """A step of a plan, whose positions are those of `active` (ids)."""
        seconds = self._round_seconds if self._in_rounds else step.seconds
        return Step(step.assignment.named(active), seconds, not self._in_rounds)

    def nobody(self, clock: float) -> None:  # noqa: ARG002
        """The coming step is empty."""
        self._begin([self._step(PlanStep(Assignment.none()), NOBODY)])

    def _begin(self, steps: list[Step]) -> None:
        self._steps, self._next, self._ends_at, self._gone = steps, 0, -np.inf, NOBODY

    def next(self, clock: float, running: Assignment) -> Step:  # noqa: ARG002
        """The next step of the plan, or the rest of one that was interrupted; without those who have left."""
        if self._over(clock):
            step = self._steps[self._next]
            self._next += 1
            self._since_periodic += 1
            # A round in which nobody runs is over when its time is.
            if step.interruptible or (self._next < len(self._steps) and not len(step.assignment)):
                self._ends_at = clock + step.seconds
        else:
            whole = self._steps[self._next - 1]
            step = whole._replace(seconds=self._ends_at - clock)
        return step._replace(assignment=step.assignment.without(self._gone)) if len(self._gone) else step

    def due_at(self, clock: float) -> float:
        """See Executor: with the next step of the plan."""
        return self._ends_at if self._next < len(self._steps) and clock < self._ends_at else np.inf

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "memory": None if self.memory is None else self.memory.state(),
            "gone": self._gone,
            "rows": [s.assignment for s in self._steps],
            "seconds": [s.seconds for s in self._steps],
            "next": self._next,
            "ends_at": self._ends_at,
            "since_periodic": self._since_periodic,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        if self.memory is not None:
            self.memory.restore(state["memory"])
        self._gone = state["gone"]
        self._steps = [
            Step(self._table.with_fractions(rows), seconds, not self._in_rounds)
            for rows, seconds in zip(state["rows"], state["seconds"], strict=True)
        ]
        self._next, self._since_periodic, self._ends_at = state["next"], state["since_periodic"], state["ends_at"]
