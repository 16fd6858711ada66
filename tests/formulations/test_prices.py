"""Prices and multipliers: they prove the bound that comes with them, and say what another GPU would bring."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_array

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    PackedPolytope,
    Polytope,
    Solution,
    WaterFilling,
    maximise_packed_ratio,
    maximise_packed_worth,
    maximise_ratio,
    maximise_worth,
    proportional_throughput,
    solve,
    solve_packed,
)
from formulations.levels.water_filling import Hierarchy
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.packed import PackedColumns

KINDS = ("max_min", "makespan", "finish_time", "max_sum", "nash_welfare", "water_filling")
BLOCKS, PER_BLOCK = range(4), 15

STEP = 1e-3
"""GPUs by which capacity is changed."""

ROUNDING = 2e-8
"""Relative error of the difference of two values."""


def polytope_over(rates: np.ndarray, scale_factors: np.ndarray, capacity: np.ndarray) -> Polytope:
    N, M = rates.shape
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], scale_factors)
    return Polytope(PlainColumns(matrix), capacity)


def draw(seed: int, kind: str) -> tuple[Polytope, Objective]:
    """Jobs of all speeds and gangs on fewer GPUs than they want, of which one type or two have none."""
    rng = np.random.default_rng([seed, 31])
    N, M = int(rng.integers(2, 12)), int(rng.integers(2, 6))
    rates = rng.uniform(0.1, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    if rng.random() < 0.3:
        rates[:, 1:][rng.random((N, M - 1)) < 0.3] = 0
    scale_factors = rng.choice([1, 2, 4], N, p=[0.6, 0.3, 0.1])
    capacity = rng.uniform(0.5, 0.5 * N + 1, M)
    capacity[rng.choice(np.arange(1, M), int(rng.integers(1, 3)) if M > 2 else 1, replace=False)] = 0
    weights, steps = rng.uniform(0.5, 3, N), 10.0 ** rng.uniform(2, 4, N)
    units = proportional_throughput(rates, capacity) / scale_factors
    objectives: dict[str, Objective] = {
        "max_min": MaxMin(weights * units),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(rng.uniform(0, 100, N), steps, steps / units * rng.uniform(0.5, 2, N) + 50),
        "max_sum": MaxSum(weights / units),
        "nash_welfare": NashWelfare(weights),
        "water_filling": WaterFilling(units, weights),
    }
    return polytope_over(rates, scale_factors, capacity), objectives[kind]


def with_more(polytope: Polytope, j: int, gpus: float) -> Polytope:
    capacity = polytope.capacity.copy()
    capacity[j] += gpus
    return polytope_over(polytope.rates, polytope.scale_factors, capacity)


def proven_by(polytope: Polytope, objective: Objective, solution: Solution) -> float:
    """The bound that prices and multipliers prove, over all types, those without GPUs included."""
    prices, multipliers = solution.prices, solution.multipliers
    if isinstance(objective, Makespan):
        # seconds saved per GPU, back into growth of the level
        prices = prices / solution.bound**2
    worth = objective.gains if isinstance(objective, MaxSum) else multipliers
    earned = worth[:, None] * polytope.rates - polytope.scale_factors[:, None] * prices
    supply = float(prices @ polytope.capacity + np.maximum(earned.max(axis=1), 0.0).sum())
    match objective:
        case MaxSum():
            return supply
        case NashWelfare():
            B = objective.budgets
            return float((B * np.log(B / multipliers) - B).sum()) + supply
        case Makespan():
            return float(multipliers @ objective.weights) / supply
        case MaxMin():
            return supply / float(multipliers @ objective.weights)
        case WaterFilling():
            return supply / float(multipliers @ (objective.units * objective.weights))
        case FinishTimeFairness():

            def excess(rho: float) -> float:
                left = rho * objective.isolated - objective.elapsed
                used = multipliers > 0
                return float((multipliers * objective.remaining)[used] @ (1.0 / left[used])) - supply

            low = float((objective.elapsed / objective.isolated)[multipliers > 0].max())
            return float(brentq(excess, low * (1 + 1e-15) + 1e-12, 1e9, xtol=1e-14, rtol=1e-14))
    raise TypeError


def size_of(objective: Objective, solution: Solution) -> float:
    """What gaps are relative to."""
    return float(objective.budgets.sum()) if isinstance(objective, NashWelfare) else abs(solution.bound)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", BLOCKS)
def test_prices_and_multipliers_prove_the_bound(kind, block):
    for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        polytope, objective = draw(seed, kind)
        solution = solve(polytope, objective)
        proven = proven_by(polytope, objective, solution)
        assert abs(proven - solution.bound) <= 1e-9 * size_of(objective, solution), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_hard_programs_too(draw_hard, kind):
    """Where capacity is next to nothing, weights span decades or everybody is full."""
    for seed in range(72):
        polytope, objectives = draw_hard(seed)
        types = np.flatnonzero(polytope.capacity > 0)
        part = polytope.restricted(np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1)), types)
        jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
        max_min = objectives["max_min"].take(jobs)
        assert isinstance(max_min, MaxMin)
        units = proportional_throughput(part.rates, part.capacity) / part.scale_factors
        more = {
            "nash_welfare": NashWelfare(max_min.weights / units),
            "water_filling": WaterFilling(units, max_min.weights / units),
        }
        objective = more[kind] if kind in more else objectives[kind].take(jobs)
        solution = solve(part, objective)
        proven = proven_by(part, objective, solution)
        assert abs(proven - solution.bound) <= 1e-8 * size_of(objective, solution), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", BLOCKS)
def test_prices_are_what_more_gpus_bring(kind, block):
    """By differences, for types with and without GPUs; where the value bends, a difference is less than a price."""
    exact = 0
    for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        polytope, objective = draw(seed, kind)
        at = solve(polytope, objective)
        sign = 1 if objective.maximise else -1
        for j in range(len(polytope.capacity)):
            gains = [
                sign * (solve(with_more(polytope, j, STEP * f), objective).objective - at.objective) / (STEP * f)
                for f in (1.0, 2.0)
            ]
            noise = ROUNDING * size_of(objective, at) / STEP
            assert gains[0] <= at.prices[j] * (1 + 1e-3) + noise, f"seed {seed}, type {j}"
            # away from kinks the two say what no difference at all would
            exact += abs(2 * gains[0] - gains[1] - at.prices[j]) <= 1e-2 * at.prices[j] + noise
    assert exact >= 0.95 * sum(
        len(draw(seed, kind)[0].capacity) for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1))
    )


def test_the_first_gpu_of_a_faster_type():
    """Two jobs, ten times as fast on a type of which there is none."""
    polytope = polytope_over(np.array([[1.0, 10.0], [1.0, 10.0]]), np.ones(2, dtype=np.int64), np.array([1.0, 0.0]))
    prices = solve(polytope, MaxSum(np.ones(2))).prices
    np.testing.assert_allclose(prices, [1.0, 10.0], rtol=1e-9)
    np.testing.assert_allclose(solve(polytope, MaxMin(np.ones(2))).prices, [0.5, 5.0], rtol=1e-9)


def test_unknown_where_jobs_would_join():
    """With GPUs of the type the objective would be one over more jobs; a sum counts them at nothing already."""
    rates = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    polytope = polytope_over(rates, np.ones(2, dtype=np.int64), np.array([0.5, 0.0, 0.0]))
    prices = solve(polytope, MaxMin(np.ones(2))).prices
    np.testing.assert_allclose(prices, [1.0, np.nan, 2.0], rtol=1e-9)
    np.testing.assert_allclose(solve(polytope, MaxSum(np.ones(2))).prices, [1.0, 3.0, 2.0], rtol=1e-9)
    nobody = polytope_over(rates, np.ones(2, dtype=np.int64), np.array([0.0, 0.0, 0.0]))
    assert np.isnan(solve(nobody, MaxMin(np.ones(2))).prices).all()


def test_who_is_full_alone_holds_the_water():
    """The first job can never have more than all of its time, whatever the levels above it cost."""
    polytope = polytope_over(np.array([[1.0, 1.0]] * 3), np.ones(3, dtype=np.int64), np.array([2.0, 0.0]))
    solution = solve(polytope, WaterFilling(np.ones(3), np.array([4.0, 1.0, 1.0])))
    assert solution.objective == pytest.approx(0.25)
    np.testing.assert_allclose(solution.prices, 0.0, atol=1e-9)
    np.testing.assert_allclose(solution.multipliers, [0.25, 0.0, 0.0], atol=1e-9)


def test_entities_that_are_full_hold_the_water():
    """An entity of two jobs that have all of their time; the other entity's jobs compete for the rest."""
    hierarchy = Hierarchy(
        np.array([-1, -1]), np.array([8.0, 1.0]), np.zeros(2, dtype=bool), np.array([0, 0, 1, 1, 1]), np.zeros(5)
    )
    polytope = polytope_over(np.array([[2.0]] * 5), np.ones(5, dtype=np.int64), np.array([3.0]))
    solution = solve(polytope, WaterFilling(np.full(5, 2.0), np.ones(5), hierarchy))
    assert solution.bound == pytest.approx(0.25)
    np.testing.assert_allclose(solution.prices, 0.0, atol=1e-9)
    assert float(solution.multipliers @ np.full(5, 2.0)) == pytest.approx(0.25)


def bound_on_worth(polytope: Polytope, worth: np.ndarray, floors: np.ndarray, solution: Solution) -> float:
    earned = worth + solution.multipliers[:, None] * polytope.rates - polytope.scale_factors[:, None] * solution.prices
    earned = np.where(polytope.rates > 0, earned, -np.inf).max(axis=1)
    return float(np.maximum(earned, 0).sum() + polytope.capacity @ solution.prices - solution.multipliers @ floors)


def test_worth_with_floors():
    for seed in range(40):
        polytope, _ = draw(seed, "max_sum")
        rng = np.random.default_rng(seed)
        worth = polytope.rates * rng.uniform(0.2, 2, polytope.rates.shape)
        floors = 0.4 * polytope.throughput(solve(polytope, MaxMin(polytope.rates.max(axis=1))).shares)
        at = maximise_worth(polytope, worth, floors)
        assert bound_on_worth(polytope, worth, floors, at) == pytest.approx(at.bound, rel=1e-9), f"seed {seed}"
        for j in range(len(polytope.capacity)):
            gained = (maximise_worth(with_more(polytope, j, STEP), worth, floors).objective - at.objective) / STEP
            noise = ROUNDING * at.objective / STEP
            assert gained <= at.prices[j] + noise, f"seed {seed}, type {j}"
            assert gained >= at.prices[j] * 0.99 - noise, f"seed {seed}, type {j}"


def test_ratio_with_floors():
    for seed in range(30):
        polytope, _ = draw(seed, "max_sum")
        rng = np.random.default_rng(seed)
        cost = polytope.scale_factors[:, None] * rng.uniform(0.5, 2, len(polytope.capacity))
        floors = 0.4 * polytope.throughput(solve(polytope, MaxMin(polytope.rates.max(axis=1))).shares)
        ones = np.ones(polytope.n_jobs)
        at = maximise_ratio(polytope, ones, cost, floors)
        # prices and multipliers are per unit of cost spent
        spent = float((cost * at.shares).sum())
        scaled = [figures * spent for figures in (at.prices, at.multipliers)]
        earned = polytope.rates * (1 + scaled[1][:, None]) - polytope.scale_factors[:, None] * scaled[0]
        profit = np.where(polytope.rates > 0, earned - at.bound * cost, -np.inf).max(axis=1)
        left = float(np.maximum(profit, 0).sum() + polytope.capacity @ scaled[0] - scaled[1] @ floors)
        assert abs(left) <= 1e-8 * at.bound * spent, f"seed {seed}"
        for j in range(len(polytope.capacity)):
            gained = (maximise_ratio(with_more(polytope, j, STEP), ones, cost, floors).objective - at.objective) / STEP
            noise = ROUNDING * at.objective / STEP
            # a ratio is not concave in capacity
            assert gained <= at.prices[j] * (1 + 5e-3) + noise, f"seed {seed}, type {j}"


def test_ratio_of_a_better_type_is_not_known():
    polytope = polytope_over(np.array([[1.0, 10.0, 0.1]]), np.ones(1, dtype=np.int64), np.array([1.0, 0.0, 0.0]))
    prices = maximise_ratio(polytope, np.ones(1), np.ones((1, 3))).prices
    np.testing.assert_array_equal(prices, [0.0, np.nan, 0.0])


def draw_pairs(seed: int) -> tuple[PackedPolytope, dict[str, Objective]]:
    rng = np.random.default_rng([seed, 77])
    N, G, M = int(rng.integers(2, 9)), int(rng.integers(1, 5)), int(rng.integers(2, 4))
    alone = rng.uniform(0.1, 1, (G, M)) * 10.0 ** rng.uniform(-1, 1, (G, 1))
    together = alone[:, None, :] * rng.uniform(0.3, 1.0, (G, G, M))
    capacity = rng.uniform(0.3, 0.4 * N, M)
    capacity[int(rng.integers(1, M))] = 0.0
    columns = PackedColumns(rng.integers(0, G, N), alone, together)
    steps = 10.0 ** rng.uniform(2, 4, N)
    fastest = columns.rates.max(axis=1)
    return PackedPolytope(columns, capacity), {
        "max_min": MaxMin(fastest * rng.uniform(0.5, 2, N)),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(rng.uniform(0, 50, N), steps, steps / fastest * rng.uniform(1, 3, N)),
        "max_sum": MaxSum(rng.uniform(0.5, 2, N) / fastest),
        "water_filling": WaterFilling(fastest, rng.uniform(0.5, 2, N)),
    }


def supply_of_pairs(polytope: PackedPolytope, worth: np.ndarray, prices: np.ndarray) -> float:
    """Least ``sum m + c . p`` at which the time m of the jobs of every column pays for it, by simplex."""
    general = polytope.columns.general
    earned = general.rate.T @ worth - general.usage.T @ prices
    time = csr_array(general.time)
    result = linprog(np.ones(time.shape[0]), A_ub=-time.T, b_ub=-earned, bounds=(0, None), method="highs")
    assert result.status == 0
    return float(result.fun) + float(polytope.capacity @ prices)


@pytest.mark.parametrize("kind", ["max_min", "makespan", "finish_time", "max_sum", "water_filling"])
def test_with_pairs(kind):
    exact, asked = 0, 0
    for seed in range(25):
        polytope, objectives = draw_pairs(seed)
        objective = objectives[kind]
        at = solve_packed(polytope, objective)
        prices = at.prices / at.bound**2 if kind == "makespan" else at.prices
        worth = objective.gains if isinstance(objective, MaxSum) else at.multipliers
        supply = supply_of_pairs(polytope, worth, prices)
        match objective:
            case MaxSum():
                proven = supply
            case Makespan():
                proven = float(at.multipliers @ objective.weights) / supply
            case MaxMin():
                proven = supply / float(at.multipliers @ objective.weights)
            case WaterFilling():
                proven = supply / float(at.multipliers @ (objective.units * objective.weights))
            case FinishTimeFairness():
                proven = objective.bound(at.multipliers, supply)
        assert proven == pytest.approx(at.bound, rel=1e-7), f"seed {seed}"
        sign = 1 if objective.maximise else -1
        for j in range(len(polytope.capacity)):
            capacity = polytope.capacity.copy()
            capacity[j] += STEP
            gained = sign * (
                solve_packed(PackedPolytope(polytope.columns, capacity), objective).objective - at.objective
            )
            noise = ROUNDING * abs(at.bound) / STEP
            assert gained / STEP <= at.prices[j] * (1 + 1e-3) + noise, f"seed {seed}, type {j}"
            exact += gained / STEP >= at.prices[j] * 0.95 - noise
            asked += 1
    # a pair that has no time left shares it out between its members in many ways: prices are not unique
    assert exact >= 0.9 * asked


def test_worth_and_ratio_with_pairs():
    for seed in range(15):
        polytope, _ = draw_pairs(seed)
        N, M = polytope.columns.rates.shape
        fair = solve_packed(polytope, MaxMin(polytope.columns.rates.max(axis=1)))
        floors = 0.4 * polytope.throughput(fair.shares, fair.pairs)
        cost = np.random.default_rng(seed).uniform(0.5, 2.0, M)
        for run in (
            lambda p: maximise_packed_worth(p, np.ones(N), floors),  # noqa: B023
            lambda p: maximise_packed_ratio(p, cost, floors),  # noqa: B023
        ):
            at = run(polytope)
            for j in range(M):
                capacity = polytope.capacity.copy()
                capacity[j] += STEP
                gained = (run(PackedPolytope(polytope.columns, capacity)).objective - at.objective) / STEP
                noise = ROUNDING * at.objective / STEP
                # a ratio is not concave in capacity
                assert gained <= at.prices[j] * (1 + 5e-3) + noise, f"seed {seed}, type {j}"
