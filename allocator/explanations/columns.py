"""Jobs, rows and decisions of a finished run, as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.trace import date_texts, dates_after

LEAST_SHARE = 1e-6
"""Below that a share of time is what a solver leaves of none: a second in eleven days."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Jobs:
    """The N jobs; a job's id is its position.

    Attributes
    ----------
    kind, status, entity : (N,) job type, how it ended, whose it is ("": nobody's).
    gpus, weight, steps, deadline : (N,) GPUs of its gang, priority weight, training steps, deadline (nan: none).
    fraction : (N,) what it asks for of each of its GPUs, 1 for one that has them whole.
    arrival, completion : (N,) seconds; completion is nan where it did not complete.
    gone : (N,) when it was out of the cluster, seconds: completed, rejected or given up; inf: never.
    restart_gpu_seconds : (N,) GPU time that its starts took; nan where it is not known.
    rates : (N, M) steps/s of its gang alone, 0 where it cannot run.
    trace_id, arrival_date : (N,) what it is called where it was logged (empty: not told), and when it arrived there,
        datetime64[us] in UTC (NaT: not told).
    """

    kind: NDArray[np.object_]
    status: NDArray[np.object_]
    entity: NDArray[np.object_]
    gpus: _Ints
    weight: _Floats
    steps: _Floats
    deadline: _Floats
    arrival: _Floats
    completion: _Floats
    gone: _Floats
    restart_gpu_seconds: _Floats
    rates: _Floats
    fraction: _Floats
    trace_id: NDArray[np.object_]
    arrival_date: NDArray[np.datetime64]

    def __len__(self) -> int:
        return len(self.arrival)

    def gpus_taken(self, job: int) -> float:
        """GPUs that a job takes when it runs: a whole number, or the fraction of one that it asks for."""
        gpus, fraction = int(self.gpus[job]), float(self.fraction[job])
        return gpus if fraction == 1 else gpus * fraction

    def name(self, job: int) -> str:
        """What it is called where it was logged, else its id."""
        return str(self.trace_id[job]) or str(job)

    def named(self, text: str) -> str:
        """What a policy says of jobs, whose ids are positions to it, with the names of `name`."""
        return re.sub(r"\bjob (\d+)\b", lambda found: f"job {self.name(int(found[1]))}", text)

    def date(self, job: int, time: float) -> str:
        """So many seconds on the clock of the run as a date (ISO 8601, UTC), as that of the job; empty: not told."""
        since = np.array([time - self.arrival[job]])
        return str(date_texts(dates_after(self.arrival_date[job : job + 1], since))[0])

    @cached_property
    def served(self) -> NDArray[np.bool_]:
        """(N,) whether any type can run the job."""
        return np.asarray((self.rates > 0).any(axis=1))


@dataclass(frozen=True, eq=False)
class Rows:
    """L rows, each a job in a round, or a lease, or without rounds a job between two events.

    Attributes
    ----------
    round : (L,) number of the round.
    start, finish : (L,) when it began, and when it had done its steps, seconds.
    until : (L,) when its GPUs were free for others, seconds: in rounds with the end of the round.
    job, pool, gpus, partner : (L,) who, on which type, on how many GPUs, with whom (-1: alone).
    share : (L,) share of the time of its type; 1 but in a world without rounds.
    fraction : (L,) of each of its GPUs that it takes.
    steps : (L,) that it did.
    places : (L,) ids of its GPUs as text; "" where placement is off.
    """

    round: _Ints
    start: _Floats
    finish: _Floats
    until: _Floats
    job: _Ints
    pool: _Ints
    gpus: _Ints
    partner: _Ints
    share: _Floats
    fraction: _Floats
    steps: _Floats
    places: NDArray[np.object_]

    def take(self, rows: NDArray[Any]) -> Rows:
        """Some of the rows."""
        return Rows(**{name: values[rows] for name, values in self.__dict__.items()})

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def weighted_gpus(self) -> _Floats:
        """(L,) GPUs that each row keeps busy: those that two jobs share count half for each, and shares of time too."""
        return np.where(self.partner >= 0, 0.5, 1.0) * self.gpus * self.share * self.fraction


@dataclass(frozen=True, eq=False)
class Decisions:
    """D decisions on shares of time.

    Attributes
    ----------
    time : (D,) seconds, ascending.
    status, unit : (D,) how each was proven, and the unit of its objective.
    prices : (D, M) of one more GPU of each type, in that unit; nan where there is none.
    first : (D + 1,) where the rows of each decision begin.
    job, pool, share, partner : rows of the decisions, one after the other; partner -1 for none.
    packed : whether jobs could share GPUs.
    """

    time: _Floats
    status: NDArray[np.object_]
    unit: NDArray[np.object_]
    prices: _Floats
    first: _Ints
    job: _Ints
    pool: _Ints
    share: _Floats
    partner: _Ints
    packed: bool

    def shares_of(self, decision: int, job: int, types: int) -> _Floats:
        """(M,) share of time of the job on each type, alone or with another, by this decision."""
        rows = slice(self.first[decision], self.first[decision + 1])
        mine = self.job[rows] == job
        return np.bincount(self.pool[rows][mine], self.share[rows][mine], types).astype(np.float64)

    def shares(self, decision: int, active: _Ints, types: int) -> _Floats:
        """(n, M) shares of the active jobs (ids, ascending) alone."""
        rows = slice(self.first[decision], self.first[decision + 1])
        found = np.zeros((len(active), types))
        found[active.searchsorted(self.job[rows]), self.pool[rows]] = self.share[rows]
        return found

    def last_before(self, time: float) -> int:
        """Number of the decision in force at `time` (seconds), -1 for none."""
        return int(self.time.searchsorted(time, "right")) - 1
