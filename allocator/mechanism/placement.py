"""Placement: which GPUs a gang gets. Source: Gavel, OSDI'20, sec. 5.

GPUs left over by a partial last server are usable.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, groupby, islice
from typing import Protocol

from allocator.cluster import Cluster

__all__ = ["Placement"]

_Gpus = tuple[int, ...]
_NOWHERE: _Gpus = ()


class GangSizes(Protocol):
    """GPUs per gang by id."""

    def __getitem__(self, job: int, /) -> int: ...


class Placement:
    """GPU ids for the jobs of each round; remembers those of the round before.

    GPUs are numbered from 0, type by type in the cluster's order, server by server.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    consolidated : True: jobs that stay on their type keep their GPUs, then each new gang, larger ones first, gets as
        few servers as possible. False: gangs take free GPUs in the order of their ids, larger ones first; among gangs
        of one size those that stay keep their GPUs if no larger gang has taken them.
    """

    def __init__(self, cluster: Cluster, consolidated: bool) -> None:
        self.consolidated = consolidated
        first, capacity = cluster.first_gpu.tolist(), cluster.capacity.tolist()
        self._ids = [range(start, start + count) for start, count in zip(first, capacity, strict=True)]
        self._single = [[(gpu,) for gpu in ids] for ids in self._ids]
        self._per_server = [int(cluster.gpus_per_server[name]) for name in cluster.accelerators]
        self._held: list[dict[int, _Gpus]] = [{} for _ in self._ids]
        self._last: list[tuple[list[int], list[_Gpus]]] = [([], []) for _ in self._ids]

    def hand_over(self, j: int, rows: list[int], members: Callable[[int], tuple[int, ...]]) -> None:
        """Before `place`, where rows are sets of jobs: a new row takes the GPUs of a row that one of its jobs leaves.

        A job then stays where it is when it begins or ceases to share. `members` gives the jobs of a row.
        """
        held = self._held[j]
        new = [row for row in rows if row not in held]
        if not new or not held:
            return
        staying = set(rows)
        left = {job: row for row in held if row not in staying for job in members(row)}
        for row in new:
            old = next((left[job] for job in members(row) if left.get(job) in held), None)
            if old is not None:
                held[row] = held.pop(old)

    def place(self, j: int, jobs: list[int], sizes: GangSizes) -> list[_Gpus]:
        """GPU ids on type `j` for the distinct `jobs` of the coming round; `sizes` is GPUs per gang, by job id."""
        last_jobs, last_gpus = self._last[j]
        if jobs == last_jobs:
            return last_gpus
        held = self._held[j]
        gpus = [held.get(job, _NOWHERE) for job in jobs]
        if _NOWHERE in gpus:
            gangs = [sizes[job] for job in jobs]
            if max(gangs) == 1 and (self._per_server[j] == 1 or not self.consolidated):
                self._place_singles(j, gpus)
            elif self.consolidated or min(gangs) == max(gangs):
                self._keep_then_place(j, gangs, gpus)
            else:
                self._place_in_order(j, gangs, gpus)
        self._held[j] = dict(zip(jobs, gpus, strict=True))
        self._last[j] = (jobs, gpus)
        return gpus

    def _place_in_order(self, j: int, sizes: list[int], gpus: list[_Gpus]) -> None:
        """Fill in `gpus` where nowhere; entries that a larger gang takes are replaced."""
        used: set[int] = set()
        largest_first = sorted(range(len(gpus)), key=lambda k: -sizes[k])
        for size, same_size in groupby(largest_first, key=sizes.__getitem__):
            new = []
            for k in same_size:
                if gpus[k] and used.isdisjoint(gpus[k]):
                    used.update(gpus[k])
                else:
                    new.append(k)
            free = iter([gpu for gpu in self._ids[j] if gpu not in used] if new else ())
            for k in new:
                gpus[k] = tuple(islice(free, size))
                used.update(gpus[k])

    def _place_singles(self, j: int, gpus: list[_Gpus]) -> None:
        """Fill in `gpus` where nowhere, for gangs of one GPU where servers do not matter."""
        used = set(gpus)
        free = [gpu for gpu in self._single[j] if gpu not in used]
        for k, gpu in zip([k for k, ids in enumerate(gpus) if not ids], free, strict=False):
            gpus[k] = gpu

    def _keep_then_place(self, j: int, sizes: list[int], gpus: list[_Gpus]) -> None:
        """Fill in `gpus` where nowhere, without touching the others."""
        used = set(chain.from_iterable(gpus))
        free = [gpu for gpu in self._ids[j] if gpu not in used]
        new = sorted((k for k, ids in enumerate(gpus) if not ids), key=lambda k: -sizes[k])
        start, per_server = self._ids[j].start, self._per_server[j]
        if per_server == 1 or not self.consolidated:
            in_order = iter(free)
            for k in new:
                gpus[k] = tuple(islice(in_order, sizes[k]))
            return
        servers = {n: list(ids) for n, ids in groupby(free, key=lambda gpu: (gpu - start) // per_server)}
        for k in new:
            gpus[k] = _take(servers, sizes[k])


def _take(servers: dict[int, list[int]], size: int) -> _Gpus:
    """Take `size` GPUs from the free ones of `servers`: best fit on one server, else from the emptiest servers."""
    taken: list[int] = []
    while len(taken) < size:
        need = size - len(taken)
        roomy = [server for server, free in servers.items() if len(free) >= need]
        # min and max return the first of equals: the server with the lowest number.
        server = min(roomy, key=lambda s: len(servers[s])) if roomy else max(servers, key=lambda s: len(servers[s]))
        taken += servers[server][:need]
        del servers[server][:need]
        if not servers[server]:
            del servers[server]
    return tuple(sorted(taken))
