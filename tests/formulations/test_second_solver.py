"""What CBC makes of a program that is feasible: its eight digits, and preprocessing that goes wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from formulations.columns import ColumnProgram, Rows, Total, solve_columns
from formulations.reference.cbc import run_cbc
from formulations.reference.mixed_integer import RowBuilder, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import Configurations


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_later_objective_has_room_for_the_digits_that_the_solver_leaves_out(solver):
    """Thirds as CBC writes them are worth more than the optimum: with a row that asks for so much there is no point."""
    columns = Configurations(
        [0, 0, 0, 1, 1],
        [0, 0, 1, 0, 1],
        [1, 2, 1, 1, 4],
        [1.5, 0.0, 1.5, 3.0, 3.5],
        partner=[1, -1, 1, 2, -1],
        partner_rate=[2.0, 0.0, 2.0, 2.0, 0.0],
        jobs=range(3),
        pools=["a", "b"],
    )
    rows = Rows([[1, 1, -1, 1, 0], [1, 0, 0, 1, 1]], [-np.inf, -1.0], [1.0, 1.0])
    program = ColumnProgram(columns, [5, 5], rows=rows)
    goals = [Total(np.array([3.0, 5.0, 1.0, 5.0, -2.0])), Total(np.array([4.0, 5.0, 1.0, -2.0, -1.0]))]
    found = solve_columns(program, goals, solver=solver)
    assert [stage.objective for stage in found.stages] == pytest.approx([7.0, 7 / 3], abs=1e-6)


def test_a_point_that_does_not_keep_the_rows_gives_way_to_one_that_does():
    """CBC 2.10 calls (1, 1, 0) optimal, although the second row allows one of the two."""
    matrix = csr_array(np.array([[-1.0, 1.0, -1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]))
    rows = (np.array([-1.0, -np.inf, -np.inf, -np.inf]), np.array([0.0, 1.0, 2.0, 1.0]))
    cost, ones = np.array([0.0, 0.5, -1.0]), np.ones(3)
    found = run_cbc(matrix, cost, rows, lower=0 * ones, upper=ones, maximise=True, whole=ones.astype(bool))
    assert (matrix @ found.columns <= rows[1]).all()
    assert cost @ found.columns == 0.0
    assert found.proven


def subset_sum(n_jobs: int, seed: int) -> tuple[ColumnProgram, Total]:
    """Even gangs, worth what they are wide and a little more, and odd numbers of GPUs: a long search."""
    rng = np.random.default_rng(seed)
    gpus = 2 * rng.integers(3, 40, (n_jobs, 3))
    job, pool = np.divmod(np.arange(gpus.size), 3)
    ways = Configurations(job, pool, gpus.ravel(), gpus.ravel() * 1.0, jobs=range(n_jobs), pools=("a", "b", "c"))
    return ColumnProgram(ways, [423, 615, 803], whole=True), Total(gpus.ravel() + rng.random(gpus.size))


@pytest.mark.parametrize("seed", range(2))
def test_128_jobs_come_back_with_what_is_proven(seed: int) -> None:
    """However little time there is, the bound of the relaxation stands, and the status says what the gap is."""
    program, goal = subset_sum(128, seed)
    best = solve_columns(program, goal, solver="highs")
    found = solve_columns(program, goal, solver="cbc", seconds=2.0)
    assert best.status == "optimal"
    assert found.objective <= best.objective * (1 + 1e-9)
    assert found.bound >= best.objective * (1 - 1e-9)
    assert found.gap <= 0.1
    assert found.status == ("optimal" if found.gap <= 1e-7 else "feasible")


@pytest.mark.parametrize("rule", [StopRule(0.0, 5.0), StopRule(0.05, 0.0), StopRule(0.0, 0.0)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_both_solvers_stop_by_the_same_rule(seed: int, rule: StopRule) -> None:
    """An answer is as near to the optimum as the gaps say, and so is its bound, whoever gives it."""
    rng = np.random.default_rng(seed)
    rows = RowBuilder(12)
    rows.add(2, [(np.arange(2)[:, None], np.arange(12)[None, :], rng.integers(3, 30, (2, 12)))], -np.inf, 75.0)
    ones = np.ones(12)
    program = rows.program(-rng.uniform(3, 30, 12), 0 * ones, ones, ones.astype(bool))
    exact = solve_mixed(program, "highs", StopRule(0.0, 0.0))
    optimum = float(program.cost @ exact.columns)
    for solver in ("highs", "cbc"):
        found = solve_mixed(program, solver, rule)
        cost = float(program.cost @ found.columns)
        allowed = rule.distance(cost) + 1e-6
        assert optimum - 1e-6 <= cost <= optimum + allowed
        assert found.bound <= optimum + 1e-6
        assert cost - found.bound <= allowed * 1.1


def test_a_rule_is_the_same_in_the_words_of_both() -> None:
    """No solver has a gap or a limit of its own."""
    rule = StopRule(1e-3, 0.5, math.inf)
    assert list(rule.for_highs().values()) == list(rule.for_cbc().values())
    assert rule.limit < math.inf
    assert StopRule(seconds=-1.0).limit > 0
