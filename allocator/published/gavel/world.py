"""What the simulator of Gavel does in a round that others do not (Narayanan et al., OSDI 2020, public artifact)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from allocator.conversion import AtLeastOne
from allocator.simulator.rules.base import Round, Rule, RunningRule

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class RoundLength(Rule):
    """When a round is over, and how steps count in it.

    Attributes
    ----------
    round_end : "fixed": rounds have their full length; "slowest": a round ends when the slowest of its jobs has done
        its steps of this round, which is a little earlier when steps are whole.
    whole_steps : a job does a whole number of steps per round, so a job slower than one step per round never
        progresses; otherwise it uses the whole round.
    pairs_end_together : of two jobs that share GPUs in a round, the one that has done its steps first counts as busy
        until the other has too, and completes then.
    """

    round_end: Literal["fixed", "slowest"] = "fixed"
    whole_steps: bool = False
    pairs_end_together: bool = False

    def start(self, world: World) -> Iterable[RunningRule]:  # noqa: ARG002
        """How steps count is what all rules of a round ask."""
        return (_RoundLength(self),)


class _RoundLength(RunningRule):
    ends_round = True

    def __init__(self, rule: RoundLength) -> None:
        self._rule, self.whole_steps = rule, rule.whole_steps

    def in_round(self, r: Round) -> None:
        """Both of a pair are done when the later one is; nobody is busy beyond a full round."""
        if self._rule.pairs_end_together and r.pairs is not None:
            first, finish = r.pairs, r.finish
            finish[first] = finish[first + 1] = np.maximum(finish[first], finish[first + 1])
        if self._rule.round_end == "slowest":
            r.end = float(r.finish.max())
        else:
            r.end = r.clock + r.seconds
            np.minimum(r.finish, r.end, out=r.finish)


@dataclass(frozen=True)
class IdleTime(Rule):
    """What rounds and times count in which nothing was done.

    Attributes
    ----------
    idle_gap_counts_as_service : time in which the cluster stood idle before a round counts as time received by the
        jobs of that round.
    max_zero_step_rounds : a job is given up after so many of its rounds in a row without a step; None: never.
    """

    idle_gap_counts_as_service: bool = False
    max_zero_step_rounds: AtLeastOne | None = None

    def start(self, world: World) -> Iterator[RunningRule]:
        """Rounds in a row without a step are counted last."""
        if self.idle_gap_counts_as_service:
            yield _IdleGapCounts()
        if self.counts_idle_rounds:
            yield _CountsIdleRounds(self.max_zero_step_rounds, world)

    @property
    def counts_idle_rounds(self) -> bool:
        """Whether somebody asks."""
        return self.max_zero_step_rounds is not None


class _IdleGapCounts(RunningRule):
    def in_round(self, r: Round) -> None:
        """Count from the end of the round before."""
        r.counted_from = r.previous_end


class _CountsIdleRounds(RunningRule):
    """Counts the rounds in a row in which a job that had GPUs did no step, and gives up those with too many."""

    def __init__(self, limit: int | None, world: World) -> None:
        self._limit, self._world, self._table, self._anyone = limit, world, world.jobs, True
        world.jobs.register("rounds_without_step", 0)

    def after(self, r: Round) -> None:
        """Count, and give up."""
        if not len(r.idle) and not self._anyone:
            return
        count, at = self._table.columns["rounds_without_step"], self._table.rows(r.jobs)
        count[at] = np.where(r.idle, count[at] + 1, 0) if len(r.idle) else 0
        self._anyone = bool(count.any())
        if self._limit is not None:
            self._world.give_up(r.jobs[(count[at] >= self._limit) & ~r.done])
