"""Solving the lease program: HiGHS, CBC through PuLP, and the greedy that published runs fell back to."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np

from formulations.core.solution import TOLERANCE
from formulations.leases.demands import demands, first_slot
from formulations.leases.packing import greedy_choice, slot_by_slot
from formulations.leases.program import LeaseProgram
from formulations.leases.written import Statement, state
from formulations.reference.mixed_integer import LinearAnswer, MixedProgram, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

METHODS: Final = ("highs", "cbc", "greedy")
TIE_BREAKS: Final = ("urgent", "solver")

_LARGE = 5000
"""Jobs times slots above which the program as it is stated would take more time than it is worth."""

_WHOLE = 1e-6
"""Distance from a whole number up to which a variable counts as whole."""


@dataclass(frozen=True, eq=False)
class LeaseSolution:
    """Which deadlines are promised, and in which slots each job runs.

    Attributes
    ----------
    option : (J,) option of each job, -1 for one that is dropped.
    schedule : (J, T) slots in which each job runs.
    value : sum of the values of the options.
    first_gpus : GPUs that work in slot 0.
    objective : value and weighted GPUs of slot 0.
    bound : no schedule that keeps as many jobs has a larger objective; inf from the greedy.
    gap : (bound - objective) / max(|objective|, 1).
    status : "optimal" where `gap` is at most 1e-7, else "feasible"; "greedy"; "failed", where the solver
        stopped without a schedule: all jobs are dropped then.
    method : "highs", "cbc" or "greedy".
    note : what the solver said last.
    seconds : time for everything.
    """

    option: Ints
    schedule: Flags
    value: float
    first_gpus: int
    objective: float
    bound: float
    gap: float
    status: str
    method: str
    note: str
    seconds: float

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
    use in slot 0, and a second one who runs there; where there is a schedule to that, found by rule if possible, it is
    optimal. Otherwise the program is solved as it is stated or, if it is large, options as good are tried that leave
    gangs the most time, and then those options and the next later one of each job: gangs that do not fit beside each
    other then leave a gap, of 0.1 % in trials.

    Optimal schedules abound, and only slot 0 is carried out before there is another program. Of those with the options
    chosen, "urgent" takes one in which the jobs that run in slot 0 have the least sum of ranks: by least slack
    (deadline minus leases needed), then more GPUs, then more leases needed, then the order of the program. The choice
    among options of equal value, and in later slots, is that of the solver. "solver" leaves all of it to the solver, as
    the published code does, and takes the program as it is stated.

    Parameters
    ----------
    program : the jobs.
    method : "highs", "cbc", or "greedy": `formulations.leases.packing.greedy_choice`, which proves nothing.
    relative_gap : the search may stop that close to its bound; None: only where no GPU of slot 0 is left to gain, for
        values that are whole numbers.
    time_limit_seconds : for everything.
    tie_break : "urgent" or "solver".
    """
    if tie_break not in TIE_BREAKS:
        raise InputError("lease program", field="tie_break", found=tie_break, expected=", ".join(TIE_BREAKS))
    if method not in METHODS:
        raise InputError("lease program", field="method", found=method, expected=", ".join(METHODS))
    started = perf_counter()
    if method == "greedy" or not program.n_jobs:
        option, schedule = greedy_choice(program)
        return _solution(program, option, schedule, np.inf, "greedy", method, "", started)
    return _Search(program, method, relative_gap, started, time_limit_seconds, ranks=tie_break == "urgent").run()


_Schedule = tuple[Ints, Flags]


class _Search:
    """One program in one solver."""

    def __init__(
        self,
        program: LeaseProgram,
        method: str,
        relative_gap: float | None,
        started: float,
        time_limit_seconds: float,
        *,
        ranks: bool,
    ) -> None:
        self.program, self.method, self.ranks = program, method, ranks
        self.started, self.until = started, started + time_limit_seconds
        # half a GPU of slot 0, or half a unit of value where these do not count
        self.step = 0.5 * (abs(program.weight) or 1.0)
        self.most = float(np.abs(program.option_values).sum()) + 1.0
        self.relative_gap = relative_gap
        self.bound = np.inf
        self.note = ""

    def run(self) -> LeaseSolution:
        """The schedule, proof and status."""
        program = self.program
        nobody = np.full(program.n_jobs, -1, dtype=np.int64)
        idle = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
        if not program.possible.any():
            return _solution(program, nobody, idle, 0.0, "optimal", self.method, "no deadline can be met", self.started)
        everybody_can = len(np.unique(program.job[program.possible])) == program.n_jobs
        for may_drop in (False, True) if everybody_can else (True,):
            if self.ranks:
                found, infeasible = self._by_demands(may_drop=may_drop)
                if infeasible:
                    continue
                if found is not None:
                    return self._found(found)
            statement = state(program, may_drop=may_drop)
            found, answer = self._schedule(statement)
            if found is not None:
                self._note_bound(answer, statement.keep, found[0])
                return self._found(self._ranked(statement, found) if self.ranks else found)
            if not answer.infeasible:
                break
        return _solution(program, nobody, idle, np.inf, "failed", self.method, self.note, self.started)

    def _by_demands(self, *, may_drop: bool) -> tuple[_Schedule | None, bool]:
        """A schedule with options and GPUs of slot 0 as demands have them; and whether these prove that none exists."""
        asked = demands(self.program, may_drop=may_drop)
        answer = self._optimise(asked.mixed, asked.keep)
        if answer.columns is None:
            return None, answer.infeasible
        option, first_gpus = asked.read(answer.columns)
        self._note_bound(answer, asked.keep, option)
        found = self._by_slots(option, first_gpus)
        if found is not None:
            return (found if self._proven(found) else None), False
        statement = state(self.program, may_drop=may_drop)
        found = self._schedule(statement.ranked(option, first_gpus))[0]
        if found is None and len(statement.job) > _LARGE:
            again = self._optimise(asked.fewest_early_gangs(answer.columns)).columns
            if again is not None:
                as_good = asked.read(again)
                found = self._by_slots(*as_good) or self._schedule(statement.ranked(*as_good))[0]
            if found is None:
                near = self._schedule(statement.near(option))[0]
                found = None if near is None else self._ranked(statement, near)
            return found, False
        return (found if found is not None and self._proven(found) else None), False

    def _by_slots(self, option: Ints, first_gpus: int) -> _Schedule | None:
        """A schedule by rule, once demands say who is to run in slot 0; None where the rule finds none."""
        asked = first_slot(self.program, option, first_gpus)
        columns = None if asked is None else self._optimise(asked, presolve=False).columns
        if columns is None or not _is_whole(columns):
            return None
        schedule = slot_by_slot(self.program, option, columns > 0.5)
        return None if schedule is None or self.program.check(option, schedule) else (option, schedule)

    def _note_bound(self, answer: LinearAnswer, keep: float, option: Ints) -> None:
        """Take over a bound on the objective of schedules that keep as many jobs as `option`."""
        self.bound = min(self.bound, -answer.bound - keep * int((option >= 0).sum()))

    def _proven(self, found: _Schedule) -> bool:
        objective = _objective(self.program, *self.program.worth(*found))
        allowed = self.step if self.relative_gap is None else self.relative_gap * max(abs(objective), 1.0)
        return bool(self.bound - objective <= allowed + _WHOLE)

    def _ranked(self, statement: Statement, found: _Schedule) -> _Schedule:
        """A schedule as good as the one found, whose jobs in slot 0 rank first."""
        by_slots = self._by_slots(found[0], self.program.worth(*found)[1])
        if by_slots is not None:
            return by_slots
        again, _ = self._schedule(statement.ranked(found[0], self.program.worth(*found)[1]))
        return found if again is None else again

    def _found(self, found: _Schedule) -> LeaseSolution:
        program = self.program
        if self.relative_gap is None and self._proven(found) and not (program.option_values % 1.0).any():
            # objectives are multiples of twice the step
            self.bound = _objective(program, *program.worth(*found))
        return _solution(program, *found, self.bound, "optimal", self.method, self.note, self.started)

    def _schedule(self, statement: Statement) -> tuple[_Schedule | None, LinearAnswer]:
        """Options and schedule, checked; None without any."""
        answer = self._optimise(statement.mixed, statement.keep)
        if answer.columns is not None and not _is_whole(answer.columns):
            answer = self._optimise(statement.in_binaries, statement.keep)
        if answer.columns is None or not _is_whole(answer.columns):
            return None, answer
        found = statement.read(answer.columns)
        self.note = self.program.check(*found) or self.note
        return (None if self.program.check(*found) else found), answer

    def _optimise(self, mixed: MixedProgram, keep: float = 0.0, *, presolve: bool = True) -> LinearAnswer:
        # the gap is one of the objective without what keeping jobs counts
        gap = self.step / self.most if self.relative_gap is None else self.relative_gap
        gap *= self.most / (self.most + keep * self.program.n_jobs)
        try:
            answer = solve_mixed(
                mixed, self.method, StopRule(gap, seconds=self.until - perf_counter()), presolve=presolve
            )
        except RuntimeError as error:
            answer = LinearAnswer(None, -np.inf, str(error))
        self.note = answer.note
        return answer


def _is_whole(columns: Floats) -> bool:
    return bool(np.abs(columns - np.rint(columns)).max(initial=0.0) <= _WHOLE)


def _objective(program: LeaseProgram, value: float, first_gpus: int) -> float:
    return value + program.weight * first_gpus


def _solution(
    program: LeaseProgram,
    option: Ints,
    schedule: Flags,
    bound: float,
    status: str,
    method: str,
    note: str,
    started: float,
) -> LeaseSolution:
    value, first = program.worth(option, schedule)
    objective = _objective(program, value, first)
    bound = max(bound, objective)
    gap = (bound - objective) / max(abs(objective), 1.0)
    status = "feasible" if status == "optimal" and gap > TOLERANCE else status
    seconds = perf_counter() - started
    return LeaseSolution(option, schedule, value, first, objective, bound, gap, status, method, note, seconds)
