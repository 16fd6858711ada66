"""Solving the lease program: HiGHS, CBC, and the greedy that published runs fell back to."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np

from formulations.core.solution import TOLERANCE
from formulations.leases.packing import greedy_choice, slot_by_slot
from formulations.leases.program import LeaseProgram
from formulations.leases.rows import LeaseRows
from formulations.reference.mixed_integer import LinearAnswer, MixedProgram, at_vertex, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import InputError
from throughputs.arrays import Flags, Ints

METHODS: Final = ("highs", "cbc", "greedy")
TIE_BREAKS: Final = ("urgent", "solver")

_LARGE = 5000
"""Jobs times slots above which the program as it is stated would take more time than it is worth."""

_ROUNDING = 1e-6
"""Of objectives."""


@dataclass(frozen=True, eq=False)
class LeaseSolution:
    """Which deadlines are promised, and in which slots each job runs.

    Attributes
    ----------
    option : (J,) option of each job, -1 for one that is dropped.
    schedule : (J, T) slots in which each job runs.
    objective : value and weighted GPUs of slot 0.
    bound : no schedule that keeps as many jobs has a larger objective; inf from the greedy.
    status : "optimal" where `gap` is at most 1e-7, else "feasible"; "greedy"; "failed", where the solver
        stopped without a schedule: all jobs are dropped then.
    method : "highs", "cbc" or "greedy".
    note : what the solver said last.
    seconds : time for everything.
    """

    option: Ints
    schedule: Flags
    objective: float
    bound: float
    status: str
    method: str
    note: str
    seconds: float

    @property
    def gap(self) -> float:
        """(bound - objective) / max(|objective|, 1)."""
        return (self.bound - self.objective) / max(abs(self.objective), 1.0)

    @property
    def dropped(self) -> Ints:
        """Positions of the jobs that no schedule with the others was found for."""
        return np.flatnonzero(self.option < 0)


def solve_leases(
    program: LeaseProgram,
    method: str = "highs",
    *,
    relative_gap: float | None = None,
    time_limit_seconds: float = 5.0,
    tie_break: str = "urgent",
) -> LeaseSolution:
    """The best schedule that keeps all jobs; where there is none, the best of those that keep the most.

    What the options ask of the first slots, which is a small program, says which options to choose and how many GPUs to
    use in slot 0. The most urgent jobs run there, as far as these go; where a schedule to that is found by rule, it is
    optimal. Otherwise the program is solved as it is stated; if it is large, without options that are due before the
    ones chosen: gangs that do not fit beside each other then leave a gap, of 0.1 % in trials.

    Optimal schedules abound, and only slot 0 is carried out before there is another program. "urgent" is as described:
    by least slack (deadline minus leases needed), then more GPUs, then more leases needed, then the order of the
    program. The choice among options of equal value, in later slots, and where the rule finds no schedule, is that of
    the solver. "solver" leaves all of it to the solver, as the published code does, and takes the program as it is
    stated.

    Parameters
    ----------
    program : the jobs.
    method : "highs", "cbc", or "greedy": `formulations.leases.packing.greedy_choice`, which proves nothing.
    relative_gap : the search may stop that close to its bound; None: only where no GPU of slot 0 is left to gain, for
        values that are whole numbers.
    time_limit_seconds : for everything.
    tie_break : "urgent" or "solver".
    """
    for field, found, known in (("tie_break", tie_break, TIE_BREAKS), ("method", method, METHODS)):
        if found not in known:
            raise InputError("lease program", field=field, found=found, expected=", ".join(known))
    return _Search(program, method, relative_gap, time_limit_seconds, urgent=tie_break == "urgent").run()


class _Search:
    """One program in one solver."""

    def __init__(
        self, program: LeaseProgram, method: str, relative_gap: float | None, seconds: float, *, urgent: bool
    ) -> None:
        self.program, self.method, self.urgent = program, method, urgent
        self.started = perf_counter()
        self.until = self.started + seconds
        # half a GPU of slot 0, or half a unit of value where these do not count
        self.step = 0.5 * (abs(program.weight) or 1.0)
        self.whole = relative_gap is None and not (program.option_values % 1.0).any()
        most = np.zeros(program.n_jobs)
        np.maximum.at(most, program.job, program.option_values)
        self.gap = self.step if relative_gap is None else relative_gap * float(np.add.reduce(most))
        self.bound, self.note = np.inf, ""

    def run(self) -> LeaseSolution:
        """The schedule, proof and status."""
        program, J = self.program, self.program.n_jobs
        if self.method == "greedy" or not J:
            return self._solution(*greedy_choice(program), "greedy")
        nothing = np.full(J, -1), np.zeros((J, program.n_slots), dtype=np.bool_)
        if not program.possible.any():
            self.bound, self.note = 0.0, "no deadline can be met"
            return self._solution(*nothing)
        # jobs without a possible option are dropped in any case
        for may_drop in (False, True):
            found, infeasible = self._searched(LeaseRows(program, may_drop=may_drop))
            if found is not None:
                return self._solution(*found)
            if not infeasible:
                break
        self.bound = np.inf
        return self._solution(*nothing, "failed")

    def _searched(self, rows: LeaseRows) -> tuple[tuple[Ints, Flags] | None, bool]:
        """A schedule; and whether it is proven that none exists."""
        program, near = self.program, None
        if self.urgent:
            answer = self._optimise(rows.demands())
            if answer.infeasible:
                return None, True
            if answer.columns is not None:
                option = self._chosen(rows, answer)
                schedule = slot_by_slot(program, option, rows.read_first(answer.columns, option))
                if schedule is not None and self.bound - self._objective(option, schedule) <= self.gap + _ROUNDING:
                    return (option, schedule), False
                near = option if len(rows.job) > _LARGE else None
        stated = rows.stated(near)
        answer, before = self._optimise(stated), self.bound
        columns = None if answer.columns is None else at_vertex(stated, answer.columns, len(answer.columns))
        if columns is None:
            return None, answer.infeasible and near is None
        found = self._chosen(rows, answer), rows.read_schedule(columns)
        if near is not None:
            self.bound = before
        wrong = program.check(*found)
        self.note = wrong or self.note
        return None if wrong else found, False

    def _chosen(self, rows: LeaseRows, answer: LinearAnswer) -> Ints:
        """Options (J,); no schedule that keeps as many jobs has a larger objective than the answer's bound."""
        assert answer.columns is not None
        option = rows.read(answer.columns)
        self.bound = min(self.bound, -answer.bound - rows.keep * int((option >= 0).sum()))
        return option

    def _objective(self, option: Ints, schedule: Flags) -> float:
        value, first_gpus = self.program.worth(option, schedule)
        return value + self.program.weight * first_gpus

    def _optimise(self, mixed: MixedProgram) -> LinearAnswer:
        try:
            answer = solve_mixed(mixed, self.method, StopRule(0.0, self.gap, self.until - perf_counter()))
        except RuntimeError as error:
            answer = LinearAnswer(None, -np.inf, str(error))
        self.note = answer.note
        return answer

    def _solution(self, option: Ints, schedule: Flags, status: str = "") -> LeaseSolution:
        """What was found, with its status by the bound unless it has another one."""
        bound, objective = self.bound, self._objective(option, schedule)
        if self.whole and bound - objective <= self.step + _ROUNDING:
            # objectives are multiples of twice the step
            bound = objective
        bound = max(bound, objective)
        if not status:
            status = "optimal" if bound - objective <= TOLERANCE * max(abs(objective), 1.0) else "feasible"
        seconds = perf_counter() - self.started
        return LeaseSolution(option, schedule, objective, bound, status, self.method, self.note, seconds)
