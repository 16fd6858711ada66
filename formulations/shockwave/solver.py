"""From the planning program to a plan: stages, forms, order, idle GPUs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from formulations.arguments import instance
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import TOLERANCE, Attempt, SolverError
from formulations.reference.mixed_integer import solve_mixed
from formulations.reference.stopping import StopRule
from formulations.shockwave.knapsack import divides
from formulations.shockwave.order_of_rounds import Ordering, Placement, order_rounds
from formulations.shockwave.program import PlanningProgram
from formulations.shockwave.rounds import RoundsAnswer, solve_rounds
from formulations.shockwave.written import rounds_of, significant, state
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import matmul


@dataclass(frozen=True, eq=False)
class PlanSolution:
    """A plan of R rounds for N jobs.

    Attributes
    ----------
    rounds_per_job : (N,) planned rounds n_j, before idle GPUs are given away.
    schedule : (N, R) who runs in which round, before idle GPUs are given away.
    backfilled : (N, R) the same after it.
    stage : 1 when the fairness rows are fulfilled, 2 when priorities stand in their place.
    objective : value of that stage's objective at `rounds_per_job`, nan without jobs.
    bound : no plan is better than this.
    gap : distance of the two, relative to the objective (to 1e-3 if that is smaller); priorities above 1e5 count 1e5
        in that objective, so that they do not hide what the plan does for all other jobs.
    status : "optimal" when `gap` is at most 1e-7, "feasible" when it is not, "empty" without jobs.
    ordering_cost, ordering_bound, ordering_gap : of stage 3 likewise: cost of the order in `schedule`, a cost that no
        order of the same numbers of rounds is below, and their relative distance. After stage 1 all weights are
        1 / n_j. nan where nothing was proven about the order.
    utilities : (N,) U_j of the plan.
    remaining_after : (N,) L_j of the plan, seconds.
    solver : whose numbers of rounds these are: "knapsack" (our own method), "highs" or "cbc".
    attempts : everything that was tried, in order, with what it was proven to.
    seconds : time for everything.
    """

    rounds_per_job: Ints
    schedule: Flags
    backfilled: Flags
    stage: int
    objective: float
    bound: float
    gap: float
    status: str
    ordering_cost: float
    ordering_bound: float
    ordering_gap: float
    utilities: Floats
    remaining_after: Floats
    solver: str
    attempts: tuple[Attempt, ...]
    seconds: float


FORMS = ("rounds", "counts", "binaries")
SOLVERS = ("auto", "highs", "cbc")
ORDERINGS = ("auto", "greedy", "exact")

_LARGEST_COMPARABLE = 1e5
"""Where a gap is stated, priorities count up to this much."""

_ROUNDING = 1e-6
"""What branch and bound leaves of a gap that is closed."""
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
    relative_gap : at which solvers stop; for each stage by itself.
    time_limit_seconds : of each stage. But in form "rounds" a stage 1 that has found no plan by then counts as
        infeasible, as published.
    ordering : of stage 3, "greedy", "exact", or "auto" for the exact method where the greedy one leaves the order
        outside the gap, with a limit of its work (`order_rounds`).

    Raises
    ------
    InputError : for an unknown form, solver or ordering, or a gap or time that is not above 0.
    SolverError : when HiGHS or CBC finds no plan in time; our own method always has one.

    Source: Zheng et al., NSDI 2023, and its public implementation.
    """
    instance("solve_plan", "program", program, PlanningProgram)
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
        status=_status(numbers),
        ordering_cost=plan.placement.cost,
        ordering_bound=plan.placement.bound,
        ordering_gap=plan.placement.gap,
        utilities=significant(program.utilities_by_rounds, rounds_per_job),
        remaining_after=significant(program.remaining_by_rounds, rounds_per_job),
        solver=numbers.solver,
        attempts=tuple(solve.attempts),
        seconds=time.perf_counter() - started,
    )


def _status(numbers: RoundsAnswer) -> str:
    """In the words of this package, whatever gap the search was content with."""
    if not len(numbers.rounds_per_job):
        return "empty"
    return "optimal" if numbers.gap <= TOLERANCE else "feasible"


def _check_settings(form: str, solver: str, gap: float, seconds: float, ordering: str) -> None:
    for name, value, known in (("form", form, FORMS), ("solver", solver, SOLVERS), ("ordering", ordering, ORDERINGS)):
        if value not in known:
            raise InputError("solve_plan", field=name, found=value, expected=f"one of {', '.join(known)}")
    for name, figure in (("relative_gap", gap), ("time_limit_seconds", seconds)):
        if not (math.isfinite(figure) and figure > 0):
            raise InputError("solve_plan", field=name, found=figure, expected="a finite number above 0")


@dataclass(frozen=True, eq=False)
class _Plan:
    stage: int
    placement: Placement
    numbers: RoundsAnswer


_Found = tuple[RoundsAnswer, "Placement | None"]
"""Numbers of rounds for which there are places, and the order if it is settled."""


@dataclass(frozen=True, eq=False)
class _Solve:
    """One call of `solve_plan`, for jobs in the order of their content."""

    program: PlanningProgram
    form: str
    solver: str
    gap: float
    seconds: float
    ordering: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def by_knapsack(self) -> bool:
        """Whether our own method is asked for, and takes the program."""
        widths = self.program.widths[self.program.widths <= self.program.gpus]
        return self.form == "rounds" and self.solver == "auto" and divides(widths)

    def plan(self) -> _Plan:
        """Stage 1, or else stage 2."""
        if not self.program.n_jobs:
            schedule, none = np.zeros((0, self.program.rounds), dtype=np.bool_), np.zeros(0, dtype=np.int64)
            return _Plan(1, Placement(schedule, none, 0.0, 0.0, "none"), RoundsAnswer(none, math.nan, 0.0, 0.0, "none"))
        floors = self._fairness_floors()
        if floors is not None:
            # no plan keeps the fairness rows, or none was found in time
            with suppress(SolverError):
                return _Stage(self, 1, floors).plan()
        return _Stage(self, 2, np.zeros(self.program.n_jobs, dtype=np.int64)).plan()

    def _fairness_floors(self) -> Ints | None:
        """(N,) least rounds by the fairness rows; None when they are off, or need no solver to be refuted."""
        program = self.program
        if program.fairness_rows == "off":
            return None
        needed, until = program.deadlines
        allowed = np.where(program.longest_remaining >= 0, program.longest_remaining + _ACCEPTED_DELAY, -np.inf)
        least = (program.remaining_by_rounds > allowed[:, None]).sum(axis=1)
        if (least > program.rounds).any() or (needed > until).any():
            return None
        floors: Ints = np.maximum(least, needed)
        return None if ((floors > 0) & (program.widths > program.gpus)).any() else floors


class _Stage:
    """One stage: its objective, and one way after the other to numbers of rounds that have their places."""

    def __init__(self, solve: _Solve, stage: int, floors: Ints) -> None:
        self.solve, self.stage, self.floors, self.program = solve, stage, floors, solve.program
        self.deadline = time.monotonic() + solve.seconds
        self.relaxed: RoundsAnswer | None = None
        self.mended: RoundsAnswer | None = None
        program, urgent = self.program, self.stage == 2
        shared = 1.0 / (program.n_jobs * program.rounds)
        self.priorities = program.priorities if urgent else np.ones(program.n_jobs)
        self.weights = shared * self.priorities
        # jobs of very high priority do not hide all others where a gap is stated
        self.comparable = np.minimum(1.0, _LARGEST_COMPARABLE / self.priorities)
        steps = np.diff(program.utilities_by_rounds, axis=1)
        # concave but for rounding errors
        self.gains: Floats = np.maximum(np.minimum.accumulate(steps, axis=1), 0.0) * self.weights[:, None]
        self.gains[program.widths > program.gpus] = 0.0

    def plan(self) -> _Plan:
        """A plan; SolverError when there is none, or none was found in time."""
        enough = self.solve.gap + (0.0 if self.solve.by_knapsack else _ROUNDING)
        (numbers, placement), _ = solve_in_turn(self._turns(), enough, self.solve.attempts)
        return _Plan(self.stage, placement or self._placed(numbers), numbers)

    def _turns(self) -> Iterator[Turn[_Found]]:
        """Numbers first and then places; where these do not suffice, numbers with the places in the program."""
        solve = self.solve
        backend = "cbc" if solve.solver == "cbc" else "highs"
        form = "counts" if solve.form == "rounds" else solve.form
        with_places = Turn(backend, lambda: self._with_places(backend, form), note=f"stage {self.stage}, {form}")
        if solve.form == "rounds":
            name = "knapsack" if solve.by_knapsack else backend
            yield Turn(name, lambda: self._numbers_first(name), note=f"stage {self.stage}, rounds")
            if self.relaxed is None:
                return
        yield with_places

    def _numbers_first(self, name: str) -> Judged[_Found]:
        relaxed = self.relaxed = self._by_knapsack() if name == "knapsack" else self._by_solver(name, "rounds")
        placement = self._placed(relaxed)
        if not placement.missing.any():
            return Judged((relaxed, placement), relaxed.gap)
        mended = self.mended = self._without_missing(relaxed, placement)
        return Judged((mended, None), mended.gap)

    def _with_places(self, name: str, form: str) -> Judged[_Found]:
        """The better of these numbers and the mended ones, with what is proven of all together."""
        found = self._by_solver(name, form)
        if self.relaxed is not None:
            lost = self._difference(self.relaxed, found)
            found = replace(found, excess=min(found.excess, max(self.relaxed.excess + lost, 0.0)))
        if self.mended is not None:
            ahead = self._difference(self.mended, found)
            if ahead >= 0:
                found = replace(self.mended, excess=min(self.mended.excess, max(found.excess - ahead, 0.0)))
        return Judged((found, None), found.gap)

    def _by_knapsack(self) -> RoundsAnswer:
        program = self.program
        answer = solve_rounds(
            self.gains,
            self.weights * program.utilities_by_rounds[:, 0],
            program.remaining_by_rounds,
            program.widths,
            program.gpus,
            program.makespan_weight,
            self.floors,
            self.comparable,
            relative_gap=self.solve.gap,
            deadline=self.deadline,
        )
        if answer is None:
            raise RuntimeError("infeasible")
        return answer

    def _by_solver(self, solver: str, form: str) -> RoundsAnswer:
        statement = state(self.program, self.weights, fairness=self.stage == 1, form=form)
        stop = StopRule(self.solve.gap, seconds=self.deadline - time.monotonic())
        answer = solve_mixed(statement, solver, stop)
        if answer.columns is None:
            raise RuntimeError(answer.note)
        rounds, schedule = rounds_of(statement, answer.columns, self.program, form)
        objective, reference = self._objective(rounds)
        return RoundsAnswer(rounds, objective, max(0.0, -answer.bound - objective), reference, solver, schedule)

    def _objective(self, rounds_per_job: Ints) -> tuple[float, float]:
        """Objective, and the size that its gap is relative to."""
        utilities = self.weights * significant(self.program.utilities_by_rounds, rounds_per_job)
        longest = self.program.makespan_weight * self._longest(rounds_per_job)
        return math.fsum((*utilities, -longest)), math.fsum((*(utilities * self.comparable), -longest))

    def _longest(self, rounds_per_job: Ints) -> float:
        return float(significant(self.program.remaining_by_rounds, rounds_per_job).max())

    def _difference(self, ours: RoundsAnswer, theirs: RoundsAnswer) -> float:
        """How much better some numbers of rounds are than others, free of what both have in common."""
        table, our, their = self.program.utilities_by_rounds, ours.rounds_per_job, theirs.rounds_per_job
        utilities = self.weights * (significant(table, our) - significant(table, their))
        longest = self._longest(their) - self._longest(our)
        return math.fsum((*utilities, self.program.makespan_weight * longest))

    def _ordering_of(self, rounds_per_job: Ints) -> Ordering:
        """A later round costs pr_j / n_j; the published stage 1 leaves the order open, ours takes 1 / n_j."""
        program = self.program
        needed, until = program.deadlines
        if self.stage == 2:
            needed, until = np.zeros_like(needed), np.full_like(until, program.rounds)
        weights = self.priorities / np.maximum(rounds_per_job, 1)
        return Ordering(program.widths, rounds_per_job, weights, program.gpus, program.rounds, needed, until)

    def _placed(self, numbers: RoundsAnswer) -> Placement:
        started, solve = time.perf_counter(), self.solve
        ordering = self._ordering_of(numbers.rounds_per_job)
        placement = order_rounds(ordering, solve.ordering, solve.gap, solve.seconds, numbers.schedule)
        note = f"order, {int(placement.missing.sum())} rounds without a place"
        solve.attempts.append(Attempt(placement.solver, placement.gap, time.perf_counter() - started, note))
        return placement

    def _without_missing(self, numbers: RoundsAnswer, placement: Placement) -> RoundsAnswer:
        """Numbers without the rounds that found no place, and with others that do."""
        program = self.program
        schedule = fill_with_gain(placement.schedule, self.gains, program.widths, program.gpus)
        rounds = schedule.sum(axis=1)
        if (rounds < self.floors).any() or self._ordering_of(rounds).missing(schedule).any():
            raise RuntimeError("without the rounds that found no place the fairness rows break")
        objective, reference = self._objective(rounds)
        mended = RoundsAnswer(rounds, objective, 0.0, reference, numbers.solver, schedule)
        return replace(mended, excess=max(numbers.excess + self._difference(numbers, mended), 0.0))


def backfill(schedule: Flags, widths: Ints, gpus: int, remaining_seconds: Floats) -> Flags:
    """The schedule (N, R) with jobs added to each round while they fit, those with most left to run first.

    Jobs with equally much left are taken in the order in which they are given.

    Source: the public implementation of Zheng et al., NSDI 2023 (work-conserving backfill).
    """
    filled = schedule.copy()
    idle = gpus - matmul(widths, schedule)
    longest_first = np.argsort(-remaining_seconds, kind="stable")
    ordered = widths[longest_first]
    for now in np.flatnonzero(idle > 0):
        free = int(idle[now])
        waiting = np.flatnonzero(~filled[longest_first, now] & (ordered <= free))
        for job, width in zip(longest_first[waiting].tolist(), ordered[waiting].tolist(), strict=True):
            if width <= free:
                filled[job, now] = True
                free -= width
                if free == 0:
                    break
    return filled


def fill_with_gain(schedule: Flags, gains: Floats, widths: Ints, gpus: int) -> Flags:
    """The schedule (N, R) with rounds of any gain added where they fit, those with most gain per GPU first."""
    filled = schedule.copy()
    idle = gpus - matmul(widths, schedule)
    counts = filled.sum(axis=1)
    further = np.arange(gains.shape[1]) >= counts[:, None]
    density = np.where(further, gains / widths[:, None], 0.0)
    candidates = np.argsort(-density, axis=None, kind="stable")[: np.count_nonzero(density > 0)]
    for job in (candidates // gains.shape[1]).tolist():
        places = np.flatnonzero(~filled[job] & (idle >= widths[job]))
        if len(places):
            filled[job, places[0]] = True
            idle[places[0]] -= widths[job]
    return filled
