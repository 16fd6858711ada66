"""The published points: where ECOS stops, stated without cvxpy, and bisected."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from allocator.published.gavel import points
from allocator.published.gavel.points import bisected_makespan
from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, proportional_throughput, solve
from formulations.core.solution import NotAcceptedError
from formulations.levels.hierarchy import Filling, Hierarchy
from formulations.levels.water_filling import WaterLevel
from formulations.reference import convex
from formulations.solving.backends import Backend
from formulations.statements.shares import Times, goal
from tests.formulations.programs import draw_contended, draw_hard, feasible, polytope_of


@pytest.fixture
def _ecos():
    pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")


def draw_crowd(seed):
    """Up to 60 jobs on three types: classes of identical jobs, zeros, gangs, loose and tight capacity."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(1, 61))
    rates = rng.uniform(0.01, 1, (N, 3)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    if rng.random() < 0.4:
        rates[rng.random((N, 3)) < 0.2] = 0
        rates[~rates.any(axis=1), 0] = 1.0
    if rng.random() < 0.5:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, int((3 * N + 2) * 10 ** rng.uniform(-1, 0.3)) + 2, 3)
    weights = rng.choice([1.0, 1.0, 5.0], N)
    return polytope_of(rates, scale_factors, capacity), {
        "max_min": MaxMin(weights * proportional_throughput(rates, capacity) / scale_factors),
        "makespan": Makespan(10.0 ** rng.uniform(2, 6, N)),
        "max_sum": MaxSum(np.ones(N)),
    }


def stated(polytope, goal_of, *rows_of):
    """Where ECOS ends through cvxpy, and its multipliers.

    The original writes ``x >= 0`` as its first row; of a variable that is declared so, cvxpy makes the last one.
    """
    x = cp.Variable(polytope.rates.shape, name="x")
    times = Times(polytope, x)
    problem = cp.Problem(goal_of(times.u), [x >= 0, *times.rows(polytope.capacity), *(row(times.u) for row in rows_of)])
    shares = convex.point_of(problem, "ECOS")
    prices, of_time = (row.dual_value for row in problem.constraints[1:3])
    return convex.answer_of(polytope, shares, prices, of_time, problem.solver_stats.num_iters)


@pytest.mark.usefixtures("_ecos")
def test_the_programs_are_those_that_cvxpy_makes():
    """Of every objective, and of the makespan's bisection: the same answer to the last digit."""
    for seed in range(12):
        polytope, objectives = draw_crowd(seed)
        ages = np.random.default_rng(seed).uniform(10.0, 90.0, (3, polytope.n_jobs))
        for objective in (*objectives.values(), FinishTimeFairness(*ages)):
            found, same = points.solve(polytope, objective), stated(polytope, partial(goal, objective))
            assert found.iterations == same.iterations, f"seed {seed}"
            for name in ("shares", "multipliers", "prices"):
                np.testing.assert_array_equal(getattr(found, name), getattr(same, name), err_msg=f"seed {seed}")
        seconds = bisected_makespan(solve(polytope, objectives["makespan"]).objective)
        floors = objectives["makespan"].demand(1.0 / seconds)
        point = points.feasible_point(polytope, floors)
        same = stated(polytope, lambda _: cp.Maximize(1), lambda u, floors=floors: u >= floors)
        np.testing.assert_array_equal(point, same.shares, err_msg=f"seed {seed}")
        assert polytope.violation(point) <= 1e-8, f"seed {seed}"
        assert (polytope.throughput(point) >= floors * (1 - 1e-7)).all(), f"seed {seed}"


@pytest.mark.usefixtures("_ecos")
def test_what_ecos_cannot_solve_is_refused():
    polytope = polytope_of(np.ones((2, 2)), None, [1, 1])
    with pytest.raises(RuntimeError, match="infeasible"):
        points.feasible_point(polytope, np.array([2.0, 0.5]))
    filling = Filling(Hierarchy.flat(2), *np.ones((3, 2)))
    level = WaterLevel(np.ones(2), np.zeros(2), filling, np.arange(2))
    with pytest.raises(NotAcceptedError, match="WaterLevel"):
        points.solve(polytope, level)


@pytest.mark.parametrize("missing", [False, True])
def test_a_published_point_is_that_of_ecos_where_it_is_installed(missing, monkeypatch):
    """There is a warning where it is not, and the point of another interior point method."""
    if missing:
        monkeypatch.setattr(
            Backend, "missing", property(lambda backend: backend.requires if backend.name == "ecos" else ())
        )
    else:
        pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")
    polytope, objectives = draw_crowd(0)
    for objective in objectives.values():
        with pytest.warns(UserWarning, match="ecos") if missing else nullcontext():
            found = solve(polytope, objective, choice="published")
        feasible(polytope, found)
        if not isinstance(objective, Makespan):
            assert (found.solver != "ecos") is missing
            assert found.gap <= 1e-6


def test_bisection_replays_without_programs():
    """It ends at a feasible time within 5 % of the optimum, and its point keeps it."""
    for makespan in (101.0, 5_000.0, 26_276.2, 999_999.0, 3e6, 4.2e8):
        assert makespan <= bisected_makespan(makespan) <= 1.05 * makespan * (1 + 1e-12)
    assert bisected_makespan(10.0) <= 105.1
    # from 100 s and 10^6 s, halving until the feasible end is within 5 % of the other
    assert bisected_makespan(400_000.0) == pytest.approx(406_309.375)
    for seed in range(6):
        for draw in (draw_contended, draw_hard):
            polytope, objectives = draw(seed)
            exact = solve(polytope, objectives["makespan"])
            if exact.status == "empty":
                continue
            found = solve(polytope, objectives["makespan"], choice="published")
            feasible(polytope, found)
            assert exact.objective * (1 - 1e-9) <= found.objective <= bisected_makespan(exact.objective) * (1 + 1e-6)
