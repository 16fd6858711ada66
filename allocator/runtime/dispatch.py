"""Orders to the cluster, given in the background, one of a kind for each start at a time; and the leases of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from allocator.lease.fence import LeaseLockedError, StaleLeaseError, raise_epoch
from allocator.lease.files import LEASE_FILE, Grant, read_file, write_file
from allocator.runtime.adapters.base import Adapter, AdapterError, CommandError, NoAnswerError, Seen, StartOrder
from allocator.runtime.records.book import STARTING, STOPPING, TIMED_OUT, Job
from allocator.runtime.records.journal import JournalError
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import Watching

_AGAIN = {"stop": inf, "kill": 5.0}
"""Seconds after which an order that has worked is given again; any other at once. Programs are asked to end once."""

_ORDER_AGAIN = 1.0
"""Seconds after which an order that went wrong is given again."""

_PATIENCE = 5.0
"""Seconds that orders under way have when the service ends."""

_IN_THE_WAY = (FileExistsError, IsADirectoryError, NotADirectoryError)


class Dispatch:
    """Gives orders that the journal has announced.

    Parameters
    ----------
    adapter, watching, settings : of the service. clock : of the service, seconds.
    refused : hears where the cluster does not start a job: of the end of that start, and of a later epoch that stands
        in the way, or 0. wake : called when an order has worked.

    Attributes
    ----------
    variables : environment of a job besides its own, asked for once its folder is there.
    tasks : orders under way, by UUID, epoch and kind.
    troubles : what went wrong with the last order of a job, by UUID.
    """

    def __init__(
        self,
        adapter: Adapter,
        watching: Watching,
        settings: ServiceSettings,
        clock: Callable[[], float],
        refused: Callable[[Job, Seen, int], None],
        wake: Callable[[], None],
    ) -> None:
        self._adapter, self._watching, self._settings, self._clock = adapter, watching, settings, clock
        self._refused, self._wake = refused, wake
        self.variables: Callable[[Job], Mapping[str, str]] = lambda _: {}
        self.tasks: dict[tuple[str, int, str], asyncio.Task[None]] = {}
        self.troubles: dict[str, str] = {}
        self._not_before: dict[tuple[str, int, str], float] = {}

    def starting(self, job: Job) -> bool:
        """Whether the order to start a job is under way."""
        return (job.uuid, job.epoch, "start") in self.tasks

    def under_way(self) -> set[str]:
        """UUIDs of the jobs that are being started."""
        return {uuid for uuid, _, what in self.tasks if what == "start"}

    def start(self, job: Job) -> None:
        """Start a job."""
        order = StartOrder(
            job.uuid,
            job.epoch,
            job.command,
            job.placed,
            self._watching.folder(job),
            Path(job.working_directory),
            job.environment,
            job.one_process_per_gpu,
            self._settings.log_bytes,
        )
        self._task(job.uuid, job.epoch, "start", lambda: self._start(job, order))

    async def _start(self, job: Job, order: StartOrder) -> None:
        """Raise the epoch, so that no other start of the job can save anything any more, and start it."""
        later = 0
        try:
            await self._raise(job, order)
            if job.state != STARTING or job.epoch != order.epoch:
                return
            await self._adapter.start(replace(order, environment={**self.variables(job), **job.environment}))
        except NoAnswerError:
            # the same epoch is ordered again
            raise
        except (AdapterError, StaleLeaseError) as error:
            if isinstance(error, StaleLeaseError):
                there = read_file(order.folder / LEASE_FILE, Grant)
                later = 0 if there is None else there.epoch
            if job.epoch == order.epoch and job.placed.gpus:
                code = error.code if isinstance(error, CommandError) else None
                self._refused(job, Seen(order.job, order.epoch, "ended", code, reason=str(error)), later)
        else:
            if job.state == STOPPING and job.epoch == order.epoch:
                self._write_end(job)

    async def _raise(self, job: Job, order: StartOrder) -> None:
        """The lease of a start is the one of its job."""
        try:
            for folder in (order.folder.parent, order.folder, order.folder / "checkpoint"):
                folder.mkdir(mode=0o700, exist_ok=True)
            # it may have to wait for a checkpoint that is just being committed
            await asyncio.to_thread(raise_epoch, order.folder, self._grant(job))
        except (OSError, LeaseLockedError) as error:
            # something else stands in the place of its folder or of its lease, and will the next time
            in_the_way = isinstance(error, _IN_THE_WAY) and order.folder.parent.is_dir()
            kind = AdapterError if in_the_way else NoAnswerError
            raise kind(f"lease: {error}" if in_the_way else f"lease of job {job.id}: {error}") from None

    def press(self, job: Job, now: float) -> None:
        """A job that was told to end and runs on: SIGTERM, after a while SIGKILL."""
        watch, settings = self._watching.of(job), self._settings
        watch.asked_at = now if watch.asked_at is None else watch.asked_at
        if not watch.ends:
            self.end_lease(job)
        patience = settings.notice_seconds if watch.report is not None else 0.0
        # it is told so long before its time limit; one that is told later, as no service ran, has as long to save
        grace = min(settings.grace_seconds, job.time_limit / 2.0 if job.then == TIMED_OUT else inf)
        if now >= watch.asked_at + grace:
            self._task(job.uuid, job.epoch, "kill", lambda: self._adapter.kill(job.uuid, job.epoch))
        elif now >= watch.asked_at + min(patience, grace):
            self._task(job.uuid, job.epoch, "stop", lambda: self._adapter.stop(job.uuid, job.epoch))

    def killed(self, job: Job) -> bool:
        """Whether it was ordered to kill a job."""
        return (job.uuid, job.epoch, "kill") in self._not_before

    def clear(self, one: Seen) -> None:
        """A start that nobody wants to know of: it is killed, and once it has ended forgotten."""
        if one.phase == "ended":
            self._not_before.pop((one.job, one.epoch, "kill"), None)
            self.forget(one.job, one.epoch)
        else:
            self._task(one.job, one.epoch, "kill", lambda: self._adapter.kill(one.job, one.epoch))

    def ended(self, job: Job) -> None:
        """A start of a job has ended: what went wrong with its orders no longer matters."""
        self.troubles.pop(job.uuid, None)
        for key in [key for key in self._not_before if key[0] == job.uuid]:
            del self._not_before[key]

    def forget(self, uuid: str, epoch: int) -> None:
        """A job is through."""
        self._task(uuid, epoch, "forget", lambda: self._adapter.forget(uuid))

    def end_lease(self, job: Job) -> None:
        """Tell the trainer of a job that stops that its lease ends; of one that is being started, once that is done."""
        if not self.starting(job):
            self._write_end(job)

    def _grant(self, job: Job) -> Grant:
        return Grant(job.uuid, job.epoch, job.state == STOPPING, job.held_gpus, job.placed.pool)

    def _write_end(self, job: Job) -> None:
        path = self._watching.folder(job) / LEASE_FILE
        try:
            write_file(path, self._grant(job))
        except OSError as error:
            self.troubles[job.uuid] = f"{path}: {error.strerror}"
        else:
            self.troubles.pop(job.uuid, None)
            self._watching.of(job).ends = True
            self._adapter.lease_ends(job.uuid)

    def _task(self, uuid: str, epoch: int, what: str, order: Callable[[], Coroutine[Any, Any, None]]) -> None:
        key, now = (uuid, epoch, what), self._clock()
        if key in self.tasks or now < self._not_before.get(key, now):
            return

        async def give() -> None:
            try:
                await order()
            except (AdapterError, JournalError, OSError) as error:
                self.troubles[uuid] = str(error)
                self._not_before[key] = self._clock() + _ORDER_AGAIN
            else:
                self.troubles.pop(uuid, None)
                self._not_before.pop(key, None)
                if what in _AGAIN:
                    self._not_before[key] = self._clock() + _AGAIN[what]
                self._wake()
            finally:
                self.tasks.pop(key, None)

        self.tasks[key] = asyncio.get_running_loop().create_task(give())

    async def finish(self) -> None:
        """Wait for orders under way, for a while."""
        if self.tasks:
            await asyncio.wait(list(self.tasks.values()), timeout=_PATIENCE)
