"""What selections by goodput have in common: the columns of a state, who holds which, what restarts cost."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, Protocol

import numpy as np

from allocator.conversion import Seconds
from allocator.protocol import Allocation, Assignment, ClusterState, Need, Plan, PlanPolicy
from allocator.protocol.plan import JobMemory, PlanStep, of_each_job
from allocator.protocol.views import Needs
from throughputs import Configurations, InputError
from throughputs.arrays import Flags, Floats, Ints

UNTOLD_RESTART_SECONDS = 30.0
"""What a start is taken to need where nobody says: the delay of the published simulators."""


@dataclass(eq=False)
class Restarts(JobMemory):
    """How often each active job was started anew.

    Attributes
    ----------
    times : (N,) restarts so far; 0 of a job that has only been started once, -1 of one that never ran.
    """

    times: Ints = of_each_job(-1)


class Proven(Protocol):
    """What of a solution is stated beside its choice: how much of it is proven, and by whom."""

    @property
    def status(self) -> str:
        """ "optimal" or "feasible"."""
        ...

    @property
    def gap(self) -> float:
        """Relative distance of objective and bound."""
        ...

    @property
    def solver(self) -> str:
        """What answered."""
        ...


@dataclass(frozen=True, eq=False)
class Selected:
    """What a program chose.

    Attributes
    ----------
    x : (C,) 1 for the columns that are chosen.
    objective, bound : of the program, in `unit`.
    solution : with its proof; None where a rule chose.
    """

    x: Floats
    objective: float = np.nan
    bound: float = np.nan
    unit: str = ""
    solution: Proven | None = None


@dataclass(frozen=True)
class SelectionPolicy(PlanPolicy):
    """Chooses one column for each job, or none, at every arrival and completion, and when rates change.

    The published schedulers choose once a minute, since their models of the jobs change; between events and with rates
    that stay, that gives the same choices (average JCTs of `sia` differ by less than 1e-12 on 40 drawn jobs).

    Parameters
    ----------
    restart_seconds : S, what a job is taken to lose by a start; None: what the world tells, or 30 s where it does not.
    restart_seconds_of_type : pairs (job type, seconds), instead of that for jobs of these types.
    """

    needs: ClassVar[Needs] = Need.CONFIGURATIONS
    smaller_first: ClassVar[bool] = False
    """Whether smaller gangs come before larger ones where placement goes by the order of the plan."""

    restart_seconds: Seconds | None = None
    restart_seconds_of_type: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for model, seconds in self.restart_seconds_of_type:
            if not 0 <= seconds < np.inf:
                where = f"restart_seconds_of_type of {model}"
                raise InputError(f"policy {self.name}", field=where, found=seconds, expected="seconds of at least 0")

    def new_memory(self) -> Restarts:
        """Nobody has run."""
        return Restarts()

    def eligible(self, state: ClusterState, ways: Configurations) -> Flags:  # noqa: ARG002
        """(C,) columns that the policy chooses from: all."""
        return np.ones(ways.n_columns, dtype=np.bool_)

    @abstractmethod
    def choose(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats, memory: Any) -> Selected:
        """Which columns run.

        Parameters
        ----------
        ways : columns that gain something and fit in the cluster.
        held : (N,) column of each job that runs now, -1: none.
        kept : (N,) what is left of the goodput of a job that changes its column.
        memory : of `new_memory`, and of these jobs; restarts are entered by `plan`.
        """

    def plan(self, state: ClusterState, memory: Any) -> Plan:
        """Who runs on how many GPUs of which type until something happens."""
        started = perf_counter()
        ways = columns_of(state)
        ways = ways.take(self.eligible(state, ways))
        held = held_columns(ways, state.running)
        memory.align(state.throughputs.jobs)
        chosen = self.choose(state, ways, held, self._kept(state, np.maximum(memory.times, 0)), memory)
        rows = np.flatnonzero(chosen.x > 0.5)
        rows = rows[np.argsort(ways.gpus[rows] * (1 if self.smaller_first else -1), kind="stable")]
        jobs = ways.job[rows]
        memory.times[jobs[held[jobs] != rows]] += 1
        assignment = Assignment.of(jobs, ways.pool[rows], ways.gpus[rows])
        allocation = self._allocation(state, assignment, chosen, perf_counter() - started)
        return Plan((PlanStep(assignment),), allocation=allocation)

    def _kept(self, state: ClusterState, restarts: Ints) -> Floats:
        """(N,) share of its goodput that a job has had, if it starts once more: ``(a - n S) / (a + S)``.

        a: age; n: restarts (Sia, sec. 3.4; Pollux, sec. 4.2.1). 1 for jobs younger than a start takes.
        """
        start: Floats | float = (
            state.restart_seconds or UNTOLD_RESTART_SECONDS if self.restart_seconds is None else self.restart_seconds
        )
        if self.restart_seconds_of_type and state.job_types is not None:
            told = dict(self.restart_seconds_of_type)
            start = np.array([told.get(name, start) for name in state.job_types.tolist()])
        age = state.elapsed_seconds
        kept = np.maximum(age - restarts * start, 0.0) / np.maximum(age + start, 1e-300)
        return np.where(age < start, 1.0, kept)

    def _allocation(self, state: ClusterState, first: Assignment, chosen: Selected, seconds: float) -> Allocation:
        """The choice as shares of time, with what is proven."""
        solution = chosen.solution
        proven: dict[str, Any] = {"status": "rule"}
        if solution is not None:
            proven = {"status": solution.status, "gap": solution.gap, "solver": solution.solver, "certified": True}
        told = {"objective": chosen.objective, "bound": chosen.bound, "objective_unit": chosen.unit}
        return self.as_shares(state, first, seconds=seconds, **told, **proven)


def columns_of(state: ClusterState) -> Configurations:
    """What unfinished jobs can run as, alone, on the GPUs that there are."""
    known = state.configurations
    ways = (Configurations.from_matrix(state.throughputs) if known is None else known).fitting(state.capacity)
    return ways.take((ways.partner < 0) & (state.steps_remaining > 0)[ways.job])


def held_columns(ways: Configurations, running: Assignment) -> Ints:
    """(N,) the column that each job runs as, -1 for jobs that do not run, or not as any of these columns."""
    held = np.full(ways.n_jobs, -1, dtype=np.int64)
    if not len(running) or not ways.n_columns:
        return held
    most = max(int(ways.gpus.max()), int(running.gpus.max())) + 1
    M = len(ways.pools)

    def key(job: Ints, pool: Ints, gpus: Ints) -> Ints:
        return np.asarray((job * M + pool) * most + gpus)

    known = key(ways.job, ways.pool, ways.gpus)
    order = np.argsort(known, kind="stable")
    asked = key(running.jobs, running.pool, running.gpus)
    at = np.minimum(np.searchsorted(known[order], asked), len(order) - 1)
    same = known[order][at] == asked
    held[running.jobs[same]] = order[at[same]]
    return held


class OwnGangs:
    """Every job runs with as many GPUs as it asks for, whatever else it could run with."""

    own_gangs: ClassVar[bool] = True

    def eligible(self, state: ClusterState, ways: Configurations) -> Flags:
        """Columns with the GPUs of the job's own gang."""
        return np.asarray(ways.gpus == state.scale_factors[ways.job])
