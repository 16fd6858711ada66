"""The one interface behind which shares become rounds, and plans become steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from allocator.mechanism.checks import checked_allocation, checked_pairs, checked_shares
from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Policy, SharePolicy
from allocator.protocol.state import ClusterState
from formulations import Pairs
from throughputs.arrays import Floats, Ints

PolicyT = TypeVar("PolicyT", bound=Policy)

# A share this close to 1 is a whole one: under a policy without preemption its job stays where it is.
_WHOLE = 1 - 1e-9


class Step(NamedTuple):
    """Who runs as what next, before placement.

    Attributes
    ----------
    assignment : K rows, ids of jobs. A step that repeats the one before comes with the same object.
    seconds, interruptible, shares : as in `allocator.protocol.Decision`.
    """

    assignment: Assignment
    seconds: float = np.inf
    interruptible: bool = False
    shares: Floats | None = None


class Answer(NamedTuple):
    """What came of asking the policy.

    Attributes
    ----------
    allocation : shares of time with their proof; None from a policy that has none.
    seconds : time that the policy took.
    rejected : ids of jobs that the policy did not admit.
    """

    allocation: Allocation | None
    seconds: float
    rejected: Ints = np.empty(0, dtype=np.int64)


class Executor(ABC, Generic[PolicyT]):
    """Asks the policy, and carries its answer out step by step.

    Attributes
    ----------
    memory : what a planner remembers; None: nothing.
    """

    memory: Any = None

    @abstractmethod
    def arrived(self, jobs: Ints) -> None:
        """Jobs (ids) came."""

    @abstractmethod
    def left(self, jobs: Ints) -> None:
        """Active jobs (ids) completed, were given up or rejected."""

    @abstractmethod
    def due(self, clock: float, news: bool, waive_interval: bool) -> bool:
        """Whether the policy is to be asked before the next step.

        Parameters
        ----------
        news : something happened that the policy wants to be asked about.
        waive_interval : ask about any news, however recently it was asked before.
        """

    @abstractmethod
    def ask(self, policy: PolicyT, state: ClusterState, active: Ints) -> Answer:
        """Ask about the `active` jobs (ids), which are those of the `state`, and take the answer over."""

    @abstractmethod
    def nobody(self, clock: float) -> None:
        """It was time to ask, and there is nobody to ask about."""

    @abstractmethod
    def next(self, clock: float, running: Assignment) -> Step:
        """The step that begins at `clock` (seconds), after that in which the rows `running` ran."""

    def starved(self, step: Step, news: bool) -> bool:  # noqa: ARG002
        """Whether the policy had better be asked at once, instead of this `step`."""
        return False

    def due_at(self, clock: float) -> float:  # noqa: ARG002
        """Where nobody runs at `clock`: when somebody will whatever happens, in seconds; inf: never."""
        return np.inf

    def record(self, assignment: Assignment, seconds: Floats) -> None:
        """The (K,) rows of a step ran for `seconds` (K,) each."""

    def rates_changed(self) -> None:
        """Some jobs have other rates."""

    def can_run_changed(self) -> None:
        """There are other numbers of GPUs, or other beliefs of pairs: some may run where they could not, or cannot."""

    def steady_rounds(self) -> bool:
        """Whether every coming round is like the one just given, as long as nothing happens."""
        return False

    def sums(self) -> list[Floats]:
        """What `record` adds to in every round; changed in place."""
        return []

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""


def ask_for_shares(
    policy: SharePolicy, state: ClusterState, table: JobTable, active: Ints
) -> tuple[Answer, Floats, Pairs | None]:
    """The answer of the policy, its checked (N, M) shares, and its pairs; None under a policy that does not pack.

    Who shares GPUs with whom, and under a policy without preemption who stays where, is noted in `table`.

    Raises
    ------
    InputError
        Shares or pairs that no mechanism can follow.
    """
    started = perf_counter()
    allocation = checked_allocation(policy.allocate(state), policy.name)
    seconds = perf_counter() - started
    shares, pairs = checked_shares(allocation.shares, state, policy.name), None
    if Need.COLOCATION in policy.needs:
        pairs = checked_pairs(allocation.pairs, state, policy.name)
        table.note_partners(active, pairs.first, pairs.second)
    if not policy.preemptive:
        given = shares.max(axis=1) >= _WHOLE
        table.current_accelerator[table.rows(active)] = np.where(given, shares.argmax(axis=1), -1)
    state.close()
    return Answer(allocation, seconds), shares, pairs
