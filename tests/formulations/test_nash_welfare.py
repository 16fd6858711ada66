"""Logarithmic utilities: the interior point method, prices first, and the certificate that judges both."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxSum, Polytope
from formulations import solve as solve_certified
from formulations.core.certificate import Certificate
from formulations.core.log_certificate import certify_log
from formulations.core.objectives import NashWelfare
from formulations.core.solution import Answer
from formulations.interior_point import log_utilities
from formulations.interior_point.log_utilities import solve
from formulations.interior_point.method import StructuredProgram, solve_structured
from formulations.prices import log_responses
from formulations.prices import log_search as log_prices
from formulations.prices.log_responses import Market, Nearness, Responder, content_hash, states_at
from formulations.prices.log_search import solve_by_prices
from formulations.reference.convex import solve_clarabel
from throughputs import InputError, PlainColumns, ThroughputMatrix


def polytope_of(
    rates: np.ndarray, scale_factors: np.ndarray, capacity: np.ndarray, counts: np.ndarray | None = None
) -> Polytope:
    N, M = rates.shape
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], scale_factors)
    return Polytope(PlainColumns(matrix), capacity, counts)


def draw(seed: int, *, near_zero: bool = True) -> tuple[Polytope, NashWelfare]:
    """Ties, zero columns, equal and proportional types, gangs above capacity, budgets over six decades, classes."""
    rng = np.random.default_rng(seed)
    N, M = int(rng.integers(1, 16)), int(rng.integers(1, 6))
    rates = rng.uniform(0.01, 1, (N, M)) * 10.0 ** rng.uniform(-2, 3, (N, 1))
    if rng.random() < 0.4:
        rates = np.maximum(np.round(rates, 1), 0.1)
    if rng.random() < 0.4:
        rates[rng.random((N, M)) < 0.3] = 0
    if rng.random() < 0.3:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    if rng.random() < 0.2:
        rates = rates[:, :1] * rng.choice([0.5, 1, 1, 2], M)
    if M > 1 and rng.random() < 0.2:
        rates[:, 1] = rates[:, 0]
    rates[~(rates > 0).any(axis=1), 0] = 1.0
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, 2 * N + 2, M).astype(float)
    if near_zero and rng.random() < 0.2:
        capacity[rng.integers(0, M)] = 10.0 ** rng.uniform(-8, -1)
    if near_zero and rng.random() < 0.1:
        capacity *= 10.0 ** rng.uniform(-6, 0)
    budgets = 10.0 ** rng.uniform(-3, 3, N) if rng.random() < 0.4 else rng.choice([1.0, 1.0, 5.0], N)
    counts = None if rng.random() < 0.6 else rng.integers(1, 100, N).astype(float)
    return polytope_of(rates, scale_factors, capacity, counts), NashWelfare(budgets, counts)


def draw_market(seed: int, K: int = 3000, M: int = 3) -> Market:
    """Many distinct classes, with what makes prices hard: ties, zeros, decades of budgets, indifferent jobs."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 1, (M, K)) * 10.0 ** rng.uniform(0, 2, K)
    scale_factors = rng.choice([1.0, 2.0, 4.0, 8.0], K)
    budgets, counts = np.ones(K), np.ones(K)
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


def proven(polytope: Polytope, objective: NashWelfare) -> Certificate:
    certificate = certify_log(polytope, objective, solve(polytope, objective))
    assert certificate.gap <= 1e-7
    assert polytope.violation(certificate.shares) <= 1e-9
    return certificate


def gap_of(market: Market, shares: np.ndarray, prices: np.ndarray) -> float:
    """Gap per budget of shares (K, M), scaled into the polytope."""
    polytope = polytope_of(market.rates.T, market.scale_factors.astype(np.int64), market.capacity, market.counts)
    return certify_log(polytope, NashWelfare(market.budgets, market.counts), Answer(shares, np.zeros(0), prices)).gap


@pytest.mark.parametrize("block", range(10))
def test_agrees_with_clarabel(block):
    """600 programs: the same value where Clarabel proves its own, never a worse one where it does not."""
    accurate = 0
    for seed in range(60 * block, 60 * block + 60):
        polytope, objective = draw(seed)
        ours = proven(polytope, objective)
        total = float(objective.totals.sum())
        try:
            theirs = certify_log(polytope, objective, solve_clarabel(polytope, objective))
        except RuntimeError:
            continue
        assert ours.objective >= theirs.objective - 1e-8 * total, f"seed {seed}"
        assert theirs.objective <= ours.bound + 1e-9 * total, f"seed {seed}"
        if theirs.gap <= 1e-9:
            accurate += 1
            assert ours.objective == pytest.approx(theirs.objective, rel=0, abs=1e-8 * total), f"seed {seed}"
    assert accurate >= 20


def test_proven_on_many_programs():
    """The certificate holds on every draw, and nearly always two orders below what is asked."""
    gaps = [proven(*draw(seed)).gap for seed in range(1000, 1800)]
    assert np.mean(np.array(gaps) <= 1e-9) >= 0.99


def test_unit_of_throughput_shifts_the_value_by_budget_times_log_factor():
    rng = np.random.default_rng(1)
    for seed in range(60):
        polytope, objective = draw(seed, near_zero=False)
        factor = 10.0 ** rng.uniform(-3, 3, polytope.n_jobs)
        scaled = polytope_of(
            polytope.rates * factor[:, None], polytope.scale_factors, polytope.capacity, polytope.counts
        )
        shift = proven(scaled, objective).objective - proven(polytope, objective).objective
        expected = float(objective.totals @ np.log(factor))
        assert shift == pytest.approx(expected, rel=0, abs=2e-7 * float(objective.totals.sum())), f"seed {seed}"


def test_order_of_jobs_and_types_does_not_matter():
    rng = np.random.default_rng(2)
    for seed in range(60):
        polytope, objective = draw(seed, near_zero=False)
        jobs, types = rng.permutation(polytope.n_jobs), rng.permutation(len(polytope.capacity))
        one = proven(polytope, objective)
        other = proven(polytope.restricted(jobs, types), objective.take(jobs))
        total = float(objective.totals.sum())
        assert other.objective == pytest.approx(one.objective, rel=0, abs=1e-7 * total), f"seed {seed}"
        # throughputs are unique, so they agree as far as the gap allows: its square root
        u, v = polytope.throughput(one.shares)[jobs], polytope.rates[jobs][:, types] * other.shares
        heavy = objective.budgets[jobs] > 1e-2 * objective.budgets.max()
        np.testing.assert_allclose(v.sum(axis=1)[heavy], u[heavy], rtol=1e-2, err_msg=f"seed {seed}")


def test_more_gpus_never_hurt():
    for seed in range(60):
        polytope, objective = draw(seed)
        larger = polytope_of(polytope.rates, polytope.scale_factors, polytope.capacity + 1, polytope.counts)
        gained = proven(larger, objective).objective - proven(polytope, objective).objective
        assert gained >= -1e-7 * float(objective.totals.sum()), f"seed {seed}"


def test_identical_jobs_get_identical_throughput():
    for seed in range(60):
        polytope, objective = draw(seed)
        twice = np.repeat(np.arange(polytope.n_jobs), 2)
        answer = proven(polytope.restricted(twice, np.arange(len(polytope.capacity))), objective.take(twice))
        np.testing.assert_array_equal(answer.shares[::2], answer.shares[1::2])


def test_a_class_is_so_many_jobs():
    for seed in range(60):
        polytope, objective = draw(seed)
        counts = np.random.default_rng(seed).integers(1, 5, polytope.n_jobs)
        each = np.repeat(np.arange(polytope.n_jobs), counts)
        one_by_one = polytope_of(polytope.rates[each], polytope.scale_factors[each], polytope.capacity)
        classes = polytope_of(polytope.rates, polytope.scale_factors, polytope.capacity, counts.astype(np.float64))
        jobs = proven(one_by_one, NashWelfare(objective.budgets[each]))
        grouped = proven(classes, NashWelfare(objective.budgets, counts.astype(np.float64)))
        total = float(objective.budgets[each].sum())
        assert grouped.objective == pytest.approx(jobs.objective, rel=0, abs=1e-7 * total), f"seed {seed}"


def test_fewer_jobs_than_gpus_each_get_their_fastest_type():
    rng = np.random.default_rng(3)
    for N in (1, 20, 4000):
        polytope = polytope_of(rng.uniform(0.1, 1, (N, 3)), np.ones(N, dtype=np.int64), np.full(3, N + 1.0))
        certificate = proven(polytope, NashWelfare(rng.uniform(1, 5, N)))
        np.testing.assert_allclose(polytope.throughput(certificate.shares), polytope.rates.max(axis=1), rtol=1e-6)
        np.testing.assert_allclose(certificate.prices, 0.0, atol=1e-6)


def test_one_type_is_split_by_budget():
    """Without time limits the equilibrium of one type is closed form: x_i = B_i c / (s_i sum B)."""
    rates, scale_factors = np.array([[3.0], [7.0], [1.0]]), np.array([1, 4, 2])
    budgets = np.array([1.0, 2.0, 5.0])
    certificate = proven(polytope_of(rates, scale_factors, np.array([1.5])), NashWelfare(budgets))
    np.testing.assert_allclose(certificate.shares[:, 0], budgets * 1.5 / (scale_factors * 8.0), rtol=1e-7)
    np.testing.assert_allclose(certificate.prices, [8.0 / 1.5], rtol=1e-7)


def test_two_jobs_with_opposite_tastes():
    """Each takes the GPU that suits it; the geometric mean is that of its own rates."""
    rates, objective = np.array([[4.0, 1.0], [1.0, 9.0]]), NashWelfare(np.ones(2))
    polytope = polytope_of(rates, np.ones(2, dtype=np.int64), np.ones(2))
    certificate = proven(polytope, objective)
    np.testing.assert_allclose(certificate.shares, np.eye(2), atol=1e-7)
    u = polytope.throughput(certificate.shares)
    assert objective.geometric_mean(u) == pytest.approx(6.0)
    assert objective.value(u) == pytest.approx(np.log(36.0))


def test_prices_are_the_value_of_one_more_gpu():
    rng = np.random.default_rng(4)
    rates, scale_factors, objective = rng.uniform(1, 5, (9, 2)), np.ones(9, dtype=np.int64), NashWelfare(np.ones(9))
    capacity, step = np.array([2.3, 3.1]), 1e-4
    at = proven(polytope_of(rates, scale_factors, capacity), objective)
    for j in range(2):
        more = polytope_of(rates, scale_factors, capacity + step * (np.arange(2) == j))
        assert at.prices[j] == pytest.approx((proven(more, objective).objective - at.objective) / step, rel=1e-2)


def test_equal_types_share_alike():
    """Two pools of one type are one pool; a job's time on them follows their size."""
    rng = np.random.default_rng(5)
    rates = rng.uniform(1, 5, (6, 1)) * np.ones(2)
    certificate = proven(polytope_of(rates, np.ones(6, dtype=np.int64), np.array([1.0, 3.0])), NashWelfare(np.ones(6)))
    np.testing.assert_allclose(certificate.shares[:, 1], 3.0 * certificate.shares[:, 0])
    np.testing.assert_allclose(certificate.prices, certificate.prices[0])


@pytest.mark.parametrize("seed", range(18))
def test_prices_first_equals_interior_point(seed):
    market = draw_market(seed)
    priced = solve_by_prices(market)
    fastest = market.rates.max(axis=0)
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
    assert gap_of(market, priced.shares, priced.prices) <= 1e-9
    assert gap_of(market, point.shares.T, point.prices) <= 1e-9
    np.testing.assert_allclose(priced.prices, point.prices, rtol=1e-5, atol=1e-9 * point.prices.max())
    u, v = ((market.rates.T * shares).sum(axis=1) for shares in (priced.shares, point.shares.T))
    heavy = market.budgets > 1e-2 * market.budgets.max()
    assert np.quantile(np.abs(u / v - 1.0)[heavy], 0.99) <= 1e-4
    assert (priced.shares >= 0).all()
    assert priced.shares.sum(axis=1).max() <= 1 + 1e-7


def test_prices_do_not_depend_on_the_order_of_jobs_or_the_number_of_threads(monkeypatch):
    market = draw_market(6, 40_000, 4)
    order = np.random.default_rng(7).permutation(40_000)
    one, other = solve_by_prices(market), solve_by_prices(market.take(order, market.counts[order]))
    np.testing.assert_allclose(other.prices, one.prices, rtol=1e-8)
    np.testing.assert_allclose(other.shares, one.shares[order], atol=1e-3)
    monkeypatch.setattr(log_responses, "_THREADS", 1)
    single = solve_by_prices(market)
    np.testing.assert_array_equal(single.shares, one.shares)
    np.testing.assert_array_equal(single.prices, one.prices)


def test_interior_point_takes_over_where_prices_do_not_clear(monkeypatch):
    rng = np.random.default_rng(8)
    N = 2500
    polytope = polytope_of(rng.uniform(0.1, 1, (N, 2)), np.ones(N, dtype=np.int64), np.array([300.0, 500.0]))
    monkeypatch.setattr(log_prices, "_ACCEPTED_MISMATCH", -1.0)
    monkeypatch.setattr(log_utilities, "_LEAST_FOR_PRICES", 100)
    proven(polytope, NashWelfare(np.ones(N)))


def test_response_is_the_best_one():
    """No mix of types is better than the closed form, and its multiplier proves so."""
    rng = np.random.default_rng(9)
    for trial in range(40):
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
        for _ in range(50):
            x = rng.dirichlet(np.ones(M + 1), 50)[:, :M]
            with np.errstate(divide="ignore"):
                assert (b * np.log((rates.T * x).sum(axis=1)) - x @ prices <= worth + 1e-9).all()


def test_settled_jobs_keep_their_state():
    rng = np.random.default_rng(10)
    market = draw_market(0, 5000, 4)
    prices, b = np.array([1.9, 2.0, 2.2, 2.5]), market.budgets / market.scale_factors
    response, states = Responder(prices)(market.rates, b), states_at(prices)
    low, high = states.low[response.state], states.high[response.state]
    near = Nearness(prices, prices)(market.rates, b, response)
    for within in (1e-1, 1e-2, 1e-3):
        moved = np.zeros(5000, dtype=bool)
        for _ in range(30):
            other = prices * (1 + within * rng.choice([-1.0, 1.0], 4))
            there, names = Responder(other)(market.rates, b), states_at(other)
            moved |= (names.low[there.state] != low) | (names.high[there.state] != high)
        assert not (moved & (near > within)).any()
        # and few are called undecided for nothing
        assert (near <= within).sum() <= 2 * moved.sum() + 20


def test_hash_depends_on_content_alone_and_spreads():
    rng = np.random.default_rng(11)
    columns = rng.uniform(0, 1, (3, 20_000))
    order = rng.permutation(20_000)
    hashed = content_hash(*columns)
    np.testing.assert_array_equal(content_hash(*columns[:, order]), hashed[order])
    for part in (0.1, 0.5, 0.9):
        assert np.mean(hashed * 2.0**-64 < part) == pytest.approx(part, abs=0.02)


def test_certificate_bounds_every_allocation():
    """Whatever the prices, no feasible allocation is above the bound; at bad ones the gap says so."""
    rng = np.random.default_rng(12)
    for seed in range(40):
        polytope, objective = draw(seed, near_zero=False)
        best = proven(polytope, objective)
        N, M = polytope.rates.shape
        bad = Answer(rng.uniform(0, 1, (N, M)), np.zeros(N), rng.uniform(0, 2, M))
        certificate = certify_log(polytope, objective, bad)
        assert polytope.violation(certificate.shares) <= 1e-12
        assert certificate.bound >= best.objective - 1e-12 * max(abs(best.objective), 1.0)
        assert certificate.objective <= best.bound + 1e-12 * max(abs(best.bound), 1.0)
        assert certificate.gap >= 0


def test_certificate_of_nonsense():
    polytope, objective = draw(0)
    N, M = polytope.rates.shape
    idle = certify_log(polytope, objective, Answer(np.zeros((N, M)), np.zeros(N), np.zeros(M)))
    assert idle.objective == -np.inf
    assert idle.gap == np.inf
    broken = certify_log(polytope, objective, Answer(np.full((N, M), np.nan), np.zeros(N), np.full(M, np.nan)))
    assert broken.gap == np.inf
    assert polytope.violation(broken.shares) == 0


def test_gap_is_free_of_units():
    """Neither the unit of throughput nor that of budgets changes the relative gap."""
    rng = np.random.default_rng(13)
    polytope, objective = draw(3, near_zero=False)
    N, M = polytope.rates.shape
    shares, prices = rng.uniform(0.1, 1, (N, M)), rng.uniform(0, 2, M)
    gap = certify_log(polytope, objective, Answer(shares, np.zeros(N), prices)).gap
    faster = polytope_of(polytope.rates * 1e3, polytope.scale_factors, polytope.capacity, polytope.counts)
    assert certify_log(faster, objective, Answer(shares, np.zeros(N), prices)).gap == pytest.approx(gap)
    richer = NashWelfare(objective.budgets * 50, objective.counts)
    assert certify_log(polytope, richer, Answer(shares, np.zeros(N), prices * 50)).gap == pytest.approx(gap)


def test_objective_says_what_is_wrong():
    with pytest.raises(InputError, match="budgets"):
        NashWelfare(np.array([1.0, 0.0]))
    with pytest.raises(InputError, match="budgets"):
        NashWelfare(np.array([1.0, np.nan]))
    polytope, _ = draw(0)
    with pytest.raises(TypeError, match="MaxSum"):
        solve(polytope, MaxSum(np.ones(polytope.n_jobs)))


def test_the_answer_says_who_gave_it():
    """From 3,000 distinct jobs on, prices come first."""
    for n_jobs, name in ((500, "structured"), (3500, "prices")):
        rng = np.random.default_rng(n_jobs)
        polytope = polytope_of(
            rng.uniform(0.1, 1, (n_jobs, 3)), np.ones(n_jobs, dtype=np.int64), np.full(3, n_jobs / 9)
        )
        solution = solve_certified(polytope, NashWelfare(rng.uniform(0.5, 2, n_jobs)))
        assert solution.solver == name
        assert solution.attempts[-1].solver == name
