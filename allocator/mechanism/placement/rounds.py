"""Placement of whole rounds: which GPUs the gangs of a round get. Source: Gavel, OSDI'20, sec. 5.

Most rows of a round may be others than those of the round before, so everything is placed in one pass over the rows of
each pool. Where few of many rows change, `Placement` does the same in proportion to what changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, islice, pairwise
from typing import Any

from allocator.cluster import Cluster
from allocator.mechanism.placement.gangs import Gpus, Places
from allocator.protocol.assignment import Assignment

_Key = int | tuple[int, int]
_NOWHERE: Gpus = ()


class RoundPlacement(Places):
    """GPU ids for the rows of each round; remembers those of the round before.

    GPUs are numbered from 0, type by type in the cluster's order, server by server; those left over by a partial last
    server are usable. The number of GPUs of a job does not change.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    consolidated : True: jobs that stay on their type keep their GPUs, then each new gang, larger ones first, gets as
        few servers as possible; a job that begins or ceases to share stays where it is. False: gangs take free GPUs in
        the order of their ids, larger ones first; among gangs of one size those that stay keep their GPUs if no larger
        gang has taken them.
    """

    def __init__(self, cluster: Cluster, consolidated: bool) -> None:
        self._consolidated = consolidated
        first, capacity = cluster.first_gpu.tolist(), cluster.capacity.tolist()
        self._ids = [range(start, start + count) for start, count in zip(first, capacity, strict=True)]
        self._single = [[(gpu,) for gpu in ids] for ids in self._ids]
        self._per_server = [int(cluster.gpus_per_server[name]) for name in cluster.accelerators]
        # By pool: the GPUs of each row, in the order of the rows.
        self._held: list[dict[_Key, Gpus]] = [{} for _ in self._ids]

    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """See Places."""
        pool = assignment.pool
        cuts = [0, *((pool[1:] != pool[:-1]).nonzero()[0] + 1).tolist(), len(pool)]
        jobs, sizes = assignment.jobs.tolist(), assignment.gpus.tolist()
        partner = assignment.partner.tolist() if assignment.shares_gpus else None
        placed: list[Gpus] = []
        there = set()
        for start, end in pairwise(cuts):
            if start == end:
                continue
            j = int(pool[start])
            there.add(j)
            if partner is None:
                placed += self._place(j, jobs[start:end], sizes[start:end])
            else:
                placed += self._place_pairs(j, jobs[start:end], partner[start:end], sizes[start:end])
        for j, held in enumerate(self._held):
            if held and j not in there:
                self._held[j] = {}
        return tuple(placed)

    def _place_pairs(self, j: int, jobs: list[int], partner: list[int], sizes: list[int]) -> list[Gpus]:
        """Two rows for each pair, which follow each other."""
        keys: list[_Key] = []
        gangs: list[int] = []
        for job, other, size in zip(jobs, partner, sizes, strict=True):
            if other < 0 or job < other:
                keys.append(job if other < 0 else (job, other))
                gangs.append(size)
        if self._consolidated:
            self._hand_over(j, keys)
        gpus = self._place(j, keys, gangs)
        return [ids for key, ids in zip(keys, gpus, strict=True) for _ in range(1 if isinstance(key, int) else 2)]

    def _hand_over(self, j: int, keys: list[_Key]) -> None:
        """A new row takes the GPUs of a row that one of its jobs leaves."""
        held = self._held[j]
        new = [key for key in keys if key not in held]
        if not new or not held:
            return
        staying = set(keys)
        left = {job: key for key in held if key not in staying for job in _members(key)}
        for key in new:
            old = next((left[job] for job in _members(key) if left.get(job) in held), None)
            if old is not None:
                held[key] = held.pop(old)

    def _place(self, j: int, keys: list[Any], sizes: list[int]) -> list[Gpus]:
        """GPU ids on pool `j` for distinct rows."""
        held = self._held[j]
        gpus = [held.get(key, _NOWHERE) for key in keys]
        if _NOWHERE in gpus:
            largest = max(sizes)
            if largest == 1 and (self._per_server[j] == 1 or not self._consolidated):
                self._place_singles(j, gpus)
            elif self._consolidated or min(sizes) == largest:
                self._keep_then_place(j, sizes, gpus)
            else:
                self._place_in_order(j, sizes, gpus)
        self._held[j] = dict(zip(keys, gpus, strict=True))
        return gpus

    def _place_in_order(self, j: int, sizes: list[int], gpus: list[Gpus]) -> None:
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

    def _place_singles(self, j: int, gpus: list[Gpus]) -> None:
        """Fill in `gpus` where nowhere, for gangs of one GPU where servers do not matter."""
        used = set(gpus)
        free = [gpu for gpu in self._single[j] if gpu not in used]
        for k, gpu in zip([k for k, ids in enumerate(gpus) if not ids], free, strict=False):
            gpus[k] = gpu

    def _keep_then_place(self, j: int, sizes: list[int], gpus: list[Gpus]) -> None:
        """Fill in `gpus` where nowhere, without touching the others."""
        used = set(chain.from_iterable(gpus))
        free = [gpu for gpu in self._ids[j] if gpu not in used]
        new = sorted((k for k, ids in enumerate(gpus) if not ids), key=lambda k: -sizes[k])
        start, per_server = self._ids[j].start, self._per_server[j]
        if per_server == 1 or not self._consolidated:
            in_order = iter(free)
            for k in new:
                gpus[k] = tuple(islice(in_order, sizes[k]))
            return
        servers = {n: list(ids) for n, ids in groupby(free, key=lambda gpu: (gpu - start) // per_server)}
        for k in new:
            gpus[k] = _take(servers, sizes[k])

    def gpus_of(self, job: int) -> Gpus:
        """See Places."""
        for held in self._held:
            for key, gpus in held.items():
                if job in _members(key):
                    return gpus
        raise KeyError(job)

    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """See Places."""
        self._held = [{} for _ in self._ids]
        rows = zip(running.jobs.tolist(), running.pool.tolist(), running.partner.tolist(), gpus, strict=True)
        for job, pool, partner, held in rows:
            if partner < 0 or job < partner:
                self._held[pool][job if partner < 0 else (job, partner)] = held


def _members(key: _Key) -> tuple[int, ...]:
    """The jobs of a row."""
    return (key,) if isinstance(key, int) else key


def _take(servers: dict[int, list[int]], size: int) -> Gpus:
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
