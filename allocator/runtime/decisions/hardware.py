"""Nodes of a real cluster as the decision core sees them, who is placed on them, and the orders that follow.

The core knows GPUs by number, type by type and server by server; everybody else by node and position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from allocator.cluster import Cluster
from allocator.runtime.adapters.base import Node
from allocator.runtime.records.book import QUEUED, STOPPING, Job

Places = Mapping[str, tuple[int, ...]]
"""GPUs: by node their positions."""


@dataclass(frozen=True)
class Placed:
    """Where a job is to run.

    Attributes
    ----------
    pool : accelerator type. places : its GPUs. partner : UUID of the job that shares them, "" for none.
    """

    pool: str
    places: Places
    partner: str = ""


class Hardware:
    """The nodes that can be used, and the number of each of their GPUs.

    Parameters
    ----------
    nodes : all nodes, those that are down included.
    types : accelerator types that the cluster has even if none of their nodes is up.
    drained : names of nodes that get no jobs, beside those that the cluster itself drains.
    running : places of the jobs that run; those of them that stay (see `stays`) keep the GPUs that they have on nodes
        in use, too.

    Attributes
    ----------
    cluster : the GPUs of all nodes that are up and not drained, but for those that are kept.
    kept : (node, position) of these.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        types: Iterable[str] = (),
        drained: Iterable[str] = (),
        running: Iterable[Mapping[str, Sequence[int]]] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.drained = frozenset(drained) | {node.name for node in nodes if node.drained}
        self._up = {node.name for node in nodes if node.up}
        self.kept = frozenset(
            (node, position)
            for places in running
            if self.stays(places)
            for node, positions in places.items()
            if node not in self.drained
            for position in positions
        )
        names = dict.fromkeys([*types, *(node.accelerator for node in nodes)])
        counts, servers = {}, {}
        self._places: list[tuple[str, int]] = []
        for name in names:
            usable = [self._free(node) for node in nodes if node.accelerator == name and self.usable(node)]
            # whole servers first: GPUs of a type are cut into servers of one size, the last of which may be smaller
            usable.sort(key=lambda places: -len(places))
            sizes = [len(places) for places in usable if places]
            counts[name], servers[name] = sum(sizes), _server_size(sizes)
            self._places += [place for places in usable for place in places]
        self.cluster = Cluster(counts, servers)
        self._numbers = {place: number for number, place in enumerate(self._places)}

    def _free(self, node: Node) -> list[tuple[str, int]]:
        """The GPUs of a node that nobody keeps."""
        places = ((node.name, position) for position in range(node.gpus))
        return [place for place in places if place not in self.kept]

    @cached_property
    def in_full(self) -> Hardware:
        """The same with all nodes in use, those that are drained or down included."""
        return Hardware([replace(node, up=True, drained=False) for node in self.nodes], self.cluster.accelerators)

    def stays(self, places: Mapping[str, Sequence[int]]) -> bool:
        """Whether a job that runs there does so to its end, whatever is decided: on one that is drained, not down."""
        return not self.drained.isdisjoint(places) and places.keys() <= self._up

    def usable(self, node: Node) -> bool:
        """Whether jobs may start on a node."""
        return node.name in self._up and node.name not in self.drained

    def places(self, gpus: Iterable[int]) -> dict[str, tuple[int, ...]]:
        """By node the positions of GPUs that the core knows by number."""
        found: dict[str, list[int]] = {}
        for number in gpus:
            node, position = self._places[number]
            found.setdefault(node, []).append(position)
        return {node: tuple(positions) for node, positions in found.items()}

    def numbers(self, places: Mapping[str, Sequence[int]]) -> tuple[int, ...] | None:
        """The other way round; None where a GPU is not usable now."""
        numbers = [self._numbers.get((node, position)) for node, positions in places.items() for position in positions]
        return None if None in numbers else tuple(sorted(number for number in numbers if number is not None))


def _server_size(sizes: Sequence[int]) -> int:
    """GPUs per server: the size of all but perhaps the last, else what divides all."""
    if not sizes:
        return 1
    alike = all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]
    return sizes[0] if alike else gcd(*sizes)


# -- orders -----------------------------------------------------------------------------------------------------------


def orders(
    targets: Mapping[str, Placed], holding: Iterable[Job], active: Mapping[str, Job]
) -> tuple[list[Job], list[Job]]:
    """Jobs to stop, of those `holding` GPUs, and jobs to start now, which are wanted on GPUs that nobody holds.

    Who is wanted where it is goes on; who is wanted elsewhere, or on other GPUs, stops first and starts when it has.
    """
    there = list(holding)
    stops = [job for job in there if job.state != STOPPING and not _stays(job, targets)]
    holders = held(there)
    starts = []
    for uuid, target in targets.items():
        job = active[uuid]
        if job.state != QUEUED or not free_for(uuid, target, holders):
            continue
        starts.append(job)
        for gpu in gpus_of(target.places):
            holders.setdefault(gpu, set()).add(uuid)
    return stops, starts


def _stays(job: Job, targets: Mapping[str, Placed]) -> bool:
    target = targets.get(job.uuid)
    return target is not None and set(gpus_of(target.places)) == set(gpus_of(job.places))


def held(jobs: Iterable[Job]) -> dict[tuple[str, int], set[str]]:
    """Who holds each GPU (node, position)."""
    holders: dict[tuple[str, int], set[str]] = {}
    for job in jobs:
        for gpu in gpus_of(job.places):
            holders.setdefault(gpu, set()).add(job.uuid)
    return holders


def free_for(uuid: str, target: Placed, holders: Mapping[tuple[str, int], set[str]]) -> bool:
    """Whether nobody but the job itself and a partner holds any of the GPUs of its target."""
    return all(holders.get(gpu, set()) <= {uuid, target.partner} for gpu in gpus_of(target.places))


def gpus_of(places: Places) -> Iterator[tuple[str, int]]:
    """(Node, position) of each GPU."""
    return ((node, position) for node, positions in places.items() for position in positions)
