"""The lease program: the dumped programs of the published scheduler, small programs by enumeration, and its greedy."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from formulations.leases import LeaseProgram, slot_by_slot, solve_leases

RECORDED = Path(__file__).resolve().parents[1] / "reference" / "chronus" / "lease_programs.json.gz"


def recorded_programs() -> list[dict[str, Any]]:
    """Programs as the public code stated them, with the optimum that Gurobi and HiGHS found."""
    programs: list[dict[str, Any]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return programs


def as_program(recorded: dict[str, Any]) -> LeaseProgram:
    """The same with the options of each job together."""
    number, value, gpus, needed, deadline = (np.array(column) for column in zip(*recorded["options"], strict=True))
    first = number == 0
    slots = max(int(deadline.max()), 1)
    capacity = np.array(recorded["capacity"][:slots])
    job = np.cumsum(first) - 1
    return LeaseProgram(gpus[first], needed[first], job, deadline, value.astype(float), capacity, recorded["objective"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["highs", "cbc"])
@pytest.mark.parametrize("recorded", recorded_programs(), ids=lambda each: each["name"])
def test_optima_of_the_dumped_programs(recorded: dict[str, Any], method: str) -> None:
    program = as_program(recorded)
    found = solve_leases(program, method, time_limit_seconds=60.0)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(recorded["optimum"], abs=1e-6)
    # CBC stops within its gap, half a GPU of slot 0
    assert 0 <= found.bound - found.objective <= 0.5 * (abs(program.weight) or 1.0) + 1e-6
    assert program.check(found.option, found.schedule) == ""
    assert not len(found.dropped)
    if recorded["first_gpus"] is not None and recorded["objective"] != "random":
        assert program.worth(found.option, found.schedule)[1] == recorded["first_gpus"]
    if recorded["other_first"] == 0:
        rows = [int(found.option[j]) for j in np.flatnonzero(found.schedule[:, 0])]
        assert rows == sorted(recorded["first_rows"])


@st.composite
def small_programs(draw: st.DrawFn) -> LeaseProgram:
    jobs = draw(st.integers(1, 3))
    slots = draw(st.integers(1, 4))
    job, deadline, value = [], [], []
    for j in range(jobs):
        dues = sorted(draw(st.sets(st.integers(0, slots), min_size=1, max_size=2)))
        job += [j] * len(dues)
        deadline += dues
        value += [10.0, 7.0][: len(dues)]
    return LeaseProgram(
        np.array([draw(st.sampled_from([1, 2, 3])) for _ in range(jobs)]),
        np.array([draw(st.integers(1, 3)) for _ in range(jobs)]),
        np.array(job),
        np.array(deadline),
        np.array(value),
        np.array([draw(st.integers(1, 4)) for _ in range(slots)]),
        draw(st.sampled_from(["minimize", "maximize"])),
    )


def enumerated(program: LeaseProgram) -> tuple[int, float]:
    """Most jobs kept, and the best objective with so many, over all schedules."""
    ways: list[list[tuple[int, tuple[int, ...]]]] = []
    for j in range(program.n_jobs):
        own: list[tuple[int, tuple[int, ...]]] = [(-1, (0,) * program.n_slots)]
        for r in np.flatnonzero(program.job == j).tolist():
            for slots in product((0, 1), repeat=program.n_slots):
                due = int(program.deadline[r])
                if sum(slots) == program.needed[j] and not any(slots[due:]):
                    own.append((r, slots))
        ways.append(own)
    best = (-1, -np.inf)
    for choice in product(*ways):
        option = np.array([r for r, _ in choice])
        schedule = np.array([slots for _, slots in choice], dtype=bool)
        if program.check(option, schedule) == "":
            value, first = program.worth(option, schedule)
            best = max(best, (int((option >= 0).sum()), value + program.weight * first))
    return best


def least_ranks(program: LeaseProgram, option: NDArray[np.int64], first_gpus: int) -> int:
    """The least sum of ranks in slot 0 over all schedules with these options and so many GPUs there."""
    sums = []
    for rows in product(product((0, 1), repeat=program.n_slots), repeat=program.n_jobs):
        schedule = np.array(rows, dtype=bool)
        if program.check(option, schedule) == "" and program.worth(option, schedule)[1] == first_gpus:
            sums.append(int(np.argsort(program.by_urgency(option))[schedule[:, 0]].sum()))
    return min(sums)


@settings(max_examples=40)
@given(small_programs(), st.sampled_from(["highs", "highs", "cbc"]), st.booleans(), st.booleans())
def test_small_programs_by_enumeration(drawn: LeaseProgram, method: str, alike: bool, uneven: bool) -> None:
    """Most jobs first, even where one is worth more than all others; gangs of one GPU in equal slots, or any."""
    program = drawn
    if alike:
        ones, equal = np.ones_like(drawn.gpus), np.full_like(drawn.capacity, drawn.capacity[0])
        program = replace(program, gpus=ones, capacity=equal)
    if uneven:
        program = replace(program, value=np.where(drawn.job == 0, 1000.0, 1.0) * drawn.value / 10.0)
    kept, objective = enumerated(program)
    for tie_break in ("urgent", "solver"):
        # a machine may stall for longer than the usual limit
        found = solve_leases(program, method, tie_break=tie_break, time_limit_seconds=60.0)
        assert found.status == "optimal" or uneven
        assert program.check(found.option, found.schedule) == ""
        assert int((found.option >= 0).sum()) == kept
        assert found.objective == pytest.approx(objective, abs=1e-6)
        assert objective - 1e-6 <= found.bound <= objective + 0.5 * abs(program.weight) + 1e-6
        if alike and tie_break == "urgent" and kept:
            assert slot_by_slot(program, found.option, found.schedule[:, 0]) is not None
            ranks = int(np.argsort(program.by_urgency(found.option))[found.schedule[:, 0]].sum())
            assert ranks == least_ranks(program, found.option, program.worth(found.option, found.schedule)[1])


@pytest.mark.parametrize("method", ["highs", "cbc"])
def test_one_of_two_jobs_that_do_not_fit_beside_each_other(method: str) -> None:
    """CBC's preprocessing keeps the wide one, which costs a GPU of slot 0 more."""
    columns = [[1, 2], [1, 2], [0, 1], [1, 3]]
    program = LeaseProgram(*map(np.array, columns), np.array([10.0, 10.0]), np.array([2, 1, 2]), "minimize")
    found = solve_leases(program, method)
    assert (found.option.tolist(), found.objective, found.status) == ([0, -1], 9.5, "optimal")


@settings(max_examples=30)
@given(small_programs())
def test_schedules_made_slot_by_slot_are_schedules(program: LeaseProgram) -> None:
    found = solve_leases(program)
    first = found.schedule[:, 0]
    schedule = slot_by_slot(program, found.option, first)
    if schedule is not None:
        assert program.check(found.option, schedule) == ""
        assert (schedule[:, 0] == first).all()
    # of one slot nothing is left to the rule
    if program.n_slots == 1:
        assert schedule is not None


@settings(max_examples=30)
@given(small_programs())
def test_bounds_where_a_large_program_is_not_searched_to_the_end(program: LeaseProgram) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("formulations.leases.solver._LARGE", 0)
        found = solve_leases(program)
    kept, objective = enumerated(program)
    assert program.check(found.option, found.schedule) == ""
    if int((found.option >= 0).sum()) == kept:
        assert found.objective <= objective + 1e-6
        assert found.bound >= objective - 1e-6
    assert found.status in ("optimal", "feasible")


def test_greedy_takes_the_latest_slots_of_the_most_valuable_option() -> None:
    program = LeaseProgram(
        np.array([1, 2]),
        np.array([2, 1]),
        np.array([0, 0, 1]),
        np.array([2, 4, 2]),
        np.array([10.0, 8.0, 10.0]),
        np.array([2, 2, 2, 2]),
    )
    found = solve_leases(program, "greedy")
    # the wide job comes first and takes slot 1; the other one finds only slot 0 before its first deadline
    assert found.status == "greedy"
    assert found.option.tolist() == [1, 2]
    assert found.schedule.astype(int).tolist() == [[0, 0, 1, 1], [0, 1, 0, 0]]
    assert found.bound == np.inf


def test_a_solver_without_time_says_that_it_failed() -> None:
    recorded = next(each for each in recorded_programs() if each["name"] == "MIX2_first150_minimize_t20")
    program = as_program(recorded)
    found = solve_leases(program, time_limit_seconds=-1.0)
    assert found.status in ("failed", "feasible", "optimal")
    assert (found.status == "failed") == (len(found.dropped) == program.n_jobs)


def test_a_deadline_ends_with_its_slot() -> None:
    """In slot 1 the first deadline is past, however dear slot 0 is."""
    columns = [[1], [1], [0, 0], [1, 3]]
    program = LeaseProgram(*map(np.array, columns), np.array([10.0, 7.0]), np.array([2, 2, 2]), "minimize")
    found = solve_leases(program, tie_break="solver")
    assert (found.status, found.schedule.astype(int).tolist()) == ("optimal", [[1, 0, 0]])
