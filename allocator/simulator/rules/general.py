"""Rules of every world: what a run begins with, how fast jobs go, when the world looks, and when it is given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from allocator.conversion import AtLeastOne, NotNegativeWhole, Seconds
from allocator.protocol.elastic import checked_rates
from allocator.protocol.policy import Need, Policy
from allocator.protocol.views import Needs
from allocator.simulator.rules.base import Round, Rule, Rules, RunningRule, rule_of
from throughputs import InputError, ThroughputTable, Trace
from throughputs.arrays import Floats, Ints
from throughputs.numerics import slot_end
from throughputs.training import Course

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from allocator.protocol.decision import Decision
    from allocator.simulator.truth import Truth
    from allocator.simulator.world import World


@dataclass(frozen=True)
class Limits(Rule):
    """When a run is cut short.

    Attributes
    ----------
    max_rounds_without_progress : the simulation stops with an error after so many rounds in a row in which no job did
        a step although some are active and no arrival is to come.
    max_waiting_jobs : the run is cut short as saturated when more jobs wait in a round; None: no limit.
    max_clock_seconds : the run is cut short as saturated when the clock passes this time; None: no limit.
    """

    max_rounds_without_progress: AtLeastOne = 100
    max_waiting_jobs: NotNegativeWhole | None = None
    max_clock_seconds: Seconds | None = None

    def start(self, world: World) -> Iterable[RunningRule]:
        """Asked after every round and stretch."""
        return (_Limits(self, world),)


class _Limits(RunningRule):
    def __init__(self, rule: Limits, world: World) -> None:
        self._world, self._most_stalled = world, rule.max_rounds_without_progress
        self._most_waiting = np.inf if rule.max_waiting_jobs is None else rule.max_waiting_jobs
        self._last_clock = np.inf if rule.max_clock_seconds is None else rule.max_clock_seconds

    def cut_short(self, waiting: int) -> str:
        """Too late, or too many."""
        if self._world.clock > self._last_clock:
            return f"clock beyond {self._last_clock:g} s"
        return f"{waiting} jobs waiting, more than {self._most_waiting:g}" if waiting > self._most_waiting else ""

    def stalls(self, rounds: int) -> bool:
        """After too many."""
        return rounds >= self._most_stalled

    def rounds_left(self, jobs: Ints, seconds: float) -> float:  # noqa: ARG002
        """Until the last moment."""
        return (self._last_clock - self._world.clock) / seconds


@dataclass(frozen=True)
class IdealShares(Rule):
    """A world without rounds.

    Attributes
    ----------
    ideal : no rounds; at every moment each job gets exactly its shares, and the policy decides at every arrival and
        completion. The settings of rounds and queues then mean nothing.
    """

    ideal: bool = False


@dataclass(frozen=True)
class SpreadGangs(Rule):
    """Gangs over several servers.

    Attributes
    ----------
    unconsolidated_throughputs : a gang whose GPUs are on more than one server goes at the throughput that the table
        has for that. Policies count with the consolidated one.
    """

    unconsolidated_throughputs: bool = False

    def make_true(self, truth: Truth, trace: Trace, throughputs: Any, cluster: Cluster, world: Rules) -> None:  # noqa: ARG002
        """Figures for spread gangs are in tables only."""
        if self.unconsolidated_throughputs:
            if not isinstance(throughputs, ThroughputTable):
                expected = "a table with figures for gangs spread over servers"
                raise InputError("throughputs", found="an array", expected=expected)
            keys = trace.job_type, trace.scale_factor, cluster.accelerators
            rates = throughputs.unconsolidated_rates(*keys)
            truth.spread_rates = checked_rates(rates, trace, cluster, "unconsolidated_rates")

    def start(self, world: World) -> Iterable[RunningRule]:
        """Raise InputError without placement."""
        if not self.unconsolidated_throughputs:
            return ()
        if world.core.settings.placement == "off":
            raise InputError("settings", field="placement", found="off", expected="on, to know which gangs spread")
        return (_SpreadGangs(world),)


class _SpreadGangs(RunningRule):
    def __init__(self, world: World) -> None:
        self._world, self._server = world, world.core.cluster.servers

    def rates(self, decision: Decision, at: Ints, rates: Floats) -> Floats:  # noqa: ARG002
        """Slower where GPUs are on several servers."""
        rows, truth = decision.assignment, self._world.truth
        slower = truth.spread_rates_of(rows, None if self._world.jobs.colocation_group is None else rates)
        if slower is None:
            return rates
        gpus = decision.gpus or tuple(map(self._world.core.gpus_of, rows.jobs.tolist()))
        spread = [len(ids) > 1 and len({self._server[gpu] for gpu in ids}) > 1 for ids in gpus]
        return np.where(np.array(spread, dtype=np.bool_), slower, rates)


@dataclass(frozen=True)
class GangRates(Rule):
    """How fast a job goes with its own number of GPUs.

    Attributes
    ----------
    gang_rates : "table": as the throughputs say; "duration": as the trace says, its steps over its duration.
    """

    gang_rates: Literal["table", "duration"] = "table"

    @property
    def about_jobs(self) -> Mapping[str, Any]:
        """What is known of jobs is true."""
        return {"by_duration": True} if self.gang_rates == "duration" else {}


@dataclass(frozen=True)
class DeadlineMeasure(Rule):
    """Which jobs the deadline ratio of the results counts as in time.

    Attributes
    ----------
    deadline_measure : "first": those that completed by their first deadline, as in ElasticFlow; "last": by any of their
        deadlines; "value": each in part, by the value of the deadline that it kept over that of its first, one less
        Chronus' miss rate. For jobs with one deadline all are the same.
    """

    deadline_measure: Literal["first", "last", "value"] = "first"


@dataclass(frozen=True)
class BatchSizes(Rule):
    """Jobs of mode accordion and gns.

    Attributes
    ----------
    batch_size_adaptation : whether such jobs change their batch size. "off": never; "exact": as their rule says,
        keeping their progress.
    """

    batch_size_adaptation: Literal["off", "exact"] = "exact"

    @property
    def needs(self) -> Needs:
        """Jobs are followed as they train."""
        return Need.NOTHING if self.batch_size_adaptation == "off" else Need.TRAINING

    def in_run(self, trace: Trace, throughputs: Any, policy: Policy, world: Rules) -> BatchSizes:
        """Off where no job changes its batch size; an array of rates says what is so, once and for all."""
        changes = self.batch_size_adaptation != "off" and bool((trace.mode != "static").any())
        if not changes or not isinstance(throughputs, ThroughputTable):
            return replace(self, batch_size_adaptation="off")
        hindrance = (
            "a run without rounds (ideal)"
            if rule_of(world, IdealShares).ideal
            else "unconsolidated_throughputs"
            if rule_of(world, SpreadGangs).unconsolidated_throughputs
            else f"policy {policy.name}, under which jobs share GPUs"
            if Need.COLOCATION in policy.needs
            else f"policy {policy.name}, which decides at events"
            if policy.answers == "plan" and not policy.in_rounds
            else ""
        )
        if hindrance:
            raise InputError(
                trace.source,
                field="mode",
                found="jobs that change their batch size",
                expected=f"static jobs for {hindrance}; batch_size_adaptation=off takes all jobs for static",
            )
        return self

    def make_true(self, truth: Truth, trace: Trace, throughputs: Any, cluster: Cluster, world: Rules) -> None:
        """Jobs have a course."""
        if self.batch_size_adaptation != "off":
            jobs = trace.job_type, trace.scale_factor, trace.mode, trace.total_steps
            truth.course = Course(*jobs, throughputs, cluster.accelerators, **self.course(world))

    def course(self, world: Rules) -> Mapping[str, Any]:  # noqa: ARG002
        """Options of the course."""
        return {}

    def start(self, world: World) -> Iterable[RunningRule]:
        """Where anybody asks how jobs train."""
        return () if world.jobs.training is None else (_Training(self.batch_size_adaptation == "exact", world),)


class _Training(RunningRule):
    """What training does between rounds: the ledger is kept, and batch sizes follow the true course of the jobs.

    The job table learns of new rates and steps as they are measured.
    """

    def __init__(self, keeps_progress: bool, world: World) -> None:
        assert world.jobs.training is not None
        self._keeps_progress, self._world, self._ledger = keeps_progress, world, world.jobs.training

    def arrive(self, jobs: Ints) -> None:
        """A line of the ledger for each."""
        self._ledger.admit(jobs, self._world.clock)

    def sums(self) -> list[Floats]:
        """What was measured."""
        return [self._ledger.measured_samples, self._ledger.measured_seconds]

    def rounds_left(self, jobs: Ints, seconds: float) -> float:  # noqa: ARG002
        """None where batch sizes may change."""
        return np.inf if self._world.truth.course is None else 0.0

    def after(self, r: Round) -> None:
        """Report the round to the ledger, and take over rates and steps of batch sizes that changed."""
        world, jobs, ledger, course = self._world, self._world.jobs, self._ledger, self._world.truth.course
        ran, rates = r.jobs[~r.done], r.rates[~r.done]
        ledger.measure(ran, rates, (r.index + 1) * r.seconds)
        if course is None:
            epochs = ledger.profiles.epochs[ran]
            done = jobs.steps_done[ran] / jobs.total_steps[ran]
            ledger.epochs_done[ran] = np.minimum(np.floor(done * epochs + 1e-9), epochs)
            return
        change = course.book(ran, jobs.steps_done)
        changed = change.jobs
        step_factor = change.total_steps / jobs.total_steps[changed]
        if len(changed):
            jobs.total_steps[changed] = change.total_steps
            jobs.steps_done[changed] = change.steps_done
            new_rates = np.where(jobs.rates[changed] > 0, change.rates, 0.0)
            jobs.rates[changed] = world.truth.rates[changed] = new_rates
            ledger.batch_size[changed] = course.batch_size[changed]
        ledger.epochs_done[ran] = course.epochs_done(jobs.steps_done)[ran]
        course.observe(world.core.active, jobs.steps_done)
        if len(changed):
            factor = step_factor if self._keeps_progress else None
            world.core.rates_changed(changed, factor, news=self._keeps_progress)
            world.rates_changed()


@dataclass(frozen=True)
class Slots(Rule):
    """Decisions at events are at least a slot apart.

    Attributes
    ----------
    slot_seconds : after a decision at an event the next one comes so many seconds later at the earliest: whatever
        happens in between waits, and the GPUs of a job that ends are free only then; 0: everything is seen at once.
    slot_grid : slots begin at multiples of slot_seconds from the first arrival on; otherwise with each decision.
    """

    slot_seconds: Seconds = 0.0
    slot_grid: bool = False

    def start(self, world: World) -> Iterable[RunningRule]:
        """Policies are told of slots."""
        world.core.slot_seconds = self.slot_seconds
        return (self.in_a_run(world),) if self.slot_seconds else ()

    def in_a_run(self, world: World) -> SlotsInRun:
        """When the world looks."""
        return SlotsInRun(self, world)

    def origin(self, world: World) -> float:
        """When the first slot of the grid begins, seconds."""
        return float(world.jobs.arrival_time[0])


class SlotsInRun(RunningRule):
    """When the world looks next."""

    says_ends = False

    def __init__(self, rule: Slots, world: World) -> None:
        self.rule, self.world = rule, world

    def seen_at(self, time: float) -> float:
        """At the end of the slot."""
        rule, world = self.rule, self.world
        if rule.slot_grid:
            return slot_end(rule.origin(world), rule.slot_seconds, time)
        return max(time, world.core.asked_at + rule.slot_seconds)
