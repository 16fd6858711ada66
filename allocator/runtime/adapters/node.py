"""What runs beside a job: processes as the kernel tells of them, their output, and a watch over them to their end.

It is sent to where jobs run, and imports the standard library alone, and `allocator.lease.files`, which is sent along.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import resource
import select
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ctypes import CDLL, get_errno
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Without the enumerations on top of it, which take long to load and to use.
    import _signal as signal

LOCK_FILE, RUN_FILE, EXIT_FILE, LOG_FILES = "run.lock", "run.json", "exit.json", ("log", "log.1")
"""Held as long as anything of a job runs; its last start; how a start ended; its output, and what came before."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of a command that could not be run, as shells have them."""

OTHERS_SECONDS = 10.0
"""What the other processes of a job have to end by themselves once one has failed."""

LOOK_SECONDS = 1.0
"""Between two looks at whether the processes of a start are to be killed."""

_PIECE, _LONGEST_LINE = 1 << 16, 1 << 16
"""Bytes that are read at once; of a line of one of several processes, a longer one is cut."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

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


def set_of_process(option: int, value: int) -> None:
    """Set an option of this process (prctl)."""
    if CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(get_errno(), "prctl")


def take_lock(folder: str) -> int | None:
    """A descriptor that holds the lock of a job, or None if another has it."""
    lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise
        return None
    return lock


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    probe.bind(("", 0))
    port = int(probe.getsockname()[1])
    probe.close()
    return port


def variables_of_rank(rank: int, local: int, ranks: int, locals: int, address: str, port: int) -> dict[str, str]:
    """What torchrun tells one of several processes, of which some are on its machine."""
    told = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": locals, "MASTER_PORT": port}
    return {name: str(value) for name, value in told.items()} | {"MASTER_ADDR": address}


class Log:
    """Output of a job: the last `limit` bytes or less, in two files; the older one is dropped for a new one.

    Parameters
    ----------
    folder : a descriptor of the one for the files; None: where the process is.
    """

    def __init__(self, limit: int, folder: int | None = None) -> None:
        self._folder = folder
        self._unsaid = 0
        self._most = limit // 2
        self._open()

    def _open(self) -> None:
        # a pipe that the job has put there is not waited for
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(LOG_FILES[0], flags, 0o600, dir_fd=self._folder)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Never fails: what the disk does not take is lost, and told later."""
        try:
            if self._unsaid:
                note = f"\n[{self._unsaid} bytes of output were lost: the disk was full]\n".encode()
                self._put(note)
                self._unsaid = 0
            while data:
                data = data[self._put(data) :]
        except OSError:
            self._unsaid += len(data)

    def _put(self, data: bytes) -> int:
        if self._size >= self._most:
            if not self._most:
                raise OSError(errno.EFBIG, "no output is kept")
            os.replace(*LOG_FILES, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.close(self._file)
            self._open()
        written = os.write(self._file, data[: self._most - self._size])
        self._size += written
        return written


class RankOutput:
    """Output of one of several processes: whole lines, each with the rank before it.

    Lines end as terminals have it, so that bars of progress, which return to the beginning of theirs, count as lines.
    """

    def __init__(self, log: Log | Stream, rank: int) -> None:
        self._log, self._label = log, f"rank {rank}: ".encode()
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Lines that are whole go to the log; what comes after the last is kept for the next time."""
        lines = (self._rest + data).splitlines(keepends=True)
        # a return may be half of the end of a line
        whole = not lines or lines[-1].endswith(b"\n")
        self._rest = b"" if whole else lines.pop()
        if len(self._rest) >= _LONGEST_LINE:
            lines.append(self._rest + b"\n")
            self._rest = b""
        if lines:
            self._log.write(b"".join(self._label + line for line in lines))

    def close(self) -> None:
        """The process has ended, perhaps in the middle of a line."""
        if self._rest:
            self.write(b"\n")


class Stream:
    """Output that another program keeps, through a descriptor, as long as it does."""

    def __init__(self, into: int) -> None:
        self._into = into

    def write(self, data: bytes) -> None:
        """All of it; nothing where nobody is there any more."""
        try:
            while data:
                data = data[os.write(self._into, data) :]
        except OSError:
            return


class Watch:
    """The processes of a start on this machine, from their beginning to the end of the last one.

    Parameters
    ----------
    log : takes their output. ranks : how many the job has; of several each line begins with the rank.
    mark : of the processes, which then have groups of their own and die with this one; None: they are of its group.
    first_rank : of those here.

    Attributes
    ----------
    asked : set to have all of them told to end.
    code, signal, reason : how the first that failed has ended.
    """

    def __init__(self, log: Log | Stream, ranks: int, mark: int | None = None, first_rank: int = 0) -> None:
        self._log, self._several, self._mark, self._first = log, ranks > 1, mark, first_rank
        self.asked = self._told = False
        self.code, self.signal, self.reason = 0, 0, "exit status 0"
        self._ranks: dict[int, int] = {}
        self._outputs: dict[int, Log | Stream | RankOutput] = {}
        self._overdue = inf
        self._wake, writer = os.pipe()
        for end in (self._wake, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def start(
        self,
        command: Sequence[str] | Sequence[bytes],
        environment: Mapping[str, str] | Mapping[bytes, bytes],
        folder: str | bytes,
    ) -> str:
        """Start the next process; returns why it could not be, "" if it could."""
        words = [os.fsencode(word) for word in command]
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        rank = self._first + len(self._outputs)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._outputs[reader] = RankOutput(self._log, rank) if self._several else self._log
        try:
            pid, failure = self._fork(words, variables, os.fsencode(folder), writer)
        except OSError as error:
            pid, failure = 0, f"no process can be started: {error}"
        os.close(writer)
        if failure:
            if pid:
                os.waitpid(pid, 0)
            self.code = NOT_FOUND if failure.startswith("not found") else NOT_EXECUTABLE
            self.reason = failure
        else:
            self._ranks[pid] = rank
        return failure

    def _fork(
        self, command: list[bytes], environment: dict[bytes, bytes], folder: bytes, output: int
    ) -> tuple[int, str]:
        """A process of the command that prints to `output`, and what was in the way of running it."""
        me = os.getpid()
        failure, told = os.pipe()
        # A signal between fork and exec would wake the wrong process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if not pid:
            step = "working directory"
            try:
                if self._mark is not None:
                    os.setpgid(0, 0)
                    mark_me(self._mark)
                    set_of_process(PR_SET_PDEATHSIG, signal.SIGKILL)
                    if os.getppid() != me:
                        os._exit(NOT_EXECUTABLE)
                for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
                    os.dup2(source, target)
                for number in (*_HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.chdir(folder)
                step = "command"
                os.execvpe(command[0], command, environment)
            except Exception as error:
                os.write(told, _why(step, command[0] if step == "command" else folder, environment, error).encode())
            finally:
                os._exit(NOT_FOUND)
        os.close(told)
        if self._mark is not None:
            attempt(os.setpgid, pid, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        with open(failure, "rb") as file:
            return pid, file.read().decode()

    def wait(self, look: Callable[[], bool] | None = None) -> None:
        """Until the last process has ended. `look` is asked every second whether all of them are to be killed."""
        poll = select.poll()
        for source in (self._wake, *self._outputs):
            poll.register(source, select.POLLIN)
        next_look = inf if look is None else 0.0
        while self._ranks:
            until = min(self._overdue, next_look)
            for ready, _ in poll.poll(None if until == inf else max(until - time.monotonic(), 0.0) * 1000.0):
                if ready == self._wake:
                    os.read(self._wake, _PIECE)
                elif not self._pump(ready):
                    poll.unregister(ready)
            if self.asked and not self._told:
                self._tell_to_end()
            self._reap()
            now = time.monotonic()
            if now >= self._overdue:
                self._send(signal.SIGKILL)
                self._overdue = inf
            if look is not None and now >= next_look:
                next_look = now + LOOK_SECONDS
                if look():
                    self._end_by(-signal.SIGKILL)
                    signal_all(descendants([os.getpid()]), signal.SIGKILL)

    def finish(self, seconds: float = inf) -> None:
        """End everything that is left, for so long at most, and keep the last output."""
        deadline, pause = time.monotonic() + seconds, 0.001
        while self._reap() and time.monotonic() < deadline:
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
            if rank is not None and status and not self.code:
                self._fail(rank, os.waitstatus_to_exitcode(status))

    def _fail(self, rank: int, code: int) -> None:
        self._end_by(code)
        if self._several:
            self.reason = f"rank {rank}: {self.reason}"
        # After a request to end it is the scheduler's to say how long the others have.
        if self._ranks and not self._told:
            self._tell_to_end()
            self._overdue = time.monotonic() + OTHERS_SECONDS

    def _end_by(self, code: int) -> None:
        self.code, self.signal = (code, 0) if code > 0 else (128 - code, -code)
        self.reason = f"ended by signal {-code}" if code < 0 else f"exit status {code}"

    def _tell_to_end(self) -> None:
        """Once: programs take a second signal as an order to drop everything."""
        self._told = True
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for pid in self._ranks:
            attempt(os.kill if self._mark is None else os.killpg, pid, number)


_HANDLED = (signal.SIGTERM, signal.SIGCHLD)


def _why(step: str, name: bytes, environment: dict[bytes, bytes], error: Exception) -> str:
    """Why a command could not be run; begins with "not found" if it was not."""
    shown = os.fsdecode(name)
    if not isinstance(error, FileNotFoundError):
        return f"the {step} cannot be used: {shown}: {error}"
    if step == "command" and b"/" not in name:
        return f"not found: the command {shown}, in PATH={os.fsdecode(environment.get(b'PATH', b''))}"
    return f"not found: the {step} {shown}" + (", or the interpreter that it names" if step == "command" else "")
