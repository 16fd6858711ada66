"""What Lucid remembers: whose line each job stands in, who is open to a guest, and what kinds of jobs do together."""

from __future__ import annotations

from bisect import insort
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import ClusterState
from formulations.packing import PackingJobs

__all__ = ["Known", "Line", "LucidMemory"]

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
    """

    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    shut: set[int] = field(default_factory=set)
    partner: dict[int, int] = field(default_factory=dict)
    guests: set[int] = field(default_factory=set)
    news: bool = False

    def start(self, job: int, clock: float) -> None:
        """A job has GPUs from `clock` (seconds) on."""
        self.running[job] = clock

    def join(self, guest: int, host: int, clock: float) -> None:
        """A job runs beside another one."""
        self.running[guest] = clock
        self.partner[guest], self.partner[host] = host, guest
        self.shut |= {guest, host}
        self.guests.add(guest)

    def leave(self, job: int, guests_recover: bool) -> None:
        """A job that ran is gone; the one beside it has its GPUs to itself."""
        del self.running[job]
        self.shut.discard(job)
        other = self.partner.pop(job, None)
        if other is not None:
            del self.partner[other]
            if guests_recover or other not in self.guests:
                self.shut.discard(other)
        self.guests.discard(job)
        self.news = True

    @property
    def hosts(self) -> list[int]:
        """Who takes a guest, in the order in which they started."""
        return [job for job in self.running if job not in self.shut]


@dataclass(eq=False)
class LucidMemory:
    """The lines, and all jobs in them.

    Attributes
    ----------
    jobs : the jobs by id.
    lines : by pool.
    work : (M,) predicted GPU seconds of the jobs of each pool.
    kinds : job types with numbers of GPUs, by number.
    retained : (K, K, M) fraction of its throughput that a kind keeps beside another, by pool; nan where not known.
    joined : jobs that ever stood in a line.
    last : the highest id so far.
    profiling : until when jobs are profiled, seconds, by id.
    lent : servers that are out of use.
    next_loan : the first of the loans that is to come.
    packing : whether jobs were packed at the last decision.
    """

    jobs: dict[int, Known] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    kinds: dict[tuple[str, int], int] = field(default_factory=dict)
    retained: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
    joined: int = 0
    last: int = -1
    profiling: dict[int, float] = field(default_factory=dict)
    lent: int = 0
    next_loan: int = 0
    packing: bool = False

    def recall(self, state: ClusterState, profiler: int, profiled_gpus: int, guests_recover: bool) -> None:
        """Bring the lines up to date: who has left, who is new.

        New jobs of up to `profiled_gpus` GPUs that can run on the pool `profiler` (-1: none) stand in line there first.
        """
        pools = len(state.capacity)
        if not self.lines:
            self.lines, self.work = [Line() for _ in range(pools)], [0.0] * pools
        ids = state.ids
        first_new = int(ids.searchsorted(self.last, side="right"))
        if first_new != len(self.jobs):
            self._forget(set(self.jobs) - set(ids[:first_new].tolist()), guests_recover)
        if first_new < len(ids):
            self.last = int(ids[-1])
            self._meet(state, np.arange(first_new, len(ids)), profiler, profiled_gpus)

    def _forget(self, gone: set[int], guests_recover: bool) -> None:
        for job in sorted(gone):
            known = self.jobs.pop(job)
            if known.pool < 0:
                continue
            line = self.lines[known.pool]
            self.work[known.pool] -= known.length
            if job in line.running:
                line.leave(job, guests_recover)
                self.profiling.pop(job, None)
            else:
                line.waiting = [entry for entry in line.waiting if entry[2] != job]

    def _meet(self, state: ClusterState, new: _Ids, profiler: int, profiled_gpus: int) -> None:
        # Where types are not known every job is one of its own.
        types = state.throughputs.jobs if state.job_types is None else state.job_types
        running = dict(zip(state.running.jobs.tolist(), state.running.pool.tolist(), strict=True))
        rates, sizes, seconds = state.runnable_rates, state.scale_factors, state.predicted_seconds
        for i in new.tolist():
            job, size, kind = int(state.ids[i]), int(sizes[i]), (str(types[i]), int(sizes[i]))
            length = float(seconds[i]) * size
            if i in running:
                pool = running[i]
            elif profiler >= 0 and size <= profiled_gpus and rates[i, profiler] > 0:
                pool = profiler
            else:
                pool = self.home(rates[i], length, state.capacity, profiler)
            self.jobs[job] = Known(pool, size, length, self.kinds.setdefault(kind, len(self.kinds)))
            if pool < 0:
                continue
            self.work[pool] += length
            if i in running:
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

    def home(self, rates: NDArray[np.float64], length: float, capacity: _Ids, profiler: int) -> int:
        """The pool of a job with `rates` (M,): the one that is predicted to be through with it first; -1: none."""
        able = [m for m in np.flatnonzero(rates > 0).tolist() if m != profiler]
        fastest = float(rates.max(initial=0.0))
        ahead = [(self.work[m] + length * fastest / float(rates[m])) / int(capacity[m]) for m in able]
        return able[ahead.index(min(ahead))] if able else -1

    def known_together(self, state: ClusterState, pool: int, ids: list[int]) -> NDArray[np.float64]:
        """(K, K) what kinds keep beside each other on a pool, with those of the jobs `ids` filled in; 0: not at all."""
        one_of_kind = {self.jobs[job].kind: job for job in ids}
        kinds = np.array(sorted(one_of_kind), dtype=np.int64)
        known = self._grown(len(state.capacity))[:, :, pool]
        if np.isnan(known[np.ix_(kinds, kinds)]).any():
            self._read(state, pool, sorted(one_of_kind.values()))
        return np.nan_to_num(known, nan=0.0)

    def mean_retained(self, pool: int) -> NDArray[np.float64]:
        """(K,) what a kind keeps and leaves on the average, over the kinds known so far that it may share with."""
        kept = np.nan_to_num(self.retained[:, :, pool], nan=0.0)
        both = np.where((kept > 0) & (kept.T > 0), (kept + kept.T) / 2.0, 0.0)
        return np.asarray(both.sum(axis=1) / np.maximum(np.count_nonzero(both, axis=1), 1))

    def _grown(self, pools: int) -> NDArray[np.float64]:
        """`retained`, with room for all kinds."""
        more = len(self.kinds) - len(self.retained)
        if more:
            kept = self.retained if self.retained.size else np.empty((0, 0, pools))
            self.retained = np.pad(kept, ((0, more), (0, more), (0, 0)), constant_values=np.nan)
        return self.retained

    def _read(self, state: ClusterState, pool: int, ids: list[int]) -> None:
        """Note what the kinds of these jobs (ascending ids) do in pairs on a pool."""
        columns = state.columns_of(state.ids.searchsorted(np.array(ids, dtype=np.int64))).packed
        kinds, group = np.array([self.jobs[job].kind for job in ids]), columns.group
        alone = columns.alone[group, pool][:, None]
        together = columns.together[group[:, None], group, pool]
        both = (alone > 0) & (together > 0)
        self.retained[kinds[:, None], kinds, pool] = np.where(both, together / np.where(both, alone, 1.0), 0.0)

    def packing_jobs(self, ids: list[int], score: NDArray[np.int64]) -> PackingJobs:
        """Jobs as packing sees them; `score` (K,) is by kind."""
        rows = [self.jobs[job] for job in ids]
        kind = np.array([row.kind for row in rows], dtype=np.int64)
        return PackingJobs([row.gpus for row in rows], score[kind], [row.length for row in rows], kind)

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
            )
            for line in state["lines"]
        ]
