"""Random programs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    Objective,
    Polytope,
    isolated_throughput,
    proportional_throughput,
)
from throughputs import PlainColumns, ThroughputMatrix

Draw = Callable[[int], tuple[Polytope, dict[str, Objective]]]


def make_polytope(rates: np.ndarray, scale_factors: np.ndarray, capacity: np.ndarray) -> Polytope:
    N, M = rates.shape
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], scale_factors)
    return Polytope(PlainColumns(matrix), capacity)


def draw_program(seed: int) -> tuple[Polytope, dict[str, Objective]]:
    """Jobs with ties, zero columns, gangs above capacity and weights over six orders of magnitude."""
    rng = np.random.default_rng(seed)
    N, M = int(rng.integers(1, 16)), int(rng.integers(1, 5))
    rates = rng.uniform(0.01, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    if rng.random() < 0.4:
        rates = np.maximum(np.round(rates, 1), 0.1)
    if rng.random() < 0.4:
        rates[rng.random((N, M)) < 0.3] = 0
    if rng.random() < 0.3:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(0 if rng.random() < 0.3 else 1, 2 * N + 2, M)
    capacity[0] = max(capacity[0], 1)
    rates[~(rates[:, capacity > 0] > 0).any(axis=1), 0] = 1.0
    weights = 10.0 ** rng.uniform(-3, 3, N) if rng.random() < 0.4 else rng.choice([1.0, 1.0, 5.0], N)
    steps = 10.0 ** rng.uniform(2, 6, N)
    elapsed = rng.uniform(0, 1e5, N) * (rng.random() < 0.7)
    alone = steps / isolated_throughput(rates, scale_factors, capacity)
    objectives: dict[str, Objective] = {
        "max_min": MaxMin(weights * proportional_throughput(rates, capacity) / scale_factors),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, alone + rng.uniform(0, 1e4, N)),
        "max_sum": MaxSum(np.ones(N)),
    }
    return make_polytope(rates, scale_factors, capacity), objectives


@pytest.fixture
def draw() -> Draw:
    """Program by seed."""
    return draw_program


@pytest.fixture
def polytope_of() -> Callable[[np.ndarray, np.ndarray, np.ndarray], Polytope]:
    """Polytope of rates (N, M), scale factors (N,) and capacity (M,)."""
    return make_polytope


def draw_hard_program(seed: int) -> tuple[Polytope, dict[str, Objective]]:
    """One feature that is hard for a solver, by ``seed % 12``, and now and then some more of them.

    1: one job; 2: one type; 3: next to no capacity of one type; 4: of all; 5: weights over six orders of magnitude;
    6: gangs above capacity; 7: ties of jobs, types and rates; 8: types and jobs with no rate at all; 9: capacity to
    spare; 10: far too little; 11: types of no capacity.
    """
    rng = np.random.default_rng([seed, 2])
    features = {seed % 12, *np.flatnonzero(rng.random(12) < 0.12).tolist()}
    N = 1 if 1 in features else int(rng.integers(2, 15))
    M = 1 if 2 in features else int(rng.integers(2, 6))
    rates = rng.uniform(0.05, 1, (N, M)) * 10.0 ** rng.uniform(-2, 3, (N, 1))
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, N + 3, M).astype(np.float64)
    if 6 in features:
        scale_factors, capacity = rng.choice([4, 8, 16], N), rng.integers(1, 4, M).astype(np.float64)
    if 7 in features:
        rates = np.maximum(np.round(rates, 1), 0.1)
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
        rates[:, rng.integers(0, M)] = rates[:, 0]
        scale_factors[:] = scale_factors[0]
    if 8 in features:
        rates[rng.random((N, M)) < 0.35] = 0.0
        rates[:, M - 1] *= M == 1
        rates[rng.integers(0, N)] *= N == 1
    if 9 in features:
        capacity *= 8.0 * N
    if 10 in features:
        capacity *= 0.05
    if 11 in features:
        capacity[rng.integers(0, M)] = 0.0
    if 3 in features:
        capacity[rng.integers(0, M)] = 10.0 ** rng.uniform(-8, -1)
    if 4 in features:
        capacity *= 10.0 ** rng.uniform(-8, -1)
    capacity[0] = max(capacity[0], 1e-9)
    if not (rates[:, capacity > 0] > 0).any():
        rates[0, 0] = 1.0
    weights = 10.0 ** rng.uniform(-3, 3, N) if 5 in features else rng.choice([1.0, 1.0, 2.0, 5.0], N)
    proportional = proportional_throughput(rates, capacity)
    steps = 10.0 ** rng.uniform(2, 6, N)
    elapsed = rng.uniform(0, 1e5, N) * (rng.random() < 0.7)
    isolated = isolated_throughput(rates, scale_factors, capacity)
    alone = steps / np.where(isolated > 0, isolated, 1.0) + rng.uniform(0, 1e4, N)
    if 7 in features:
        weights, steps, elapsed, alone = (np.full(N, figures[0]) for figures in (weights, steps, elapsed, alone))
    objectives: dict[str, Objective] = {
        "max_min": MaxMin(weights * np.where(proportional > 0, proportional, 1.0) / scale_factors),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, alone),
        "max_sum": MaxSum(weights * (rng.random(N) < 0.9) if rng.random() < 0.3 else weights),
    }
    return make_polytope(rates, scale_factors, capacity), objectives


@pytest.fixture
def draw_hard() -> Draw:
    """Hard program by seed."""
    return draw_hard_program


def draw_many_jobs(seed: int, n_jobs: int) -> tuple[Polytope, dict[str, Objective]]:
    """Many distinct jobs with, by ``seed % 7``: 1 ties of rates, 2 zeros, 3 next to no capacity of one type, 4 weights
    over six orders of magnitude, 5 capacity to spare, 6 wide gangs on few GPUs."""
    rng = np.random.default_rng([seed, 5])
    N, M, feature = n_jobs, int(rng.integers(2, 5)), seed % 7
    rates = rng.uniform(0.05, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, int(N * rng.choice([0.1, 0.5, 1.2])) + 3, M).astype(np.float64)
    weights = rng.choice([1.0, 1.0, 5.0], N)
    if feature == 1:
        rates = np.maximum(np.round(rates, 1), 0.1)
    if feature == 2:
        rates[rng.random((N, M)) < 0.3] = 0.0
        rates[~(rates > 0).any(axis=1), 0] = 1.0
    if feature == 3:
        capacity[rng.integers(0, M)] = 10.0 ** rng.uniform(-6, -1)
    if feature == 4:
        weights = 10.0 ** rng.uniform(-3, 3, N)
    if feature == 5:
        capacity *= 20.0
    if feature == 6:
        scale_factors, capacity = rng.choice([8, 16], N), rng.integers(1, 4, M).astype(np.float64)
    steps, elapsed = 10.0 ** rng.uniform(2, 6, N), rng.uniform(0, 1e5, N) * (rng.random() < 0.7)
    alone = steps / isolated_throughput(rates, scale_factors, capacity) + rng.uniform(0, 1e4, N)
    objectives: dict[str, Objective] = {
        "max_min": MaxMin(weights * proportional_throughput(rates, capacity) / scale_factors),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, alone),
        "max_sum": MaxSum(weights),
    }
    return make_polytope(rates, scale_factors, capacity), objectives


@pytest.fixture
def draw_many() -> Callable[[int, int], tuple[Polytope, dict[str, Objective]]]:
    """Program by seed and number of jobs."""
    return draw_many_jobs
