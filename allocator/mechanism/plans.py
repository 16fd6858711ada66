"""Carries out the plans of a planner: which round comes next, and when a new plan is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.plan import Plan, Planner, UpcomingRounds
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol import ClusterState, Policy

__all__ = ["PlanBook"]


class PlanBook:
    """The plan in force, as rows of job ids for each type and round, and the memory of its planner.

    Attributes
    ----------
    jobs_changed : whether jobs came or went since the plan was made.
    """

    def __init__(self, planner: Planner, n_types: int) -> None:
        self.jobs_changed = True
        self._memory = planner.new_memory()
        self._replan_rounds = planner.replan_rounds
        self._n_types = n_types
        self._rounds: list[list[list[int]]] = []
        self._next = 0
        self._since_periodic = 0

    @property
    def outdated(self) -> bool:
        """Whether a new plan is due: jobs came or went, the plan is at its end, or it is time for the regular one.

        The regular one is due every `replan_rounds` rounds, whatever other plans there were in between.
        """
        return self.jobs_changed or self._next >= len(self._rounds) or self._since_periodic >= self._replan_rounds

    def renew(
        self, policy: Policy, state: ClusterState, active: NDArray[np.int64], round_number: int, round_seconds: float
    ) -> Allocation:
        """Ask for a new plan; `active` are the ids of the jobs of `state`."""
        assert isinstance(policy, Planner)
        plan = policy.plan(state, UpcomingRounds(round_number, round_seconds), self._memory)
        _check(plan, state, policy.name)
        self._rounds = [self._rows(active[r.jobs], r.accelerator) for r in plan.rounds]
        self._next = 0
        self.jobs_changed = False
        if self._since_periodic >= self._replan_rounds:
            self._since_periodic = 0
        return plan.allocation

    def clear(self) -> None:
        """Nobody is there to plan for: the coming round is empty."""
        self._rounds, self._next, self.jobs_changed = (
            [self._rows(np.empty(0, np.int64), np.empty(0, np.int64))],
            0,
            False,
        )

    def next_rows(self) -> list[list[int]]:
        """The ids of the jobs of the coming round, for each type."""
        rows = self._rounds[self._next]
        self._next += 1
        self._since_periodic += 1
        return rows

    def _rows(self, jobs: NDArray[np.int64], accelerator: NDArray[np.int64]) -> list[list[int]]:
        return [jobs[accelerator == j].tolist() for j in range(self._n_types)]


def _check(plan: Plan, state: ClusterState, name: str) -> None:
    """Raise InputError where a planned round is none that the cluster can run."""
    if not plan.rounds:
        raise InputError(f"policy {name}", field="rounds", found="none", expected="a plan of at least 1 round")
    capacity, sizes = state.capacity, state.scale_factors
    for number, planned in enumerate(plan.rounds):
        used = np.bincount(planned.accelerator, sizes[planned.jobs], len(capacity))
        if (used > capacity).any() or len(np.unique(planned.jobs)) != len(planned.jobs):
            raise InputError(
                f"policy {name}",
                field=f"round {number} of the plan",
                found=f"{used.astype(int).tolist()} GPUs",
                expected=f"each job once, and at most {capacity.tolist()} GPUs",
            )
