"""Quotas with borrowing, and priorities with preemption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from allocator.policies.quotas.limits import Limits, Usage
from allocator.protocol import Assignment, ClusterState, Plan, PlanPolicy, Trigger
from allocator.protocol.entities import arrival_ranks
from allocator.protocol.policy import Hindrance
from allocator.registry import register
from throughputs.arrays import Ints


@register(
    "quotas",
    paper="Kueue, kueue.sigs.k8s.io (cluster queues, cohorts, fair sharing); Ghodsi et al. (DRF), NSDI 2011, sec. 4",
    program="gangs by priority within quotas q_ej; then who has least max_j (y_ej - q_ej)^+ / (l_j w_e) borrows next",
)
@dataclass(frozen=True)
class Quotas(PlanPolicy):
    """Run each entity's jobs by priority within its quota, and lend what is idle within cohorts.

    First every entity's jobs, by priority (`priority_weights`), then arrival, take gangs on the fastest type of which
    the entity has quota left. Jobs that are left borrow: in turn the job of the entity that would have borrowed least,
    related to what its cohort has in common and to its weight, again by priority within the entity. A gang that does
    not fit lets others pass. Everything is decided anew at every arrival and completion, so that

    - who needs its quota has it, and jobs that borrowed it are preempted (`reclaim`);
    - a job of higher priority preempts others of its entity (`preempt`);
    - what is borrowed is shared anew; of equal priority, jobs that run go first, and stay on their type.

    An entity with entities of its own has no quota by default, and borrows for the jobs that it owns itself; so do jobs
    without an entity beside entities. `allocator.policies.quotas.limits` states the limits.

    Parameters
    ----------
    quotas : nominal GPUs, as in ``research.v100:8,vision.k80:4``; what is not named is 0. None: all GPUs of each type
        in proportion to the weights of the entities, in whole GPUs.
    lending : most GPUs of its quota that an entity lends, likewise; what is not named: all.
    borrowing : most GPUs beyond its quota that an entity borrows, likewise; what is not named: no limit.
    cohorts : who lends to whom: "all" to each other, "siblings" with the same parent, or "none".
    sharing : "dominant", by the type of which an entity has borrowed the largest part (dominant resource); "per_type",
        by the type that is to be borrowed.
    reclaim : whether a job preempts jobs of other entities, where they borrow what it has a quota of, or more than
        their fair share.
    preempt : whether a job preempts others of lower priority in its entity.
    """

    quotas: Mapping[str, int] | None = None
    lending: Mapping[str, int] = field(default_factory=dict)
    borrowing: Mapping[str, int] = field(default_factory=dict)
    cohorts: Literal["all", "siblings", "none"] = "all"
    sharing: Literal["dominant", "per_type"] = "dominant"
    reclaim: bool = True
    preempt: bool = True

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY

    def plan(self, state: ClusterState, memory: Any) -> Plan:  # noqa: ARG002
        """Who runs from now on."""
        line = self._line(state)
        chosen = np.array(list(line.pool_of), dtype=np.int64)
        pools = np.array(list(line.pool_of.values()), dtype=np.int64)
        return Plan.until_next_event(Assignment.of(chosen, pools, state.scale_factors[chosen]))

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """A type with GPUs to spare of which its entity may use no more."""
        line = self._line(state)
        usage, gpus, entity = line.usage, line.gpus[job], line.entity[job]
        free = state.capacity - usage.gpus.sum(axis=0)
        for pool in () if job in line.pool_of else line.pools[job]:
            if free[pool] >= gpus and not usage.fits(entity, pool, gpus):
                names = () if state.membership is None else state.membership.entities.names
                who = f"entity {names[entity]}" if entity < len(names) else "jobs without an entity"
                used, quota = int(usage.gpus[entity, pool]), int(usage.limits.nominal[entity, pool])
                name = state.cluster.accelerators[pool]
                text = f"{who}: {used} GPUs of {name} in use, a quota of {quota}, and {gpus} more cannot be borrowed"
                return Hindrance("quota", text)
        return None

    def _line(self, state: ClusterState) -> _Line:
        """Jobs as they are let in."""
        limits = Limits.of(state, self.quotas, self.lending, self.borrowing, self.cohorts)
        line = _Line(state, limits, running_first=not self.preempt)
        if not self.reclaim:
            line.let_in_within(line.held)
        line.let_in_within(limits.nominal)
        line.borrow(dominant=self.sharing == "dominant")
        return line


class _Line:
    """Jobs in the order in which they are let in, entity by entity.

    Attributes
    ----------
    held : (E, M) GPUs that the jobs of each entity have.
    pools : the types on which each job can run: its own where it runs, then the others, the fastest first.
    pool_of : the type of each job that was let in, in the order in which they were.
    """

    def __init__(self, state: ClusterState, limits: Limits, *, running_first: bool) -> None:
        self.usage = Usage(limits)
        self.gpus = state.scale_factors.tolist()
        of_job = np.full(state.n_jobs, -1) if state.membership is None else state.membership.of_job
        self.entity = np.where(of_job < 0, len(limits.weights) - 1, of_job).tolist()
        rates = state.runnable_rates
        fastest = np.argsort(-rates, axis=1, kind="stable")
        self.pools = [[j for j in order if rates[i, j] > 0] for i, order in enumerate(fastest.tolist())]
        self.held = np.zeros_like(self.usage.gpus)
        for job, pool in zip(state.running.jobs.tolist(), state.running.pool.tolist(), strict=True):
            self.held[self.entity[job], pool] += self.gpus[job]
            if pool in self.pools[job]:
                self.pools[job].insert(0, pool)
        waits = ~np.isin(np.arange(state.n_jobs), state.running.jobs)
        arrival = arrival_ranks(state.elapsed_seconds, state.throughputs.jobs)
        keys = (arrival, -state.priority_weights, waits) if running_first else (arrival, waits, -state.priority_weights)
        self.order: list[int] = np.lexsort(keys).tolist()
        self.place = {job: place for place, job in enumerate(self.order)}
        self.pool_of: dict[int, int] = {}

    def let_in_within(self, limits: Ints) -> None:
        """Jobs with which their entities have no more than this (E, M) of each type."""
        for job in self.order:
            if job not in self.pool_of and (pool := self._pool(job, limits)) is not None:
                self._let_in(job, pool)

    def borrow(self, *, dominant: bool) -> None:
        """The others, of the entity first that would have borrowed least."""
        left: dict[int, list[int]] = {}
        for job in reversed(self.order):
            if job not in self.pool_of:
                left.setdefault(self.entity[job], []).append(job)
        while True:
            next_up = []
            for entity, jobs in left.items():
                while jobs and (pool := self._pool(jobs[-1])) is None:
                    jobs.pop()  # what does not fit now fits no more
                if jobs and pool is not None:
                    share = self.usage.borrowed_share(entity, pool, self.gpus[jobs[-1]], dominant=dominant)
                    next_up.append((share, self.place[jobs[-1]], jobs[-1], pool))
            if not next_up:
                return
            _, _, job, pool = min(next_up)
            self._let_in(left[self.entity[job]].pop(), pool)

    def _pool(self, job: int, within: Ints | None = None) -> int | None:
        """The first of its types with room; None: there is none."""
        entity, gpus = self.entity[job], self.gpus[job]
        return next((pool for pool in self.pools[job] if self.usage.fits(entity, pool, gpus, within)), None)

    def _let_in(self, job: int, pool: int) -> None:
        self.usage.take(self.entity[job], pool, self.gpus[job])
        self.pool_of[job] = pool
