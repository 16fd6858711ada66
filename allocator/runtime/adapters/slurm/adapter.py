"""A Slurm cluster: one Slurm job for each job of ours, kept across its leases.

At the end of a lease the Slurm job is queued again and held; for the next one it is steered to other nodes and
released. Slurm chooses which GPUs of a node a job gets. What it says of a job is never taken without the mark in its
comment, and never alone: which copy of a job may run is settled on the node, by the runner.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from allocator.runtime.adapters.base import Adapter, AdapterError, Node, Seen, StartOrder
from allocator.runtime.adapters.node import LOG_FILES
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.commands import Slurm, SlurmSettings
from allocator.runtime.adapters.slurm.orders import (
    Mark,
    Start,
    begun_epoch,
    ended,
    job_name,
    kill_ordered,
    mark_of,
    order_kill,
    read_start,
    write_runner,
    write_start,
)
from allocator.runtime.adapters.slurm.records import Server, SlurmJob

# ----------------------------------------------------------------------------------------------------------------------
# What is to be thought of a start, from what Slurm says and what the runner has written.
# ----------------------------------------------------------------------------------------------------------------------


def row_of(start: Start, rows: Sequence[SlurmJob]) -> SlurmJob | None:
    """The Slurm job that a start was ordered with; others of the same job are of another epoch or another size.

    A slurmctld that was killed comes back with an older state: then none is of this epoch.
    """
    ours = [row for row in rows if row.mark == start.mark]
    return max(ours, key=lambda row: (not row.finished, row.number), default=None)


def see(start: Start, row: SlurmJob | None, *, starting: bool = False) -> Seen | None:
    """What an adapter tells of a start; None: it has never begun, and may be ordered again.

    Parameters
    ----------
    row : Slurm's job, by `row_of`.
    starting : an order for the job is being given.
    """
    seen = partial(Seen, start.mark.job, start.mark.epoch)
    number = signal.SIGKILL if kill_ordered(start) else 0
    how = ended(start)
    if how is not None and row is not None and _is_taken(start, row) and (how.code or not row.held):
        # it was ended to be queued again, whatever it made of that
        return seen("ended", None, how.signal, f"taken by Slurm: {how.reason}", how.ended_at)
    # why a job ended with an error Slurm knows when it has seen the end itself
    settled = row is None or row.restarts != start.mark.restarts or row.completing or not row.holds_gpus
    if how is not None and (settled or not how.code):
        return how
    if row is not None and row.restarts == start.mark.restarts:
        if row.holds_gpus:
            return seen("running", reason=row.state if row.completing else "")
        if row.pending and not (row.held and not starting):
            return seen("pending", reason=row.reason)
        if row.finished:
            return _finished(start, row, number)
    elif row is not None and row.completing:
        return seen("running", reason="it is being ended")
    elif row is not None:
        why = "it was stopped" if row.held else "Slurm has queued it again, as after the loss of a node"
        return seen("ended", signal=number, reason=why)
    if begun_epoch(start) >= start.mark.epoch:
        return seen("ended", signal=number, reason="Slurm no longer knows the job")
    return seen("pending", reason="it is being started") if starting else None


def _is_taken(start: Start, row: SlurmJob) -> bool:
    """Whether Slurm has queued the job again, or has ended it for reasons that are not the job's."""
    return row.restarts != start.mark.restarts or bool(row.states & _TAKEN)


def _finished(start: Start, row: SlurmJob, number: int) -> Seen:
    """Slurm's own word, which stands in for the runner's where that has written nothing."""
    ends = partial(Seen, start.mark.job, start.mark.epoch, "ended")
    said = f"Slurm: {row.state}, {row.reason}"
    if begun_epoch(start) < start.mark.epoch or _is_taken(start, row):
        return ends(signal=number, reason=said)
    if row.states & {"COMPLETED", "FAILED"}:
        return ends(row.exit_status, row.exit_signal, said)
    # out of time or memory, or cancelled
    return ends(128 + signal.SIGKILL, signal.SIGKILL, said)


_TAKEN = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"})


LOOK_SECONDS = 0.1
"""Between two looks at a job that is about to end."""

LATE_SECONDS = 5.0
"""How long after a job has gone its exit.json may come."""

REVOKED_SECONDS = 2.5
"""A node refuses a job that it was told to end until the clock, in whole seconds, has gone on: "credential revoked"."""


class SlurmAdapter(Adapter):
    """Jobs on a Slurm cluster; `jobs` is the folder with the jobs' folders, on a file system that the nodes share."""

    name: ClassVar[str] = "slurm"

    def __init__(self, jobs: Path, settings: SlurmSettings | None = None) -> None:
        self._settings = settings or SlurmSettings()
        self._jobs = jobs
        self._slurm = Slurm(self._settings)
        self._servers: list[Server] = []
        self._starts: dict[str, Start] = {}
        self._silent: dict[str, tuple[int, float]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        """Connect, and find the jobs of an earlier scheduler on the same state."""
        await self._slurm.choose_commands()
        self._servers = await self._wait_for_nodes()
        if not self._servers:
            where = f"partition {self._settings.partition}" if self._settings.partition else "the cluster"
            raise AdapterError(f"no node of {where} has GPUs: Gres=gpu:TYPE:NUMBER in slurm.conf and gres.conf")
        self._starts = await asyncio.to_thread(self._find_starts)

    def _find_starts(self) -> dict[str, Start]:
        found = (read_start(path.parent) for path in sorted(self._jobs.glob(f"*/{runner.START_FILE}")))
        return {start.mark.job: start for start in found if start is not None}

    async def close(self) -> None:
        """Nothing to disconnect."""

    async def nodes(self) -> Sequence[Node]:
        """Nodes with GPUs, by name."""
        servers = await self._slurm.servers()
        if not all(server.heard_of for server in servers):
            raise AdapterError("slurmctld was just started, and has not heard of all nodes yet")
        self._servers = servers
        return [server.node for server in servers]

    async def _wait_for_nodes(self, names: frozenset[str] = frozenset()) -> list[Server]:
        """All servers, when Slurm has heard of these, or of all; the wait has a limit."""
        deadline = time.monotonic() + self._settings.patience_seconds
        while True:
            servers = await self._slurm.servers()
            awaited = [s for s in servers if not s.heard_of and (not names or s.node.name in names)]
            if not awaited or time.monotonic() > deadline:
                return servers
            await asyncio.sleep(LOOK_SECONDS)

    async def observe(self) -> Sequence[Seen]:
        """The last start of every job; one that is not among them never ran, and may be ordered again."""
        starting = {job for job, lock in self._locks.items() if lock.locked()}
        starts = dict(self._starts)
        rows: defaultdict[str, list[SlurmJob]] = defaultdict(list)
        for row in await self._slurm.jobs():
            rows[row.mark.job].append(row)

        def see_all() -> list[Seen]:
            seen = (
                self._unless_late(start, see(start, row_of(start, rows[job]), starting=job in starting))
                for job, start in starts.items()
            )
            return [one for one in seen if one is not None]

        return await asyncio.to_thread(see_all)

    def _unless_late(self, start: Start, one: Seen | None) -> Seen | None:
        """An end of which the runner has said nothing is believed only after some seconds.

        A shared file system shows files late, and a slurmctld that was just started takes for ended what is ending.
        """
        job, epoch = start.mark.job, start.mark.epoch
        if one is None or one.phase != "ended" or one.ended_at or begun_epoch(start) < epoch:
            return one
        since = self._silent.setdefault(job, (epoch, time.monotonic()))
        if since[0] != epoch:
            since = self._silent[job] = (epoch, time.monotonic())
        late = time.monotonic() < since[1] + LATE_SECONDS
        return Seen(job, epoch, "running", reason="it has ended, nobody knows how yet") if late else one

    async def start(self, order: StartOrder) -> None:
        """Release the job's Slurm job on other nodes, or submit a new one if there is none or its size changes."""
        mark = mark_of(order)
        async with self._locks[order.job]:
            last = self._starts.get(order.job)
            if last is not None and last.mark.epoch > order.epoch:
                raise AdapterError(f"epoch {order.epoch} is stale: epoch {last.mark.epoch} was started")
            if last is not None and last.mark.epoch == order.epoch and await self._was_given(last):
                return
            row = await self._free_row(order, mark)
            script = await asyncio.to_thread(write_runner, order.folder, self._settings.python)
            try:
                if row is None:
                    await self._submit(order, mark, script)
                else:
                    await self._release(order, row)
            except AdapterError:
                if await self._revoke(order):
                    raise

    async def _was_given(self, start: Start) -> bool:
        """Whether an epoch was started already: it is in the queue, it runs, or it did."""
        row = row_of(start, await self._rows(start.mark.job))
        return await asyncio.to_thread(see, start, row) is not None

    async def _rows(self, job: str) -> list[SlurmJob]:
        return [row for row in await self._slurm.jobs() if row.mark.job == job]

    async def _free_row(self, order: StartOrder, mark: Mark) -> SlurmJob | None:
        """The job's Slurm job, held; None where a new one is needed. Others of the same job are cancelled."""
        deadline = time.monotonic() + self._settings.patience_seconds
        while True:
            rows = await self._rows(order.job)
            running = [row for row in rows if row.holds_gpus]
            queued = [row for row in rows if row.pending and not row.held]
            for row in queued:
                # Slurm has queued it again by itself, as after the loss of a node.
                await self._slurm.control("hold", row.number)
            if not running and not queued:
                break
            if time.monotonic() > deadline:
                busy = (running or queued)[0]
                raise AdapterError(
                    f"Slurm's job {busy.number} of epoch {busy.mark.epoch} is still {busy.state.lower()}"
                )
            await asyncio.sleep(LOOK_SECONDS)
        fitting = [row for row in rows if row.mark.shape == mark.shape]
        kept = max(fitting, key=lambda row: (row.pending, row.number), default=None)
        for row in rows:
            if row.pending and row is not kept:
                await self._slurm.cancel(row.number)
        if kept is None or kept.pending:
            return kept
        return await self._requeue(kept)

    async def _requeue(self, row: SlurmJob) -> SlurmJob | None:
        """A Slurm job that is through, once more in the queue; None if Slurm does not do it."""
        try:
            await self._slurm.control("requeuehold", row.number)
        except AdapterError:
            return None
        again = [other for other in await self._rows(row.mark.job) if other.number == row.number]
        return again[0] if again and again[0].pending and again[0].held else None

    async def _submit(self, order: StartOrder, mark: Mark, script: Path) -> None:
        # The order is there before the job, which may begin at once; so is the log, which Slurm would let others read.
        await self._write(order, mark)
        log = order.folder / LOG_FILES[0]
        await asyncio.to_thread(log.touch, 0o600)
        cpus, memory = await self._shares()
        options = [
            f"--job-name={job_name(order.job)}",
            f"--comment={mark}",
            f"--nodes={mark.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={cpus * mark.gpus}",
            f"--mem={memory * mark.gpus}",
            f"--gres=gpu:{mark.gpus}",
            f"--nodelist={','.join(order.placed.places)}",
            f"--chdir={order.folder}",
            f"--output={str(log).replace('%', '%%')}",
            "--open-mode=append",
            "--requeue",
        ]
        await self._slurm.submit(str(script), options)

    async def _release(self, order: StartOrder, row: SlurmJob) -> None:
        last = self._starts.get(order.job)
        if last is None or last.nodes & set(order.placed.places) or row.restarts != last.mark.restarts + 1:
            wait = row.queued_at + REVOKED_SECONDS - time.time()
            await asyncio.sleep(min(max(wait, 0.0), REVOKED_SECONDS))
        # Without StartTime a job that was queued again waits until its credential has expired, two minutes or so.
        mark = mark_of(order, row.restarts)
        nodes = ",".join(order.placed.places)
        await self._slurm.update(row.number, ReqNodeList=nodes, StartTime="now", Comment=str(mark))
        await self._write(order, mark)
        await self._slurm.control("release", row.number)

    async def _write(self, order: StartOrder, mark: Mark) -> None:
        start = await asyncio.to_thread(write_start, order, mark, self._settings.lock_seconds)
        self._starts[order.job] = start

    async def _revoke(self, order: StartOrder) -> bool:
        """After a command has failed: whether the start is void. It is not if Slurm has it, whatever was answered."""
        start = self._starts.get(order.job)
        if start is None or start.mark.epoch != order.epoch:
            return True
        try:
            if await self._was_given(start):
                return False
        except AdapterError:
            pass
        # Without an order the runner refuses, should Slurm have taken the job after all.
        await asyncio.to_thread((order.folder / runner.START_FILE).unlink, missing_ok=True)
        del self._starts[order.job]
        return True

    async def _shares(self) -> tuple[int, int]:
        """CPUs and memory in MiB that go with a GPU."""
        servers, settings = self._servers or await self._slurm.servers(), self._settings
        cpus = settings.cpus_per_gpu or max(1, min(server.cpus // server.node.gpus for server in servers))
        memory = settings.memory_per_gpu or max(1, min(server.memory // server.node.gpus for server in servers))
        return cpus, memory

    async def stop(self, job: str, epoch: int) -> None:
        """Queue the Slurm job again, and hold it: its processes get SIGTERM, and SIGKILL when KillWait is over."""
        async with self._locks[job]:
            row = await self._running(job, epoch)
            if row is not None and not row.completing:
                await self._slurm.control("requeuehold", row.number)

    async def kill(self, job: str, epoch: int) -> None:
        """End all processes through the runner, in a second or two; where that is gone Slurm does, after KillWait."""
        async with self._locks[job]:
            start = self._starts.get(job)
            if start is None or start.mark.epoch != epoch:
                return
            # This way is open also while slurmctld does not answer.
            if await asyncio.to_thread(lambda: begun_epoch(start) >= epoch and ended(start) is None):
                await asyncio.to_thread(order_kill, start)
            row = await self._running(job, epoch)
            if row is not None:
                await asyncio.to_thread(order_kill, start)
                if not row.completing:
                    await self._slurm.control("requeuehold", row.number)

    async def _running(self, job: str, epoch: int) -> SlurmJob | None:
        """The Slurm job of an epoch that runs; one that still waits is cancelled."""
        start = self._starts.get(job)
        if start is not None:
            await self._wait_for_nodes(start.nodes)
        row = await self._row(job, epoch)
        if row is not None and row.pending:
            await self._slurm.cancel(row.number, "--state=PENDING")
            row = await self._row(job, epoch)
        return row if row is not None and row.holds_gpus else None

    async def _row(self, job: str, epoch: int) -> SlurmJob | None:
        """The Slurm job of an epoch that waits or runs; None if the epoch is over."""
        start = self._starts.get(job)
        if start is None or start.mark.epoch != epoch:
            return None
        row = row_of(start, await self._rows(job))
        if row is None or row.finished or (row.pending and row.restarts > start.mark.restarts):
            return None
        return row

    async def forget(self, job: str) -> None:
        """Cancel what Slurm still keeps of a job."""
        async with self._locks[job]:
            for row in await self._rows(job):
                if not row.finished:
                    await self._slurm.cancel(row.number)
            start = self._starts.pop(job, None)
            if start is not None:
                await asyncio.to_thread((start.folder / runner.START_FILE).unlink, missing_ok=True)
            self._silent.pop(job, None)
