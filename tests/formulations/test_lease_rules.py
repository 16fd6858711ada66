"""Leases by rule, worked by hand: order of packing and of the greedy, what a check finds, and what counts as proven."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from formulations.leases import LeaseProgram, greedy_choice, latest_slots, packs, slot_by_slot, solve_leases
from formulations.leases import solver as lease_solver
from formulations.leases.statement import keep_bonus, state
from formulations.reference.mixed_integer import LinearAnswer, solve_mixed
from formulations.reference.stopping import StopRule
from tests.formulations.test_leases import enumerated, small_programs
from throughputs import InputError


def program_of(said: str, capacity: str, **more: Any) -> LeaseProgram:
    """Jobs as ``2x3<5=10``: two GPUs for three leases, due after five slots, worth 10 (which need not be said)."""
    jobs = [re.fullmatch(r"(\d+)x(\d+)<(-?\d+)=?(\d*)", job).groups("") for job in said.split()]  # type: ignore[union-attr]
    gpus, needed, due = (np.array([int(job[k]) for job in jobs]) for k in range(3))
    value = np.array([float(job[3] or 10) for job in jobs])
    slots = np.array(list(map(int, capacity.split())))
    return LeaseProgram(gpus, needed, np.arange(len(jobs)), due, value, slots, **more)


def test_the_latest_slots_with_room() -> None:
    free = np.array([3, 1, 2, 0, 2])
    # with two GPUs: slots 0, 2 and 4; before the fourth slot 0 and 2
    assert latest_slots(free, 2, 2, 5).tolist() == [2, 4]  # type: ignore[union-attr]
    assert latest_slots(free, 2, 2, 4).tolist() == [0, 2]  # type: ignore[union-attr]
    assert latest_slots(free, 2, 1, 1).tolist() == [0]  # type: ignore[union-attr]
    assert latest_slots(free, 2, 3, 4) is None
    # a deadline that is past is no slot counted from the end
    assert latest_slots(free, 1, 1, -1) is None


@pytest.mark.parametrize(
    ("free", "gpus", "needed", "due"),
    [
        # wide first: the one GPU has slot 0; otherwise it takes slot 1, the only one with two
        ([1, 2], [1, 2], [1, 1], [2, 2]),
        # least slack first: otherwise slot 1 is full when the job that needs both slots comes
        ([2, 2], [1, 1, 1], [1, 1, 2], [2, 2, 2]),
        # of equal slack those due last first: otherwise the first job takes slot 1, and one slot is left for the other
        ([2, 1, 0], [1, 1], [1, 2], [2, 3]),
    ],
)
def test_jobs_are_packed_in_the_published_order(free, gpus, needed, due) -> None:
    columns = (np.array(column) for column in (free, gpus, needed, due))
    assert packs(*columns, np.arange(len(gpus)))


def test_of_a_job_with_several_options_the_tightest_is_packed() -> None:
    """One lease of two slots in which one is free: the job is due after either, and is packed once."""
    one = np.array([1, 1])
    assert packs(np.array([1, 0]), one, one, np.array([1, 2]), np.array([0, 0]))
    assert not packs(np.array([0, 1]), one, one, np.array([1, 2]), np.array([0, 0]))


@pytest.mark.parametrize(
    ("program", "schedule"),
    [
        # most value first
        (program_of("1x1<1=5 1x1<1=10", "1"), [[0], [1]]),
        # of equal value wide ones
        (program_of("1x1<1 2x1<1", "2"), [[0], [1]]),
        # of equal width those with the least slack
        (program_of("1x1<2 1x2<2", "1 1"), [[0, 0], [1, 1]]),
        # of equal slack those due last, which take the last slots
        (program_of("1x1<2 1x2<3", "1 1 1"), [[1, 0, 0], [0, 1, 1]]),
    ],
)
def test_the_order_of_the_greedy(program: LeaseProgram, schedule: list[list[int]]) -> None:
    option, found = greedy_choice(program)
    assert found.astype(int).tolist() == schedule
    assert (option >= 0).tolist() == [any(row) for row in schedule]


def test_who_has_most_leases_left_comes_first() -> None:
    """Slots 3, 2 and 1 of two GPUs, from the last one on: wide gangs first would give slot 3 to the second job."""
    program = program_of("1x2<4 2x1<4", "0 2 2 2")
    schedule = slot_by_slot(program, np.arange(2), np.zeros(2, dtype=np.bool_))
    assert schedule is not None
    assert schedule.astype(int).tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]


def test_who_needs_every_slot_that_is_left_comes_before_wide_gangs() -> None:
    """Where wide gangs come first: in slot 2 the second job needs all slots that are left; the gang of three does not.

    Were most leases first, the second job would have slot 3, and one gang of three no slot at all.
    """
    program = program_of("3x1<4 1x2<4 3x1<3 1x1<3", "0 4 3 3")
    schedule = slot_by_slot(program, np.arange(4), np.zeros(4, dtype=np.bool_))
    assert schedule is not None
    assert schedule.astype(int).tolist() == [[0, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_a_first_slot_that_cannot_be_is_refused() -> None:
    program = program_of("2x1<2 2x1<2", "3 4")
    options = np.arange(2)
    # four GPUs in a slot of three, then a job that does not need a lease any more
    assert slot_by_slot(program, options, np.array([True, True])) is None
    assert slot_by_slot(program, np.array([0, -1]), np.array([False, True])) is None
    # more leases than slots
    assert slot_by_slot(program_of("1x2<2", "0 1"), np.array([0]), np.array([False])) is None


def test_what_a_check_finds() -> None:
    two = LeaseProgram(*map(np.array, ([1, 2], [1, 1], [0, 0, 1], [1, 2, 2])), np.full(3, 10.0), np.array([2, 2]))
    good = np.array([[1, 0], [0, 1]], dtype=bool)
    assert two.check(np.array([0, 2]), good) == ""
    assert two.check(np.array([0, 1]), good) == "an option of another job"
    for bad in ([[1, 0], [1, 1]], [[0, 0], [0, 1]]):
        assert two.check(np.array([0, 2]), np.array(bad, dtype=bool)) == "a job without as many leases as it needs"
    assert two.check(np.array([0, -1]), good) == "a job without as many leases as it needs"
    # the first option ends with slot 0, the second with slot 1
    late = np.array([[0, 1], [1, 0]], dtype=bool)
    assert two.check(np.array([0, 2]), late) == "a lease after the deadline"
    assert two.check(np.array([1, 2]), late) == ""
    assert two.check(np.array([0, 2]), np.array([[1, 0], [1, 0]], dtype=bool)) == "more GPUs than a slot has"


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("needed", [1], "needed"),
        ("deadline", [1, 2, 3], "deadline"),
        ("value", [1.0], "value"),
        ("gpus", [0, 1], "gpus, needed"),
        ("needed", [1, 0], "gpus, needed"),
        ("job", [1, 0], "job"),
        ("job", [0, 0], "job"),
        ("value", [1.0, np.nan], "value"),
        ("value", [1.0, -1.0], "value"),
        ("capacity", [1, -1], "capacity"),
        ("objective", "most", "objective"),
    ],
)
def test_columns_that_are_refused(column: str, value: Any, message: str) -> None:
    good = program_of("1x1<1 1x1<2", "1 1")
    with pytest.raises(InputError, match=message):
        replace(good, **{column: value if isinstance(value, str) else np.array(value)})


def test_ranks_of_jobs_that_are_dropped_count_all_slots() -> None:
    """Slack: 2 - 1 of the first; of the second, which has no option, five slots less one lease; 4 - 2 of the third."""
    program = program_of("1x1<2 1x1<1 1x2<4", "1 1 1 1 1")
    assert program.ranks(np.array([0, -1, 2])).tolist() == [0, 2, 1]


def answers_with(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    def solve(*args: Any, **options: Any) -> LinearAnswer:
        return change(solve_mixed(*args, **options))

    monkeypatch.setattr(lease_solver, "solve_mixed", solve)


@pytest.mark.parametrize("objective", ["minimize", "maximize"])
@pytest.mark.parametrize(("gpus", "status"), [(0.4, "optimal"), (0.9, "feasible"), (3.0, "feasible")])
def test_proven_is_what_is_within_half_a_gpu_of_the_bound(objective, gpus, status, monkeypatch) -> None:
    """Four GPUs: a GPU of slot 0 counts a quarter. The solver says that so many more might be had."""
    program = program_of("1x1<2 2x2<3", "4 4 4", objective=objective)
    answers_with(monkeypatch, lambda answer: replace(answer, bound=answer.bound - 0.25 * gpus))
    found = solve_leases(program)
    assert program.check(found.option, found.schedule) == ""
    assert found.status == status
    assert found.bound - found.objective == pytest.approx(0.25 * gpus, abs=1e-6)
    assert found.gap == pytest.approx((found.bound - found.objective) / found.objective, abs=1e-9)


def test_a_bound_is_one_of_schedules_that_keep_as_many_jobs(monkeypatch) -> None:
    """One of two jobs has to go. What the solver leaves open, 3, is left open of the value of the one that is kept."""
    program = program_of("1x1<1 1x1<1", "1")
    answers_with(monkeypatch, lambda answer: replace(answer, bound=answer.bound - 3.0))
    found = solve_leases(program)
    assert (len(found.dropped), found.status) == (1, "feasible")
    assert found.bound - found.objective == pytest.approx(3.0, abs=1e-6)


def test_the_best_of_all_bounds_counts(monkeypatch) -> None:
    """Gangs of three and two on four GPUs do not fit beside each other, which demands do not see: they bound by 20.

    The gang of two, with two leases, is put off to its second deadline, of value 8. Of that program the solver proves
    less here.
    """
    columns = ([3, 2], [1, 2], [0, 1, 1], [2, 2, 3])
    program = LeaseProgram(*map(np.array, columns), np.array([10.0, 10.0, 8.0]), np.array([4, 4, 4]))
    answers: list[LinearAnswer] = []

    def looser(answer: LinearAnswer) -> LinearAnswer:
        answers.append(answer)
        return replace(answer, bound=answer.bound - 10.0) if len(answers) > 1 else answer

    answers_with(monkeypatch, looser)
    found = solve_leases(program)
    assert (found.option.tolist(), found.status) == ([0, 2], "feasible")
    assert 18.0 <= found.bound <= 20.0
    assert found.bound == pytest.approx(-answers[0].bound)
    monkeypatch.undo()
    proven = solve_leases(program)
    assert (proven.option.tolist(), proven.status) == ([0, 2], "optimal")
    assert proven.bound <= 18.0


def test_parts_of_jobs_of_one_gpu_are_asked_about_again_in_whole(monkeypatch) -> None:
    """A solver may end between vertices, at half of each of two slots."""

    def solve(mixed: Any, *args: Any, **options: Any) -> LinearAnswer:
        answer = solve_mixed(mixed, *args, **options)
        assert answer.columns is not None
        return answer if mixed.whole.all() else replace(answer, columns=np.where(mixed.whole, answer.columns, 0.5))

    monkeypatch.setattr(lease_solver, "solve_mixed", solve)
    found = solve_leases(program_of("1x1<2 1x1<2", "1 1"), tie_break="solver")
    assert (found.status, found.schedule.sum(axis=0).tolist()) == ("optimal", [1, 1])


def test_a_bound_below_the_schedule_is_none(monkeypatch) -> None:
    """As solvers stop within a tolerance, what they call a bound may be passed by what they found."""
    program = program_of("1x1<2 2x2<3", "4 4 4")
    answers_with(monkeypatch, lambda answer: replace(answer, bound=answer.bound + 0.1))
    found = solve_leases(program)
    assert (found.status, found.gap) == ("optimal", 0.0)
    assert found.bound == found.objective == 20.0


@pytest.mark.parametrize("tie_break", ["urgent", "solver"])
def test_columns_that_are_no_schedule_are_not_taken_for_one(tie_break, monkeypatch) -> None:
    """A solver that answers with everybody everywhere, in more leases than are needed: nobody is promised anything."""
    program = program_of("1x1<2 2x2<3", "4 4 4")
    answers_with(monkeypatch, lambda answer: replace(answer, columns=np.ones_like(answer.columns)))
    found = solve_leases(program, tie_break=tie_break)
    assert (found.status, found.option.tolist(), found.bound) == ("failed", [-1, -1], np.inf)
    assert not found.schedule.any()
    assert found.note == "a job without as many leases as it needs"


def test_a_solver_that_fails_has_no_answer(monkeypatch) -> None:
    def fails(*_: Any, **__: Any) -> LinearAnswer:
        raise RuntimeError("out of order")

    monkeypatch.setattr(lease_solver, "solve_mixed", fails)
    found = solve_leases(program_of("1x1<1", "1"))
    assert (found.status, found.option.tolist(), found.note) == ("failed", [-1], "out of order")


@pytest.mark.parametrize("tie_break", ["urgent", "solver"])
def test_time_that_runs_out_is_no_proof_that_somebody_has_to_go(tie_break, monkeypatch) -> None:
    """Without an answer about the program that keeps all, none is asked for that drops some."""
    late = LinearAnswer(None, -np.inf, "Time limit reached")
    answers_with(monkeypatch, lambda _: late)
    found = solve_leases(program_of("1x1<1 1x1<1", "2"), tie_break=tie_break)
    assert (found.status, found.note) == ("failed", "Time limit reached")
    asked: list[bool] = []
    monkeypatch.setattr(lease_solver, "state", lambda program, *, may_drop: asked.append(may_drop) or state(program))
    solve_leases(program_of("1x1<1 1x1<1", "2"), tie_break=tie_break)
    assert asked == [False] * len(asked)


@settings(max_examples=20)
@given(small_programs())
def test_the_most_jobs_are_kept_whatever_they_are_worth(drawn: LeaseProgram) -> None:
    """Where one job is worth far more than all others together, these are kept nevertheless if they are more."""
    value = np.where(drawn.job == 0, 1000.0, 1.0) * np.where(drawn.value == 10.0, 1.0, 0.5)
    program = replace(drawn, value=value)
    kept, objective = enumerated(program)
    for tie_break in ("urgent", "solver"):
        found = solve_leases(program, tie_break=tie_break)
        assert int((found.option >= 0).sum()) == kept
        assert found.objective == pytest.approx(objective, abs=1e-6)


@pytest.mark.parametrize("first_gpus", [0, 1, 2, 3])
def test_gpus_of_the_first_slot_are_held_while_ranks_are_lowered(first_gpus: int) -> None:
    """One GPU and two: by rank alone nobody would run in slot 0."""
    program = program_of("1x1<2 2x1<2", "3 3", objective="maximize")
    ranked = state(program).ranked(np.arange(2), first_gpus)
    columns = solve_mixed(ranked.mixed, "highs", StopRule(seconds=10.0)).columns
    assert columns is not None
    assert program.worth(*ranked.read(columns)) == (20.0, first_gpus)


def test_wide_gangs_first_finds_what_most_leases_first_does_not() -> None:
    """The last slot alone has room for the gang of three; who needs more leases would take a GPU of it."""
    program = program_of("1x2<4 3x1<4", "0 1 2 3")
    schedule = slot_by_slot(program, np.arange(2), np.zeros(2, dtype=np.bool_))
    assert schedule is not None
    assert schedule.astype(int).tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


def test_the_gap_asked_for_is_one_of_the_objective_without_what_keeping_jobs_counts(monkeypatch) -> None:
    """One of two jobs has to go. Keeping one counts 10 x 2 + 2 = 22 on top of values of at most 20: a gap of 0.1 of
    these (and 1, so that it is never of nothing) is one of 0.1 x 21 / (21 + 22 x 2) of all."""
    program = program_of("1x1<1 1x1<1", "1")
    gaps: list[float] = []

    def solve(mixed: Any, method: str, stop: StopRule, **options: Any) -> LinearAnswer:
        gaps.append(stop.relative_gap)
        return solve_mixed(mixed, method, stop, **options)

    monkeypatch.setattr(lease_solver, "solve_mixed", solve)
    found = solve_leases(program, relative_gap=0.1)
    assert (found.status, len(found.dropped)) == ("optimal", 1)
    assert keep_bonus(program) == 22.0
    assert [gap for gap in gaps if gap != 0.1] == pytest.approx([0.1 * 21 / 65])


@pytest.mark.parametrize(("objective", "gpu"), [("minimize", 0.25), ("maximize", 0.25), ("random", 1.0)])
def test_the_gap_asked_for_is_half_a_gpu_of_the_first_slot_or_half_a_unit_of_value(objective, gpu, monkeypatch) -> None:
    """Of the largest value there may be, 10 (of the first option alone where others do not count) or 20, and 1."""
    program = program_of("1x1<2 2x2<3", "4 4 4", objective=objective)
    gaps: list[float] = []

    def solve(mixed: Any, method: str, stop: StopRule, **options: Any) -> LinearAnswer:
        gaps.append(stop.relative_gap)
        return solve_mixed(mixed, method, stop, **options)

    monkeypatch.setattr(lease_solver, "solve_mixed", solve)
    assert solve_leases(program).status == "optimal"
    assert gaps == pytest.approx([0.5 * gpu / (11.0 if objective == "random" else 21.0)] * len(gaps))


def test_gangs_in_the_statement_are_whole() -> None:
    """Three gangs of two on three GPUs in two slots: three halves of a gang in each slot would do."""
    program = program_of("2x1<2 2x1<2 2x1<2", "3 3")
    assert solve_mixed(state(program).mixed, "highs", StopRule(seconds=10.0)).infeasible
    assert len(solve_leases(program).dropped) == 1


def test_options_of_a_neighbourhood() -> None:
    """The option chosen and the next later one of each job."""
    columns = ([1, 1], [1, 1], [0, 0, 0, 1, 1], [1, 2, 3, 2, 3])
    program = LeaseProgram(*map(np.array, columns), np.array([10.0, 8.0, 5.0, 10.0, 8.0]), np.array([1, 1, 1]))
    statement = state(program)
    near = statement.near(np.array([1, 3]))
    assert near.mixed.upper[len(near.job) :].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert statement.mixed.upper.all()


def test_jobs_in_the_first_slot_are_the_most_urgent() -> None:
    found = solve_leases(program_of("1x1<5 1x1<4 1x1<3", "1 3 3 3 3", objective="maximize"))
    assert found.schedule[:, 0].tolist() == [False, False, True]
