"""A cluster in memory with trainers that follow the rules, on a clock of its own; it outlives services that crash."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Adapter, AdapterError, CommandError, Node, Seen, StartOrder
from allocator.runtime.adapters.node import NOT_FOUND
from allocator.runtime.decisions.world import World
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings

START_SECONDS, SAVE_SECONDS = 1.5, 0.25
"""What the trainers say that a start and a checkpoint took."""

QUICK = ServiceSettings(grace_seconds=5.0, notice_seconds=2.0, retries=4, max_fruitless=4)

OPEN: list[Service] = []
"""Services that no test has ended so far."""


@dataclass
class Run:
    """A start of a job as the cluster has it."""

    order: StartOrder
    seen: Seen
    started: float
    steps: float = 0.0
    saved: float = 0.0

    @property
    def behaviour(self):
        return self.order.command[2] if len(self.order.command) > 2 else ""


def ended(order, code):
    return Seen(order.job, order.epoch, "ended", code, reason=f"exit status {code}")


@dataclass
class ModelCluster(Adapter):
    """Jobs run at `rates` (steps/s by type) for the steps in their command: ``("train", steps[, behaviour])``.

    Behaviours: "crash" (fails half-way in its first start), "deaf" (reads no lease, ends by SIGTERM), "stubborn" (ends
    by SIGKILL only), "broken" (fails at once, always), "refused" (cannot be started), "absent" (is not found),
    "calls_absent" (calls what is not found), "careless" (never saves), "doomed" (never saves, and fails half-way in
    every start).
    """

    machines: list[Node]
    rates: dict[str, float]
    clock: float = 0.0
    runs: dict[str, Run] = field(default_factory=dict)
    checkpoints: dict[str, float] = field(default_factory=dict)
    starts: list[tuple[str, int]] = field(default_factory=list)
    silent: bool = False
    violations: list[str] = field(default_factory=list)

    name = "model"

    async def open(self):
        pass

    async def close(self):
        pass

    async def nodes(self):
        if self.silent:
            raise AdapterError("the model does not answer")
        return tuple(self.machines)

    async def observe(self):
        await self.nodes()
        return [run.seen for run in self.runs.values()]

    async def start(self, order):
        run = Run(order, Seen(order.job, order.epoch, "running"), self.clock)
        if run.behaviour == "refused":
            raise AdapterError("train: not found")
        if run.behaviour == "absent":
            raise CommandError("not found: the command train", NOT_FOUND)
        before = self.runs.get(order.job)
        if before is not None and before.order.epoch >= order.epoch:
            return
        if before is not None and before.seen.phase != "ended":
            self.violations.append(f"two starts of a job at once: {order}")
        if any(other.order.placed.gpus & order.placed.gpus for other in self.running()):
            self.violations.append(f"two jobs on one GPU: {order}")
        self.starts.append((order.job, order.epoch))
        run.steps = run.saved = self.checkpoints.get(order.job, 0.0)
        self.runs[order.job] = run

    async def stop(self, job, epoch):
        self._end(job, epoch, 15)

    async def kill(self, job, epoch):
        self._end(job, epoch, 9)

    async def forget(self, job):
        self.runs.pop(job, None)

    def running(self):
        return [run for run in self.runs.values() if run.seen.phase == "running"]

    def _end(self, job, epoch, signal):
        run = self.runs.get(job)
        if (
            run
            and (run.seen.phase, run.order.epoch) == ("running", epoch)
            and (run.behaviour, signal) != ("stubborn", 15)
        ):
            run.seen = Seen(job, epoch, "ended", None, signal, f"ended by {Signals(signal).name}")

    def advance(self, seconds):
        """Let the trainers run."""
        self.clock += seconds
        for run in self.running():
            order, behaviour = run.order, run.behaviour
            total = float(order.command[1])
            run.steps += self.rates[order.placed.pool] * seconds
            half, done = run.steps >= total / 2, run.steps >= total
            crash = behaviour == "broken" or (half and (behaviour, order.epoch) == ("crash", 1))
            crash |= half and behaviour == "doomed"
            if crash or behaviour == "calls_absent":
                run.seen = ended(order, 1 if crash else NOT_FOUND)
                continue
            ends = False
            if behaviour not in ("deaf", "stubborn"):
                grant = read_file(order.folder / LEASE_FILE, Grant)
                ends = grant.ends or grant.epoch != order.epoch
                self._report(run, min(run.steps, total), done, ends)
            if done or ends:
                run.seen = ended(order, 0)

    def _report(self, run, steps, done, ends):
        job, epoch = run.order.job, run.order.epoch
        if (done or ends) and run.behaviour not in ("careless", "doomed"):
            run.saved = self.checkpoints[job] = steps
        run.steps = steps
        state = "done" if done else "ending" if ends else "training"
        trained, seconds = steps - self.checkpoints.get(job, 0.0), self.clock - run.started
        costs = {"save_seconds": SAVE_SECONDS, "start_seconds": START_SECONDS, "at": self.clock}
        report = Report(job, epoch, state, steps, trained, seconds, run.saved, **costs)
        write_file(run.order.folder / REPORT_FILE, report)


def two_types(v100=2, k80=2):
    machines = [Node("v", "v100", v100), Node("k", "k80", k80)]
    return ModelCluster([node for node in machines if node.gpus], {"v100": 4.0, "k80": 1.0})


def one_type(gpus=4):
    return two_types(0, gpus)


def world_under(policy, round_seconds=10.0, before=lambda: None):
    """Makes worlds, which do something `before` each decision."""

    class Made(World):
        def decide(self, news):
            before()
            return super().decide(news)

    # jobs take turns from round to round, so that many leases begin and end
    mechanism = preset("default").replace(round_seconds=round_seconds, hysteresis_rounds=0.0).mechanism
    return lambda hardware: Made(hardware, get_policy(policy), mechanism)


async def service_on(folder: Path, cluster, policy="fifo_perf", settings=QUICK, make_world=None):
    """A service that is open on a cluster in memory, on the clock of that cluster."""
    service = Service(folder, cluster, settings)
    # nobody takes the power away here, and waiting for the disk is most of the time
    service.journal._base.execute("PRAGMA synchronous=OFF")
    service.clock = lambda: cluster.clock
    await service.open(make_world or world_under(policy))
    OPEN.append(service)
    return service


async def started(folder: Path, cluster, *jobs, policy="fifo_perf", settings=QUICK, until=5.0):
    """A service whose jobs have run for some seconds."""
    service = await service_on(folder, cluster, policy, settings)
    await submit(service, *jobs)
    await run_on(service, until)
    return service


async def submit(service, *jobs):
    """Take jobs, and decide about them."""
    service.submit((uuid.uuid4().hex, one) for one in jobs)
    await settle(service)


async def settle(service):
    """Look until decisions and orders that are under way are through; no GPU ever has two jobs."""
    for _ in range(200):
        await service.look()
        assert not service.adapter.violations
        waiting = [*service.dispatch.tasks.values(), *([service.deciding._task] if service.deciding._task else [])]
        if not waiting:
            return
        await asyncio.wait(waiting, timeout=10.0)
        await asyncio.sleep(0)


async def run_on(service, seconds, step=1.0):
    """Let time pass, with a look after every step, until all jobs are through."""
    cluster = service.adapter
    until = cluster.clock + seconds
    while cluster.clock < until and service.book.active:
        cluster.advance(step)
        await settle(service)


async def leave(service):
    """The service ends as if killed."""
    OPEN.remove(service)
    for task in service.dispatch.tasks.values():
        task.cancel()
    service.deciding.abandon()
    service.journal.close()


async def end(service):
    """The service ends in order."""
    OPEN.remove(service)
    await service._finish()


def states(service):
    return [one.state for one in service.book.by_id]


def job(steps, behaviour="", **more):
    """What is submitted."""
    command = ["train", str(steps), *([behaviour] if behaviour else [])]
    return {"command": command, "working_directory": "/", "total_steps": steps} | more
