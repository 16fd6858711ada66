"""A start as it is written down: for the runner in the job's folder, for all others in the comment of the Slurm job."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from allocator.lease import whole
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB
from allocator.lease.whole import epoch_in, read_object, write_bytes
from allocator.runtime.adapters import node
from allocator.runtime.adapters.base import AdapterError, Seen, StartOrder, read_end
from allocator.runtime.adapters.slurm import runner

PREFIX = "allocator"


def job_name(job: str) -> str:
    """Name of the Slurm job."""
    return f"{PREFIX}-{job}"


@dataclass(frozen=True)
class Mark:
    """Comment of a Slurm job: whose it is. The number that Slurm gave it is used again after a crash; this is not.

    Attributes
    ----------
    job, epoch : UUID, and number of the start.
    restarts : how often Slurm had queued the job again when this epoch was ordered; once more, and the epoch is over.
    nodes, gpus : of each node.
    """

    job: str
    epoch: int
    restarts: int
    nodes: int
    gpus: int

    def __str__(self) -> str:
        return f"{PREFIX}:{self.job}:{self.epoch}:{self.restarts}:{self.nodes}x{self.gpus}"

    @property
    def shape(self) -> tuple[int, int]:
        """What cannot change while the Slurm job stays."""
        return self.nodes, self.gpus

    @classmethod
    def read(cls, comment: str) -> Mark | None:
        """What a comment says; None where it is not ours."""
        prefix, _, rest = comment.partition(":")
        try:
            job, epoch, restarts, shape = rest.split(":")
            nodes, gpus = shape.split("x")
            mark = cls(job, int(epoch), int(restarts), int(nodes), int(gpus))
        except ValueError:
            return None
        return mark if prefix == PREFIX else None


@dataclass(frozen=True)
class Start:
    """The last start of a job that was ordered: its mark, where its folder is, and the nodes that it was for."""

    mark: Mark
    folder: Path
    nodes: frozenset[str] = frozenset()


def mark_of(order: StartOrder, restarts: int = 0) -> Mark:
    """The mark of a start.

    Raises
    ------
    AdapterError
        The nodes are to give different numbers of GPUs, which Slurm cannot do in one job.
    """
    places = order.placed.places
    counts = {len(positions) for positions in places.values()}
    if len(counts) != 1 or 0 in counts:
        raise AdapterError(f"Slurm gives each node of a job the same number of GPUs; asked for {dict(places)}")
    return Mark(order.job, order.epoch, restarts, len(places), counts.pop())


def write_start(order: StartOrder, mark: Mark, lock_seconds: float) -> Start:
    """Write the order for the runner: what it is to run, and which copy of it may."""
    # The service may itself run in a job of Slurm's.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
    lease = {JOB: order.job, EPOCH: str(order.epoch), CHECKPOINTS: str(order.folder / "checkpoint")}
    content = {
        "name": job_name(order.job),
        "job": order.job,
        "epoch": order.epoch,
        "restarts": mark.restarts,
        "nodes": mark.nodes,
        "gpus_per_node": mark.gpus,
        "command": order.command,
        "working_directory": str(order.working_directory),
        "environment": inherited | dict(order.environment),
        "lease": lease,
        "one_process_per_gpu": order.one_process_per_gpu,
        "log_bytes": order.log_bytes,
        "lock_seconds": lock_seconds,
        "mark": str(mark),
        "node_names": list(order.placed.places),
    }
    write_bytes(order.folder / runner.START_FILE, json.dumps(content).encode())
    return Start(mark, order.folder, frozenset(order.placed.places))


def write_runner(folder: Path, python: str) -> Path:
    """The batch script: the interpreter that runs it, and its modules. Its path."""
    path = folder / runner.RUNNER_FILE
    modules = [(module.__name__, Path(str(module.__file__)).read_text()) for module in (whole, node, runner)]
    write_bytes(path, _SCRIPT.format(python=python, modules=modules).encode(), 0o700)
    return path


_SCRIPT = """#!{python} -IS
import os, sys
for name, source in {modules!r}:
    sys.modules[name] = module = type(sys)(name)
    exec(compile(source, name, "exec"), module.__dict__)
code = module.main()
sys.stdout.flush()
os._exit(code)
"""


def read_start(folder: Path) -> Start | None:
    """The last start of the job of a folder, as after a restart of the scheduler."""
    told = read_object(folder / runner.START_FILE, runner.LONGEST_ORDER)
    mark, nodes = Mark.read(str(told.get("mark", ""))), told.get("node_names", ())
    return None if mark is None else Start(mark, folder, frozenset(map(str, nodes) if isinstance(nodes, list) else ()))


def begun_epoch(start: Start) -> int:
    """The last epoch whose command was begun on any node; -1: none."""
    return epoch_in(start.folder / node.RUN_FILE)


def ended(start: Start) -> Seen | None:
    """How the command of a start ended, if it has."""
    end = read_end(start.mark.job, start.folder / node.EXIT_FILE)
    return end if end is not None and end.epoch == start.mark.epoch else None


def order_kill(start: Start) -> None:
    """Have the runner kill all processes of a start."""
    write_bytes(start.folder / runner.KILL_FILE, json.dumps({"epoch": start.mark.epoch}).encode())


def kill_ordered(start: Start) -> bool:
    """Whether this was done."""
    return epoch_in(start.folder / runner.KILL_FILE) == start.mark.epoch
