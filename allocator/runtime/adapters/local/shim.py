"""Watches over one start of a job, in a process of its own that outlives the scheduler.

A process run by ``python -I -S`` takes orders as long as the scheduler runs, and leaves another one for each, the shim
of that start. It holds ``run.lock`` in a folder of the scheduler's as long as anything of the job runs, says in
``run.json`` who it is, writes the output to ``log`` and ``log.1`` in the folder of the job, and says in ``exit.json``
how it ended. Those files are all that the scheduler needs to find the job again.

It runs beside every job: it imports little, and of this library only the modules that it is sent along with.
"""

from __future__ import annotations

import _socket
import ctypes
import marshal
import os
import select
import sys
import time

from allocator.runtime.adapters.local.folder import (
    EXIT_FILE,
    RUN_FILE,
    number_in,
    reserve_exit,
    take_lock,
    write_exit,
    write_run,
)
from allocator.runtime.adapters.local.output import Log, RankOutput
from allocator.runtime.adapters.local.processes import (
    attempt,
    carriers,
    descendants,
    end_processes,
    left_of,
    mark_me,
    signal_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # As in `processes`.
    import _signal as signal

STARTED, STARTED_BEFORE = "started", "started before"
"""Answers to an order; any other is the reason why it was refused."""

EXIT_HELD, EXIT_STALE, EXIT_CANNOT = 3, 4, 5
"""Exit statuses of a refusal: another start has the lock; the epoch is not that of the lease; something is missing."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a command that could not be run, as shells have them."""

LOCK_PATIENCE, LEAVING_PATIENCE = 1.0, 20.0
"""Seconds to wait for the lock: of one that was killed, or may run on; of one that has written its exit.json and goes.
That takes a moment, on a machine that has time for it."""

OTHERS_SECONDS = 10.0
"""What the other processes of a job have to end by themselves once one has failed."""

SWEEP_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

MOST_ORDERS = 128
"""In one message: the kernel passes no more than 253 descriptors."""

_PIECE = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_HANDLED = (signal.SIGTERM, signal.SIGCHLD)


class Order:
    """What to start.

    Attributes
    ----------
    job, epoch : UUID, and number of the start.
    folder : of the job. records : the folder where is kept what is known of its starts.
    mark : of the processes of this start, see `mark_me`.
    directory : where the command starts.
    command : the arguments.
    environments : one for each process to start.
    log_bytes : of output that are kept at most.
    """

    def __init__(
        self,
        job: str,
        epoch: int,
        folder: bytes,
        records: bytes,
        mark: int,
        directory: bytes,
        command: list[bytes],
        environments: list[dict[bytes, bytes]],
        log_bytes: int,
    ) -> None:
        self.job, self.epoch = job, epoch
        self.folder, self.records, self.directory = folder, records, directory
        self.mark = mark
        self.command, self.environments = command, environments
        self.log_bytes = log_bytes


class _RefusedError(Exception):
    """The order is not carried out."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _StartedBeforeError(Exception):
    """This epoch was started already."""


class _Watch:
    """The processes of a job, from their start to the end of the last one; `folder` is a descriptor of its folder."""

    def __init__(self, order: Order, folder: int) -> None:
        self._order = order
        self._ranks: dict[int, int] = {}
        self._told_to_end = False
        self._overdue: float | None = None
        self._code, self._signal, self._reason = 0, 0, "exit status 0"
        self._log = Log(order.log_bytes, folder)
        several = len(order.environments) > 1
        pipes = [os.pipe() for _ in order.environments]
        self._writers = [writer for _, writer in pipes]
        self._outputs = {
            reader: RankOutput(self._log, rank) if several else self._log for rank, (reader, _) in enumerate(pipes)
        }
        self._wake, wake_writer = os.pipe()
        for end in (*self._outputs, self._wake, wake_writer):
            os.set_blocking(end, False)
        self._terminated = False
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    @property
    def outcome(self) -> tuple[int, int, str, int]:
        """Exit status, signal, reason, and bytes of output that were lost."""
        return self._code, self._signal, self._reason, self._log.lost

    def _on_terminate(self, *_: object) -> None:
        self._terminated = True

    def start(self) -> str | None:
        """Start all processes; returns why one could not be."""
        null = os.open(os.devnull, os.O_RDONLY)
        for rank, environment in enumerate(self._order.environments):
            pid, failure = self._fork(environment, null, self._writers[rank])
            if failure:
                os.waitpid(pid, 0)
                self._code = NOT_FOUND if failure.startswith("not found") else NOT_EXECUTABLE
                self._reason = failure
                return failure
            self._ranks[pid] = rank
        os.close(null)
        for writer in self._writers:
            os.close(writer)
        return None

    def _fork(self, environment: dict[bytes, bytes], null: int, output: int) -> tuple[int, str]:
        """A process of the command that prints to `output`, and what was in the way of running it."""
        command, directory = self._order.command, self._order.directory
        shim = os.getpid()
        failure, told = os.pipe()
        # A signal between fork and exec would wake the wrong process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if not pid:
            step = "working directory"
            try:
                os.setpgid(0, 0)
                mark_me(self._order.mark)
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != shim:
                    os._exit(NOT_EXECUTABLE)
                for target, source in enumerate((null, output, output)):
                    os.dup2(source, target)
                for number in (*_HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.chdir(directory)
                step = "command"
                os.execvpe(command[0], command, environment)
            except Exception as error:
                os.write(told, _why(step, command[0] if step == "command" else directory, environment, error).encode())
            finally:
                os._exit(NOT_FOUND)
        os.close(told)
        attempt(os.setpgid, pid, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        with open(failure, "rb") as file:
            return pid, file.read().decode()

    def wait(self) -> None:
        """Until the last process has ended."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for output in self._outputs:
            poll.register(output, select.POLLIN)
        while self._ranks:
            patience = None if self._overdue is None else max(0.0, self._overdue - time.monotonic()) * 1000.0
            for ready, _ in poll.poll(patience):
                if ready == self._wake:
                    os.read(self._wake, _PIECE)
                elif not self._pump(ready):
                    poll.unregister(ready)
            if self._terminated and not self._told_to_end:
                self._tell_to_end()
            self._reap()
            if self._overdue is not None and time.monotonic() >= self._overdue:
                self._signal_ranks(signal.SIGKILL)
                self._overdue = None

    def finish(self) -> None:
        """End everything that is left, and keep the last output."""
        pause = 0.001
        while self._reap():
            signal_all(descendants([os.getpid()]), signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        for source, kept in self._outputs.items():
            # A process that is not ours may hold the other end and write on: no more than a pipe holds.
            for _ in range(32):
                if not self._pump(source):
                    break
            if isinstance(kept, RankOutput):
                kept.close()

    def _pump(self, source: int) -> bool:
        """Whether there may be more output of a process."""
        try:
            data = os.read(source, _PIECE)
        except BlockingIOError:
            return False
        self._outputs[source].write(data)
        return bool(data)

    def _reap(self) -> bool:
        """Whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            rank = self._ranks.pop(pid, None)
            if rank is not None and status and not self._code:
                self._fail(rank, os.waitstatus_to_exitcode(status))

    def _fail(self, rank: int, code: int) -> None:
        self._code, self._signal = (code, 0) if code > 0 else (128 - code, -code)
        self._reason = f"ended by signal {-code}" if code < 0 else f"exit status {code}"
        if len(self._order.environments) > 1:
            self._reason = f"rank {rank}: {self._reason}"
        # After a request to end it is the scheduler's to say how long the others have.
        if self._ranks and not self._told_to_end:
            self._tell_to_end()
            self._overdue = time.monotonic() + OTHERS_SECONDS

    def _tell_to_end(self) -> None:
        """Once: programs take a second signal as an order to drop everything."""
        self._told_to_end = True
        self._signal_ranks(signal.SIGTERM)

    def _signal_ranks(self, number: int) -> None:
        for group in self._ranks:
            attempt(os.killpg, group, number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _why(step: str, name: bytes, environment: dict[bytes, bytes], error: Exception) -> str:
    """Why a command could not be run; begins with "not found" if it was not."""
    shown = os.fsdecode(name)
    if not isinstance(error, FileNotFoundError):
        return f"the {step} cannot be used: {shown}: {error}"
    if step == "command" and b"/" not in name:
        return f"not found: the command {shown}, in PATH={os.fsdecode(environment.get(b'PATH', b''))}"
    return f"not found: the {step} {shown}" + (", or the interpreter that it names" if step == "command" else "")


def _claim(order: Order) -> None:
    """Take the lock of the job, for good, or refuse; processes of an earlier start are ended."""
    job, epoch = order.job, order.epoch
    began = time.monotonic()
    while take_lock(".") is None:
        last = number_in(RUN_FILE, "epoch")
        if last == epoch:
            raise _StartedBeforeError
        leaves = last is not None and number_in(EXIT_FILE, "epoch") == last
        if time.monotonic() - began >= (LEAVING_PATIENCE if leaves else LOCK_PATIENCE):
            raise _RefusedError(EXIT_HELD, f"another start of the job runs: epoch {last}")
        time.sleep(0.005)
    lease, last = (
        number_in(os.path.join(os.fsdecode(order.folder), "lease.json"), "epoch"),
        number_in(RUN_FILE, "epoch"),
    )
    if epoch in (last, number_in(EXIT_FILE, "epoch")):
        raise _StartedBeforeError
    if lease != epoch or (last is not None and last > epoch):
        raise _RefusedError(
            EXIT_STALE, f"epoch {epoch} is stale: the lease is of epoch {lease}, the last start of {last}"
        )
    # Where the lock was deleted under an earlier start, that still has the one of a file that is no longer there.
    forgotten = epoch > 1 if last is None else number_in(EXIT_FILE, "epoch") != last
    if forgotten:
        # Looked for twice: one that ends between being listed and being read may leave a child that was not listed.
        while strays := _strays(job, order.mark) or _strays(job, order.mark):
            left = end_processes({*strays, *descendants(strays)}, SWEEP_SECONDS)
            if left:
                raise _RefusedError(EXIT_HELD, f"processes of epoch {last} do not end: {', '.join(map(str, left))}")


def _strays(job: str, mark: int) -> dict[int, int]:
    return left_of(carriers("ALLOCATOR_JOB_ID"), job, mark)


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
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    reserved = reserve_exit(".")
    watch = _Watch(order, folder)
    # Standard output is where the answer goes.
    listener = select.poll()
    listener.register(1, 0)
    if listener.poll(0):
        raise _RefusedError(EXIT_CANNOT, "nobody waits for the job to start")
    write_run(order.job, order.epoch)
    # From here on the epoch counts as started, and its end is always told.
    refused: str | None = "the job was not started"
    try:
        refused = watch.start()
        if not refused:
            _answer(STARTED)
            watch.wait()
        watch.finish()
        outcome: tuple[int | None, int, str, int] = watch.outcome
    except Exception as error:
        while end_processes(descendants([os.getpid()]), SWEEP_SECONDS):
            pass
        outcome = (None, 0, f"the process that watches the job failed: {error!r}", 0)
    write_exit(".", reserved, order.epoch, *outcome)
    if refused:
        raise _RefusedError(EXIT_CANNOT, outcome[2])


def _obey(order: Order) -> int:
    """Carry out an order; returns the exit status."""
    try:
        _carry_out(order)
    except _StartedBeforeError:
        _answer(STARTED_BEFORE)
    except _RefusedError as refusal:
        _answer(str(refusal))
        return refusal.code
    except OSError as error:
        _answer(f"{error.strerror}: {os.fsdecode(error.filename or b'')}")
        return EXIT_CANNOT
    return 0


def main() -> None:
    """Leave a process for each order that comes, until nobody is left to send one: to start Python takes the longest.

    Standard output is a socket. A message on it has descriptors only: that of a file of orders, and those to answer
    them on.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.chdir("/")
    channel = _socket.socket(fileno=os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    while True:
        data, received, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4 * (MOST_ORDERS + 1)))
        if not data:
            return
        numbers = b"".join(content for _, _, content in received)
        descriptors = [int.from_bytes(numbers[i : i + 4], sys.byteorder) for i in range(0, len(numbers), 4)]
        with open(descriptors[0], "rb") as file:
            orders = [Order(**told) for told in marshal.load(file)]
        for order, answer in zip(orders, descriptors[1:], strict=True):
            if not os.fork():
                os.setsid()
                os.dup2(answer, 1)
                os.dup2(answer, 2)
                # Those of the other orders, and whatever else the service has left open.
                for name in os.listdir("/proc/self/fd"):
                    if int(name) > 2:
                        attempt(os.close, int(name))
                os._exit(_obey(order))
            os.close(answer)
