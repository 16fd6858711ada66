"""An objective that the package does not know is one class: every part follows from what the class says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from formulations import MaxMin, PackedPolytope, Polytope, Threshold, isolated_throughput, solve, solve_packed
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.packed import PackedColumns


@dataclass(frozen=True, eq=False)
class AboveReserve(Threshold):
    """Maximise the least throughput beyond a reserve, relative to a weight: ``max t, u_i >= r_i + d_i t``."""

    reserve: np.ndarray
    weights: np.ndarray
    maximise = True
    higher_level_is_better = True
    unit = "beyond the reserve"

    def demand(self, level: float) -> np.ndarray:
        return self.reserve + self.weights * level

    def slope(self, level: float) -> np.ndarray:  # noqa: ARG002
        return self.weights

    def levels(self, u: np.ndarray) -> np.ndarray:
        return (u - self.reserve) / self.weights

    def bound(self, multipliers: np.ndarray, supply: float) -> float:
        weight = float(multipliers @ self.weights)
        return (supply - float(multipliers @ self.reserve)) / weight if weight > 0 else np.inf

    def statement(self, cp: Any, u: Any) -> Any:
        return cp.Maximize(cp.min(cp.multiply(1.0 / self.weights, u - self.reserve)))

    def take(self, jobs: np.ndarray) -> AboveReserve:
        return AboveReserve(self.reserve[jobs], self.weights[jobs])

    def key(self) -> np.ndarray:
        return np.column_stack([self.reserve, self.weights])


def draw(seed: int, n_jobs: int) -> tuple[Polytope, AboveReserve]:
    rng = np.random.default_rng([seed, 17])
    rates = rng.uniform(0.1, 1, (n_jobs, 3)) * 10.0 ** rng.uniform(-1, 1, (n_jobs, 1))
    scale_factors = rng.choice([1, 2, 4], n_jobs)
    capacity = rng.integers(1, n_jobs // 2 + 2, 3)
    reserve = rng.uniform(0, 0.6, n_jobs) * isolated_throughput(rates, scale_factors, capacity)
    matrix = ThroughputMatrix(rates, range(n_jobs), ["a", "b", "c"], scale_factors)
    weights = rates.max(axis=1) * rng.uniform(0.5, 2, n_jobs)
    return Polytope(PlainColumns(matrix), capacity), AboveReserve(reserve, weights)


def by_simplex(polytope: Polytope, objective: AboveReserve) -> float:
    columns, N = polytope.columns.general, polytope.n_jobs
    rows = hstack(
        [
            vstack([columns.time, columns.usage, -columns.rate]),
            csr_array(np.concatenate([np.zeros(N + 3), objective.weights])[:, None]),
        ]
    )
    limits = np.concatenate([np.ones(N), polytope.capacity, -objective.reserve])
    cost = np.zeros(rows.shape[1])
    cost[-1] = -1.0
    result = linprog(cost, A_ub=rows, b_ub=limits, bounds=(0, None), method="highs")
    assert result.status == 0
    return -float(result.fun)


@pytest.mark.parametrize("solver", ["auto", "compiled", "structured", "highs", "clarabel"])
def test_every_path_takes_it(solver):
    for seed in range(12):
        polytope, objective = draw(seed, 8)
        solution = solve(polytope, objective, solver=solver)
        assert solution.status == "optimal", f"seed {seed}"
        assert solution.objective == pytest.approx(by_simplex(polytope, objective), rel=1e-6), f"seed {seed}"
        assert polytope.violation(solution.shares) <= 1e-12
        # chosen among optima, and proven to leave nothing that somebody could use
        assert solution.efficiency_gap <= 2e-6, f"seed {seed}"
        supply = polytope.supply_at(solution.multipliers, solution.prices)
        assert objective.bound(solution.multipliers, supply) == pytest.approx(solution.bound, rel=1e-9), f"seed {seed}"


def test_with_many_jobs_prices_come_first():
    polytope, objective = draw(0, 3500)
    solution = solve(polytope, objective)
    assert solution.solver == "prices"
    assert solution.status == "optimal"
    warm = solve(polytope, objective, warm=solution.warm_start)
    assert warm.objective == pytest.approx(solution.objective, rel=1e-7)


def test_with_pairs():
    for seed in range(6):
        polytope, objective = draw(seed, 7)
        N, M = polytope.rates.shape
        columns = PackedColumns(np.arange(N), polytope.rates, np.zeros((N, N, M)), polytope.scale_factors)
        packed = solve_packed(PackedPolytope(columns, polytope.capacity), objective)
        assert packed.objective == pytest.approx(solve(polytope, objective).objective, rel=1e-7), f"seed {seed}"


def test_without_a_reserve_it_is_max_min():
    polytope, objective = draw(3, 9)
    bare = AboveReserve(np.zeros(9), objective.weights)
    assert solve(polytope, bare).objective == pytest.approx(solve(polytope, MaxMin(bare.weights)).objective, rel=1e-8)
