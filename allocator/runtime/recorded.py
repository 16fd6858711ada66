"""What a service has done, by its journal: as leases, as the results of a simulation are, and beside a simulation."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mean, median
from typing import Any

import numpy as np

from allocator.presets import Preset
from allocator.presets import preset_of as preset_of_settings
from allocator.protocol import Need
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.recorded import lease_outcomes
from allocator.registry import get_policy, settings_of
from allocator.results.outcomes import COMPLETED, CUT_OFF, DROPPED, OPEN, REJECTED
from allocator.results.record import RunRecord
from allocator.results.result import SimulationResult
from allocator.runtime.adapters.base import Node, Placed
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from allocator.simulator.engine import simulate
from throughputs import InputError, ThroughputTable, Trace
from throughputs.tables.figures import TableBuilder

THROUGHPUTS_FILE = "throughputs.csv"
"""In a state folder: what its service believes of job types before they have run."""

_OUTCOMES = {"completed": COMPLETED, "cancelled": CUT_OFF, "failed": DROPPED, "rejected": REJECTED}


@dataclass
class Lease:
    """One start of a job.

    Attributes
    ----------
    job : number of the job. placed : on which GPUs.
    due : from when on the GPUs were meant for it: when the decision was to hold and whoever held them was told to end,
        seconds on the clock of the service.
    start : when it held them. told : when it was told to end, None: it never was. finish : when it had ended.
    steps : that were kept.
    """

    job: int
    placed: Placed
    due: float
    start: float
    steps_before: float
    told: float | None = None
    finish: float = 0.0
    steps: float = 0.0

    def end(self, clock: float, steps: float) -> Lease:
        """It has ended, and its job has kept so many steps."""
        self.finish, self.steps = max(clock, self.start), max(steps - self.steps_before, 0.0)
        return self


class RecordedRun:
    """What a service did, from its first submission on.

    Parameters
    ----------
    events : of the journal.
    known : throughputs that the service believed in; None: none. What was measured comes before them.

    Attributes
    ----------
    book : all jobs as they are at the end.
    leases : in the order of their ends; those that go on end with the journal.
    scale_factor : by job, GPUs that it was submitted with.
    speeds : by job, steps and seconds of training by (accelerator type, GPUs).
    hardware : all nodes that there ever were. cluster : their GPUs.
    run : what the service ran with at the end; see `allocator.cli.service.serve`.
    changes : when it began to run with something else while jobs were there, seconds on the clock, and what is other
        than before, in words.
    capacity_changed : whether GPUs came or went, or were drained, while jobs were there.
    decisions, policy_seconds : decisions for which the policy was asked, and what they took.
    since, until : clock at the first submission and at the last event, seconds.
    """

    def __init__(self, events: Iterable[Event], known: ThroughputTable | None = None) -> None:
        self.known, self.book = known, Book()
        self.leases: list[Lease] = []
        self.scale_factor: list[int] = []
        self.speeds: list[dict[tuple[str, int], tuple[float, float]]] = []
        self.run: dict[str, Any] = {}
        self.changes: list[tuple[float, str]] = []
        self.capacity_changed = self._draining = False
        self.decisions, self.policy_seconds = 0, 0.0
        self._capacity: list[tuple[float, dict[str, int]]] = []
        self._open: dict[str, Lease] = {}
        self._freed: dict[tuple[str, int], float] = {}
        self._decided: list[float] = []
        nodes: dict[str, Node] = {}
        for event in events:
            self._take(event)
            if event.kind in ("service", "cluster"):
                nodes |= {n: replace(node, up=True, drained=False, reason="") for n, node in self.book.nodes.items()}
        if not self.book.by_id:
            raise InputError("journal", found="no jobs", expected="a service that jobs were submitted to")
        self.since, self.until = self.book.by_id[0].submitted_at, self.book.clock
        self.leases += [lease.end(self.until, self.book.jobs[uuid].steps) for uuid, lease in self._open.items()]
        self.leases.sort(key=lambda lease: (lease.finish, lease.start, lease.job))
        self.hardware = Hardware(list(nodes.values()))
        self.cluster = self.hardware.cluster

    # -- the journal as leases: which job held which GPUs from when to when, and what came of it -----------------------

    def _take(self, event: Event) -> None:
        book = self.book
        before = (dict(book.nodes), set(book.drained)) if not event.job else ()
        book.apply(event)
        if event.job:
            if note := getattr(self, f"_{event.kind}", None):
                note(book.jobs[event.job], event)
            return
        self.capacity_changed |= bool(book.active) and before != (book.nodes, book.drained)
        self._note_capacity(event.clock)
        if event.kind == "run":
            run = dict(event.data)
            if book.active and (changed := _changed(self.run, run)):
                self.changes.append((event.clock, changed))
            self.run = run
        elif event.kind == "decision":
            self._decided.append(event.clock)
            self.decisions += bool(event.get("asked"))
            self.policy_seconds += float(event.get("seconds", 0.0))

    def _note_capacity(self, clock: float) -> None:
        """How many GPUs may be used from now on; on nodes that are drained those that jobs still have."""
        held = {gpu for lease in self._open.values() for gpu in lease.placed.gpus}
        gpus: dict[str, int] = {}
        self._draining = False
        for node in self.book.nodes.values():
            drained = node.up and (node.drained or node.name in self.book.drained)
            self._draining |= drained
            left = sum((node.name, at) in held for at in range(node.gpus)) if drained else node.gpus * node.up
            gpus[node.accelerator] = gpus.get(node.accelerator, 0) + left
        if gpus and (not self._capacity or self._capacity[-1][1] != gpus):
            self._capacity.append((clock, gpus))

    def _free(self, lease: Lease, clock: float) -> None:
        self._freed |= dict.fromkeys(lease.placed.gpus, clock)

    def _submitted(self, job: Job, event: Event) -> None:  # noqa: ARG002
        self.scale_factor.append(job.gpus)
        self.speeds.append({})

    def _starting(self, job: Job, event: Event) -> None:
        # a decision that was made for later, and holds early, does not count
        decided = next((clock for clock in reversed(self._decided) if clock <= event.clock), 0.0)
        due = max(decided, job.submitted_at, *(self._freed.get(gpu, 0.0) for gpu in job.placed.gpus))
        self._open[job.uuid] = Lease(job.id, job.placed, min(due, event.clock), event.clock, job.steps)

    def _stopping(self, job: Job, event: Event) -> None:
        lease = self._open.get(job.uuid)
        if lease is not None:
            lease.told = event.clock if lease.told is None else lease.told
            self._free(lease, event.clock)

    def _ended(self, job: Job, event: Event) -> None:
        lease = self._open.pop(job.uuid, None)
        if lease is None:
            return
        self.leases.append(lease.end(event.clock, job.steps))
        if lease.told is None:
            self._free(lease, lease.finish)
        speeds = self.speeds[job.id]
        steps, seconds = speeds.get(lease.placed.way, (0.0, 0.0))
        trained = steps + event.get("trained_steps", 0.0), seconds + event.get("trained_seconds", 0.0)
        speeds[lease.placed.way] = trained
        if self._draining:
            self._note_capacity(event.clock)

    # -- trace, throughputs and results in the form that simulations have them -----------------------------------------

    @property
    def job_types(self) -> list[str]:
        """Of each job; one that names none has one of its own."""
        return [job.job_type or f"job {job.id}" for job in self.book.by_id]

    @cached_property
    def trace(self) -> Trace:
        """The jobs as they were submitted, with the steps that they did where they did not complete.

        Of a job that reports no steps, a step is a second that it ran.
        """
        jobs, since = self.book.by_id, self.since
        same = ("entity", "user", "working_directory")
        return Trace(
            self.job_types,
            self.scale_factor,
            [_steps(job) for job in jobs],
            [max(job.submitted_at - since, 0.0) for job in jobs],
            priority_weight=[job.weight for job in jobs],
            deadline=[np.nan if job.deadline is None else job.deadline - since for job in jobs],
            command=[shlex.join(job.command) for job in jobs],
            source="recorded run",
            **{name: [getattr(job, name) for job in jobs] for name in same},
        )

    @cached_property
    def table(self) -> ThroughputTable:
        """Throughputs by job type: the median over its jobs where they were measured, else what was believed."""
        accelerators = self.cluster.accelerators
        knowledge = Knowledge(accelerators, self.known)
        measured: dict[tuple[str, int], dict[tuple[str, int], list[float]]] = {}
        for job, job_type, own in zip(self.book.by_id, self.job_types, self.scale_factor, strict=True):
            of_type = measured.setdefault((job_type, own), {})
            for way, rate in self._rates_of(job).items():
                of_type.setdefault(way, []).append(rate)
        figures: dict[tuple[str, str, int], float] = {}
        for (job_type, own), of_type in measured.items():
            medians = {way: float(np.median(rates)) for way, rates in of_type.items()}
            for (name, gpus), rate in knowledge.believed(job_type, own, medians).items():
                if (name, gpus) in medians or (name, job_type, gpus) not in figures:
                    figures[name, job_type, gpus] = rate
        builder = TableBuilder()
        for name in accelerators:
            builder.accelerator(name)
        for (name, job_type, gpus), rate in figures.items():
            builder.add_isolated(name, (job_type, gpus), rate)
        return ThroughputTable(*builder.figures(), "throughputs of a recorded run")

    def _rates_of(self, job: Job) -> Mapping[tuple[str, int], float]:
        """Steps/s of a job by (accelerator type, GPUs) as far as they were measured."""
        speeds = self.speeds[job.id]
        if not job.steps:
            return dict.fromkeys(speeds, 1.0)
        return job.measured | {way: steps / seconds for way, (steps, seconds) in speeds.items() if steps and seconds}

    @cached_property
    def restart_seconds(self) -> float:
        """What a start costs on average: time from when the GPUs were meant for a job until they were to be free
        again, less the time that its steps take; 0 where nothing was measured.
        """
        lost = [seconds for lease in self.leases if (seconds := self._lost(lease)) is not None]
        return float(np.mean(lost)) if lost else 0.0

    def _lost(self, lease: Lease) -> float | None:
        rate = self._rates_of(self.book.by_id[lease.job]).get(lease.placed.way)
        if rate is None or lease.steps <= 0:
            return None
        end = lease.finish if lease.told is None else lease.told
        return max(end - lease.due - lease.steps / rate, 0.0)

    @cached_property
    def record(self) -> RunRecord:
        """Leases as rows, as in a simulation that decides at events."""
        jobs, by_id, leases = JobTable.from_trace(self.trace, self.table, self.cluster), self.book.by_id, self.leases
        through = np.array([np.nan if job.finished_at is None else job.finished_at - self.since for job in by_id])
        outcome = np.array([_OUTCOMES.get(job.state, OPEN) for job in by_id], dtype=np.int64)
        jobs.register("outcome", OPEN)
        jobs.register("leave_time", np.nan)
        jobs.columns |= {"outcome": outcome, "leave_time": through}
        jobs.completion_time = np.where(outcome == COMPLETED, through, np.nan)
        jobs.steps_done = np.array([min(job.steps, _steps(job)) for job in by_id])
        types = self.cluster.accelerators
        rows = Assignment.of(
            [lease.job for lease in leases],
            [types.index(lease.placed.pool) for lease in leases],
            [len(lease.placed.gpus) for lease in leases],
        )
        outcomes = lease_outcomes(
            rows.take,
            np.array([job.submitted_at - self.since for job in by_id]),
            through[~np.isnan(through)],
            np.array([lease.start - self.since for lease in leases]),
            np.array([lease.finish - self.since for lease in leases]),
            np.array([lease.steps for lease in leases]),
            rows.gpus.astype(np.float64),
            [self.hardware.numbers(lease.placed) or () for lease in leases],
        )
        # of nodes that were up and not drained, and those that jobs still had on drained ones
        capacity = [(at - self.since, [gpus.get(name, 0) for name in types]) for at, gpus in self._capacity]
        return RunRecord(jobs, self.cluster, list(outcomes), capacity=capacity)

    def result(self, settings: Mapping[str, Any]) -> SimulationResult:
        """The run with the `settings` that it had, as a simulation leaves it behind."""
        return SimulationResult(
            policy=self.book.policy,
            settings=dict(settings),
            policy_calls=self.decisions,
            policy_seconds=self.policy_seconds,
            wall_seconds=self.until - self.since,
            record=self.record,
        )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What a service runs with otherwise than before, in words."""
    if not before:
        return ""
    told = [f"{before['policy']} -> {after['policy']}"] if before["policy"] != after["policy"] else []
    # another policy has other settings of its own
    for group in ("settings",) if told else ("settings", "policy_settings"):
        one, other = before.get(group, {}), after.get(group, {})
        told += [f"{n} {one.get(n)} -> {other.get(n)}" for n in {**one, **other} if one.get(n) != other.get(n)]
    return ", ".join(told + ["entities"] * (before.get("entities") != after.get("entities")))


def _steps(job: Job) -> float:
    """Steps of a job: those that it did, if it is through; at least one."""
    if job.finished_at is None and job.total_steps:
        return job.total_steps
    return max(job.steps or job.run_seconds, 1.0)


# ----------------------------------------------------------------------------------------------------------------------
# A recorded run beside a simulation of the same jobs: the error of each figure.
# ----------------------------------------------------------------------------------------------------------------------


FIGURES = ("average_jct", "median_jct", "makespan", "utilization", "preemptions")
"""Of the summaries."""


def preset_of(run: RecordedRun) -> Preset:
    """The settings with which a service ran, as its journal says; with what a start cost it on average."""
    chosen = preset_of_settings(run.run.get("settings", {}))
    return chosen.replace(restart_penalty_seconds=run.restart_seconds, restart_when_moved=True, restart_delays=True)


def simulated(run: RecordedRun, chosen: Preset) -> SimulationResult:
    """The jobs of a recorded run under the same policy, in a world where all goes as `chosen` says."""
    known = settings_of(run.book.policy)
    own = {name: value for name, value in run.run.get("policy_settings", {}).items() if name in known}
    policy, trace, cluster = get_policy(run.book.policy, **own), run.trace, run.cluster
    # a service knows how fast jobs are, and nothing of their epochs, which a table would tell by job type
    whole = policy.needs & (Need.COLOCATION | Need.CONFIGURATIONS)
    rates = run.table if whole else run.table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    seed, entities = int(run.run.get("seed", 0)), run.run.get("entities")
    return simulate(trace, cluster, policy, rates, preset=chosen, seed=seed, entities=entities)


@dataclass(frozen=True)
class Caveat:
    """Why some of a comparison means nothing.

    Attributes
    ----------
    words : for people. figures : that are not to be compared; "jct" for completion times job by job.
    """

    words: str
    figures: tuple[str, ...]


def caveats(run: RecordedRun) -> list[Caveat]:
    """What a simulation of a recorded run cannot have as it was."""
    found = []
    if run.changes:
        listed = "; ".join(f"after {clock - run.since:.0f} s {words}" for clock, words in run.changes)
        words = f"What the service ran with changed while jobs were there: {listed}. The simulation has the last of it"
        found.append(Caveat(f"{words} all the time.", (*FIGURES, "jct")))
    if run.capacity_changed:
        words = "GPUs came or went while jobs were there. The simulation has all that there ever were, all the time."
        found.append(Caveat(words, (*FIGURES, "jct")))
    unfinished = len(run.book.active)
    if unfinished:
        words = f"{unfinished} of {len(run.book.by_id)} jobs are not through. The simulation carries them to their end"
        found.append(Caveat(f"{words}.", ("makespan", "utilization", "preemptions")))
    return found


def compared(real: SimulationResult, other: SimulationResult, caveats: Sequence[Caveat] = ()) -> dict[str, Any]:
    """Figures of both runs, and completion times job by job, each with the error of the simulation.

    Average and median are those of the jobs that complete in both. Errors are relative, null where the real figure is
    0, where one of the two is absent, or where a caveat says that they mean nothing; times in seconds.
    """
    one, two = dict(real.summary()), dict(other.summary())
    spoiled = {name for caveat in caveats for name in caveat.figures}
    pairs = [
        (_known(seen), _known(expected))
        for seen, expected in zip(real.jobs["jct"].tolist(), other.jobs["jct"].tolist(), strict=True)
    ]
    jobs = [{"job_id": number} | _beside(*pair, "jct" in spoiled) for number, pair in enumerate(pairs)]
    errors = [abs(job["error"]) for job in jobs if job["error"] is not None]
    both = [pair for pair in pairs if None not in pair]
    for figures, seconds in zip((one, two), zip(*both, strict=True) if both else ((), ()), strict=True):
        figures["average_jct"], figures["median_jct"] = (mean(seconds), median(seconds)) if both else (None, None)
    return {
        "policy": real.policy,
        "caveats": [caveat.words for caveat in caveats],
        "figures": [{"figure": name} | _beside(one[name], two[name], name in spoiled) for name in FIGURES],
        "jobs_that_complete_in_both": len(both),
        "mean_absolute_error_of_jct": sum(sorted(errors)) / len(errors) if errors else None,
        "largest_absolute_error_of_jct": max(errors, default=None),
        "restart_seconds": other.settings.get("restart_penalty_seconds"),
        "jobs": jobs,
    }


def _known(seconds: float) -> float | None:
    return None if seconds != seconds else float(seconds)


def _beside(real: float | None, expected: float | None, spoiled: bool) -> dict[str, Any]:
    """A figure of both runs, and its error."""
    error = None if spoiled or not real or expected is None else (expected - real) / real
    return {"real": real, "simulated": expected, "error": error}
