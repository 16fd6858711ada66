"""What a service has done, by its journal: as leases, as the results of a simulation are, and beside a simulation."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.presets import Preset, preset
from allocator.protocol import Need
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.recorded import lease_outcomes
from allocator.registry import get_policy, settings_of
from allocator.results.observers import StretchOutcome
from allocator.results.outcomes import COMPLETED, CUT_OFF, DROPPED, OPEN, REJECTED
from allocator.results.record import RunRecord
from allocator.results.result import SimulationResult
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware, Places, gpus_of
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from allocator.simulator.engine import simulate
from allocator.simulator.truth import Truth
from throughputs import InputError, ThroughputTable, Trace
from throughputs.tables.figures import TableBuilder

if TYPE_CHECKING:
    import pandas as pd


# ----------------------------------------------------------------------------------------------------------------------
# The journal of a service as leases: which job held which GPUs from when to when, and what came of it.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Lease:
    """One start of a job.

    Attributes
    ----------
    job : number of the job. pool : accelerator type. places : its GPUs.
    due : from when on the GPUs were meant for it: when the decision was to hold and whoever held them was told to end,
        seconds on the clock of the service.
    start : when it held them. told : when it was told to end, None: it never was. finish : when it had ended.
    steps : that were kept.
    partner : number of the job that shared its GPUs when it began, -1 for none.
    """

    job: int
    pool: str
    places: Places
    due: float
    start: float
    steps_before: float
    told: float | None = None
    finish: float = 0.0
    steps: float = 0.0
    partner: int = -1

    @property
    def gpus(self) -> int:
        """How many."""
        return sum(map(len, self.places.values()))

    def end(self, clock: float, steps: float) -> Lease:
        """It has ended, and its job has kept so many steps."""
        self.finish, self.steps = max(clock, self.start), max(steps - self.steps_before, 0.0)
        return self


class Leases:
    """What the journal says.

    Parameters
    ----------
    events : of the journal.

    Attributes
    ----------
    book : all jobs as they are at the end.
    leases : in the order of their ends; those that go on end with the journal.
    scale_factor : by job, GPUs that it was submitted with.
    speeds : by job, steps and seconds of training by (accelerator type, GPUs).
    hardware : all nodes that there ever were.
    run : what the service ran with at the end; see `allocator.cli.service.serve`.
    changes : when it began to run with something else while jobs were there, seconds on the clock, and what is other
        than before, in words.
    capacity_changed : whether GPUs came or went, or were drained, while jobs were there.
    capacity : from when on how many GPUs of each type were on nodes that were up and not drained, or still had jobs on
        drained ones; seconds on the clock.
    decisions, policy_seconds : decisions for which the policy was asked, and what they took.
    since, until : clock at the first submission and at the last event, seconds.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.book = Book()
        self.leases: list[Lease] = []
        self.scale_factor: list[int] = []
        self.speeds: list[dict[tuple[str, int], tuple[float, float]]] = []
        self.run: dict[str, Any] = {}
        self.changes: list[tuple[float, str]] = []
        self.capacity_changed = False
        self.capacity: list[tuple[float, dict[str, int]]] = []
        self.decisions, self.policy_seconds = 0, 0.0
        self._open: dict[str, Lease] = {}
        self._nodes: dict[str, Node] = {}
        self._freed: dict[tuple[str, int], float] = {}
        self._draining = False
        self._decided: list[float] = []
        for event in events:
            self._take(event)
        if not self.book.by_id:
            raise InputError("journal", found="no jobs", expected="a service that jobs were submitted to")
        self.since, self.until = self.book.by_id[0].submitted_at, self.book.clock
        self.leases += [lease.end(self.until, self.book.jobs[uuid].steps) for uuid, lease in self._open.items()]
        self.leases.sort(key=lambda lease: (lease.finish, lease.start, lease.job))
        self.hardware = Hardware(list(self._nodes.values()))

    def _take(self, event: Event) -> None:
        book = self.book
        if event.job:
            book.apply(event)
            if note := getattr(self, f"_{event.kind}", None):
                note(book.jobs[event.job], event)
            return
        before = dict(book.nodes), set(book.drained)
        book.apply(event)
        self.capacity_changed |= bool(book.active) and before != (book.nodes, book.drained)
        self._note_capacity(event.clock)
        if event.kind in ("service", "cluster"):
            self._nodes |= {name: replace(node, up=True, drained=False, reason="") for name, node in book.nodes.items()}
        elif event.kind == "run":
            run = dict(event.data or {})
            if book.active and (changed := _changed(self.run, run)):
                self.changes.append((event.clock, changed))
            self.run = run
        elif event.kind == "decision":
            self._decided.append(event.clock)
            self.decisions += bool(event.get("asked"))
            self.policy_seconds += float(event.get("seconds", 0.0))

    def _note_capacity(self, clock: float) -> None:
        """How many GPUs may be used from now on; on nodes that are drained those that jobs still have."""
        held = {gpu for lease in self._open.values() for gpu in gpus_of(lease.places)}
        gpus: dict[str, int] = {}
        self._draining = False
        for node in self.book.nodes.values():
            drained = node.up and (node.drained or node.name in self.book.drained)
            self._draining |= drained
            left = sum((node.name, at) in held for at in range(node.gpus)) if drained else node.gpus * node.up
            gpus[node.accelerator] = gpus.get(node.accelerator, 0) + left
        if gpus and (not self.capacity or self.capacity[-1][1] != gpus):
            self.capacity.append((clock, gpus))

    def _submitted(self, job: Job, event: Event) -> None:  # noqa: ARG002
        self.scale_factor.append(job.gpus)
        self.speeds.append({})

    def _starting(self, job: Job, event: Event) -> None:
        gpus = set(gpus_of(job.places))
        # a decision that was made for later, and holds early, does not count
        decided = next((clock for clock in reversed(self._decided) if clock <= event.clock), 0.0)
        due = max(decided, job.submitted_at, *(self._freed.get(gpu, 0.0) for gpu in gpus))
        lease = Lease(job.id, job.pool, job.places, min(due, event.clock), event.clock, job.steps)
        for other in self._open.values():
            if set(gpus_of(other.places)) == gpus:
                lease.partner, other.partner = other.job, job.id
        self._open[job.uuid] = lease

    def _stopping(self, job: Job, event: Event) -> None:
        lease = self._open.get(job.uuid)
        if lease is not None:
            lease.told = event.clock if lease.told is None else lease.told
            self._freed.update(dict.fromkeys(gpus_of(lease.places), event.clock))

    def _ended(self, job: Job, event: Event) -> None:
        lease = self._open.pop(job.uuid, None)
        if lease is None:
            return
        self.leases.append(lease.end(event.clock, job.steps))
        if lease.told is None:
            self._freed.update(dict.fromkeys(gpus_of(lease.places), lease.finish))
        way, speeds = (lease.pool, lease.gpus), self.speeds[job.id]
        steps, seconds = speeds.get(way, (0.0, 0.0))
        speeds[way] = steps + event.get("trained_steps", 0.0), seconds + event.get("trained_seconds", 0.0)
        if self._draining:
            self._note_capacity(event.clock)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What a service runs with otherwise than before, in words."""
    if not before:
        return ""
    told = [f"{before['policy']} -> {after['policy']}"] if before["policy"] != after["policy"] else []
    # another policy has other settings of its own
    for group in ("settings",) if told else ("settings", "policy_settings"):
        one, other = before.get(group, {}), after.get(group, {})
        told += [
            f"{name} {one.get(name)} -> {other.get(name)}"
            for name in {**one, **other}
            if one.get(name) != other.get(name)
        ]
    return ", ".join(told + ["entities"] * (before.get("entities") != after.get("entities")))


# ----------------------------------------------------------------------------------------------------------------------
# A recorded run: trace, throughputs and results in the form that simulations have them.
# ----------------------------------------------------------------------------------------------------------------------


THROUGHPUTS_FILE = "throughputs.csv"
"""In a state folder: what its service believes of job types before they have run."""

_Floats = NDArray[np.float64]

_OUTCOMES = {"completed": COMPLETED, "cancelled": CUT_OFF, "failed": DROPPED, "rejected": REJECTED}


@dataclass(frozen=True)
class RecordedRun:
    """What a service did, from its first submission on.

    Parameters
    ----------
    told : the journal.
    known : throughputs that the service believed in; None: none. What was measured comes before them.
    """

    told: Leases
    known: ThroughputTable | None = None

    @property
    def cluster(self) -> Cluster:
        """All GPUs that there ever were."""
        return self.told.hardware.cluster

    @property
    def policy(self) -> str:
        """Name of the policy in force at the end."""
        return str((self.told.book.policy or {}).get("name", "fifo_perf"))

    @cached_property
    def job_types(self) -> list[str]:
        """Of each job; one that names none has one of its own."""
        return [job.job_type or f"job {job.id}" for job in self.told.book.by_id]

    @cached_property
    def trace(self) -> Trace:
        """The jobs as they were submitted, with the steps that they did where they did not complete.

        Of a job that reports no steps, a step is a second that it ran.
        """
        jobs, since = self.told.book.by_id, self.told.since
        return Trace(
            self.job_types,
            self.told.scale_factor,
            [_steps(job) for job in jobs],
            [max(job.submitted_at - since, 0.0) for job in jobs],
            priority_weight=[job.weight for job in jobs],
            deadline=[np.nan if job.deadline is None else job.deadline - since for job in jobs],
            entity=[job.entity for job in jobs],
            user=[job.user for job in jobs],
            command=[shlex.join(job.command) for job in jobs],
            working_directory=[job.working_directory for job in jobs],
            source="recorded run",
        )

    @cached_property
    def table(self) -> ThroughputTable:
        """Throughputs by job type: the median over its jobs where they were measured, else what was believed."""
        accelerators = self.cluster.accelerators
        knowledge = Knowledge(accelerators, self.known)
        measured: dict[tuple[str, int], dict[tuple[str, int], list[float]]] = {}
        for job, job_type, own in zip(self.told.book.by_id, self.job_types, self.told.scale_factor, strict=True):
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
        if not job.steps:
            return dict.fromkeys(self.told.speeds[job.id], 1.0)
        speeds = self.told.speeds[job.id].items()
        return dict(job.measured) | {way: steps / seconds for way, (steps, seconds) in speeds if steps and seconds}

    @cached_property
    def restart_seconds(self) -> float:
        """What a start costs on average: time from when the GPUs were meant for a job until they were to be free
        again, less the time that its steps take; 0 where nothing was measured.
        """
        lost = [seconds for lease in self.told.leases if (seconds := self._lost(lease)) is not None]
        return float(np.mean(lost)) if lost else 0.0

    def _lost(self, lease: Lease) -> float | None:
        job = self.told.book.by_id[lease.job]
        rate = self._rates_of(job).get((lease.pool, lease.gpus))
        if rate is None or lease.steps <= 0 or lease.partner >= 0:
            return None
        end = lease.finish if lease.told is None else lease.told
        return max(end - lease.due - lease.steps / rate, 0.0)

    @cached_property
    def record(self) -> RunRecord:
        """Leases as rows, as in a simulation that decides at events."""
        jobs = JobTable.from_trace(self.trace, self.table, self.cluster)
        told = self.told
        states = [job.state for job in told.book.by_id]
        through = [np.nan if job.finished_at is None else job.finished_at - told.since for job in told.book.by_id]
        jobs.register("outcome", OPEN)
        jobs.register("leave_time", np.nan)
        jobs.columns["outcome"] = np.array([_OUTCOMES.get(state, OPEN) for state in states], dtype=np.int64)
        jobs.columns["leave_time"] = np.array(through)
        jobs.completion_time = np.where(jobs.columns["outcome"] == COMPLETED, through, np.nan)
        jobs.steps_done = np.array([min(job.steps, _steps(job)) for job in told.book.by_id])
        return RunRecord(jobs, Truth(jobs.rates, jobs.scale_factor), self.cluster, list(self._outcomes(through)))

    def _outcomes(self, through: Sequence[float]) -> Iterator[StretchOutcome]:
        told, leases, types = self.told, self.told.leases, self.cluster.accelerators
        lefts = np.array(through)

        def rows(ended: slice) -> Assignment:
            some = leases[ended]
            pools = [types.index(lease.pool) for lease in some]
            return Assignment.of(
                [lease.job for lease in some], pools, [lease.gpus for lease in some], [lease.partner for lease in some]
            )

        return lease_outcomes(
            rows,
            np.array([job.submitted_at - told.since for job in told.book.by_id]),
            lefts[~np.isnan(lefts)],
            np.array([lease.start - told.since for lease in leases]),
            np.array([lease.finish - told.since for lease in leases]),
            np.array([lease.steps for lease in leases]),
            np.array([lease.gpus * (0.5 if lease.partner >= 0 else 1.0) for lease in leases]),
            [told.hardware.numbers(lease.places) or () for lease in leases],
        )

    def capacity(self) -> pd.DataFrame:
        """One row per change: time (seconds), and by type the GPUs of nodes that were up and not drained from then."""
        import pandas as pd

        told, names = self.told, self.cluster.accelerators
        rows = {name: [gpus.get(name, 0) for _, gpus in told.capacity] for name in names}
        return pd.DataFrame({"time": [clock - told.since for clock, _ in told.capacity]} | rows)

    def result(self, settings: Mapping[str, Any]) -> SimulationResult:
        """The run with the `settings` that it had, as a simulation leaves it behind."""
        record, told = self.record, self.told
        return SimulationResult(
            policy=self.policy,
            cluster=self.cluster,
            settings=dict(settings),
            makespan=record.makespan,
            utilization=record.utilization,
            policy_calls=told.decisions,
            policy_seconds=told.policy_seconds,
            wall_seconds=told.until - told.since,
            record=record,
        )


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
    told: Mapping[str, Any] = run.told.run.get("settings", {})
    chosen = preset(str(told.get("preset", "default")))
    known = chosen.as_dict()
    own = {name: value for name, value in told.items() if name in known and name not in _NAMES}
    own |= {"restart_penalty_seconds": run.restart_seconds, "restart_when_moved": True, "restart_delays": True}
    return chosen.replace(**{name: tuple(v) if isinstance(v, list) else v for name, v in own.items()})


_NAMES = ("preset", "choice", "fairness")


def simulated(run: RecordedRun, chosen: Preset) -> SimulationResult:
    """The jobs of a recorded run under the same policy, in a world where all goes as `chosen` says."""
    own = {name: value for name, value in _policy_settings(run).items() if name in settings_of(run.policy)}
    policy, trace, cluster = get_policy(run.policy, **own), run.trace, run.cluster
    # a service knows how fast jobs are, and nothing of their epochs, which a table would tell by job type
    whole = policy.needs & (Need.COLOCATION | Need.CONFIGURATIONS)
    rates = run.table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    return simulate(
        trace,
        cluster,
        policy,
        run.table if whole else rates,
        preset=chosen,
        seed=int(run.told.run.get("seed", 0)),
        entities=run.told.run.get("entities"),
    )


def _policy_settings(run: RecordedRun) -> dict[str, Any]:
    told: Mapping[str, Any] = run.told.run.get("policy_settings", {})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}


@dataclass(frozen=True)
class Caveat:
    """Why some of a comparison means nothing.

    Attributes
    ----------
    words : for people. figures : that are not to be compared. jobs : whether completion times job by job are neither.
    """

    words: str
    figures: tuple[str, ...]
    jobs: bool


def caveats(run: RecordedRun) -> list[Caveat]:
    """What a simulation of a recorded run cannot have as it was."""
    told, found = run.told, []
    if told.changes:
        listed = "; ".join(f"after {clock - told.since:.0f} s {words}" for clock, words in told.changes)
        words = f"What the service ran with changed while jobs were there: {listed}. The simulation has the last of it"
        found.append(Caveat(f"{words} all the time.", FIGURES, jobs=True))
    if told.capacity_changed:
        words = "GPUs came or went while jobs were there. The simulation has all that there ever were, all the time."
        found.append(Caveat(words, FIGURES, jobs=True))
    unfinished = len(told.book.active)
    if unfinished:
        words = f"{unfinished} of {len(told.book.by_id)} jobs are not through. The simulation carries them to their end"
        found.append(Caveat(f"{words}.", ("makespan", "utilization", "preemptions"), jobs=False))
    return found


def compared(real: SimulationResult, other: SimulationResult, caveats: Sequence[Caveat] = ()) -> dict[str, Any]:
    """Figures of both runs, and completion times job by job, each with the error of the simulation.

    Average and median are those of the jobs that complete in both. Errors are relative, null where the real figure is
    0, where one of the two is absent, or where a caveat says that they mean nothing; times in seconds.
    """
    one, two = real.summary().to_dict(), other.summary().to_dict()
    spoiled = {name for caveat in caveats for name in caveat.figures}
    no_jobs = any(caveat.jobs for caveat in caveats)
    pairs = [
        (_known(seen), _known(expected))
        for seen, expected in zip(real.jobs["jct"].tolist(), other.jobs["jct"].tolist(), strict=True)
    ]
    jobs = [
        {"job_id": number, "real": seen, "simulated": expected, "error": None if no_jobs else _error(seen, expected)}
        for number, (seen, expected) in enumerate(pairs)
    ]
    errors = sorted(abs(job["error"]) for job in jobs if job["error"] is not None)
    both = [pair for pair in pairs if None not in pair]
    for figures, seconds in zip((one, two), zip(*both, strict=True) if both else ((), ()), strict=True):
        figures["average_jct"], figures["median_jct"] = (mean(seconds), median(seconds)) if both else (None, None)
    return {
        "policy": real.policy,
        "caveats": [caveat.words for caveat in caveats],
        "figures": [
            {
                "figure": name,
                "real": one[name],
                "simulated": two[name],
                "error": None if name in spoiled else _error(one[name], two[name]),
            }
            for name in FIGURES
        ],
        "jobs_that_complete_in_both": len(both),
        "mean_absolute_error_of_jct": sum(errors) / len(errors) if errors else None,
        "largest_absolute_error_of_jct": errors[-1] if errors else None,
        "restart_seconds": other.settings.get("restart_penalty_seconds"),
        "jobs": jobs,
    }


def _known(seconds: float) -> float | None:
    return None if seconds != seconds else float(seconds)


def _error(real: float | None, expected: float | None) -> float | None:
    return None if not real or expected is None else (expected - real) / real
