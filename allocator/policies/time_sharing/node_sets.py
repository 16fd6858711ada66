"""Gandiva's node sets: servers for gangs of one size, which take turns where they are too many."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field
from typing import ClassVar

from allocator.protocol.plan import Memory


@dataclass(eq=False)
class NodeSet:
    """Servers for gangs of one size.

    Attributes
    ----------
    servers : how many.
    capacity : gangs that run at the same time.
    jobs : labels of those on the set; the first `capacity` of them run.
    placed : jobs that were placed since the set was last cleared, those that have ended included.
    """

    servers: int
    capacity: int
    jobs: list[Hashable] = field(default_factory=list)
    placed: int = 0

    @property
    def running(self) -> list[Hashable]:
        """The jobs whose turn it is."""
        return self.jobs[: self.capacity]

    @property
    def oversubscribed(self) -> bool:
        """Whether there are more jobs than can run at the same time."""
        return len(self.jobs) > self.capacity

    def add(self, job: Hashable) -> None:
        """Place a job, last in line."""
        self.jobs.append(job)
        self.placed += 1

    def clear(self) -> list[Hashable]:
        """Take all jobs off the set."""
        jobs, self.jobs, self.placed = self.jobs, [], 0
        return jobs


@dataclass(eq=False)
class NodeSets(Memory):
    """The node sets of a cluster, and the jobs that found none.

    Attributes
    ----------
    servers, gpus_per_server : of the cluster; the GPUs of a last, smaller server are not used.
    free : servers in no set.
    of_size : node sets by the GPUs of their gangs.
    waiting : labels of the jobs that found no set, with the GPUs of their gangs, in the order in which they are tried.
    turned : when jobs last took turns, seconds.
    """

    holds: ClassVar[tuple[type, ...]] = (NodeSet,)

    servers: int = 0
    gpus_per_server: int = 1
    free: int = 0
    of_size: dict[int, list[NodeSet]] = field(default_factory=dict)
    waiting: dict[Hashable, int] = field(default_factory=dict)
    turned: float = 0.0

    def __iter__(self) -> Iterator[tuple[int, NodeSet]]:
        """Every set, with the size of its gangs; small gangs first."""
        return ((size, one) for size in sorted(self.of_size) for one in self.of_size[size])

    @property
    def known(self) -> set[Hashable]:
        """Labels of all jobs."""
        return {job for _, one in self for job in one.jobs} | self.waiting.keys()

    def resize(self, servers: int, gpus_per_server: int) -> None:
        """The cluster has so many servers from now on; where that is new all jobs wait to be placed again."""
        if (servers, gpus_per_server) == (self.servers, self.gpus_per_server):
            return
        placed = {job: size for size, one in self for job in one.jobs}
        self.waiting = placed | self.waiting
        self.servers, self.gpus_per_server, self.free, self.of_size = servers, gpus_per_server, servers, {}

    def turn(self, clock: float) -> None:
        """In sets with more jobs than can run, others have their turn from `clock` (seconds) on."""
        self.turned = clock
        for _, one in self:
            if one.oversubscribed:
                one.jobs = one.jobs[one.capacity :] + one.running

    def drop(self, gone: Set[Hashable]) -> bool:
        """Take jobs out and release the sets that are empty; whether there were any."""
        if gone:
            self.waiting = {job: size for job, size in self.waiting.items() if job not in gone}
            for _, one in self:
                one.jobs = [job for job in one.jobs if job not in gone]
        empty = sum(one.servers for _, one in self if not one.jobs)
        if empty:
            self.free += empty
            self.of_size = {size: [one for one in sets if one.jobs] for size, sets in self.of_size.items()}
        return empty > 0

    def servers_for(self, size: int) -> int:
        """Servers of a set for gangs of `size` GPUs."""
        return -(-size // self.gpus_per_server)

    def open(self, size: int) -> NodeSet | None:
        """A new set, where enough servers are free; it is not in line yet."""
        servers = self.servers_for(size)
        if servers > self.free:
            return None
        self.free -= servers
        return NodeSet(servers, servers * self.gpus_per_server // size)

    def arrive(self, job: Hashable, size: int) -> None:
        """Place a new job; where there is no place it waits."""
        if not self.place(job, size):
            self.waiting[job] = size

    def place(self, job: Hashable, size: int) -> bool:
        """Place a job; whether there is a place.

        On the set with fewest jobs if it has room, or a new set, or, to take turns, on the set with fewest jobs.
        """
        sets = self.of_size.setdefault(size, [])
        least = min(sets, key=lambda one: len(one.jobs), default=None)
        if least is None or len(least.jobs) >= least.capacity:
            new = self.open(size)
            if new is not None:
                sets.append(new)
            least = new or least
        if least is None:
            return False
        least.add(job)
        return True

    def place_waiting(self, released: bool) -> None:  # noqa: ARG002 - other rules go by it
        """Try all jobs that wait."""
        self.waiting = {job: size for job, size in self.waiting.items() if not self.place(job, size)}

    def rebalance(self) -> None:
        """Give each size of gangs servers in proportion to the GPUs that its jobs want.

        Jobs of sets that are closed, and those that a set cannot run at once, go to the set with fewest jobs.
        """
        targets = self._targets()
        for size, target in targets.items():
            self._close(size, target)
        for size, target in targets.items():
            self._extend(size, target)
        self.place_waiting(True)

    def _targets(self) -> dict[int, int]:
        """Sets for each size of gangs, small gangs first.

        As many as its jobs fill, at most its part of the servers, and one at least as long as servers last. What is
        left goes to the size that lacks most of its part.
        """
        jobs = {size: sum(len(one.jobs) for one in sets) for size, sets in self.of_size.items()}
        for size in self.waiting.values():
            jobs[size] = jobs.get(size, 0) + 1
        demand = max(1, sum(size * count for size, count in jobs.items()))
        part, filled, targets = {}, {}, {}
        left = self.servers
        for size in sorted(jobs):
            servers = self.servers_for(size)
            part[size] = size * jobs[size] * self.servers / (demand * servers)
            filled[size] = -(-jobs[size] // (servers * self.gpus_per_server // size))
            targets[size] = min(filled[size], max(1, int(part[size])))
            left -= targets[size] * servers
        while lacking := [s for s in targets if targets[s] < filled[s] and self.servers_for(s) <= left]:
            size = max(lacking, key=lambda s: (part[s] - targets[s], s))
            targets[size] += 1
            left -= self.servers_for(size)
        return targets

    def _close(self, size: int, target: int) -> None:
        """Close sets, those with fewest jobs first, until `target` are left."""
        sets = self.of_size.setdefault(size, [])
        moved: list[Hashable] = []
        while len(sets) > target:
            least = min(sets, key=lambda one: len(one.jobs))
            sets.remove(least)
            self.free += least.servers
            moved += least.clear()
        for job in moved:
            min(sets, key=lambda one: len(one.jobs)).add(job)

    def _extend(self, size: int, target: int) -> None:
        """Open sets until there are `target`, and give them the jobs that others cannot run at once."""
        sets = self.of_size[size]
        while len(sets) < target:
            new = self.open(size)
            if new is None:
                return
            for one in sets:
                while one.oversubscribed and len(new.jobs) < new.capacity:
                    new.add(one.jobs.pop())
            sets.append(new)
