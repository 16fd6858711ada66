"""The service: keeps what is wanted and what is in step.

    a few times a second:  observe the cluster, read the reports  ->  events, in the journal, then in the book
                           a decision is due?                     ->  the world decides, in a thread of its own
                           what is wanted against what is         ->  orders to the cluster, each in the journal first

Everything is level-triggered: what was ordered and did not happen is ordered again, by the same epoch. A service that
is killed at any point comes back with its journal, sees what runs, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from allocator.runtime.adapters.base import Adapter, AdapterError, Node, Placed, Seen
from allocator.runtime.adapters.node import boot_identity
from allocator.runtime.decisions.deciding import Deciding
from allocator.runtime.decisions.hardware import Hardware, orders
from allocator.runtime.decisions.world import Verdict, World
from allocator.runtime.dispatch import Dispatch
from allocator.runtime.hook import Hook
from allocator.runtime.records.book import (
    CANCELLED,
    FAILED,
    FINAL,
    LEAVING,
    LOST,
    QUEUED,
    REJECTED,
    RUNNING,
    STARTING,
    STOPPING,
    TIMED_OUT,
    Book,
    Job,
)
from allocator.runtime.records.journal import Event, Journal, JournalError, full_disk
from allocator.runtime.settings import Clock, ServiceSettings
from allocator.runtime.watching import Watching, events_of_end
from throughputs import InputError


class Door(Protocol):
    """Where a service is spoken with."""

    async def close(self) -> None:
        """Nobody comes in any more, and nothing is answered once this returns."""


class Service:
    """The jobs of one state folder on one cluster.

    Parameters
    ----------
    folder : of the state; its journal is read. adapter : the cluster. settings : times and limits.
    journal : of the folder, if it is open already.

    Attributes
    ----------
    journal, book, clock, hardware, watching : see their classes.
    deciding : decisions, past and coming.
    lingering : by UUID of jobs that ought to have ended, why their GPUs are still not free, for people.
    listeners : are given every event that was written, after the book.
    dispatch : orders under way.
    doors : closed first when `run` ends, as they read the journal. hook : tells a program of the user's, None for none.
    """

    deciding: Deciding
    hardware: Hardware

    def __init__(
        self, folder: Path, adapter: Adapter, settings: ServiceSettings | None = None, journal: Journal | None = None
    ) -> None:
        self.folder, self.adapter, self.settings = folder, adapter, settings or ServiceSettings()
        self.journal = journal or Journal(folder)
        self.book = Book()
        for event in self.journal.events():
            self.book.apply(event)
        self.clock = Clock(self.book.clock, self.book.at, self.book.ahead.get(boot_identity()))
        self.watching = Watching(folder, self.book, self.settings)
        self._trouble = ""
        self._strays = 0
        self.lingering: dict[str, str] = {}
        self.listeners: list[Callable[[Event], None]] = []
        self.doors: list[Door] = []
        self.hook: Hook | None = None
        clock = lambda: self.clock()  # noqa: E731 - tests put another in its place
        self.dispatch = Dispatch(adapter, self.watching, self.settings, clock, self.refused, self.wake)
        self._next_look = 0.0
        self._wake = asyncio.Event()
        self._closing = False

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve, once open, until `close` is called; jobs run on."""
        try:
            while not self._closing:
                await self.look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self.settings.poll_seconds)
                self._wake.clear()
        finally:
            await self._finish()

    async def open(self, make_world: Callable[[Hardware], World]) -> None:
        """Connect to the cluster, and take up what runs in the world that is made for its hardware.

        Raises
        ------
        InputError
            Jobs run on a cluster of another kind, where this adapter would not see them.
        """
        last, held = self.book.adapter, len(self.book.holding)
        if held and last not in ("", self.adapter.name):
            found = f"{self.adapter.name}, while jobs hold GPUs of {last} ({held} in the journal)"
            raise InputError(str(self.folder), field="adapter", found=found, expected=f"{last} until they are through")
        await self.adapter.open()
        self.hardware = self.hardware_of(await self.adapter.nodes())
        self.deciding = self._deciding(make_world)
        if self.settings.hook:
            self.hook = Hook(self.book, self.journal, self.settings.hook_words)
            self.listeners.append(self.hook.hear)
            self.doors.append(self.hook)
        nodes = [vars(node) for node in self.hardware.nodes]
        begins = {"pid": os.getpid(), "ahead": {boot_identity(): self.clock() - time.monotonic()}}
        self.record([Event("service", data=begins | {"adapter": self.adapter.name, "nodes": nodes})])
        self.deciding.take_up(self.book)

    def hardware_of(self, nodes: Iterable[Node], types: Iterable[str] = ()) -> Hardware:
        """What of these nodes can be used, and what jobs keep of them."""
        running = (job.placed for job in self.book.holding.values() if job.state == RUNNING)
        return Hardware(tuple(nodes), types, self.book.drained, running)

    def _deciding(self, make_world: Callable[[Hardware], World]) -> Deciding:
        """Decisions of a world; what its policy remembers is in a file, for a service that comes after this one."""
        memory = self.folder / "policy.state"
        return Deciding(make_world, self.hardware, self.settings, memory, lambda: self.clock())

    def use_policy(self, make_world: Callable[[Hardware], World], settings: Mapping[str, str] | None = None) -> None:
        """Decide by another world from now on; who runs goes on until that says otherwise.

        Parameters
        ----------
        make_world : under the other policy. settings : of it, for the journal.

        Raises
        ------
        InputError
            The policy cannot decide about this cluster or these jobs; nothing has changed.
        """
        deciding = self._deciding(make_world)
        deciding.check()
        deciding.take_up(self.book)
        self.record([Event("policy", data={"name": deciding.policy.name, "settings": dict(settings or {})})])
        self.deciding.abandon()
        self.deciding = deciding
        self.wake()

    @property
    def trouble(self) -> str:
        """What hinders the service now, "" for nothing."""
        unknown = f"nothing starts before {self._strays} jobs have ended that the journal has lost" * (self._strays > 0)
        lingering = "; ".join(f"job {self.book.jobs[uuid].id}: {why}" for uuid, why in self.lingering.items())
        hook = "" if self.hook is None else self.hook.trouble
        told = next(iter(self.dispatch.troubles.values()), hook or full_disk(self.folder))
        return self._trouble or unknown or lingering or told

    def close(self) -> None:
        """End `run` at the next occasion."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    async def _finish(self) -> None:
        await asyncio.gather(*(door.close() for door in self.doors))
        await self.dispatch.finish()
        self.deciding.abandon()
        await self.adapter.close()
        with contextlib.suppress(JournalError):
            self.record([Event("stopped")])
        self.journal.close()

    async def look(self) -> None:
        """Once around."""
        patience = self.settings.cluster_seconds
        try:
            async with asyncio.timeout(patience):
                await self._look_at_nodes()
                # what is started while the cluster is looked at may be seen or not
                started = self.dispatch.under_way()
                seen = {one.job: one for one in await self.adapter.observe()}
        except TimeoutError:
            self._trouble = f"the cluster has not answered in {patience:g} s"
            return
        except (AdapterError, OSError) as error:
            self._trouble = str(error)
            return
        try:
            self.journal.check()
            self._note({uuid: one for uuid, one in seen.items() if uuid not in started}, started)
            self._tell_lingering(seen)
            self._cancel_hopeless()
            self._decide()
            self._carry_out()
            self._press()
        except JournalError as error:
            # nothing is ordered that is not written down; what was seen will be seen again
            self._trouble = str(error)
        else:
            self._trouble = ""

    def record(self, events: Iterable[Event]) -> list[Event]:
        """Write events down, take them into the book, and have them take effect.

        Raises
        ------
        JournalError
            They were not written; nothing has changed.
        """
        now = self.clock()
        timed = [replace(event, clock=event.clock or now) for event in events]
        written = self.journal.append(timed) if timed else []
        for event in written:
            self.book.apply(event)
            for listener in self.listeners:
                listener(event)
        for event in written:
            if event.job:
                self._take_effect(event, self.book.jobs[event.job])
        return written

    def _take_effect(self, event: Event, job: Job) -> None:
        """What an event means for the decisions and orders to come."""
        kind = event.kind
        if kind == "submitted":
            self.deciding.arrived(job)
        elif kind == "measured":
            self.deciding.measured(job)
        elif kind == "starting":
            self.deciding.started(job)
            self.dispatch.start(job)
        elif kind == "stopping":
            self.dispatch.end_lease(job)
        elif kind == "resized":
            self.deciding.resized()
        elif kind == "ended":
            self.watching.drop(job)
            self.dispatch.ended(job)
            self.deciding.ended(job, event.clock, failed=event["outcome"] in (FAILED, LOST))
        if kind in LEAVING or (kind == "ended" and event["outcome"] == "completed"):
            self.deciding.left(job)
            self.dispatch.forget(job.uuid, job.epoch)
            for other in self.book.followers.get(job.id, ()):
                self.deciding.arrived(other)

    # -- what is ------------------------------------------------------------------------------------------------------

    async def _look_at_nodes(self) -> None:
        now = self.clock()
        if now >= self._next_look:
            self._next_look = now + self.settings.nodes_seconds
            self.see_nodes(await self.adapter.nodes())

    def see_nodes(self, nodes: Iterable[Node]) -> None:
        """Nodes were lost or came back, were drained or resumed; or who stayed on a drained one has ended."""
        last = self.hardware
        hardware = self.hardware_of(nodes, last.cluster.accelerators)
        if (hardware.nodes, hardware.drained, hardware.kept) == (last.nodes, last.drained, last.kept):
            return
        before = {node.name: node for node in last.nodes}
        changed = [vars(node) for node in hardware.nodes if before.get(node.name) != node]
        if changed:
            self.record([Event("cluster", data={"nodes": changed})])
        self.hardware = hardware
        self.deciding.capacity_changed(hardware, self.book)
        self.wake()

    def _note(self, seen: Mapping[str, Seen], started: Collection[str]) -> None:
        """What the cluster and the trainers say, as events; of those just `started` it knows nothing for sure."""
        events = self._clear(seen)
        now = self.clock()
        for job in list(self.book.holding.values()):
            self.watching.look(job, now)
            one = seen.get(job.uuid)
            if job.uuid in started:
                continue
            if one is not None and one.epoch > job.epoch:
                events += self._through(job, Seen(job.uuid, job.epoch, "ended", reason="a later start of it was there"))
            elif one is None or one.epoch != job.epoch:
                events += self._unseen(job)
            elif one.phase == "ended":
                events += self._through(job, one)
            elif one.phase == "running" and job.state == STARTING:
                events.append(Event("running", job.uuid))
        self.record(events)

    def _tell_lingering(self, seen: Mapping[str, Seen]) -> None:
        """Say of which jobs the cluster cannot end all processes: their GPUs are not given to others."""
        now, before = self.clock(), self.lingering
        self.lingering = {}
        for job in self.book.holding.values():
            one, watch = seen.get(job.uuid), self.watching.of(job)
            killed, reason = self.dispatch.killed(job), ""
            # one that was asked to end has its time for that
            if one is not None and (one.epoch, one.phase) == (job.epoch, "running"):
                reason = (one.reason or "it was killed and has not ended" * killed) * (killed or job.state != STOPPING)
            if not reason or watch.well_at is None:
                watch.well_at = now
            elif now >= watch.well_at + _LINGERING:
                self.lingering[job.uuid] = f"its GPUs are not free: {reason}"
        told = [(uuid, text) for uuid, text in self.lingering.items() if uuid not in before]
        self.record(Event("lingers", uuid, data={"reason": text}) for uuid, text in told)

    def _cancel_hopeless(self) -> None:
        """Take jobs off that wait for one that will not complete, and those that wait for them."""
        while self.book.hopeless:
            ends = {
                job.uuid: min(one.id for one in self.book.before(job) if one.state in FINAL)
                for job in self.book.hopeless.values()
            }
            self.record(
                Event(CANCELLED, uuid, data={"reason": f"job {number}, which it was to run after, did not complete"})
                for uuid, number in ends.items()
            )

    def _clear(self, seen: Mapping[str, Seen]) -> list[Event]:
        """End starts that the book does not have: the journal's end was lost, or a node was cut off and is back.

        Later starts have higher epochs than any that was ever seen.
        """
        events, self._strays = [], 0
        for one in seen.values():
            job = self.book.active.get(one.job)
            if job is not None and one.epoch > job.epoch:
                events.append(Event("found", job.uuid, data={"epoch": one.epoch}))
            wanted = one.job in self.book.holding and job is not None and one.epoch == job.epoch
            if one.phase != "ended" and not wanted:
                self._strays += 1
            if job is None or (one.phase != "ended" and not wanted):
                self.dispatch.clear(one)
        return events

    def _unseen(self, job: Job) -> list[Event]:
        """A start that the cluster does not know: the order never reached it, or the cluster has lost it."""
        if job.state == STARTING:
            self.dispatch.start(job)
            return []
        return self._through(job, Seen(job.uuid, job.epoch, "ended", reason="the cluster has lost it"))

    def _through(self, job: Job, seen: Seen) -> list[Event]:
        """A start that has ended."""
        report = self.watching.look(job, self.clock(), again=True).report
        told = self.watching.of(job).told
        posted = None if told is None else told.steps
        events = events_of_end(job, seen, report, self._when(job, seen), self.settings, posted)
        return [self._typed(job, event) if event.kind == "resized" else event for event in events]

    def _typed(self, job: Job, event: Event) -> Event:
        """With what the job is in the throughput table at the batch size that it asks for."""
        job_type = self.deciding.world.knowledge.type_at(job.job_type, event["batch_size"])
        return replace(event, data={**event.data, "job_type": job_type})

    def _when(self, job: Job, seen: Seen) -> float:
        """When a start ended, seconds on the clock: perhaps while no service ran."""
        now = self.clock()
        return max(now - max(time.time() - seen.ended_at, 0.0), job.since) if seen.ended_at else now

    def steps_of(self, job: Job) -> float:
        """Steps so far: as reported, or of a program that never has, as is believed of its speed."""
        told = self.watching.steps(job)
        if told is not None:
            return told
        if job.state == RUNNING and not job.reports:
            believed = job.steps + self.deciding.believed_rate(job) * (self.clock() - job.since)
            return min(believed, job.total_steps or believed)
        return job.steps

    def reckons(self, job: Job) -> bool:
        """Whether steps of a job are not told by it, but estimated from the time that it ran."""
        return job.epoch > 0 and not job.reports and self.watching.steps(job) is None

    def _expected_steps(self, job: Job, ahead: float) -> float:
        """Steps in `ahead` seconds, if a job goes on at the speed that is believed of it since it last reported."""
        report, steps = self.watching.of(job).report, self.steps_of(job)
        if report is None or report.state != "training":
            return steps
        since = min(max(time.time() - report.at, 0.0), _LONGEST_SINCE_REPORT)
        return min(steps + (since + ahead) * self.deciding.believed_rate(job), job.total_steps or math.inf)

    # -- what users want ----------------------------------------------------------------------------------------------

    def submit(self, jobs: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Job]:
        """Take new jobs (UUID, and the data of the event); they are in the journal when this returns."""
        made = self.record(Event("submitted", uuid, data=data) for uuid, data in jobs)
        self.wake()
        return [self.book.jobs[event.job] for event in made]

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Take jobs off; those that run are told to end."""
        chosen = [job for job in jobs if job.uuid in self.book.active]
        waiting = [Event("cancelled", job.uuid, data={"reason": CANCELLED}) for job in chosen if job.state == QUEUED]
        held = [job for job in chosen if job.uuid in self.book.holding]
        # all of it is written down at once, or nothing is done
        self.record([*waiting, *self._stopping(held, CANCELLED, CANCELLED)])
        self.wake()

    def drain(self, name: str, drained: bool, evicted: Iterable[Job] = ()) -> None:
        """Take a node out of use, or into use again; what runs there goes on to its end, unless it is `evicted`."""
        turned = drained != (name in self.book.drained)
        events = [Event("node", data={"name": name, "drained": drained})] if turned else []
        leaving = [job for job in evicted if name in job.placed.places and job.state != STOPPING]
        self.record([*events, *self._stopping(leaving, f"evicted from node {name}")])
        self.see_nodes(self.hardware.nodes)

    def stop(self, jobs: Iterable[Job], why: str, *, then: str = "") -> None:
        """End leases. `why` is for people and for the trainers; `then` says what becomes of the jobs, see `Job`."""
        self.record(self._stopping(jobs, why, then))

    def _stopping(self, jobs: Iterable[Job], why: str, then: str = "") -> list[Event]:
        data = {"reason": why, "then": then}
        return [Event("stopping", job.uuid, data=data | self._progress_of(job)) for job in jobs]

    def _progress_of(self, job: Job) -> dict[str, float]:
        """What a program that does not report is taken to have done: nobody will know better."""
        return {} if self.watching.of(job).report is not None else {"steps": self.steps_of(job)}

    # -- what is wanted -----------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Take a decision over that is ready, and begin one that is due."""
        now = self.clock()
        verdict = self.deciding.ready(now)
        if verdict is not None:
            self._log(verdict)
        if self.deciding.due(now, self.book):
            self.record(self.watching.measure())
            self.deciding.begin(now, self.book, self._expected_steps, self.wake)

    def _log(self, verdict: Verdict) -> None:
        """A decision, for people, and the jobs that it does not let in."""
        rejected = [self.book.active[uuid] for uuid in verdict.rejected if uuid in self.book.active]
        why = {job.uuid: self._why_rejected(job, verdict.clock) for job in rejected}
        waiting = [Event(REJECTED, job.uuid, data={"reason": why[job.uuid]}) for job in rejected if job.state == QUEUED]
        self.record(waiting)
        for job in rejected:
            if job.uuid in self.book.holding:
                self.stop([job], why[job.uuid], then=REJECTED)
        self.record([Event("decision", clock=verdict.clock, data=verdict.told)])

    def _why_rejected(self, job: Job, clock: float) -> str:
        name, prospects = self.deciding.policy.name, self.deciding.prospects
        return f"{name} cannot promise its deadline: {prospects.why_rejected(job, clock)}"

    def _carry_out(self) -> None:
        """Stop who is not wanted where it is; start who is wanted where nobody is."""
        now = self.clock()
        targets = self.deciding.targets(now, self.book)
        ready = {uuid: target for uuid, target in targets.items() if not self._waits(self.book.active[uuid], now)}
        stops, starts = orders(ready, self.book.holding, self.book.active)
        gone = [job for job in stops if self.hardware.numbers(job.placed) is None]
        self.stop(gone, "its node is drained or gone")
        self.stop([job for job in stops if job.state != STOPPING], "its lease ended")
        # nobody knows which GPUs those have that are not in the book
        if not self._strays:
            self._start(starts, targets)

    def _waits(self, job: Job, now: float) -> bool:
        """Whether a job has just failed, or was lost: it is not started again at once."""
        if job.state != QUEUED or job.outcome not in (FAILED, LOST):
            return False
        times = job.failures if job.outcome == FAILED else job.lost
        pause = self.settings.retry_seconds * 2.0 ** min(times - 1, _MOST_DOUBLINGS)
        return now < job.since + min(pause, self.settings.longest_retry_seconds)

    def _start(self, jobs: Iterable[Job], targets: Mapping[str, Placed]) -> None:
        self.record(
            Event("starting", job.uuid, data={"epoch": job.epoch + 1, "pool": to.pool, "places": dict(to.places)})
            for job in jobs
            for to in [targets[job.uuid]]
        )

    def _press(self) -> None:
        """Trainers that hang or whose time is over are told to end; those that were told and run on get signals."""
        now = self.clock()
        running = [job for job in self.book.holding.values() if job.state == RUNNING and job.time_limit]
        # before the limit is reached, so that nobody outlives it; no more than half of one that is short
        grace = self.settings.grace_seconds
        over = [job for job in running if job.has_run(now) >= max(job.time_limit - grace, job.time_limit / 2.0)]
        self.stop(over, "it ran into its time limit", then=TIMED_OUT)
        hanging = [job for job in self.book.holding.values() if self.watching.hangs(job, now)]
        self.stop(hanging, f"no step in {self.settings.hang_seconds} s", then=FAILED)
        for job in self.book.holding.values():
            if job.state == STOPPING:
                self.dispatch.press(job, now)

    def refused(self, job: Job, seen: Seen, later: int) -> None:
        """The cluster refused to start a job, perhaps because there was a `later` epoch, which the journal has lost."""
        found = [Event("found", job.uuid, data={"epoch": later})] if later else []
        self.record([*self._through(job, seen), *found])


_LONGEST_SINCE_REPORT = 1.0
"""Seconds; a trainer that has not reported for longer may stand still."""

_MOST_DOUBLINGS = 60
"""Of the pause between two tries, which has reached its most long before."""

_LINGERING = 5.0
"""Seconds that killed processes may take to be gone before it is told."""
