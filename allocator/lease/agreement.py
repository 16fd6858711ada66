"""That all ranks of a job leave its loop at the same boundary, though each sees the end of the lease at its own time.

A *boundary* is a place in the program that all ranks pass equally often, one after every step. The first rank that
sees the end decides for all. Where torch.distributed is in use its own collective tells the others; that holds even
where processes run ahead of their GPUs. Otherwise a file does, for ranks on one server that wait for each other in
every step.
"""

from __future__ import annotations

import atexit
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AGREE_SECONDS = 0.25
"""Between two collectives, as far as steps are shorter: each keeps the ranks for a fraction of a millisecond."""

MOST_STEPS = 64
"""Between two collectives at most: steps may become slower than they were."""

APART = 2
"""Boundaries from one at which a rank sees the end to one that no rank has passed yet: one is at most one ahead."""


class Agreement(ABC):
    """How ranks come to leave together."""

    @abstractmethod
    def at_boundary(self, sees_end: bool, now: float, *, step: bool) -> bool:
        """Whether all ranks leave here.

        Parameters
        ----------
        sees_end : whether this rank sees the end.
        now : seconds of the monotonic clock.
        step : whether a step has ended here, which tells how long they take.
        """

    @abstractmethod
    def all_of(self, mine: bool) -> bool:
        """Whether something holds at every rank; waits for all of them."""


class TorchAgreement(Agreement):
    """By a collective of torch.distributed every few steps; when the next one is due is agreed on in each.

    A group of its own over gloo: nothing waits for a GPU, and the collectives of the training are not mixed with these.
    """

    def __init__(self, distributed: Any, torch: Any) -> None:
        self._distributed = distributed
        self._torch = torch
        self._group = distributed.new_group(backend="gloo")
        self._work: Any = None
        self._steps = 0
        self._due = 1
        self._last: tuple[int, float] | None = None

    def at_boundary(self, sees_end: bool, now: float, *, step: bool) -> bool:
        """See `Agreement`."""
        if not step:
            return not self.all_of(not sees_end)
        self._steps += 1
        if self._steps < self._due:
            return False
        # The largest of what the ranks say, in which the fewest steps to wait are the largest.
        ends, wait = self._reduce([int(sees_end), -self._wait(now)], self._distributed.ReduceOp.MAX)
        self._due = self._steps - wait
        return bool(ends)

    def _wait(self, now: float) -> int:
        """Steps until the next collective as this rank would have it: slowly more, as long as steps are short."""
        wait = 1
        if self._last is not None:
            steps = self._steps - self._last[0]
            pace = max(now - self._last[1], 1e-9) / steps
            wait = max(1, min(2 * steps, MOST_STEPS, int(AGREE_SECONDS / pace)))
        self._last = (self._steps, now)
        return wait

    def all_of(self, mine: bool) -> bool:
        """See `Agreement`."""
        return bool(self._reduce([int(mine)], self._distributed.ReduceOp.MIN)[0])

    def _reduce(self, mine: list[int], operation: Any) -> list[int]:
        """Reduce integers over all ranks; the collective is kept until the next one, for `leave_group`'s reason."""
        said = self._torch.tensor(mine)
        self._work = self._distributed.all_reduce(said, op=operation, group=self._group, async_op=True)
        self._work.wait()
        return [int(value) for value in said.tolist()]


class FileAgreement(Agreement):
    """By a file with the number of the boundary at which all leave, written by the first rank that sees the end.

    Parameters
    ----------
    path : of the file, the same for all ranks and absent at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._passed = 0
        self._last: int | None = None

    def at_boundary(self, sees_end: bool, now: float, *, step: bool) -> bool:  # noqa: ARG002
        """See `Agreement`; looks for the file at every boundary, as the next two may be the last."""
        self._passed += 1
        if self._last is None:
            if sees_end:
                self._propose(self._passed + APART)
            if os.access(self._path, os.F_OK):
                self._last = int(Path(self._path).read_text())
        return self._last is not None and self._passed >= self._last

    def _propose(self, boundary: int) -> None:
        """Write the file whole, unless another rank has."""
        draft = f"{self._path}.{os.getpid()}"
        Path(draft).write_text(str(boundary))
        try:
            os.link(draft, self._path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)

    def all_of(self, mine: bool) -> bool:  # noqa: ARG002
        """Not by a file.

        Raises
        ------
        RuntimeError
            Always: ranks that write one checkpoint together speak through torch.distributed.
        """
        raise RuntimeError("a checkpoint that every rank writes needs torch.distributed to be initialised")


def _distributed() -> Any:
    """torch.distributed if the program has loaded and initialised it."""
    module: Any = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def hold_group() -> None:
    """Keep the process group of torch until this process ends, though the program destroys it before.

    Its destructor waits for threads of gloo's, which need the interpreter's lock to drop tensors of Python's. Python's
    own reference to the group gives the lock up meanwhile; the reducer of a DistributedDataParallel does not, so it
    must not hold the last one.
    """
    if distributed := _distributed():
        atexit.register(_held, distributed.group.WORLD)


def leave_group() -> None:
    """Leave the process group of torch together with all ranks.

    A process that ends while it is still in the group may be aborted because others have ended before it. The last
    collective is held until the process ends for the reason of `hold_group`.
    """
    if distributed := _distributed():
        hold_group()
        work = distributed.barrier(async_op=True)
        atexit.register(_held, work)
        work.wait()
        distributed.destroy_process_group()


def _held(_object: object) -> None:
    """Do nothing at exit: until then the registration holds the object."""


def rank_and_world(environment: Mapping[str, str]) -> tuple[int, int]:
    """The rank of this process and how many there are: as torch.distributed says, or the variables of torchrun."""
    if distributed := _distributed():
        return distributed.get_rank(), distributed.get_world_size()
    return int(environment.get("RANK", 0)), int(environment.get("WORLD_SIZE", 1))


def find_agreement(folder: Path, epoch: int, environment: Mapping[str, str]) -> Agreement | None:
    """The way to agree in this program, None where there is one rank; called at the first boundary, by all ranks."""
    if rank_and_world(environment)[1] == 1:
        return None
    if distributed := _distributed():
        return TorchAgreement(distributed, sys.modules["torch"])
    # torchrun may start all ranks of an epoch again after one has failed; they count from zero again.
    restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    for path in folder.glob("stop-*"):
        if int(path.name.split("-")[1]) < epoch:
            path.unlink(missing_ok=True)
    return FileAgreement(folder / f"stop-{epoch}-{restarts}")
