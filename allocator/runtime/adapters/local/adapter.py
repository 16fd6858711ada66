"""Jobs as processes of this machine."""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import os
import shutil
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import ClassVar

from allocator.lease import whole
from allocator.lease.files import JOB, read_file
from allocator.lease.whole import read_object
from allocator.runtime.adapters import node
from allocator.runtime.adapters.base import (
    Adapter,
    AdapterError,
    CommandError,
    NoAnswerError,
    Node,
    Seen,
    StartOrder,
    gpu_variables,
    lease_variables,
    read_end,
)
from allocator.runtime.adapters.local import shim
from allocator.runtime.adapters.local.accelerators import Accelerators, find_accelerators
from allocator.runtime.adapters.local.shim import MOST_ORDERS, STARTED, STARTED_BEFORE, Order, reserve_exit, write_exit
from allocator.runtime.adapters.node import (
    EPOCHS,
    EXIT_FILE,
    MARKED,
    NOT_EXECUTABLE,
    NOT_FOUND,
    RUN_FILE,
    boot_identity,
    carriers,
    children,
    descendants,
    end_processes,
    free_port,
    is_alive,
    left_of,
    signal_all,
    take_lock,
    variables_of_rank,
)

_ANSWER_SECONDS = 30.0
"""A shim answers within a second on an idle machine; one that has not by then never will."""

_MODULES = (whole, node, shim)
SHIM_SCRIPT = """import marshal, sys
for name, code in marshal.load(sys.stdin.buffer):
    sys.modules[name] = module = type(sys)(name)
    exec(code, module.__dict__)
module.main()"""
"""Modules come compiled, in memory: files would be compiled each time, and might by then be of another version."""

_MOST_PROCESSES = 1 << 31
"""Numbers of processes are below."""

_MOST_NAMED = 5

_SLICE = 64
"""Jobs that are looked at before others have their turn in the event loop."""


@dataclass(frozen=True)
class _Run:
    """What run.json says."""

    epoch: int
    pid: int
    start_time: int
    boot: str


class LocalAdapter(Adapter):
    """This machine; each type of its accelerators is a node.

    Every start has a process of its own that watches over it, the *shim*, and all that is known of it stands in a
    folder apart from that of the job, so that jobs run on without the scheduler and another one finds them again.

    Parameters
    ----------
    state : folder of the scheduler's state; in the folder ``local`` below it each job has one for what is known of it.
    accelerators : what there is by type; None: NVIDIA's GPUs of this machine.
    """

    name: ClassVar[str] = "local"
    carrier: ClassVar[str] = JOB
    """A variable that all processes of a job have from it, with the name of the job here."""
    guard: tuple[int, int] = (0, 0)
    """Number and start time of a process with which all jobs end, see `is_alive`; zeros: there is none."""

    def __init__(self, state: Path, accelerators: Accelerators | None = None) -> None:
        self._index = state.absolute() / "local"
        self._accelerators: Accelerators = accelerators or {}
        self._jobs: dict[str, Path] = {}
        self._ended: dict[str, Seen] = {}
        # in which nothing tells of a start, and of which no process is there either
        self._idle: set[str] = set()
        self._children: set[int] = set()
        self._room = asyncio.Semaphore(MOST_ORDERS)
        self._launcher: socket.socket | None = None
        self._boot = ""

    async def open(self) -> None:
        """Find the accelerators, and the jobs that were started before."""
        try:
            self._boot = boot_identity()
            shim_code()
            self._index.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.scandir(self._index) as entries:
                self._jobs = {entry.name: Path(entry.path) for entry in entries if entry.is_dir()}
            # what was kept of them may have been deleted while they run
            found, jobs = carriers(self.carrier), self._index.with_name("jobs")
            marked = {name // EPOCHS for name in found if isinstance(name, int)}
            for job in os.listdir(jobs) if marked and jobs.is_dir() else ():
                if job not in self._jobs and _mark(job) // EPOCHS in marked:
                    self._jobs[job] = self._index / job
        except OSError as error:
            raise AdapterError(f"jobs cannot run on this machine: {error}") from error
        self._accelerators = self._accelerators or find_accelerators()

    async def close(self) -> None:
        """Jobs and their shims stay."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None
        self._reap()

    async def nodes(self) -> Sequence[Node]:
        """One for each type."""
        return [Node(f"local-{kind}", kind, len(indices)) for kind, indices in self._accelerators.items()]

    async def observe(self) -> Sequence[Seen]:
        """From the folders of jobs alone; one that has ended is read once."""
        self._reap()
        strays: dict[str | int, list[int]] | None = None
        found = []
        for count, job in enumerate(list(self._jobs), 1):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
                strays = None
            folder, seen = self._jobs.get(job), self._ended.get(job)
            run = _read_run(folder) if folder and not seen else None
            if folder and not seen:
                seen = self._look(job, folder, run)
                if not seen and (run or job not in self._idle):
                    # One search for all jobs of a slice whose end nobody has told.
                    strays = carriers(self.carrier) if strays is None else strays
                    left = left_of(strays, job, _mark(job))
                    seen = self._recover(job, folder, run, left) if run else self._unrecorded(job, left)
                    await asyncio.sleep(0)
                if seen and run and seen.phase == "ended":
                    self._ended[job] = seen
                    # Where this is the first process of a container, orphans become its children.
                    self._children.add(run.pid)
            if seen:
                found.append(seen)
        return found

    def _look(self, job: str, folder: Path, run: _Run | None) -> Seen | None:
        """What the folder says; None if it does not say who watches, or that process is gone without a word."""
        if run and self._is_watched(run):
            return Seen(job, run.epoch, "running")
        told = read_end(job, folder / EXIT_FILE)
        return told if told and (run is None or told.epoch == run.epoch) else None

    def _unrecorded(self, job: str, left: Mapping[int, int]) -> Seen | None:
        """A job of which no start is known, though processes of one may be there."""
        left = left or left_of(carriers(self.carrier), job, _mark(job))
        epoch = max(left.values(), default=0)
        if epoch:
            return Seen(job, epoch, "running", reason=f"what was known of its start is gone; {_named(left)}")
        self._idle.add(job)
        return None

    def _is_watched(self, run: _Run) -> bool:
        return run.boot == self._boot and is_alive(run.pid, run.start_time)

    def _recover(self, job: str, folder: Path, run: _Run, left: Mapping[int, int]) -> Seen:
        """Say the end of a start in place of its shim, once nothing of it is left."""
        running = Seen(job, run.epoch, "running", reason="the process that watches it is gone")
        try:
            lock = take_lock(str(folder))
        except OSError:
            # the folder of this job alone is in disorder; no start of it has a lock there
            lock = os.open(folder, os.O_RDONLY)
        if lock is None:
            return running
        try:
            # Before the lock was ours the shim may have told the end after all, or another start have come and gone.
            run = _read_run(folder) or run
            if self._is_watched(run):
                return running
            seen = self._look(job, folder, run)
            if seen:
                return seen
            # One that ends between being listed and being read may leave a child that was not listed: look twice.
            left = left or left_of(carriers(self.carrier), job, _mark(job))
            if left:
                there = end_processes({*left, *descendants(left)}, seconds=0.0)
                return replace(running, reason=f"{running.reason}; {_named(there)}") if there else running
            reason = "the process that watched it was killed"
            if run.boot != self._boot:
                reason = "the machine was started anew"
            with suppress(OSError):
                reserved = reserve_exit(str(folder))
                try:
                    write_exit(str(folder), reserved, run.epoch, None, 0, reason)
                finally:
                    os.close(reserved)
            return self._look(job, folder, run) or Seen(job, run.epoch, "ended", reason=reason)
        finally:
            os.close(lock)

    async def start(self, order: StartOrder) -> None:
        """Returns when a shim has started the job."""
        environments = self.environments(order)
        async with self._room:
            try:
                self._enter(order)
                said = await self._ask_shim(self._told(order, environments))
            except TimeoutError:
                said = f"the job did not start within {_ANSWER_SECONDS:g} seconds"
            except (OSError, ValueError) as error:
                # arguments and variables that no program can be given are ValueErrors
                raise AdapterError(f"the job cannot be started: {error}") from error
            finally:
                self._ended.pop(order.job, None)
                self._idle.discard(order.job)
        if said not in (STARTED, STARTED_BEFORE):
            end = read_object(self._index / order.job / EXIT_FILE)
            if end.get("epoch") == order.epoch and end.get("code") in (NOT_EXECUTABLE, NOT_FOUND):
                raise CommandError(said, end["code"])
            begun = _read_run(self._index / order.job)
            if begun and begun.epoch == order.epoch != end.get("epoch"):
                raise NoAnswerError("the job may have started: the process that watches it has not answered")
            raise AdapterError(said or "the process that starts the job was killed")

    def _indices(self, order: StartOrder) -> list[int]:
        """Of the accelerators of a job on this machine."""
        nodes = {f"local-{kind}": indices for kind, indices in self._accelerators.items()}
        try:
            return [nodes[node][position] for node, positions in order.placed.places.items() for position in positions]
        except (KeyError, IndexError):
            there = ", ".join(f"{node}: {len(indices)}" for node, indices in nodes.items())
            raise AdapterError(f"no such GPUs: {dict(order.placed.places)}; there are {there}") from None

    def _enter(self, order: StartOrder) -> None:
        """Put a job into the index, where every job that may run is found again."""
        if order.job != Path(order.job).name:
            raise AdapterError(f"not the name of a folder: {order.job}")
        entry = self._index / order.job
        entry.mkdir(mode=0o700, exist_ok=True)
        self._jobs[order.job] = entry
        self._ended.pop(order.job, None)
        # it has not run so far, if nothing says so
        self._idle.add(order.job)

    def _told(self, order: StartOrder, environments: Sequence[Mapping[str, str]]) -> Order:
        """The order as the shim is told it; bytes, for arguments may be names of files in any encoding."""
        return Order(
            job=order.job,
            epoch=order.epoch,
            folder=os.fsencode(order.folder.absolute()),
            records=os.fsencode(self._index / order.job),
            mark=_mark(order.job, order.epoch),
            directory=os.fsencode(order.working_directory.absolute()),
            command=[os.fsencode(argument) for argument in order.command],
            environments=[
                {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
                for environment in environments
            ],
            ranked=order.one_process_per_gpu,
            guard=self.guard,
            carrier=self.carrier,
            log_bytes=order.log_bytes,
        )

    async def _ask_shim(self, order: Order) -> str:
        """Have a shim left for an order, by a socket of its own; what it answers, "" where it was killed."""
        # Orders are not for the eyes of others, as arguments would be, nor for a file.
        told, (ours, theirs) = marshal.dumps(vars(order)), socket.socketpair()
        with ours:
            with theirs:
                self._send(theirs.fileno())
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(sock=ours)
                try:
                    writer.write(told)
                    writer.write_eof()
                    return (await reader.read()).decode(errors="replace")
                except ConnectionError:
                    return ""
                finally:
                    # A shim that has not come to it yet sees that nobody waits, and does not start the job.
                    writer.transport.abort()

    def _send(self, descriptor: int) -> None:
        if self._launcher is not None:
            try:
                socket.send_fds(self._launcher, [b"\0"], [descriptor])
                return
            except (BrokenPipeError, ConnectionResetError):
                # It was killed.
                self._launcher.close()
        self._launcher = self._launch()
        socket.send_fds(self._launcher, [b"\0"], [descriptor])

    def _launch(self) -> socket.socket:
        """Start the process that takes orders; it ends when its socket is closed, by us or with us."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        code = os.memfd_create("shim")
        with theirs:
            try:
                os.write(code, marshal.dumps(shim_code()))
                os.lseek(code, 0, os.SEEK_SET)
                pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-S", "-c", SHIM_SCRIPT, "allocator-shim"],
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, code, 0), (os.POSIX_SPAWN_DUP2, theirs.fileno(), 1)],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD),
                )
            except OSError:
                ours.close()
                raise
            finally:
                os.close(code)
        self._children.add(pid)
        return ours

    def environments(self, order: StartOrder) -> list[dict[str, str]]:
        """Variables of each process of a job."""
        indices = self._indices(order)
        common = {**os.environ, **order.environment}
        common |= lease_variables(order, order.folder.absolute()) | gpu_variables(indices)
        if not order.one_process_per_gpu:
            return [common]
        ranks, port = len(indices), free_port()
        return [common | variables_of_rank(rank, rank, ranks, ranks, "127.0.0.1", port) for rank in range(ranks)]

    async def stop(self, job: str, epoch: int) -> None:
        """SIGTERM to each process of the command and its group, once however often it is asked for."""
        run = self._running(job, epoch)
        signal_all([run.pid] if run else self._unwatched(job, epoch), signal.SIGTERM)

    async def kill(self, job: str, epoch: int) -> None:
        """End all that the job has started; its shim then says so."""
        run = self._running(job, epoch)
        if run:
            # Its shim does not mind, and ends the rest as soon as the processes of the command are gone.
            for pid in children(run.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(run.pid, signal.SIGCONT)
        else:
            signal_all(self._unwatched(job, epoch), signal.SIGKILL)

    def _unwatched(self, job: str, epoch: int) -> list[int]:
        """Processes of a start that nobody is known to watch over."""
        return [] if job in self._idle or job in self._ended else carriers(self.carrier).get(_mark(job, epoch), [])

    def _running(self, job: str, epoch: int) -> _Run | None:
        folder = self._jobs.get(job)
        run = _read_run(folder) if folder else None
        return run if run and run.epoch == epoch and self._is_watched(run) else None

    async def forget(self, job: str) -> None:
        """Take a job out of the index."""
        self._jobs.pop(job, None)
        self._ended.pop(job, None)
        self._idle.discard(job)
        shutil.rmtree(self._index / job, ignore_errors=True)

    def _reap(self) -> None:
        for pid in list(self._children):
            try:
                ended = os.waitpid(pid, os.WNOHANG)[0]
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.discard(pid)


@cache
def shim_code() -> list[tuple[str, CodeType]]:
    """By name the modules that a shim consists of, the one to call last."""
    return [(module.__name__, compile(Path(_file(module)).read_bytes(), _file(module), "exec")) for module in _MODULES]


def _mark(job: str, epoch: int = 0) -> int:
    """Of the processes of a start."""
    return MARKED + int.from_bytes(hashlib.sha256(job.encode()).digest()[:5]) * EPOCHS + epoch % EPOCHS


def _named(pids: Collection[int]) -> str:
    """Processes, for people."""
    some = ", ".join(map(str, sorted(pids)[:_MOST_NAMED])) + ", ..." * (len(pids) > _MOST_NAMED)
    return f"processes of it run on: {some}"


def _file(module: ModuleType) -> str:
    return str(module.__file__)


def _read_run(folder: Path) -> _Run | None:
    run = read_file(folder / RUN_FILE, _Run)
    return run if run is not None and 0 < run.pid < _MOST_PROCESSES else None
