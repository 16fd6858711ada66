"""Runs in processes of this machine, one run at a time in each.

A process that dies takes its own run with it and nothing else; the runner hears of it and goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from allocator.sweep.engines.engine import Advanced, Ended, Event, Lost, Task
from allocator.sweep.execute import Materials, run_point

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

    Parameters
    ----------
    materials : what the runs read.
    slots : number of processes.
    """

    def __init__(self, materials: Materials, slots: int) -> None:
        self._materials = materials
        self._slots = slots
        self._workers: list[_Worker] = []
        # A fresh interpreter: a fork would copy the threads of solvers and progress bars in whatever state they are.
        self._context = multiprocessing.get_context("spawn")

    @property
    def slots(self) -> int:
        """Number of processes."""
        return self._slots

    def start(self, task: Task) -> None:
        """Give the run to an idle process, or a new one."""
        worker = next((worker for worker in self._workers if worker.key is None), None) or self._spawn()
        worker.key = task.point.key
        # Should the process have died while it was idle, `wait` sees its end and tells of the run.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(task)

    def wait(self, seconds: float) -> list[Event]:
        """Events of the processes."""
        ready = wait([worker.connection for worker in self._workers], timeout=seconds)
        events: list[Event] = []
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                event = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                events += self._died(worker)
                continue
            if isinstance(event, Ended):
                worker.key = None
            events.append(event)
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
        return [Lost(worker.key, f"its process ended by {how}")]


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
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(_run(task, materials, connection))
        except (BrokenPipeError, ConnectionResetError):
            return


def _run(task: Task, materials: Materials, connection: Connection) -> Ended:
    key = task.point.key
    with open(task.log, "w", encoding="utf-8", buffering=1) as log:
        # What solvers and warnings print belongs to the run too.
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        outcome = run_point(
            task.point,
            materials,
            keep_jobs=task.keep_jobs,
            log=lambda text: print(text, file=log),
            report=lambda share: _tell(connection, Advanced(key, share)),
        )
        sys.stdout.flush()
        sys.stderr.flush()
    return Ended(key, outcome)


def _tell(connection: Connection, event: Event) -> None:
    try:
        connection.send(event)
    except (BrokenPipeError, ConnectionResetError):
        # The sweep is gone; nobody wants this run any more.
        raise SystemExit(1) from None
