"""What Slurm runs for a job: a script in the job's folder, the working directory, with copies of these modules in it.

Nothing but Python need be installed on the nodes. The script runs as the batch script, on the first node of a job; of a
job that has processes on several nodes, that batch script starts it again on each of them, by srun.

The order is a file, ``start.json``, and before the command begins this script makes sure that it is the one copy that
may run: Slurm may have queued it again by itself, or may have been told of it twice.

1. the order is for the Slurm job of this name, and the lease is of the order's epoch;
2. nobody else holds ``run.lock``, which the processes of the command inherit;
3. ``run.json`` says that the epoch was not begun before.

While the command runs it looks at two files every second. Where the lease is of a newer epoch, as after a node was cut
off and the job was started elsewhere, or where ``kill.json`` names this epoch, all processes are killed: Slurm itself
sends SIGTERM first, and does not find all processes in every way that it can be set to follow them. At the end
``exit.json`` says how it went.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from allocator.lease.whole import LEASE_FILE, epoch_in, read_object, write_bytes
from allocator.runtime.adapters.node import (
    EXIT_FILE,
    LOCK_FILE,
    PR_SET_CHILD_SUBREAPER,
    RUN_FILE,
    Log,
    Stream,
    Watch,
    free_port,
    set_of_process,
    take_lock,
    variables_of_rank,
)

PREFIX = "allocator-"
"""How the names of our Slurm jobs begin."""

START_FILE, KILL_FILE, RUNNER_FILE = "start.json", "kill.json", "runner.py"

REFUSED = 75
"""Exit status: this copy must not run (the shell's "temporary failure")."""

LONGEST_ORDER = 64 << 20
"""Bytes: arguments and environment of a job are among them."""

LATE_SECONDS = 5.0
"""How long a lease may be older than the order: a shared file system shows new files late."""

SWEEP_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

FROM_SLURM = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
"""Variables of the GPUs that Slurm gave; those that begin with SLURM count as well."""


class RefusalError(Exception):
    """This copy must not run."""


def check(order: dict[str, Any]) -> None:
    """Whether the order is for this copy, and of the lease's epoch."""
    if not order or os.environ.get("SLURM_JOB_NAME") != order["name"]:
        raise RefusalError(f"no order for the job {os.environ.get('SLURM_JOB_NAME')} in {os.getcwd()}")
    deadline = time.monotonic() + LATE_SECONDS
    while True:
        lease = read_object(LEASE_FILE)
        epoch = lease.get("epoch", -1) if lease.get("job") == order["job"] else -1
        if epoch == order["epoch"]:
            return
        if epoch > order["epoch"] or time.monotonic() > deadline:
            raise RefusalError(f"epoch {order['epoch']} is stale: the lease is of epoch {epoch}")
        time.sleep(0.1)


def wait_for_lock(seconds: float) -> int:
    """A descriptor that holds the lock of the job."""
    deadline = time.monotonic() + seconds
    try:
        while (lock := take_lock(".")) is None:
            if time.monotonic() > deadline:
                raise RefusalError(f"another copy still runs: {read_object(RUN_FILE)}")
            time.sleep(0.05)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        print(f"no locks on this file system ({error.strerror}): the lease alone keeps copies apart", flush=True)
        return os.open(LOCK_FILE, os.O_RDWR)
    return lock


def claim(order: dict[str, Any]) -> None:
    """Make sure that this copy alone runs; what says so to others is open in all processes that it starts."""
    check(order)
    os.set_inheritable(wait_for_lock(order["lock_seconds"]), True)
    # The lease may have gone on while this copy waited.
    check(order)
    last = epoch_in(RUN_FILE)
    if last >= order["epoch"]:
        raise RefusalError(f"epoch {order['epoch']} was begun before: the last one was {last}")
    told = {"epoch": order["epoch"], "slurm_job": os.environ.get("SLURM_JOB_ID", "")}
    told |= {"host": socket.gethostname(), "pid": os.getpid()}
    write_bytes(RUN_FILE, json.dumps(told).encode())


def environment_of(order: dict[str, Any], rank: int, local_rank: int, address: str, port: int) -> dict[str, str]:
    """Variables of one process: those of the order, of Slurm, of the lease and of torchrun."""
    variables: dict[str, str] = {k: v for k, v in order["environment"].items() if k not in FROM_SLURM}
    variables |= {k: v for k, v in os.environ.items() if k in FROM_SLURM or k.startswith("SLURM")}
    variables |= order["lease"]
    if order["one_process_per_gpu"]:
        gpus = order["gpus_per_node"]
        variables |= variables_of_rank(rank, local_rank, gpus * order["nodes"], gpus, address, port)
    return variables


def start_here(order: dict[str, Any], log: Log | Stream) -> Watch:
    """The processes of this node."""
    count = order["gpus_per_node"] if order["one_process_per_gpu"] else 1
    first = int(os.environ.get("SLURM_NODEID") or 0) * count
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT") or free_port())
    # with processes on other nodes its lines are labelled, though it may be the only one here
    watch = Watch(log, count * order["nodes"] if order["one_process_per_gpu"] else 1, first_rank=first)
    for local_rank in range(count):
        variables = environment_of(order, first + local_rank, local_rank, address, port)
        if not start(watch, order["command"], variables, order["working_directory"], log):
            break
    return watch


def start_on_nodes(order: dict[str, Any], log: Log | Stream) -> Watch:
    """This script on each node of the job."""
    nodes = order["nodes"]
    sizes = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mem=0"]
    sizes.append(f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK', 1)}")
    command = ["srun", *sizes, "--kill-on-bad-exit=1", sys.executable, "-IS", RUNNER_FILE, "node"]
    variables = os.environ | {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(free_port())}
    watch = Watch(log, 1)
    start(watch, command, variables | order["lease"], os.getcwd(), log)
    return watch


def start(watch: Watch, command: list[str], variables: dict[str, str], directory: str, log: Log | Stream) -> bool:
    """Start one process, or say in the output why it cannot be."""
    failure = watch.start(command, variables, directory)
    if failure:
        log.write(f"allocator: {failure}\n".encode())
    return not failure


def see_through(watch: Watch, epoch: int) -> bool:
    """Wait until all processes have ended, and whatever they left; whether that is because of a newer epoch."""
    newer = False

    def is_over() -> bool:
        nonlocal newer
        newer = epoch_in(LEASE_FILE) > epoch
        return newer or epoch_in(KILL_FILE) == epoch

    if not watch.code:
        watch.wait(is_over)
    watch.finish(SWEEP_SECONDS)
    return newer


def run_node() -> int:
    """The processes of one node, as a task of srun."""
    order = read_object(START_FILE, LONGEST_ORDER)
    if str(order.get("epoch")) != os.environ.get("ALLOCATOR_LEASE_EPOCH"):
        raise RefusalError("the order has changed since the job began")
    watch = start_here(order, Stream(sys.stdout.fileno()))
    return REFUSED if see_through(watch, order["epoch"]) else watch.code


def run_job() -> int:
    """The job, as Slurm's batch script."""
    order = read_object(START_FILE, LONGEST_ORDER)
    claim(order)
    Path(order["lease"]["ALLOCATOR_CHECKPOINT_DIR"]).mkdir(mode=0o700, exist_ok=True)
    several = order["one_process_per_gpu"] and order["nodes"] > 1
    watch = (start_on_nodes if several else start_here)(order, Log(order["log_bytes"]))
    if see_through(watch, order["epoch"]):
        raise RefusalError(f"epoch {order['epoch']} was killed: the lease is of a newer one")
    told = {"epoch": order["epoch"], "code": watch.code, "signal": watch.signal, "reason": watch.reason}
    # A later copy cannot have begun: this one holds the lock until its end.
    write_bytes(EXIT_FILE, json.dumps(told | {"ended_at": time.time()}).encode())
    return watch.code


def main() -> int:
    """Run; the exit status."""
    # Slurm signals the whole process group; this script stays to say how the command ended.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    # processes whose parent has ended become this one's, so that they are found
    set_of_process(PR_SET_CHILD_SUBREAPER, 1)
    try:
        return run_node() if sys.argv[1:] == ["node"] else run_job()
    except RefusalError as refusal:
        print(f"allocator: not run: {refusal}", file=sys.stderr, flush=True)
        return REFUSED
