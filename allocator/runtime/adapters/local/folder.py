"""What a shim keeps of a job, each file replaced as a whole, in a folder apart from that of the job.

::

    run.lock     held as long as anything of the job runs
    run.json     the last start: its epoch, and who watches over it
    exit.json    how a start ended
"""

from __future__ import annotations

import fcntl
import os
import time

from allocator.runtime.adapters.local.processes import boot_identity, start_time_of

LOCK_FILE, RUN_FILE, EXIT_FILE = "run.lock", "run.json", "exit.json"

_RESERVED_BYTES, _MOST_BYTES = 4096, 65536


def number_in(path: str, name: str) -> int | None:
    """A whole number in a JSON file that is one flat object; None where it is not there.

    The search cannot be misled by text: in a JSON string the quotes of ``"epoch":`` have backslashes before them.
    """
    try:
        # what the job has put there instead, a pipe say, is not waited for
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            value = os.read(file, _MOST_BYTES).decode().partition(f'"{name}":')[2]
        finally:
            os.close(file)
        return int(value.partition(",")[0].rstrip().rstrip("}"))
    except (OSError, ValueError):
        return None


def _json(values: dict[str, int | float | str | None]) -> bytes:
    """A flat object."""
    members = []
    for name, value in values.items():
        if isinstance(value, str):
            plain = value.encode("ascii", "backslashreplace").decode()
            text = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{ord(c):04x}" for c in plain)
            members.append(f'"{name}": "{text}"')
        else:
            members.append(f'"{name}": {"null" if value is None else value}')
    return f"{{{', '.join(members)}}}".encode()


def take_lock(folder: str) -> int | None:
    """A descriptor that holds the lock of a job, or None if another has it."""
    lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def reserve_exit(folder: str) -> int:
    """Room for exit.json, taken while there is some: the end of a job can then be told on a full disk."""
    reserved = os.open(_partial(folder, EXIT_FILE), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(reserved, 0, _RESERVED_BYTES)
    except OSError:
        os.close(reserved)
        raise
    return reserved


def write_exit(folder: str, reserved: int, epoch: int, code: int | None, number: int, reason: str, lost: int) -> None:
    """Say how a start ended, in the file that `reserve_exit` has prepared; `lost` counts bytes of output."""
    told: dict[str, int | float | str | None] = {"epoch": epoch, "code": code, "signal": number}
    text = _json(told | {"ended_at": time.time(), "lost_output": lost, "reason": reason[:500]})
    os.pwrite(reserved, text, 0)
    os.ftruncate(reserved, len(text))
    os.replace(_partial(folder, EXIT_FILE), os.path.join(folder, EXIT_FILE))


def _partial(folder: str, name: str) -> str:
    return os.path.join(folder, f".{name}")


def write_run(job: str, epoch: int) -> None:
    """Say that this process watches over a start, in the folder where it is; then the epoch has started."""
    me = os.getpid()
    told: dict[str, int | float | str | None] = {"epoch": epoch, "job": job, "pid": me, "start_time": start_time_of(me)}
    told |= {"boot": boot_identity(), "started_at": time.time()}
    with open(os.open(_partial(".", RUN_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_json(told))
    os.replace(_partial(".", RUN_FILE), RUN_FILE)
