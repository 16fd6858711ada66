"""Observers: the engine runs, observers measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol import RoundDecision

__all__ = ["Observer", "Recorder", "RoundOutcome"]


@dataclass(slots=True, eq=False)
class RoundOutcome:
    """One round as it went. Arrays are shared between rounds and observers: read, never write.

    Attributes
    ----------
    index : number of the round, from 0.
    start_time, end_time : seconds.
    decision : the K rows that ran.
    finish_time : (K,) when each job had done its steps of this round, seconds.
    steps : (K,) steps each job did.
    active_jobs : jobs that had arrived and not completed at the start of the round.
    shares : (K,) in a world without rounds, the share of the time of its type that each row had; else None.
    """

    index: int
    start_time: float
    end_time: float
    decision: RoundDecision
    finish_time: NDArray[np.float64]
    steps: NDArray[np.float64]
    active_jobs: int
    shares: NDArray[np.float64] | None = None


class Observer(Protocol):
    """What may be passed to `simulate` to watch a run."""

    def decided(self, index: int, clock: float, allocation: Allocation) -> None:
        """The policy was asked before round `index`, at `clock` (seconds)."""
        ...

    def round_ended(self, outcome: RoundOutcome) -> None:
        """A round in which at least one job ran is over."""
        ...


class Recorder:
    """Keeps every round and every decision; the tables of `SimulationResult` are made of them."""

    def __init__(self) -> None:
        self.outcomes: list[RoundOutcome] = []
        self.decisions: list[tuple[int, float, Allocation]] = []

    def round_ended(self, outcome: RoundOutcome) -> None:
        """Keep the round."""
        self.outcomes.append(outcome)

    def decided(self, index: int, clock: float, allocation: Allocation) -> None:
        """Keep the decision."""
        self.decisions.append((index, clock, allocation))
