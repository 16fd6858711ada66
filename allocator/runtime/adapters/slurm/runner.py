"""What Slurm runs for a job: a copy of this file in the job's folder, which is the working directory.

Nothing but Python need be installed on the nodes. The file runs as the batch script, on the first node of a job; of a
job that has processes on several nodes, that batch script starts it again on each of them, by srun.

A job that Slurm queues again keeps the command line and the environment that it was submitted with. So the order is a
file, ``start.json``, and before the command begins this script makes sure that it is the one copy that may run:

1. the lease is of the order's epoch, and Slurm has queued the job again as often as the order says;
2. nobody else holds ``run.lock``, which the processes of the command inherit;
3. ``run.json`` says that the epoch was not begun before.

While the command runs it looks at two files every second. Where the lease is of a newer epoch, as after a node was cut
off and the job was started elsewhere, or where ``kill.json`` names this epoch, all processes are killed: Slurm itself
sends SIGTERM first, and does not find all processes in every way that it can be set to follow them. At the end
``exit.json`` says how it went.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import queue
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

START_FILE, RUN_FILE, EXIT_FILE, LOCK_FILE = "start.json", "run.json", "exit.json", "run.lock"
KILL_FILE, LEASE_FILE, LOG_FILES, RUNNER_FILE = "kill.json", "lease.json", ("log", "log.1"), "runner.py"

REFUSED, NOT_EXECUTABLE, NOT_FOUND = 75, 126, 127
"""Exit statuses: this copy must not run (the shell's "temporary failure"); the command cannot be run."""

NEWER_EPOCH = -1
"""Instead of an exit status: the command was killed as another copy of the job may run."""

LOOK_SECONDS = 1.0
"""Between two looks at the lease."""

LATE_SECONDS = 5.0
"""How long a lease may be older than the order: a shared file system shows new files late."""

OTHERS_SECONDS = 10.0
"""What the other processes of a job have to end by themselves once one has failed."""

SWEEP_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

PIPE_SECONDS = 1.0
"""How long to wait for the last output, which a process that was left behind may hold open."""

LONGEST_LINE = 1 << 16
"""Bytes of a line of a rank; a longer one is cut into several."""

PR_SET_CHILD_SUBREAPER = 36

FROM_SLURM = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
"""Variables of the GPUs that Slurm gave; those that begin with SLURM count as well."""


class RefusalError(Exception):
    """This copy must not run."""


def read(name: str) -> dict[str, Any]:
    """A file of the job's folder; empty where it is absent or not understood."""
    try:
        # what the command has put there instead, a pipe say, is not waited for
        with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            told = json.loads(file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"")
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def write(name: str, content: dict[str, Any]) -> None:
    """Replace a file as a whole."""
    partial = f".{name}.{socket.gethostname()}.{os.getpid()}"
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    os.replace(partial, name)


def restarts() -> int:
    """How often Slurm has queued this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def check(order: dict[str, Any]) -> None:
    """Whether the order is for this copy, and of the lease's epoch."""
    if not order or os.environ.get("SLURM_JOB_NAME") != order["name"]:
        raise RefusalError(f"no order for the job {os.environ.get('SLURM_JOB_NAME')} in {os.getcwd()}")
    if restarts() != order["restarts"]:
        raise RefusalError(
            f"Slurm has queued the job again {restarts()} times, and the order is for {order['restarts']}"
        )
    deadline = time.monotonic() + LATE_SECONDS
    while True:
        lease = read(LEASE_FILE)
        epoch = lease.get("epoch", -1) if lease.get("job") == order["job"] else -1
        if epoch == order["epoch"]:
            return
        if epoch > order["epoch"] or time.monotonic() > deadline:
            raise RefusalError(f"epoch {order['epoch']} is stale: the lease is of epoch {epoch}")
        time.sleep(0.1)


def take_lock(seconds: float) -> int:
    """A descriptor that holds the lock of the job."""
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RefusalError(f"another copy still runs: {read(RUN_FILE)}") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            print(f"no locks on this file system ({error.strerror}): the lease alone keeps copies apart", flush=True)
            return lock
        time.sleep(0.05)


def claim(order: dict[str, Any]) -> int:
    """Make sure that this copy alone runs; the descriptor that says so to others."""
    check(order)
    lock = take_lock(order["lock_seconds"])
    # The lease may have gone on while this copy waited.
    check(order)
    last = read(RUN_FILE).get("epoch", -1)
    if last >= order["epoch"]:
        raise RefusalError(f"epoch {order['epoch']} was begun before: the last one was {last}")
    devices = os.environ.get("SLURM_JOB_GPUS", "")
    told = {"epoch": order["epoch"], "job": order["job"], "slurm_job": os.environ.get("SLURM_JOB_ID", "")}
    told |= {"nodes": os.environ.get("SLURM_JOB_NODELIST", ""), "gpus": devices}
    write(RUN_FILE, told | {"host": socket.gethostname(), "pid": os.getpid(), "started_at": time.time()})
    return lock


def keep_output(source: int, limit: int) -> None:
    """Copy output to the log, of which the older half is dropped; what the disk does not take is lost."""
    most, log = max(limit // 2, 1), -1
    while data := os.read(source, 1 << 16):
        with suppress(OSError):
            while data:
                if log < 0:
                    log = open_log()
                room = most - os.fstat(log).st_size
                if room > 0:
                    data = data[os.write(log, data[:room]) :]
                else:
                    os.replace(*LOG_FILES)
                    os.close(log)
                    log = -1


def open_log() -> int:
    """The file that output goes to."""
    return os.open(LOG_FILES[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)


def copy_lines(source: int, target: int, label: bytes, turn: threading.Lock) -> None:
    """Copy the output of a rank, whole lines at a time, each with a label before it."""
    rest, lines = b"", []
    while data := os.read(source, 1 << 16):
        # a return may be half of the end of a line
        lines = (rest + data).splitlines(keepends=True)
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if len(rest) >= LONGEST_LINE:
            lines.append(rest + b"\n")
            rest = b""
        with turn:
            write_all(target, b"".join(label + line for line in lines))
    if rest:
        with turn:
            write_all(target, label + rest + b"\n")


def write_all(target: int, data: bytes) -> None:
    """Write to a pipe or a file."""
    while data:
        data = data[os.write(target, data) :]


class Processes:
    """The processes of a job on a node, or the one srun that starts them."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._copies: list[threading.Thread] = []
        self._turn = threading.Lock()

    def run(self, start: Start, order: dict[str, Any], output: int | None, lock: int | None) -> int:
        """Start processes and wait for them; the result as of `wait`."""
        try:
            start(self, order, output, lock)
        except OSError as error:
            self._send(signal.SIGKILL)
            message = f"allocator: the command cannot be run: {error.strerror}: {error.filename}\n"
            os.write(2 if output is None else output, message.encode())
            return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        return self.wait()

    def start(
        self, command: list[str], environment: dict[str, str], directory: str, output: int | None, lock: int | None
    ) -> None:
        """One more process; they are of this script's process group, which Slurm sends its signals to."""
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=() if lock is None else (lock,),
        )
        self._running.add(process)
        threading.Thread(target=self._wait, args=[process], daemon=True).start()

    @contextmanager
    def labelled(self, rank: int, output: int | None) -> Iterator[int]:
        """Where a rank prints to, so that its lines come to `output` with its number before them."""
        source, target = os.pipe()
        into = sys.stdout.fileno() if output is None else output
        copy = threading.Thread(
            target=copy_lines, args=[source, into, f"rank {rank}: ".encode(), self._turn], daemon=True
        )
        copy.start()
        self._copies.append(copy)
        try:
            yield target
        finally:
            os.close(target)

    def finish_output(self) -> None:
        """Wait for the last lines of ranks, of which nothing runs any more."""
        deadline = time.monotonic() + PIPE_SECONDS
        for copy in self._copies:
            copy.join(max(deadline - time.monotonic(), 0.0))

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended.put(process)

    def wait(self) -> int:
        """Until the last one has ended; the first exit status that is not 0, of signal n -n - 1, or `NEWER_EPOCH`."""
        result, overdue, look = 0, float("inf"), 0.0
        while self._running:
            with suppress(queue.Empty):
                process = self._ended.get(timeout=LOOK_SECONDS)
                self._running.discard(process)
                if process.returncode and not result:
                    result = process.returncode if process.returncode > 0 else process.returncode - 1
                    overdue = time.monotonic() + OTHERS_SECONDS
                    self._send(signal.SIGTERM)
            now = time.monotonic()
            if now >= overdue:
                self._send(signal.SIGKILL)
                overdue = float("inf")
            if now >= look:
                look = now + LOOK_SECONDS
                newer = read(LEASE_FILE).get("epoch", self._epoch) > self._epoch
                if newer or read(KILL_FILE).get("epoch") == self._epoch:
                    result = NEWER_EPOCH if newer else -signal.SIGKILL - 1
                    self._send(signal.SIGKILL)
                    kill_descendants()
        return result

    def _send(self, number: int) -> None:
        for process in self._running:
            process.send_signal(number)


Start = Callable[[Processes, dict[str, Any], int | None, int | None], None]


def environment_of(order: dict[str, Any], rank: int, local_rank: int, address: str, port: int) -> dict[str, str]:
    """Variables of one process: those of the order, of Slurm, of the lease and of torchrun."""
    variables: dict[str, str] = {k: v for k, v in order["environment"].items() if k not in FROM_SLURM}
    variables |= {k: v for k, v in os.environ.items() if k in FROM_SLURM or k.startswith("SLURM")}
    variables |= order["lease"]
    if order["one_process_per_gpu"]:
        gpus = order["gpus_per_node"]
        ranks = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": gpus * order["nodes"], "LOCAL_WORLD_SIZE": gpus}
        variables |= {name: str(value) for name, value in (ranks | {"MASTER_PORT": port}).items()}
        variables["MASTER_ADDR"] = address
    return variables


def start_here(processes: Processes, order: dict[str, Any], output: int | None, lock: int | None) -> None:
    """The processes of this node."""
    count = order["gpus_per_node"] if order["one_process_per_gpu"] else 1
    first = int(os.environ.get("SLURM_NODEID") or 0) * count
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT") or free_port())
    several = order["one_process_per_gpu"] and count * order["nodes"] > 1
    for local_rank in range(count):
        rank = first + local_rank
        variables = environment_of(order, rank, local_rank, address, port)
        with processes.labelled(rank, output) if several else nullcontext(output) as own:
            processes.start(order["command"], variables, order["working_directory"], own, lock)


def start_on_nodes(processes: Processes, order: dict[str, Any], output: int | None, lock: int | None) -> None:
    """This script on each node of the job."""
    nodes = order["nodes"]
    sizes = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mem=0"]
    sizes.append(f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK', 1)}")
    command = ["srun", *sizes, "--kill-on-bad-exit=1", sys.executable, "-IS", RUNNER_FILE, "node"]
    variables = os.environ | {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(free_port())}
    processes.start(command, variables | order["lease"], os.getcwd(), output, lock)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def run_node() -> int:
    """The processes of one node, as a task of srun."""
    order = read(START_FILE)
    if str(order.get("epoch")) != os.environ.get("ALLOCATOR_LEASE_EPOCH"):
        raise RefusalError("the order has changed since the job began")
    processes = Processes(order["epoch"])
    result = processes.run(start_here, order, None, None)
    end_descendants()
    processes.finish_output()
    return exit_status(result)


def run_job() -> int:
    """The job, as Slurm's batch script."""
    order = read(START_FILE)
    lock = claim(order)
    Path(order["lease"]["ALLOCATOR_CHECKPOINT_DIR"]).mkdir(mode=0o700, exist_ok=True)
    source, output = os.pipe()
    keeper = threading.Thread(target=keep_output, args=[source, order["log_bytes"]], daemon=True)
    keeper.start()
    start = start_on_nodes if order["one_process_per_gpu"] and order["nodes"] > 1 else start_here
    processes = Processes(order["epoch"])
    result = processes.run(start, order, output, lock)
    end_descendants()
    processes.finish_output()
    os.close(output)
    keeper.join(PIPE_SECONDS)
    if result == NEWER_EPOCH:
        raise RefusalError(f"epoch {order['epoch']} was killed: the lease is of a newer one")
    status, number = exit_status(result), max(-result - 1, 0)
    reason = f"ended by signal {number}" if number else f"exit status {status}"
    told = {"epoch": order["epoch"], "code": status, "signal": number, "reason": reason, "ended_at": time.time()}
    # A later copy cannot have begun: this one holds the lock until its end.
    write(EXIT_FILE, told)
    return status


def adopt_orphans() -> None:
    """Become the parent of processes whose parent has ended, so that they can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> bool:
    """SIGKILL to children, their children, and so on; whether there were any."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            # The name of the program comes before, in parentheses, and may hold anything.
            parent = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(name))
    front, found = [os.getpid()], False
    while front:
        for pid in children.get(front.pop(), []):
            front.append(pid)
            found = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return found


def end_descendants() -> None:
    """End whatever the command has left behind."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while kill_descendants() and time.monotonic() < deadline:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def exit_status(result: int) -> int:
    """As shells have it."""
    return REFUSED if result == NEWER_EPOCH else result if result >= 0 else 127 - result


def main() -> int:
    """Run; the exit status."""
    # Slurm signals the whole process group; this script stays to say how the command ended.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    adopt_orphans()
    try:
        return run_node() if sys.argv[1:] == ["node"] else run_job()
    except RefusalError as refusal:
        print(f"allocator: not run: {refusal}", file=sys.stderr, flush=True)
        return REFUSED


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Threads that still wait for output are left behind.
    os._exit(code)
