"""The same question as a program: whose deadlines can be met, with how little GPU time.

Jobs j, slots s of length L_s, levels g. x_jgs is the share of slot s that job j spends on g GPUs: 0 or 1 where a plan
is wanted, anything between for a bound. tau_js is the part of the slot before the deadline of j::

    max  sum_j v_j y_j                                     y_j in {0, 1}: the deadline of j is met; 1 for jobs let in
    with sum_s sum_g T_j(g) tau_js x_jgs >= W_j y_j        it does its work in time
         sum_g x_jgs <= 1,  sum_j sum_g g x_jgs <= G       it runs on one level at a time, on GPUs that are there
    then min  sum g L_s x_jgs                              GPU time
    then max  sum_jg T_j(g) / T_j(first) x_jg0             throughput now

With the distinct deadlines as borders of slots and shares, the program is a bound on what any schedule can do: within a
slot nobody's deadline passes, so only averages count. On concave curves a share mixes two neighbouring levels; other
curves count by their concave hull.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.columns import (
    ColumnProgram,
    ColumnSolution,
    InfeasibleError,
    Objective,
    Rows,
    Total,
    solve_columns,
)
from formulations.columns.objectives import Terms
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import JobPlan
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError

Array = NDArray[np.float64]

_MET = 1e-7
"""Relative: what the tolerance of solvers leaves of a job's work."""


class DeadlineProgram:
    """Jobs with deadlines on one pool of GPUs, and slots of time.

    Parameters
    ----------
    jobs : N jobs with finite deadlines; what they hold now does not count.
    gpus : G.
    borders : (S + 1,) seconds on the clock at which slots begin, the first one now, the last one the end.
    let_in : (N,) jobs whose deadlines must be met.
    values : (N,) v, above 0.
    whole : whether a job has one level throughout a slot.
    all_met : whether the deadlines of all jobs are rows of the program, so that another objective may be asked for.
    """

    def __init__(
        self,
        jobs: Sequence[DeadlineJob],
        gpus: int,
        borders: ArrayLike,
        *,
        let_in: ArrayLike = False,
        values: ArrayLike = 1.0,
        whole: bool = True,
        all_met: bool = False,
    ) -> None:
        N = len(jobs)
        self.jobs, self.gpus, self.whole, self.all_met = jobs, gpus, whole, all_met
        self.borders: Array = np.asarray(borders, dtype=np.float64)
        if not (N and len(self.borders) > 1 and (np.diff(self.borders) > 0).all()):
            expected = "two or more, ascending, for at least one job"
            raise InputError("deadline program", field="borders", found=self.borders.tolist(), expected=expected)
        self.let_in: NDArray[np.bool_] = np.broadcast_to(np.asarray(let_in, dtype=bool), N)
        self.values: Array = np.broadcast_to(np.asarray(values, dtype=np.float64), N)
        if not (np.isfinite(self.values) & (self.values > 0)).all():
            found = self.values.tolist()
            raise InputError("deadline program", field="values", found=found, expected="finite, above 0")
        sizes = [len(job.curve.levels) for job in jobs]
        self.columns = Configurations(
            np.repeat(np.arange(N), sizes),
            np.zeros(sum(sizes)),
            [level for job in jobs for level in job.curve.levels],
            [rate for job in jobs for rate in job.curve.rates],
            jobs=range(N),
            pools=["gpus"],
        )

    @classmethod
    def interval_bound(
        cls,
        jobs: Sequence[DeadlineJob],
        gpus: int,
        now: float,
        *,
        let_in: ArrayLike = False,
        values: ArrayLike = 1.0,
        all_met: bool = False,
    ) -> DeadlineProgram:
        """The program of shares between distinct deadlines, which no schedule exceeds."""
        borders = [now, *sorted({job.deadline for job in jobs if job.deadline > now})]
        if len(borders) == 1:
            borders.append(now + 1.0)
        return cls(jobs, gpus, borders, let_in=let_in, values=values, whole=False, all_met=all_met)

    @property
    def usable(self) -> Array:
        """(N, S) tau, seconds."""
        due = np.array([job.deadline for job in self.jobs])[:, None]
        usable: Array = np.clip(np.minimum(self.borders[1:], due) - self.borders[:-1], 0.0, None)
        return usable

    @property
    def work(self) -> Array:
        """(N,) W, steps."""
        return np.array([job.work for job in self.jobs], dtype=np.float64)

    @property
    def gpu_time(self) -> Array:
        """(C, S) GPU seconds of a column in a slot, relative to the most."""
        cost = self.columns.gpus[:, None] * np.diff(self.borders)
        return np.asarray(cost / cost.max())

    def column_program(self) -> ColumnProgram:
        """Columns, slots and capacity; deadlines where all are to be met."""
        S = len(self.borders) - 1
        rows = Rows(self.work_rows(), lower=1.0) if self.all_met else None
        return ColumnProgram(self.columns, np.full((1, S), float(self.gpus)), rows=rows, whole=self.whole)

    def work_rows(self) -> Any:
        """(N, C S) parts of each job's work that the columns do in the slots."""
        from scipy.sparse import csr_array

        done = self.done()
        C, S = done.shape
        job = np.tile(self.columns.job, S)
        rows = csr_array((np.ravel(done.T), (job, np.arange(C * S))), shape=(len(self.jobs), C * S))
        rows.eliminate_zeros()
        return rows

    def done(self) -> Array:
        """(C, S) part of its job's work that a column does in a slot."""
        columns = self.columns
        return np.asarray((columns.rate / self.work[columns.job])[:, None] * self.usable[columns.job])


@dataclass(frozen=True, eq=False)
class MostDeadlines(Objective):
    """The value of the deadlines that are met, and the rows that say so."""

    problem: DeadlineProgram

    def terms(self, program: ColumnProgram) -> Terms:
        """``sum of the parts of the work - y_j >= 0``."""
        from scipy.sparse import csr_array, identity

        N = len(self.problem.jobs)
        return Terms(
            cost=np.zeros(program.n_variables),
            extra_cost=self.problem.values.copy(),
            rows=self.problem.work_rows(),
            extra_rows=csr_array(-identity(N)),
            lower=np.zeros(N),
            upper=np.full(N, np.inf),
            least=self.problem.let_in.astype(np.float64),
            most=np.ones(N),
            whole=np.ones(N, dtype=bool),
        )

    def met(self, x: Array) -> NDArray[np.bool_]:
        """(N,) whose work shares (C S,) do in time, but for one part in ten million."""
        done = np.ravel(self.problem.done().T) * x
        job = np.tile(self.problem.columns.job, len(self.problem.borders) - 1)
        parts = np.bincount(job, done, minlength=len(self.problem.jobs))
        return np.asarray(parts >= 1.0 - _MET)

    def value(self, program: ColumnProgram, x: Array) -> float:
        """The value of those that are met."""
        del program
        return float(np.add.reduce(self.problem.values * self.met(x)))


@dataclass(frozen=True, eq=False)
class DeadlineSolution:
    """Who meets the deadline, and how.

    Attributes
    ----------
    met : (N,) whose deadline is met.
    gpu_seconds : GPU time of all plans.
    plans : for each job its plan, None for one that has none; None altogether where shares are not whole.
    solution : shares and proofs: of the value, of GPU time, of throughput now.
    """

    met: NDArray[np.bool_]
    gpu_seconds: float
    plans: list[JobPlan | None] | None
    solution: ColumnSolution


def solve_deadlines(
    program: DeadlineProgram, *, solver: str = "auto", seconds: float = TIME_LIMIT_SECONDS, tolerance: float = 1e-7
) -> DeadlineSolution:
    """The most value, then the least GPU time, then the most throughput now; parameters as for `solve_columns`.

    Raises
    ------
    InfeasibleError
        The deadlines of jobs that are let in cannot all be met.
    """
    columns, lengths = program.columns, np.diff(program.borders)
    goal = MostDeadlines(program)
    gpu_time = columns.gpus[:, None] * lengths
    first = columns.rate[columns.offsets[:-1]]
    now = np.zeros(gpu_time.shape)
    now[:, 0] = columns.rate / first[columns.job]
    answer = solve_columns(
        program.column_program(),
        [goal, Total(program.gpu_time, maximise=False), Total(now)],
        solver=solver,
        seconds=seconds,
        tolerance=tolerance,
    )
    met = goal.met(np.ravel(answer.x.T))
    plans = [_plan(program, answer.x, j) for j in range(len(program.jobs))] if program.whole else None
    return DeadlineSolution(met, float(np.add.reduce(gpu_time * answer.x, axis=None)), plans, answer)


def most_value(
    program: DeadlineProgram, *, solver: str = "auto", seconds: float = TIME_LIMIT_SECONDS
) -> ColumnSolution:
    """The most value alone, with its bound; parameters and errors as of `solve_deadlines`."""
    return solve_columns(program.column_program(), MostDeadlines(program), solver=solver, seconds=seconds)


def all_can_be_met(jobs: Sequence[DeadlineJob], gpus: int, now: float, *, solver: str = "auto") -> bool:
    """Whether the bound leaves room for all deadlines; False proves that no schedule meets them all."""
    if any(job.deadline <= now for job in jobs):
        return False
    program = DeadlineProgram.interval_bound(jobs, gpus, now, all_met=True)
    try:
        solve_columns(program.column_program(), Total(program.gpu_time, maximise=False), solver=solver)
    except InfeasibleError:
        return False
    return True


def _plan(program: DeadlineProgram, x: Array, j: int) -> JobPlan | None:
    """The plan of a job by whole shares (C, S); None for one that never runs."""
    columns, job, borders = program.columns, program.jobs[j], program.borders
    own = slice(int(columns.offsets[j]), int(columns.offsets[j + 1]))
    gpus = (columns.gpus[own, None] * np.rint(x[own])).sum(axis=0).astype(int).tolist()
    left = job.work
    starts: list[float] = []
    levels: list[int] = []
    for s, level in enumerate(gpus):
        start, end = float(borders[s]), float(borders[s + 1])
        if not levels or level != levels[-1]:
            starts.append(start)
            levels.append(level)
        if level:
            rate = job.curve.rate_of[level]
            if left <= rate * (end - start) * (1.0 + _MET):
                finish = start + left / rate
                return JobPlan(starts, levels, finish, finish, finish <= job.deadline, finish)
            left -= rate * (end - start)
    return None
