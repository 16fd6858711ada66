"""Nodes of a real cluster as the decision core sees them: numbered GPUs, type by type and server by server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from allocator.cluster import Cluster
from allocator.runtime.adapters.base import Node

__all__ = ["Hardware"]


class Hardware:
    """The nodes that can be used, and the number of each of their GPUs.

    Parameters
    ----------
    nodes : all nodes, those that are down included.
    types : accelerator types that the cluster has even if none of their nodes is up.
    drained : names of nodes that get no jobs.

    Attributes
    ----------
    cluster : the GPUs of all nodes that are up and not drained. whole : those of all nodes.
    """

    def __init__(self, nodes: Sequence[Node], types: Iterable[str] = (), drained: Iterable[str] = ()) -> None:
        self.nodes = tuple(nodes)
        self.drained = frozenset(drained)
        names = dict.fromkeys([*types, *(node.accelerator for node in nodes)])
        counts, servers, whole = {}, {}, {}
        self._places: list[tuple[str, int]] = []
        for name in names:
            # whole servers first: GPUs of a type are cut into servers of one size, the last of which may be smaller
            usable = [node for node in nodes if node.accelerator == name and self.usable(node) and node.gpus]
            usable.sort(key=lambda node: -node.gpus)
            whole[name] = sum(node.gpus for node in nodes if node.accelerator == name)
            counts[name] = sum(node.gpus for node in usable)
            servers[name] = _server_size([node.gpus for node in usable])
            self._places += [(node.name, position) for node in usable for position in range(node.gpus)]
        self.cluster, self.whole = Cluster(counts, servers), Cluster(whole)
        self._numbers = {place: number for number, place in enumerate(self._places)}

    def usable(self, node: Node) -> bool:
        """Whether jobs may start on a node."""
        return node.up and node.name not in self.drained

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
