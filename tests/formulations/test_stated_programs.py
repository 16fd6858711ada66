"""Programs that their author states in cvxpy: as good as our own solvers', and proven only where they are."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from formulations import MaxMin, MaxSum, NashWelfare, Polytope, solve, solve_stated
from formulations.core.solution import InfeasibleError
from formulations.stated import SOLVERS, certificate
from formulations.stated.certificate import ConicForm, lower_bound
from formulations.stated.cones import Cones
from throughputs import InputError, PlainColumns, ThroughputMatrix

Array = NDArray[np.float64]


def polytope_of(n_jobs: int, n_types: int, seed: int, unit: float = 1.0) -> Polytope:
    """Jobs whose steps differ in size by several orders, some closed types, gangs, and scarce GPUs."""
    rng = np.random.default_rng(seed)
    rates = unit * rng.uniform(0.5, 8.0, (n_jobs, n_types)) * 10.0 ** rng.integers(-2, 3, (n_jobs, 1))
    rates[:, 1:][rng.random((n_jobs, n_types - 1)) < 0.2] = 0.0
    sizes = rng.choice([1, 1, 2, 4], n_jobs)
    matrix = ThroughputMatrix(rates, range(n_jobs), [f"type {j}" for j in range(n_types)], sizes)
    return Polytope(PlainColumns(matrix), rng.integers(4, 9, n_types))


def throughput(polytope: Polytope, shares: Any) -> Any:
    return cp.sum(cp.multiply(polytope.rates, shares), axis=1)


def family(polytope: Polytope) -> dict[str, tuple[Any, Any]]:
    """The same programs in cvxpy and as our objectives."""
    weights = polytope.fastest
    budgets = np.linspace(1.0, 3.0, polytope.n_jobs)
    ours = {"max-min": MaxMin(weights), "sum": MaxSum(1.0 / weights), "proportional": NashWelfare(budgets)}

    def stated(of: Any) -> Any:
        return lambda _, shares: (cp.Maximize(of(throughput(polytope, shares))), [])

    return {
        "max-min": (stated(lambda u: cp.min(cp.multiply(1.0 / weights, u))), ours["max-min"]),
        "sum": (stated(lambda u: (1.0 / weights) @ u), ours["sum"]),
        "proportional": (stated(lambda u: budgets @ cp.log(u)), ours["proportional"]),
    }


@pytest.mark.parametrize("name", ["max-min", "sum", "proportional"])
@settings(max_examples=12, deadline=None)
@given(n_jobs=st.integers(1, 14), n_types=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_agrees_with_our_own_solvers(name: str, n_jobs: int, n_types: int, seed: int) -> None:
    polytope = polytope_of(n_jobs, n_types, seed)
    statement, objective = family(polytope)[name]
    found, ours = solve_stated(polytope, statement), solve(polytope, objective)
    assert found.status == ours.status == "optimal"
    scale = max(abs(ours.objective), float(n_jobs) if name == "proportional" else 0.0)
    assert abs(found.objective - ours.objective) <= 3e-7 * scale
    assert polytope.violation(found.shares) <= 1e-9
    assert (found.prices >= 0).all()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_proof_does_not_depend_on_the_unit_of_throughput(unit: float) -> None:
    polytope = polytope_of(9, 3, 4, unit)
    for statement, _ in family(polytope).values():
        found = solve_stated(polytope, statement)
        assert (found.status, found.solver) == ("optimal", "clarabel")


OBJECTIVES = {
    "power": lambda u: cp.Maximize(cp.sum(cp.power(u, 0.7))),
    "root": lambda u: cp.Maximize(cp.sum(cp.sqrt(u))),
    "inverse": lambda u: cp.Minimize(cp.max(cp.inv_pos(u))),
    "target": lambda u: cp.Minimize(cp.sum_squares(u - 0.9)),
    "distance": lambda u: cp.Minimize(cp.norm(u - 0.9)),
    "constant": lambda u: cp.Maximize(1e6 + cp.min(u)),
    "met target": lambda u: cp.Minimize(cp.sum_squares(u - 1e-3)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_of_all_cones_are_proven(name: str) -> None:
    polytope = polytope_of(12, 3, 7)

    def statement(_: Any, shares: Any) -> Any:
        return OBJECTIVES[name](cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))), []

    found = solve_stated(polytope, statement)
    assert found.status == "optimal", found.attempts
    assert abs(found.bound - found.objective) <= 1e-6 * max(abs(found.objective), 1.0)


@pytest.mark.parametrize("attribute", [{}, {"nonneg": True}])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_variables_and_equations_of_the_author(unit: float, attribute: dict[str, bool]) -> None:
    """Max-min through a level of the author's own, the throughput of the first job tied to it."""
    polytope = polytope_of(6, 3, 5, unit)

    def statement(_: Any, shares: Any) -> Any:
        level = cp.Variable(**attribute)
        u = cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))
        return cp.Maximize(level), [u >= level, u[0] == level]

    found = solve_stated(polytope, statement)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(solve(polytope, MaxMin(polytope.fastest)).objective, rel=1e-6)
    levels = polytope.throughput(found.shares) / polytope.fastest
    assert levels.min() == pytest.approx(levels[0], rel=1e-6)


def test_rows_between_jobs_have_their_price() -> None:
    """One GPU, two like jobs, one held to a quarter: what the row takes the other has."""
    polytope = Polytope(PlainColumns(ThroughputMatrix([[2.0], [4.0]], ["a", "b"], ["v100"])), np.array([1]))
    found = solve_stated(polytope, lambda c, x: (c.Maximize(2.0 * x[0, 0] + 4.0 * x[1, 0]), [x[1, 0] <= 0.25]))
    np.testing.assert_allclose(found.shares, [[0.75], [0.25]], atol=1e-8)
    np.testing.assert_allclose(found.prices, [2.0], atol=1e-5)
    assert (found.status, round(found.objective, 6)) == ("optimal", 2.5)


def test_many_cones_that_the_solver_leaves_inexact_are_proven() -> None:
    """Clarabel's own word is "optimal_inaccurate" here."""
    rng = np.random.default_rng(0)
    matrix = ThroughputMatrix(rng.uniform(0.5, 8.0, (300, 4)), range(300), [*"abcd"])
    polytope = Polytope(PlainColumns(matrix), np.array([120, 180, 90, 150]))

    def statement(_: Any, shares: Any) -> Any:
        u = cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))
        return cp.Minimize(cp.max(cp.inv_pos(u))), []

    found = solve_stated(polytope, statement, solver="clarabel")
    level = solve(polytope, MaxMin(polytope.fastest)).objective
    assert found.status == "optimal"
    assert found.objective == pytest.approx(1.0 / level, rel=1e-6)


def recorded(monkeypatch: pytest.MonkeyPatch, polytope: Polytope, statement: Any) -> tuple[ConicForm, Array, Array]:
    """Conic form, point and multipliers of a solve."""
    seen: list[tuple[ConicForm, Array, Array]] = []

    def noting(form: ConicForm, point: Array, multipliers: Array) -> tuple[float, Array]:
        seen.append((form, point, multipliers))
        return lower_bound(form, point, multipliers)

    monkeypatch.setattr("formulations.stated.program.lower_bound", noting)
    solve_stated(polytope, statement)
    return seen[0]


@pytest.mark.parametrize("name", ["max-min", "sum", "proportional", "power", "root", "inverse", "target", "distance"])
def test_any_multipliers_prove_a_bound_that_holds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """However far off they are: no proof, or a bound below the optimum (of the program to minimise)."""
    polytope = polytope_of(8, 3, 11)

    def statement(_: Any, shares: Any) -> Any:
        return OBJECTIVES[name](cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))), []

    stated = statement if name in OBJECTIVES else family(polytope)[name][0]
    form, point, multipliers = recorded(monkeypatch, polytope, stated)
    optimum = form.value(point)
    scale = max(abs(optimum), 1.0)
    rng = np.random.default_rng(5)
    proven = 0
    for spread in (1e-9, 1e-6, 1e-3, 0.3, 3.0):
        for _ in range(20):
            noisy = multipliers * rng.lognormal(0.0, spread, len(multipliers)) + spread * rng.normal(
                0.0, 1e-3, len(multipliers)
            )
            bound, _ = lower_bound(form, point, noisy)
            assert bound <= optimum + 1e-8 * scale
            proven += np.isfinite(bound)
    assert proven >= 60


@pytest.mark.parametrize("iterations", [3, 5])
def test_a_solver_that_stops_too_early_has_proven_nothing(monkeypatch: pytest.MonkeyPatch, iterations: int) -> None:
    polytope = polytope_of(8, 3, 11)
    statement, objective = family(polytope)["max-min"]
    monkeypatch.setitem(SOLVERS, "clarabel", ({"max_iter": iterations},))
    found = solve_stated(polytope, statement, solver="clarabel")
    assert found.status == "claimed: user_limit"
    # feasible nevertheless, and what bound there is holds
    assert polytope.violation(found.shares) <= 1e-9
    best = solve(polytope, objective).objective
    assert found.objective <= best * (1 + 1e-9)
    assert not found.bound < best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_an_inexact_answer_holds(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """SCS far from its end, on logarithms of large throughputs."""
    polytope = polytope_of(6, 3, seed, 1e4)
    statement, objective = family(polytope)["proportional"]
    monkeypatch.setitem(SOLVERS, "scs", ({"max_iters": 200},))
    found = solve_stated(polytope, statement, solver="scs")
    best = solve(polytope, objective).objective
    assert found.objective <= best + 1e-6
    assert not found.bound < best - 1e-6


def test_jobs_that_do_not_bind_do_not_stand_in_the_way_of_the_proof() -> None:
    """Their multipliers are next to nothing, and no more than rounding."""
    for seed in range(12):
        polytope = polytope_of(2 + seed % 3, 3, seed)

        def statement(_: Any, shares: Any, polytope: Polytope = polytope) -> Any:
            u = cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))
            return cp.Minimize(cp.max(cp.inv_pos(u))), []

        assert solve_stated(polytope, statement, solver="clarabel").status == "optimal", seed


vectors = st.lists(st.floats(-5.0, 5.0), min_size=9, max_size=9).map(np.array)


@given(vectors)
@example(np.array([0, 0, 0, 0, 0, 5e-174, 0, 0, 0.0]))
@example(np.array([0, 0, 0, 0, 0, 0, -2e-309, 1, 0.0]))
def test_multipliers_are_brought_into_the_dual_cone(z: Array) -> None:
    cones = Cones(equations=1, inequalities=2, second_order=(3,), exponential=1, power=())
    moved = cones.into_dual(z)
    assert moved[0] == z[0]
    assert (moved[1:3] >= 0).all()
    assert moved[3] >= np.hypot(moved[4], moved[5])
    u, v, w = moved[6:]
    assert u <= 0
    assert w >= 0
    assert -u * np.exp(min(v / u - 1, 700.0)) <= w if u < 0 else v >= 0


@given(vectors, st.floats(0.1, 0.9))
@example(np.array([0, 0, 1e-310, 0, 0, 0, 0, 0, 0.0]), 0.5)
def test_multipliers_of_power_cones(z: Array, exponent: float) -> None:
    """Against points of the primal cone: products are never negative."""
    cones = Cones(0, 0, (), 0, (exponent,))
    moved = cones.into_dual(z[:3])
    first, second = np.abs(z[3:5]) + 1e-3
    third = first**exponent * second ** (1 - exponent)
    for sign in (-1.0, 1.0):
        assert moved @ [first, second, sign * third] >= -1e-9 * np.abs(moved).max()


def test_what_is_within_stays() -> None:
    inside = np.array([-3.0, 1.0, 0.0, 2.0, 1.0, -1.0, -1.0, 1.0, 2.0])
    np.testing.assert_array_equal(Cones(1, 2, (3,), 1, ()).into_dual(inside), inside)


def test_semidefinite_rows_and_ecos_are_claims() -> None:
    polytope = polytope_of(4, 2, 1)

    def with_matrix(_: Any, shares: Any) -> Any:
        u = cp.multiply(1.0 / polytope.fastest, throughput(polytope, shares))
        return cp.Maximize(cp.log_det(cp.diag(u))), []

    found = solve_stated(polytope, with_matrix, solver="clarabel")
    assert found.status == "claimed: optimal"
    assert np.isnan([found.bound, found.gap]).all()
    assert found.objective == pytest.approx(
        solve(polytope, NashWelfare(np.ones(4))).objective - np.log(polytope.fastest).sum(), abs=1e-5
    )
    pytest.importorskip("ecos")
    statement, objective = family(polytope)["max-min"]
    by_ecos = solve_stated(polytope, statement, solver="ecos")
    assert (by_ecos.status, by_ecos.solver) == ("claimed: optimal", "ecos")
    assert by_ecos.objective == pytest.approx(solve(polytope, objective).objective, rel=1e-6)


def test_scs_takes_over_where_clarabel_leaves_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    polytope = polytope_of(3, 2, 2)
    asked: list[float] = []

    def first_in_vain(form: ConicForm, point: Array, multipliers: Array) -> tuple[float, Array]:
        asked.append(0.0)
        return (-np.inf, multipliers) if len(asked) <= 2 else certificate.lower_bound(form, point, multipliers)

    monkeypatch.setattr("formulations.stated.program.lower_bound", first_in_vain)
    found = solve_stated(polytope, family(polytope)["sum"][0])
    assert (found.status, found.solver) == ("optimal", "scs")
    assert [attempt.solver for attempt in found.attempts] == ["clarabel", "clarabel", "scs"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (lambda c, x: (c.Maximize(c.sum_squares(x)), []), "concave expression to maximise"),
        (lambda c, x: (c.Maximize(c.sum(x)), [c.sqrt(x[0, 0]) <= 0.5]), "constraint 1.*convex <= concave"),
        (lambda c, x: (c.Maximize(c.sum(x) + c.Variable(boolean=True)), []), "whole or boolean"),
        (lambda c, x: c.Maximize(c.sum(x)), "a pair: the objective, and a list of constraints"),
        (lambda c, x: (c.Maximize(c.sum(x)), None), "a pair: the objective, and a list of constraints"),
        (lambda c, x: (c.Maximize(c.sum(x)), x <= 0.5), "a pair: the objective, and a list of constraints"),
        (lambda c, x: (c.Maximize(c.sum(x)), [x <= 0.5, True]), "constraint 2.*found True, expected a constraint"),
        (lambda c, x: (c.sum(x), []), "Maximize or cvxpy.Minimize"),
    ],
)
def test_what_is_no_convex_program_is_told(statement: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve_stated(polytope_of(3, 2, 0), statement)


def test_rows_that_exclude_each_other_are_told() -> None:
    with pytest.raises(InfeasibleError, match="policy mine: no shares keep all rows"):
        solve_stated(polytope_of(3, 2, 0), lambda c, x: (c.Maximize(c.sum(x)), [c.sum(x) >= 50]), source="policy mine")
    with pytest.raises(InfeasibleError, match="nothing bounds the objective"):
        solve_stated(polytope_of(3, 2, 0), lambda c, x: (c.Maximize(c.sum(x) + c.Variable()), []))


def test_an_unknown_solver_is_told() -> None:
    with pytest.raises(InputError, match="did you mean 'clarabel'"):
        solve_stated(polytope_of(3, 2, 0), family(polytope_of(3, 2, 0))["sum"][0], solver="clarabell")


def test_closed_types_are_not_used_and_no_type_is_an_empty_answer() -> None:
    polytope = polytope_of(10, 4, 3)
    found = solve_stated(polytope, lambda c, x: (c.Maximize(c.sum(x)), []))
    assert not found.shares[polytope.rates == 0].any()
    none = Polytope(polytope.columns, np.zeros(4))
    assert solve_stated(none, lambda c, x: (c.Maximize(c.sum(x)), [])).status == "empty"
