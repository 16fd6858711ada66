"""Where runs happen: processes of this machine, this process, or a Ray cluster.

The runner decides what runs next and writes all results; an engine carries single runs out and tells of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from allocator.experiments.execute import Outcome, carried_out
from allocator.experiments.run import Materials, Run
from throughputs import InputError
from throughputs.files import write_text


@dataclass(frozen=True)
class Task:
    """One run to be made, whether its jobs are kept, and the file of its log."""

    run: Run
    keep_jobs: bool
    log: Path


Event = tuple[str, float | Outcome | str]
"""Identity of a run, and what is new of it: the share of its jobs that has completed, or what came of it, or why it is
gone without a result: its process was killed, or its machine left."""


class Engine(Protocol):
    """Carries out runs, up to `slots` at a time."""

    @property
    def slots(self) -> int:
        """How many runs may be under way."""

    def start(self, task: Task) -> None:
        """Begin a run; called only while fewer than `slots` are under way."""

    def wait(self, seconds: float) -> list[Event]:
        """What has happened, waiting up to `seconds` for something."""

    def close(self) -> None:
        """Stop everything that is under way."""


def _logged(task: Task, materials: Materials, report: Callable[[float], None], *, streams: bool = False) -> Event:
    """The run with its log; with `streams` what solvers and warnings print belongs to that too."""
    with open(task.log, "w", encoding="utf-8", buffering=1) as log:
        for number in (1, 2) if streams else ():
            os.dup2(log.fileno(), number)
        outcome = carried_out(
            task.run,
            materials,
            keep_jobs=task.keep_jobs,
            log=lambda text: print(text, file=log),
            report=report,
        )
        if streams:
            sys.stdout.flush()
            sys.stderr.flush()
    return task.run.key, outcome


def _untold(_share: float) -> None:
    pass


class SerialEngine:
    """Makes each run in this process when it is waited for; how far it is shows in its log alone.

    Parameters
    ----------
    materials : what the runs read.
    """

    slots = 1

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._task: Task | None = None

    def start(self, task: Task) -> None:
        """Take the run."""
        self._task = task

    def wait(self, _seconds: float) -> list[Event]:
        """Make the run that was taken, however long that takes."""
        task, self._task = self._task, None
        return [] if task is None else [_logged(task, self._materials, _untold)]

    def close(self) -> None:
        """Nothing is under way."""


# Processes of this machine

# One thread for each process: the processes are what runs side by side.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_SHUTDOWN_SECONDS = 5.0


@dataclass
class _Worker:
    process: Any
    connection: Connection
    key: str | None = None


class LocalEngine:
    """Starts processes as they are needed, up to `slots`, and gives them one run after the other.

    A process that dies takes its own run with it and nothing else; the runner hears of it and goes on.

    Parameters
    ----------
    materials : what the runs read.
    slots : number of processes.
    """

    def __init__(self, materials: Materials, slots: int) -> None:
        self._materials = materials
        self.slots = slots
        self._workers: list[_Worker] = []
        # A fresh interpreter: a fork would copy the threads of solvers and progress bars in whatever state they are.
        self._context = multiprocessing.get_context("spawn")

    def start(self, task: Task) -> None:
        """Give the run to an idle process, or a new one."""
        worker = next((worker for worker in self._workers if worker.key is None), None) or self._spawn()
        worker.key = task.run.key
        # Should the process have died while it was idle, `wait` sees its end and tells of the run.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(task)

    def wait(self, seconds: float) -> list[Event]:
        """Events of the processes."""
        ready = wait([worker.connection for worker in self._workers], timeout=seconds)
        events: list[Event] = []
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                key, news = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                events += self._died(worker)
                continue
            if isinstance(news, Outcome):
                worker.key = None
            events.append((key, news))
        return events

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_SHUTDOWN_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def _spawn(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._materials), daemon=True)
        with _single_threaded():
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _died(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(_SHUTDOWN_SECONDS)
        if worker.key is None:
            return []
        code = worker.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return [(worker.key, f"its process ended by {how}")]


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Variables that a new process reads when it starts; those that the user has set stay."""
    ours = [name for name in _THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _serve(connection: Connection, materials: Materials) -> None:
    """A process of the engine: runs tasks until the other end goes away."""
    # Ctrl-C reaches the whole group; the runner decides what becomes of a run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()

            def tell(share: float, key: str = task.run.key) -> None:
                try:
                    connection.send((key, share))
                except (BrokenPipeError, ConnectionResetError):
                    # The sweep is gone; nobody wants this run any more.
                    raise SystemExit(1) from None

            connection.send(_logged(task, materials, tell, streams=True))


# A Ray cluster

# A run depends on itself alone, so Ray may make it again when a node leaves.
RETRIES = 3

_SECONDS_TO_REACH = 5.0

_SHORT_PATIENCE = ("RAY_NUM_REDIS_GET_RETRIES", "4")
"""How many seconds Ray asks what answers but is no cluster, unless that variable says otherwise."""


class RayEngine:
    """Gives runs to a Ray cluster, one for each of its CPUs. Needs the extra ``[ray]``.

    This package must be installed on every node; files are read here and travel with the runs. Results and logs come
    back here: the nodes need no common disk.

    Parameters
    ----------
    materials : what the runs read.
    address : of the cluster, as `ray.init` takes it; None: that of the variable RAY_ADDRESS, else a cluster of this
        machine alone, started for the sweep. If this process is connected already, that connection is used.
    slots : runs at a time; None: as many as the cluster has CPUs.

    Raises
    ------
    InputError
        Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, materials: Materials, address: str | None = None, slots: int | None = None) -> None:
        os.environ.setdefault(*_SHORT_PATIENCE)
        try:
            import ray
        except ImportError:
            expected = "Ray: pip install 'cluster-allocator[ray]'"
            raise InputError("engine", found="no module named ray", expected=expected) from None
        self._ray: Any = ray
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(ray, address)
        self._wanted = slots
        self._materials = ray.put(materials)
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_on_a_node)
        self._running: dict[Any, Task] = {}

    @property
    def slots(self) -> int:
        """Runs at a time: the CPUs that the cluster has now, or fewer if so wanted."""
        cpus = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return cpus if self._wanted is None else min(self._wanted, cpus)

    def start(self, task: Task) -> None:
        """Hand a run to the cluster."""
        reference = self._remote.options(name=task.run.label).remote(task.run, task.keep_jobs, self._materials)
        self._running[reference] = task

    def wait(self, seconds: float) -> list[Event]:
        """Runs that are over."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._ended(reference, self._running.pop(reference)) for reference in ready]

    def close(self) -> None:
        """Cancel what is under way, and leave the cluster if it was joined here."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        if self._connected_here:
            self._ray.shutdown()

    def _ended(self, reference: Any, task: Task) -> Event:
        try:
            outcome, lines = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return task.run.key, str(error).strip().splitlines()[0]
        write_text(task.log, "\n".join(lines) + "\n")
        return task.run.key, outcome


def _connect(ray: Any, address: str | None) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or None
    _check_reached(address)
    try:
        with _no_log():
            ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError("address", found=address, expected=f"a running Ray cluster ({error})") from error


@contextmanager
def _no_log() -> Iterator[None]:
    """Without what native code prints on standard error: each attempt of Ray to connect, and what it knows of it."""
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _check_reached(address: str | None) -> None:
    """Raise InputError where nothing listens at HOST:PORT, which Ray itself tells after minutes only."""
    host, colon, port = (address or "").rpartition("//")[2].rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_REACH).close()
    except (OSError, OverflowError, UnicodeError) as error:
        expected = f"a running Ray cluster ({getattr(error, 'strerror', None) or error})"
        raise InputError("address", found=address, expected=expected) from None


def _on_a_node(run: Run, keep_jobs: bool, materials: Materials) -> tuple[Outcome, list[str]]:
    """On a node of the cluster: the outcome and the lines of the log."""
    lines: list[str] = []
    outcome = carried_out(run, materials, keep_jobs=keep_jobs, log=lines.append, report=_untold)
    return outcome, lines
