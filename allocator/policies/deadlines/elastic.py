"""What the policies with elastic scaling have in common: promises that are kept, and GPUs that are left over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from allocator.policies.deadlines.base import DeadlinePolicy, PlannedJob
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.policies.deadlines.promises import NO_REPAIR, Promises, Repair
from allocator.protocol import ClusterState, Plan
from formulations.deadlines import JobPlan, use_left_over


@dataclass(frozen=True)
class ElasticPolicy(DeadlinePolicy):
    """Least shares, then what is left over (`formulations.deadlines.use_left_over`)."""

    def promises(self, state: ClusterState, memory: DeadlineMemory, repair: Repair = NO_REPAIR) -> Promises:
        """Plans at this instant, of nobody so far."""
        filling, now = self.filling(state, memory), float(state.clock)
        return Promises(filling, now, memory.capacity, state.slot_seconds, repair)

    def scale(self, promises: Promises, jobs: list[PlannedJob], plans: list[JobPlan]) -> list[int]:
        """Use what is left over: `plans` are changed in place. Positions of the jobs, as they are remembered."""
        use_left_over(promises.filling, promises.left_over, jobs, plans)
        return list(range(len(jobs)))

    def keep(self, promises: Promises, jobs: Sequence[PlannedJob], memory: DeadlineMemory) -> list[PlannedJob]:
        """Plan the jobs that were promised their deadlines; returns those with deadlines that have no promise any more.

        Where filling anew does not find plans for all of them, it is tried without the time that was kept in reserve,
        and then those of before are carried on.
        """
        promised = [job for job in jobs if job.label in memory.promised]
        late = [job for job in jobs if job.label in memory.unpromised and job.due < inf]
        if _fill(promises, promised):
            return late
        for job in promised:
            job.deadline = job.latest
        if _fill(promises, promised):
            return late
        carried = {
            job.label: promises.filling.carried_on(memory.promised[job.label], job, promises.now, promises.wait)
            for job in promised
        }
        broken = [job for job in promised if not carried[job.label].met]
        promised = [job for job in promised if carried[job.label].met]
        late += broken
        filled = bool(broken) and _fill(promises, promised)
        if not filled and not promises.fix(promised, [carried[job.label] for job in promised]):
            # GPUs were lost
            late += promised
            promises.fix([], [])
        return late

    def serve(self, promises: Promises, late: Iterable[PlannedJob], best_effort: Iterable[PlannedJob]) -> None:
        """Promise late jobs their deadlines where that can be done, and serve the others as best effort."""
        others = list(best_effort)
        for job in late:
            # what rounding has left of a job may still end within the margin
            job.deadline = job.latest
            if job.deadline <= promises.now or not promises.admit([job]):
                job.deadline = inf
                others.append(job)
        promises.add(sorted(others, key=attrgetter("due")))

    def finished(
        self,
        state: ClusterState,
        memory: DeadlineMemory,
        promises: Promises,
        rejected: Sequence[int],
    ) -> Plan:
        """The plan, once what is left over is used; the memory is then of it."""
        jobs, plans = promises.jobs, promises.plans
        line = self.scale(promises, jobs, plans)
        memory.promised = {job.label: plan for job, plan in zip(jobs, plans, strict=True) if job.deadline < inf}
        memory.unpromised = {job.label for job in jobs if job.deadline == inf}
        jobs, plans = [jobs[j] for j in line], [plans[j] for j in line]
        gpus = [plan.gpus[0] for plan in plans]
        until = self.next_change(promises.filling, plans)
        return self.as_plan(state, memory, jobs, gpus, rejected, until)


def _fill(promises: Promises, jobs: list[PlannedJob]) -> bool:
    """Plan jobs with least shares; whether all meet their deadlines."""
    promises.fix([], [])
    promises.add(jobs)
    return promises.all_met
