"""What is asked of the first slots, where that is all there is to feasibility: gangs of one GPU in equal slots."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.leases import draw_program
from formulations.leases import LeaseProgram, slot_by_slot, solve_leases
from formulations.leases.demands import demands, first_slot
from formulations.reference.mixed_integer import solve_mixed
from formulations.reference.stopping import StopRule
from tests.formulations.test_leases import enumerated, small_programs

SECONDS = 60.0


def alike(program: LeaseProgram) -> LeaseProgram:
    """The same with jobs of one GPU and slots of equal numbers of them."""
    ones, equal = np.ones_like(program.gpus), np.full_like(program.capacity, program.capacity[0])
    return replace(program, gpus=ones, capacity=equal)


def least_ranks(program: LeaseProgram, option: np.ndarray, first_gpus: int) -> int:
    """The least sum of ranks in slot 0 over all schedules with these options, and so many GPUs there if they count."""
    slots = list(product((0, 1), repeat=program.n_slots))
    sums = []
    for rows in product(slots, repeat=program.n_jobs):
        schedule = np.array(rows, dtype=bool)
        if program.check(option, schedule) == "":
            gpus = program.worth(option, schedule)[1]
            if not program.weight or gpus == first_gpus:
                sums.append(int(program.ranks(option)[schedule[:, 0]].sum()))
    return min(sums)


@settings(max_examples=30)
@given(small_programs())
def test_demands_are_exact_for_gangs_of_one_gpu_in_equal_slots(drawn: LeaseProgram) -> None:
    program = alike(drawn)
    kept, objective = enumerated(program)
    everybody_can = len(np.unique(program.job[program.possible])) == program.n_jobs
    if everybody_can:
        infeasible = solve_mixed(demands(program).mixed, "highs", StopRule(seconds=SECONDS)).infeasible
        assert infeasible == (kept < program.n_jobs)
    if not kept:
        return
    asked = demands(program, may_drop=kept < program.n_jobs)
    answer = solve_mixed(asked.mixed, "highs", StopRule(seconds=SECONDS))
    assert answer.columns is not None
    option, first_gpus = asked.read(answer.columns)
    assert int((option >= 0).sum()) == kept
    value = float(program.option_values[option[option >= 0]].sum())
    assert value + program.weight * first_gpus == pytest.approx(objective, abs=1e-6)
    first = first_slot(program, option, first_gpus)
    assert first is not None
    runs = solve_mixed(first, "highs", StopRule(seconds=SECONDS)).columns
    assert runs is not None
    schedule = slot_by_slot(program, option, runs > 0.5)
    assert schedule is not None
    assert program.check(option, schedule) == ""
    assert int(program.ranks(option)[schedule[:, 0]].sum()) == least_ranks(program, option, first_gpus)


def test_ranks_go_by_slack_then_gpus_then_leases() -> None:
    program = LeaseProgram(
        np.array([1, 1, 4, 1, 1]),
        np.array([1, 1, 1, 2, 1]),
        np.arange(5),
        np.array([5, 4, 4, 5, 4]),
        np.full(5, 10.0),
        np.full(5, 8),
    )
    # slack 4, and 3 for the others: the widest, the one that needs two leases, then in order
    assert program.ranks(np.arange(5)).tolist() == [4, 2, 0, 1, 3]


@settings(max_examples=20)
@given(small_programs())
def test_answers_with_the_fewest_gangs_early_are_as_good(program: LeaseProgram) -> None:
    if not program.possible.any():
        return
    asked = demands(program, may_drop=True)
    best = solve_mixed(asked.mixed, "highs", StopRule(seconds=5.0))
    again = solve_mixed(asked.fewest_early_gangs(best.columns), "highs", StopRule(seconds=5.0))
    cost = asked.mixed.cost
    assert cost @ again.columns == pytest.approx(cost @ best.columns, abs=1e-5)

    def early_gangs(columns: np.ndarray) -> int:
        chosen, _ = asked.read(columns)
        return sum(
            int(np.count_nonzero((program.job[asked.options] == job) & (asked.options > chosen[job])))
            for job in np.flatnonzero((chosen >= 0) & (program.gpus > 1))
        )

    assert early_gangs(again.columns) <= early_gangs(best.columns)


def test_gangs_alone_are_left_the_most_time() -> None:
    """A gang of two GPUs and a job of one, each with two deadlines of the same value."""
    program = LeaseProgram(
        np.array([2, 1]),
        np.array([1, 1]),
        np.array([0, 0, 1, 1]),
        np.array([2, 4, 2, 4]),
        np.full(4, 10.0),
        np.full(5, 4),
    )
    asked = demands(program, may_drop=True)
    best = solve_mixed(asked.mixed, "highs", StopRule(seconds=SECONDS))
    later = asked.fewest_early_gangs(best.columns)
    assert asked.options[np.flatnonzero(later.cost)].tolist() == [0]
    found = solve_mixed(later, "highs", StopRule(seconds=SECONDS))
    assert asked.read(found.columns)[0][0] == 1


def test_a_program_whose_gangs_do_not_fit_at_first_is_proven() -> None:
    """Of the answers of demands that are equally good, the first has no schedule."""
    drawn = replace(draw_program(400, 90, 112, seed=19), objective="maximize")
    found = solve_leases(drawn, relative_gap=1e-4, time_limit_seconds=60.0)
    assert drawn.check(found.option, found.schedule) == ""
    assert (found.status, found.objective) == ("optimal", 3900.0)
