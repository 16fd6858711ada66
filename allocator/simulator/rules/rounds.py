"""What published simulators do in a round that others do not: small rules, which a preset lists by its settings.

A round goes through them in order: `shape` may change what the rows did and when they were done, `settle` who is
through, and `after` looks back. The loop knows none of them by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.simulator.restarts import RestartCost

if TYPE_CHECKING:
    from allocator.simulator.settings import SimulatorSettings

# Relative to the steps of one round: fractional steps add up to the total only nearly, and a round must not be spent on
# the residue.
STEP_TOLERANCE = 1e-9

# What a job whose end is not noticed yet is taken to have left.
_UNNOTICED_STEPS = 1e-6

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]
_Flags = NDArray[np.bool_]

_NOBODY: _Flags = np.empty(0, dtype=np.bool_)


@dataclass(slots=True, eq=False)
class Round:
    """One round as it takes shape; arrays are over its K rows.

    Attributes
    ----------
    index, clock, seconds : its number, its start and its full length.
    decision : who runs.
    jobs, pairs : ids; positions of the first of each two rows that share GPUs, None under policies that do not pack.
    left : steps left before the round.
    steps, finish : steps done, and when they were done, seconds.
    end, previous_end : of the round, and of the one before it.
    counted_from : since when the time counts as received.
    done : who is through.
    idle : who did no step; empty where everybody did.
    cut_off : who is taken off before the last step; part of `done`.
    gave_up : who is given up.
    """

    index: int
    clock: float
    seconds: float
    decision: Decision
    jobs: _Ids
    pairs: _Ids | None
    left: _Floats
    steps: _Floats
    finish: _Floats
    end: float
    previous_end: float
    counted_from: float
    done: _Flags = field(default_factory=lambda: _NOBODY)
    idle: _Flags = field(default_factory=lambda: _NOBODY)
    cut_off: _Flags | None = None
    gave_up: _Flags | None = None


class Rule:
    """Does nothing, three times."""

    def bind(self, jobs: JobTable) -> None:
        """Register what the rule keeps for each job."""

    def shape(self, r: Round) -> None:
        """Change what the rows did."""

    def settle(self, r: Round) -> None:
        """Change who is through."""

    def after(self, r: Round) -> None:
        """Look back when the round is over."""

    def rounds_left(self, jobs: _Ids, seconds: float) -> float:  # noqa: ARG002
        """So many rounds of full length of these jobs the rule will let pass without doing anything."""
        return np.inf


@dataclass(frozen=True)
class StepCount:
    """How many steps a job does in a round: as many as fit, or whole ones only.

    A job slower than one whole step per round never progresses.
    """

    whole: bool

    def of(self, steps: _Floats) -> _Floats:
        """What counts of so many steps."""
        return np.floor(steps) if self.whole else steps

    @property
    def nearly(self) -> float:
        """A job is through when it has done so many times what it had left."""
        return 1.0 if self.whole else 1.0 + STEP_TOLERANCE


class PairsEndTogether(Rule):
    """Of two jobs that share GPUs, the one that is done first counts as busy until the other is too."""

    def shape(self, r: Round) -> None:
        """Both are done when the later one is."""
        if r.pairs is not None:
            first, finish = r.pairs, r.finish
            finish[first] = finish[first + 1] = np.maximum(finish[first], finish[first + 1])


class FullLength(Rule):
    """Rounds have their full length."""

    def shape(self, r: Round) -> None:
        """Nobody is busy beyond it."""
        r.end = r.clock + r.seconds
        np.minimum(r.finish, r.end, out=r.finish)


class EndsWithSlowest(Rule):
    """A round ends when the slowest of its jobs has done its steps."""

    def shape(self, r: Round) -> None:
        """A little earlier where steps are whole."""
        r.end = float(r.finish.max())


class StartsCostTime(Rule):
    """Gangs that start lose training time, but for those of the very first round (Shockwave, NSDI'23, artifact).

    Parameters
    ----------
    cost : what a start costs.
    slack_seconds : a gang that is done more than this before a full round is over pays nothing; None: every gang pays.
    steps : how steps count.
    """

    def __init__(self, cost: RestartCost, slack_seconds: float | None, steps: StepCount) -> None:
        self._cost, self._slack_seconds, self._steps = cost, slack_seconds, steps

    def bind(self, jobs: JobTable) -> None:
        """Job types are read; what starts took is kept."""
        self._table = jobs
        jobs.register("restart_gpu_seconds", 0.0)

    def shape(self, r: Round) -> None:
        """Fewer steps, done the earlier."""
        seconds = r.finish - r.clock
        r.finish = r.clock + seconds
        if r.index == 0:
            return
        lost = self._cost.of_rows(r.decision, self._table)
        slack = self._slack_seconds
        spared_below = lost if slack is None else np.maximum(r.seconds - slack, lost)
        charged = (lost > 0) & (seconds > spared_below)
        if not charged.any():
            return
        training = seconds - lost
        less = self._steps.of(r.steps * np.divide(training, seconds, out=np.ones_like(seconds), where=charged))
        r.steps = np.where(charged, less, r.steps)
        taken = self._cost.gpu_seconds(r.decision, np.where(charged, lost, 0.0))
        self._table.columns["restart_gpu_seconds"][self._table.rows(r.jobs)] += taken
        r.finish = r.clock + np.where(charged, training, seconds)


class StartsComeFirst(Rule):
    """Gangs that start are busy with that before they train, as on a real cluster.

    Parameters
    ----------
    cost : what a start costs.
    steps : how steps count.
    """

    def __init__(self, cost: RestartCost, steps: StepCount) -> None:
        self._cost, self._steps = cost, steps

    def bind(self, jobs: JobTable) -> None:
        """Job types are read; what starts took is kept."""
        self._table = jobs
        jobs.register("restart_gpu_seconds", 0.0)

    def shape(self, r: Round) -> None:
        """As many steps as fit into what is left of the round."""
        seconds = r.finish - r.clock
        lost = np.minimum(self._cost.of_rows(r.decision, self._table), r.seconds)
        if lost.any():
            taken = self._cost.gpu_seconds(r.decision, lost)
            self._table.columns["restart_gpu_seconds"][self._table.rows(r.jobs)] += taken
        training = np.minimum(seconds, r.seconds - lost)
        cut = training < seconds
        less = self._steps.of(r.steps * np.divide(training, seconds, out=np.ones_like(seconds), where=cut))
        r.steps = np.where(cut, less, r.steps)
        r.finish = r.clock + np.where(cut, r.seconds, seconds + lost)


class IdleGapCounts(Rule):
    """Time in which the cluster stood idle before a round counts as time received by its jobs."""

    def shape(self, r: Round) -> None:
        """Count from the end of the round before."""
        r.counted_from = r.previous_end


class EndsUnnoticed(Rule):
    """A job whose rounded progress reached its end keeps its GPUs for some rounds without a step."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def bind(self, jobs: JobTable) -> None:
        """Rounds in a row without a step, by job, are counted by `CountsIdleRounds`."""
        self._table = jobs
        jobs.least_steps_remaining = _UNNOTICED_STEPS

    def settle(self, r: Round) -> None:
        """Through only after these rounds."""
        idle = self._table.columns["rounds_without_step"][self._table.rows(r.jobs)]
        r.done &= (r.left > 0) | (idle + 1 >= self._rounds)


class CutsOffOvertime(Rule):
    """A job that has run for so many times its profiled duration is taken off, whatever it has left."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def bind(self, jobs: JobTable) -> None:
        """Seconds that each job has run."""
        self._table = jobs
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


class CountsIdleRounds(Rule):
    """Counts the rounds in a row in which a job that had GPUs did no step, and gives up those with too many."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._anyone = True

    def bind(self, jobs: JobTable) -> None:
        """One count for each job."""
        self._table = jobs
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


def rules_of(settings: SimulatorSettings) -> list[Rule]:
    """The rules that the settings of a preset name, in the order in which a round goes through them."""
    steps = StepCount(settings.whole_steps)
    rules: list[Rule] = [PairsEndTogether()] if settings.pairs_end_together else []
    rules.append(EndsWithSlowest() if settings.round_end == "slowest" else FullLength())
    cost = settings.restart_cost
    if cost and settings.restart_delays:
        rules.append(StartsComeFirst(cost, steps))
    elif cost:
        rules.append(StartsCostTime(cost, settings.restart_penalty_slack_seconds, steps))
    if settings.idle_gap_counts_as_service:
        rules.append(IdleGapCounts())
    if settings.finished_jobs_linger_rounds:
        rules.append(EndsUnnoticed(settings.finished_jobs_linger_rounds))
    if settings.overtime_factor is not None:
        rules.append(CutsOffOvertime(settings.overtime_factor))
    rules.append(CountsIdleRounds(settings.max_zero_step_rounds))
    return rules
