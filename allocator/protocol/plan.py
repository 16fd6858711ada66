"""The planning protocol: policies that say who runs in each of the coming rounds.

    state, coming rounds, memory -> planner.plan -> Plan -> RoundDecision -> a world applies it

A share policy leaves the rounds to the mechanism; a planner gives them itself. Both stand behind the decision core,
which keeps the plan and asks for a new one when jobs come or go, or the plan has served long enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import ClusterState, Policy

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from throughputs.training import Profiles

__all__ = ["Plan", "PlannedRound", "Planner", "TrainingView", "UpcomingRounds"]


@dataclass(frozen=True, eq=False)
class TrainingView:
    """What is known of how the N active jobs train.

    Attributes
    ----------
    catalogue : the epochs of these jobs, and maybe of others, as they were profiled before they ran. Shared by all
        views of a run: epochs are many.
    rows : (N,) positions of the jobs in it.
    epochs_done : (N,) whole epochs that each has finished, as last reported.
    batch_size : (N,) batch size of now, samples.
    admitted_seconds : (N,) clock of the round at whose start each job was admitted.
    measured_samples, measured_seconds : (N,) samples gone through so far by the throughputs measured, and the time
        that this took by the clock of the measurements, seconds.
    """

    catalogue: Profiles
    rows: NDArray[np.int64]
    epochs_done: NDArray[np.int64]
    batch_size: NDArray[np.int64]
    admitted_seconds: NDArray[np.float64]
    measured_samples: NDArray[np.float64]
    measured_seconds: NDArray[np.float64]

    @property
    def profiles(self) -> Profiles:
        """The epochs of the N jobs."""
        return self.catalogue.take(self.rows)

    def take(self, jobs: NDArray[np.int64] | NDArray[np.intp]) -> TrainingView:
        """The same of some of the jobs (positions)."""
        return TrainingView(
            self.catalogue,
            self.rows[jobs],
            self.epochs_done[jobs],
            self.batch_size[jobs],
            self.admitted_seconds[jobs],
            self.measured_samples[jobs],
            self.measured_seconds[jobs],
        )


@dataclass(frozen=True)
class UpcomingRounds:
    """The rounds to plan.

    Attributes
    ----------
    number : of the first of them; so many rounds are over.
    seconds : length of a round.
    """

    number: int
    seconds: float


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """Who runs in one round: (K,) positions in the state, and the (K,) accelerator type each runs on."""

    jobs: NDArray[np.int64]
    accelerator: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a planner decided.

    Attributes
    ----------
    allocation : the share of the planned rounds that each job gets on each type, with objective, bound and gap.
    rounds : the planned rounds, the coming one first; at least one.
    """

    allocation: Allocation
    rounds: tuple[PlannedRound, ...]


@runtime_checkable
class Planner(Policy, Protocol):
    """A policy that plans rounds. What it must remember from plan to plan it keeps in a memory that the core holds.

    Attributes
    ----------
    replan_rounds : a plan is replaced after so many rounds even when no job came or went.
    """

    replan_rounds: int

    def new_memory(self) -> Any:
        """An empty memory, for a new run; picklable."""
        ...

    def plan(self, state: ClusterState, upcoming: UpcomingRounds, memory: Any) -> Plan:
        """Who runs in each of the coming rounds; `memory` is brought up to date."""
        ...
