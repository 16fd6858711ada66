"""Placement that begins anew with every decision. Source: ElasticFlow (Gu et al., ASPLOS 2023, public artifact).

Nobody keeps GPUs for their own sake: all gangs are placed again, in the order of the plan's rows. A gang of at least a
server takes whole free servers, the first ones. For smaller ones servers have a class, the largest power of two that
divides their number of free GPUs: a gang goes to a server of the class of its size, else to one of the largest class
above it, of several to the one with most GPUs free, else to the first free server. Where sizes are powers of two and
larger gangs come first there is always room.
"""

from __future__ import annotations

from collections.abc import Sequence

from allocator.cluster import Cluster
from allocator.mechanism.placement.gangs import Gpus, Places
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Transition, transition
from throughputs import InputError


class PlacementAnew(Places):
    """GPU ids for the jobs of one assignment after the other; jobs do not share GPUs.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[int, Gpus] = {}
        self._last = Assignment.none()

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
        before, last = self._held, self._last
        pools = [_FreePool(self._cluster, position) for position in range(len(self._cluster.accelerators))]
        columns = zip(assignment.jobs.tolist(), assignment.pool.tolist(), assignment.gpus.tolist(), strict=True)
        held = {job: pools[pool].take(size) for job, pool, size in columns}
        self._held, self._last = held, assignment
        return transition(last, assignment, [job for job, gpus in held.items() if before.get(job, gpus) != gpus])

    def gpus_of(self, job: int) -> Gpus:
        """See Places."""
        return self._held[job]

    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """See Places."""
        self._last = running
        self._held = {job: tuple(held) for job, held in zip(running.jobs.tolist(), gpus, strict=True)}


class _FreePool:
    """The free GPUs of one pool.

    Attributes
    ----------
    whole : (start, end) of the servers of which no GPU is taken, the last one first.
    partly : (end, free) of the others with free GPUs, the one that was last taken from last; these are the GPUs from
        ``end - free`` on.
    """

    def __init__(self, cluster: Cluster, position: int) -> None:
        first, count = int(cluster.first_gpu[position]), int(cluster.capacity[position])
        self._name, self._count = cluster.accelerators[position], count
        width = int(cluster.gpus_per_server[self._name])
        servers = [(start, min(start + width, first + count)) for start in range(first, first + count, width)]
        self.whole, self.partly = servers[::-1], list[tuple[int, int]]()

    def take(self, size: int) -> Gpus:
        """GPUs for a gang: whole servers first; any free GPUs where that leaves no server with room for the rest."""
        taken: list[int] = []
        while self.whole and size - len(taken) >= self.whole[-1][1] - self.whole[-1][0]:
            taken += range(*self.whole.pop())
        left = size - len(taken)
        if left:
            beside = [one for one in self.partly if _class(one[1]) >= left]
            exact = [one for one in beside if _class(one[1]) == left]
            if beside:
                taken += self._take_from(max(exact or beside, key=lambda one: (_class(one[1]), one[1])), left)
            elif self.whole:
                start, end = self.whole.pop()
                self.partly.append((end, end - start))
                taken += self._take_from((end, end - start), left)
            else:
                for one in self.partly.copy():
                    taken += self._take_from(one, min(one[1], size - len(taken)))
        if len(taken) < size:
            found, expected = f"more than {self._count} GPUs", f"at most {self._count} GPUs of {self._name}"
            raise InputError("placement", field="assignment", found=found, expected=expected)
        return tuple(sorted(taken))

    def _take_from(self, one: tuple[int, int], count: int) -> range:
        """The first `count` of what is free in a server, which comes last among those partly free then."""
        end, free = one
        self.partly.remove(one)
        if free > count:
            self.partly.append((end, free - count))
        return range(end - free, end - free + count)


def _class(free: int) -> int:
    """The largest power of two that divides the number of free GPUs; 0 for none."""
    return free & -free
