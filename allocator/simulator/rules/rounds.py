"""What published simulators do in a round that others do not.

Sources: Gavel (Narayanan et al., OSDI 2020, public artifact) and Shockwave (Zheng et al., NSDI 2023, public artifact).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from allocator.conversion import AtLeastOne, NotNegative, NotNegativeWhole
from allocator.protocol.jobs import JobTable
from allocator.simulator.rules.base import Round, Rule, Running

if TYPE_CHECKING:
    from allocator.simulator.world import World

# What a job whose end is not noticed yet is taken to have left.
_UNNOTICED_STEPS = 1e-6

_Ids = NDArray[np.int64]


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

    def start(self, world: World) -> Iterable[Running]:  # noqa: ARG002
        """How steps count is what all rules of a round ask."""
        return (_RoundLength(self),)


class _RoundLength(Running):
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
    finished_jobs_linger_rounds : with `batch_size_adaptation` "published", progress may be rounded to the end of a job
        and beyond, and the job keeps its GPUs for so many rounds then; 0: progress is never rounded that far.
    overtime_factor : a job counts as completed when it has run for so many times its profiled duration; None: never.
    """

    idle_gap_counts_as_service: bool = False
    max_zero_step_rounds: AtLeastOne | None = None
    finished_jobs_linger_rounds: NotNegativeWhole = 0
    overtime_factor: NotNegative | None = None

    def start(self, world: World) -> Iterator[Running]:
        """Rounds in a row without a step are counted last."""
        if self.idle_gap_counts_as_service:
            yield _IdleGapCounts()
        if self.finished_jobs_linger_rounds:
            yield _EndsUnnoticed(self.finished_jobs_linger_rounds, world.jobs)
        if self.overtime_factor is not None:
            yield _CutsOffOvertime(self.overtime_factor, world.jobs)
        if self.finished_jobs_linger_rounds or self.max_zero_step_rounds is not None:
            yield _CountsIdleRounds(self.max_zero_step_rounds, world.jobs)


class _IdleGapCounts(Running):
    def in_round(self, r: Round) -> None:
        """Count from the end of the round before."""
        r.counted_from = r.previous_end


class _EndsUnnoticed(Running):
    """A job whose rounded progress reached its end keeps its GPUs for some rounds without a step."""

    lets_idle = True

    def __init__(self, rounds: int, jobs: JobTable) -> None:
        self._rounds, self._table = rounds, jobs
        jobs.least_steps_remaining = _UNNOTICED_STEPS

    def settle(self, r: Round) -> None:
        """Through only after these rounds, which `_CountsIdleRounds` counts."""
        idle = self._table.columns["rounds_without_step"][self._table.rows(r.jobs)]
        r.done &= (r.left > 0) | (idle + 1 >= self._rounds)


class _CutsOffOvertime(Running):
    """A job that has run for so many times its profiled duration is taken off, whatever it has left."""

    def __init__(self, factor: float, jobs: JobTable) -> None:
        self._factor, self._table = factor, jobs
        jobs.register("run_seconds", 0.0)

    def settle(self, r: Round) -> None:
        """Those beyond their time are done, as they are."""
        table = self._table
        at, run = table.rows(r.jobs), table.columns["run_seconds"]
        run[at] += r.finish - r.clock
        assert table.training is not None
        profiled = table.training.profiles.total_seconds[at]
        late = run[at] > np.floor(self._factor * np.floor(profiled))
        r.cut_off = late & ~r.done
        r.done |= late

    def rounds_left(self, jobs: _Ids, seconds: float) -> float:
        """Until the first of them is beyond its time."""
        at = self._table.rows(jobs)
        assert self._table.training is not None
        allowed = self._factor * np.floor(self._table.training.profiles.total_seconds[at])
        return float(((allowed - self._table.columns["run_seconds"][at]) / seconds).min(initial=np.inf)) - 1


class _CountsIdleRounds(Running):
    """Counts the rounds in a row in which a job that had GPUs did no step, and gives up those with too many."""

    def __init__(self, limit: int | None, jobs: JobTable) -> None:
        self._limit, self._table, self._anyone = limit, jobs, True
        jobs.register("rounds_without_step", 0)

    def after(self, r: Round) -> None:
        """Count, and give up."""
        if not len(r.idle) and not self._anyone:
            return
        count, at = self._table.columns["rounds_without_step"], self._table.rows(r.jobs)
        count[at] = np.where(r.idle, count[at] + 1, 0) if len(r.idle) else 0
        self._anyone = bool(count.any())
        if self._limit is not None:
            r.gave_up = (count[at] >= self._limit) & ~r.done
