"""What decisions turned out to cost: learned from the seconds that jobs lost by them, for plans that hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from allocator.protocol import ClusterState

__all__ = ["DecisionCosts"]


class DecisionCosts:
    """Means over the decisions so far, told apart by whether a decision changed the GPUs of a job.

    Attributes
    ----------
    starts, start_seconds : how often a job began to run on another number of GPUs, and what all of that cost, seconds.
    kept_seconds, lost_seconds : for how long jobs ran on a number of GPUs that a decision left as it was, and what of
        that these decisions cost them, seconds.
    """

    def __init__(self) -> None:
        self.starts, self.start_seconds = 0, 0.0
        self.kept_seconds, self.lost_seconds = 0.0, 0.0
        self._clock = 0.0
        self._started: set[Hashable] = set()
        self._kept: set[Hashable] = set()

    @property
    def restart_seconds(self) -> float:
        """What it takes a job to get going on another number of GPUs, on average; 0 where that is not known."""
        return self.start_seconds / self.starts if self.starts else 0.0

    @property
    def lost_share(self) -> float:
        """Share of its time that a job loses by decisions that leave its GPUs as they are; below 1."""
        return self.lost_seconds / self.kept_seconds if self.kept_seconds else 0.0

    def learn(self, state: ClusterState) -> None:
        """See what the last decision cost those who are still there."""
        now = float(state.clock)
        passed = now - self._clock
        if passed <= 0:
            return
        for label, lost in zip(state.throughputs.jobs, state.lost_seconds.tolist(), strict=True):
            if label in self._started:
                self.starts += 1
                self.start_seconds += lost
            elif label in self._kept:
                self.kept_seconds += passed
                self.lost_seconds += min(lost, passed / 2)
        self._started, self._kept = set(), set()

    def note(self, now: float, started: Iterable[Hashable], kept: Iterable[Hashable]) -> None:
        """A decision at `now` (seconds) lets these jobs run, on other numbers of GPUs or on as many as before."""
        self._clock, self._started, self._kept = now, set(started), set(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "sums": [self.starts, self.start_seconds, self.kept_seconds, self.lost_seconds],
            "clock": self._clock,
            "started": sorted(self._started, key=str),
            "kept": sorted(self._kept, key=str),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.starts, self.start_seconds, self.kept_seconds, self.lost_seconds = state["sums"]
        self._clock, self._started, self._kept = state["clock"], set(state["started"]), set(state["kept"])
