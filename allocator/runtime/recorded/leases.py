"""The journal of a service as leases: which job held which GPUs from when to when, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from throughputs import InputError


@dataclass
class Lease:
    """One start of a job.

    Attributes
    ----------
    job : number of the job. pool : accelerator type. gpus : (node, position) of each of its GPUs.
    due : from when on the GPUs were meant for it: when the decision was to hold and whoever held them was told to end,
        seconds on the clock of the service.
    start : when it held them. told : when it was told to end, None: it never was. finish : when it had ended.
    steps : that were kept.
    partner : number of the job that shared its GPUs when it began, -1 for none.
    """

    job: int
    pool: str
    gpus: tuple[tuple[str, int], ...]
    due: float
    start: float
    steps_before: float
    told: float | None = None
    finish: float = 0.0
    steps: float = 0.0
    partner: int = -1


@dataclass
class Leases:
    """What the journal says.

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

    book: Book
    leases: list[Lease]
    scale_factor: list[int]
    speeds: list[dict[tuple[str, int], tuple[float, float]]]
    hardware: Hardware
    run: dict[str, Any]
    changes: tuple[tuple[float, str], ...] = ()
    capacity_changed: bool = False
    capacity: tuple[tuple[float, dict[str, int]], ...] = ()
    decisions: int = 0
    policy_seconds: float = 0.0
    since: float = 0.0
    until: float = 0.0

    @classmethod
    def of_events(cls, events: Iterable[Event]) -> Leases:
        """From the events of a journal."""
        reader = _Reader()
        for event in events:
            reader.take(event)
        return reader.result()


@dataclass
class _Reader:
    book: Book = field(default_factory=Book)
    done: list[Lease] = field(default_factory=list)
    open: dict[str, Lease] = field(default_factory=dict)
    scale_factor: list[int] = field(default_factory=list)
    speeds: list[dict[tuple[str, int], tuple[float, float]]] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    freed: dict[tuple[str, int], float] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    changes: list[tuple[float, str]] = field(default_factory=list)
    capacity_changed: bool = False
    capacity: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    draining: bool = False
    decided: list[float] = field(default_factory=list)
    decisions: int = 0
    policy_seconds: float = 0.0
    since: float | None = None

    def take(self, event: Event) -> None:
        held = self.book.jobs.get(event.job) if event.job else None
        places = {} if held is None else dict(held.places)
        pool, gpus = ("", 0) if held is None else (held.pool, held.held_gpus)
        if not event.job:
            before = dict(self.book.nodes), set(self.book.drained)
            self.book.apply(event)
            self.capacity_changed |= bool(self.book.active) and before != (self.book.nodes, self.book.drained)
            self._note_capacity(event.clock)
        else:
            self.book.apply(event)
            job = self.book.jobs[event.job]
            getattr(self, f"_{event.kind}", _pass_over)(job, event)
            if event.kind == "ended" and places:
                self._measure(job, (pool, gpus), event)
                if self.draining:
                    self._note_capacity(event.clock)
        if event.kind in ("service", "cluster"):
            for node in event.get("nodes", ()):
                self.nodes[node["name"]] = Node(node["name"], node["accelerator"], node["gpus"])
        elif event.kind == "run":
            run = dict(event.data or {})
            if self.book.active and (changed := _changed(self.run, run)):
                self.changes.append((event.clock, changed))
            self.run = run
        elif event.kind == "decision":
            self.decided.append(event.clock)
            self.decisions += bool(event.get("asked"))
            self.policy_seconds += float(event.get("seconds", 0.0))

    def _note_capacity(self, clock: float) -> None:
        """How many GPUs may be used from now on; on nodes that are drained those that jobs still have."""
        held = {gpu for lease in self.open.values() for gpu in lease.gpus}
        gpus: dict[str, int] = {}
        self.draining = False
        for node in self.book.nodes.values():
            drained = node.up and (node.drained or node.name in self.book.drained)
            self.draining |= drained
            left = sum((node.name, at) in held for at in range(node.gpus)) if drained else node.gpus * node.up
            gpus[node.accelerator] = gpus.get(node.accelerator, 0) + left
        if gpus and (not self.capacity or self.capacity[-1][1] != gpus):
            self.capacity.append((clock, gpus))

    def _submitted(self, job: Job, event: Event) -> None:
        self.scale_factor.append(job.gpus)
        self.speeds.append({})
        self.since = event.clock if self.since is None else self.since

    def _starting(self, job: Job, event: Event) -> None:
        gpus = tuple((node, position) for node, positions in job.places.items() for position in positions)
        # a decision that was made for later, and holds early, does not count
        decided = next((clock for clock in reversed(self.decided) if clock <= event.clock), 0.0)
        due = max(decided, job.submitted_at, *(self.freed.get(gpu, 0.0) for gpu in gpus))
        lease = Lease(job.id, job.pool, gpus, min(due, event.clock), event.clock, job.steps)
        for other in self.open.values():
            if set(other.gpus) == set(gpus):
                lease.partner, other.partner = other.job, job.id
        self.open[job.uuid] = lease

    def _stopping(self, job: Job, event: Event) -> None:
        lease = self.open.get(job.uuid)
        if lease is not None:
            lease.told = event.clock if lease.told is None else lease.told
            self.freed.update(dict.fromkeys(lease.gpus, event.clock))

    def _ended(self, job: Job, event: Event) -> None:
        lease = self.open.pop(job.uuid, None)
        if lease is not None:
            lease.finish, lease.steps = max(event.clock, lease.start), max(job.steps - lease.steps_before, 0.0)
            if lease.told is None:
                self.freed.update(dict.fromkeys(lease.gpus, lease.finish))
            self.done.append(lease)

    def _measure(self, job: Job, way: tuple[str, int], event: Event) -> None:
        steps, seconds = event.get("trained_steps", 0.0), event.get("trained_seconds", 0.0)
        before = self.speeds[job.id].get(way, (0.0, 0.0))
        self.speeds[job.id][way] = before[0] + steps, before[1] + seconds

    def result(self) -> Leases:
        if not self.book.by_id:
            raise InputError("journal", found="no jobs", expected="a service that jobs were submitted to")
        until = self.book.clock
        for uuid, lease in self.open.items():
            lease.finish, lease.steps = until, max(self.book.jobs[uuid].steps - lease.steps_before, 0.0)
        leases = sorted([*self.done, *self.open.values()], key=lambda lease: (lease.finish, lease.start, lease.job))
        return Leases(
            self.book,
            leases,
            self.scale_factor,
            self.speeds,
            Hardware(list(self.nodes.values())),
            self.run,
            tuple(self.changes),
            self.capacity_changed,
            tuple(self.capacity),
            self.decisions,
            self.policy_seconds,
            self.since or 0.0,
            until,
        )


def _pass_over(job: Job, event: Event) -> None:
    """Other kinds say nothing of leases."""


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
