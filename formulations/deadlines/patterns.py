"""Deadlines met with the least GPU time, exactly: a linear program over patterns, generated as they pay.

Between two deadlines only totals count, so a schedule is, for each interval s of length L_s, how long the cluster works
in which pattern p: so many GPUs g_jp for every job that is not due yet, G at most. With y_sp the part of the interval::

    min  sum_sp L_s (sum_j g_jp) y_sp  +  penalty sum_j u_j
    with sum_sp L_s T_j(g_jp) y_sp >= W_j (1 - u_j)      u_j: part of its work that job j misses
         sum_p y_sp <= 1

Whole numbers of GPUs are in the patterns, so this is no relaxation: but for restarts every point is a schedule, and
every schedule a point. Patterns are innumerable; those that improve a point are found by dynamic programming. At prices
pi of the work, an interval's best pattern is a knapsack of G GPUs with one level for each job. Jobs drop out as they
become due, so a single pass from the last deadline backwards has the best patterns of all intervals. What they still
gain bounds, by weak duality, what any schedule costs; a bound above what all GPUs cost proves that there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any, Literal

import numpy as np

from formulations.core.solution import SolverError
from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import JobPlan
from formulations.reference.mixed_integer import MODELS, MixedProgram
from formulations.reference.stopping import TIME_LIMIT_SECONDS, StopRule
from throughputs.arrays import Floats, Ints

_PENALTY = 1e4
"""What it costs to miss all of a job's work; all GPUs to the last deadline cost 1."""

_MISSED = 1e-7
"""Part of its work up to which a job is not taken to miss any."""

_SPARE = 1e-6
"""Part of its work that a job is planned to do beyond it, for rounding."""

_RESTART_TRIES = 4
"""How often plans are made for more work, for what their restarts take."""

_GAIN = 1e-9
"""Part of the cost that a pattern must save to be worth a column."""

_SHORTEST = 1e-9
"""Part of an interval below which a pattern is left out."""


@dataclass(frozen=True, eq=False)
class PatternPlans:
    """What is known when the search ends.

    Attributes
    ----------
    status : "optimal": plans of the least GPU time, to the gap asked for; "feasible": plans, the time was up;
        "infeasible": no schedule meets all deadlines, which is proven; "unknown": the time was up before.
    bound : no schedule that meets all deadlines takes less GPU time, seconds.
    plans : for each job, where there are any.
    gpu_seconds : GPU time of all plans; nan without.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    bound: float
    plans: list[JobPlan] | None = None
    gpu_seconds: float = np.nan


def plans_by_patterns(
    filling: Filling,
    gpus: int,
    now: float,
    jobs: Sequence[DeadlineJob],
    start: Sequence[JobPlan] = (),
    *,
    solver: Literal["highs", "cbc"] = "highs",
    relative_gap: float = 1e-3,
    seconds: float = TIME_LIMIT_SECONDS,
) -> PatternPlans:
    """Plans that meet all deadlines with the least GPU time.

    Each job is planned to do a millionth more than its work, which the bound does not count. Restarts, if they take
    time, are not in the program: jobs that fall short for them are planned for more work.

    Parameters
    ----------
    filling : what restarts take.
    jobs : with finite deadlines after `now`.
    start : plans of the first jobs to begin the search from.
    relative_gap : of the GPU time, at which the search ends.
    seconds : for everything; a linear program that has begun is ended, within the limit of `StopRule`.

    Raises
    ------
    SolverError
        A linear program was not solved.
    """
    until = perf_counter() + seconds
    work = np.array([job.work for job in jobs]) * (1.0 + _SPARE)
    bound = -np.inf
    for _ in range(_RESTART_TRIES):
        found = _Patterns(jobs, gpus, now, work, start).search(solver, relative_gap, until)
        bound = found.bound if bound < 0 else bound
        if found.plans is None:
            break
        followed = [filling.carried_on(plan, job, now) for plan, job in zip(found.plans, jobs, strict=True)]
        if all(plan.met for plan in followed):
            used = sum(plan.gpu_seconds(plan.real_end) for plan in followed)
            return replace(found, plans=followed, gpu_seconds=used, bound=bound)
        if not filling.restart_seconds or perf_counter() >= until:
            break
        lost = [filling.lost_by_restarts(plan, job) for plan, job in zip(followed, jobs, strict=True)]
        work = work + np.where([plan.met for plan in followed], 0.0, lost)
    # what is proven of more work says nothing of the work itself
    return found if bound == np.inf else PatternPlans("unknown", bound)


class _Patterns:
    """The patterns found so far, as columns of a linear program: rows are the N jobs, then the S intervals.

    Attributes
    ----------
    work : (N,) steps that the jobs are planned to do.
    borders, lengths : (S + 1,) and (S,) of the intervals, seconds.
    rates : (N, G + 1) steps/s on so many GPUs, 0 where a job has no such level.
    found : (interval, (N,) GPUs of each job), by interval and bytes of the pattern.
    """

    def __init__(
        self, jobs: Sequence[DeadlineJob], gpus: int, now: float, work: Floats, start: Sequence[JobPlan]
    ) -> None:
        self.jobs, self.gpus, self.work = jobs, gpus, work
        self.borders = np.array([now, *sorted({job.deadline for job in jobs})])
        self.lengths = np.diff(self.borders)
        self.all_gpu_seconds = float(gpus * (self.borders[-1] - now))
        self.rates = np.zeros((len(jobs), gpus + 1))
        for j, job in enumerate(jobs):
            self.rates[j, job.curve.levels] = job.curve.rates
        # the interval at whose end each job is due
        self.due = np.searchsorted(self.borders, [job.deadline for job in jobs]) - 1
        self.found: dict[tuple[int, bytes], tuple[int, Ints]] = {}
        # the patterns that the cluster goes through by the plans to begin with
        changes = {time for plan in start for time in (*plan.starts, plan.end) if now <= time < self.borders[-1]}
        for time in sorted(changes.union(self.borders[:-1].tolist())):
            interval = int(np.searchsorted(self.borders, time, "right")) - 1
            pattern = np.zeros(len(jobs), dtype=np.int64)
            pattern[: len(start)] = [plan.gpus_at(time) for plan in start]
            pattern[self.due < interval] = 0
            if pattern.sum() <= gpus:
                self.add(interval, pattern)

    def add(self, interval: int, pattern: Ints) -> None:
        """A column, if it is new; (N,) GPUs of each job."""
        if pattern.any():
            self.found.setdefault((interval, pattern.tobytes()), (interval, pattern))

    def search(self, solver: str, relative_gap: float, until: float) -> PatternPlans:
        """Generate columns until none pays, the gap is closed or the time is up."""
        N, S, best, n_known = len(self.jobs), len(self.lengths), -np.inf, 0
        program = _model(solver, N, S)
        while True:
            program.add_columns(*self.columns(n_known))
            n_known = len(self.found)
            answer = program.solve(StopRule())
            try:
                z, prices = answer.optimum
            except RuntimeError as error:
                raise SolverError(f"{solver} {error}") from error
            cost = answer.bound
            gain = self.generate(prices[:N], prices[N:])
            # of a row's right side no more than this is the work itself
            best = max(best, cost - gain - _SPARE * float(np.add.reduce(prices[:N])))
            if best > 1.0:
                return PatternPlans("infeasible", np.inf)
            met = z[:N].max() <= _MISSED
            # prices have the tolerance of the solver: where they find nothing new, nothing is left to be found
            closed = gain <= _GAIN * max(cost, 1.0) or (met and cost - best <= relative_gap * cost)
            closed = closed or len(self.found) == n_known
            if closed or perf_counter() >= until:
                break
        bound = max(best, 0.0) * self.all_gpu_seconds
        if not met:
            return PatternPlans("unknown", bound)
        return PatternPlans("optimal" if closed else "feasible", bound, self.plans(z[N:]))

    def columns(self, first: int) -> tuple[Any, Floats]:
        """The columns from the `first` on: their entries, jobs before intervals, and their costs."""
        from scipy.sparse import csc_array

        new = list(self.found.values())[first:]
        within = np.array([interval for interval, _ in new], dtype=np.int64)
        patterns = np.array([pattern for _, pattern in new], dtype=np.int64).reshape(len(new), len(self.jobs))
        lengths = self.lengths[within]
        done = self.rates[np.arange(len(self.jobs)), patterns] * lengths[:, None] / self.work
        taken = within[:, None] == np.arange(len(self.lengths))
        return csc_array(np.hstack([done, taken]).T), patterns.sum(axis=1) * lengths / self.all_gpu_seconds

    def generate(self, work_prices: Floats, interval_prices: Floats) -> float:
        """Add the best pattern of each interval at these prices; returns by how much all could lower the cost."""
        N, G = len(self.jobs), self.gpus
        order = np.argsort(-self.due, kind="stable").tolist()
        # value per second of each number of GPUs, all jobs so far on so many at most
        value = np.zeros(G + 1)
        chosen = np.zeros((N, G + 1), dtype=np.int64)
        gain, k = 0.0, 0
        for s in range(len(self.lengths) - 1, -1, -1):
            while k < N and self.due[order[k]] >= s:
                j = order[k]
                levels = np.append(0, np.flatnonzero(self.rates[j]))
                worth = work_prices[j] * self.rates[j, levels] / self.work[j] - levels / self.all_gpu_seconds
                left = np.arange(G + 1) - levels[:, None]
                options = np.where(left >= 0, value[left] + worth[:, None], -np.inf)
                chosen[k], value = levels[options.argmax(axis=0)], options.max(axis=0)
                k += 1
            saved = float(value[G]) * self.lengths[s] - interval_prices[s]
            if saved > 0:
                gain += saved
                pattern, free = np.zeros(N, dtype=np.int64), G
                for at in range(k - 1, -1, -1):
                    pattern[order[at]] = chosen[at, free]
                    free -= int(chosen[at, free])
                self.add(s, pattern)
        return gain

    def plans(self, y: Floats) -> list[JobPlan]:
        """Plans by the parts (P,) of the intervals: each pattern after the one that is most like it."""
        before = np.array([job.held for job in self.jobs], dtype=np.int64)
        found = list(self.found.values())[: len(y)]
        times: list[float] = []
        levels: list[Ints] = []
        for s, (at, end) in enumerate(pairwise(self.borders.tolist())):
            used = [p for p, (interval, _) in enumerate(found) if interval == s and y[p] > _SHORTEST]
            while used:
                p = min(used, key=lambda p: (int((found[p][1] != before).sum()), p))
                used.remove(p)
                before = found[p][1]
                times.append(at)
                levels.append(before)
                at = min(at + float(y[p] * self.lengths[s]), end)
            if at < end:
                times.append(at)
                levels.append(np.zeros(len(self.jobs), dtype=np.int64))
        ends = [*times[1:], float(self.borders[-1])]
        rows = zip(self.jobs, self.work.tolist(), np.array(levels).T.tolist(), strict=True)
        return [_plan(job, work, times, ends, gpus) for job, work, gpus in rows]


def _plan(job: DeadlineJob, work: float, times: list[float], ends: list[float], gpus: list[int]) -> JobPlan:
    """The plan of a job on so many GPUs, until it is through but for rounding; restarts aside."""
    plan = Filling().walk(DeadlineJob(job.curve, work * (1.0 - _SPARE / 2), job.deadline), times, ends, gpus)
    plan.end = min(plan.end, job.deadline)
    return plan


def _model(solver: str, n_jobs: int, n_intervals: int) -> Any:
    """The linear program where all jobs miss all of their work: N parts missed, then parts of intervals to be added."""
    from scipy.sparse import csr_array

    matrix = csr_array(np.eye(n_jobs + n_intervals, n_jobs))
    least = np.repeat([1.0, -np.inf], [n_jobs, n_intervals])
    most = np.repeat([np.inf, 1.0], [n_jobs, n_intervals])
    program = MixedProgram.of(matrix, np.full(n_jobs, _PENALTY), (least, most))
    return MODELS[solver](program, {"random_seed": 0, "presolve": "off"} if solver == "highs" else None)
