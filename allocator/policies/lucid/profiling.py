"""The profiler on servers of its own: every new job runs there for a short while, those with the fewest GPUs first.

What it finds out are the figures by which jobs are packed. Jobs that end within the time limit never enter the cluster.
As published the profiler is a simulation apart from that of the cluster: `profile_apart`.

Source: Hu et al. (Lucid), ASPLOS 2023, section 3.2, and public artifact.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.policies.lucid.forecast import ArrivalForecast
from allocator.policies.lucid.servers import Servers, Span
from throughputs import InputError


@dataclass(frozen=True)
class ProfilerSettings:
    """Limits of the profiler in time and space.

    Attributes
    ----------
    servers, gpus_per_server : its servers.
    limit_seconds : a job runs there for so long at most.
    largest_gang : jobs with more GPUs are not profiled.
    elastic : whether it borrows one more server when many wait: looked at every `grow_every_seconds`, while more than
        `grow_waiting` jobs wait; given back, looked at every `shrink_every_seconds`, when fewer than `shrink_waiting`
        do, nobody is on it, and at most five times `largest_gang` GPUs are predicted to arrive in an interval.

    Raises
    ------
    InputError
        A setting that is not above 0.
    """

    servers: int = 2
    gpus_per_server: int = 8
    limit_seconds: float = 200.0
    largest_gang: int = 8
    elastic: bool = True
    grow_every_seconds: int = 10
    grow_waiting: int = 10
    shrink_every_seconds: int = 100
    shrink_waiting: int = 5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool) and not value > 0:
                raise InputError("profiler", field=name, found=value, expected="above 0")


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

    profiled: NDArray[np.bool_]
    start: NDArray[np.float64]
    queue_seconds: NDArray[np.float64]
    ended: NDArray[np.bool_]
    end: NDArray[np.float64]
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
    fits = (size <= settings.largest_gang) & (size <= settings.servers * settings.gpus_per_server)
    jobs = np.flatnonzero(fits)
    pool = _Pool(settings, forecast)
    times = (came[jobs].tolist(), size[jobs].tolist(), np.minimum(seconds, settings.limit_seconds)[jobs].tolist())
    start, end = np.full(len(came), np.nan), np.full(len(came), np.nan)
    start[jobs], end[jobs] = pool.serve(*times)
    queue = np.where(fits, np.where(fits, start, 0.0) - came, 0.0)
    return ProfilingRun(fits, start, queue, fits & (seconds <= settings.limit_seconds), end, tuple(pool.scaling))


class _Pool:
    """The profiler's servers and its line."""

    def __init__(self, settings: ProfilerSettings, forecast: ArrivalForecast | None) -> None:
        self._settings, self._forecast = settings, forecast
        self._servers = Servers.of(settings.servers * settings.gpus_per_server, settings.gpus_per_server)
        self._grown = False
        self.scaling: list[tuple[float, int]] = []

    def serve(self, came: list[float], gpus: list[int], seconds: list[float]) -> tuple[list[float], list[float]]:
        """Start and end of each job."""
        n = len(came)
        start, end = [0.0] * n, [0.0] * n
        line: list[tuple[int, int]] = []
        running: list[tuple[float, int, Span]] = []
        arrived, changed = 0, inf
        while arrived < n or line or running:
            clock = min(
                running[0][0] if running else inf,
                came[arrived] if arrived < n else inf,
                changed,
            )
            while running and running[0][0] <= clock:
                self._servers.give(heappop(running)[2])
            while arrived < n and came[arrived] <= clock:
                heappush(line, (gpus[arrived], arrived))
                arrived += 1
            while line and (span := self._servers.take(line[0][0])) is not None:
                job = heappop(line)[1]
                start[job], end[job] = clock, clock + seconds[job]
                heappush(running, (end[job], job, span))
            if arrived == n and not line and not running:
                break
            changed = self._scale(clock, len(line))
        return start, end

    def _scale(self, clock: float, waiting: int) -> float:
        """Borrow a server or give it back at `clock` (seconds); answers when to look again at the latest."""
        settings = self._settings
        if not settings.elastic:
            return inf
        if not self._grown:
            if waiting <= settings.grow_waiting:
                return inf
            if clock % settings.grow_every_seconds:
                return _next_multiple(clock, settings.grow_every_seconds)
            self._servers.add()
            self._grown = True
            self.scaling.append((clock, 1))
            return clock + 1.0
        if clock % settings.shrink_every_seconds == 0 and waiting < settings.shrink_waiting and self._may_shrink(clock):
            self._servers.free.pop()
            self._grown = False
            self.scaling.append((clock, -1))
            return inf
        return _next_multiple(clock, settings.shrink_every_seconds)

    def _may_shrink(self, clock: float) -> bool:
        if self._forecast is None or self._servers.free[-1] < self._servers.per_server:
            return False
        ahead = self._forecast.gpus_ahead(clock)
        return ahead is None or ahead <= 5 * self._settings.largest_gang


def _next_multiple(clock: float, step: int) -> float:
    return (clock // step + 1.0) * step
