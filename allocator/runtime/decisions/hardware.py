"""Nodes of a real cluster as the decision core sees them, and the orders that follow from who is placed on them.

The core knows GPUs by number, type by type and server by server; everybody else by node and position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd

from allocator.cluster import Cluster
from allocator.runtime.adapters.base import Node, Placed, Places
from allocator.runtime.records.book import QUEUED, STOPPING, Job


class Hardware:
    """The nodes that can be used, and the number of each of their GPUs.

    Parameters
    ----------
    nodes : all nodes, those that are down included.
    types : accelerator types that the cluster has even if none of their nodes is up.
    drained : names of nodes that get no jobs, beside those that the cluster itself drains.
    running : where the jobs are that run; those of them that stay (see `stays`) keep the GPUs that they have on nodes
        in use, too.

    Attributes
    ----------
    cluster : the GPUs of all nodes that are up and not drained, but for those that are kept or taken.
    kept : (node, position) of these.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        types: Iterable[str] = (),
        drained: Iterable[str] = (),
        running: Iterable[Placed] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.drained = frozenset(drained) | {node.name for node in nodes if node.drained}
        self._up = {node.name for node in nodes if node.up}
        staying = (gpu for placed in running if self.stays(placed) for gpu in placed.gpus)
        self.kept = frozenset(gpu for gpu in staying if gpu[0] not in self.drained)
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
        """The GPUs of a node that nobody keeps, and that others do not hold."""
        places = ((node.name, position) for position in range(node.gpus) if position not in node.taken)
        return [place for place in places if place not in self.kept]

    @cached_property
    def in_full(self) -> Hardware:
        """The same with all nodes in use, those that are drained or down included."""
        nodes = [replace(node, up=True, drained=False, taken=()) for node in self.nodes]
        return Hardware(nodes, self.cluster.accelerators)

    def stays(self, placed: Placed) -> bool:
        """Whether a job that runs there does so to its end, whatever is decided: on one that is drained, not down."""
        return not self.drained.isdisjoint(placed.places) and placed.places.keys() <= self._up

    def usable(self, node: Node) -> bool:
        """Whether jobs may start on a node."""
        return node.name in self._up and node.name not in self.drained

    def places(self, gpus: Iterable[int]) -> Places:
        """By node the positions of GPUs that the core knows by number."""
        found: dict[str, tuple[int, ...]] = {}
        for number in gpus:
            node, position = self._places[number]
            found[node] = (*found.get(node, ()), position)
        return found

    def numbers(self, placed: Placed) -> tuple[int, ...] | None:
        """The other way round; None where a GPU is not usable now."""
        usable = placed.gpus <= self._numbers.keys()
        return tuple(sorted(self._numbers[gpu] for gpu in placed.gpus)) if usable else None


def _server_size(sizes: Sequence[int]) -> int:
    """GPUs per server: the size of all but perhaps the last, else what divides all."""
    if not sizes:
        return 1
    alike = all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]
    return sizes[0] if alike else gcd(*sizes)


# -- orders -----------------------------------------------------------------------------------------------------------


def orders(
    targets: Mapping[str, Placed], holding: Mapping[str, Job], active: Mapping[str, Job]
) -> tuple[list[Job], list[Job]]:
    """Jobs to stop, of those `holding` GPUs, and jobs to start now, which are wanted on GPUs that nobody holds.

    Who is wanted where it is goes on; who is wanted elsewhere, or on other GPUs, stops first and starts when it has.
    """
    stays = {uuid for uuid, job in holding.items() if uuid in targets and targets[uuid].gpus == job.placed.gpus}
    holders, starts = held(holding), []
    for uuid, target in targets.items():
        if active[uuid].state == QUEUED and free_for(uuid, target, holders):
            starts.append(active[uuid])
            holders |= dict.fromkeys(target.gpus, uuid)
    return [job for uuid, job in holding.items() if job.state != STOPPING and uuid not in stays], starts


Holders = dict[tuple[str, int], str]
"""By GPU the job that holds it."""


def held(jobs: Mapping[str, Job]) -> Holders:
    """Who holds each GPU."""
    return {gpu: uuid for uuid, job in jobs.items() for gpu in job.placed.gpus}


def owners(holders: Holders, placed: Placed) -> set[str]:
    """Who holds any of these GPUs."""
    return {holders[gpu] for gpu in placed.gpus if gpu in holders}


def free_for(uuid: str, target: Placed, holders: Holders) -> bool:
    """Whether nobody but the job itself holds any of the GPUs of its target."""
    return owners(holders, target) <= {uuid}
