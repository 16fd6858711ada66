"""Programs that their author states in cvxpy: as good as our own solvers', and proven only where they are."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations import MaxMin, MaxSum, NashWelfare, Polytope, solve, solve_stated
from formulations.stated import SOLVERS
from formulations.stated.certificate import lower_bound
from tests.formulations.programs import feasible, polytope_of


def draw(n_jobs, n_types, seed, unit=1.0):
    """Jobs whose steps differ in size by several orders, some closed types, gangs, and scarce GPUs."""
    rng = np.random.default_rng(seed)
    rates = unit * rng.uniform(0.5, 8.0, (n_jobs, n_types)) * 10.0 ** rng.integers(-2, 3, (n_jobs, 1))
    rates[:, 1:][rng.random((n_jobs, n_types - 1)) < 0.2] = 0.0
    return polytope_of(rates, rng.choice([1, 1, 2, 4], n_jobs), rng.integers(4, 9, n_types))


GOALS = {
    "max-min": lambda u, budgets: cp.Maximize(cp.min(u)),  # noqa: ARG005
    "sum": lambda u, budgets: cp.Maximize(cp.sum(u)),  # noqa: ARG005
    "proportional": lambda u, budgets: cp.Maximize(budgets @ cp.log(u)),
    "power": lambda u, _: cp.Maximize(cp.sum(cp.power(u, 0.7))),
    "root": lambda u, _: cp.Maximize(cp.sum(cp.sqrt(u))),
    "inverse": lambda u, _: cp.Minimize(cp.max(cp.inv_pos(u))),
    "target": lambda u, _: cp.Minimize(cp.sum_squares(u - 0.9)),
    "distance": lambda u, _: cp.Minimize(cp.norm(u - 0.9)),
    "constant": lambda u, _: cp.Maximize(1e6 + cp.min(u)),
    "met target": lambda u, _: cp.Minimize(cp.sum_squares(u - 1e-3)),
}
OURS = ("max-min", "sum", "proportional", "inverse")


def relative(polytope, shares):
    return cp.multiply(1.0 / polytope.fastest, cp.sum(cp.multiply(polytope.rates, shares), axis=1))


def stated(name, polytope):
    budgets = np.linspace(1.0, 3.0, polytope.n_jobs)
    return lambda _, shares: (GOALS[name](relative(polytope, shares), budgets), [])


def ours(name, polytope):
    """The same optimum by our own solvers, of throughput relative to the fastest type."""
    budgets = np.linspace(1.0, 3.0, polytope.n_jobs)
    if name == "proportional":
        return solve(polytope, NashWelfare(budgets)).objective - float(budgets @ np.log(polytope.fastest))
    found = solve(polytope, MaxSum(1.0 / polytope.fastest) if name == "sum" else MaxMin(polytope.fastest)).objective
    return 1.0 / found if name == "inverse" else found


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=4, deadline=None)
@given(
    n_jobs=st.integers(1, 14),
    n_types=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_agrees_with_our_own_solvers(name, n_jobs, n_types, seed, unit):
    """In any unit of throughput; jobs that do not bind, whose multipliers are rounding, do not stand in the way."""
    polytope = draw(n_jobs, n_types, seed, unit)
    found, best = solve_stated(polytope, stated(name, polytope)), ours(name, polytope)
    assert found.status == "optimal"
    assert abs(found.objective - best) <= 1e-6 * max(abs(best), float(n_jobs) if name == "proportional" else 0.0)
    assert polytope.violation(found.shares) <= 1e-9
    assert not found.shares[polytope.rates == 0].any()
    assert (found.prices >= 0).all()


def recorded(monkeypatch, polytope, statement):
    """The solution with the conic form, point and multipliers that it was proven from."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr("formulations.stated.program.lower_bound", lambda *a: seen.append(a) or lower_bound(*a))
        return solve_stated(polytope, statement), *seen[-1]


@pytest.mark.parametrize(
    "name", [n if k % 3 == 0 else pytest.param(n, marks=pytest.mark.exhaustive) for k, n in enumerate(GOALS)]
)
def test_objectives_of_all_cones_are_proven_and_any_multipliers_prove_a_bound_that_holds(monkeypatch, name):
    """However far off multipliers are: no proof, or a bound below the optimum (of the program to minimise)."""
    polytope = draw(8, 3, 11)
    found, form, point, multipliers = recorded(monkeypatch, polytope, stated(name, polytope))
    assert found.status == "optimal", found.attempts
    assert abs(found.bound - found.objective) <= 1e-6 * max(abs(found.objective), 1.0)
    optimum, rng, proven = form.value(point), np.random.default_rng(5), 0
    for spread in (1e-9, 1e-6, 1e-3, 0.3, 3.0):
        for _ in range(10):
            noise = spread * rng.normal(0.0, 1e-3, len(multipliers))
            bound, _ = lower_bound(form, point, multipliers * rng.lognormal(0.0, spread, len(multipliers)) + noise)
            assert bound <= optimum + 1e-8 * max(abs(optimum), 1.0)
            proven += np.isfinite(bound)
    assert proven >= 30 or name == "met target"


@pytest.mark.parametrize("attribute", [{}, {"nonneg": True}])
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_variables_and_equations_of_the_author(unit, attribute):
    """Max-min through a level of the author's own, the throughput of the first job tied to it."""
    polytope = draw(6, 3, 5, unit)

    def statement(_, shares):
        level, u = cp.Variable(**attribute), relative(polytope, shares)
        return cp.Maximize(level), [u >= level, u[0] == level]

    found = solve_stated(polytope, statement)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(ours("max-min", polytope), rel=1e-6)
    levels = polytope.throughput(found.shares) / polytope.fastest
    assert levels.min() == pytest.approx(levels[0], rel=1e-6)


def test_rows_between_jobs_have_their_price_and_no_type_is_an_empty_answer():
    """One GPU, two like jobs, one held to a quarter: what the row takes the other has."""
    polytope = polytope_of([[2.0], [4.0]], None, [1])
    found = solve_stated(polytope, lambda c, x: (c.Maximize(2.0 * x[0, 0] + 4.0 * x[1, 0]), [x[1, 0] <= 0.25]))
    np.testing.assert_allclose(found.shares, [[0.75], [0.25]], atol=1e-8)
    np.testing.assert_allclose(found.prices, [2.0], atol=1e-5)
    assert (found.status, round(found.objective, 6)) == ("optimal", 2.5)
    none = solve_stated(Polytope(polytope.columns, [0]), lambda c, x: (c.Maximize(c.sum(x)), []))
    assert none.status == "empty"
    feasible(polytope, none)


@pytest.mark.parametrize(
    ("name", "solver", "options", "unit"),
    [
        ("max-min", "clarabel", {"max_iter": 3}, 1.0),
        ("max-min", "clarabel", {"max_iter": 5}, 1.0),
        # far from its end, on logarithms of large throughputs
        *(("proportional", "scs", {"max_iters": 200}, unit) for unit in (1e4, 1e3)),
    ],
)
def test_a_solver_that_stops_too_early_claims_no_more(monkeypatch, name, solver, options, unit):
    polytope = draw(8, 3, 11, unit)
    monkeypatch.setitem(SOLVERS, solver, options)
    found, best = solve_stated(polytope, stated(name, polytope), solver=solver), ours(name, polytope)
    assert solver == "scs" or found.status == "claimed: user_limit"
    assert polytope.violation(found.shares) <= 1e-9
    assert found.objective <= best + 1e-6
    assert not found.bound < best - 1e-6


def test_what_cannot_be_proven_is_claimed():
    polytope = draw(4, 2, 1)
    found = solve_stated(
        polytope, lambda c, x: (c.Maximize(c.log_det(c.diag(relative(polytope, x)))), []), solver="clarabel"
    )
    assert found.status == "claimed: optimal"
    assert np.isnan([found.bound, found.gap]).all()
    nash = solve(polytope, NashWelfare(np.ones(4))).objective - np.log(polytope.fastest).sum()
    assert found.objective == pytest.approx(nash, abs=1e-5)


vectors = st.lists(st.floats(-5.0, 5.0), min_size=9, max_size=9).map(np.array)
