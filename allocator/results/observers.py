"""Observers: the engine runs, observers measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from allocator.protocol.assignment import Assignment
from throughputs.arrays import Floats

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation


@dataclass(slots=True, eq=False)
class StretchOutcome:
    """One round as it went, or in a world of events the time from one event to the next.

    Arrays are shared between rounds and observers: read, never write.

    Attributes
    ----------
    index : number of the round, from 0.
    start_time, end_time : seconds.
    assignment : the K rows that ran; between events those whose lease ended here.
    gpus : for each row the ids of its GPUs; empty when placement is off.
    finish_time : (K,) when each row had done its steps of this round, seconds.
    steps : (K,) steps each row did.
    active_jobs : jobs that had arrived and not completed at the start.
    shares : (K,) in a world without rounds, the share of the time of its pool that each row had; else None.
    started : (K,) between events, when the lease of each row began, seconds; None: with the stretch.
    running : (jobs that ran, GPUs that they had) where rows are leases; None: those of the rows.
    rounds : so many equal rounds stand for one, steps and times are those of all of them; `finish_time` is that of a
        row that had been busy without a break from the start, for as long as it was in all of them.
    """

    index: int
    start_time: float
    end_time: float
    assignment: Assignment
    gpus: tuple[tuple[int, ...], ...]
    finish_time: Floats
    steps: Floats
    active_jobs: int
    shares: Floats | None = None
    started: Floats | None = None
    running: tuple[int, float] | None = None
    rounds: int = 1


class Observer(Protocol):
    """What may be passed to `simulate` to watch a run."""

    def decided(self, index: int, clock: float, allocation: Allocation) -> None:
        """The policy was asked before round `index`, at `clock` (seconds)."""
        ...

    def round_ended(self, outcome: StretchOutcome) -> None:
        """A round (a stretch between two events) in which at least one job ran is over."""
        ...


class Recorder:
    """Keeps every round and every decision; the tables of `SimulationResult` are made of them."""

    def __init__(self) -> None:
        self.outcomes: list[StretchOutcome] = []
        self.decisions: list[tuple[int, float, Allocation]] = []

    def round_ended(self, outcome: StretchOutcome) -> None:
        """Keep the round."""
        self.outcomes.append(outcome)

    def decided(self, index: int, clock: float, allocation: Allocation) -> None:
        """Keep the decision."""
        self.decisions.append((index, clock, allocation))
