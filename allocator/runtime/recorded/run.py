"""A recorded run: trace, throughputs and results in the form that simulations have them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.recorded import Stretch, stretches
from allocator.results.observers import StretchOutcome
from allocator.results.outcomes import COMPLETED, CUT_OFF, DROPPED, OPEN, REJECTED
from allocator.results.record import RunRecord
from allocator.results.result import SimulationResult
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.recorded.leases import Lease, Leases
from allocator.runtime.records.book import Job
from allocator.simulator.truth import Truth
from throughputs import ThroughputTable, Trace
from throughputs.tables.figures import TableBuilder

if TYPE_CHECKING:
    import pandas as pd

THROUGHPUTS_FILE = "throughputs.csv"
"""In a state folder: what its service believes of job types before they have run."""

_Floats = NDArray[np.float64]

_OUTCOMES = {"completed": COMPLETED, "cancelled": CUT_OFF, "failed": DROPPED, "rejected": REJECTED}


@dataclass(frozen=True)
class RecordedRun:
    """What a service did, from its first submission on.

    Parameters
    ----------
    told : the journal.
    known : throughputs that the service believed in; None: none. What was measured comes before them.
    """

    told: Leases
    known: ThroughputTable | None = None

    @property
    def cluster(self) -> Cluster:
        """All GPUs that there ever were."""
        return self.told.hardware.cluster

    @property
    def policy(self) -> str:
        """Name of the policy in force at the end."""
        return str((self.told.book.policy or {}).get("name", "fifo_perf"))

    @cached_property
    def job_types(self) -> list[str]:
        """Of each job; one that names none has one of its own."""
        return [job.job_type or f"job {job.id}" for job in self.told.book.by_id]

    @cached_property
    def trace(self) -> Trace:
        """The jobs as they were submitted, with the steps that they did where they did not complete.

        Of a job that reports no steps, a step is a second that it ran.
        """
        jobs, since = self.told.book.by_id, self.told.since
        return Trace(
            self.job_types,
            self.told.scale_factor,
            [_steps(job) for job in jobs],
            [max(job.submitted_at - since, 0.0) for job in jobs],
            priority_weight=[job.weight for job in jobs],
            deadline=[np.nan if job.deadline is None else job.deadline - since for job in jobs],
            entity=[job.entity for job in jobs],
            user=[job.user for job in jobs],
            command=[shlex.join(job.command) for job in jobs],
            working_directory=[job.working_directory for job in jobs],
            source="recorded run",
        )

    @cached_property
    def table(self) -> ThroughputTable:
        """Throughputs by job type: the median over its jobs where they were measured, else what was believed."""
        accelerators = self.cluster.accelerators
        knowledge = Knowledge(accelerators, self.known)
        measured: dict[tuple[str, int], dict[tuple[str, int], list[float]]] = {}
        for job, job_type, own in zip(self.told.book.by_id, self.job_types, self.told.scale_factor, strict=True):
            of_type = measured.setdefault((job_type, own), {})
            for way, rate in self._rates_of(job).items():
                of_type.setdefault(way, []).append(rate)
        figures: dict[tuple[str, str, int], float] = {}
        for (job_type, own), of_type in measured.items():
            medians = {way: float(np.median(rates)) for way, rates in of_type.items()}
            for (name, gpus), rate in knowledge.believed(job_type, own, medians).items():
                if (name, gpus) in medians or (name, job_type, gpus) not in figures:
                    figures[name, job_type, gpus] = rate
        builder = TableBuilder()
        for name in accelerators:
            builder.accelerator(name)
        for (name, job_type, gpus), rate in figures.items():
            builder.add_isolated(name, (job_type, gpus), rate)
        return ThroughputTable(*builder.figures(), "throughputs of a recorded run")

    def _rates_of(self, job: Job) -> Mapping[tuple[str, int], float]:
        """Steps/s of a job by (accelerator type, GPUs) as far as they were measured."""
        if not job.steps:
            return dict.fromkeys(self.told.speeds[job.id], 1.0)
        speeds = self.told.speeds[job.id].items()
        return dict(job.measured) | {way: steps / seconds for way, (steps, seconds) in speeds if steps and seconds}

    @cached_property
    def restart_seconds(self) -> float:
        """What a start costs on average: time from when the GPUs were meant for a job until they were to be free
        again, less the time that its steps take; 0 where nothing was measured.
        """
        lost = [seconds for lease in self.told.leases if (seconds := self._lost(lease)) is not None]
        return float(np.mean(lost)) if lost else 0.0

    def _lost(self, lease: Lease) -> float | None:
        job = self.told.book.by_id[lease.job]
        rate = self._rates_of(job).get((lease.pool, len(lease.gpus)))
        if rate is None or lease.steps <= 0 or lease.partner >= 0:
            return None
        end = lease.finish if lease.told is None else lease.told
        return max(end - lease.due - lease.steps / rate, 0.0)

    @cached_property
    def record(self) -> RunRecord:
        """Leases as rows, as in a simulation that decides at events."""
        jobs = JobTable.from_trace(self.trace, self.table, self.cluster)
        told = self.told
        states = [job.state for job in told.book.by_id]
        through = [np.nan if job.finished_at is None else job.finished_at - told.since for job in told.book.by_id]
        jobs.register("outcome", OPEN)
        jobs.register("leave_time", np.nan)
        jobs.columns["outcome"] = np.array([_OUTCOMES.get(state, OPEN) for state in states], dtype=np.int64)
        jobs.columns["leave_time"] = np.array(through)
        jobs.completion_time = np.where(jobs.columns["outcome"] == COMPLETED, through, np.nan)
        jobs.steps_done = np.array([min(job.steps, _steps(job)) for job in told.book.by_id])
        truth = Truth(jobs.rates, jobs.scale_factor)
        return RunRecord(jobs, truth, self.cluster, list(self._outcomes()))

    def _outcomes(self) -> Iterator[StretchOutcome]:
        """The time from one event to the next, as long as anybody runs."""
        told = self.told
        lefts = [job.finished_at for job in told.book.by_id if job.finished_at is not None]
        for stretch in stretches(
            np.array([job.submitted_at for job in told.book.by_id]),
            np.array(lefts, dtype=np.float64),
            np.array([lease.start for lease in told.leases]),
            np.array([lease.finish for lease in told.leases]),
            np.array([len(lease.gpus) * (0.5 if lease.partner >= 0 else 1.0) for lease in told.leases]),
        ):
            yield self._stretch(stretch)

    def _stretch(self, stretch: Stretch) -> StretchOutcome:
        since, hardware = self.told.since, self.told.hardware
        types, ended = self.cluster.accelerators, self.told.leases[stretch.ended]
        numbers = []
        for lease in ended:
            places: dict[str, list[int]] = {}
            for node, at in lease.gpus:
                places.setdefault(node, []).append(at)
            numbers.append(hardware.numbers(places) or ())
        return StretchOutcome(
            stretch.index,
            stretch.begin - since,
            stretch.end - since,
            Assignment.of(
                [lease.job for lease in ended],
                [types.index(lease.pool) for lease in ended],
                [len(lease.gpus) for lease in ended],
                [lease.partner for lease in ended],
            ),
            tuple(numbers),
            np.array([lease.finish - since for lease in ended]),
            np.array([lease.steps for lease in ended]),
            stretch.active,
            started=np.array([lease.start - since for lease in ended]),
            running=(stretch.running, stretch.busy),
        )

    def capacity(self) -> pd.DataFrame:
        """One row per change: time (seconds), and by type the GPUs of nodes that were up and not drained from then."""
        import pandas as pd

        told, names = self.told, self.cluster.accelerators
        rows = {name: [gpus.get(name, 0) for _, gpus in told.capacity] for name in names}
        return pd.DataFrame({"time": [clock - told.since for clock, _ in told.capacity]} | rows)

    def result(self, settings: Mapping[str, Any]) -> SimulationResult:
        """The run with the `settings` that it had, as a simulation leaves it behind."""
        record, told = self.record, self.told
        return SimulationResult(
            policy=self.policy,
            cluster=self.cluster,
            settings=dict(settings),
            makespan=record.makespan,
            utilization=record.utilization,
            policy_calls=told.decisions,
            policy_seconds=told.policy_seconds,
            wall_seconds=told.until - told.since,
            record=record,
        )


def _steps(job: Job) -> float:
    """Steps of a job: those that it did, if it is through; at least one."""
    if job.finished_at is None and job.total_steps:
        return job.total_steps
    return max(job.steps or job.run_seconds, 1.0)
