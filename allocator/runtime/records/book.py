"""The book of jobs: what the journal says of each of them.

    queued -> starting -> running -> stopping -> queued         its lease ended, its node was lost, or it is retried
                                              -> completed | failed | cancelled
    queued -> rejected | cancelled

`Book.apply` takes one event after the other, when it is written and when the journal is read again; so a service that
was killed comes back with the same book. The kinds of events, with their data:

    submitted       all that `Job` has of a submission
    starting        epoch, places, pool              an order to start is about to be given
    running         -                                the cluster runs it
    stopping        reason, then, steps              it is told to end; steps of one that does not report
    progress        steps, saved_steps, saved_at, run_seconds
    ended           outcome, reason, code, signal    "yielded", "completed", "failed" or "lost"; and progress,
                                                     trained_steps and trained_seconds, or kept_steps and whether they
                                                     were posted; late_seconds where one with a deadline completed
    resized         gpus, batch_size, job_type       what the job asked for, and what it is in the table then
    found           epoch                            a start that the journal has lost
    rejected, cancelled, gave_up, timed_out, lingers   reason
    measured        pool, gpus, rate                 steps/s, moving average
    node            name, drained                    a node was drained or resumed
    options, policy, service, cluster, run           what the service was told, and what it runs with
    stopped         -                                it ended in order

Each check of a field of a submission returns the value, or says what was expected.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

from allocator.conversion import Range, Reads, declared_kinds
from allocator.runtime.adapters.base import NOWHERE, Node, Placed
from allocator.runtime.records.journal import Event
from throughputs import InputError
from throughputs.limits import AMOUNT

_LONGEST_TEXT = 1 << 16
_MOST_ARGUMENTS = 4096


def checked(name: str, value: Any, good: object, expected: str) -> Any:
    """The value of a field of a request, where it is as `expected`."""
    if not good:
        raise InputError("request", field=name, found=value, expected=expected)
    return value


def _text(value: Any, name: str) -> str:
    """Text that a program can be given; bytes that are no UTF-8 come as the surrogates that Python has for them."""
    try:
        plain = isinstance(value, str) and len(os.fsencode(value)) <= _LONGEST_TEXT and "\0" not in value
    except UnicodeEncodeError:
        plain = False
    return str(checked(name, value, plain, f"text of at most {_LONGEST_TEXT} bytes"))


def _line(value: Any, name: str, *_: object) -> str:
    """Text for people, on one line."""
    plain = all(unicodedata.category(character) != "Cc" for character in _text(value, name))
    return str(checked(name, value, plain, "one line, without control characters"))


def _command(value: Any, name: str, *_: object) -> list[str]:
    words = isinstance(value, list) and 1 <= len(value) <= _MOST_ARGUMENTS and value[0] != ""
    return [_text(word, name) for word in checked(name, value, words, "a list of arguments, the program first")]


def _folder(value: Any, name: str, *_: object) -> str:
    return str(checked(name, value, os.path.isabs(_text(value, name)), "an absolute path"))


def _environment(value: Any, name: str, *_: object) -> dict[str, str]:
    for key, text in checked(name, value, isinstance(value, dict), "variables by name").items():
        _text(checked(name, key, key and "=" not in key, "names of variables"), name)
        _text(text, f"{name} {key}")
    return dict(value)


def _names(value: Any, name: str, *_: object) -> list[str]:
    good = isinstance(value, list) and len(value) <= _MOST_ARGUMENTS
    return [_line(one, name) for one in checked(name, value, good, "a list of names")]


Command = Annotated[tuple[str, ...], Reads(_command)]
Folder = Annotated[str, Reads(_folder)]
Environment = Annotated[dict[str, str], Reads(_environment)]
Line = Annotated[str, Reads(_line)]


QUEUED, STARTING, RUNNING, STOPPING = "queued", "starting", "running", "stopping"
COMPLETED, FAILED, CANCELLED, REJECTED = "completed", "failed", "cancelled", "rejected"
FIRST_POLICY = "fifo_perf"
"""Of a service that was told none."""

LOST = "lost"
"""How a start came out that the job did not end: no state of a job."""

HOLDS_GPUS = frozenset({STARTING, RUNNING, STOPPING})
ACTIVE = frozenset({QUEUED}) | HOLDS_GPUS
FINAL = frozenset({COMPLETED, FAILED, CANCELLED, REJECTED})
TIMED_OUT = "timed_out"
LEAVING = {"rejected": REJECTED, "cancelled": CANCELLED, "gave_up": FAILED, TIMED_OUT: FAILED}
"""Events with which jobs are through that have not completed, and as what."""


@dataclass
class Job:
    """One job.

    Attributes
    ----------
    id : its number, in the order of submission, from 0; what users name it by.
    uuid : what clusters, leases and folders name it by.
    command, working_directory, environment : how it is started.
    name, user : for people.
    gpus : of its gang.
    job_type : in the throughput table, "" where it has none.
    total_steps : 0 where not known; then `duration` (seconds) says how long it is expected to run, 0: nor that.
    time_limit : seconds that it may run in all its leases together, 0 without.
    accelerators : types that it runs on, () for all.
    after : numbers of jobs that have to complete before it starts. blocked : whether one of them has not yet.
    weight : priority weight.
    deadline : seconds on the clock, None without. entity : it belongs to, "" for none.
    one_process_per_gpu : the service starts the ranks.
    retries : starts after one that ended with an error, at most; None: as many as the service says.
    submitted_at, started_at, finished_at : seconds on the clock; started for the first time.
    state, reason : where it is, and why, for people.
    epoch : number of its last start.
    placed : on the GPUs that it holds.
    since : when the present state began, seconds on the clock.
    steps : done so far, those not saved included.
    reports : whether its trainer has told steps, in whatever start; otherwise they are estimated from the time it ran.
    unsaved_stops : how often it made room, as long as it has not told any.
    saved_steps, saved_at : of the last checkpoint (seconds since 1970).
    queued_seconds : that it waited, before the present state.
    run_seconds, gpu_seconds : that it ran, in leases that are over; one that was told to end runs until it has ended.
    failures : starts that ended with an error.
    lost : starts in a row of which nobody knows the end, as with their node, or that the cluster refused.
    fruitless : leases in a row that ended without a newly saved step.
    start_seconds, save_seconds : what its last start took before the first step, and its last checkpoint.
    batch_size : that it asked for.
    measured : steps/s by (type, GPUs), moving averages.
    code, signal : how its last process ended. outcome : of its last start, "" before the first has ended.
    then : what becomes of it once it has ended that was told to: "" (it waits again), or the kind of an event.

    Options
    -------
    name
        For people.
    gpus
        GPUs of its gang; 1 if omitted.
    job_type : --type NAME
        Job type in the throughput table.
    total_steps : --steps COUNT
        Training steps in all, if known.
    weight
        Priority weight, 1 if omitted.
    entity : NAME
        Entity that it belongs to.
    one_process_per_gpu : --process-per-gpu
        Start it once for each GPU, with the variables of torchrun.
    retries
        Reruns if it ends with an error; as the service says (none) if omitted.
    """

    id: int
    uuid: str
    command: Command
    working_directory: Folder = "."
    environment: Environment = field(default_factory=dict)
    name: Line = ""
    user: Line = ""
    gpus: Annotated[int, Range(1, 1000000)] = 1
    job_type: Line = ""
    total_steps: Annotated[float, AMOUNT] = 0.0
    duration: Annotated[float, AMOUNT] = 0.0
    time_limit: Annotated[float, AMOUNT] = 0.0
    accelerators: Annotated[tuple[str, ...], Reads(_names)] = ()
    after: tuple[int, ...] = ()
    weight: Annotated[float, AMOUNT] = 1.0
    deadline: Annotated[float | None, AMOUNT] = None
    entity: Line = ""
    one_process_per_gpu: bool = False
    retries: Annotated[int | None, Range()] = None
    submitted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    state: str = QUEUED
    reason: str = ""
    epoch: int = 0
    placed: Placed = NOWHERE
    since: float = 0.0
    steps: float = 0.0
    reports: bool = False
    unsaved_stops: int = 0
    saved_steps: float = 0.0
    saved_at: float = 0.0
    queued_seconds: float = 0.0
    run_seconds: float = 0.0
    gpu_seconds: float = 0.0
    failures: int = 0
    lost: int = 0
    fruitless: int = 0
    start_seconds: float = 0.0
    save_seconds: float = 0.0
    batch_size: int | None = None
    measured: dict[tuple[str, int], float] = field(default_factory=dict)
    code: int | None = None
    signal: int = 0
    outcome: str = ""
    then: str = ""
    blocked: bool = False

    @classmethod
    def submitted(cls, number: int, uuid: str, told: Mapping[str, Any]) -> Job:
        """The job that the data of an event ``submitted`` make."""
        known: dict[str, Any] = {name: value for name, value in told.items() if name in SUBMITTED}
        lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return cls(number, uuid, **known | lists)

    def has_run(self, clock: float) -> float:
        """Seconds that it has run in all, at `clock` seconds."""
        return self.run_seconds + (clock - self.since if self.state == RUNNING else 0.0)

    def fruitless_after(self, end: Mapping[str, Any]) -> int:
        """Leases in a row without a newly saved step once the data of an event ``ended`` are taken in.

        Of a trainer that does not report nobody knows what it saves: its leases do not count.
        """
        if self.saves_more(end):
            return 0
        return self.fruitless + int(end["outcome"] == "yielded" and "saved_steps" in end)

    def lost_after(self, end: Mapping[str, Any]) -> int:
        """Starts in a row that were lost, without a newly saved step, once those data are taken in."""
        if end["outcome"] != LOST:
            return 0
        return 1 if self.saves_more(end) else self.lost + 1

    def met(self, clock: float) -> bool | None:
        """Whether its deadline was kept; at `clock` seconds None where it may yet be, or where there is none.

        A job that fails or is rejected has missed its own; of one that was cancelled nobody asks any more.
        """
        if self.deadline is None or self.state == CANCELLED:
            return None
        if self.state == COMPLETED:
            return self.finished_at is not None and self.finished_at <= self.deadline
        return None if self.state in ACTIVE and clock <= self.deadline else False

    def saves_more(self, told: Mapping[str, Any]) -> bool:
        """Whether more steps are saved now. Others are done again and again: they are no progress."""
        return bool(told.get("saved_steps", 0.0) > self.saved_steps)

    @property
    def start_cost(self) -> float:
        """Seconds of its last start, and of the checkpoint before it; 0: not known."""
        return self.start_seconds + self.save_seconds

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(self.epoch - 1, 0)

    @property
    def held_gpus(self) -> int:
        """GPUs that it holds now."""
        return len(self.placed.gpus)


PROGRESS = ("steps", "saved_steps", "saved_at", "start_seconds", "save_seconds")
"""What a trainer reports, and the book keeps."""

_KINDS = declared_kinds(Job)
SUBMITTED = dict(islice(_KINDS.items(), list(_KINDS).index("command"), list(_KINDS).index("submitted_at")))
"""What a submission says of a job."""


class Book:
    """All jobs, and what else the journal tells.

    Attributes
    ----------
    jobs : by UUID, in the order of submission. by_id : the same by number.
    active : the jobs that are not through. holding : those of them that hold GPUs.
    followers : those that were to start after a job, by its number. hopeless : those that wait for one in vain.
    drained : nodes that get no jobs.
    counts : of jobs by state. deadlines : how many of the jobs that are through have "met" and "missed" theirs.
    policy : name of the one in force.
    adapter : name of the last one, "" before the first.
    nodes : as they were last seen, by name.
    ahead : seconds that the clock of the last service is ahead of the monotonic one, by the boot of its machine.
    clock, at : of the last event. stopped : whether that was the end of a service, in order.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.by_id: list[Job] = []
        self.active: dict[str, Job] = {}
        self.holding: dict[str, Job] = {}
        self.followers: dict[int, list[Job]] = {}
        self.hopeless: dict[str, Job] = {}
        self.drained: set[str] = set()
        self.counts = dict.fromkeys(sorted(ACTIVE | FINAL), 0)
        self.deadlines = {"met": 0, "missed": 0}
        self.policy = FIRST_POLICY
        self.adapter = ""
        self.nodes: dict[str, Node] = {}
        self.ahead: dict[str, float] = {}
        self.clock = self.at = 0.0
        self.stopped = False

    def apply(self, event: Event) -> None:
        """What an event changes."""
        self.stopped = event.kind == "stopped"
        if event.kind != "decision":  # which holds from its clock on, mostly the end of a round that is still to come
            self.clock, self.at = max(self.clock, event.clock), event.at
        if event.job:
            job = self._added(event) if event.kind == "submitted" else self.jobs[event.job]
            if event.kind in LEAVING:
                self._leave(job, LEAVING[event.kind], event)
            elif change := getattr(self, f"_{event.kind}", None):  # other kinds are for people
                change(job, event)
        elif event.kind == "node":
            (self.drained.add if event["drained"] else self.drained.discard)(event["name"])
        elif event.kind == "policy":
            self.policy = str(event["name"])
        elif event.kind == "service":
            self.adapter = event.get("adapter", "")
            self.ahead = event.get("ahead", {})
            self.nodes = _nodes(event)
        elif event.kind == "cluster":
            self.nodes.update(_nodes(event))

    def _added(self, event: Event) -> Job:
        job = Job.submitted(len(self.by_id), event.job, event.data)
        job.submitted_at = job.since = event.clock
        self.jobs[job.uuid] = self.active[job.uuid] = job
        self.by_id.append(job)
        self.counts[job.state] += 1
        for number in job.after:
            self.followers.setdefault(number, []).append(job)
        self._see_before(job)
        return job

    def before(self, job: Job) -> list[Job]:
        """The jobs that have to complete before one starts and have not."""
        return [one for number in job.after if (one := self.by_id[number]).state != COMPLETED]

    def _see_before(self, job: Job) -> None:
        """Whether a job still waits for others, and in vain."""
        before = self.before(job)
        job.blocked = bool(before)
        if any(one.state in FINAL for one in before) and job.state in ACTIVE:
            self.hopeless[job.uuid] = job

    def _enter(self, job: Job, state: str, event: Event) -> None:
        self.counts[job.state] -= 1
        self.counts[state] += 1
        job.queued_seconds += max(event.clock - job.since, 0.0) if job.state == QUEUED else 0.0
        job.state, job.since, job.reason = state, event.clock, event.get("reason", "")

    def _starting(self, job: Job, event: Event) -> None:
        self._enter(job, STARTING, event)
        self.holding[job.uuid] = job
        job.epoch = event["epoch"]
        job.placed = Placed(event["pool"], {node: tuple(at) for node, at in event["places"].items()})
        if job.started_at is None:
            job.started_at = event.clock

    def _running(self, job: Job, event: Event) -> None:
        self._enter(job, RUNNING, event)

    def _stopping(self, job: Job, event: Event) -> None:
        since = job.since
        self._enter(job, STOPPING, event)
        job.steps = event.get("steps", job.steps)
        job.then = event.get("then", "")
        job.run_seconds += event.clock - since
        job.gpu_seconds += (event.clock - since) * job.held_gpus

    def _progress(self, job: Job, event: Event) -> None:
        told: Mapping[str, Any] = event.data
        if job.saves_more(told):
            job.fruitless = 0
        for name in told.keys() & set(PROGRESS):
            setattr(job, name, told[name])
        if "saved_steps" in told or told.get("posted"):
            job.reports, job.unsaved_stops = True, 0

    def _measured(self, job: Job, event: Event) -> None:
        job.measured[event["pool"], event["gpus"]] = event["rate"]

    def _resized(self, job: Job, event: Event) -> None:
        job.gpus = event.get("gpus") or job.gpus
        job.job_type = event.get("job_type") or job.job_type
        batch_size = event.get("batch_size") or job.batch_size
        if batch_size != job.batch_size:
            # a step is another one now
            job.batch_size, job.measured = batch_size, {}

    def _found(self, job: Job, event: Event) -> None:
        job.epoch = max(job.epoch, event["epoch"])

    def _ended(self, job: Job, event: Event) -> None:
        fruitless, lost = job.fruitless_after(event.data), job.lost_after(event.data)
        self._progress(job, event)
        job.run_seconds += max(event.clock - job.since, 0.0)
        job.gpu_seconds += max(event.clock - job.since, 0.0) * job.held_gpus
        job.code, job.signal = event.get("code"), event.get("signal", 0)
        outcome = job.outcome = event["outcome"]
        if outcome == COMPLETED:
            if "steps" not in event.data:
                job.steps = max(job.steps, job.total_steps)
            self._leave(job, COMPLETED, event)
            return
        # what no checkpoint holds is lost
        job.steps = event.get("kept_steps", job.saved_steps)
        job.unsaved_stops += outcome == "yielded" and not job.reports
        job.failures += outcome == FAILED
        job.fruitless, job.lost = fruitless, lost
        self._enter(job, QUEUED, event)
        self._release(job)

    def _release(self, job: Job) -> None:
        job.placed, job.then = NOWHERE, ""
        self.holding.pop(job.uuid, None)

    def _leave(self, job: Job, state: str, event: Event) -> None:
        self._enter(job, state, event)
        job.finished_at = event.clock
        met = job.met(event.clock)
        if met is not None:
            self.deadlines["met" if met else "missed"] += 1
        self._release(job)
        self.active.pop(job.uuid, None)
        self.hopeless.pop(job.uuid, None)
        for other in self.followers.get(job.id, ()):
            self._see_before(other)


def _nodes(event: Event) -> dict[str, Node]:
    return {told["name"]: Node(**told | {"taken": tuple(told.get("taken", ()))}) for told in event.get("nodes", ())}
