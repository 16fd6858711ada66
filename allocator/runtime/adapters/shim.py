"""Watches over one start of a job, in a process of its own that outlives the scheduler.

Run by ``python -I -S`` with orders on standard input, of which it leaves a process for each. That one holds
``run.lock`` in the folder of the job for as long as anything of the job runs, says in ``run.json`` who it is, writes
the output to ``log`` and ``log.1``, and says in ``exit.json`` how it ended. Those files are all that the scheduler
needs to find the job again.

It runs beside every job and imports little, and nothing of this library: hence the JSON by hand, the module under that
of signals, whose enumerations alone take longer to load than all else, and no contextlib.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Collection, Iterator
else:
    import _signal as signal

__all__ = [
    "EXIT_FILE",
    "LOCK_FILE",
    "LOG_FILES",
    "RUN_FILE",
    "STARTED",
    "STARTED_BEFORE",
    "Order",
    "boot_identity",
    "carriers",
    "children",
    "descendants",
    "end_processes",
    "is_alive",
    "number_in",
    "reserve_exit",
    "take_lock",
    "write_exit",
]

LOCK_FILE, RUN_FILE, EXIT_FILE, LOG_FILES = "run.lock", "run.json", "exit.json", ("log", "log.1")

STARTED, STARTED_BEFORE = "started", "started before"
"""Answers to an order; any other is the reason why it was refused."""

EXIT_HELD, EXIT_STALE, EXIT_CANNOT = 3, 4, 5
"""Exit statuses of a refusal: another start has the lock; the epoch is not that of the lease; something is missing."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a command that could not be run, as shells have them."""

LOCK_PATIENCE = 2.0
"""Seconds to wait for the lock: a process that has written its exit.json needs a moment to go."""

OTHERS_SECONDS = 10.0
"""What the other processes of a job have to end by themselves once one has failed."""

SWEEP_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

_RESERVED_BYTES = 4096
_PIECE = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_HANDLED = (signal.SIGTERM, signal.SIGCHLD)


class Order:
    """What to start.

    Attributes
    ----------
    job, epoch : UUID, and number of the start.
    folder : of the job.
    directory : where the command starts.
    command : the arguments.
    environments : one for each process to start.
    log_bytes : of output that are kept at most.
    answer : descriptor to answer on; whoever does not listen there any more no longer wants the job.
    """

    def __init__(
        self,
        job: str,
        epoch: int,
        folder: bytes,
        directory: bytes,
        command: list[bytes],
        environments: list[dict[bytes, bytes]],
        log_bytes: int,
        answer: int,
    ) -> None:
        self.job, self.epoch = job, epoch
        self.folder, self.directory = folder, directory
        self.command, self.environments = command, environments
        self.log_bytes, self.answer = log_bytes, answer


class _RefusedError(Exception):
    """The order is not carried out."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _StartedBeforeError(Exception):
    """This epoch was started already."""


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
    _signal_all(meant, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while left := [pid for pid, start_time in meant.items() if is_alive(pid, start_time)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.005)
    return left


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _stat(pid: int) -> tuple[int, int, bool]:
    """Parent, start time in clock ticks since that of the machine, and whether it still runs; zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes before, in parentheses, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, 0, False
    return int(fields[1]), int(fields[19]), fields[0] not in (b"Z", b"X")


def _signal_all(pids: Collection[int], number: int) -> None:
    for pid in pids:
        _attempt(os.kill, pid, number)


def _attempt(call: Callable[..., object], *arguments: object) -> None:
    """Where it does not matter whether it works: the process may be gone."""
    try:
        call(*arguments)
    except OSError:
        return


def number_in(path: str, name: str) -> int | None:
    """A whole number in a JSON file that is one flat object; None where it is not there.

    The search cannot be misled by text: in a JSON string the quotes of ``"epoch":`` have backslashes before them.
    """
    try:
        with open(path) as file:
            value = file.read().partition(f'"{name}":')[2]
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
    """A descriptor that holds the lock of a job's folder, or None if another has it."""
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


class _Log:
    """Output of a job: the last `limit` bytes or less, in two files; the older one is dropped for a new one."""

    def __init__(self, limit: int) -> None:
        self.lost = 0
        self._unsaid = 0
        self._most = limit // 2
        self._open()

    def _open(self) -> None:
        self._file = os.open(LOG_FILES[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Never fails: what the disk does not take is lost, and counted."""
        try:
            if self._unsaid:
                note = f"\n[{self._unsaid} bytes of output were lost: the disk was full]\n".encode()
                self._put(note)
                self._unsaid = 0
            while data:
                data = data[self._put(data) :]
        except OSError:
            self.lost += len(data)
            self._unsaid += len(data)

    def _put(self, data: bytes) -> int:
        if self._size >= self._most:
            if not self._most:
                raise OSError(errno.EFBIG, "no output is kept")
            os.replace(*LOG_FILES)
            os.close(self._file)
            self._open()
        written = os.write(self._file, data[: self._most - self._size])
        self._size += written
        return written


class _Watch:
    """The processes of a job, from their start to the end of the last one."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._ranks: dict[int, int] = {}
        self._told_to_end = False
        self._overdue: float | None = None
        self._code, self._signal, self._reason = 0, 0, "exit status 0"
        self._log = _Log(order.log_bytes)
        self._output, self._writer = os.pipe()
        self._wake, wake_writer = os.pipe()
        for end in (self._output, self._wake, wake_writer):
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
            pid, failure = self._fork(environment, null)
            if failure:
                os.waitpid(pid, 0)
                self._code = NOT_FOUND if failure.startswith("not found") else NOT_EXECUTABLE
                self._reason = failure
                return failure
            self._ranks[pid] = rank
        os.close(null)
        os.close(self._writer)
        return None

    def _fork(self, environment: dict[bytes, bytes], null: int) -> tuple[int, str]:
        """A process of the command, and what was in the way of running it."""
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
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != shim:
                    os._exit(NOT_EXECUTABLE)
                for target, source in enumerate((null, self._writer, self._writer)):
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
        _attempt(os.setpgid, pid, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        with open(failure, "rb") as file:
            return pid, file.read().decode()

    def wait(self) -> None:
        """Until the last process has ended."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        while self._ranks:
            patience = None if self._overdue is None else max(0.0, self._overdue - time.monotonic()) * 1000.0
            for ready, _ in poll.poll(patience):
                if ready == self._wake:
                    os.read(self._wake, _PIECE)
                elif not self._pump():
                    poll.unregister(self._output)
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
            _signal_all(descendants([os.getpid()]), signal.SIGKILL)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        # A process that is not ours may hold the other end and write on: no more than a pipe holds.
        for _ in range(32):
            if not self._pump():
                break

    def _pump(self) -> bool:
        """Whether there may be more output."""
        try:
            data = os.read(self._output, _PIECE)
        except BlockingIOError:
            return False
        self._log.write(data)
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
            _attempt(os.killpg, group, number)


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


def _claim(job: str, epoch: int) -> None:
    """Take the lock of the folder, for good, or refuse; processes of an earlier start are ended."""
    deadline = time.monotonic() + LOCK_PATIENCE
    while take_lock(".") is None:
        last = number_in(RUN_FILE, "epoch")
        if last == epoch:
            raise _StartedBeforeError
        pid, start_time = (number_in(RUN_FILE, name) or 0 for name in ("pid", "start_time"))
        runs = number_in(EXIT_FILE, "epoch") != last and is_alive(pid, start_time)
        if runs or time.monotonic() >= deadline:
            raise _RefusedError(EXIT_HELD, f"another start of the job runs: epoch {last}")
        time.sleep(0.005)
    lease, last = number_in("lease.json", "epoch"), number_in(RUN_FILE, "epoch")
    if last == epoch:
        raise _StartedBeforeError
    if lease != epoch or (last is not None and last > epoch):
        raise _RefusedError(
            EXIT_STALE, f"epoch {epoch} is stale: the lease is of epoch {lease}, the last start of {last}"
        )
    if last is not None and number_in(EXIT_FILE, "epoch") != last:
        while strays := carriers("ALLOCATOR_JOB_ID").get(job) or carriers("ALLOCATOR_JOB_ID").get(job):
            # Looked for twice: one that ends between being listed and being read may leave a child that was not listed.
            left = end_processes({*strays, *descendants(strays)}, SWEEP_SECONDS)
            if left:
                raise _RefusedError(EXIT_HELD, f"processes of epoch {last} do not end: {', '.join(map(str, left))}")


def _write_run(job: str, epoch: int) -> None:
    me = os.getpid()
    told: dict[str, int | float | str | None] = {"epoch": epoch, "job": job, "pid": me, "start_time": _stat(me)[1]}
    told |= {"boot": boot_identity(), "started_at": time.time()}
    with open(os.open(_partial(".", RUN_FILE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(_json(told))
    os.replace(_partial(".", RUN_FILE), RUN_FILE)


def _answer(text: str) -> None:
    """Tell the adapter, which may be gone, and hang up."""
    _attempt(os.write, 1, text.encode())
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _carry_out(order: Order) -> None:
    os.chdir(order.folder)
    _claim(order.job, order.epoch)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    reserved = reserve_exit(".")
    watch = _Watch(order)
    listener = select.poll()
    listener.register(1, 0)
    if listener.poll(0):
        raise _RefusedError(EXIT_CANNOT, "nobody waits for the job to start")
    _write_run(order.job, order.epoch)
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
        end_processes(descendants([os.getpid()]), SWEEP_SECONDS)
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
    """Leave a process for each order on standard input: to start Python takes longer than all the rest."""
    orders = [Order(**told) for told in marshal.load(sys.stdin.buffer)]
    highest = max(order.answer for order in orders)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for order in orders:
        if not os.fork():
            os.setsid()
            os.dup2(order.answer, 1)
            os.dup2(order.answer, 2)
            os.closerange(3, max(highest, null) + 1)
            os._exit(_obey(order))
        os.close(order.answer)


if __name__ == "__main__":
    main()
