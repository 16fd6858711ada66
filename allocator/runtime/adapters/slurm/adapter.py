"""A Slurm cluster: a Slurm job for each start of a job of ours.

Slurm chooses which GPUs of a node a job gets. What it says of a job is never taken without the name, which tells whose
start it is, and never alone: which copy of a job may run is settled on the node, by the runner.
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

from allocator.runtime.adapters.base import Adapter, AdapterError, NoAnswerError, Node, Seen, StartOrder
from allocator.runtime.adapters.node import LOG_FILES
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.commands import Slurm
from allocator.runtime.adapters.slurm.orders import Start, shape_of, start_of, write_runner
from allocator.runtime.adapters.slurm.records import Server, SlurmJob

# ----------------------------------------------------------------------------------------------------------------------
# What is to be thought of a start, from what Slurm says and what the runner has written.
# ----------------------------------------------------------------------------------------------------------------------


def row_of(start: Start, rows: Sequence[SlurmJob]) -> SlurmJob | None:
    """The Slurm job of a start; of two, as after an answer that was lost, the one that is not through, or came last."""
    ours = [row for row in rows if row.name == start.name]
    return max(ours, key=lambda row: (not row.finished, row.number), default=None)


def see(start: Start, row: SlurmJob | None, *, starting: bool = False) -> Seen | None:
    """What an adapter tells of a start; None: it has never begun, and may be ordered again.

    Parameters
    ----------
    row : Slurm's job, by `row_of`.
    starting : an order for the job is being given.
    """
    seen = partial(Seen, start.job, start.epoch)
    how = start.end
    runs = row is not None and not (row.finished or row.pending or row.completing)
    if how is not None and row is not None and row.taken:
        # whatever it made of SIGTERM
        return seen("ended", None, how.signal, f"taken by Slurm: {how.reason}", how.ended_at)
    # why a job ended with an error Slurm knows when it has seen the end itself
    if how is not None and not (how.code and runs):
        return how
    number = signal.SIGKILL if start.kill_ordered else 0
    if row is None or row.pending:
        if start.begun:
            why = "Slurm no longer knows the job" if row is None else "Slurm has queued it again"
            return seen("ended", signal=number, reason=why)
        if row is None:
            return seen("pending", reason="it is being started") if starting else None
        return seen("pending", reason=row.reason)
    if not row.finished:
        return seen("running", reason=row.state if row.completing else "")
    # Slurm's own word stands in for the runner's where that has written nothing
    said = f"Slurm: {row.state}, {row.reason}"
    if not start.begun or row.taken:
        return seen("ended", signal=number, reason=said)
    if row.states & {"COMPLETED", "FAILED"}:
        return seen("ended", int("FAILED" in row.states), reason=said)
    # out of time or memory, or cancelled
    return seen("ended", 128 + signal.SIGKILL, signal.SIGKILL, said)


LOOK_SECONDS = 0.1
"""Between two looks at nodes of which Slurm has not heard."""

PATIENCE_SECONDS = 20.0
"""How long is waited for nodes of which a slurmctld that was just started has not heard."""

LATE_SECONDS = 5.0
"""How long after a job has gone its exit.json may come."""


class SlurmAdapter(Adapter):
    """Jobs on a Slurm cluster.

    Parameters
    ----------
    jobs : the folder with the jobs' folders, on a file system that the nodes share.
    partition : jobs go there, and its nodes count; "": the default partition, and all nodes that have GPUs.
    """

    name: ClassVar[str] = "slurm"

    def __init__(self, jobs: Path, partition: str = "") -> None:
        self._jobs, self._partition = jobs, partition
        self._slurm = Slurm(partition)
        self._servers: list[Server] = []
        self._starts: dict[str, Start] = {}
        # when the end of a start was seen of which the runner has said nothing
        self._silent: dict[Start, float] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        """Connect, and find the jobs of an earlier scheduler on the same state."""
        self._servers = await self._wait_for_nodes()
        if not self._servers:
            where = f"partition {self._partition}" if self._partition else "the cluster"
            raise AdapterError(f"no node of {where} has GPUs: Gres=gpu:TYPE:NUMBER in slurm.conf and gres.conf")
        self._starts = await asyncio.to_thread(self._find_starts)

    def _find_starts(self) -> dict[str, Start]:
        found = (Start.read(path.parent) for path in sorted(self._jobs.glob(f"*/{runner.START_FILE}")))
        return {start.job: start for start in found if start is not None}

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
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            servers = await self._slurm.servers()
            awaited = [s for s in servers if not s.heard_of and (not names or s.node.name in names)]
            if not awaited or time.monotonic() > deadline:
                return servers
            await asyncio.sleep(LOOK_SECONDS)

    async def observe(self) -> Sequence[Seen]:
        """The last start of every job; one that is not among them never ran, and may be ordered again."""
        starting = {job for job, lock in self._locks.items() if lock.locked()}
        starts = list(self._starts.values())
        rows: defaultdict[str, list[SlurmJob]] = defaultdict(list)
        for row in await self._slurm.jobs():
            rows[row.name].append(row)

        def see_all() -> list[Seen | None]:
            return [
                self._unless_late(start, see(start, row_of(start, rows[start.name]), starting=start.job in starting))
                for start in starts
            ]

        return [one for one in await asyncio.to_thread(see_all) if one is not None]

    def _unless_late(self, start: Start, one: Seen | None) -> Seen | None:
        """An end of which the runner has said nothing is believed only after some seconds.

        A shared file system shows files late, and a slurmctld that was just started takes for ended what is ending.
        """
        if one is None or one.phase != "ended" or one.ended_at or not start.begun:
            return one
        late = time.monotonic() < self._silent.setdefault(start, time.monotonic()) + LATE_SECONDS
        reason = "it has ended, nobody knows how yet"
        return Seen(start.job, start.epoch, "running", reason=reason) if late else one

    async def start(self, order: StartOrder) -> None:
        """Submit a Slurm job; those of earlier starts are cancelled, and the runner waits for what is left of them."""
        start, shape = start_of(order), shape_of(order)
        async with self._locks[order.job]:
            last = self._starts.get(order.job)
            if last is not None:
                if last.epoch > order.epoch:
                    raise AdapterError(f"epoch {order.epoch} is stale: epoch {last.epoch} was started")
                if last.epoch == order.epoch:
                    row = row_of(last, await self._slurm.jobs())
                    # it is in the queue, it runs, or it did
                    if await asyncio.to_thread(see, last, row) is not None:
                        return
                await self._cancel(last)
            # The order is there before the job, which may begin at once.
            script = await asyncio.to_thread(write_runner, order.folder)
            await asyncio.to_thread(start.write, order)
            self._starts[order.job] = start
            try:
                await self._slurm.submit(str(script), await self._options(order, start.name, *shape))
            except NoAnswerError:
                raise
            except AdapterError:
                await self._erase(self._starts.pop(order.job))
                raise

    async def _options(self, order: StartOrder, name: str, nodes: int, gpus: int) -> list[str]:
        log = order.folder / LOG_FILES[0]
        # Slurm would let others read it
        await asyncio.to_thread(log.touch, 0o600)
        cpus, memory = await self._shares()
        return [
            f"--job-name={name}",
            f"--nodes={nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={cpus * gpus}",
            f"--mem={memory * gpus}",
            f"--gres=gpu:{gpus}",
            f"--nodelist={','.join(order.placed.places)}",
            f"--chdir={order.folder}",
            f"--output={str(log).replace('%', '%%')}",
            "--open-mode=append",
            "--no-requeue",
        ]

    async def _shares(self) -> tuple[int, int]:
        """CPUs and memory in MiB that go with a GPU: what each has on the node where it is least."""
        servers = self._servers or await self._slurm.servers()
        shares = [(server.cpus // server.node.gpus, server.memory // server.node.gpus) for server in servers]
        return max(min(cpus for cpus, _ in shares), 1), max(min(memory for _, memory in shares), 1)

    async def _cancel(self, start: Start) -> None:
        """Cancel the Slurm job of a start; one that has told its end goes by itself."""
        if await asyncio.to_thread(lambda: start.end) is None:
            await self._slurm.cancel(start.name)

    async def stop(self, job: str, epoch: int) -> None:
        """Cancel the Slurm job: its processes get SIGTERM, and SIGKILL when KillWait is over."""
        await self._end(job, epoch, kills=False)

    async def kill(self, job: str, epoch: int) -> None:
        """End all processes through the runner, in a second or two; where that is gone Slurm does, after KillWait."""
        await self._end(job, epoch, kills=True)

    async def _end(self, job: str, epoch: int, *, kills: bool) -> None:
        async with self._locks[job]:
            start = self._starts.get(job)
            if start is None or start.epoch != epoch:
                return
            if kills:
                # This way is open also while slurmctld does not answer.
                await asyncio.to_thread(start.order_kill)
            await self._wait_for_nodes(start.nodes)
            await self._cancel(start)

    async def forget(self, job: str) -> None:
        """Cancel what Slurm still keeps of a job."""
        async with self._locks[job]:
            if job in self._starts:
                await self._cancel(self._starts[job])
                await self._erase(self._starts.pop(job))

    async def _erase(self, start: Start) -> None:
        self._silent.pop(start, None)
        await asyncio.to_thread(start.erase)
