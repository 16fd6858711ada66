"""What Lucid remembers: whose line each job stands in, who is open to a guest, and what kinds of jobs do together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from allocator.protocol import ClusterState
from allocator.protocol.assignment import among_ids
from allocator.protocol.plan import Memory
from throughputs.arrays import Floats, Ints


class Known(NamedTuple):
    """A job.

    Attributes
    ----------
    pool : its home, -1 for a job that no pool can run.
    gpus, length : of its gang, and its predicted GPU seconds.
    kind : what it is in `LucidMemory.kinds`.
    """

    pool: int
    gpus: int
    length: float
    kind: int


@dataclass(eq=False)
class Line:
    """The jobs of one pool.

    Attributes
    ----------
    guests_recover : whether a guest whose host has ended takes guests itself.
    waiting : (key, number in the order of joining, id), the first in line first; the key is the predicted GPU time, in
        the line of the profiler the number of GPUs.
    running : when each of those who run started, seconds, by id in this order.
    partner : who shares with whom, by id, both ways.
    guests : those who joined another one, and share or do not recover.
    news : whether anything has changed that the line has not been walked through since.
    """

    guests_recover: bool = True
    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    partner: dict[int, int] = field(default_factory=dict)
    guests: set[int] = field(default_factory=set)
    news: bool = False

    def take_up(self, starts: Collection[int], host_of: dict[int, int], clock: float) -> None:
        """Jobs that wait run from `clock` (seconds) on: by themselves, or beside a host."""
        left = []
        for entry in self.waiting if starts or host_of else ():
            job = entry[2]
            if job in starts:
                self.start(job, clock)
            elif job in host_of:
                host = host_of[job]
                self.running[job], self.partner[job], self.partner[host] = clock, host, job
                self.guests.add(job)
            else:
                left.append(entry)
        if starts or host_of:
            self.waiting = left

    def start(self, job: int, clock: float) -> None:
        """A job has GPUs from `clock` (seconds) on."""
        self.running[job] = clock
        self.news = True

    def leave(self, job: int) -> None:
        """A job that ran is gone; the one beside it has its GPUs to itself."""
        del self.running[job]
        self.guests.discard(job)
        other = self.partner.pop(job, None)
        if other is not None:
            del self.partner[other]
            if self.guests_recover:
                self.guests.discard(other)
        self.news = True

    @property
    def hosts(self) -> list[int]:
        """Who takes a guest, in the order in which they started."""
        return [job for job in self.running if job not in self.partner and job not in self.guests]


@dataclass(eq=False)
class LucidMemory(Memory):
    """The lines, and all jobs in them.

    Attributes
    ----------
    guests_recover : whether a guest whose host has ended takes guests itself.
    jobs : the jobs by id.
    active : their ids, ascending.
    lines : by pool.
    work : (M,) predicted GPU seconds of the jobs of each pool.
    kinds : job types with numbers of GPUs, by number.
    retained : (M, K, K) fraction of its throughput that a kind keeps beside another, by pool, with room for more kinds;
        -1 where not known.
    mean : by pool what each kind keeps and leaves on the average; not where `retained` has changed since.
    joined : jobs that ever stood in a line.
    last : the highest id so far.
    profiling : until when jobs are profiled, seconds, by id.
    packing : whether jobs were packed at the last decision.
    gpus : of each pool at the last decision: they come and go with nodes that fail.
    """

    holds: ClassVar[tuple[type, ...]] = (Line, Known)

    guests_recover: bool = True
    jobs: dict[int, Known] = field(default_factory=dict)
    active: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lines: list[Line] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    kinds: dict[tuple[str, int], int] = field(default_factory=dict)
    retained: Floats = field(default_factory=lambda: np.empty((0, 0, 0)))
    mean: dict[int, Floats] = field(default_factory=dict)
    joined: int = 0
    last: int = -1
    profiling: dict[int, float] = field(default_factory=dict)
    packing: bool = False
    gpus: list[int] = field(default_factory=list)

    def recall(self, state: ClusterState, profiler: int, profiled_gpus: int) -> None:
        """Bring the lines up to date: who has left, who is new.

        New jobs of up to `profiled_gpus` GPUs that can run on the pool `profiler` (-1: none) stand in line there first.
        """
        if not self.lines:
            self.lines = [Line(self.guests_recover) for _ in state.capacity]
            self.work = [0.0] * len(self.lines)
        if self.gpus != (gpus := state.capacity.tolist()):
            self.gpus = gpus
            for line in self.lines:
                line.news = True
        first_new = int(state.ids.searchsorted(self.last, side="right"))
        if first_new != len(self.active):
            for job in self.active[~among_ids(self.active, state.ids)].tolist():
                self._forget(job)
        self.active = state.ids
        if first_new < state.n_jobs:
            self.last = int(state.ids[-1])
            self._meet(state, first_new, profiler, profiled_gpus)
        if sum(len(line.running) for line in self.lines) > len(state.running):
            self._wait_again({*state.ids[state.running.jobs].tolist()})

    def _wait_again(self, running: set[int]) -> None:
        """Those who ran and are no more among the `running`, as their nodes failed, wait again."""
        for line in self.lines:
            for job in [job for job in line.running if job not in running]:
                line.leave(job)
                in_profile = self.profiling.pop(job, None) is not None
                self.enqueue(job, self.jobs[job].gpus if in_profile else self.jobs[job].length)

    def _forget(self, job: int) -> None:
        known = self.jobs.pop(job)
        if known.pool < 0:
            return
        line = self.lines[known.pool]
        self.work[known.pool] -= known.length
        if job in line.running:
            line.leave(job)
            self.profiling.pop(job, None)
        else:
            line.waiting = [entry for entry in line.waiting if entry[2] != job]

    def _meet(self, state: ClusterState, first: int, profiler: int, profiled_gpus: int) -> None:
        """The jobs from the position `first` on are new."""
        own = state.take(np.arange(first, state.n_jobs))
        # Where types are not known every job is one of its own.
        types = own.throughputs.jobs if own.job_types is None else own.job_types
        already = state.running.take(state.running.jobs >= first)
        running = dict(zip(state.ids[already.jobs].tolist(), already.pool.tolist(), strict=True))
        rates, sizes, seconds = own.runnable_rates, own.scale_factors.tolist(), own.predicted_seconds.tolist()
        for job, kind, size, lasts, speed in zip(own.ids.tolist(), types, sizes, seconds, rates, strict=True):
            length = lasts * size
            if job in running:
                pool = running[job]
            elif profiler >= 0 and size <= profiled_gpus and speed[profiler] > 0:
                pool = profiler
            else:
                pool = self.home(speed, length, profiler)
            self.jobs[job] = Known(pool, size, length, self._kind((str(kind), size)))
            if pool >= 0:
                self.work[pool] += length
                if job in running:
                    self.lines[pool].start(job, state.clock)
                else:
                    self.enqueue(job, size if pool == profiler else length)

    def profiled(self, job: int, home: int) -> None:
        """A job leaves the profiler and joins the line of its home."""
        known = self.jobs[job]
        del self.profiling[job]
        self.lines[known.pool].leave(job)
        self.work[known.pool] -= known.length
        self.jobs[job] = known._replace(pool=home)
        if home >= 0:
            self.work[home] += known.length
            self.enqueue(job, known.length)

    def enqueue(self, job: int, key: float) -> None:
        """A job joins its line, behind those with the same `key`."""
        line = self.lines[self.jobs[job].pool]
        insort(line.waiting, (key, self.joined, job))
        self.joined += 1
        line.news = True

    def home(self, rates: Floats, length: float, profiler: int) -> int:
        """The pool of a job with `rates` (M,): the one that is predicted to be through with it first; -1: none."""
        able = [pool for pool in np.flatnonzero(rates > 0).tolist() if pool != profiler]
        longest = length * float(rates.max(initial=0.0))
        return min(
            able,
            key=lambda pool: (self.work[pool] + longest / float(rates[pool])) / max(self.gpus[pool], 1e-9),
            default=-1,
        )

    def known_together(self, state: ClusterState, pool: int, ids: Ints, kind_of: Ints) -> tuple[Ints, Ints, Floats]:
        """What the jobs `ids` of these kinds do beside each other on a pool.

        Returns the numbers of their kinds, the kind of each by position among these, and the fraction of its throughput
        that each kind keeps beside each; 0: may not share.
        """
        count = np.bincount(kind_of)
        kinds = count.nonzero()[0]
        fractions = self.retained[pool][kinds[:, None], kinds]
        unknown = fractions < 0
        # A kind that is there once shares with others only.
        unknown.ravel()[:: len(kinds) + 1] &= count[kinds] > 1
        if unknown.any():
            first = np.unique(kind_of, return_index=True)[1]
            self._read(state, pool, np.sort(ids[first]))
            fractions = self.retained[pool][kinds[:, None], kinds]
        return kinds, kinds.searchsorted(kind_of), np.maximum(fractions, 0.0)

    def mean_retained(self, pool: int, kinds: Ints) -> Floats:
        """(k,) what `kinds` keep and leave on the average, over the kinds known so far that they may share with."""
        if pool not in self.mean:
            kept, left = self.retained[pool], self.retained[pool].T
            both = np.where((kept > 0) & (left > 0), (kept + left) / 2.0, 0.0)
            self.mean[pool] = both.sum(axis=1) / np.maximum(np.count_nonzero(both, axis=1), 1)
        return self.mean[pool].take(kinds)

    def _kind(self, kind: tuple[str, int]) -> int:
        """Number of a kind; a new one shares with nobody of another size, and may with those of its own."""
        if kind in self.kinds:
            return self.kinds[kind]
        number = self.kinds[kind] = len(self.kinds)
        known = self.retained.shape[1]
        if number >= known:
            grown = np.zeros((len(self.lines), 2 * number + 1, 2 * number + 1))
            if known:
                grown[:, :known, :known] = self.retained
            self.retained = grown
        same = [other for (_, size), other in self.kinds.items() if size == kind[1]]
        self.retained[:, number, same] = self.retained[:, same, number] = -1.0
        self.mean = {}
        return number

    def _read(self, state: ClusterState, pool: int, ids: Ints) -> None:
        """Note what the kinds of these jobs (ascending ids) do in pairs on a pool."""
        columns = state.take(state.ids.searchsorted(ids)).packed
        kinds, group = np.array([self.jobs[job].kind for job in ids.tolist()]), columns.group
        alone = columns.alone[group, pool][:, None]
        together = columns.together[group[:, None], group, pool]
        both = (alone > 0) & (together > 0)
        self.retained[pool, kinds[:, None], kinds] = np.where(both, together / np.where(both, alone, 1.0), 0.0)
        self.mean.pop(pool, None)
