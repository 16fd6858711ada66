"""The journal of a service as leases: which job held which GPUs from when to when, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware, Places, gpus_of
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from throughputs import InputError


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
            getattr(self, f"_{event.kind}", _pass_over)(book.jobs[event.job], event)
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
