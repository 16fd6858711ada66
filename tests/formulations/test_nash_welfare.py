"""Logarithmic utilities: closed forms, the certificate, and prices first where there are many distinct jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxSum, NashWelfare, solve
from formulations.core.log_certificate import certify_log
from formulations.core.solution import Answer
from formulations.interior_point import log_utilities
from formulations.interior_point.method import StructuredProgram, solve_structured
from formulations.prices import log_responses
from formulations.prices import log_search as log_prices
from formulations.prices.log_responses import Market, Responder, states_at
from formulations.prices.log_search import solve_by_prices
from tests.formulations.programs import draw_contended, given, polytope_of, verify


def test_closed_forms():
    """One type is split by budget; opposite tastes each take their own; two pools of one type are one pool."""
    goal = NashWelfare([1.0, 2.0, 5.0])
    one = solve(polytope_of([[3.0], [7.0], [1.0]], [1, 4, 2], [1.5]), goal)
    np.testing.assert_allclose(
        one.shares[:, 0], np.array([1.0, 2.0, 5.0]) * 1.5 / ([1, 4, 2] * np.array(8.0)), rtol=1e-7
    )
    np.testing.assert_allclose(one.prices, [8.0 / 1.5], rtol=1e-7)
    opposite, goal = polytope_of([[4.0, 1.0], [1.0, 9.0]], None, [1, 1]), NashWelfare([1.0, 1.0])
    found = solve(opposite, goal)
    np.testing.assert_allclose(found.shares, np.eye(2), atol=1e-7)
    assert goal.geometric_mean(given(opposite, found)[0]) == pytest.approx(6.0)
    assert found.objective == pytest.approx(np.log(36.0))
    alike = solve(
        polytope_of(np.random.default_rng(5).uniform(1, 5, (6, 1)) * np.ones(2), None, [1, 3]), NashWelfare(np.ones(6))
    )
    np.testing.assert_allclose(alike.shares[:, 1], 3.0 * alike.shares[:, 0])
    np.testing.assert_allclose(alike.prices, alike.prices[0])


@pytest.mark.parametrize("N", [20, 4000])
def test_fewer_jobs_than_gpus_each_get_their_fastest_type(N):
    rng = np.random.default_rng(3)
    polytope = polytope_of(rng.uniform(0.1, 1, (N, 3)), None, np.full(3, N + 1.0))
    found = solve(polytope, NashWelfare(rng.uniform(1, 5, N)))
    np.testing.assert_allclose(given(polytope, found)[0], polytope.rates.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.prices, 0.0, atol=1e-6)


def test_any_shares_and_prices_bound_the_optimum_in_no_unit():
    rng = np.random.default_rng(12)
    for seed in range(20):
        polytope, objectives = draw_contended(seed)
        types = np.flatnonzero(polytope.capacity > 0)
        jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
        polytope, objective = polytope.restricted(jobs, types), objectives["nash_welfare"].take(jobs)
        best, (N, M) = solve(polytope, objective), polytope.rates.shape
        shares, prices, none = rng.uniform(0.1, 1, (N, M)), rng.uniform(0, 2, M), np.zeros(N)
        bad = certify_log(polytope, objective, Answer(shares, none, prices))
        assert polytope.violation(bad.shares) <= 1e-12
        assert bad.bound >= best.objective - 1e-12 * max(abs(best.objective), 1.0)
        assert bad.objective <= best.bound + 1e-12 * max(abs(best.bound), 1.0)
        faster = polytope_of(polytope.rates * 1e3, polytope.scale_factors, polytope.capacity)
        assert certify_log(faster, objective, Answer(shares, none, prices)).gap == pytest.approx(bad.gap)
        richer = certify_log(polytope, NashWelfare(objective.budgets * 50), Answer(shares, none, prices * 50))
        assert richer.gap == pytest.approx(bad.gap)
        assert bad.gap > 0
    idle = certify_log(polytope, objective, Answer(0 * shares, none, 0 * prices))
    assert (idle.objective, idle.gap) == (-np.inf, np.inf)
    broken = certify_log(polytope, objective, Answer(np.nan * shares, none, np.nan * prices))
    assert broken.gap == np.inf
    assert polytope.violation(broken.shares) == 0
    with pytest.raises(TypeError, match="MaxSum"):
        log_utilities.solve(polytope, MaxSum(np.ones(N)))


def draw_market(seed, K=2000, M=3):
    """Many distinct classes, with what makes prices hard: ties, zeros, decades of budgets, indifferent jobs."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 1, (M, K)) * 10.0 ** rng.uniform(0, 2, K)
    scale_factors, budgets, counts = rng.choice([1.0, 2.0, 4.0, 8.0], K), np.ones(K), np.ones(K)
    capacity = np.round(rng.uniform(0.1, 0.9, M) * K / M) + 1
    match seed % 6:
        case 1:
            rates = np.maximum(np.round(rates, 1), 0.1)
        case 2:
            rates[rng.random((M, K)) < 0.3] = 0
            rates[0, ~(rates > 0).any(axis=0)] = 1.0
        case 3:
            budgets = 10.0 ** rng.uniform(-3, 3, K)
        case 4:
            counts = rng.integers(1, 1000, K).astype(float)
            capacity *= counts.mean()
        case 5:
            rates = rng.uniform(0.1, 1, K) * rng.uniform(0.5, 1, (M, 1))
            budgets = rng.uniform(1, 2, K)
    return Market(rates, scale_factors, budgets, counts, capacity)


@pytest.mark.parametrize("seed", range(6))
def test_prices_first_equals_interior_point(seed):
    market = draw_market(seed)
    priced, fastest = solve_by_prices(market), market.rates.max(axis=0)
    point = solve_structured(
        StructuredProgram(
            rates=market.rates / fastest,
            scale_factors=market.scale_factors,
            counts=market.counts,
            capacity=market.capacity,
            budgets=market.budgets,
        ),
        tolerance=1e-11,
    )
    polytope = polytope_of(market.rates.T, market.scale_factors.astype(np.int64), market.capacity, market.counts)
    goal = NashWelfare(market.budgets, market.counts)
    for shares, prices in ((priced.shares, priced.prices), (point.shares.T, point.prices)):
        assert certify_log(polytope, goal, Answer(shares, np.zeros(0), prices)).gap <= 1e-9
    np.testing.assert_allclose(priced.prices, point.prices, rtol=1e-5, atol=1e-9 * point.prices.max())
    u, v = ((market.rates.T * shares).sum(axis=1) for shares in (priced.shares, point.shares.T))
    heavy = market.budgets > 1e-2 * market.budgets.max()
    assert np.quantile(np.abs(u / v - 1.0)[heavy], 0.99) <= 1e-4
    assert (priced.shares >= 0).all()
    assert priced.shares.sum(axis=1).max() <= 1 + 1e-7


def test_prices_do_not_depend_on_the_order_of_jobs_or_the_number_of_threads(monkeypatch):
    market = draw_market(6, 30_000, 4)
    order = np.random.default_rng(7).permutation(30_000)
    one, other = solve_by_prices(market), solve_by_prices(market.take(order, market.counts[order]))
    np.testing.assert_allclose(other.prices, one.prices, rtol=1e-8)
    np.testing.assert_allclose(other.shares, one.shares[order], atol=1e-3)
    monkeypatch.setattr(log_responses, "_THREADS", 1)
    single = solve_by_prices(market)
    np.testing.assert_array_equal(single.shares, one.shares)
    np.testing.assert_array_equal(single.prices, one.prices)


def test_who_is_asked(monkeypatch):
    """From 3,000 distinct jobs on prices come first; the interior point takes over where they do not clear."""
    for N, mismatch, name in ((500, None, "structured"), (3500, None, "prices"), (3500, -1.0, "structured")):
        if mismatch is not None:
            monkeypatch.setattr(log_prices, "_ACCEPTED_MISMATCH", mismatch)
        rng = np.random.default_rng(N)
        polytope, goal = (
            polytope_of(rng.uniform(0.1, 1, (N, 3)), None, np.full(3, N / 9)),
            NashWelfare(rng.uniform(0.5, 2, N)),
        )
        found = solve(polytope, goal)
        assert (found.solver, found.attempts[-1].solver) == (name, name)
        verify(polytope, goal, found)


def test_response_is_the_best_one():
    """No mix of types is better than the closed form, and its multiplier proves so."""
    rng = np.random.default_rng(9)
    for trial in range(30):
        M = int(rng.integers(1, 6))
        prices = np.round(rng.uniform(0, 3, M), int(rng.integers(0, 3)))
        rates, b = np.round(rng.uniform(0, 2, (M, 50)), int(rng.integers(1, 4))), rng.uniform(0.1, 3, 50)
        rates[:, ~(rates > 0).any(axis=0)] = 1.0
        response = Responder(prices)(rates, b)
        shares = states_at(prices).shares(rates, b, response)
        assert shares.min() >= 0
        assert shares.sum(axis=1).max() <= 1 + 1e-12
        worth = b * np.log((rates.T * shares).sum(axis=1)) - shares @ prices
        proof = b * np.log(b / response.multiplier) - b + response.surplus
        np.testing.assert_allclose(worth, proof, atol=1e-9, err_msg=f"trial {trial}")
        for _ in range(20):
            x = rng.dirichlet(np.ones(M + 1), 50)[:, :M]
            with np.errstate(divide="ignore"):
                assert (b * np.log((rates.T * x).sum(axis=1)) - x @ prices <= worth + 1e-9).all()
