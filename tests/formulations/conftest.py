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
