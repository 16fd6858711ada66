"""The choice among optima does not depend on how a program is written down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    Polytope,
    WaterFilling,
    proportional_throughput,
    solve,
)
from throughputs import PlainColumns, ThroughputMatrix

SHARES, THROUGHPUTS = 2e-4, 1e-6
"""How far shares, and throughputs beside each job's fastest, may be apart where units round, as documented."""

FLAT = 1e-4
"""The same for throughputs under a sum of logarithms, which is flat at its optimum."""

KINDS = ("max_min", "makespan", "finish_time", "max_sum", "nash_welfare", "water_filling")


def polytope_over(rates: np.ndarray, scale_factors: np.ndarray, capacity: np.ndarray) -> Polytope:
    N, M = rates.shape
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], scale_factors)
    return Polytope(PlainColumns(matrix), capacity)


def draw(seed: int, kind: str) -> tuple[Polytope, Objective]:
    """Distinct jobs; types with ties of capacity, some without GPUs, contended or not."""
    rng = np.random.default_rng([seed, 53])
    N, M = int(rng.integers(1, 14)), int(rng.integers(2, 6))
    rates = rng.uniform(0.05, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    rates[:, 1:][rng.random((N, M - 1)) < 0.2] = 0
    scale_factors = rng.choice([1, 2, 4], N, p=[0.6, 0.3, 0.1])
    capacity = rng.choice([0.0, 1.0, 2.0, 2.0, 3.0, 4.0], M) * max(1, N // 3)
    capacity[0] = max(capacity[0], 1.0)
    units = proportional_throughput(rates, capacity) / scale_factors
    weights, steps = rng.choice([1.0, 2.0, 5.0], N), 10.0 ** rng.uniform(2, 5, N)
    objectives: dict[str, Objective] = {
        "max_min": MaxMin(weights * units),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(rng.uniform(0, 1e3, N), steps, steps / units + rng.uniform(0, 1e3, N)),
        "max_sum": MaxSum(weights / units),
        "nash_welfare": NashWelfare(weights),
        "water_filling": WaterFilling(units, weights),
    }
    return polytope_over(rates, scale_factors, capacity), objectives[kind]


def counted_in(objective: Objective, factor: np.ndarray) -> Objective:
    """The same objective when the throughput of job i is counted in units `factor[i]` times smaller."""
    match objective:
        case MaxMin():
            return type(objective)(objective.weights * factor)
        case FinishTimeFairness():
            return FinishTimeFairness(objective.elapsed, objective.remaining * factor, objective.isolated)
        case MaxSum():
            return MaxSum(objective.gains / factor)
        case WaterFilling():
            return WaterFilling(objective.units * factor, objective.weights)
    return objective


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_order_of_types_and_jobs(kind, seed, data):
    """Any order of types and jobs gives the same shares, to the last bit."""
    polytope, objective = draw(seed, kind)
    N, M = polytope.rates.shape
    jobs = np.array(data.draw(st.permutations(range(N))))
    types = np.array(data.draw(st.permutations(range(M))))
    other = polytope_over(polytope.rates[jobs][:, types], polytope.scale_factors[jobs], polytope.capacity[types])
    one, same = solve(polytope, objective), solve(other, objective.take(jobs))
    np.testing.assert_array_equal(same.shares, one.shares[jobs][:, types])
    np.testing.assert_array_equal(same.prices, one.prices[types])
    np.testing.assert_array_equal(same.multipliers, one.multipliers[jobs])


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_units_of_throughput(kind, seed, data):
    """Other units change the last bits of what is given; shares then agree as far as the choice is resolved."""
    polytope, objective = draw(seed, kind)
    N = polytope.n_jobs
    factor = 10.0 ** np.array(data.draw(st.lists(st.floats(-3, 3), min_size=N, max_size=N)))
    other = polytope_over(polytope.rates * factor[:, None], polytope.scale_factors, polytope.capacity)
    one, same = solve(polytope, objective), solve(other, counted_in(objective, factor))
    np.testing.assert_allclose(same.shares, one.shares, atol=SHARES)
    fastest = polytope.rates.max(axis=1)
    u = polytope.throughput(one.shares) / fastest
    settled = FLAT if kind == "nash_welfare" else THROUGHPUTS
    np.testing.assert_allclose(other.throughput(same.shares) / factor / fastest, u, atol=settled)


def test_capacity_and_gangs_counted_in_pairs(draw_hard):
    """Twice the GPUs of every type for gangs of twice the size are the same program."""
    for seed in range(40):
        polytope, objectives = draw_hard(seed)
        other = polytope_over(polytope.rates, polytope.scale_factors * 2, polytope.capacity * 2)
        for kind, objective in objectives.items():
            u = polytope.throughput(solve(polytope, objective).shares)
            same = polytope.throughput(solve(other, objective).shares)
            fastest = np.maximum(polytope.rates.max(axis=1), 1e-300)
            np.testing.assert_allclose(same / fastest, u / fastest, atol=1e-5, err_msg=f"{kind}, seed {seed}")
