"""Leases by rule, worked by hand: order of packing and of the greedy, what a check finds, and what counts as proven."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from formulations.leases import LeaseProgram, greedy_choice, latest_slots, packs, slot_by_slot, solve_leases
from formulations.leases import solver as lease_solver
from formulations.reference.mixed_integer import LinearAnswer
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


def test_of_one_width_who_has_most_leases_left_comes_first() -> None:
    """Slots 3, 2 and 1 of one GPU, from the last one on."""
    program = program_of("1x1<4 1x2<4", "0 1 1 1")
    schedule = slot_by_slot(program, np.arange(2), np.zeros(2, dtype=np.bool_))
    assert schedule is not None
    assert schedule.astype(int).tolist() == [[0, 0, 1, 0], [0, 1, 0, 1]]


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
    # the first option ends with slot 0, the second with slot 1
    late = np.array([[0, 1], [1, 0]], dtype=bool)
    assert two.check(np.array([1, 2]), late) == ""
    for option, schedule, said in (
        ([0, 1], good, "another job"),
        ([0, 2], [[1, 0], [1, 1]], "leases as it needs"),
        ([0, 2], [[0, 0], [0, 1]], "leases as it needs"),
        ([0, -1], good, "leases as it needs"),
        ([0, 2], late, "deadline"),
        ([0, 2], [[1, 0], [1, 0]], "GPUs"),
    ):
        assert said in two.check(np.array(option), np.array(schedule, dtype=bool))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("needed", [1], "needed"),
        ("deadline", [1, 2, 3], "deadline"),
        ("value", [1.0], "value"),
        ("gpus", [0, 1], "gpus"),
        ("needed", [1, 0], "needed"),
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


def test_the_urgency_of_jobs_that_are_dropped_counts_all_slots() -> None:
    """Slack: 2 - 1 of the first; of the second, which has no option, five slots less one lease; 4 - 2 of the third."""
    program = program_of("1x1<2 1x1<1 1x2<4", "1 1 1 1 1")
    assert program.by_urgency(np.array([0, -1, 2])).tolist() == [0, 2, 1]


def test_urgency_gives_way_where_it_would_leave_gpus_idle() -> None:
    """Of slot 0 two GPUs count: the wide job has them, although the other has less slack and leaves no room for it."""
    found = solve_leases(program_of("1x1<2 2x1<3", "2 2 2", objective="maximize"))
    assert (found.status, found.objective, found.schedule[:, 0].tolist()) == ("optimal", 21.0, [False, True])


def test_a_solver_that_fails_has_no_answer(monkeypatch) -> None:
    def fails(*_: Any, **__: Any) -> LinearAnswer:
        raise RuntimeError("out of order")

    monkeypatch.setattr(lease_solver, "solve_mixed", fails)
    found = solve_leases(program_of("1x1<1", "1"))
    assert (found.status, found.option.tolist(), found.note) == ("failed", [-1], "out of order")


def test_wide_gangs_first_finds_what_most_leases_first_does_not() -> None:
    """The last slot alone has room for the gang of three; who needs more leases would take a GPU of it."""
    program = program_of("1x2<4 3x1<4", "0 1 2 3")
    schedule = slot_by_slot(program, np.arange(2), np.zeros(2, dtype=np.bool_))
    assert schedule is not None
    assert schedule.astype(int).tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


def test_urgency_goes_by_slack_then_gpus_then_leases() -> None:
    # slack 4, and 3 for the others: the widest, the one that needs two leases, then in order
    program = program_of("1x1<5 1x1<4 4x1<4 1x2<5 1x1<4", "8 8 8 8 8 8 8 8")
    assert program.by_urgency(np.arange(5)).tolist() == [2, 3, 1, 4, 0]
