"""Processes of this machine, as its kernel tells of them in ``/proc``.

What the shim needs of the library stands here, in `folder` and in `output`: modules that import next to nothing.
"""

from __future__ import annotations

import os
import resource
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection, Iterator
else:
    # Without the enumerations on top of it, which take longer to load than all else.
    import _signal as signal


MARKED, EPOCHS = 1 << 62, 1 << 20
"""Marks are numbers from the one on; the last digits of each, to the base of the other, are an epoch."""

_RLIMIT_LOCKS = 10
"""A limit that Linux has not looked at since 2003."""


def mark_me(mark: int) -> None:
    """Mark this process and all that it will ever start, whatever they run, close, clear or detach from.

    A limit of resources is inherited, cannot be lost, and is told of by ``/proc`` for processes of any user. It is the
    soft one: another service among the processes can mark its own.
    """
    most = resource.getrlimit(_RLIMIT_LOCKS)[1]
    if most == resource.RLIM_INFINITY or most >= mark:
        attempt(resource.setrlimit, _RLIMIT_LOCKS, (mark, most))


def is_alive(pid: int, start_time: int) -> bool:
    """Whether a process runs, and is the one that was meant: numbers of processes come again."""
    return _stat(pid)[1:] == (start_time, True)


def boot_identity() -> str:
    """Of this run of the machine: processes of an earlier one are gone, whatever their numbers."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def children(pid: int) -> list[int]:
    """Of a process with one thread."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        # Not every kernel tells.
        return [other for other in _processes() if _stat(other)[0] == pid]


def descendants(pids: Collection[int]) -> list[int]:
    """Children of processes, their children, and so on."""
    by_parent: dict[int, list[int]] = {}
    for other in _processes():
        by_parent.setdefault(_stat(other)[0], []).append(other)
    found: list[int] = []
    front = list(pids)
    while front:
        below = by_parent.get(front.pop(), [])
        found += below
        front += below
    return found


def carriers(variable: str) -> dict[str | int, list[int]]:
    """Processes by the value that an environment variable had when they were started, and by their mark."""
    wanted = f"{variable}=".encode()
    found: dict[str | int, list[int]] = {}
    for pid in _processes():
        names: list[str | int] = [
            os.fsdecode(entry[len(wanted) :])
            for entry in _read(f"/proc/{pid}/environ").split(b"\0")
            if entry.startswith(wanted)
        ]
        limit = _read(f"/proc/{pid}/limits").partition(b"\nMax file locks ")[2].split(None, 1)
        if limit and limit[0].isdigit() and int(limit[0]) >= MARKED:
            names.append(int(limit[0]))
        if names and _runs(pid):
            for name in names:
                found.setdefault(name, []).append(pid)
    return found


def left_of(found: dict[str | int, list[int]], job: str, mark: int) -> dict[int, int]:
    """Of `carriers` those of a job, each with its epoch, 0 where it has no mark; `mark` is that of any epoch."""
    left = dict.fromkeys(found.get(job, ()), 0)
    for name, pids in found.items():
        if isinstance(name, int) and name // EPOCHS == mark // EPOCHS:
            left |= dict.fromkeys(pids, name % EPOCHS)
    return left


def _runs(pid: int) -> bool:
    """Whether any thread of a process does: the first one may have ended before the others."""
    try:
        return _stat(pid)[2] or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _read(path: str) -> bytes:
    """What is in a file of ``/proc``; nothing if the process is gone, or another user's."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def end_processes(pids: Collection[int], seconds: float) -> list[int]:
    """Kill processes; returns those that are still there after some seconds."""
    meant = {pid: _stat(pid)[1] for pid in pids}
    signal_all(meant, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while left := [pid for pid, start_time in meant.items() if is_alive(pid, start_time)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.005)
    return left


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def start_time_of(pid: int) -> int:
    """In clock ticks since that of the machine; 0 if the process is gone."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[int, int, bool]:
    """Parent, start time in clock ticks since that of the machine, and whether it still runs; zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes before, in parentheses, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, 0, False
    return int(fields[1]), int(fields[19]), fields[0] not in (b"Z", b"X")


def signal_all(pids: Collection[int], number: int) -> None:
    """Send a signal to those processes that are there."""
    for pid in pids:
        attempt(os.kill, pid, number)


def attempt(call: Callable[..., object], *arguments: object) -> None:
    """Where it does not matter whether it works: the process may be gone."""
    try:
        call(*arguments)
    except OSError:
        return
