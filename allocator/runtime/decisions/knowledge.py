"""What is believed of the speed of real jobs: what was measured, else what the table says, else that types are alike.

A job that has run on one type at another speed than the table has is taken to be off by that factor everywhere. What
jobs of a type did is what later jobs of it are expected to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from allocator.cluster import Cluster
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.records.book import Job
from throughputs import InputError, ThroughputTable
from throughputs.arrays import Floats
from throughputs.configurations import Configurations
from throughputs.errors import nearest_names

Ways = dict[tuple[str, int], float]
"""Steps/s by (accelerator type, GPUs)."""

_WEIGHT_OF_NEW = 0.5
"""Of the last measurement in the moving average (Gavel, OSDI'20, public artifact)."""

_BATCH_SIZE = re.compile(r"\(batch size \d+\)")
"""How job types of throughput tables end, those of Gavel among them."""

_USUAL_SECONDS = 3600.0
"""What a job is expected to run that says neither steps nor duration."""


def moving_average(before: float | None, measured: float) -> float:
    """The average with a new measurement."""
    return measured if before is None else (1 - _WEIGHT_OF_NEW) * before + _WEIGHT_OF_NEW * measured


class Knowledge:
    """Speeds by job.

    Parameters
    ----------
    accelerators : the types of the cluster.
    table : of job types; None: nothing is known before jobs have run.
    """

    def __init__(self, accelerators: Sequence[str], table: ThroughputTable | None) -> None:
        self._accelerators, self._table = tuple(accelerators), table
        self._of_type: dict[tuple[str, int], Ways] = {}
        self._measured_of_type: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._in_table = cache(self._looked_up)

    @property
    def job_types(self) -> tuple[str, ...]:
        """Those of the table."""
        return () if self._table is None else tuple(self._table.job_types)

    def sizes(self, job_type: str) -> list[int]:
        """Numbers of GPUs with which the table has a job type on types of the cluster."""
        return sorted({gpus for _, gpus in self._in_table(job_type)})

    def type_at(self, job_type: str, batch_size: int | None) -> str:
        """The row of the table for a type with another batch size; the type itself where the table has none."""
        other = job_type if batch_size is None else _BATCH_SIZE.sub(f"(batch size {batch_size})", job_type)
        return other if other in self.job_types else job_type

    def believed(self, job_type: str, gpus: int, measured: Mapping[tuple[str, int], float]) -> Ways:
        """All ways in which a job can run, its own number of GPUs among them, and how fast each is."""
        ways = self._expected(job_type, gpus)
        factor = 1.0
        for way, rate in measured.items():
            if ways.get(way):
                factor = rate / ways[way]
        return {way: measured.get(way, rate * factor) for way, rate in ways.items()}

    def known(self, job_type: str, gpus: int, measured: Mapping[tuple[str, int], float]) -> Ways:
        """Of what is `believed`, that which rests on a measurement or on the table.

        Of the other ways no more is known than of types in general: they are taken to be as fast as each other.
        """
        founded = {*measured, *self._measured_of_type.get((job_type, gpus), ()), *self._in_table(job_type)}
        return {way: rate for way, rate in self.believed(job_type, gpus, measured).items() if way in founded}

    def of(self, job: Job) -> Ways:
        """What is believed of a job, on the types that it runs on."""
        ways = self.believed(job.job_type, job.gpus, job.measured)
        return {way: rate for way, rate in ways.items() if not job.accelerators or way[0] in job.accelerators}

    def known_of(self, job: Job) -> Ways:
        """What is known of a job."""
        return self.known(job.job_type, job.gpus, job.measured)

    def learn(self, job: Job) -> None:
        """Later jobs of its type are expected to do what one did."""
        size = job.job_type, job.gpus
        if job.job_type and job.measured:
            self._of_type[size] = self.believed(*size, job.measured)
            self._measured_of_type.setdefault(size, set()).update(job.measured)

    def _expected(self, job_type: str, gpus: int) -> Ways:
        known = self._of_type.get((job_type, gpus))
        if known is not None:
            return known
        ways = self._in_table(job_type)
        own = {(name, gpus): 1.0 for name in self._accelerators if (name, gpus) not in ways}
        # a number of GPUs, or types, that the table lacks: as fast as nothing is known of
        return ways if any(size == gpus for _, size in ways) else ways | own

    def _looked_up(self, job_type: str) -> Ways:
        """What the table says of a job type on the types of the cluster."""
        table = self._table
        if table is None or job_type not in table.job_types:
            return {}
        there = [name for name in self._accelerators if name in table.accelerators]
        sizes = table.scale_factors_of(job_type)
        rates = table.rates([job_type] * len(sizes), list(sizes), there)
        return {
            (name, int(size)): float(rates[row, column])
            for row, size in enumerate(sizes)
            for column, name in enumerate(there)
            if rates[row, column] > 0
        }

    def expected_steps(self, total_steps: float, duration: float, ways: Ways, gpus: int) -> float:
        """Steps of a job, of one that does not say how many those of `duration` seconds on its fastest type."""
        if total_steps > 0:
            return total_steps
        fastest = max((rate for (_, size), rate in ways.items() if size == gpus), default=1.0)
        return (duration or _USUAL_SECONDS) * fastest

    def rates(self, ways: Sequence[Ways], gpus: Sequence[int]) -> Floats:
        """(N, M) steps/s of N jobs with their own numbers of GPUs."""
        rows = [[of.get((name, size), 0.0) for name in self._accelerators] for of, size in zip(ways, gpus, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self._accelerators))

    def configurations(self, ways: Sequence[Ways]) -> Configurations:
        """The same by number of GPUs."""
        position = {name: k for k, name in enumerate(self._accelerators)}
        columns = [(i, position[name], gpus, rate) for i, of in enumerate(ways) for (name, gpus), rate in of.items()]
        job, pool, gpus, rate = zip(*columns, strict=True) if columns else ((), (), (), ())
        return Configurations(job, pool, gpus, rate, jobs=range(len(ways)), pools=self._accelerators)


# ----------------------------------------------------------------------------------------------------------------------
# What can be said of a job before it runs: where it fits, how long it is taken to need, and what it is judged by.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prospects:
    """Jobs on a cluster.

    Attributes
    ----------
    knowledge : what is believed of speeds. hardware : the nodes.
    elastic : whether the policy chooses the number of GPUs.
    """

    knowledge: Knowledge
    hardware: Hardware
    elastic: bool = False
    _fitting: dict[tuple[object, ...], bool] = field(default_factory=dict)

    @property
    def _whole(self) -> Cluster:
        """The GPUs of all nodes."""
        return self.hardware.in_full.cluster

    def fits(self, job: Job) -> bool:
        """Whether the nodes in use have room for a job."""
        size = job.job_type, job.gpus, job.accelerators
        # where jobs of a type run does not change with what is measured of their speed
        if size not in self._fitting:
            self._fitting[size] = self._has_room(self.hardware.cluster, job)
        return self._fitting[size]

    @property
    def all_fit(self) -> bool:
        """Whether all jobs that were asked about do."""
        return all(self._fitting.values())

    def _has_room(self, cluster: Cluster, job: Job) -> bool:
        return any(cluster.gpus.get(name, 0) >= job.gpus for name in self.types_of(job))

    def types_of(self, job: Job) -> list[str]:
        """Accelerator types that a job runs on with its number of GPUs."""
        return [name for (name, gpus), rate in self.knowledge.of(job).items() if gpus == job.gpus and rate > 0]

    def why_unfit(self, job: Job) -> str:
        """Why a job has no room on the nodes in use, and when it would have."""
        there, whole = self.hardware.cluster, self._whole
        why = f"needs {job.gpus} GPU{'s' * (job.gpus != 1)} of {self._kind(job)}; there are {there}"
        if self._has_room(self._whole, job):
            return f"{why}, and {whole} when the nodes that are drained or down are in use again"
        return f"{why}, too few even with all nodes in use: cancel it, or serve more GPUs"

    def _kind(self, job: Job) -> str:
        types = self.types_of(job)
        return "one type" if set(types) == set(self._whole.accelerators) else " or ".join(types)

    def check(self, job: Job) -> None:
        """Raise InputError where a job can never run on the nodes that there are."""
        types = self._whole.accelerators
        for name in job.accelerators:
            if name not in types:
                raise InputError("submit", field="accelerators", found=name, expected=f"one of {', '.join(types)}")
        if not self._has_room(self._whole, job):
            whole = self._whole
            most = max((whole.gpus.get(name, 0) for name in self.types_of(job)), default=0)
            expected = (
                f"at most {most}, of {self._kind(job)}: there are {whole}, nodes that are drained or down included"
            )
            raise InputError("submit", field="gpus", found=job.gpus, expected=expected)

    def about_type(self, job_type: str, gpus: int) -> str:
        """What is missing in the throughput table of the type that a job names, "" for nothing."""
        if not job_type or self.knowledge.known(job_type, gpus, {}):
            sizes = self.knowledge.sizes(job_type)
            if not sizes or gpus in sizes:
                return ""
            known = ", ".join(map(str, sizes))
            return f"the throughput table has job type {job_type!r} with {known} GPUs, not with {gpus}{_ALIKE}"
        near = nearest_names(job_type, self.knowledge.job_types)
        meant = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"the throughput table has no job type {job_type!r}{meant}{_ALIKE}"

    def about_deadline(self, job: Job, clock: float) -> str:
        """By how long it is taken to need the deadline of a job is judged, where it looks bad or rests on nothing."""
        if job.deadline is None:
            return ""
        needed, due = self._seconds(job), job.deadline - clock
        unknown = not (job.total_steps or job.duration)
        if not unknown and needed <= due:
            return ""
        return f"it is due in {due:.0f} s and {self._need(job)}"

    def why_rejected(self, job: Job, clock: float) -> str:
        """What stands against the deadline of a job."""
        due = (job.deadline if job.deadline is not None else clock) - clock
        beside = "" if self._seconds(job) > due else ", for which there is no room beside those let in before"
        return f"it is due in {due:.0f} s and {self._need(job)}{beside}"

    def _need(self, job: Job) -> str:
        needed = f"is taken to need {self._seconds(job):.0f} s"
        if not (job.total_steps or job.duration):
            return f"{needed}, as it says neither --steps nor --duration"
        if job.total_steps and not self.knowledge.known_of(job):
            return f"{needed}, at one step a second as nothing is known of its speed"
        return needed

    def _seconds(self, job: Job) -> float:
        """What a job needs from its present steps on, at best."""
        ways = self.knowledge.of(job)
        steps = self.knowledge.expected_steps(job.total_steps, job.duration, ways, job.gpus)
        room = self.hardware.cluster.gpus
        rates = [
            rate
            for (name, gpus), rate in ways.items()
            if (self.elastic or gpus == job.gpus) and gpus <= room.get(name, 0)
        ]
        best = max(rates, default=0.0)
        return max(steps - job.steps, 0.0) / best if best else float("inf")


_ALIKE = ": until it has run, it is taken to be equally fast on all types"
