"""Placement that begins anew with every decision. Source: ElasticFlow (Gu et al., ASPLOS 2023, public artifact).

Nobody keeps GPUs for their own sake: all gangs are placed again, in the order of the plan's rows. A gang of at least a
server takes whole free servers, the first ones. For smaller ones servers have a class, the largest power of two that
divides their number of free GPUs: a gang goes to a server of the class of its size, else to one of the largest class
above it, of several to the one with most GPUs free, else to the first free server. Where sizes are powers of two and
larger gangs come first there is always room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.mechanism.placement.gangs import Gpus, Places
from allocator.protocol.assignment import NOBODY, Assignment
from allocator.protocol.decision import Transition
from throughputs import InputError

_Ids = NDArray[np.int64]

# States of the servers of a pool that are remembered, with what each size of gangs gets there; then all are forgotten.
_MOST_STATES: Final = 1 << 14


class PlacementAnew(Places):
    """GPU ids for the jobs of one assignment after the other; jobs do not share GPUs.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[int, Gpus] = {}
        self._pools = [_Pool(cluster, position) for position in range(len(cluster.accelerators))]
        self._pool_of_gpu = [k for k, count in enumerate(cluster.capacity.tolist()) for _ in range(count)]

    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """GPU ids, ascending, for every row of `assignment`.

        Raises InputError where jobs share GPUs, or need more of a pool than it has.
        """
        self.place_changes(assignment)
        return tuple(self._held.values())

    def place_changes(self, assignment: Assignment) -> Transition:
        """The same, but answers what changes."""
        if assignment.shares_gpus:
            raise InputError("placement", field="rule", found="jobs that share GPUs", expected="another rule than anew")
        before, held, pool_of = self._held, {}, self._pool_of_gpu
        free = [pool.unused for pool in self._pools]
        rows: list[int] = []
        start, move, resize = [], [], []
        columns = zip(assignment.jobs.tolist(), assignment.pool.tolist(), assignment.gpus.tolist(), strict=True)
        for row, (job, pool, size) in enumerate(columns):
            state = free[pool]
            ids, free[pool] = state.steps.get(size) or self._pools[pool].take(state, size)
            held[job] = ids
            had = before.get(job)
            if had == ids:
                continue
            rows.append(row)
            if had is None:
                start.append(job)
            elif pool_of[had[0]] == pool and len(had) != size:
                resize.append(job)
            else:
                move.append(job)
        stop = [job for job in before if job not in held] if len(before) + len(start) != len(held) else []
        self._held = held
        if not rows and not stop:
            return Transition.nothing(assignment)
        changed = np.array(rows, dtype=np.int64) if rows else NOBODY
        return Transition(
            _ascending(start), _ascending(stop), _ascending(move), _ascending(resize), changed, assignment, NOBODY
        )

    def gpus_of(self, job: int) -> Gpus:
        """See Places."""
        return self._held[job]

    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """See Places."""
        self._held = {job: tuple(held) for job, held in zip(running.jobs.tolist(), gpus, strict=True)}


def _ascending(jobs: list[int]) -> _Ids:
    return np.array(sorted(jobs), dtype=np.int64) if jobs else NOBODY


class _State:
    """What is free in a pool.

    Attributes
    ----------
    whole : servers of which no GPU is taken; they are the last ones.
    partly : (end, free) of the others with free GPUs, the one that was last taken from last; these are the GPUs from
        ``end - free`` on.
    steps : by size of a gang its GPUs, and what is free then.
    """

    __slots__ = ("partly", "steps", "whole")

    def __init__(self, whole: int, partly: tuple[tuple[int, int], ...]) -> None:
        self.whole, self.partly = whole, partly
        self.steps: dict[int, tuple[Gpus, _State]] = {}


class _Pool:
    """The GPUs of one pool. What a gang gets depends on its size and on the sizes before it: that is looked up.

    Attributes
    ----------
    unused : all GPUs are free.
    """

    def __init__(self, cluster: Cluster, position: int) -> None:
        first, count = int(cluster.first_gpu[position]), int(cluster.capacity[position])
        width = int(cluster.gpus_per_server[cluster.accelerators[position]])
        self._servers = [(start, min(start + width, first + count)) for start in range(first, first + count, width)]
        self._name, self._count = cluster.accelerators[position], count
        self._forget()

    def _forget(self) -> None:
        self.unused = _State(len(self._servers), ())
        self._states = {(self.unused.whole, self.unused.partly): self.unused}

    def take(self, state: _State, size: int) -> tuple[Gpus, _State]:
        """GPUs for a gang of `size`, and what is free then.

        Whole servers first; any free GPUs where that leaves no server with room for the rest.
        """
        taken: list[int] = []
        whole, partly = state.whole, list(state.partly)
        while whole:
            start, end = self._servers[-whole]
            if size - len(taken) < end - start:
                break
            taken += range(start, end)
            whole -= 1
        left = size - len(taken)
        if left:
            beside = [k for k, (_, free) in enumerate(partly) if _class(free) >= left]
            if beside:
                exact = [k for k in beside if _class(partly[k][1]) == left]
                best = max(exact or beside, key=lambda k: (_class(partly[k][1]), partly[k][1]))
                taken += _take_from(partly, best, left)
            elif whole:
                start, end = self._servers[-whole]
                whole -= 1
                partly.append((end, end - start))
                taken += _take_from(partly, len(partly) - 1, left)
            else:
                for end, free in state.partly:
                    count = min(free, size - len(taken))
                    taken += _take_from(partly, partly.index((end, free)), count)
        if len(taken) < size:
            found, expected = f"more than {self._count} GPUs", f"at most {self._count} GPUs of {self._name}"
            raise InputError("placement", field="assignment", found=found, expected=expected)
        if len(self._states) >= _MOST_STATES:
            self._forget()
        key = whole, tuple(partly)
        then = self._states.setdefault(key, _State(*key))
        step = state.steps[size] = tuple(sorted(taken)), then
        return step


def _take_from(partly: list[tuple[int, int]], at: int, count: int) -> range:
    """The first `count` of what is free in a server, which comes last among those partly free then."""
    end, free = partly.pop(at)
    if free > count:
        partly.append((end, free - count))
    return range(end - free, end - free + count)


def _class(free: int) -> int:
    """The largest power of two that divides the number of free GPUs; 0 for none."""
    return free & -free
