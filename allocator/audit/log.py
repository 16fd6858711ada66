"""An audit of what was: where the GPU time of a job log went, and who waited for what, by account and by size.

Of N jobs that ran, job i came at a_i, had g_i GPUs of pool m_i from s_i to e_i; f_m(t) are the free GPUs of a pool.

- *Idle though a job fitted*: f_m(t) while some job waits for the pool that asks for no more than that.
- *Idle, too few for any that waited* (fragmented): f_m(t) while jobs wait for the pool and all ask for more.
- A job *could have started* at the times between a_i and s_i with f_m(t) >= g_i.
- A job was *overtaken* where it waited for more than ten minutes, and one that came later started before it with as
  many GPUs of the pool or more: such a one fills no gap that was too small for the first.
- *Wasted* is the GPU time of jobs that failed, were cancelled or ran into their limits.

All GPU time is that between the first and the last submission: then the cluster runs dry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.presets import preset
from allocator.recorded import beyond_cluster, recorded_schedule
from allocator.results.measures.calibration import NEAR
from allocator.results.measures.parts import rows_of, size_names
from throughputs import Trace
from throughputs.arrays import Flags, Floats, Texts
from throughputs.files import JsonObject
from throughputs.shown import counted
from throughputs.trace import ENDINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from allocator.cluster import Cluster

_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class LogAudit:
    """What an audit of a log finds.

    Attributes
    ----------
    gpu_time : one row per use of the GPUs: columns use, gpu_hours and part (of all GPU time).
    parts : tables by what tells jobs apart ("account", "user", "partition" and "gpus"), one row per part, the one with
        the most GPU time first: jobs, gpu_hours, gpu_share, waited_hours and slowdown (bounded) on average,
        could_start (part of the waiting), overtaken (part of the jobs), wasted_gpu_hours.
    left_out : jobs of which the log does not tell where they ran; empty for none.
    beyond : how many GPUs were in use at a time, where the cluster has fewer; else empty.
    """

    gpu_time: pd.DataFrame
    parts: Mapping[str, pd.DataFrame]
    left_out: str
    beyond: str

    def as_dict(self) -> JsonObject:
        """Ready for JSON."""
        parts = {f"by_{name}": rows_of(table) for name, table in self.parts.items()}
        return {"gpu_time": rows_of(self.gpu_time), **parts, "left_out": self.left_out, "beyond": self.beyond}


def audit_log(trace: Trace, cluster: Cluster | str | Mapping[str, int]) -> LogAudit:
    """Where the GPU time of a recorded schedule went, and who waited.

    >>> told = Trace(["job"] * 3, [1, 2, 1], [60.0] * 3, [0.0, 0.0, 60.0], duration=[60.0] * 3, user=["a", "b", "a"],
    ...              recorded_start_seconds=[0.0, 60.0, 120.0], recorded_end_seconds=[60.0, 120.0, 180.0])
    >>> found = audit_log(told, "gpu:2")
    >>> found.gpu_time.set_index("use")["part"].round(2).to_dict()["idle, too few for any that waited"]
    0.5

    Raises
    ------
    InputError
        The trace records no schedule, or of no job where it ran.
    """
    run = recorded_schedule(trace, cluster, preset=preset("default").replace(gang_rates="duration"))
    record, jobs = run.record, run.jobs
    ran, order = record.row_job, np.argsort(record.row_job)
    jobs, start, end = jobs.iloc[ran[order]], record.row_start[order], record.row_finish[order]
    arrival, gpus = jobs["arrival_time"].to_numpy(float), record.row_gpus[order]
    span = float(trace.arrival_time.min()), float(trace.arrival_time.max())
    could, overtaken, idle = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=bool), np.zeros(3)
    for pool, capacity in enumerate(run.cluster.capacity.tolist()):
        mine = record.row_accelerator[order] == pool
        some = _Pool(arrival[mine], start[mine], end[mine], gpus[mine], capacity, span)
        idle += some.idle()
        could[mine], overtaken[mine] = some.could_start(), some.overtaken()
    within = np.maximum(np.minimum(end, span[1]) - np.maximum(start, span[0]), 0.0) * gpus
    status = jobs["status"].astype(str).to_numpy()
    uses = {"jobs that completed, or still ran": within[status == ENDINGS[0]].sum()}
    uses |= {f"jobs that {_WORDS[ending]}": within[status == ending].sum() for ending in ENDINGS[1:]}
    uses |= dict(zip(_IDLE, idle, strict=True))
    # all GPU time of the cluster, and what was in use beyond it
    total = max(sum(uses.values()), 1e-300)
    import pandas as pd

    rows = [(use, seconds / _HOUR, seconds / total) for use, seconds in uses.items() if seconds]
    figures = pd.DataFrame(
        {
            "gpu_seconds": (end - start) * gpus,
            "waited": start - arrival,
            "slowdown": np.maximum((end - arrival) / np.maximum(end - start, NEAR), 1.0),
            "could": could,
            "overtaken": overtaken,
            "wasted": np.where(np.isin(status, ENDINGS[1:]), (end - start) * gpus, 0.0),
        }
    )
    names, size = size_names(jobs["scale_factor"].to_numpy())
    of = {"account": trace.entity[ran[order]]}
    of |= {name: jobs[name].to_numpy() for name in ("user", "partition") if name in jobs}
    of["gpus"] = np.array(names, dtype=object)[size]
    parts = {name: _table(figures, name, whose) for name, whose in of.items() if len({*whose.tolist()}) > 1}
    unserved = int(((run.jobs["status"] == "unserved") & record.measured).sum())
    cannot = f"{counted(unserved, 'job')} that the cluster cannot run" if unserved else ""
    left_out = ", and ".join(filter(None, (run.status_detail, cannot)))
    return LogAudit(pd.DataFrame(rows, columns=["use", "gpu_hours", "part"]), parts, left_out, beyond_cluster(run))


_WORDS = {"failed": "failed", "cancelled": "were cancelled", "timed_out": "ran into their limits"}
_IDLE = ("idle though a job that waited fitted", "idle, too few for any that waited", "idle, and nobody waited")


def _table(figures: pd.DataFrame, name: str, whose: Texts) -> pd.DataFrame:
    """One row per part."""
    import pandas as pd

    by = figures.groupby(whose)
    sums, means = by.sum(), by.mean()
    table = pd.DataFrame(
        {
            name: sums.index,
            "jobs": by.size().to_numpy(),
            "gpu_hours": sums["gpu_seconds"].to_numpy() / _HOUR,
            "gpu_share": (sums["gpu_seconds"] / figures["gpu_seconds"].sum()).to_numpy(),
            "waited_hours": means["waited"].to_numpy() / _HOUR,
            "slowdown": means["slowdown"].to_numpy(),
            "could_start": (sums["could"] / sums["waited"].where(sums["waited"] > 0)).to_numpy(),
            "overtaken": means["overtaken"].to_numpy(),
            "wasted_gpu_hours": sums["wasted"].to_numpy() / _HOUR,
        }
    )
    return table.sort_values("gpu_hours", ascending=False, kind="stable", ignore_index=True)


class _Pool:
    """The jobs of a pool, and its free GPUs from each of the `times` on."""

    def __init__(
        self, arrival: Floats, start: Floats, end: Floats, gpus: Floats, capacity: float, span: tuple[float, float]
    ) -> None:
        self.arrival, self.start, self.gpus, self.capacity = arrival, start, gpus, capacity
        self.times = np.unique(np.concatenate([arrival, start, end, span]))
        self.seconds = np.append(np.diff(self.times), 0.0)
        self.within = (self.times >= span[0]) & (self.times < span[1])
        self.free = np.maximum(capacity - self._count(start, gpus) + self._count(end, gpus), 0.0)
        self.sizes = np.unique(gpus)

    def _count(self, since: Floats, gpus: Floats) -> Floats:
        """How many GPUs have come by each of the times."""
        at = np.searchsorted(self.times, since)
        return np.asarray(np.cumsum(np.bincount(at, gpus, len(self.times))))

    def idle(self) -> Floats:
        """(3,) GPU seconds that were free though a job that waited fitted, as all were larger, and as none waited."""
        smallest = np.full(len(self.times), np.inf)
        for size in self.sizes[::-1]:
            one = (self.gpus == size).astype(float)
            smallest[self._count(self.arrival, one) > self._count(self.start, one)] = size
        spent = np.where(self.within, self.free * self.seconds, 0.0)
        cases = (self.free >= smallest, (self.free < smallest) & np.isfinite(smallest), np.isinf(smallest))
        return np.array([spent[case].sum() for case in cases])

    def could_start(self) -> Floats:
        """(n,) seconds of waiting in which as many GPUs were free as the job asks for."""
        found = np.zeros(len(self.gpus))
        came, began = (np.searchsorted(self.times, each) for each in (self.arrival, self.start))
        for size in self.sizes:
            upto = np.concatenate([[0.0], np.cumsum(np.where(self.free >= size, self.seconds, 0.0))])
            mine = self.gpus == size
            found[mine] = upto[began[mine]] - upto[came[mine]]
        return found

    def overtaken(self) -> Flags:
        """(n,) whether a later job of at least the size started before one that waited for more than ten minutes."""
        found = np.zeros(len(self.gpus), dtype=bool)
        for size in self.sizes:
            rivals, mine = np.flatnonzero(self.gpus >= size), np.flatnonzero(self.gpus == size)
            rivals = rivals[np.argsort(self.arrival[rivals], kind="stable")]
            first = np.append(np.minimum.accumulate(self.start[rivals][::-1])[::-1], np.inf)
            later = np.searchsorted(self.arrival[rivals], self.arrival[mine], "right")
            found[mine] = first[later] < self.start[mine]
        return found & (self.start - self.arrival > NEAR)
