"""Processes of this machine, as its kernel tells of them in ``/proc``.

What the shim needs of the library stands here, in `folder` and in `output`: modules that import next to nothing.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection, Iterator
else:
    # Without the enumerations on top of it, which take longer to load than all else.
    import _signal as signal

__all__ = [
    "attempt",
    "boot_identity",
    "carriers",
    "children",
    "descendants",
    "end_processes",
    "is_alive",
    "signal_all",
    "start_time_of",
]


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


def carriers(variable: str) -> dict[str, list[int]]:
    """Processes of this user by the value that an environment variable had when they were started."""
    wanted = f"{variable}=".encode()
    found: dict[str, list[int]] = {}
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = file.read().split(b"\0")
        except OSError:
            continue
        for entry in entries:
            if entry.startswith(wanted):
                found.setdefault(os.fsdecode(entry[len(wanted) :]), []).append(pid)
    return found


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
