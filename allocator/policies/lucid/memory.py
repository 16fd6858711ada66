"""What Lucid remembers: whose line each job stands in, who is open to a guest, and what kinds of jobs do together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import ClusterState
from allocator.protocol.assignment import among_ids
from formulations.packing import PackingJobs

_Ids = NDArray[np.int64]


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
    waiting : (key, number in the order of joining, id), the first in line first; the key is the predicted GPU time, in
        the line of the profiler the number of GPUs.
    running : when each of those who run started, seconds, by id in this order.
    shut : those who run and take no guest: they share, or did so as a guest that does not recover.
    partner : who shares with whom, by id, both ways.
    guests : those of them who joined the other.
    news : whether anything has changed that the line has not been walked through since.
    fresh : those who wait and have joined since then; None: more has changed than the line, its hosts and free GPUs.
    opened : those who take guests since then.
    """

    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    shut: set[int] = field(default_factory=set)
    partner: dict[int, int] = field(default_factory=dict)
    guests: set[int] = field(default_factory=set)
    news: bool = False
    fresh: set[int] | None = None
    opened: set[int] = field(default_factory=set)

    def start(self, job: int, clock: float) -> None:
        """A job has GPUs from `clock` (seconds) on."""
        self.running[job] = clock
        self.opened.add(job)
        self.news = True

    def join(self, guest: int, host: int, clock: float) -> None:
        """A job runs beside another one."""
        self.running[guest] = clock
        self.partner[guest], self.partner[host] = host, guest
        self.shut |= {guest, host}
        self.opened.discard(host)
        self.guests.add(guest)

    def leave(self, job: int, guests_recover: bool) -> None:
        """A job that ran is gone; the one beside it has its GPUs to itself."""
        del self.running[job]
        self.shut.discard(job)
        self.opened.discard(job)
        other = self.partner.pop(job, None)
        if other is not None:
            del self.partner[other]
            if guests_recover or other not in self.guests:
                self.shut.discard(other)
                self.guests.discard(other)
                self.opened.add(other)
        self.guests.discard(job)
        self.news = True

    def changed(self) -> None:
        """Everybody who waits is to be looked at again."""
        self.news, self.fresh = True, None

    def walked(self) -> None:
        """Everybody who waits has been looked at."""
        self.news, self.fresh = False, set()
        self.opened.clear()

    def to_consider(self, free: float, gpus: Callable[[int], int]) -> tuple[list[int], list[int]]:
        """Those who wait, in order, and hosts of whom any two may share, or who may start on `free` GPUs.

        What two jobs have to keep does not change with time: two that have been looked at need not be again. `gpus`
        are those of a job.
        """
        waiting = [job for _, _, job in self.waiting]
        if self.fresh is None:
            return waiting, self.hosts
        if not self.opened and not any(gpus(job) <= free for job in waiting):
            return [job for job in waiting if job in self.fresh], self.hosts
        return waiting, self.hosts if self.fresh else [job for job in self.running if job in self.opened]

    @property
    def hosts(self) -> list[int]:
        """Who takes a guest, in the order in which they started."""
        return [job for job in self.running if job not in self.shut]


class Together(NamedTuple):
    """What some jobs do beside each other.

    Attributes
    ----------
    kinds : (k,) numbers of their kinds.
    own : (n,) the kind of each, by position among these.
    retained : (k, k) fraction of its throughput that a kind keeps beside another; 0: may not share.
    """

    kinds: _Ids
    own: _Ids
    retained: NDArray[np.float64]


@dataclass(eq=False)
class LucidMemory:
    """The lines, and all jobs in them.

    Attributes
    ----------
    jobs : the jobs by id.
    active : their ids, ascending.
    lines : by pool.
    work : (M,) predicted GPU seconds of the jobs of each pool.
    kinds : job types with numbers of GPUs, by number.
    retained : (M, K, K) fraction of its throughput that a kind keeps beside another, by pool, with room for more kinds;
        -1 where not known.
    mean : by pool what each kind keeps and leaves on the average; None where `retained` has changed since.
    columns : (n, 3) GPUs, length and kind of the jobs by id, for all ids below n.
    joined : jobs that ever stood in a line.
    last : the highest id so far.
    profiling : until when jobs are profiled, seconds, by id.
    packing : whether jobs were packed at the last decision.
    guests_recover : whether a guest whose host has ended takes guests itself.
    gpus : of each pool at the last decision: they come and go with nodes that fail.
    """

    jobs: dict[int, Known] = field(default_factory=dict)
    active: _Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lines: list[Line] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    kinds: dict[tuple[str, int], int] = field(default_factory=dict)
    retained: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
    mean: list[NDArray[np.float64] | None] = field(default_factory=list)
    columns: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)))
    joined: int = 0
    last: int = -1
    profiling: dict[int, float] = field(default_factory=dict)
    packing: bool = False
    guests_recover: bool = True
    gpus: list[int] = field(default_factory=list)

    def recall(self, state: ClusterState, profiler: int, profiled_gpus: int) -> None:
        """Bring the lines up to date: who has left, who is new.

        New jobs of up to `profiled_gpus` GPUs that can run on the pool `profiler` (-1: none) stand in line there first.
        """
        pools = len(state.capacity)
        if not self.lines:
            self.lines, self.work = [Line() for _ in range(pools)], [0.0] * pools
            self.mean = [None] * pools
        if self.gpus != (gpus := state.capacity.tolist()):
            self.gpus = gpus
            for line in self.lines:
                line.changed()
        ids = state.ids
        first_new = int(ids.searchsorted(self.last, side="right"))
        if first_new != len(self.active):
            self._forget(self.active[~among_ids(self.active, ids)].tolist())
        self.active = ids
        if first_new < len(ids):
            self.last = int(ids[-1])
            more = self.last + 1 - len(self.columns)
            if more > 0:
                self.columns = np.pad(self.columns, ((0, max(more, len(self.columns))), (0, 0)))
            self._meet(state, first_new, profiler, profiled_gpus)
        if sum(len(line.running) for line in self.lines) > len(state.running):
            self._wait_again({*state.ids[state.running.jobs].tolist()})

    def _wait_again(self, running: set[int]) -> None:
        """Those who ran and are no more among the `running`, as their nodes failed, wait again."""
        for line in self.lines:
            for job in [job for job in line.running if job not in running]:
                line.leave(job, self.guests_recover)
                in_profile = self.profiling.pop(job, None) is not None
                self.enqueue(job, self.jobs[job].gpus if in_profile else self.jobs[job].length)

    def _forget(self, gone: list[int]) -> None:
        for job in gone:
            known = self.jobs.pop(job)
            if known.pool < 0:
                continue
            line = self.lines[known.pool]
            self.work[known.pool] -= known.length
            if job in line.running:
                line.leave(job, self.guests_recover)
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
        for i, job in enumerate(own.ids.tolist()):
            size, kind = sizes[i], (str(types[i]), sizes[i])
            length = seconds[i] * size
            if job in running:
                pool = running[job]
            elif profiler >= 0 and size <= profiled_gpus and rates[i, profiler] > 0:
                pool = profiler
            else:
                pool = self.home(rates[i], length, state.capacity, profiler)
            known = self.jobs[job] = Known(pool, size, length, self._kind(kind, len(state.capacity)))
            self.columns[job] = known[1:]
            if pool < 0:
                continue
            self.work[pool] += length
            if job in running:
                self.lines[pool].start(job, state.clock)
            else:
                self.enqueue(job, size if pool == profiler else length)

    def profiled(self, job: int, home: int) -> None:
        """A job leaves the profiler and joins the line of its home."""
        known = self.jobs[job]
        del self.profiling[job]
        self.lines[known.pool].leave(job, guests_recover=True)
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
        if line.fresh is not None:
            line.fresh.add(job)

    def home(self, rates: NDArray[np.float64], length: float, capacity: _Ids, profiler: int) -> int:
        """The pool of a job with `rates` (M,): the one that is predicted to be through with it first; -1: none."""
        able = [m for m in np.flatnonzero(rates > 0).tolist() if m != profiler]
        fastest = float(rates.max(initial=0.0))
        ahead = [(self.work[m] + length * fastest / float(rates[m])) / max(int(capacity[m]), 1e-9) for m in able]
        return able[ahead.index(min(ahead))] if able else -1

    def known_together(self, state: ClusterState, pool: int, ids: _Ids) -> Together:
        """What the jobs `ids` do beside each other on a pool."""
        kind = self.columns[ids, 2].astype(np.int64)
        count = np.bincount(kind)
        kinds = count.nonzero()[0]
        place = np.empty(len(count), dtype=np.int64)
        place[kinds] = np.arange(len(kinds))
        own = place[kind]
        fractions = self.retained[pool][kinds[:, None], kinds]
        unknown = fractions < 0
        # A kind that is there once shares with others only.
        unknown.ravel()[:: len(kinds) + 1] &= count[kinds] > 1
        if unknown.any():
            one_of = np.empty(len(kinds), dtype=np.int64)
            one_of[own[::-1]] = ids[::-1]
            self._read(state, pool, np.sort(one_of))
            fractions = self.retained[pool][kinds[:, None], kinds]
        return Together(kinds, own, np.maximum(fractions, 0.0))

    def mean_retained(self, pool: int, kinds: _Ids) -> NDArray[np.float64]:
        """(k,) what `kinds` keep and leave on the average, over the kinds known so far that they may share with."""
        mean = self.mean[pool]
        if mean is None:
            kept, left = self.retained[pool], self.retained[pool].T
            both = np.where((kept > 0) & (left > 0), (kept + left) / 2.0, 0.0)
            mean = self.mean[pool] = both.sum(axis=1) / np.maximum(np.count_nonzero(both, axis=1), 1)
        return mean.take(kinds)

    def _kind(self, kind: tuple[str, int], pools: int) -> int:
        """Number of a kind; a new one shares with nobody of another size, and may with those of its own."""
        number = self.kinds.get(kind)
        if number is not None:
            return number
        number = self.kinds[kind] = len(self.kinds)
        known = self.retained.shape[1]
        if number >= known:
            grown = np.zeros((pools, 2 * number + 1, 2 * number + 1))
            if known:
                grown[:, :known, :known] = self.retained
            self.retained = grown
        same = [other for (_, size), other in self.kinds.items() if size == kind[1]]
        self.retained[:, number, same] = self.retained[:, same, number] = -1.0
        self.mean = [None] * pools
        return number

    def _read(self, state: ClusterState, pool: int, ids: _Ids) -> None:
        """Note what the kinds of these jobs (ascending ids) do in pairs on a pool."""
        columns = state.take(state.ids.searchsorted(ids)).packed
        kinds, group = self.columns[ids, 2].astype(np.int64), columns.group
        alone = columns.alone[group, pool][:, None]
        together = columns.together[group[:, None], group, pool]
        both = (alone > 0) & (together > 0)
        self.retained[pool, kinds[:, None], kinds] = np.where(both, together / np.where(both, alone, 1.0), 0.0)
        self.mean[pool] = None

    def packing_jobs(self, ids: _Ids, score: _Ids, kind: _Ids) -> PackingJobs:
        """Jobs as packing sees them, with these sharing scores and kinds, (K,) each."""
        return PackingJobs(self.columns[ids, 0], score, self.columns[ids, 1], kind)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kept = deepcopy(vars(self))
        kept["jobs"] = [(job, *known) for job, known in self.jobs.items()]
        kept["kinds"] = [list(kind) for kind in self.kinds]
        kept["lines"] = [
            {
                "waiting": line.waiting,
                "running": list(line.running.items()),
                "shut": sorted(line.shut),
                "partner": list(line.partner.items()),
                "guests": sorted(line.guests),
                "news": line.news,
                "fresh": None if line.fresh is None else sorted(line.fresh),
                "opened": sorted(line.opened),
            }
            for line in self.lines
        ]
        return kept

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        vars(self).update(state)
        self.jobs = {job: Known(*known) for job, *known in state["jobs"]}
        self.kinds = {(name, gpus): k for k, (name, gpus) in enumerate(state["kinds"])}
        self.lines = [
            Line(
                [tuple(entry) for entry in line["waiting"]],
                dict(line["running"]),
                set(line["shut"]),
                dict(line["partner"]),
                set(line["guests"]),
                line["news"],
                None if line["fresh"] is None else set(line["fresh"]),
                set(line["opened"]),
            )
            for line in state["lines"]
        ]
