"""What policies for deadlines have in common: jobs as a planner sees them, plans as the decision core takes them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from allocator.conversion import Seconds
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep
from allocator.protocol.state import the_one_type
from formulations.deadlines import DeadlineJob, Filling, JobPlan, ScalingCurve
from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.configurations import Configurations
from throughputs.numerics import tie_order

Levels = Literal["useful", "all"]

_CLOSE = 1e-11
"""Relative to the clock: breakpoints of plans that are closer are one up to rounding."""


class PlannedJob(DeadlineJob):
    """A job of a state.

    Attributes
    ----------
    label, position : of the job in the state.
    due : its deadline by which promises are made, seconds; `deadline` is inf where it is planned without.
    latest : its deadline itself, without any margin.
    """

    __slots__ = ("due", "label", "latest", "position")

    def __init__(
        self, curve: ScalingCurve, work: float, due: float, held: int, starting: float, label: Hashable, position: int
    ) -> None:
        self.curve, self.work, self.deadline, self.held, self.starting = curve, work, due, held, starting
        self.due, self.latest, self.label, self.position = due, due, label, position


@dataclass(frozen=True)
class DeadlinePolicy(PlanPolicy):
    """Plans jobs with deadlines on the one type of accelerator that a cluster has.

    Where nothing is known of throughput by number of GPUs, a job has its own gang only.

    Parameters
    ----------
    levels : numbers of GPUs that a job may be given: "useful", those of its throughput curve that are faster than all
        smaller ones, or "all" of them.
    most_gpus : largest number of GPUs by job type, for types that have one besides.
    slot_seconds : length of a slot: GPUs are planned to come back at ends of slots only. 0: no slots; None: as long as
        decisions are apart at least.
    whole_seconds : whether jobs are planned to end on whole seconds after a breakpoint of the plan.
    restart_seconds : what a job is taken to need to get going on another number of GPUs, at least.
    learn_costs : whether it is taken to need more where a start did, and to be slower by what decisions cost that
        leave its GPUs as they are.
    margin_seconds : how long before its deadline a job is to end.

    Jobs of one deadline are planned as they came, and larger gangs are placed first, which keeps servers together.
    """

    needs = Need.CONFIGURATIONS | Need.LENGTHS

    levels: Levels = "useful"
    most_gpus: Mapping[str, int] = field(default_factory=dict)
    slot_seconds: Seconds | None = None
    whole_seconds: bool = False
    restart_seconds: Seconds = 0.0
    learn_costs: bool = True
    margin_seconds: Seconds = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind, most in self.most_gpus.items():
            if most < 1:
                where = f"most_gpus of {kind!r}"
                raise InputError(f"policy {self.name}", field=where, found=most, expected="at least 1 GPU")

    def filling(self, state: ClusterState, memory: DeadlineMemory) -> Filling:
        """How single jobs are planned."""
        slot = state.slot_seconds if self.slot_seconds is None else self.slot_seconds
        restart = max(self.restart_seconds, memory.costs.restart_seconds, state.restart_seconds)
        return Filling(slot, self.whole_seconds, restart)

    def new_memory(self) -> DeadlineMemory:
        """An empty memory."""
        return DeadlineMemory()

    def jobs(self, state: ClusterState, memory: DeadlineMemory) -> tuple[list[PlannedJob], Ints]:
        """The active jobs, and the positions of those that no number of GPUs of the cluster can run."""
        line, unserved = self.line(state, memory)
        return self.planned(state, memory, line), unserved

    def line(self, state: ClusterState, memory: DeadlineMemory) -> tuple[list[Hashable], Ints]:
        """Labels of the jobs that can run, first those of `listed`, then in tie order; and positions of the others."""
        labels = state.throughputs.jobs
        unserved = self._read_curves(state, memory, labels)
        line = [label for label in self.listed(memory) if label in memory.curves]
        if len(line) < len(labels):
            known = set(line).union(labels[position] for position in unserved)
            others = [label for label in labels if label not in known] if known else labels
            line += [others[i] for i in tie_order(others).tolist()]
        return line, np.array(unserved, dtype=np.int64)

    def listed(self, memory: DeadlineMemory) -> Sequence[Hashable]:  # noqa: ARG002
        """Labels of jobs in an order that was kept, before all others."""
        return ()

    def placed(self, running: list[tuple[PlannedJob, int]]) -> list[tuple[PlannedJob, int]]:
        """Jobs and their GPUs in the order in which they are placed: larger gangs first."""
        return sorted(running, key=lambda row: (-row[1], row[0].position))

    def patience(self, filling: Filling) -> float:
        """How long to wait, in seconds, for the end of a job when a change is planned for that end or for later."""
        return filling.slot_seconds + filling.restart_seconds

    def planned(self, state: ClusterState, memory: DeadlineMemory, line: Sequence[Hashable]) -> list[PlannedJob]:
        """The jobs with these labels, after a look at what the last decision cost."""
        if self.learn_costs:
            memory.costs.learn(state)
        labels, now = state.throughputs.jobs, float(state.clock)
        held = dict(zip(state.running.jobs.tolist(), state.running.gpus.tolist(), strict=True))
        place = dict(zip(labels, range(len(labels)), strict=True))
        positions = [place[label] for label in line]
        deadlines = state.deadlines.take(positions)
        due = self._due(state, memory, deadlines)
        work, shortest = state.steps_remaining.take(positions).tolist(), _CLOSE * max(now, 1.0)
        curves, starts, unknown = memory.curves, memory.starting, (0, now)
        jobs = []
        rows = zip(line, positions, work, due, deadlines.tolist(), strict=True)
        for label, position, left, deadline, latest in rows:
            curve, now_on = curves[label], held.get(position, 0)
            # what rounding has left of a job takes time, too: a plan without length takes no GPUs
            least = shortest * curve.best_rates[-1]
            gpus, ready = starts.get(label, unknown)
            starting = ready - now if gpus == now_on and ready > now else 0.0
            job = PlannedJob(curve, max(left, least), deadline, now_on, starting, label, position)
            job.latest = latest
            jobs.append(job)
        return jobs

    def _due(self, state: ClusterState, memory: DeadlineMemory, deadlines: Floats) -> list[float]:
        """By when jobs are to end, seconds: so much before `deadlines` as decisions will have cost them by then."""
        due, share = deadlines - self.margin_seconds, memory.costs.lost_share
        if share:
            left = deadlines - state.clock
            due -= np.where((left > 0) & (left < np.inf), left, 0.0) * share
        latest: list[float] = due.tolist()
        return latest

    def _read_curves(self, state: ClusterState, memory: DeadlineMemory, labels: Sequence[Hashable]) -> list[int]:
        """Read throughput curves and deadlines of jobs that are new, of all jobs where capacity or rates are.

        Returns the positions of those that no number of GPUs can run.
        """
        pool = memory.pool = the_one_type(state, self.name)
        capacity, curves = int(state.capacity[pool]), memory.curves
        if (memory.capacity, memory.rates_version) != (capacity, state.rates_version):
            memory.capacity, memory.rates_version, memory.due, curves = capacity, state.rates_version, {}, {}
        if all(map(curves.__contains__, labels)):
            new = []
        else:
            new = [position for position, label in enumerate(labels) if label not in curves]
        if len(curves) + len(new) > len(labels):
            for label in curves.keys() - set(labels):
                del curves[label], memory.due[label]
        memory.curves = curves
        if not new:
            return new
        wanted, kinds = np.array(new, dtype=np.int64), state.job_types
        rates_of = state.rates_by_gpus(wanted, pool)
        if rates_of is None:
            gangs = Configurations.from_matrix(state.throughputs)
            rates_of = [gangs.rates_by_gpus(position, pool) for position in new]
        due = (state.deadlines.take(wanted) - self.margin_seconds).tolist()
        unserved = []
        for k, position in enumerate(new):
            most = np.inf if kinds is None else self.most_gpus.get(str(kinds[position]), np.inf)
            rates = rates_of[k]
            key = (*rates.items(), capacity, most)
            curve = memory.shared_curves.get(key)
            if curve is None:
                only_useful = self.levels == "useful"
                curve = ScalingCurve(list(rates), list(rates.values()), capacity, most, useful_only=only_useful)
                memory.shared_curves[key] = curve
            if curve.levels:
                curves[labels[position]], memory.due[labels[position]] = curve, due[k]
            else:
                unserved.append(position)
        return unserved

    def as_plan(
        self,
        state: ClusterState,
        memory: DeadlineMemory,
        jobs: Sequence[PlannedJob],
        gpus: Sequence[int],
        rejected: Sequence[int] | Ints,
        until: float = np.inf,
        line: Sequence[Hashable] | None = None,  # noqa: ARG002
    ) -> Plan:
        """Jobs run on so many `gpus`, at most `until` (seconds on the clock); `line`: with those that wait (labels).

        The memory is then of these jobs.
        """
        now = float(state.clock)
        running = self.placed([(job, held) for job, held in zip(jobs, gpus, strict=True) if held])
        assignment = Assignment.of(
            np.array([job.position for job, _ in running], dtype=np.int64),
            np.full(len(running), memory.pool, dtype=np.int64),
            np.array([held for _, held in running], dtype=np.int64),
        )
        restart = self.filling(state, memory).restart_seconds
        memory.starting = {
            job.label: (held, now + (job.starting if held == job.held else restart)) for job, held in running
        }
        if self.learn_costs:
            memory.costs.note(now, {job.label: (job.held, held) for job, held in running})
        seconds = max(until - now, _CLOSE * max(now, 1.0))
        return Plan((PlanStep(assignment, seconds),), np.asarray(rejected, dtype=np.int64))

    def next_change(self, filling: Filling, plans: Sequence[JobPlan]) -> float:
        """When a number of GPUs is first planned to change, seconds; inf: not before something else happens.

        What is planned for the end of a job, or for later, waits until that end has come, which is when the next
        decision is made anyway, for as long as a slot and a start may delay it (`patience`).
        """
        change = min((plan.starts[1] for plan in plans if len(plan.starts) > 1), default=np.inf)
        end = min((plan.end for plan in plans), default=np.inf)
        if change < end or change == np.inf:
            return change
        return max(change, end + self.patience(filling) + self.margin_seconds)
