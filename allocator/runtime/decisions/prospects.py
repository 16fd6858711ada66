"""What can be said of a job before it runs: where it fits, how long it is taken to need, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.cluster import Cluster
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.records.book import Job
from throughputs import InputError
from throughputs.errors import nearest_names


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

    @property
    def _whole(self) -> Cluster:
        """The GPUs of all nodes."""
        return self.hardware.in_full.cluster

    def fits(self, job: Job, *, anyhow: bool = False) -> bool:
        """Whether the nodes in use have room for a job; or `anyhow` all nodes, drained and lost ones included."""
        cluster = self._whole if anyhow else self.hardware.cluster
        return any(cluster.gpus.get(name, 0) >= job.gpus for name in self._types(job))

    def _types(self, job: Job) -> list[str]:
        """Accelerator types that a job runs on with its number of GPUs."""
        ways = self.knowledge.believed(job.job_type, job.gpus, job.measured)
        return [name for (name, gpus), rate in ways.items() if gpus == job.gpus and rate > 0]

    def why_unfit(self, job: Job) -> str:
        """Why a job has no room on the nodes in use, and when it would have."""
        there, whole = self.hardware.cluster, self._whole
        why = f"needs {job.gpus} GPU{'s' * (job.gpus != 1)} of {self._kind(job)}; there are {there}"
        if self.fits(job, anyhow=True):
            return f"{why}, and {whole} when the nodes that are drained or down are in use again"
        return f"{why}, too few even with all nodes in use: cancel it, or serve more GPUs"

    def _kind(self, job: Job) -> str:
        types = self._types(job)
        return "one type" if set(types) == set(self._whole.accelerators) else " or ".join(types)

    def check(self, job: Job) -> None:
        """Raise InputError where a job can never run on the nodes that there are."""
        if not self.fits(job, anyhow=True):
            whole = self._whole
            most = max((whole.gpus.get(name, 0) for name in self._types(job)), default=0)
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
        if job.total_steps and not self.knowledge.known(job.job_type, job.gpus, job.measured):
            return f"{needed}, at one step a second as nothing is known of its speed"
        return needed

    def _seconds(self, job: Job) -> float:
        """What a job needs from its present steps on, at best."""
        ways = self.knowledge.believed(job.job_type, job.gpus, job.measured)
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
