"""Node sets as the simulator published with ElasticFlow fills and rebalances them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter

from allocator.policies.time_sharing.node_sets import NodeSet, NodeSets

_load = attrgetter("placed")


class PublishedNodeSets(NodeSets):
    """Node sets with the rules of the published simulator, to the letter.

    They are not what one would want: a set takes one job less than it has room for before another one is opened; what
    counts as its load are all jobs that were ever placed on it; of jobs that wait, the one behind a job that finds a
    place is passed over; and a size of gangs is given whole servers for what it lacks in gangs, so that sets of small
    gangs are opened in numbers, remain empty and are released again.
    """

    def resize(self, servers: int, gpus_per_server: int) -> None:
        """On servers that the published code never loses nor gets, all jobs are tried again."""
        same = (servers, gpus_per_server) == (self.servers, self.gpus_per_server)
        super().resize(servers, gpus_per_server)
        if not same:
            super().place_waiting(True)

    def place(self, job: Hashable, size: int) -> bool:
        """On the first set in line if it is loaded lightly, or a new set, or the next set in line."""
        sets = self.of_size.setdefault(size, [])
        if sets:
            first = sets.pop(0)
            sets.append(first)
            if first.placed + 1 < first.capacity:
                return self._add(sets, first, job)
        new = self.open(size)
        if new is not None:
            sets.append(new)
            return self._add(sets, new, job)
        if sets:
            first = sets.pop(0)
            sets.append(first)
            return self._add(sets, first, job)
        return False

    @staticmethod
    def _add(sets: list[NodeSet], one: NodeSet, job: Hashable) -> bool:
        one.add(job)
        sets.sort(key=_load)
        return True

    def place_waiting(self, released: bool) -> None:
        """Only when a set was released, and never two neighbours."""
        if not released:
            return
        still, passed_over = {}, False
        for job, size in self.waiting.items():
            if passed_over or not self.place(job, size):
                still[job], passed_over = size, False
            else:
                passed_over = True
        self.waiting = still

    def rebalance(self) -> None:
        """Open or close sets of each size by what it lacks of its part of the GPUs, or has too much."""
        wanted = {size: size * sum(len(one.jobs) for one in sets) for size, sets in self.of_size.items()}
        total, gpus = sum(wanted.values()), self.servers * self.gpus_per_server
        for size in sorted(wanted):
            if not wanted[size]:
                continue
            sets = self.of_size[size]
            has = sum(one.servers for one in sets) * self.gpus_per_server
            lacks = min(int(wanted[size] / total * gpus), wanted[size]) - has
            if lacks > 0:
                self._expand(size, -(-lacks // size))
            elif lacks < 0:
                self._shrink(size, -(lacks // size))

    def _expand(self, size: int, count: int) -> None:
        sets = self.of_size[size]
        new = None
        for _ in range(count):
            new = self.open(size)
            if new is not None:
                sets.append(new)
        # sets of single servers keep their jobs unless servers ran out
        if new is None or new.servers > 1:
            self._deal(sets, [job for one in sets for job in one.clear()])

    def _shrink(self, size: int, count: int) -> None:
        sets = self.of_size[size]
        closed = [sets.pop(0) for _ in range(min(count, len(sets) - 1))]
        self.free += sum(one.servers for one in closed)
        self._deal(sets, [job for one in closed for job in one.jobs])

    @staticmethod
    def _deal(sets: list[NodeSet], jobs: Iterable[Hashable]) -> None:
        """Place jobs one by one, each on the set that is first in line then."""
        for job in jobs:
            sets[0].add(job)
            sets.sort(key=_load)
