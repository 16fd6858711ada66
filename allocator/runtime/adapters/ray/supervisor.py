"""What runs on each node of a Ray cluster: an actor that starts and watches jobs there as the local adapter does.

The files of a job are on the node, in a folder of the user's own; the adapter copies them from and to the folder of the
service, so no file system need be shared. Jobs outlive the actor, and another one finds them again; they do not outlive
the raylet of their node, which alone says that their GPUs are theirs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar
from zlib import crc32

from allocator.lease.checkpoints import MANIFEST_FILE
from allocator.lease.fence import StaleLeaseError, raise_epoch
from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, parse, write_file
from allocator.lease.whole import epoch_in, read_bytes
from allocator.runtime.adapters.base import (
    PIECE,
    AdapterError,
    CommandError,
    Cursor,
    Seen,
    StartOrder,
    gpu_variables,
    lease_variables,
    output_since,
)
from allocator.runtime.adapters.local import LocalAdapter
from allocator.runtime.adapters.node import free_port, start_time_of, variables_of_rank
from allocator.runtime.records.ownership import own_folder

SERVICES = "allocator-"
"""How the names of services begin, and so those of placement groups."""

LOOK_SECONDS = 0.1
"""Between two looks at the jobs of a node."""


@dataclass(frozen=True)
class Ranks:
    """Where the processes of a job on one node stand among all of them.

    Attributes
    ----------
    first, here, all : number of the first of them; how many there are here, and in all.
    address, port : where they meet.
    """

    first: int = 0
    here: int = 1
    all: int = 1
    address: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True)
class Told:
    """What a supervisor tells of a job on its node, and what the adapter has of it.

    Attributes
    ----------
    seen : its last start here. report : what its trainer has written last. cursor : how far its output was read.
    saved : by name what is in its folder for checkpoints, with a number that changes with it.
    """

    seen: Seen | None = None
    report: bytes = b""
    cursor: Cursor = (0, 0)
    saved: Mapping[str, int] = field(default_factory=dict)


PART = "ALLOCATOR_PART"
"""A variable of the processes of a job on one node: two nodes of a test may be one machine."""


class _Jobs(LocalAdapter):
    """Jobs on this node, each named by itself and the node; Ray says which GPUs they have."""

    carrier: ClassVar[str] = PART

    def __init__(self, state: Path, raylet: int) -> None:
        super().__init__(state, {"gpu": ()})
        self.guard = raylet, start_time_of(raylet)
        self.variables: dict[str, list[dict[str, str]]] = {}

    def environments(self, order: StartOrder) -> list[dict[str, str]]:
        """As the supervisor was told with the order."""
        return self.variables.pop(order.job)


class Supervisor:
    """The actor of a node.

    Parameters
    ----------
    service : whose jobs it has, by a name that no other service has. node : Ray's id of the node.
    address : of the Ray cluster.
    """

    def __init__(self, service: str, node: str, address: str) -> None:
        root = Path(tempfile.gettempdir()).resolve() / f"allocator-{os.getuid()}"
        for part in (root, root / service):
            part.mkdir(mode=0o700, exist_ok=True)
        self._folder = own_folder(root / service / node[:16], make=True)
        raylet = int(os.environ.get("RAY_RAYLET_PID") or os.getppid())
        self._node = node[:16]
        self._address = address
        self._environment = without_ray(
            dict(entry.split("=", 1) for entry in read_text(f"/proc/{raylet}/environ").split("\0") if "=" in entry)
        )
        self._jobs = _Jobs(self._folder, raylet)
        self._opened = False
        self._opening = asyncio.Lock()

    def _part(self, job: str) -> str:
        return f"{job}@{self._node}"

    async def _observe(self) -> list[Seen]:
        seen = await (await self._open()).observe()
        return [replace(one, job=one.job.partition("@")[0]) for one in seen]

    async def _open(self) -> _Jobs:
        async with self._opening:
            if not self._opened:
                await self._jobs.open()
                self._opened = True
        return self._jobs

    def _of(self, job: str) -> Path:
        return self._folder / "jobs" / Path(job).name

    async def port(self) -> int:
        """A free port of this node."""
        return free_port()

    async def start(
        self, order: StartOrder, lease: bytes, gpus: list[int], ranks: Ranks | None, base: Mapping[str, str]
    ) -> tuple[str, int]:
        """Start the processes of a job on this node; ("", 0), or why not and the exit status of no such command.

        Parameters
        ----------
        order : its folder is that of the service, and not looked at. lease : as the service wrote it.
        gpus : those of this node that Ray gave. ranks : None: one process, without the variables of torchrun.
        base : variables instead of those of the node; empty: those.
        """
        jobs, folder = await self._open(), self._of(order.job)
        (folder / "checkpoint").mkdir(mode=0o700, parents=True, exist_ok=True)
        grant = parse(lease, Grant)
        try:
            if grant is None or (grant.job, grant.epoch) != (order.job, order.epoch):
                raise AdapterError(f"epoch {order.epoch} is stale: the lease of the service is another")
            await asyncio.to_thread(raise_epoch, folder, grant)
            common = {**(base or self._environment), "RAY_ADDRESS": self._address, **order.environment}
            common[PART] = part = self._part(order.job)
            common |= lease_variables(order, folder) | gpu_variables(gpus)
            jobs.variables[part] = [common] if ranks is None else list(_of_ranks(common, ranks))
            await jobs.start(replace(order, job=part, folder=folder))
        except CommandError as error:
            return str(error), error.code
        except (AdapterError, StaleLeaseError, OSError) as error:
            return str(error) or repr(error), 0
        return "", 0

    async def order(self, what: str, job: str, epoch: int) -> None:
        """To stop or to kill a job, see `Adapter`."""
        await getattr(await self._open(), what)(self._part(job), epoch)

    async def forget(self, job: str) -> None:
        """See `Adapter`; its folder on this node goes, too."""
        await (await self._open()).forget(self._part(job))
        await asyncio.to_thread(_remove, self._of(job))

    async def lease(self, job: str, content: bytes) -> None:
        """The service has written the lease of a job anew."""
        path, grant = self._of(job) / LEASE_FILE, parse(content, Grant)
        if grant is not None and epoch_in(path) == grant.epoch:
            write_file(path, grant)

    async def news(self, known: Mapping[str, Told], seconds: float) -> dict[str, tuple[Told, bytes]]:
        """What is otherwise than `known`, with output that came since; waits for it for so long at most.

        A job of which nothing is known any more has no `seen`.
        """
        until = time.monotonic() + seconds
        while True:
            found = {one.job: self._look(one, known.get(one.job, Told())) for one in await self._observe()}
            news = {job: one for job, one in found.items() if one[0] != known.get(job)}
            news |= {job: (Told(), b"") for job in known.keys() - found.keys()}
            if news or time.monotonic() >= until:
                return news
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, seen: Seen, known: Told) -> tuple[Told, bytes]:
        folder = self._of(seen.job)
        output, cursor = output_since(folder, known.cursor)
        saved = saved_in(folder / "checkpoint", others=seen.phase == "ended")
        # the end is told when all before it was
        if output and seen.phase == "ended":
            seen = replace(seen, phase="running", reason="its last output is read")
        return Told(seen, read_bytes(folder / REPORT_FILE), cursor, saved), output

    async def prepare(self, job: str, epoch: int, saved: Mapping[str, int]) -> bool:
        """Whether all that is saved has to be sent for a new start; then what was here of earlier ones is gone."""
        seen = {one.job: one for one in await self._observe()}.get(job)
        here = seen is not None and (seen.epoch >= epoch or seen.phase != "ended")
        if here or saved_in(self._of(job) / "checkpoint") == saved:
            return False
        await self.forget(job)
        (self._of(job) / "checkpoint").mkdir(mode=0o700, parents=True)
        return True

    async def fetch(self, job: str, name: str, start: int) -> bytes:
        """A piece of something in the folder for checkpoints, as an archive; b"" after the last."""
        return await asyncio.to_thread(piece_of, self._of(job), name, start)

    async def put(self, job: str, name: str, start: int, content: bytes) -> None:
        """The other way; b"" says that it was the last."""
        await asyncio.to_thread(put_piece, self._of(job), name, start, content)


def without_ray(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables without those by which Ray speaks to its own processes, but with those that let into the cluster."""
    kept = "RAY_AUTH_"
    return {n: value for n, value in variables.items() if not n.startswith("RAY_") or n.startswith(kept)}


def read_text(path: str) -> str:
    """A file in the encoding of names of files."""
    with open(path, "rb") as file:
        return os.fsdecode(file.read())


def _of_ranks(common: Mapping[str, str], ranks: Ranks) -> Iterator[dict[str, str]]:
    for local in range(ranks.here):
        rank = variables_of_rank(ranks.first + local, local, ranks.all, ranks.here, ranks.address, ranks.port)
        yield {**common, **rank}


def saved_in(folder: Path, *, others: bool = True) -> dict[str, int]:
    """Checkpoints by name; and `others`, which are written in place, with when and how large."""
    found = {}
    with suppress(FileNotFoundError):
        for entry in folder.iterdir():
            if entry.name.isdecimal():
                found[entry.name] = crc32(read_bytes(entry / MANIFEST_FILE))
            elif others and not entry.name.startswith("."):
                found[entry.name] = _stamp(entry)
    return found


def _stamp(path: Path) -> int:
    status = [one.lstat() for one in (path, *(path.rglob("*") if path.is_dir() else ()))]
    return hash(tuple(sorted((one.st_ino, one.st_mtime_ns, one.st_size) for one in status)))


def _archive(folder: Path, name: str, reader: str = "") -> Path:
    return folder / f".{Path(name).name}{reader}.tar"


def piece_of(folder: Path, name: str, start: int, reader: str = "") -> bytes:
    """A piece of the archive of ``checkpoint/name`` in the folder of a job, which is made with the first one.

    Each `reader` has one of its own.
    """
    archive = _archive(folder, name, reader)
    if not start:
        with tarfile.open(archive, "w") as made:
            made.add(folder / "checkpoint" / Path(name).name, Path(name).name)
    with archive.open("rb") as file:
        file.seek(start)
        piece = file.read(PIECE)
    if not piece:
        archive.unlink()
    return piece


def put_piece(folder: Path, name: str, start: int, content: bytes) -> None:
    """Write a piece of such an archive; with the last one, b"", take its content in place of what was there."""
    archive = _archive(folder, name)
    if content:
        with archive.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.write(content)
        return
    place, aside = folder / "checkpoint" / Path(name).name, folder / f".{Path(name).name}.new"
    _remove(aside)
    with tarfile.open(archive) as told:
        told.extractall(aside, filter="data")
    _remove(place)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    os.replace(aside / Path(name).name, place)
    _remove(aside)
    archive.unlink()


def _remove(path: Path) -> None:
    """A file, or a folder with all in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
