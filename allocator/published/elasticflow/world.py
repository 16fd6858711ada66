"""What the simulator of ElasticFlow does between events that others do not (Gu et al., ASPLOS 2023, public artifact).

It has a loop for each policy. These rules say when they look, what a decision costs those who run on, and when a job
that has done its last step is through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from allocator.conversion import AtLeastOne, Seconds
from allocator.protocol.assignment import among_ids
from allocator.protocol.jobs import JobTable
from allocator.simulator.rules.base import Rule, Rules, RunningRule, Stretch, rule_of
from allocator.simulator.rules.general import Slots, SlotsInRun
from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.numerics import log2

if TYPE_CHECKING:
    from allocator.simulator.world import World


# What the rounding of some ten thousand stretches may leave of a time that is a whole number of seconds.
_SECONDS_TOLERANCE = 1e-5


@dataclass(frozen=True)
class SlotsThatSpare(Slots):
    """Decisions at events are at least a slot apart, but for the last.

    Attributes
    ----------
    slot_spares_last_arrival : the last arrival of a trace does not wait for the end of a slot.
    slot_spares_last_end : nor does an end after which nobody is left who has run before, once no more jobs are to
        arrive: jobs that still wait for their first GPUs get them at once instead of with the next slot.
    """

    slot_spares_last_arrival: bool = False
    slot_spares_last_end: bool = False

    def start(self, world: World) -> Iterable[RunningRule]:
        """Slots, or only what is spared."""
        return [*super().start(world), *([_SparesLastEnd(world)] if self.slot_spares_last_end else [])]

    def in_a_run(self, world: World) -> SlotsInRun:
        """When the world looks."""
        return _SparesLastArrival(self, world) if self.slot_spares_last_arrival else super().in_a_run(world)


class _SparesLastArrival(SlotsInRun):
    def seen_at(self, time: float) -> float:
        """At once."""
        arrivals = self.world.arrivals
        return time if arrivals.only_last_left and time == arrivals.next_time else super().seen_at(time)


class _SparesLastEnd(RunningRule):
    def __init__(self, world: World) -> None:
        self._world = world

    def seen_at_once(self, first: float, finish: Floats, jobs: Ints) -> bool:
        """Where all `jobs` that run end at `first`, and nobody else has ever run or is to arrive."""
        world = self._world
        if first == np.inf or world.arrivals.next_time < np.inf or (finish > first).any():
            return False
        waiting = world.core.active[~among_ids(world.core.active, np.sort(jobs))]
        return not (world.jobs.steps_done[world.jobs.rows(waiting)] > 0).any()


@dataclass(frozen=True)
class Ends(Rule):
    """When a job that has done its last step is through.

    Attributes
    ----------
    ends : "exact": then; "second": at the next whole second; "slot": at the end of that slot of its present stretch
        (with slot_seconds above 0).
    late_jobs_wait : with ends "slot", a job whose deadline passes in a stretch stands still from its deadline to the
        end of the slot in which that lies, and is through so much later, as the published loop looks at late jobs at
        ends of slots only. A decision before it is through takes that back: up to then it has trained without a wait.
    deadlines_judged_by : what a deadline is compared with: "end": the end of the job, as in its completion time;
        "training": the second of its last step, without the overhead of its last stretch and the rest of the slot.
    """

    ends: Literal["exact", "second", "slot"] = "exact"
    late_jobs_wait: bool = False
    deadlines_judged_by: Literal["end", "training"] = "end"

    def check(self, world: Rules) -> None:
        """Slots are needed where ends go by them."""
        if self.ends == "slot":
            _check_slot(world)

    def start(self, world: World) -> Iterator[RunningRule]:
        """Rounded to seconds or slots first."""
        if self.ends == "second":
            yield _EndsInWholeSeconds()
        elif self.ends == "slot":
            yield _EndsWithSlots(self, rule_of(world.rules, Slots).slot_seconds, world.jobs)
        if self.deadlines_judged_by == "training":
            yield _JudgedByTraining()


def _check_slot(world: Rules) -> None:
    slot = rule_of(world, Slots).slot_seconds
    if not slot >= 1:
        expected = "at least 1 where ends or overhead_restart_decisions go by the slot"
        raise InputError("simulator settings", field="slot_seconds", found=slot, expected=expected)


class _JudgedByTraining(RunningRule):
    """A deadline is compared with the second of the last step, as if nothing had been lost in the last stretch."""

    def shape(self, s: Stretch) -> None:
        """Without overhead."""
        s.judged = s.judged - (s.begin - s.clock)


class _EndsInWholeSeconds(RunningRule):
    """A job is through at the next whole second of its training."""

    def shape(self, s: Stretch) -> None:
        """Round the seconds of training up."""
        seconds = np.ceil(s.finish - s.begin - _SECONDS_TOLERANCE)
        s.finish = s.begin + seconds
        s.judged = s.finish


class _EndsWithSlots(RunningRule):
    """A job is through when the slot of the stretch in which it does its last step is over.

    What was lost before it began is not made up for in the rest of the slot: a job that is interrupted there has so
    much left.
    """

    def __init__(self, rule: Ends, slot: float, jobs: JobTable) -> None:
        self._rule, self._slot, self._jobs = rule, slot, jobs

    def shape(self, s: Stretch) -> None:
        """Round the seconds of training up to slots."""
        seconds = np.ceil(s.finish - s.begin - _SECONDS_TOLERANCE)
        if self._rule.late_jobs_wait:
            s.trained = s.clock + seconds
            left = self._jobs.deadline[s.at] - s.clock
            late = (left > 0) & (left < seconds)
            seconds[late] += np.ceil(left[late] / self._slot) * self._slot - left[late]
        s.finish = s.begin + np.ceil(seconds / self._slot) * self._slot
        s.judged = s.begin + seconds if self._rule.deadlines_judged_by == "training" else s.finish
        s.until = s.clock + seconds


@dataclass(frozen=True)
class DecisionsCostTime(Rule):
    """Jobs lose time at each decision, in the next stretch in which they run.

    Sets of GPUs on which a job has run before may be known (communication groups are kept), and everything may be
    started anew at every so many decisions, when known sets are forgotten.

    Attributes
    ----------
    overhead : which jobs lose time at each decision at an event: "off": nobody; "starts": those that start;
        "running": everybody who has GPUs, whether or not anything changes; "active": those who wait as well, for whom
        it counts when they run. A job of n GPUs loses `overhead_base_seconds` +
        `overhead_doubling_seconds` (1 + log2 n) in the stretch that follows.
    overhead_base_seconds, overhead_doubling_seconds : see `overhead`.
    overhead_reuses_groups : a set of GPUs on which a job has run before costs the base only.
    overhead_restart_decisions : everything is started anew at every so many decisions; "slot": as many as a slot has
        seconds, which is what the published simulator compares with; None: never.
    overhead_restart_seconds : what that costs everybody in addition, and known sets of GPUs are forgotten.
    overhead_while_arrivals : time is lost only as long as more jobs are to arrive.
    overhead_delays_end : whether time lost in a stretch delays an end in it: "always", or at "restarts" only.
    """

    overhead: Literal["off", "starts", "running", "active"] = "off"
    overhead_base_seconds: Seconds = 0.0
    overhead_doubling_seconds: Seconds = 0.0
    overhead_reuses_groups: bool = False
    overhead_restart_decisions: AtLeastOne | Literal["slot"] | None = None
    overhead_restart_seconds: Seconds = 0.0
    overhead_while_arrivals: bool = False
    overhead_delays_end: Literal["always", "restarts"] = "always"

    def check(self, world: Rules) -> None:
        """Slots are needed where restarts go by them."""
        if self.overhead_restart_decisions == "slot":
            _check_slot(world)

    def start(self, world: World) -> Iterable[RunningRule]:
        """Nothing where decisions are free."""
        every = self.overhead_restart_decisions
        decisions = int(rule_of(world.rules, Slots).slot_seconds) if every == "slot" else every
        return (_DecisionsCostTime(self, decisions, world),) if self.overhead != "off" else ()

    def seconds_of(self, gpus: Ints, restart: bool) -> Floats:
        """(K,) seconds that jobs of so many `gpus` lose."""
        anew = self.overhead_doubling_seconds * (1.0 + log2(gpus))
        return np.asarray(self.overhead_base_seconds + (anew + self.overhead_restart_seconds if restart else anew))


class _DecisionsCostTime(RunningRule):
    """The time that each job is still to lose, and what it lost by the last decision, are columns of the table."""

    keeps = ("_restarts", "_known")

    def __init__(self, rule: DecisionsCostTime, every: int | None, world: World) -> None:
        self._rule, self._every, self._jobs, self._core = rule, every, world.jobs, world.core
        self._restarts = 0
        self._known: set[tuple[int, ...]] = set()
        self._restarting = False
        for name in ("overhead_seconds", "lost_seconds", "restart_gpu_seconds"):
            world.jobs.register(name, 0.0)

    def begin(self, s: Stretch) -> None:
        """Charge at decisions, and let those who run lose what they are charged with."""
        overhead = self._jobs.columns["overhead_seconds"]
        self._restarting = False
        if s.decision.recomputed and (self._core.more_arrivals or not self._rule.overhead_while_arrivals):
            self._charge(s, overhead)
        lost = overhead.take(s.at)
        if s.decision.recomputed:
            self._jobs.columns["lost_seconds"][s.at] = lost
        s.begin = s.clock + lost
        self._jobs.columns["restart_gpu_seconds"][s.at] += lost * s.decision.assignment.gpus_taken
        overhead[s.at] = 0.0

    def _charge(self, s: Stretch, overhead: Floats) -> None:
        number = self._core.decisions - 1
        if self._every is not None and number // self._every > self._restarts:
            self._restarts = number // self._every
            self._restarting = number % self._every == 0
            # One that passed while nobody ran is not felt, but by what is known.
            self._known = self._known if self._restarting else set()
        rows, at = s.decision.assignment, s.at
        if self._rule.overhead == "active":
            everybody = self._jobs.rows(self._core.active)
            overhead[everybody] = self._rule.seconds_of(self._jobs.scale_factor.take(everybody), self._restarting)
        lost = self._rule.seconds_of(rows.gpus, self._restarting)
        if self._rule.overhead_reuses_groups:
            groups = list(map(self._core.gpus_of, rows.jobs.tolist()))
            lost[[group in self._known for group in groups]] = self._rule.overhead_base_seconds
            if self._restarting:
                self._known = set()
            else:
                self._known.update(groups)
        if self._rule.overhead == "starts" and not self._restarting:
            started = among_ids(rows.jobs, s.decision.transition.start)
            at, lost = at[started], lost[started]
        overhead[at] = lost

    def shape(self, s: Stretch) -> None:
        """Ends that are not delayed."""
        if self._rule.overhead_delays_end == "restarts" and not self._restarting:
            s.finish = s.finish - (s.begin - s.clock)
            s.judged = s.judged - (s.begin - s.clock)
