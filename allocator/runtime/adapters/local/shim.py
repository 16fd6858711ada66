"""Watches over one start of a job, in a process of its own that outlives the scheduler.

A process run by ``python -I -S`` takes orders as long as the scheduler runs, and leaves another one for each, the shim
of that start. It holds ``run.lock`` in a folder of the scheduler's as long as anything of the job runs, says in
``run.json`` who it is, writes the output to ``log`` and ``log.1`` in the folder of the job, and says in ``exit.json``
how it ended. Those files, each replaced as a whole, are all that the scheduler needs to find the job again.

It runs beside every job: it imports little, and of this library only the modules that it is sent along with.
"""

from __future__ import annotations

import _socket
import json
import marshal
import os
import select
import sys
import time
from types import SimpleNamespace

from allocator.lease.whole import LEASE_FILE, epoch_in, write_bytes
from allocator.runtime.adapters.node import (
    EXIT_FILE,
    PR_SET_CHILD_SUBREAPER,
    RUN_FILE,
    Log,
    Watch,
    attempt,
    boot_identity,
    carriers,
    descendants,
    end_processes,
    is_alive,
    left_of,
    set_of_process,
    start_time_of,
    take_lock,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Without the enumerations on top of it, which take long to load and to use.
    import _signal as signal

STARTED, STARTED_BEFORE = "started", "started before"
"""The answers to an order; any other is the reason why it was refused."""

LOCK_PATIENCE, LEAVING_PATIENCE = 1.0, 20.0
"""Seconds to wait for the lock: of one that was killed, or may run on; of one that has written its exit.json and goes.
That takes a moment, on a machine that has time for it."""

SWEEP_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

MOST_ORDERS = 128
"""On their way at once: the kernel keeps some hundreds."""

_RESERVED_BYTES = 4096


Order = SimpleNamespace
"""What to start.

Attributes
----------
job, epoch : UUID, and number of the start.
folder : of the job. records : the folder where is kept what is known of its starts.
mark : of the processes of this start, see `allocator.runtime.adapters.node.mark_me`.
directory : where the command starts.
command : the arguments.
environments : one for each process to start. ranked : whether they have the variables of torchrun.
guard : number and start time of a process with which the job ends; zeros: of none.
carrier : a variable that all its processes have, with `job` as value.
log_bytes : of output that are kept at most.
"""


class _RefusedError(Exception):
    """The order is not carried out."""


def reserve_exit(folder: str) -> int:
    """Room for exit.json, taken while there is some: the end of a job can then be told on a full disk."""
    reserved = os.open(os.path.join(folder, f".{EXIT_FILE}"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(reserved, 0, _RESERVED_BYTES)
    except OSError:
        os.close(reserved)
        raise
    return reserved


def write_exit(folder: str, reserved: int, epoch: int, code: int | None, number: int, reason: str) -> None:
    """Say how a start ended, in the file that `reserve_exit` has prepared."""
    told = {"epoch": epoch, "code": code, "signal": number, "ended_at": time.time(), "reason": reason[:300]}
    text = json.dumps(told).encode()
    os.pwrite(reserved, text, 0)
    os.ftruncate(reserved, len(text))
    os.replace(os.path.join(folder, f".{EXIT_FILE}"), os.path.join(folder, EXIT_FILE))


def _claim(order: Order) -> None:
    """Take the lock of the job, for good, or refuse; processes of an earlier start are ended."""
    epoch = order.epoch
    began = time.monotonic()
    while take_lock(".") is None:
        last = epoch_in(RUN_FILE)
        if last == epoch:
            raise _RefusedError(STARTED_BEFORE)
        leaves = last >= 0 and epoch_in(EXIT_FILE) == last
        if time.monotonic() - began >= (LEAVING_PATIENCE if leaves else LOCK_PATIENCE):
            raise _RefusedError(f"another start of the job runs: epoch {last}")
        time.sleep(0.005)
    lease, last = epoch_in(os.path.join(os.fsdecode(order.folder), LEASE_FILE)), epoch_in(RUN_FILE)
    if epoch in (last, epoch_in(EXIT_FILE)):
        raise _RefusedError(STARTED_BEFORE)
    if lease != epoch or last > epoch:
        raise _RefusedError(f"epoch {epoch} is stale: the lease is of epoch {lease}, the last start of {last}")
    # Where the lock was deleted under an earlier start, that still has the one of a file that is no longer there.
    forgotten = epoch > 1 if last < 0 else epoch_in(EXIT_FILE) != last
    if forgotten:
        # Looked for twice: one that ends between being listed and being read may leave a child that was not listed.
        while strays := _strays(order) or _strays(order):
            left = end_processes({*strays, *descendants(strays)}, SWEEP_SECONDS)
            if left:
                raise _RefusedError(f"processes of epoch {last} do not end: {', '.join(map(str, left))}")


def _strays(order: Order) -> dict[int, int]:
    return left_of(carriers(order.carrier), order.job, order.mark)


def _answer(text: str) -> None:
    """Tell the adapter, which may be gone, and hang up."""
    attempt(os.write, 1, text.encode())
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _carry_out(order: Order) -> None:
    folder = os.open(order.folder, os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(order.records)
    _claim(order)
    set_of_process(PR_SET_CHILD_SUBREAPER, 1)
    reserved, log = reserve_exit("."), Log(order.log_bytes, folder)
    # Standard output is where the answer goes.
    listener = select.poll()
    listener.register(1, 0)
    if listener.poll(0):
        raise _RefusedError("nobody waits for the job to start")
    me = os.getpid()
    run = {"epoch": order.epoch, "pid": me, "start_time": start_time_of(me), "boot": boot_identity()}
    write_bytes(RUN_FILE, json.dumps(run).encode())
    # From here on the epoch counts as started, and its end is always told.
    refused = "the job was not started"

    def left_alone() -> bool:
        return bool(order.guard[0]) and not is_alive(*order.guard)

    code: int | None
    try:
        first = order.environments[0] if order.ranked else {}
        watch = Watch(log, int(first.get(b"WORLD_SIZE", 1)), order.mark, int(first.get(b"RANK", 0)))
        signal.signal(signal.SIGTERM, lambda *_: setattr(watch, "asked", True))
        starts = (watch.start(order.command, environment, order.directory) for environment in order.environments)
        refused = next(filter(None, starts), "")
        if not refused:
            _answer(STARTED)
            watch.wait(left_alone if order.guard[0] else None)
        watch.finish()
        code, number, reason = watch.code, watch.signal, watch.reason
        if code and left_alone():
            code, reason = None, "it was ended with the process that it depends on"
    except Exception as error:
        while end_processes(descendants([me]), SWEEP_SECONDS):
            pass
        code, number, reason = None, 0, f"the process that watches the job failed: {error!r}"
    write_exit(".", reserved, order.epoch, code, number, reason)
    if refused:
        raise _RefusedError(reason)


def _obey(order: Order) -> None:
    """Carry out an order, and answer."""
    try:
        _carry_out(order)
    except _RefusedError as refusal:
        _answer(str(refusal))
    except OSError as error:
        _answer(f"{error.strerror}: {os.fsdecode(error.filename or b'')}")


def main() -> None:
    """Leave a process for each order that comes, until nobody is left to send one: to start Python takes the longest.

    Standard output is a socket. A message on it has the descriptor of another, from which the order is read up to its
    end, and on which it is answered.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.chdir("/")
    channel = _socket.socket(fileno=os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    while True:
        data, received, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
        if not data:
            return
        ((_, _, number),) = received
        asked = int.from_bytes(number, sys.byteorder)
        if not os.fork():
            os.setsid()
            os.dup2(asked, 1)
            os.dup2(asked, 2)
            # And whatever else the service has left open.
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2:
                    attempt(os.close, int(name))
            with open(1, "rb", closefd=False) as file:
                order = Order(**marshal.load(file))
            _obey(order)
            os._exit(0)
        os.close(asked)
