"""Fragmentation: how the free GPUs lie on the servers, over time.

At a time t let f_s be the free GPUs of server s, which has z_s. The free GPUs of a pool are sum_s f_s, and

- *fragmented* are those on servers that are partly used, the sum of f_s over servers with 0 < f_s < z_s;
- *a gang of g GPUs fits* if it can be placed on as few servers as it can do with. With servers of z GPUs these are
  floor(g / z) servers that are wholly free, and one more with at least g mod z free GPUs if that is not 0;
- a gang is *blocked* while at least g GPUs of the pool are free and it does not fit: by fragmentation, not by load.

A gang fits in a pool, not in the cluster: jobs of a virtual cluster cannot start on free GPUs of another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import quotient

if TYPE_CHECKING:
    import pandas as pd

    from allocator.cluster import Cluster
    from allocator.results.record import RunRecord


GANG = 8
"""GPUs of the gang that is asked about: a whole server of most clusters."""


@dataclass(frozen=True, eq=False)
class Fragmentation:
    """M pools over a stretch of time.

    Attributes
    ----------
    share : (M,) fragmented GPU time over free GPU time; nan where no GPU was free.
    fits : (M,) part of the time in which the gang fitted; nan in pools that are smaller than it.
    blocked : (M,) part of the time in which as many GPUs were free and it did not fit; nan as for `fits`.
    overall : share, fits and blocked of the cluster by the names of figures; the latter two are means over pools,
        weighted by their GPUs.
    """

    share: Floats
    fits: Floats
    blocked: Floats
    overall: dict[str, float]

    @property
    def by_pool(self) -> dict[str, Floats]:
        """The three by the same names, (M,) each."""
        return dict(zip(self.overall, (self.share, self.fits, self.blocked), strict=True))


def measure_fragmentation(record: RunRecord, start: float, end: float, gang: int = GANG) -> Fragmentation | None:
    """Fragmentation from `start` to `end` (seconds); None where servers have one GPU, or placement is not known.

    Parameters
    ----------
    record : of a run.
    start, end : seconds on the clock.
    gang : GPUs of the gang that is asked about.
    """
    cluster = record.cluster
    courses = _courses(record, gang)
    if courses is None or not end > start:
        return None
    n = len(courses)
    free, fragmented, fits, blocked = np.zeros((4, n))
    for pool, course in enumerate(courses):
        seconds = np.diff(np.clip(np.append(course["time"], np.inf), start, end))
        gpus, fitted = course["free_gpus"].to_numpy(), course["gang_fits"].to_numpy()
        free[pool] = (gpus * seconds).sum()
        fragmented[pool] = (course["fragmented_gpus"].to_numpy() * seconds).sum()
        fits[pool] = seconds[fitted].sum() / (end - start)
        blocked[pool] = seconds[~fitted & (gpus >= gang)].sum() / (end - start)
    able = cluster.capacity >= gang
    weight = np.where(able, cluster.capacity, 0)
    overall = {
        "fragmentation": _ratio(fragmented.sum(), free.sum()),
        "gang_fits_fraction": _ratio((weight * fits).sum(), weight.sum()),
        "gang_blocked_fraction": _ratio((weight * blocked).sum(), weight.sum()),
    }
    return Fragmentation(
        quotient(fragmented, free, np.nan), np.where(able, fits, np.nan), np.where(able, blocked, np.nan), overall
    )


def fragmentation_table(record: RunRecord, gang: int = GANG) -> pd.DataFrame:
    """One row per pool and time at which it changed: time (seconds), accelerator (category), free_gpus, fragmented_gpus
    and gang_fits, which hold from then on. Empty where servers have one GPU, or placement is not known.
    """
    import pandas as pd

    none = np.empty(0, dtype=np.int64)
    courses = _courses(record, gang) or [_table(np.empty(0), none, none, none > 0)]
    table = pd.concat(courses, ignore_index=True)
    pool = np.repeat(np.arange(len(courses)), [len(course) for course in courses])
    table.insert(1, "accelerator", pd.Series(pd.Categorical.from_codes(pool, pd.Index(record.cluster.accelerators))))
    return table


def _table(time: Floats, free: Ints, fragmented: Ints, fits: Flags) -> pd.DataFrame:
    """A pool over time: what holds from each time on (seconds, ascending)."""
    import pandas as pd

    return pd.DataFrame({"time": time, "free_gpus": free, "fragmented_gpus": fragmented, "gang_fits": fits})


def _courses(record: RunRecord, gang: int) -> list[pd.DataFrame] | None:
    """Each pool of the cluster over time."""
    cluster = record.cluster
    if max(cluster.gpus_per_server.values()) == 1 or record.fluid:
        return None
    busy = _busy(record)
    if busy is None:
        return None
    gpu, start, end = busy
    server, size, pool_of = _servers(cluster)
    at = server[gpu]
    time = np.concatenate([start, end])
    change = np.repeat([-1, 1], len(at))
    both = np.tile(at, 2)
    courses = []
    for pool, name in enumerate(cluster.accelerators):
        rows = pool_of[both] == pool
        own, first = size[pool_of == pool], int(np.searchsorted(pool_of, pool))
        whole = cluster.gpus_per_server[name]
        courses.append(_course(time[rows], both[rows] - first, change[rows], own, whole, gang))
    return courses


def _servers(cluster: Cluster) -> tuple[Ints, Ints, Ints]:
    """(G,) server of each GPU, and of each server (S,) its GPUs and its pool; numbered pool by pool."""
    within = np.arange(cluster.total_gpus) - np.repeat(cluster.first_gpu, cluster.capacity)
    whole = np.array([cluster.gpus_per_server[name] for name in cluster.accelerators])
    count = -(-cluster.capacity // whole)
    first = np.cumsum(count) - count
    server = np.repeat(first, cluster.capacity) + within // np.repeat(whole, cluster.capacity)
    return server, np.bincount(server, minlength=int(count.sum())), np.repeat(np.arange(len(count)), count)


def _course(time: Floats, server: Ints, change: Ints, size: Ints, whole: int, gang: int) -> pd.DataFrame:
    """One pool: its servers have `size` GPUs, `whole` of them where they are complete.

    The free GPUs of the `server` change by `change` at each `time`.
    """
    import pandas as pd

    need, rest = divmod(gang, whole)
    order = np.argsort(time, kind="stable")
    time, server, change = time[order], server[order], change[order]
    # what is free of a server after each of its changes, and before it
    after = size[server] + pd.Series(change).groupby(server).cumsum().to_numpy(np.int64)
    before = after - change
    steps = _counts(after, size[server], whole, rest) - _counts(before, size[server], whole, rest)
    first = _counts(size, size, whole, rest).sum(axis=1)
    times, position = np.unique(np.append(time, 0.0), return_inverse=True)
    position = position[:-1]
    free, fragmented, empty, roomy = (
        begin + np.cumsum(np.bincount(position, step, len(times))).astype(np.int64)
        for begin, step in zip(first.tolist(), steps, strict=True)
    )
    fits = (empty >= need) & (roomy >= need + (rest > 0))
    return _table(times, free, fragmented, fits)


def _counts(free: Ints, size: Ints, whole: int, rest: int) -> Ints:
    """(4, K) for servers with so many `free` of their GPUs: these; those that are fragmented; whether the server is
    complete and empty; and whether it has room for the `rest` of a gang.
    """
    return np.array([free, np.where(free < size, free, 0), free >= whole, free >= max(rest, 1)], dtype=np.int64)


def _busy(record: RunRecord) -> tuple[Ints, Floats, Floats] | None:
    """GPU, start and end of the stretches in which somebody had each GPU: jobs that share one count once.

    None where placement is off.
    """
    code, places = record.row_places
    if not places:
        return None
    order = np.lexsort((record.row_round, record.row_job))
    job, code = record.row_job[order], code[order]
    start, end = record.row_start[order], record.row_busy_until[order]
    # rows in which a job goes on on the same GPUs are one
    opens = np.append(True, (job[1:] != job[:-1]) | (code[1:] != code[:-1]) | (start[1:] != end[:-1]))
    kept = [places[at] for at in code[opens].tolist()]
    count = [len(place) for place in kept]
    gpu = np.fromiter(chain.from_iterable(kept), dtype=np.int64)
    start, end = np.repeat(start[opens], count), np.repeat(end[np.append(opens[1:], True)], count)
    times, rank = np.unique(np.concatenate([start, end]), return_inverse=True)
    # ranks of times in place of times, so that GPUs can be told apart in one exact number
    begin, finish = rank[: len(start)] + gpu * len(times), rank[len(start) :] + gpu * len(times)
    order = np.argsort(begin, kind="stable")
    begin, finish = begin[order], np.maximum.accumulate(finish[order])
    opens = np.append(True, begin[1:] > finish[:-1])
    closes = np.append(opens[1:], True)
    return gpu[order][opens], times[begin[opens] % len(times)], times[finish[closes] % len(times)]


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
