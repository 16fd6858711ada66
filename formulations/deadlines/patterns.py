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
from time import perf_counter
from typing import Any, Literal

import numpy as np

from formulations.core.solution import SolverError
from formulations.deadlines.filling import Filling
from formulations.deadlines.jobs import DeadlineJob
from formulations.deadlines.profile import JobPlan
from formulations.reference.mixed_integer import MODELS, MixedProgram
from formulations.reference.stopping import TIME_LIMIT_SECONDS, StopRule
from throughputs.arrays import Floats, Ints, Positions

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
    plans : for each job, where there are any.
    gpu_seconds : GPU time of all plans; nan without.
    bound : no schedule that meets all deadlines takes less GPU time, seconds.
    rounds : linear programs that were solved.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    plans: list[JobPlan] | None
    gpu_seconds: float
    bound: float
    rounds: int


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
    found: PatternPlans | None = None
    for _ in range(_RESTART_TRIES):
        again = _least_gpu_time(gpus, now, jobs, work, start, solver, relative_gap, until)
        if found is None:
            found = again
        if again.plans is None:
            break
        followed = [filling.carried_on(plan, job, now) for plan, job in zip(again.plans, jobs, strict=True)]
        if all(plan.met for plan in followed):
            used = sum(plan.gpu_seconds(plan.real_end) for plan in followed)
            return replace(again, plans=followed, gpu_seconds=used, bound=found.bound)
        if not filling.restart_seconds or perf_counter() >= until:
            break
        for j, (plan, job) in enumerate(zip(followed, jobs, strict=True)):
            if not plan.met:
                held = (job.held, *plan.gpus[:-1])
                restarts = [job.curve.rate_of[g] for g, h in zip(plan.gpus, held, strict=True) if g and g != h]
                work[j] += filling.restart_seconds * sum(restarts)
    assert found is not None
    return found if found.plans is None else replace(found, status="unknown", plans=None, gpu_seconds=np.nan)


def _least_gpu_time(
    gpus: int,
    now: float,
    jobs: Sequence[DeadlineJob],
    work: Floats,
    start: Sequence[JobPlan],
    solver: str,
    relative_gap: float,
    until: float,
) -> PatternPlans:
    """Plans for so much `work` (N,), until the time is up."""
    search = _Search(jobs, gpus, now, work)
    search.add_plans(start)
    N, rounds, best = len(jobs), 0, -np.inf
    program = _model(solver, N, len(search.lengths))
    while True:
        program.add_columns(*search.new_columns())
        answer = program.solve(StopRule())
        try:
            z, prices = answer.optimum
        except RuntimeError as error:
            raise SolverError(f"{solver} {error}") from error
        cost = answer.bound
        rounds += 1
        gain = search.generate(prices[:N], prices[N:])
        # of a row's right side no more than this is the work itself
        best = max(best, cost - gain - _SPARE * float(np.add.reduce(prices[:N])))
        met = z[:N].max() <= _MISSED
        if best > 1.0:
            return PatternPlans("infeasible", None, np.nan, np.inf, rounds)
        # prices have the tolerance of the solver: where they find nothing new, nothing is left to be found
        closed = (
            not search.has_new_columns or gain <= _GAIN * max(cost, 1.0) or (met and cost - best <= relative_gap * cost)
        )
        if closed or perf_counter() >= until:
            break
    bound = max(best, 0.0) * search.all_gpu_seconds
    if not met:
        return PatternPlans("unknown", None, np.nan, bound, rounds)
    plans = search.plans(z[N:])
    used = sum(plan.gpu_seconds(plan.real_end) for plan in plans)
    return PatternPlans("optimal" if closed else "feasible", plans, used, bound, rounds)


class _Search:
    """The patterns found so far."""

    def __init__(self, jobs: Sequence[DeadlineJob], gpus: int, now: float, work: Floats) -> None:
        self.jobs, self.gpus, self.now, self.work = jobs, gpus, now, work.tolist()
        self.borders = np.array([now, *sorted({job.deadline for job in jobs})])
        self.lengths = np.diff(self.borders)
        self.all_gpu_seconds = float(gpus * (self.borders[-1] - now))
        # the interval at whose end each job is due
        self.due = np.searchsorted(self.borders, [job.deadline for job in jobs]) - 1
        self.order = np.argsort(-self.due, kind="stable")
        self.interval: list[int] = []
        self.patterns: list[Ints] = []
        self._known: set[tuple[int, bytes]] = set()
        self._passed_on = 0

    def add(self, interval: int, pattern: Ints) -> None:
        """A column, if it is new; (N,) GPUs of each job."""
        key = (interval, pattern.tobytes())
        if pattern.any() and key not in self._known:
            self._known.add(key)
            self.interval.append(interval)
            self.patterns.append(pattern)

    def add_plans(self, plans: Sequence[JobPlan]) -> None:
        """The patterns that the cluster goes through by some plans."""
        times = sorted({time for plan in plans for time in (*plan.starts, plan.end)} | set(self.borders.tolist()))
        for time in times[:-1]:
            interval = int(np.searchsorted(self.borders, time, "right")) - 1
            if 0 <= interval < len(self.lengths):
                pattern = np.zeros(len(self.jobs), dtype=np.int64)
                for j, plan in enumerate(plans):
                    if self.due[j] >= interval:
                        pattern[j] = plan.gpus_at(time)
                if pattern.sum() <= self.gpus:
                    self.add(interval, pattern)

    @property
    def has_new_columns(self) -> bool:
        """Whether columns were added since the last call of `new_columns`."""
        return self._passed_on < len(self.patterns)

    def new_columns(self) -> tuple[Any, Floats]:
        """The columns that were added since the last call: their entries, jobs before intervals, and their costs."""
        from scipy.sparse import csc_array

        first, self._passed_on = self._passed_on, len(self.patterns)
        rows: list[Positions] = []
        values: list[Floats] = []
        costs: list[float] = []
        for interval, pattern in zip(self.interval[first:], self.patterns[first:], strict=True):
            length, jobs = float(self.lengths[interval]), np.flatnonzero(pattern)
            parts = [
                self.jobs[j].curve.rate_of[g] * length / self.work[j]
                for j, g in zip(jobs.tolist(), pattern[jobs].tolist(), strict=True)
            ]
            rows.append(np.append(jobs, len(self.jobs) + interval))
            values.append(np.array([*parts, 1.0]))
            costs.append(int(pattern.sum()) * length / self.all_gpu_seconds)
        ends = np.cumsum([0, *map(len, rows)])
        entries = np.concatenate([np.zeros(0), *values]), np.concatenate([np.zeros(0, dtype=np.intp), *rows]), ends
        return csc_array(entries, shape=(len(self.jobs) + len(self.lengths), len(costs))), np.array(costs)

    def generate(self, work_prices: Floats, interval_prices: Floats) -> float:
        """Add the best pattern of each interval at these prices; returns by how much all could lower the cost."""
        N, G, cost_of_one = len(self.jobs), self.gpus, 1.0 / self.all_gpu_seconds
        # value per second of each number of GPUs, all jobs so far on so many at most
        value = np.zeros(G + 1)
        chosen = np.zeros((N, G + 1), dtype=np.int64)
        gain, k = 0.0, 0
        for s in range(len(self.lengths) - 1, -1, -1):
            while k < N and self.due[self.order[k]] >= s:
                j = int(self.order[k])
                job, better = self.jobs[j], value.copy()
                for level, rate in zip(job.curve.levels, job.curve.rates, strict=True):
                    worth = work_prices[j] * rate / self.work[j] - level * cost_of_one
                    if worth > 0 and level <= G:
                        other = value[: G + 1 - level] + worth
                        ahead = np.flatnonzero(other > better[level:]) + level
                        better[ahead] = other[ahead - level]
                        chosen[k, ahead] = level
                value = better
                k += 1
            saved = float(value[G]) * self.lengths[s] - interval_prices[s]
            if saved > 0:
                gain += saved
                self.add(s, self._pattern(chosen, k))
        return gain

    def _pattern(self, chosen: Ints, k: int) -> Ints:
        """(N,) the best levels of the first k jobs in order."""
        pattern, left = np.zeros(len(self.jobs), dtype=np.int64), self.gpus
        for at in range(k - 1, -1, -1):
            pattern[self.order[at]] = chosen[at, left]
            left -= int(chosen[at, left])
        return pattern

    def plans(self, y: Floats) -> list[JobPlan]:
        """Plans by the parts (P,) of the intervals: each pattern after the one that is most like it."""
        before = np.array([job.held for job in self.jobs], dtype=np.int64)
        within = np.array(self.interval, dtype=np.int64)
        times: list[float] = []
        levels: list[Ints] = []
        for s in range(len(self.lengths)):
            used = np.flatnonzero((within[: len(y)] == s) & (y > _SHORTEST)).tolist()
            at, end = float(self.borders[s]), float(self.borders[s + 1])
            while used:
                p = min(used, key=lambda p: (int((self.patterns[p] != before).sum()), p))
                used.remove(p)
                times.append(at)
                levels.append(self.patterns[p])
                before = self.patterns[p]
                at = min(at + float(y[p] * self.lengths[s]), end)
            if at < end:
                times.append(at)
                levels.append(np.zeros(len(self.jobs), dtype=np.int64))
        return [self._plan(j, times, [int(each[j]) for each in levels]) for j in range(len(self.jobs))]

    def _plan(self, j: int, times: list[float], gpus: list[int]) -> JobPlan:
        """The plan of a job on so many GPUs from these times on, until it is through."""
        job = self.jobs[j]
        starts: list[float] = []
        levels: list[int] = []
        left, end = self.work[j], job.deadline
        for start, level, stop in zip(times, gpus, [*times[1:], float(self.borders[-1])], strict=True):
            if not levels or level != levels[-1]:
                starts.append(start)
                levels.append(level)
            if level:
                rate = job.curve.rate_of[level]
                end = min(start + left / rate, stop)
                left -= rate * (stop - start)
                if left <= 0:
                    break
        if not levels[-1] and len(levels) > 1:
            starts.pop()
            levels.pop()
        return JobPlan(starts, levels, end, end, True, end)


def _model(solver: str, n_jobs: int, n_intervals: int) -> Any:
    """The linear program where all jobs miss all of their work: N parts missed, then parts of intervals to be added."""
    from scipy.sparse import csr_array, eye_array, vstack

    matrix = csr_array(vstack([eye_array(n_jobs), csr_array((n_intervals, n_jobs))], format="csr"))
    least = np.concatenate([np.ones(n_jobs), np.full(n_intervals, -np.inf)])
    most = np.concatenate([np.full(n_jobs, np.inf), np.ones(n_intervals)])
    program = MixedProgram.of(matrix, np.full(n_jobs, _PENALTY), (least, most))
    return MODELS[solver](program, {"random_seed": 0, "presolve": "off"} if solver == "highs" else None)
