"""What a cluster must be able to do for the scheduler: the interface of adapters.

The scheduler keeps what is *wanted* (which job on which GPUs) and compares it with what *is*, again and again; an
adapter carries single orders out and tells what it sees. Every order is idempotent and names job and lease epoch, so
that one given twice, or by a scheduler that was killed and started again, does no harm:

- ``start`` of an epoch that was started before does nothing;
- ``stop`` and ``kill`` of an epoch that does not run do nothing.

Never do two epochs of a job run at once as far as the adapter can see; where it cannot (a node that is cut off), the
lease of the trainer and of its checkpoints is the fence.

The output of a job is written to two files, of which the newer takes the place of the older at times.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from allocator.lease.files import CHECKPOINTS, EPOCH, JOB
from allocator.lease.whole import read_object
from allocator.runtime.adapters.node import LOG_FILES

_LATEST = 1e15
"""Seconds since 1970; later is no time."""

Phase = Literal["pending", "running", "ended"]


class AdapterError(RuntimeError):
    """The cluster refused an order, or did not answer; the order may be given again."""


class CommandError(AdapterError):
    """The command of a job cannot be run: it is not found, or no program. The cluster itself is all right.

    Attributes
    ----------
    code : the exit status that shells have for it, `NOT_FOUND` or `NOT_EXECUTABLE`.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class ProfilingError(RuntimeError):
    """A program could not be measured; says why, with what it printed last."""


class NoAnswerError(AdapterError):
    """The cluster did not answer: nobody knows whether the order arrived. It will be given again."""


@dataclass(frozen=True)
class Node:
    """A server.

    Attributes
    ----------
    name : as the cluster knows it.
    accelerator : type of its GPUs.
    gpus : how many it has; their positions on the node are 0 to gpus - 1.
    up : whether jobs can run on it.
    reason : why not, for people.
    drained : whether the cluster itself lets nothing start there any more; what runs goes on.
    taken : positions of GPUs that others than our jobs hold.
    """

    name: str
    accelerator: str
    gpus: int
    up: bool = True
    reason: str = ""
    drained: bool = False
    taken: tuple[int, ...] = ()


Places = Mapping[str, tuple[int, ...]]
"""GPUs: by name of the node their positions."""


@dataclass(frozen=True)
class Placed:
    """Where a job is, is to be, or was: from the decision to the order, and in the book.

    Attributes
    ----------
    pool : accelerator type, "" nowhere. places : its GPUs.
    """

    pool: str = ""
    places: Places = field(default_factory=dict)

    @cached_property
    def gpus(self) -> frozenset[tuple[str, int]]:
        """(Node, position) of each GPU."""
        return frozenset((node, position) for node, positions in self.places.items() for position in positions)

    @property
    def way(self) -> tuple[str, int]:
        """Accelerator type and number of GPUs."""
        return self.pool, len(self.gpus)


NOWHERE = Placed()


@dataclass(frozen=True)
class StartOrder:
    """Start a job.

    Attributes
    ----------
    job, epoch : UUID, and number of the start.
    command : the arguments; never given to a shell.
    placed : on which GPUs.
    folder : of the job; exists, with the lease in it. Output goes to its file ``log``.
    working_directory : where the command starts.
    environment : variables besides those of the service; those of the lease, of GPUs and of ranks come on top.
    one_process_per_gpu : start as many processes as GPUs, each with the variables of torchrun; otherwise one.
    log_bytes : of output that are kept at most.
    """

    job: str
    epoch: int
    command: tuple[str, ...]
    placed: Placed
    folder: Path
    working_directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    one_process_per_gpu: bool = False
    log_bytes: int = 16 << 20


def lease_variables(order: StartOrder, folder: Path) -> dict[str, str]:
    """By which a trainer finds its lease, in the folder of its job where it runs."""
    return {JOB: order.job, EPOCH: str(order.epoch), CHECKPOINTS: str(folder / "checkpoint")}


def gpu_variables(indices: Iterable[int]) -> dict[str, str]:
    """By which a program finds its GPUs. By itself CUDA counts the fastest first, and NVML in the order of the bus."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, indices)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True)
class Seen:
    """What an adapter sees of a start.

    Attributes
    ----------
    job, epoch : which one.
    phase : "pending": accepted, does not run yet; "running"; "ended".
    code : exit status of an ended one; None: not known, as when its node was lost.
    signal : that ended it, else 0.
    reason : for people: of one that has ended, how; of one that runs, why its end may not come by itself.
    ended_at : seconds since 1970, 0 where not known.
    """

    job: str
    epoch: int
    phase: Phase
    code: int | None = None
    signal: int = 0
    reason: str = ""
    ended_at: float = 0.0


def read_end(job: str, path: Path) -> Seen | None:
    """The end that is told in the file of whoever watched over a start; what makes no sense in it is not known."""
    told = read_object(path)
    epoch, code, number, at = (told.get(name) for name in ("epoch", "code", "signal", "ended_at"))
    if not isinstance(epoch, int):
        return None
    return Seen(
        job,
        epoch,
        "ended",
        code if isinstance(code, int) else None,
        number if isinstance(number, int) else 0,
        str(told.get("reason") or "ended, nobody knows how"),
        float(at) if isinstance(at, int | float) and 0 <= at <= _LATEST else 0.0,
    )


class Adapter(ABC):
    """A cluster. All methods are called from one event loop, and do not block it."""

    name: ClassVar[str] = ""

    @abstractmethod
    async def open(self) -> None:
        """Connect; called once, before everything else.

        Raises
        ------
        AdapterError
            The cluster cannot be used; says what to do about it.
        """

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; jobs run on."""

    @abstractmethod
    async def nodes(self) -> Sequence[Node]:
        """All servers, in an order that stays."""

    @abstractmethod
    async def observe(self) -> Sequence[Seen]:
        """The last start of every job that the adapter knows of and that was not forgotten."""

    @abstractmethod
    async def start(self, order: StartOrder) -> None:
        """Start a job; returns when the cluster has accepted it.

        A start that `observe` does not tell of has never begun, and may be ordered again with the same epoch.

        Raises
        ------
        AdapterError
            It was not started, and will not be.
        CommandError
            Nor would another start: its command cannot be run.
        NoAnswerError
            It is not known whether it was started.
        """

    @abstractmethod
    async def stop(self, job: str, epoch: int) -> None:
        """Ask a job to end: SIGTERM or what the cluster has. The lease has said so before."""

    def lease_ends(self, job: str) -> None:  # noqa: B027 - most clusters share the folder
        """The lease in the folder of a job says now that it ends: to be sent where that folder is not shared."""

    @abstractmethod
    async def kill(self, job: str, epoch: int) -> None:
        """End all processes of a job at once."""

    @abstractmethod
    async def forget(self, job: str) -> None:
        """The job is through; what the cluster keeps of it may go. Its folder stays."""


PIECE = 4 << 20
"""Bytes of a file that are read, or sent, at once."""

Cursor = tuple[int, int]
"""How far a log was read: which file it was, and the position in it."""


def output_since(folder: Path, cursor: Cursor) -> tuple[bytes, Cursor]:
    """Output of a job after a cursor, and where it ends; of files that have changed places the older one first.

    Parameters
    ----------
    folder : of the job. cursor : (0, 0) at first.
    """
    which, position = cursor
    for name in reversed(LOG_FILES):
        with suppress(FileNotFoundError), (folder / name).open("rb") as file:
            status = os.fstat(file.fileno())
            number = status.st_ino
            if name == LOG_FILES[1] and which not in (number, 0):
                continue
            if number != which or position > status.st_size:
                position = 0
            file.seek(position)
            if piece := file.read(PIECE):
                return piece, (number, position + len(piece))
            which = number if number == which else which
    return b"", cursor


class LogReader:
    """Reads what is new in the output of the job of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cursor: Cursor = (0, 0)

    def news(self) -> Iterator[bytes]:
        """What came since the last time."""
        while True:
            piece, self._cursor = output_since(self._folder, self._cursor)
            if not piece:
                return
            yield piece
