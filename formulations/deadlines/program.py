"""The same question as a program: whose deadlines can be met, with how little GPU time.

Jobs j, slots s of length L_s between the distinct deadlines, levels g. x_jgs is the share of slot s that job j spends
on g GPUs. tau_js is the part of the slot before the deadline of j, which is all of it or nothing::

    max  sum_j v_j y_j                                     y_j in {0, 1}: the deadline of j is met; 1 for jobs let in
    with sum_s sum_g T_j(g) tau_js x_jgs >= W_j y_j        it does its work in time
         sum_g x_jgs <= 1,  sum_j sum_g g x_jgs <= G       it runs on one level at a time, on GPUs that are there

or, where all deadlines are to be met, ``min sum g L_s x_jgs``, the GPU time. Both are bounds on what any schedule can
do: within a slot nobody's deadline passes, so only averages count. On concave curves a share mixes two neighbouring
levels; other curves count by their concave hull.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError
from throughputs.arrays import Flags, Floats

_MET = 1e-7
"""Relative: what the tolerance of solvers leaves of a job's work."""


class DeadlineProgram:
    """Jobs with deadlines on one pool of GPUs, in shares of the time between deadlines.

    Parameters
    ----------
    jobs : N jobs with finite deadlines; what they hold now does not count.
    gpus : G.
    now : seconds on the clock.
    let_in : (N,) jobs whose deadlines must be met.
    values : (N,) v, above 0.

    Attributes
    ----------
    columns : levels of the jobs.
    borders : (S + 1,) seconds on the clock at which slots begin, the first one now, the last one the end.
    """

    def __init__(
        self,
        jobs: Sequence[DeadlineJob],
        gpus: int,
        now: float,
        *,
        let_in: ArrayLike = False,
        values: ArrayLike = 1.0,
    ) -> None:
        N = len(jobs)
        self.jobs, self.gpus = jobs, gpus
        self.borders = np.array([now, *(sorted({job.deadline for job in jobs if job.deadline > now}) or [now + 1.0])])
        self.let_in: Flags = np.broadcast_to(np.asarray(let_in, dtype=bool), N)
        self.values: Floats = np.broadcast_to(np.asarray(values, dtype=np.float64), N)
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

    def column_program(self, rows: Rows | None = None) -> ColumnProgram:
        """Columns, slots and capacity."""
        return ColumnProgram(self.columns, np.full((1, len(self.borders) - 1), float(self.gpus)), rows=rows)

    def work_rows(self) -> Any:
        """(N, C S) parts of each job's work that the columns do in the slots."""
        from scipy.sparse import csr_array

        done = self.done()
        C, S = done.shape
        job = np.tile(self.columns.job, S)
        rows = csr_array((np.ravel(done.T), (job, np.arange(C * S))), shape=(len(self.jobs), C * S))
        rows.eliminate_zeros()
        return rows

    def done(self) -> Floats:
        """(C, S) part of its job's work that a column does in a slot."""
        columns, work = self.columns, np.array([job.work for job in self.jobs], dtype=np.float64)
        due = np.array([job.deadline for job in self.jobs])[:, None]
        usable = np.clip(np.minimum(self.borders[1:], due) - self.borders[:-1], 0.0, None)
        return np.asarray((columns.rate / work[columns.job])[:, None] * usable[columns.job])


@dataclass(frozen=True, eq=False)
class MostDeadlines(Objective):
    """The value of the deadlines that are met, and the rows that say so."""

    problem: DeadlineProgram

    def terms(self, program: ColumnProgram) -> Terms:
        """``sum of the parts of the work - y_j >= 0``."""
        from scipy.sparse import csr_array, identity

        del program
        N = len(self.problem.jobs)
        work, least = self.problem.work_rows(), self.problem.let_in
        return Terms(0.0, self.problem.values, work, csr_array(-identity(N)), least=least, whole=True)

    def met(self, x: Floats) -> Flags:
        """(N,) whose work shares (C S,) do in time, but for one part in ten million."""
        return np.asarray(self.problem.work_rows() @ x >= 1.0 - _MET)

    def value(self, program: ColumnProgram, x: Floats) -> float:
        """The value of those that are met."""
        del program
        return float(np.add.reduce(self.problem.values * self.met(x)))


def most_value(
    program: DeadlineProgram, *, solver: str = "auto", seconds: float = TIME_LIMIT_SECONDS
) -> ColumnSolution:
    """The most value, with its bound; parameters as for `solve_columns`.

    Raises
    ------
    InfeasibleError
        The deadlines of jobs that are let in cannot all be met.
    """
    return solve_columns(program.column_program(), MostDeadlines(program), solver=solver, seconds=seconds)


def least_gpu_seconds(jobs: Sequence[DeadlineJob], gpus: int, now: float) -> float:
    """GPU time that any schedule takes which meets all deadlines; inf proves that there is none."""
    if any(job.deadline <= now for job in jobs):
        return inf
    program = DeadlineProgram(jobs, gpus, now)
    cost = program.columns.gpus[:, None] * np.diff(program.borders)
    most = float(cost.max())
    all_met = program.column_program(Rows(program.work_rows(), lower=1.0))
    try:
        return most * solve_columns(all_met, Total(cost / most, maximise=False)).objective
    except InfeasibleError:
        return inf
