"""A cluster in memory with trainers that follow the rules, on a clock of its own; it outlives services that crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allocator.cluster import Cluster
from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.base import NOT_FOUND, Adapter, AdapterError, CommandError, Node, Seen, StartOrder
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings

START_SECONDS, SAVE_SECONDS = 1.5, 0.25
"""What the trainers say that a start and a checkpoint took."""


class Crash(BaseException):
    """The service is gone from one instant to the next."""


@dataclass
class Run:
    """A start of a job as the cluster has it."""

    order: StartOrder
    seen: Seen
    started: float
    steps: float = 0.0
    saved: float = 0.0


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

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def nodes(self) -> Sequence[Node]:
        if self.silent:
            raise AdapterError("the model does not answer")
        return tuple(self.machines)

    async def observe(self) -> Sequence[Seen]:
        if self.silent:
            raise AdapterError("the model does not answer")
        return [run.seen for run in self.runs.values()]

    async def start(self, order: StartOrder) -> None:
        behaviour = self._behaviour(order)
        if behaviour == "refused":
            raise AdapterError("train: not found")
        if behaviour == "absent":
            raise CommandError("not found: the command train", NOT_FOUND)
        before = self.runs.get(order.job)
        if before is not None and before.order.epoch >= order.epoch:
            return
        if before is not None and before.seen.phase != "ended":
            self.violations.append(f"two starts of a job at once: {order}")
        taken = {gpu for run in self.running() for gpu in _gpus(run.order)}
        if not taken.isdisjoint(_gpus(order)):
            self.violations.append(f"two jobs on one GPU: {order}")
        assert not self.violations
        self.starts.append((order.job, order.epoch))
        steps = self.checkpoints.get(order.job, 0.0)
        self.runs[order.job] = Run(order, Seen(order.job, order.epoch, "running"), self.clock, steps, steps)

    async def stop(self, job: str, epoch: int) -> None:
        self._end(job, epoch, 15, unless="stubborn")

    async def kill(self, job: str, epoch: int) -> None:
        self._end(job, epoch, 9)

    async def forget(self, job: str) -> None:
        self.runs.pop(job, None)

    def running(self) -> list[Run]:
        return [run for run in self.runs.values() if run.seen.phase == "running"]

    def _end(self, job: str, epoch: int, signal: int, unless: str = "") -> None:
        run = self.runs.get(job)
        if run and run.seen.phase == "running" and run.order.epoch == epoch and self._behaviour(run.order) != unless:
            run.seen = Seen(job, epoch, "ended", None, signal)

    @staticmethod
    def _behaviour(order: StartOrder) -> str:
        return order.command[2] if len(order.command) > 2 else ""

    def advance(self, seconds: float) -> None:
        """Let the trainers run."""
        self.clock += seconds
        for run in self.running():
            order, behaviour = run.order, self._behaviour(run.order)
            total = float(order.command[1])
            run.steps += self.rates[order.accelerator] * seconds
            half = run.steps >= total / 2
            crash = behaviour == "broken" or (half and (behaviour, order.epoch) == ("crash", 1))
            crash |= half and behaviour == "doomed"
            if crash or behaviour == "calls_absent":
                run.seen = Seen(order.job, order.epoch, "ended", 1 if crash else NOT_FOUND)
                continue
            if behaviour in ("deaf", "stubborn"):
                if run.steps >= total:
                    run.seen = Seen(order.job, order.epoch, "ended", 0)
                continue
            grant = read_file(order.folder / LEASE_FILE, Grant)
            assert grant is not None
            done, ends = run.steps >= total, grant.ends or grant.epoch != order.epoch
            if (done or ends) and behaviour not in ("careless", "doomed"):
                run.saved = self.checkpoints[order.job] = min(run.steps, total)
            state = "done" if done else "ending" if ends else "training"
            run.steps = min(run.steps, total)
            trained = run.steps - self.checkpoints.get(order.job, 0.0)
            report = Report(
                order.job,
                order.epoch,
                state,
                run.steps,
                trained,
                self.clock - run.started,
                run.saved,
                save_seconds=SAVE_SECONDS,
                start_seconds=START_SECONDS,
                at=self.clock,
            )
            write_file(order.folder / REPORT_FILE, report)
            if done or ends:
                run.seen = Seen(order.job, order.epoch, "ended", 0)


def _gpus(order: StartOrder) -> set[tuple[str, int]]:
    return {(node, position) for node, positions in order.gpus.items() for position in positions}


def two_types(v100: int = 2, k80: int = 2) -> ModelCluster:
    machines = [Node("v", "v100", v100), Node("k", "k80", k80)]
    return ModelCluster(machines, {"v100": 4.0, "k80": 1.0})


def one_type(gpus: int = 4) -> ModelCluster:
    return ModelCluster([Node("k", "k80", gpus)], {"k80": 1.0})


def world_under(policy: str, round_seconds: float = 10.0) -> Callable[[Hardware], World]:
    """Makes worlds."""
    # jobs take turns from round to round, so that many leases begin and end
    mechanism = preset("default").replace(round_seconds=round_seconds, hysteresis_rounds=0.0).mechanism
    return lambda hardware: World(hardware.cluster, get_policy(policy), mechanism)


async def service_on(
    folder: Path,
    cluster: ModelCluster,
    policy: str = "fifo_perf",
    settings: ServiceSettings | None = None,
    make_world: Callable[[Hardware], World] | None = None,
) -> Service:
    """A service that is open on a cluster in memory, on the clock of that cluster."""
    service = Service(folder, cluster, settings or ServiceSettings(grace_seconds=5.0, notice_seconds=2.0, retries=4))
    # nobody takes the power away here, and waiting for the disk is most of the time
    service.journal._base.execute("PRAGMA synchronous=OFF")
    service.clock = lambda: cluster.clock  # type: ignore[assignment]
    await service.open(make_world or world_under(policy))
    return service


async def settle(service: Service) -> None:
    """Look until decisions and orders that are under way are through."""
    for _ in range(200):
        await service.look()
        waiting = [*service._dispatch.tasks.values(), *([service.deciding._task] if service.deciding._task else [])]
        if not waiting:
            return
        await asyncio.wait(waiting, timeout=10.0)
        await asyncio.sleep(0)


async def run_on(service: Service, cluster: ModelCluster, until: float, step: float = 0.5) -> None:
    """Let time pass, with a look after every step."""
    while cluster.clock < until and service.book.active:
        cluster.advance(step)
        await settle(service)


def job(steps: float, behaviour: str = "", **more: object) -> dict[str, object]:
    """What is submitted."""
    command = ["train", str(steps), *([behaviour] if behaviour else [])]
    return {"command": command, "working_directory": "/", "total_steps": steps} | more


__all__ = [
    "Cluster",
    "Crash",
    "ModelCluster",
    "job",
    "one_type",
    "run_on",
    "service_on",
    "settle",
    "two_types",
    "world_under",
]
