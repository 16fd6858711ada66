"""From the planning program to a plan: stages, forms, order, idle GPUs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from formulations.arguments import figures, instance
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import TOLERANCE, Attempt, SolverError
from formulations.reference.mixed_integer import solve_mixed
from formulations.reference.stopping import StopRule
from formulations.shockwave.moves import Ordering, fill
from formulations.shockwave.order_of_rounds import Placement, order_rounds
from formulations.shockwave.program import PlanningProgram
from formulations.shockwave.rounds import Objective, at_rounds, divides, solve_rounds
from formulations.shockwave.written import schedule_of, state
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints


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
    solver : whose numbers of rounds these are: "knapsack" (our own method), "highs" or "cbc".
    attempts : everything that was tried, in order, with what it was proven to.
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
    solver: str
    attempts: tuple[Attempt, ...]


FORMS = ("rounds", "counts", "binaries")
SOLVERS = ("auto", "highs", "cbc")
ORDERINGS = ("auto", "greedy", "exact")

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
    for name, value, known in (("form", form, FORMS), ("solver", solver, SOLVERS), ("ordering", ordering, ORDERINGS)):
        if value not in known:
            raise InputError("solve_plan", field=name, found=value, expected=f"one of {', '.join(known)}")
    for name, figure in (("relative_gap", relative_gap), ("time_limit_seconds", time_limit_seconds)):
        figures("solve_plan", name, figure, ())
    given, attempts = program.order_by_content(), list[Attempt]()
    fair = program.take(given)
    settings = form, solver, StopRule(relative_gap, seconds=time_limit_seconds), ordering, attempts
    try:
        stage = _Stage(fair, *settings)
        numbers, placement = stage.plan()
    except SolverError:
        # no plan keeps the fairness rows, or none was found in time
        if program.fairness_rows == "off":
            raise
        stage = _Stage(replace(fair, fairness_rows="off"), *settings)
        numbers, placement = stage.plan()
    objective = stage.objective.value(numbers.rounds_per_job) if program.n_jobs else math.nan
    back = np.empty_like(given)
    back[given] = np.arange(len(given))
    schedule = placement.schedule[back]
    return PlanSolution(
        rounds_per_job=schedule.sum(axis=1),
        schedule=schedule,
        backfilled=backfill(schedule, program.widths, program.gpus, program.remaining_seconds),
        stage=stage.number,
        objective=objective,
        bound=objective + numbers.excess,
        gap=numbers.gap,
        # in the words of this package, whatever gap the search was content with
        status="empty" if not program.n_jobs else "optimal" if numbers.gap <= TOLERANCE else "feasible",
        ordering_cost=placement.cost,
        ordering_bound=placement.bound,
        ordering_gap=placement.gap,
        solver=numbers.solver,
        attempts=tuple(attempts),
    )


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers of rounds per job (N,), none better by more than `excess`, and their places (N, R) if they have any."""

    rounds_per_job: Ints
    excess: float
    gap: float
    solver: str
    schedule: Flags | None


_Found = tuple[_Numbers, Placement | None]
"""Numbers of rounds for which there are places, and the order if it is settled."""


class _Stage:
    """One stage: its objective, and one way after the other to numbers of rounds that have their places.

    SolverError where no plan keeps the fairness rows.
    """

    def __init__(
        self, program: PlanningProgram, form: str, solver: str, stop: StopRule, ordering: str, attempts: list[Attempt]
    ) -> None:
        self.program, self.form, self.solver, self.stop, self.ordering = program, form, solver, stop, ordering
        self.number, self.attempts = 2 if program.fairness_rows == "off" else 1, attempts
        self.deadline = time.monotonic() + stop.seconds
        self.objective = Objective(program, program.priorities if self.number == 2 else np.ones(program.n_jobs))
        # least rounds by the fairness rows
        needed, until = program.deadlines
        allowed = np.where(program.longest_remaining >= 0, program.longest_remaining + _ACCEPTED_DELAY, -np.inf)
        self.floors: Ints = np.maximum((program.remaining_by_rounds > allowed[:, None]).sum(axis=1), needed)
        if (self.floors > np.where(program.widths <= program.gpus, program.rounds, 0)).any() or (needed > until).any():
            raise SolverError("no plan keeps the fairness rows")
        self.known: list[_Numbers] = []

    def plan(self) -> tuple[_Numbers, Placement]:
        """The best numbers of rounds, and their places; SolverError when there are none, or none were found in time."""
        widths, gpus = self.program.widths, self.program.gpus
        solver = "cbc" if self.solver == "cbc" else "highs"
        own = "knapsack" if self.solver == "auto" and divides(widths[widths <= gpus]) else solver

        def turns() -> Iterator[Turn[_Found]]:
            form = self.form
            if form == "rounds":
                yield Turn(own, lambda: self._numbers_first(own), note=f"stage {self.number}, rounds")
                if not self.known:
                    # numbers for which there is no room in all have no places either
                    return
                form = "counts"
            yield Turn(solver, lambda: self._with_places(solver, form), note=f"stage {self.number}, {form}")

        (numbers, placement), _ = solve_in_turn(turns(), self.stop.relative_gap + _ROUNDING, self.attempts)
        return numbers, placement or self._placed(numbers)

    def _numbers_first(self, name: str) -> Judged[_Found]:
        """Without regard to places, and then changed where rounds find none."""
        if name == "knapsack":
            gap = self.stop.relative_gap
            best = solve_rounds(self.objective, self.floors, relative_gap=gap, deadline=self.deadline)
            numbers = self._judged(*best, name)
        else:
            numbers = self._by_solver(name, "rounds")
        placement = self._placed(numbers)
        if not placement.missing:
            return Judged((numbers, placement), numbers.gap)
        # rounds that found no place are left out, and others that do are added, those of most gain per GPU first
        program, schedule = self.program, placement.schedule.copy()
        gains = np.pad(self.objective.gains, ((0, 0), (0, 1))) / program.widths[:, None]
        for running in schedule.T:
            gain = at_rounds(gains, schedule.sum(axis=1))
            order = np.argsort(-gain, kind="stable")
            fill(order[: np.count_nonzero(gain)], running, program.widths, program.gpus)
        rounds = schedule.sum(axis=1)
        if (rounds < self.floors).any() or self._ordering_of(rounds).missing(schedule).any():
            raise RuntimeError("without the rounds that found no place the fairness rows break")
        mended = self._judged(rounds, math.inf, numbers.solver, schedule)
        return Judged((mended, None), mended.gap)

    def _with_places(self, name: str, form: str) -> Judged[_Found]:
        """With places in the program; the mended numbers where they are as good."""
        found = self._by_solver(name, form).rounds_per_job
        placed = [numbers for numbers in self.known if numbers.schedule is not None]
        best = max(placed, key=lambda numbers: self.objective.lead(numbers.rounds_per_job, found))
        best = self._judged(best.rounds_per_job, best.excess, best.solver, best.schedule)
        return Judged((best, None), best.gap)

    def _by_solver(self, solver: str, form: str) -> _Numbers:
        statement = state(self.objective, self.floors, form)
        stop = replace(self.stop, seconds=self.deadline - time.monotonic())
        answer = solve_mixed(statement, solver, stop)
        if answer.columns is None:
            raise RuntimeError(answer.note)
        if form == "rounds":
            schedule, rounds = None, np.round(answer.columns[: self.program.n_jobs]).astype(np.int64)
        else:
            schedule = schedule_of(statement, answer.columns, self.objective.gains.shape)
            rounds = schedule.sum(axis=1)
        return self._judged(rounds, -answer.bound - self.objective.value(rounds), solver, schedule)

    def _judged(self, rounds: Ints, excess: float, solver: str, schedule: Flags | None = None) -> _Numbers:
        """Numbers of rounds with what is proven of all so far together."""
        lead = self.objective.lead
        proven = [excess, *(known.excess + lead(known.rounds_per_job, rounds) for known in self.known)]
        excess = max(min(proven), 0.0)
        self.known.append(_Numbers(rounds, excess, self.objective.gap(rounds, excess), solver, schedule))
        return self.known[-1]

    def _ordering_of(self, rounds_per_job: Ints) -> Ordering:
        """A later round costs pr_j / n_j; the published stage 1 leaves the order open, ours takes 1 / n_j."""
        program = self.program
        needed, until = program.deadlines
        weights = self.objective.priorities / np.maximum(rounds_per_job, 1)
        return Ordering(program.widths, rounds_per_job, weights, program.gpus, program.rounds, needed, until)

    def _placed(self, numbers: _Numbers) -> Placement:
        started = time.perf_counter()
        ordering = self._ordering_of(numbers.rounds_per_job)
        placement = order_rounds(ordering, self.ordering, self.stop, numbers.schedule)
        note = f"order, {placement.missing} rounds without a place"
        self.attempts.append(Attempt(placement.solver, placement.gap, time.perf_counter() - started, note))
        return placement


def backfill(schedule: Flags, widths: Ints, gpus: int, remaining_seconds: Floats) -> Flags:
    """The schedule (N, R) with jobs added to each round while they fit, those with most left to run first.

    Jobs with equally much left are taken in the order in which they are given.

    Source: the public implementation of Zheng et al., NSDI 2023 (work-conserving backfill).
    """
    filled = schedule.copy()
    for running in filled.T:
        fill(np.argsort(-remaining_seconds, kind="stable"), running, widths, gpus)
    return filled
