"""What decisions turned out to cost: learned from the seconds that jobs lost by them, for plans that hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

from allocator.protocol import ClusterState

_REMEMBERED = 1000
"""Starts, and changes of the number of GPUs, that are remembered: one that took long is forgotten in the end."""


class DecisionCosts:
    """What decisions have cost, told apart by what they did to the GPUs of a job.

    A plan that is to be kept needs room for the dearest start that may come, not for the mean: half of the starts cost
    more than that. Jobs that start and jobs that run on with another number of GPUs are kept apart, so that one that
    is frequent and cheap does not hide what the other costs.

    Attributes
    ----------
    start_seconds, resize_seconds : what it cost jobs without GPUs to start, and jobs with GPUs to go on with another
        number of them, seconds; the last thousand of each.
    kept_seconds, lost_seconds : for how long jobs ran on a number of GPUs that a decision left as it was, and what of
        that these decisions cost them, seconds.
    """

    def __init__(self) -> None:
        self.start_seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self.resize_seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self.kept_seconds, self.lost_seconds = 0.0, 0.0
        self._clock = 0.0
        self._started: set[Hashable] = set()
        self._resized: set[Hashable] = set()
        self._kept: set[Hashable] = set()

    @property
    def restart_seconds(self) -> float:
        """What it takes a job at most to get going on another number of GPUs, as far as is known; 0: nothing is."""
        return max(max(self.start_seconds, default=0.0), max(self.resize_seconds, default=0.0))

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
                self.start_seconds.append(lost)
            elif label in self._resized:
                self.resize_seconds.append(lost)
            elif label in self._kept:
                self.kept_seconds += passed
                self.lost_seconds += min(lost, passed / 2)
        self._started, self._resized, self._kept = set(), set(), set()

    def note(
        self, now: float, started: Iterable[Hashable], resized: Iterable[Hashable], kept: Iterable[Hashable]
    ) -> None:
        """A decision at `now` (seconds) lets jobs run: from none, on other numbers of GPUs, or on those of before."""
        self._clock, self._started, self._resized, self._kept = now, set(started), set(resized), set(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "start_seconds": list(self.start_seconds),
            "resize_seconds": list(self.resize_seconds),
            "sums": [self.kept_seconds, self.lost_seconds],
            "clock": self._clock,
            "started": sorted(self._started, key=str),
            "resized": sorted(self._resized, key=str),
            "kept": sorted(self._kept, key=str),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.start_seconds = deque(state["start_seconds"], _REMEMBERED)
        self.resize_seconds = deque(state["resize_seconds"], _REMEMBERED)
        self.kept_seconds, self.lost_seconds = state["sums"]
        self._clock, self._started = state["clock"], set(state["started"])
        self._resized, self._kept = set(state["resized"]), set(state["kept"])
