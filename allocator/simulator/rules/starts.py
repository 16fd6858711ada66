"""Gangs that start take time, and stops cost work, as a function of what changes from one decision to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.conversion import Seconds
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.simulator.rules.base import Round, Rule, RunningRule, Stretch
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Texts
from throughputs.limits import LATEST_TIME
from throughputs.numerics import log2

if TYPE_CHECKING:
    from allocator.simulator.world import World


@dataclass(frozen=True)
class StartsTakeTime(Rule):
    """Seconds without training when a gang starts, resumes, or goes on with other GPUs.

    Attributes
    ----------
    restart_penalty_seconds : a gang that did not run the round before trains so much less.
    restart_penalty_per_doubling_seconds : as much more for each time that its number of GPUs doubles from 1.
    restart_penalty_by_gpus : pairs (GPUs, seconds), ascending: what it costs to start a gang of so many GPUs or more,
        instead of restart_penalty_seconds; that is for gangs of fewer.
    restart_penalty_by_job_type : pairs (job type, seconds), instead of the others for these types.
    restart_when_moved : a job that goes on with other GPUs, or another number of them, starts anew too.
    restart_delays : in rounds, a gang that starts is busy with that first, in the first round too, and in the rounds
        after it where it goes on and the start takes longer; it trains in what is left. Otherwise it trains so much
        less in the round than it would have, and is done the earlier, but for gangs of the very first round.
    """

    restart_penalty_seconds: Seconds = 0.0
    restart_penalty_per_doubling_seconds: Seconds = 0.0
    restart_penalty_by_gpus: tuple[tuple[int, float], ...] = ()
    restart_penalty_by_job_type: tuple[tuple[str, float], ...] = ()
    restart_when_moved: bool = False
    restart_delays: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by_gpus("restart_penalty_by_gpus", self.restart_penalty_by_gpus)
        check_by_name("restart_penalty_by_job_type", self.restart_penalty_by_job_type, "seconds of at least 0", 0.0)

    @property
    def costs(self) -> bool:
        """Whether a start takes any time."""
        own = self.restart_penalty_seconds > 0 or self.restart_penalty_per_doubling_seconds > 0
        return own or bool(self.restart_penalty_by_gpus) or bool(self.restart_penalty_by_job_type)

    def start(self, world: World) -> Iterable[RunningRule]:
        """Nothing where starts are free."""
        world.core.restart_seconds = self.dearest(int(world.core.cluster.capacity.max(initial=1)))
        return (self.in_a_run(world),) if self.costs else ()

    def in_a_run(self, world: World) -> Starts:
        """Who starts, and since when."""
        return Starts(self, world)

    def of_rows(self, decision: Decision, jobs: JobTable) -> Floats:
        """(K,) seconds that each row of a decision loses at its start."""
        rows, change = decision.assignment, decision.transition
        anew = change.rows
        if not self.restart_when_moved:
            anew = anew[among_ids(rows.jobs[anew], change.start)]
        lost = np.zeros(len(rows))
        if not len(anew):
            return lost
        lost[anew] = self.seconds_of(rows.gpus[anew], jobs.job_type[jobs.rows(rows.jobs[anew])])
        return lost

    def dearest(self, most_gpus: int) -> float:
        """Seconds that a gang of any type needs to start at most, if it has at most so many GPUs."""
        gpus = np.arange(1, max(most_gpus, 1) + 1)
        untold = np.full(len(gpus), "", dtype=object)
        return max(
            float(self.seconds_of(gpus, untold).max()), *(cost for _, cost in self.restart_penalty_by_job_type), 0.0
        )

    def seconds_of(self, gpus: Ints, job_type: Texts) -> Floats:
        """(K,) seconds that gangs of so many `gpus` of these types need to start."""
        cost = np.full(len(gpus), self.restart_penalty_seconds)
        if self.restart_penalty_per_doubling_seconds:
            cost += self.restart_penalty_per_doubling_seconds * log2(gpus)
        if self.restart_penalty_by_gpus:
            counts, seconds = (np.array(column) for column in zip(*self.restart_penalty_by_gpus, strict=True))
            reached = np.searchsorted(counts, gpus, side="right") - 1
            cost = np.where(reached >= 0, seconds[np.maximum(reached, 0)], cost)
        if self.restart_penalty_by_job_type:
            known = dict(self.restart_penalty_by_job_type)
            cost = np.array([known.get(kind, c) for kind, c in zip(job_type.tolist(), cost.tolist(), strict=True)])
        return cost


def constant_restart_penalty(seconds: float) -> dict[str, Any]:
    """The settings by which every start costs so much, whatever the size and the type of its job."""
    others = ("restart_penalty_by_gpus", "restart_penalty_by_job_type")
    return {"restart_penalty_seconds": seconds, "restart_penalty_per_doubling_seconds": 0.0} | dict.fromkeys(others, ())


class Starts(RunningRule):
    """Who starts, and since when."""

    says_ends = False

    def __init__(self, rule: StartsTakeTime, world: World) -> None:
        self._rule, self._world, self._table = rule, world, world.jobs
        for name in ("ready_time", "lost_seconds", "restart_gpu_seconds"):
            world.jobs.register(name, 0.0)

    def begin(self, s: Stretch) -> None:
        """Gangs that start begin to train later; so do those whose start has not ended with the last stretch."""
        lost = self.lost(s.decision)
        if s.decision.recomputed:
            self._table.columns["lost_seconds"][s.at] = lost
        ready: Floats = self._table.columns["ready_time"]
        s.starts = lost > 0
        if s.starts.any():
            self._note(s.decision, s.at, lost)
            ready[s.at] = np.where(s.starts, s.clock + lost, ready[s.at])
        s.begin = np.maximum(ready[s.at], s.clock)

    def lost(self, decision: Decision) -> Floats:
        """(K,) seconds that each row of a decision at an event loses at its start."""
        return self._rule.of_rows(decision, self._table)

    def in_round(self, r: Round) -> None:
        """Fewer steps."""
        (self._come_first if self._rule.restart_delays else self._shorten)(r)

    def _come_first(self, r: Round) -> None:
        """As many steps as fit into what is left of the round, as on a real cluster."""
        seconds, at, ready = r.finish - r.clock, self._table.rows(r.jobs), self._table.columns["ready_time"]
        lost = self._rule.of_rows(r.decision, self._table)
        ready[at] = np.where(lost > 0, r.clock + lost, ready[at])
        lost = np.where(lost > 0, lost, ready[at] - r.clock).clip(0.0, r.seconds)
        if lost.any():
            self._note(r.decision, at, lost)
        training = np.minimum(seconds, r.seconds - lost)
        cut = training < seconds
        less = r.counted(r.steps * np.divide(training, seconds, out=np.ones_like(seconds), where=cut))
        r.steps = np.where(cut, less, r.steps)
        r.finish, r.begin = r.clock + np.where(cut, r.seconds, seconds + lost), r.clock + lost

    def _shorten(self, r: Round) -> None:
        """Fewer steps, done the earlier (Shockwave, NSDI'23, artifact).

        Raises
        ------
        InputError
            A start that takes the round or longer: it would cost nothing, as no round has room for it.
        """
        seconds = r.finish - r.clock
        r.finish = r.clock + seconds
        if r.index == 0:
            return
        lost = self._rule.of_rows(r.decision, self._table)
        if (longest := float(lost.max(initial=0.0))) >= r.seconds:
            expected = f"starts shorter than a round (round_seconds={r.seconds:g}), or restart_delays=true"
            raise InputError("settings", field="restart_penalty_seconds", found=longest, expected=expected)
        charged = (lost > 0) & (seconds > self.spared_below(r, lost))
        if not charged.any():
            return
        training = seconds - lost
        less = r.counted(r.steps * np.divide(training, seconds, out=np.ones_like(seconds), where=charged))
        r.steps = np.where(charged, less, r.steps)
        self._note(r.decision, self._table.rows(r.jobs), np.where(charged, lost, 0.0))
        r.finish = r.clock + np.where(charged, training, seconds)

    def rounds_left(self, jobs: Ints, seconds: float) -> float:  # noqa: ARG002
        """None while one of them starts."""
        return 0.0 if (self._table.columns["ready_time"][self._table.rows(jobs)] > self._world.clock).any() else np.inf

    def spared_below(self, r: Round, lost: Floats) -> Floats:  # noqa: ARG002
        """(K,) seconds in a round above which a gang that would have lost so many loses them."""
        return lost

    def _note(self, decision: Decision, at: Ints, lost: Floats) -> None:
        """Add up the GPU-seconds of starts that take so many seconds; GPUs that two jobs share count half."""
        rows = decision.assignment
        taken: Floats = lost * rows.gpus_taken
        half = np.where(rows.partner >= 0, 0.5 * taken, taken) if rows.shares_gpus else taken
        self._table.columns["restart_gpu_seconds"][at] += half


@dataclass(frozen=True)
class StoppingCostsWork(Rule):
    """A job that is stopped loses steps, possibly more than it has done: it has so much more to do.

    Attributes
    ----------
    preemption_penalty_by_gpus : pairs (GPUs, seconds), ascending: a job that has so many GPUs or more and is stopped
        by a decision at an event has so much more to do, as time at the rate at which it ran; that counts into the time
        that policies see it needs. Between events only.
    """

    preemption_penalty_by_gpus: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by_gpus("preemption_penalty_by_gpus", self.preemption_penalty_by_gpus)

    def start(self, world: World) -> Iterable[RunningRule]:
        """Nothing where stops are free."""
        return (_StoppingCostsWork(self, world.jobs),) if self.preemption_penalty_by_gpus else ()


class _StoppingCostsWork(RunningRule):
    def __init__(self, rule: StoppingCostsWork, jobs: JobTable) -> None:
        by_gpus = rule.preemption_penalty_by_gpus
        self._jobs = jobs
        self._counts = np.array([gpus for gpus, _ in by_gpus], dtype=np.int64)
        self._seconds = np.array([0.0, *(seconds for _, seconds in by_gpus)])

    def stop(self, rows: Assignment, at: Ints, rates: Floats) -> None:
        """Take steps back."""
        self._jobs.steps_done[at] -= rates * self._seconds[self._counts.searchsorted(rows.gpus, side="right")]


def check_by_gpus(name: str, by_gpus: tuple[tuple[int, float], ...]) -> None:
    """Raise InputError unless numbers of GPUs ascend, and seconds are none below 0 or beyond all time."""
    counts = [gpus for gpus, _ in by_gpus]
    if counts != sorted(set(counts)) or any(not 0 <= cost <= LATEST_TIME for _, cost in by_gpus):
        expected = f"pairs with seconds of at least 0 and at most {LATEST_TIME:g}, numbers of GPUs ascending"
        raise InputError("simulator settings", field=name, found=by_gpus, expected=expected)


def check_by_name(name: str, values: tuple[tuple[str, Any], ...], expected: str, at_least: float) -> None:
    """Raise InputError unless each name stands once, with a value that is large enough."""
    seen = set()
    for model, value in values:
        if not value >= at_least:
            raise InputError("simulator settings", field=f"{name} of {model}", found=value, expected=expected)
        if model in seen:
            raise InputError("simulator settings", field=name, found=model, expected="each name once")
        seen.add(model)
