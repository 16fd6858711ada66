"""The lease in a training script: three lines, which do nothing where no scheduler has started it."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from allocator.lease.agreement import Agreement, find_agreement, rank_and_world
from allocator.lease.checkpoints import Checkpoint, CheckpointError, CheckpointFolder
from allocator.lease.files import CHECKPOINTS, EPOCH, JOB, Report
from allocator.lease.reporter import Reporter
from allocator.lease.watch import LeaseWatch

REPORT_SECONDS = 0.5
"""Between two reports of progress; what matters at once is reported at once."""

Batch = TypeVar("Batch")


class Lease:
    """The lease under which a training process runs.

    ::

        lease = Lease()
        lease.restore(load)                      # load(folder) reads what save has written
        for batch in lease(loader):
            train(batch)
            lease.checkpoint_if_ending(save)     # save(folder) writes files into an empty folder

    Outside the scheduler, where its environment variables are absent, it counts steps and does nothing else.

    Parameters
    ----------
    total_steps : of the job; its loops end after as many, and it is done then. None: when its loops are through.
    environment : where the variables of the scheduler and of torchrun are; None: those of the process.

    Attributes
    ----------
    steps : of the job so far, those before it was restored included.
    active : whether a scheduler has started this process.
    job, epoch : whose lease it is; "" and 0 outside the scheduler.
    """

    def __init__(self, total_steps: int | None = None, *, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self.total_steps = total_steps
        self.steps = 0
        self.active = all(self._environment.get(name) for name in (JOB, EPOCH, CHECKPOINTS))
        self.job, self.epoch = "", 0
        self._in_step = self._started = self._ended = self._finished = False
        self._trained_steps, self._trained_seconds = 0, 0.0
        self._clock = self._next_report = time.monotonic()
        self._rank: int | None = None
        self._report = Report(self.job, self.epoch)
        if self.active:
            self._open()

    def _open(self) -> None:
        self.job, self.epoch = self._environment[JOB], int(self._environment[EPOCH])
        path = Path(self._environment[CHECKPOINTS])
        self._folder = path.parent
        self._checkpoints = CheckpointFolder(path, self.job, self.epoch)
        self._watch = LeaseWatch(self._folder, self.job, self.epoch)
        self._report = Report(self.job, self.epoch)
        self._reporter = Reporter(self._folder)
        self._process = os.getpid()
        atexit.register(self._at_exit)
        self.report_now()

    def close(self) -> None:
        """Report for the last time, and give SIGTERM back; a process that ends need not call it."""
        if self.active:
            atexit.unregister(self._at_exit)
            self._at_exit()
            self._watch.close()
            self.active = False

    # What a training script calls.

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, one for each step, until they or the steps of the job are through or the lease ends.

        Raises
        ------
        StaleLeaseError
            Another start of the job has taken the place of this one.
        """
        if self._reaches_total() or self.poll():
            return
        for batch in batches:
            self._in_step = True
            yield batch
            if self._in_step:
                self.step()
            if self._ended or self._finished:
                return

    def step(self, count: int = 1) -> bool:
        """Say that steps are through; `lease(batches)` does so by itself. All ranks call it equally often.

        Parameters
        ----------
        count : how many.

        Returns
        -------
        bool
            Whether to leave the loop: all ranks leave it here.

        Raises
        ------
        StaleLeaseError
            Another start of the job has taken the place of this one.
        """
        self._in_step = False
        self.steps += count
        if not self.active:
            return self._reaches_total()
        now = time.monotonic()
        if not self._started:
            self._started = True
            self._report = replace(self._report, state="training", start_seconds=_age_of_process())
            self._next_report = now
        else:
            self._trained_steps += count
            self._trained_seconds += now - self._clock
        self._clock = now
        return self._reaches_total() or self._boundary(now, step=True)

    def poll(self) -> bool:
        """Look for the end where no step is through, as in evaluation; all ranks call it equally often.

        Returns
        -------
        bool
            Whether to leave the loop: all ranks leave it here. The time until now does not count as training.

        Raises
        ------
        StaleLeaseError
            Another start of the job has taken the place of this one.
        """
        if not self.active:
            return False
        self._clock = time.monotonic()
        return self._boundary(self._clock, step=False)

    @property
    def ending(self) -> bool:
        """Whether this process sees the lease end; the ranks of a job may see that some steps apart.

        Raises
        ------
        StaleLeaseError
            Another start of the job has taken the place of this one.
        """
        return self._ended or (self.active and self._watch.look(time.monotonic()))

    @property
    def has_ended(self) -> bool:
        """Whether the ranks have agreed to leave because the lease ends; the same on all of them."""
        return self._ended

    def checkpoint_if_ending(self, save: Callable[[Path], object], *, every_rank: bool = False) -> bool:
        """Save a checkpoint if the lease ends, at the end of a step or after the loop.

        Parameters
        ----------
        save : is given an empty folder to write files into.
        every_rank : see `checkpoint`.

        Returns
        -------
        bool
            Whether the lease ends; the loop over `lease(batches)` then does so by itself.

        Raises
        ------
        StaleLeaseError, CheckpointError
            See `checkpoint`.
        """
        if self._in_step:
            self.step()
        if self._ended and self._report.saved_steps != self.steps:
            self.checkpoint(save, every_rank=every_rank)
        return self._ended

    def checkpoint(
        self, save: Callable[[Path], object], *, every_rank: bool = False, began: float | None = None
    ) -> bool:
        """Save a checkpoint now, at a place that all ranks pass with the same steps.

        Parameters
        ----------
        save : is given an empty folder to write files into.
        every_rank : call it on every rank, for states that are spread over them, and commit when all are through;
            otherwise on the first rank alone.
        began : when writing began, seconds of the monotonic clock, where `save` is but the end of it.

        Returns
        -------
        bool
            Whether one was written, by this rank or others; outside the scheduler none is.

        Raises
        ------
        StaleLeaseError
            Another start of the job has taken the place of this one; nothing was committed.
        CheckpointError
            It could not be written; the last one stays.
        """
        if not self.active:
            return False
        if self._in_step:
            self.step()
        began = time.monotonic() if began is None else began
        self._write(save, self._agreement if every_rank else None)
        self._clock = time.monotonic()
        self._say(saved_steps=self.steps, save_seconds=self._clock - began)
        return True

    def restore(self, load: Callable[[Path], object]) -> bool:
        """Load the last checkpoint that is whole, and count on from its steps.

        Parameters
        ----------
        load : is given the folder that `save` has written; called on every rank.

        Returns
        -------
        bool
            Whether there was one.
        """
        found = self.last_checkpoint()
        if found is not None:
            load(found.folder)
            self.steps = found.steps
            self._say(steps=found.steps, saved_steps=found.steps, saved_at=found.at)
        return found is not None

    def last_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint that is whole, None where there is none."""
        return self._checkpoints.latest() if self.active else None

    def request(self, *, batch_size: int | None = None, gpus: int | None = None) -> None:
        """Tell the scheduler what the job would like from its next start on; None: as said before.

        Parameters
        ----------
        batch_size : of all ranks together.
        gpus : how many.
        """
        said = {"batch_size": batch_size, "gpus": gpus}
        self._say(**{name: value for name, value in said.items() if value is not None})

    def done(self) -> None:
        """Say that the job is complete; where its lease ended before, it is not, and this does nothing."""
        if not self._ended:
            self._finished = True
            self._say(state="done")

    @property
    def rank(self) -> int:
        """Of this process among those of the job; the first one saves and reports."""
        return rank_and_world(self._environment)[0] if self._rank is None else self._rank

    def report_now(self) -> None:
        """Write the report, on the first rank; nothing where another start has taken the place of this one."""
        if self.active and self.rank == 0:
            self._reporter.write(self._take_stock())

    # How it does so.

    def _boundary(self, now: float, *, step: bool) -> bool:
        sees_end = self._watch.look(now)
        if self._agreement is not None:
            sees_end = self._agreement.at_boundary(sees_end, now, step=step)
        if sees_end and not self._ended:
            self._ended = True
            self._say(state="ending")
        elif now >= self._next_report and self.rank == 0:
            self._reporter.write_soon(self._take_stock())
        return self._ended

    def _take_stock(self) -> Report:
        self._next_report = time.monotonic() + REPORT_SECONDS
        self._report = replace(
            self._report,
            steps=self.steps,
            trained_steps=self._trained_steps,
            trained_seconds=self._trained_seconds,
            at=time.time(),
        )
        return self._report

    @cached_property
    def _agreement(self) -> Agreement | None:
        # It stays when torch.distributed is taken down before the process ends.
        self._rank = self.rank
        return find_agreement(self._folder, self.epoch, self._environment)

    def _reaches_total(self) -> bool:
        if self.total_steps is not None and self.steps >= self.total_steps and not self._finished:
            self._finished = True
            self._say(state="done")
        return self._finished

    def _write(self, save: Callable[[Path], object], agreement: Agreement | None) -> None:
        """Have a checkpoint written and committed; all ranks hear how it went where all of them write.

        Parameters
        ----------
        save : is given the folder.
        agreement : of the ranks that write together; None: the first one writes alone.
        """
        folder, first = self._checkpoints, self.rank == 0
        if agreement is None and not first:
            return
        parts = [
            (True, folder.begin),
            (False, lambda: save(folder.partial())),
            (True, lambda: self._say(saved_at=folder.commit(self.steps).at)),
        ]
        try:
            for of_first, part in parts:
                _in_common(part if first or not of_first else None, agreement)
        except BaseException as error:
            if first:
                folder.discard()
            folder.explain(error, self.steps)
            raise

    def _say(self, **changes: object) -> None:
        """Report something that matters at once."""
        self._report = replace(self._report, **changes)  # type: ignore[arg-type]
        self.report_now()

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.report_now()


def _in_common(part: Callable[[], object] | None, agreement: Agreement | None) -> None:
    """Do one's part, and fail where another rank fails in its own."""
    failed: Exception | None = None
    try:
        if part is not None:
            part()
    except Exception as error:
        failed = error
    if agreement is not None and not agreement.all_of(failed is None) and failed is None:
        failed = CheckpointError("the checkpoint was not written: another rank failed")
    if failed is not None:
        raise failed


def _age_of_process() -> float:
    """Seconds since this process was started; where the system does not tell, since this module was loaded."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _LOADED


_LOADED = time.monotonic()
