"""Placement that begins anew with every decision. Source: ElasticFlow (Gu et al., ASPLOS 2023, public artifact).

Nobody keeps GPUs for their own sake: all gangs are placed again, those that ran before first, larger ones first by the
GPUs they had; then those that start, larger ones first by the GPUs they get. A gang of at least a server takes whole
free servers, the first ones; a smaller one goes beside others, to a server with exactly as many free GPUs, else to the
one with most, else to the first free one. Where sizes are powers of two there is always room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.assignment import Assignment
from throughputs import InputError

__all__ = ["PlacementAnew"]

_Ids = NDArray[np.int64]
_Gpus = tuple[int, ...]
# Of a job: its pool, its GPUs, and their ids.
_Held = tuple[int, int, _Gpus]


class PlacementAnew:
    """GPU ids for the jobs of one assignment after the other; jobs do not share GPUs.

    Of gangs of one size those that have run for longer come first, then those with lower ids.

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
        size = dict(zip(assignment.jobs.tolist(), assignment.gpus.tolist(), strict=True))
        pool = dict(zip(assignment.jobs.tolist(), assignment.pool.tolist(), strict=True))
        # The table of those who run is in the order in which they started.
        stayed = [job for job in self._held if job in size]
        started = sorted(job for job in size if job not in self._held)
        stayed_by_size = sorted(stayed, key=lambda job: -self._held[job][1])
        queue = stayed_by_size + sorted(started, key=lambda job: -size[job])
        servers = [_Servers(self._cluster, position) for position in range(len(self._cluster.accelerators))]
        placed = {job: servers[pool[job]].take(size[job]) for job in queue}
        before, self._held = self._held, {job: (pool[job], size[job], placed[job]) for job in stayed + started}
        moved = [job for job in stayed if before[job][:2] == self._held[job][:2] and before[job][2] != placed[job]]
        self.migrated = np.array(sorted(moved), dtype=np.int64)
        return tuple(placed[job] for job in assignment.jobs.tolist())

    def gpus_of(self, job: int) -> _Gpus:
        """GPU ids, ascending, of a job of the last assignment; KeyError for others."""
        return self._held[job][2]

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
            beside = [free for free in self._partly if len(free) >= left]
            exact = [free for free in beside if len(free) == left]
            if exact:
                taken += self._from(exact[0], left)
            elif beside:
                taken += self._from(max(beside, key=len), left)
            elif self._empty:
                self._partly.append(self._empty.pop())
                taken += self._from(self._partly[-1], left)
            else:
                for free in self._partly:
                    taken += self._from(free, min(len(free), size - len(taken)))
        return tuple(sorted(taken))

    @staticmethod
    def _from(free: list[int], count: int) -> list[int]:
        taken, free[:count] = free[:count], []
        return taken
