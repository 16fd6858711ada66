"""From the planning program to a plan: stages, forms, order, idle GPUs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.core.solution import Attempt, SolverError
from formulations.shockwave.backfill import backfill, fill_with_gain
from formulations.shockwave.knapsack import divides
from formulations.shockwave.mixed_integer import solve_mixed
from formulations.shockwave.order.ordering import Ordering, Placement, order_rounds
from formulations.shockwave.program import PlanningProgram
from formulations.shockwave.rounds import relative_gap_of, solve_rounds
from formulations.shockwave.solution import PlanSolution
from formulations.shockwave.statement import ordering_in_binaries, rounds_of, significant, state
from throughputs import InputError

__all__ = ["FORMS", "ORDERINGS", "SOLVERS", "solve_plan"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

FORMS = ("rounds", "counts", "binaries")
SOLVERS = ("auto", "highs", "cbc")
ORDERINGS = ("auto", "greedy", "exact")

_LARGEST_COMPARABLE = 1e5
"""Where a gap is stated, priorities count up to this much."""

_ROUNDING = 1e-6
_ACCEPTED_DELAY = 1e-6
"""A fairness row may be broken by so many seconds."""


def solve_plan(
    program: PlanningProgram,
    form: str = "rounds",
    solver: str = "auto",
    relative_gap: float = 1e-3,
    time_limit_seconds: float = 15.0,
    ordering: str = "auto",
) -> PlanSolution:
    """Plan the rounds of a window: stage 1, else stages 2 and 3, then idle GPUs to whoever fits.

    The plan depends on what the jobs are, not on the order in which they are given; only between jobs that are alike
    in every figure, and among those with equally much left when idle GPUs are given away, do earlier ones come first.

    Parameters
    ----------
    program : what to plan.
    form : "rounds" settles a number of rounds per job first, since rounds are interchangeable until stage 3, and then
        finds them places. Settling them is a relaxation, so that its bound holds for all plans: two jobs may together
        ask for no more rounds than there are and yet collide. Where a round finds no place, the plan is mended,
        and where this leaves it outside the gap, "counts" is asked as well. "binaries" is the program as published,
        with a binary for every job and round, and "counts" the same in fewer whole variables (`state`).
    solver : of the numbers of rounds or the binaries. "auto": in form "rounds" an exact method of our own
        (`solve_rounds`) if each width divides the next wider one, else HiGHS; in the other forms HiGHS.
    relative_gap : at which a plan counts as optimal, and solvers stop; for each stage by itself.
    time_limit_seconds : of each stage. But in form "rounds" a stage 1 that has found no plan by then counts as
        infeasible, as published.
    ordering : of stage 3, "greedy", "exact", or "auto" for the exact method where the greedy one leaves the order
        outside the gap, with a limit of its work (`order_rounds`). In form "binaries" "auto" is stage 3 as published.

    Raises
    ------
    InputError : for an unknown form, solver or ordering, or a gap or time that is not above 0.
    SolverError : when HiGHS or CBC finds no plan in time; our own method always has one.

    Source: Zheng et al., NSDI 2023, and its public implementation.
    """
    _check_settings(form, solver, relative_gap, time_limit_seconds, ordering)
    started = time.perf_counter()
    given = program.order_by_content()
    solve = _Solve(program.take(given), form, solver, relative_gap, time_limit_seconds, ordering)
    plan = solve.plan()
    back = np.empty_like(given)
    back[given] = np.arange(len(given))
    schedule = plan.placement.schedule[back]
    numbers = plan.numbers
    rounds_per_job = schedule.sum(axis=1)
    return PlanSolution(
        rounds_per_job=rounds_per_job,
        schedule=schedule,
        backfilled=backfill(schedule, program.widths, program.gpus, program.remaining_seconds),
        stage=plan.stage,
        objective=numbers.objective,
        bound=numbers.objective + numbers.excess,
        gap=numbers.gap,
        status=numbers.status(relative_gap),
        ordering_cost=plan.placement.cost,
        ordering_bound=plan.placement.bound,
        ordering_gap=plan.placement.gap,
        utilities=significant(program.utilities_by_rounds, rounds_per_job),
        remaining_after=significant(program.remaining_by_rounds, rounds_per_job),
        solver=numbers.solver,
        attempts=tuple(solve.attempts),
        seconds=time.perf_counter() - started,
    )


def _check_settings(form: str, solver: str, gap: float, seconds: float, ordering: str) -> None:
    for name, value, known in (("form", form, FORMS), ("solver", solver, SOLVERS), ("ordering", ordering, ORDERINGS)):
        if value not in known:
            raise InputError("solve_plan", field=name, found=value, expected=f"one of {', '.join(known)}")
    for name, figure in (("relative_gap", gap), ("time_limit_seconds", seconds)):
        if not (math.isfinite(figure) and figure > 0):
            raise InputError("solve_plan", field=name, found=figure, expected="a finite number above 0")


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers of rounds and what is known of them.

    `excess` says how much better others could be, `reference` is the size that the gap is relative to, and `schedule`
    holds the places if the numbers came with them.
    """

    rounds_per_job: Integers
    objective: float
    excess: float
    reference: float
    solver: str
    schedule: Booleans | None = None

    @property
    def gap(self) -> float:
        return relative_gap_of(self.excess, self.reference)

    def status(self, tolerance: float) -> str:
        """In the words of this package; solvers stop at the gap as they see it, which rounding may move."""
        if not len(self.rounds_per_job):
            return "empty"
        return "optimal" if self.gap <= tolerance + (_ROUNDING if self.solver != "knapsack" else 0.0) else "feasible"


@dataclass(frozen=True, eq=False)
class _Plan:
    stage: int
    placement: Placement
    numbers: _Numbers


class _Solve:
    """One call of `solve_plan`, for jobs in the order of their content."""

    def __init__(
        self, program: PlanningProgram, form: str, solver: str, gap: float, seconds: float, ordering: str
    ) -> None:
        self.program, self.form, self.solver, self.gap, self.seconds = program, form, solver, gap, seconds
        self.ordering = ordering
        self.attempts: list[Attempt] = []

    def plan(self) -> _Plan:
        """Stage 1, or else stage 2."""
        if not self.program.n_jobs:
            schedule, none = np.zeros((0, self.program.rounds), dtype=np.bool_), np.zeros(0, dtype=np.int64)
            return _Plan(1, Placement(schedule, none, 0.0, 0.0, "none"), _Numbers(none, math.nan, 0.0, 0.0, "none"))
        floors = self._fairness_floors()
        if floors is not None:
            plan = self._stage(1, floors)
            if plan is not None:
                return plan
        plan = self._stage(2, np.zeros(self.program.n_jobs, dtype=np.int64))
        if plan is None:
            raise SolverError(f"no plan within {self.seconds:g} s: {self.attempts[-1].note}")
        return plan

    def _fairness_floors(self) -> Integers | None:
        """(N,) least rounds by the fairness rows; None when they are off, or need no solver to be refuted."""
        program = self.program
        if program.fairness_rows == "off":
            return None
        needed, until = program.deadlines
        allowed = np.where(program.longest_remaining >= 0, program.longest_remaining + _ACCEPTED_DELAY, -np.inf)
        least = (program.remaining_by_rounds > allowed[:, None]).sum(axis=1)
        if (least > program.rounds).any() or (needed > until).any():
            return None
        floors: Integers = np.maximum(least, needed)
        return None if ((floors > 0) & (program.widths > program.gpus)).any() else floors

    def _weights(self, stage: int) -> Array:
        """(N,) weight of each utility in the objective."""
        shared = 1.0 / (self.program.n_jobs * self.program.rounds)
        return shared * self.program.priorities if stage == 2 else np.full(self.program.n_jobs, shared)

    def _stage(self, stage: int, floors: Integers) -> _Plan | None:
        """A plan of one stage; None when it has none (or, in binaries, none was found in time)."""
        deadline = time.monotonic() + self.seconds
        numbers = self._numbers(stage, floors, self.form, deadline)
        if numbers is None:
            return None
        if self.form == "binaries":
            return self._ordered_binaries(stage, numbers)
        placement = self._placed(stage, numbers)
        if not placement.missing.any():
            return _Plan(stage, placement, numbers)
        settled = self._mended(stage, numbers, placement, floors)
        if settled is None or settled.gap > self.gap:
            settled = self._better(stage, settled, numbers, self._numbers(stage, floors, "counts", deadline))
        return None if settled is None else _Plan(stage, self._placed(stage, settled), settled)

    def _better(
        self, stage: int, mended: _Numbers | None, relaxed: _Numbers, found: _Numbers | None
    ) -> _Numbers | None:
        """The better of two, if there are any, with what all three prove together."""
        if found is None:
            return mended
        lost = self._difference(stage, relaxed.rounds_per_job, found.rounds_per_job)
        found = replace(found, excess=min(found.excess, max(relaxed.excess + lost, 0.0)))
        if mended is None:
            return found
        ahead = self._difference(stage, mended.rounds_per_job, found.rounds_per_job)
        if ahead < 0:
            return found
        return replace(mended, excess=min(mended.excess, max(found.excess - ahead, 0.0)))

    def _numbers(self, stage: int, floors: Integers, form: str, deadline: float) -> _Numbers | None:
        """Numbers of rounds of one stage, by the first solver that applies."""
        started = time.perf_counter()
        own = (
            form == "rounds"
            and self.solver == "auto"
            and divides(self.program.widths[self.program.widths <= self.program.gpus])
        )
        found, note = self._by_knapsack(stage, floors, deadline) if own else self._by_solver(stage, form, deadline)
        solver = "knapsack" if own else "cbc" if self.solver == "cbc" else "highs"
        gap = math.inf if found is None else found.gap
        seconds = time.perf_counter() - started
        self.attempts.append(Attempt(solver, gap, seconds, f"stage {stage}, {form}: {note}"))
        return found

    def _gains(self, stage: int) -> Array:
        """(N, R) value of the n-th round of each job."""
        steps = np.diff(self.program.utilities_by_rounds, axis=1)
        # concave but for rounding errors
        gains: Array = np.maximum(np.minimum.accumulate(steps, axis=1), 0.0) * self._weights(stage)[:, None]
        gains[self.program.widths > self.program.gpus] = 0.0
        return gains

    def _by_knapsack(self, stage: int, floors: Integers, deadline: float) -> tuple[_Numbers | None, str]:
        program = self.program
        answer = solve_rounds(
            self._gains(stage),
            self._weights(stage) * program.utilities_by_rounds[:, 0],
            program.remaining_by_rounds,
            program.widths,
            program.gpus,
            program.makespan_weight,
            floors,
            self._comparable(stage),
            relative_gap=self.gap,
            deadline=deadline,
        )
        if answer is None:
            return None, "infeasible"
        figures = (answer.objective, answer.excess, answer.reference)
        return _Numbers(answer.rounds_per_job, *figures, "knapsack"), f"{answer.programs} knapsacks"

    def _by_solver(self, stage: int, form: str, deadline: float) -> tuple[_Numbers | None, str]:
        solver = "cbc" if self.solver == "cbc" else "highs"
        statement = state(self.program, self._weights(stage), fairness=stage == 1, form=form)
        answer = solve_mixed(statement, solver, self.gap, deadline - time.monotonic())
        if answer.columns is None:
            return None, answer.note
        rounds, schedule = rounds_of(statement, answer.columns, self.program, form)
        objective, reference = self._objective(stage, rounds)
        excess = max(0.0, -answer.bound - objective)
        return _Numbers(rounds, objective, excess, reference, solver, schedule), answer.note

    def _objective(self, stage: int, rounds_per_job: Integers) -> tuple[float, float]:
        """Objective, and the size that its gap is relative to."""
        utilities = self._weights(stage) * significant(self.program.utilities_by_rounds, rounds_per_job)
        longest = self.program.makespan_weight * self._longest(rounds_per_job)
        reference = math.fsum((*(utilities * self._comparable(stage)), -longest))
        return math.fsum((*utilities, -longest)), reference

    def _longest(self, rounds_per_job: Integers) -> float:
        return float(significant(self.program.remaining_by_rounds, rounds_per_job).max())

    def _comparable(self, stage: int) -> Array:
        """(N,) factors that keep jobs of very high priority from hiding all others where a gap is stated."""
        if stage == 1:
            return np.ones(self.program.n_jobs)
        return np.minimum(1.0, _LARGEST_COMPARABLE / self.program.priorities)

    def _difference(self, stage: int, ours: Integers, theirs: Integers) -> float:
        """How much better some numbers of rounds are than others, free of what both have in common."""
        table = self.program.utilities_by_rounds
        utilities = self._weights(stage) * (significant(table, ours) - significant(table, theirs))
        longest = self._longest(theirs) - self._longest(ours)
        return math.fsum((*utilities, self.program.makespan_weight * longest))

    def _order_weights(self, stage: int, rounds_per_job: Integers) -> Array:
        """(N,) cost of a later round: pr_j / n_j; the published stage 1 leaves the order open, ours takes 1 / n_j."""
        counts = np.maximum(rounds_per_job, 1)
        return self.program.priorities / counts if stage == 2 else 1.0 / counts

    def _ordering_of(self, stage: int, rounds_per_job: Integers) -> Ordering:
        program = self.program
        needed, until = program.deadlines
        if stage == 2:
            needed, until = np.zeros_like(needed), np.full_like(until, program.rounds)
        weights = self._order_weights(stage, rounds_per_job)
        return Ordering(program.widths, rounds_per_job, weights, program.gpus, program.rounds, needed, until)

    def _placed(self, stage: int, numbers: _Numbers) -> Placement:
        started = time.perf_counter()
        ordering = self._ordering_of(stage, numbers.rounds_per_job)
        placement = order_rounds(ordering, self.ordering, self.gap, self.seconds, numbers.schedule)
        note = f"order, {int(placement.missing.sum())} rounds without a place"
        self.attempts.append(Attempt(placement.solver, placement.gap, time.perf_counter() - started, note))
        return placement

    def _mended(self, stage: int, numbers: _Numbers, placement: Placement, floors: Integers) -> _Numbers | None:
        """Numbers without the rounds that found no place, and with others that do; None if the rows then break."""
        program = self.program
        schedule = fill_with_gain(placement.schedule, self._gains(stage), program.widths, program.gpus)
        rounds = schedule.sum(axis=1)
        if (rounds < floors).any() or self._ordering_of(stage, rounds).missing(schedule).any():
            return None
        excess = max(numbers.excess + self._difference(stage, numbers.rounds_per_job, rounds), 0.0)
        objective, reference = self._objective(stage, rounds)
        return _Numbers(rounds, objective, excess, reference, numbers.solver, schedule)

    def _as_found(self, numbers: _Numbers) -> Placement:
        """The schedule with which numbers of rounds came, its order unproven."""
        assert numbers.schedule is not None
        missing = np.zeros_like(numbers.rounds_per_job)
        return Placement(numbers.schedule, missing, math.nan, math.nan, numbers.solver)

    def _ordered_binaries(self, stage: int, numbers: _Numbers) -> _Plan:
        """The published stage 3 after stage 2; the order of the solver itself after stage 1, or where stage 3 fails."""
        rounds, plain = numbers.rounds_per_job, self._as_found(numbers)
        if self.ordering != "auto":
            placement = self._placed(stage, numbers)
        elif stage == 1 or not rounds.any():
            placement = plain
        else:
            placement = self._in_binaries(rounds) or plain
        return _Plan(stage, placement, numbers)

    def _in_binaries(self, rounds: Integers) -> Placement | None:
        started = time.perf_counter()
        ordering = self._ordering_of(2, rounds)
        solver = "cbc" if self.solver == "cbc" else "highs"
        statement = ordering_in_binaries(self.program, ordering.weights, rounds)
        answer = solve_mixed(statement, solver, self.gap, self.seconds)
        placement = None
        if answer.columns is not None:
            schedule = answer.columns.reshape(len(rounds), -1) > 0.5
            placement = Placement(schedule, np.zeros_like(rounds), ordering.cost(schedule), answer.bound, solver)
        gap = math.inf if placement is None else placement.gap
        note = f"order, binaries: {answer.note}"
        self.attempts.append(Attempt(solver, gap, time.perf_counter() - started, note))
        return placement
