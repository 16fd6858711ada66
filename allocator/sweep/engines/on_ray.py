"""Runs on a Ray cluster, one for each of its CPUs. Needs the extra ``[ray]``.

This package must be installed on every node; files are read here and travel with the runs. Results and logs come back
here: the nodes need no common disk.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allocator.sweep.definition.point import Point
from allocator.sweep.engines.engine import Ended, Event, Lost, Task
from allocator.sweep.execute import Materials, Outcome, run_point
from throughputs import InputError
from throughputs.files import write_text

# A run depends on its point alone, so Ray may make it again when a node leaves.
RETRIES = 3

_SECONDS_TO_REACH = 5.0

_SHORT_PATIENCE = ("RAY_NUM_REDIS_GET_RETRIES", "4")
"""How many seconds Ray asks what answers but is no cluster, unless that variable says otherwise."""


class RayEngine:
    """Gives runs to a Ray cluster.

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
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
        self._running: dict[Any, Task] = {}

    @property
    def slots(self) -> int:
        """Runs at a time: the CPUs that the cluster has now, or fewer if so wanted."""
        cpus = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return cpus if self._wanted is None else min(self._wanted, cpus)

    def start(self, task: Task) -> None:
        """Hand a run to the cluster."""
        reference = self._remote.options(name=task.point.label).remote(task.point, task.keep_jobs, self._materials)
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
            return Lost(task.point.key, str(error).strip().splitlines()[0])
        _write_log(task.log, lines)
        return Ended(task.point.key, outcome)


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


def _run(point: Point, keep_jobs: bool, materials: Materials) -> tuple[Outcome, list[str]]:
    """On a node of the cluster: the outcome and the lines of the log."""
    lines: list[str] = []
    outcome = run_point(point, materials, keep_jobs=keep_jobs, log=lines.append, report=lambda _share: None)
    return outcome, lines


def _write_log(path: Path, lines: list[str]) -> None:
    write_text(path, "\n".join(lines) + "\n")
