"""Placement that begins anew with every decision. Source: ElasticFlow (Gu et al., ASPLOS 2023, public artifact).

Nobody keeps GPUs for their own sake: all gangs are placed again, in the order of the plan's rows. A gang of at least a
server takes whole free servers, the first ones. For smaller ones servers have a class, the largest power of two that
divides their number of free GPUs: a gang goes to a server of the class of its size, else to one of the largest class
above it, of several to the one with most GPUs free, else to the first free server. Where sizes are powers of two and
larger gangs come first there is always room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.assignment import Assignment
from allocator.protocol.transition import Transition, transition
from throughputs import InputError

__all__ = ["PlacementAnew"]

_Ids = NDArray[np.int64]
_Gpus = tuple[int, ...]
# Of a job: its pool, its GPUs, and their ids.
_Held = tuple[int, int, _Gpus]


class PlacementAnew:
    """GPU ids for the jobs of one assignment after the other; jobs do not share GPUs.

    Parameters
    ----------
    cluster : the GPUs and their servers.

    Attributes
    ----------
    migrated : ids, ascending, of the jobs that the last call moved though pool and number of GPUs are the same.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[int, _Held] = {}
        self.migrated: _Ids = np.empty(0, dtype=np.int64)

    def place(self, assignment: Assignment, hold: _Ids | None = None) -> tuple[_Gpus, ...]:  # noqa: ARG002
        """GPU ids, ascending, for every row of `assignment`; nobody can `hold` what it has.

        Raises InputError where jobs share GPUs, or need more of a pool than it has.
        """
        if assignment.shares_gpus:
            raise InputError("placement", field="rule", found="jobs that share GPUs", expected="another rule than anew")
        assignment.check(self._cluster.capacity, "placement")
        servers = [_Servers(self._cluster, position) for position in range(len(self._cluster.accelerators))]
        before, self._held = self._held, {}
        rows = zip(assignment.jobs.tolist(), assignment.pool.tolist(), assignment.gpus.tolist(), strict=True)
        moved = []
        for job, pool, size in rows:
            ids = servers[pool].take(size)
            self._held[job] = (pool, size, ids)
            held = before.get(job)
            if held is not None and held[:2] == (pool, size) and held[2] != ids:
                moved.append(job)
        self.migrated = np.array(sorted(moved), dtype=np.int64)
        return tuple(ids for _, _, ids in self._held.values())

    def place_changes(self, assignment: Assignment, hold: _Ids | None = None) -> Transition:
        """The same, but answers what changes."""
        jobs = sorted(self._held)
        before = [self._held[job] for job in jobs]
        last = Assignment.of(jobs, [pool for pool, _, _ in before], [size for _, size, _ in before])
        self.place(assignment, hold)
        return transition(last, assignment, self.migrated)

    def gpus_of(self, job: int) -> _Gpus:
        """GPU ids, ascending, of a job of the last assignment; KeyError for others."""
        return self._held[job][2]

    def adopt(self, running: Assignment, gpus: Sequence[_Gpus]) -> None:
        """The rows `running` hold these `gpus` (ids, ascending) already; nobody else holds any."""
        rows = zip(running.jobs.tolist(), running.pool.tolist(), running.gpus.tolist(), gpus, strict=True)
        self._held = {job: (pool, size, held) for job, pool, size, held in rows}

    def state(self) -> dict[str, Any]:
        """All that `restore` needs."""
        return {"held": self._held, "migrated": self.migrated}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` told of a placement with the same cluster."""
        self._held = {int(job): (pool, size, tuple(gpus)) for job, (pool, size, gpus) in state["held"].items()}
        self.migrated = state["migrated"]


class _Servers:
    """The free GPUs of one pool, server by server."""

    def __init__(self, cluster: Cluster, position: int) -> None:
        first, count = int(cluster.first_gpu[position]), int(cluster.capacity[position])
        width = int(cluster.gpus_per_server[cluster.accelerators[position]])
        self._width = width
        self._empty = [
            list(range(start, min(start + width, first + count))) for start in range(first, first + count, width)
        ]
        self._empty.reverse()
        self._partly: list[list[int]] = []

    def take(self, size: int) -> _Gpus:
        """GPUs for a gang of `size`; any free ones where its servers are not free as a whole."""
        taken: list[int] = []
        while self._empty and size - len(taken) >= len(self._empty[-1]):
            taken += self._empty.pop()
        left = size - len(taken)
        if left:
            beside = [free for free in self._partly if _class(free) >= left]
            exact = [free for free in beside if _class(free) == left]
            if exact:
                taken += self._from(max(exact, key=len), left)
            elif beside:
                taken += self._from(max(beside, key=_class_and_size), left)
            elif self._empty:
                self._partly.append(self._empty.pop())
                taken += self._from(self._partly[-1], left)
            else:
                for free in self._partly[:]:
                    taken += self._from(free, min(len(free), size - len(taken)))
        return tuple(sorted(taken))

    def _from(self, free: list[int], count: int) -> list[int]:
        """The first `count` of what is `free` in a server, which comes last among those partly free then."""
        taken, free[:count] = free[:count], []
        at = next(k for k, other in enumerate(self._partly) if other is free)
        self._partly.append(self._partly.pop(at))
        return taken


def _class(free: list[int]) -> int:
    """The largest power of two that divides the number of free GPUs; 0 for none."""
    return len(free) & -len(free)


def _class_and_size(free: list[int]) -> tuple[int, int]:
    return _class(free), len(free)
