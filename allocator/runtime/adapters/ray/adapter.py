"""A Ray cluster: a placement group for each start, on the nodes that were chosen, and a supervisor on each node.

The group holds the GPUs, which Ray's other users then leave alone, and says which they are. Supervisors tell what
happens on their nodes; what they tell is kept, and the files of the jobs are copied, before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from allocator.lease.fence import StaleLeaseError, locked_lease
from allocator.lease.files import LEASE_FILE, REPORT_FILE
from allocator.lease.whole import epoch_in, read_bytes, read_object, write_bytes
from allocator.runtime.adapters.base import Adapter, AdapterError, CommandError, NoAnswerError, Node, Seen, StartOrder
from allocator.runtime.adapters.node import NOT_EXECUTABLE, OTHERS_SECONDS, Log
from allocator.runtime.adapters.ray.connection import Connection
from allocator.runtime.adapters.ray.supervisor import SERVICES, Ranks, Told, piece_of, put_piece, saved_in, without_ray

START_FILE = "ray.json"

RUNTIME_ENV = "RAY_RUNTIME_ENV"
"""A variable of a job: Ray's runtime_env for it, as JSON."""

_NEWS_SECONDS = 2.0
"""How long a supervisor waits for something to tell."""

_ANSWER_SECONDS = 30.0
"""That a supervisor may take to answer."""

_AGAIN_SECONDS = 1.0
"""Between two requests to a supervisor that does not answer."""

_REMEMBERED_SECONDS = 3600.0
"""For which a node that was lost is shown."""


@dataclass
class _Start:
    """The last start of a job that was ordered, as it is written down in the job's folder.

    Attributes
    ----------
    job, epoch : which one.
    places : by id of its nodes their names, and the positions of its GPUs there.
    runs : ids of those nodes on which processes of it are; the first has the first of them.
    log_bytes : as ordered.
    cursors : by id of the node how far its output was read.
    end : how it ended, None before that.
    failed_at : when a part of it was seen to have ended badly, while others ran.
    """

    job: str
    epoch: int
    places: dict[str, tuple[str, tuple[int, ...]]]
    runs: tuple[str, ...]
    log_bytes: int
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict)
    end: Seen | None = None
    failed_at: float | None = None

    def write(self, folder: Path) -> None:
        """What another service has to know."""
        told = asdict(replace(self, failed_at=None))
        write_bytes(folder / START_FILE, json.dumps(told).encode())

    @classmethod
    def read(cls, folder: Path) -> _Start | None:
        """What was written there; None: nothing."""
        told = read_object(folder / START_FILE)
        if not told:
            return None
        end = Seen(**told["end"]) if told["end"] else None
        cursors = {node: tuple(cursor) for node, cursor in told["cursors"].items()}
        return cls(**told | {"end": end, "cursors": cursors, "runs": tuple(told["runs"])})


class RayAdapter(Adapter):
    """Jobs on a Ray cluster.

    Parameters
    ----------
    state : folder of the scheduler's state.
    address : as Ray takes it: ``auto``, or host and port of the head.
    types : our name of an accelerator type by Ray's, where it is not Ray's in small letters.

    Attributes
    ----------
    patience_seconds : how long a start waits for its GPUs.
    lost_seconds : from when Ray calls a node lost to when what ran there is taken to have ended: for as long a raylet
        that is cut off, and so the jobs of its node, may run on (RAY_gcs_rpc_server_reconnect_timeout_s and a bit).
    """

    name: ClassVar[str] = "ray"
    patience_seconds, lost_seconds = 10.0, 65.0

    def __init__(self, state: Path, address: str = "auto", types: Mapping[str, str] | None = None) -> None:
        self._address, self._types = address, types or {}
        self._folder = state.absolute()
        self._rows: dict[str, dict[str, Any]] = {}
        self._lost: dict[str, float] = {}
        self._told: dict[str, dict[str, Told]] = {}
        self._silent: dict[str, str] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._starts: dict[str, _Start] = {}
        self._begun: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        """Connect to Ray, find what was started before, and what has become of it."""
        own = self._folder / "ray"
        try:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (own / "service").exists():
                write_bytes(own / "service", f"{SERVICES}{uuid.uuid4().hex[:12]}".encode())
            self._service = read_bytes(own / "service").decode()
            folders = [Path(entry.path) for entry in os.scandir(self._jobs)] if self._jobs.is_dir() else []
        except OSError as error:
            raise AdapterError(f"{own}: {error}") from error
        self._starts = {start.job: start for start in map(_Start.read, folders) if start is not None}
        for start in self._starts.values():
            for node, cursor in start.cursors.items():
                self._told.setdefault(node, {})[start.job] = Told(cursor=cursor)
        self._connection = Connection(self._service, self._address, own / "log")
        await self.nodes()
        kept = {self._group(start) for start in self._starts.values() if start.end is None}
        for name in await self._connection.ask("groups"):
            if name not in kept:
                await self._connection.ask("remove", name)
        await asyncio.gather(*(self._hear(node, 0.0) for node in self._rows), return_exceptions=True)

    @property
    def _jobs(self) -> Path:
        return self._folder / "jobs"

    def _group(self, start: _Start) -> str:
        return f"{self._service}:{start.job}:{start.epoch}"

    async def close(self) -> None:
        """Jobs and supervisors stay; those of nodes without jobs go."""
        for task in (*self._followers.values(), *self._tasks):
            task.cancel()
        await asyncio.gather(*self._followers.values(), *self._tasks, return_exceptions=True)
        with suppress(AdapterError):
            await asyncio.gather(
                *(self._connection.ask("dismiss", n, seconds=5.0) for n, t in self._told.items() if not t)
            )
        await self._connection.close()

    # -- nodes --------------------------------------------------------------------------------------------------------

    async def nodes(self) -> Sequence[Node]:
        """Those with GPUs; those that were lost are down, and forgotten after a while."""
        now, before = time.monotonic(), self._rows
        rows = {row["id"]: row for row in await self._connection.ask("nodes")}
        known = {**before, **{node: {} for start in self._starts.values() if not start.end for node in start.places}}
        for node in known.keys() - rows.keys():
            self._lost.setdefault(node, now)
            if node in self._followers:
                self._followers.pop(node).cancel()
        for node, row in rows.items():
            self._lost.pop(node, None)
            # what Ray tells of a GPU that is given or given back comes late
            row["held"] = max(0, math.ceil(min(row["others"], before.get(node, {}).get("others", 0.0)) - 1e-6))
            if node not in self._followers:
                self._silent.setdefault(node, "its supervisor has not answered yet")
                self._followers[node] = asyncio.create_task(self._follow(node))
        gone = {node: row for node, row in before.items() if now < self._lost.get(node, 0.0) + _REMEMBERED_SECONDS}
        self._rows = {**{node: row for node, row in gone.items() if node not in rows}, **rows}
        return sorted((self._node(row) for row in self._rows.values()), key=lambda node: node.name)

    def _node(self, row: Mapping[str, Any]) -> Node:
        kind = self._types.get(row["type"], row["type"].lower())
        node = Node(row["name"], kind, row["gpus"])
        if row["id"] in self._lost:
            return replace(node, up=False, reason="Ray has lost it")
        here = (start.places.get(row["id"]) for start in self._starts.values() if start.end is None)
        ours = {position for place in here if place for position in place[1]}
        free = [position for position in range(node.gpus) if position not in ours]
        return replace(node, taken=tuple(free[max(len(free) - row["held"], 0) :]))

    # -- what is ------------------------------------------------------------------------------------------------------

    async def _tell(self, node: str, request: str, *arguments: object, seconds: float = 0.0) -> Any:
        return await self._connection.ask("tell", node, request, arguments, seconds=_ANSWER_SECONDS + seconds)

    async def _follow(self, node: str) -> None:
        """Hear what happens on a node, as long as it is there."""
        while True:
            try:
                await self._hear(node, _NEWS_SECONDS)
            except (AdapterError, OSError) as error:
                self._silent[node] = str(error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _hear(self, node: str, seconds: float) -> None:
        asked, known = time.monotonic(), self._told.setdefault(node, {})
        told: dict[str, tuple[Told, bytes]] = await self._tell(node, "news", dict(known), seconds, seconds=seconds)
        for job, (one, output) in told.items():
            # a start that was ordered meanwhile may not be among it yet
            if self._begun.get(job, 0.0) <= asked:
                await self._take(node, job, one, output)
        self._silent.pop(node, None)

    async def _take(self, node: str, job: str, told: Told, output: bytes) -> None:
        """Keep what a supervisor tells of a job, its files first."""
        start, known = self._starts.get(job), self._told[node].get(job, Told())
        if told.seen is None:
            self._told[node].pop(job, None)
            return
        if start is not None and told.seen.epoch < start.epoch:
            # as of a node that was cut off, or from which the job has gone
            over = told.seen.phase == "ended"
            self._do(self._tell(node, *(("forget", job) if over else ("order", "kill", job, told.seen.epoch))))
        elif start is not None and start.end is None and told.seen.epoch == start.epoch and node in start.runs:
            folder = self._jobs / job
            if output:
                await asyncio.to_thread(_append, folder, output, start.log_bytes)
                start.cursors[node] = told.cursor
                start.write(folder)
                known = self._told[node][job] = replace(known, cursor=told.cursor)
            if node == start.runs[0]:
                if told.report and told.report != known.report:
                    write_bytes(folder / REPORT_FILE, told.report)
                await self._fetch(node, start, told.saved, known.saved)
        self._told[node][job] = told

    async def _fetch(self, node: str, start: _Start, saved: Mapping[str, int], known: Mapping[str, int]) -> None:
        """Copy what a job has saved to its folder; refused where a later start has taken its place."""
        folder = self._jobs / start.job
        if saved == known:
            return
        there = saved_in(folder / "checkpoint")
        for name in (name for name, stamp in sorted(saved.items()) if stamp not in (there.get(name), known.get(name))):
            size = 0
            while piece := await self._tell(node, "fetch", start.job, name, size):
                await asyncio.to_thread(put_piece, folder, name, size, piece)
                size += len(piece)
            with suppress(StaleLeaseError):
                await asyncio.to_thread(_commit, folder, start, name, size)
        # as its trainer has done; what is not numbered is told at the end alone
        for name in there.keys() - saved.keys() if saved else ():
            if name.isdecimal():
                await asyncio.to_thread(shutil.rmtree, folder / "checkpoint" / name, ignore_errors=True)

    async def observe(self) -> Sequence[Seen]:
        """From what the supervisors have told."""
        await self._connection.open()
        jobs = {job for told in self._told.values() for job in told} | self._starts.keys()
        return [one for one in map(self._see, jobs) if one is not None]

    def _see(self, job: str) -> Seen | None:
        start = self._starts.get(job)
        told = [one for node, jobs in self._told.items() if node not in self._lost for one in [jobs.get(job)] if one]
        strays = [one.seen for one in told if one.seen and (start is None or one.seen.epoch > start.epoch)]
        if strays:
            return max(strays, key=lambda seen: (seen.phase != "ended", seen.epoch))
        if start is None:
            return None
        if start.end is None:
            seen = self._whole(start, [self._part(start, node) for node in start.places if self._counts(start, node)])
            if seen is None or seen.phase != "ended":
                return seen
            self._end(start, seen)
        return start.end

    def _counts(self, start: _Start, node: str) -> bool:
        """Of nodes whose GPUs a job has without a process there it matters only that they are not lost."""
        return node in start.runs or node in self._lost

    def _part(self, start: _Start, node: str) -> Seen | None:
        """What is seen of a start on one node; None: it has not begun there."""
        seen, name = partial(Seen, start.job, start.epoch), start.places[node][0]
        told = self._told.get(node, {}).get(start.job, Told()).seen
        if told is not None and (told.epoch, told.phase) == (start.epoch, "ended"):
            return told
        # of what nobody has told nobody knows whether it has begun
        there = "pending" if told is None or told.epoch != start.epoch else told.phase
        if node in self._lost:
            left = self._lost[node] + self.lost_seconds - time.monotonic()
            if left <= 0:
                return seen("ended", reason=f"Ray has lost node {name}")
            return seen(there, reason=f"Ray has lost node {name}: in {left:.0f} s nothing of it can run there")
        silent = self._silent.get(node, "")
        if told is not None and told.epoch == start.epoch:
            return replace(told, reason=told.reason or silent)
        return seen(there, reason=silent) if silent else None

    def _whole(self, start: _Start, parts: Sequence[Seen | None]) -> Seen | None:
        """What is seen of a start from its parts; None: it has not begun everywhere, and may be ordered again."""
        ended = [part for part in parts if part is not None and part.phase == "ended"]
        running = [part for part in parts if part is not None and part.phase != "ended"]
        failed = min((part for part in ended if part.code != 0), key=lambda part: part.ended_at, default=None)
        if failed is not None and running:
            self._end_others(start)
        if running:
            return (
                None
                if None in parts and failed is None
                else min(running, key=lambda part: (part.phase, not part.reason))
            )
        return None if not ended else failed or ended[0]

    def _end_others(self, start: _Start) -> None:
        """A part of a start has ended badly: the others are asked to end, too, and killed after a while."""
        if start.failed_at is None:
            start.failed_at = time.monotonic()
            self._do(self.stop(start.job, start.epoch))
        elif time.monotonic() >= start.failed_at + OTHERS_SECONDS:
            start.failed_at = time.monotonic()
            self._do(self.kill(start.job, start.epoch))

    def _end(self, start: _Start, seen: Seen) -> None:
        """A start has ended: it is written down, and its GPUs are given back."""
        start.end = seen
        with suppress(OSError):
            start.write(self._jobs / start.job)
        self._do(self._connection.ask("remove", self._group(start)))

    def _do(self, order: Coroutine[Any, Any, Any]) -> None:
        """In the background; what does not work is ordered again by whoever misses it."""

        async def give() -> None:
            with suppress(AdapterError, OSError):
                await order

        task = asyncio.create_task(give())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lease_ends(self, job: str) -> None:
        """Send the lease to the nodes of the job."""
        start = self._starts.get(job)
        if start is not None:
            self._do(self._send_lease(start, read_bytes(self._jobs / job / LEASE_FILE)))

    async def _send_lease(self, start: _Start, lease: bytes) -> None:
        while start.end is None:
            with suppress(AdapterError):
                await asyncio.gather(*(self._tell(node, "lease", start.job, lease) for node in start.runs))
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    # -- orders -------------------------------------------------------------------------------------------------------

    async def start(self, order: StartOrder) -> None:
        """Have the GPUs, send what is saved, and have each node start its part."""
        async with self._locks[order.job]:
            last = self._starts.get(order.job)
            if last is not None:
                seen = self._see(order.job)
                if last.epoch > order.epoch or (last.epoch < order.epoch and seen and seen.phase != "ended"):
                    raise AdapterError(f"epoch {order.epoch} cannot start: epoch {last.epoch} is the last one")
                if last.epoch == order.epoch and seen is not None:
                    if seen.phase == "pending":
                        raise NoAnswerError(seen.reason)
                    return
            start, environment = self._started(order, last), _runtime_env(order)
            counts = {node: len(positions) for node, (_, positions) in start.places.items()}
            start.write(order.folder)
            self._starts[order.job] = start
            patience = self.patience_seconds
            try:
                given = await self._connection.ask(
                    "place", self._group(start), counts, environment, patience, seconds=patience + _SETUP_SECONDS
                )
                refused = await self._begin(order, start, dict(zip(counts, given, strict=True)), environment)
            except NoAnswerError:
                raise
            except AdapterError:
                await self._void(start, last)
                raise
            self._begun[order.job] = time.monotonic()
            if refused:
                if self._see(order.job) is None:
                    await self._void(start, last)
                else:
                    self._do(self.kill(order.job, order.epoch))
                code = max(code for _, code in refused)
                raise CommandError(refused[0][0], code) if code else AdapterError(refused[0][0])

    def _started(self, order: StartOrder, last: _Start | None) -> _Start:
        ids = {row["name"]: node for node, row in self._rows.items() if node not in self._lost}
        if missing := [name for name in order.placed.places if name not in ids]:
            raise AdapterError(f"no such node: {', '.join(missing)}; there are {', '.join(ids)}")
        places = {ids[name]: (name, positions) for name, positions in order.placed.places.items()}
        runs = tuple(places) if order.one_process_per_gpu else tuple(places)[:1]
        return _Start(order.job, order.epoch, places, runs, order.log_bytes, dict(last.cursors) if last else {})

    async def _begin(
        self,
        order: StartOrder,
        start: _Start,
        given: Mapping[str, tuple[list[int], dict[str, str], str]],
        own: Mapping[str, Any],
    ) -> list[tuple[str, int]]:
        """Have each node start its part; what those say that do not."""
        first, each = start.runs[0], order.one_process_per_gpu
        port = await self._tell(first, "port") if each else 0
        lease, number = read_bytes(order.folder / LEASE_FILE), 0
        variables = {name: value for name, value in order.environment.items() if name != RUNTIME_ENV}
        orders: list[Coroutine[Any, Any, tuple[str, int]]] = []
        for node in start.runs:
            gpus, base, folder = given[node]
            ranks = Ranks(number, len(gpus), len(order.placed.gpus), self._rows[first]["address"], port)
            number += len(gpus)
            # a runtime_env brings variables of its own, and perhaps a working directory
            directory = Path(folder) if "working_dir" in own else order.working_directory
            part = replace(order, environment=variables, working_directory=directory)
            told = part, lease, gpus, ranks if each else None, without_ray(base) if own else {}
            orders.append(self._start_on(node, start, told))
        return [answer for answer in await asyncio.gather(*orders) if answer != ("", 0)]

    async def _start_on(self, node: str, start: _Start, told: tuple[Any, ...]) -> tuple[str, int]:
        folder = self._jobs / start.job
        saved = await asyncio.to_thread(saved_in, folder / "checkpoint")
        if await self._tell(node, "prepare", start.job, start.epoch, saved):
            start.cursors.pop(node, None)
            self._told.setdefault(node, {}).pop(start.job, None)
            for name in saved:
                size = 0
                while piece := await asyncio.to_thread(piece_of, folder, name, size, node):
                    await self._tell(node, "put", start.job, name, size, piece)
                    size += len(piece)
                await self._tell(node, "put", start.job, name, size, b"")
        answer: tuple[str, int] = await self._tell(node, "start", *told)
        if answer == ("", 0):
            seen = Seen(start.job, start.epoch, "running")
            self._told.setdefault(node, {})[start.job] = Told(seen, cursor=start.cursors.get(node, (0, 0)))
        return answer

    async def _void(self, start: _Start, last: _Start | None) -> None:
        """A start has not begun anywhere: it is as if it had not been ordered."""
        del self._starts[start.job]
        path = self._jobs / start.job / START_FILE
        path.unlink(missing_ok=True)
        if last is not None and last.end is not None:
            self._starts[start.job] = last
            last.write(path.parent)
        with suppress(AdapterError):
            await self._connection.ask("remove", self._group(start))

    async def stop(self, job: str, epoch: int) -> None:
        """SIGTERM on each node."""
        await self._order(job, epoch, "stop")

    async def kill(self, job: str, epoch: int) -> None:
        """SIGKILL on each node."""
        await self._order(job, epoch, "kill")

    async def _order(self, job: str, epoch: int, what: str) -> None:
        start = self._starts.get(job)
        runs = start.runs if start is not None and start.epoch == epoch else ()
        there = (node for node, jobs in self._told.items() if (s := jobs.get(job, Told()).seen) and s.epoch == epoch)
        nodes = {*runs, *there} - self._lost.keys()
        await asyncio.gather(*(self._tell(node, "order", what, job, epoch) for node in nodes))

    async def forget(self, job: str) -> None:
        """Take a job off all nodes that tell of it."""
        async with self._locks[job]:
            start = self._starts.get(job)
            for node in [node for node, jobs in self._told.items() if job in jobs and node not in self._lost]:
                await self._tell(node, "forget", job)
                self._told[node].pop(job, None)
            if start is not None:
                await self._connection.ask("remove", self._group(start))
                (self._jobs / job / START_FILE).unlink(missing_ok=True)
                del self._starts[job]
            self._begun[job] = time.monotonic()
        self._locks.pop(job, None)


_SETUP_SECONDS = 600.0
"""That Ray may take to make a runtime_env, and its first worker on a node."""


def _runtime_env(order: StartOrder) -> dict[str, Any]:
    """The runtime_env of a job; empty where it asks for none."""
    text = order.environment.get(RUNTIME_ENV, "{}")
    with suppress(ValueError):
        told = json.loads(text)
        if isinstance(told, dict):
            return told
    raise CommandError(f"{RUNTIME_ENV} is not an object of JSON: {text[:80]}", NOT_EXECUTABLE)


def _append(folder: Path, output: bytes, limit: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        Log(limit, descriptor).write(output)
    finally:
        os.close(descriptor)


def _commit(folder: Path, start: _Start, name: str, size: int) -> None:
    """Put a copied checkpoint in place, unless a later start has the lease."""
    with locked_lease(folder):
        if epoch_in(folder / LEASE_FILE) > start.epoch:
            raise StaleLeaseError(f"epoch {start.epoch} is stale")
        put_piece(folder, name, size, b"")
