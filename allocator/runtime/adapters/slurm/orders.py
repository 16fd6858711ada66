"""A start as it is written down in the job's folder: for the runner, and for a scheduler that comes after this one."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from allocator.lease import whole
from allocator.lease.whole import epoch_in, read_object, write_bytes
from allocator.runtime.adapters import node
from allocator.runtime.adapters.base import AdapterError, Seen, StartOrder, lease_variables, read_end
from allocator.runtime.adapters.slurm import runner

LOCK_SECONDS = 60.0
"""How long a job that was started waits for a copy of it on a node that was cut off."""


@dataclass(frozen=True)
class Start:
    """The last start of a job that was ordered.

    Attributes
    ----------
    job, epoch : which one. folder : of the job. nodes : names of those that it is for.
    """

    job: str
    epoch: int
    folder: Path
    nodes: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Of its Slurm job. The number that Slurm gave it is used again after a crash; this is not."""
        return f"{runner.PREFIX}{self.job}-{self.epoch}"

    @classmethod
    def read(cls, folder: Path) -> Start | None:
        """The last start of the job of a folder, as after a restart of the scheduler."""
        told = read_object(folder / runner.START_FILE, runner.LONGEST_ORDER)
        nodes = told.get("placed")
        known = isinstance(told.get("epoch"), int) and isinstance(nodes, list)
        return cls(str(told.get("job")), told["epoch"], folder, frozenset(map(str, nodes or ()))) if known else None

    def write(self, order: StartOrder, lock_seconds: float = LOCK_SECONDS) -> None:
        """Write the order for the runner: what it is to run, and which copy of it may."""
        # The service may itself run in a job of Slurm's.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        nodes, gpus = shape_of(order)
        content = vars(order) | {
            "name": self.name,
            "placed": sorted(self.nodes),
            "nodes": nodes,
            "gpus_per_node": gpus,
            "environment": inherited | dict(order.environment),
            "lease": lease_variables(order, order.folder),
            "lock_seconds": lock_seconds,
        }
        write_bytes(self.folder / runner.START_FILE, json.dumps(content, default=str).encode())

    def erase(self) -> None:
        """Take the order away: without it the runner refuses."""
        (self.folder / runner.START_FILE).unlink(missing_ok=True)

    @property
    def begun(self) -> bool:
        """Whether its command was begun on any node."""
        return epoch_in(self.folder / node.RUN_FILE) >= self.epoch

    @property
    def end(self) -> Seen | None:
        """How its command ended by the word of the runner, if it has."""
        end = read_end(self.job, self.folder / node.EXIT_FILE)
        return end if end is not None and end.epoch == self.epoch else None

    def order_kill(self) -> None:
        """Have the runner kill all its processes."""
        write_bytes(self.folder / runner.KILL_FILE, json.dumps({"epoch": self.epoch}).encode())

    @property
    def kill_ordered(self) -> bool:
        """Whether this was done."""
        return epoch_in(self.folder / runner.KILL_FILE) == self.epoch


def start_of(order: StartOrder) -> Start:
    """What is kept of an order."""
    return Start(order.job, order.epoch, order.folder, frozenset(order.placed.places))


def shape_of(order: StartOrder) -> tuple[int, int]:
    """Number of nodes, and of GPUs on each.

    Raises
    ------
    AdapterError
        The nodes are to give different numbers of GPUs, which Slurm cannot do in one job.
    """
    places = order.placed.places
    counts = {len(positions) for positions in places.values()}
    if len(counts) != 1 or 0 in counts:
        raise AdapterError(f"Slurm gives each node of a job the same number of GPUs; asked for {dict(places)}")
    return len(places), counts.pop()


def write_runner(folder: Path) -> Path:
    """The batch script: the interpreter of the service, which runs it on the node, and its modules. Its path."""
    path = folder / runner.RUNNER_FILE
    modules = [(module.__name__, Path(str(module.__file__)).read_text()) for module in (whole, node, runner)]
    write_bytes(path, _SCRIPT.format(python=sys.executable, modules=modules).encode(), 0o700)
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
