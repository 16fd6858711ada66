"""No figure is divided by zero on the way to an answer; the settings of pytest make such warnings errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    Polytope,
    WaterFilling,
    solve,
)
from throughputs import PlainColumns, ThroughputMatrix

KINDS = ("finish_time", "max_min", "makespan", "max_sum", "nash_welfare", "water_filling")


def draw(seed: int) -> tuple[Polytope, dict[str, Objective]]:
    """Figures over up to eighteen decades: jobs that are all but done, that have waited for ages, that hardly run."""
    rng = np.random.default_rng([seed, 99])
    N, M, decades = int(rng.integers(1, 12)), int(rng.integers(1, 5)), float(rng.choice([1, 3, 6, 9]))

    def spread(width: float, *shape: int) -> np.ndarray:
        return 10.0 ** rng.uniform(-width, width, shape)

    rates = rng.uniform(0.01, 1, (N, M)) * spread(decades / 2, N, 1)
    if rng.random() < 0.4:
        rates[rng.random((N, M)) < 0.3] = 0
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], rng.choice([1, 2, 4, 8], N))
    steps, elapsed = spread(decades, N), spread(decades, N) * (rng.random(N) < 0.8)
    isolated, weights = spread(decades, N), spread(decades / 2, N)
    return Polytope(PlainColumns(matrix), rng.integers(0, 2 * N + 2, M)), {
        "finish_time": FinishTimeFairness(elapsed, steps, isolated),
        "max_min": MaxMin(weights),
        "makespan": Makespan(steps),
        "max_sum": MaxSum(weights),
        "nash_welfare": NashWelfare(weights),
        "water_filling": WaterFilling(weights, 1.0 / steps),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_figures_over_many_decades(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for seed in range(60):
            polytope, objectives = draw(seed)
            for solver in ("auto", "structured"):
                solution = solve(polytope, objectives[kind], solver=solver)
                assert polytope.violation(solution.shares) <= 1e-12, f"seed {seed}"


def test_a_job_that_is_all_but_done_after_ages():
    """What it still needs is lost in the rounding of its time so far, which alone is its finish-time fairness."""
    matrix = ThroughputMatrix([[1.0, 2.0], [1.0, 3.0]], range(2), ["a", "b"])
    objective = FinishTimeFairness(np.array([1e9, 10.0]), np.array([1e-9, 5.0]), np.array([1e9, 20.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        solution = solve(Polytope(PlainColumns(matrix), [1, 1]), objective)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(1.0, rel=1e-12)
