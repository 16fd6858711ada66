"""The profiler on servers of its own: every new job runs there for a short while, those with the fewest GPUs first.

What it finds out are the figures by which jobs are packed. Jobs that end within the time limit never enter the cluster.
As published the profiler is a simulation apart from that of the cluster: `profile_apart`.

Source: Hu et al. (Lucid), ASPLOS 2023, section 3.2, and public artifact.

An elastic profiler gives back servers by what is predicted to arrive (`ArrivalForecast`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from allocator.conversion import AtLeastOne, PositiveSeconds, check_fields
from allocator.mechanism.placement.whole import servers_for
from throughputs import InputError
from throughputs.arrays import Flags, Floats

# Intervals that are looked ahead.
_AHEAD = 5


@dataclass(frozen=True)
class ArrivalForecast:
    """Predicted arrivals by interval.

    Attributes
    ----------
    begins : (B,) when each interval begins, seconds, ascending.
    jobs, gpus : (B,) jobs that arrive in it, and the GPUs that they ask for together.

    >>> forecast = ArrivalForecast((0.0, 600.0, 1200.0), (3.0, 1.0, 5.0), (8.0, 1.0, 30.0))
    >>> forecast.jobs_ahead(0.0), forecast.gpus_ahead(600.0), forecast.jobs_ahead(1200.0)
    (3.0, 30.0, None)

    Raises
    ------
    InputError
        Columns of different length, or intervals that do not ascend.
    """

    begins: tuple[float, ...]
    jobs: tuple[float, ...]
    gpus: tuple[float, ...]

    def __post_init__(self) -> None:
        n = len(self.begins)
        for name in ("jobs", "gpus"):
            if len(getattr(self, name)) != n:
                found = f"{len(getattr(self, name))} intervals"
                raise InputError("forecast of arrivals", field=name, found=found, expected=f"{n} intervals")
        if (np.diff(self.begins) <= 0).any():
            raise InputError("forecast of arrivals", field="begins", found="other", expected="ascending seconds")

    def jobs_ahead(self, clock: float) -> float | None:
        """Mean of the jobs in the next five intervals after `clock` (seconds), or as many as there are; None: none."""
        return self._ahead(self.jobs, clock)

    def gpus_ahead(self, clock: float) -> float | None:
        """The same of the GPUs."""
        return self._ahead(self.gpus, clock)

    def _ahead(self, column: tuple[float, ...], clock: float) -> float | None:
        first = bisect_right(self.begins, clock)
        ahead = column[first : first + _AHEAD]
        return sum(ahead) / len(ahead) if ahead else None


_GPUS_PER_SERVER = 8

_GROW_SECONDS, _GROW_WAITING = 10, 10
"""An elastic profiler borrows one more server while more than so many wait: looked at every ten seconds."""

_SHRINK_SECONDS, _SHRINK_WAITING, _SHRINK_GANGS = 100, 5, 5
"""It gives it back when fewer than so many wait, nobody is on it, and GPUs for at most so many of the largest gangs are
predicted to arrive in an interval: looked at every hundred seconds."""

_Span = list[tuple[int, int, int]]
"""GPUs of one gang: servers as bits, what was free there, and how many of them it has."""


@dataclass(frozen=True)
class ProfilerSettings:
    """Limits of the profiler in time and space.

    Attributes
    ----------
    servers : its servers, of eight GPUs each.
    limit_seconds : a job runs there for so long at most.
    largest_gang : jobs with more GPUs are not profiled.
    elastic : whether it borrows one more server when many wait.

    Raises
    ------
    InputError
        A setting that is not above 0.
    """

    servers: AtLeastOne = 2
    limit_seconds: PositiveSeconds = 200.0
    largest_gang: AtLeastOne = 8
    elastic: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "profiler")


@dataclass(frozen=True, eq=False)
class ProfilingRun:
    """What became of N jobs in the profiler.

    Attributes
    ----------
    profiled : (N,) whether the job is small enough to be profiled.
    start : (N,) when it began, seconds; nan for one that is not profiled.
    queue_seconds : (N,) how long it waited for that; 0 for one that is not profiled.
    ended : (N,) whether it was through within the time limit.
    end : (N,) when it left the profiler, seconds; nan for one that is not profiled.
    scaling : pairs (seconds, servers): +1 when a server was borrowed, -1 when it was given back.
    """

    profiled: Flags
    start: Floats
    queue_seconds: Floats
    ended: Flags
    end: Floats
    scaling: tuple[tuple[float, int], ...]


def profile_apart(
    arrival: ArrayLike,
    gpus: ArrayLike,
    duration: ArrayLike,
    settings: ProfilerSettings | None = None,
    forecast: ArrivalForecast | None = None,
) -> ProfilingRun:
    """Run the profiler by itself over N jobs, the fewest GPUs first, strictly in that order.

    At each second those who are through leave, then jobs arrive, then the line is served up to the first that finds no
    room, then the number of servers is looked at. Times are whole seconds.

    Parameters
    ----------
    arrival, duration : (N,) seconds; arrivals ascending.
    gpus : (N,) GPUs of each gang.
    forecast : of arrivals, for an elastic profiler; None: it does not give back what it borrowed.

    Raises
    ------
    InputError
        Columns of different length, times that are not whole seconds, or arrivals out of order.
    """
    settings = settings or ProfilerSettings()
    came, size = np.asarray(arrival, dtype=np.float64), np.asarray(gpus, dtype=np.int64)
    seconds = np.asarray(duration, dtype=np.float64)
    for name, column in (("arrival", came), ("gpus", size), ("duration", seconds)):
        if column.shape != (len(came),):
            raise InputError("profiler", field=name, found=column.shape, expected=f"shape ({len(came)},)")
        if (column != np.rint(column)).any():
            raise InputError("profiler", field=name, found="a part of a second", expected="whole seconds")
    if (np.diff(came) < 0).any():
        raise InputError("profiler", field="arrival", found="another order", expected="the order of arrival")
    fits = (size <= settings.largest_gang) & (size <= settings.servers * _GPUS_PER_SERVER)
    profiler = _Profiler(settings, forecast)
    start, end = np.full(len(came), np.nan), np.full(len(came), np.nan)
    lasts = np.minimum(seconds, settings.limit_seconds)
    start[fits] = profiler.serve(*(column[fits].tolist() for column in (came, size, lasts)))
    end[fits] = start[fits] + lasts[fits]
    queue = np.where(fits, start - came, 0.0)
    return ProfilingRun(fits, start, queue, fits & (seconds <= settings.limit_seconds), end, tuple(profiler.scaling))


class _Profiler:
    """The servers, by number of free GPUs as bits."""

    def __init__(self, settings: ProfilerSettings, forecast: ArrivalForecast | None) -> None:
        self._settings, self._forecast = settings, forecast
        self._servers, self._with_free = settings.servers, [0] * _GPUS_PER_SERVER + [(1 << settings.servers) - 1]
        self.scaling: list[tuple[float, int]] = []

    def serve(self, came: list[float], gpus: list[int], seconds: list[float]) -> list[float]:
        """Start of each job."""
        start = [0.0] * len(came)
        line: list[tuple[int, int]] = []
        running: list[tuple[float, int, _Span]] = []
        arrived, look = 0, inf
        while arrived < len(came) or line or running:
            clock = min([look, *(end for end, _, _ in running[:1]), *came[arrived : arrived + 1]])
            while running and running[0][0] <= clock:
                for server, _, count in heappop(running)[2]:
                    self._change(server, count)
            while arrived < len(came) and came[arrived] <= clock:
                heappush(line, (gpus[arrived], arrived))
                arrived += 1
            while line and (span := servers_for(line[0][0], self._with_free, "best_fit")):
                job = heappop(line)[1]
                start[job] = clock
                for server, _, count in span:
                    self._change(server, -count)
                heappush(running, (clock + seconds[job], job, span))
            if arrived < len(came) or line or running:
                look = self._scale(clock, len(line))
        return start

    def _change(self, server: int, more: int) -> None:
        """So many GPUs `more` are free on a server (a bit)."""
        free = next(free for free, some in enumerate(self._with_free) if some & server)
        self._with_free[free] ^= server
        self._with_free[free + more] ^= server

    def _scale(self, clock: float, waiting: int) -> float:
        """Borrow a server or give it back at `clock` (seconds); answers when to look again at the latest."""
        borrowed = self._servers > self._settings.servers
        if not self._settings.elastic or (not borrowed and waiting <= _GROW_WAITING):
            return inf
        step = _SHRINK_SECONDS if borrowed else _GROW_SECONDS
        if clock % step or (borrowed and not self._may_shrink(clock, waiting)):
            return (clock // step + 1.0) * step
        change = -1 if borrowed else 1
        # the last server goes or comes, all of it free
        self._with_free[_GPUS_PER_SERVER] ^= 1 << self._settings.servers
        self._servers += change
        self.scaling.append((clock, change))
        return inf if borrowed else clock + 1.0

    def _may_shrink(self, clock: float, waiting: int) -> bool:
        idle = self._with_free[_GPUS_PER_SERVER] >> self._settings.servers
        if waiting >= _SHRINK_WAITING or self._forecast is None or not idle:
            return False
        ahead = self._forecast.gpus_ahead(clock)
        return ahead is None or ahead <= _SHRINK_GANGS * self._settings.largest_gang
