"""What a water level settles: later levels are the same programs, smaller and better posed."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Hierarchy, Polytope, WaterFilling, proportional_throughput, solve
from formulations.core.certificate import certify
from formulations.levels.residual_program import ResidualProgram
from formulations.levels.water_filling import Level, WaterLevel, fill
from formulations.reference.linear import solve_highs


def distinct(rng: np.random.Generator, n_jobs: int, gpus_per_job: float) -> tuple[np.ndarray, np.ndarray]:
    """Rates of jobs no two of which are alike, on three types of which the first is the fastest for most."""
    rates = rng.uniform(0.5, 1.0, (n_jobs, 3)) * [1.0, 0.6, 0.3] * 10.0 ** rng.uniform(-1, 1, (n_jobs, 1))
    return rates, np.full(3, np.ceil(gpus_per_job * n_jobs / 3))


def program(polytope_of, seed: int) -> tuple[Polytope, WaterFilling]:
    """Distinct jobs; ties of rates in every third, entities in every other."""
    rng = np.random.default_rng([seed, 31])
    N, M = int(rng.integers(4, 20)), int(rng.integers(2, 5))
    rates = rng.uniform(0.2, 1, (N, M)) * 10.0 ** rng.uniform(-1, 1, (N, 1))
    if seed % 3 == 0:
        rates = np.maximum(np.round(rates, 1), 0.1)
        rates[:, -1] = rates[:, 0]
    scale_factors = rng.choice([1, 1, 2], N)
    capacity = rng.integers(1, int(N * rng.choice([0.3, 0.8, 2.0])) + 2, M).astype(np.float64)
    hierarchy = None
    if seed % 2:
        of_job, ranks = rng.integers(-1, 3, N), rng.permutation(N).astype(np.float64)
        parent, weights = np.array([-1, -1, 0]), rng.choice([1.0, 2.0], 3)
        hierarchy = Hierarchy(parent, weights, rng.random(3) < 0.5, of_job, ranks)
    units = proportional_throughput(rates, capacity) / scale_factors
    objective = WaterFilling(units, rng.choice([1.0, 2.0, 5.0], N), hierarchy)
    return polytope_of(rates, scale_factors, capacity), objective


def by_simplex(polytope: Polytope, objective: WaterFilling, *, settling: bool) -> tuple[np.ndarray, list[int]]:
    """Throughputs after all levels by HiGHS, and over how many jobs each level was solved."""
    rest, sizes = ResidualProgram(polytope), []

    def solve_level(level: WaterLevel) -> Level:
        goal = level.take(rest.jobs)
        sizes.append(len(rest.jobs))
        proof = certify(rest.polytope, goal, solve_highs(rest.polytope, goal))
        whole = rest.among_all(proof)
        return Level(proof.objective, proof.gap, polytope.throughput(whole.shares), whole.multipliers, proof)

    def settle(level: Level, fixed: np.ndarray, due: np.ndarray) -> np.ndarray:
        return rest.settle(level.source, fixed, due)

    levels = fill(objective, polytope.fastest, solve_level, settle if settling else None)
    assert max(level.gap for level in levels) <= 1e-8
    return levels[-1].u, sizes


def test_smaller_levels_come_to_the_same(polytope_of):
    """Without settling every level is a program over all jobs; throughputs agree, jobs that wait included."""
    smaller = 0
    for seed in range(60):
        polytope, objective = program(polytope_of, seed)
        whole, _ = by_simplex(polytope, objective, settling=False)
        settled, sizes = by_simplex(polytope, objective, settling=True)
        # what a simplex gives beyond the demands is chance: only what is demanded counts
        chosen = polytope.throughput(solve(polytope, objective).shares)
        most = 1e-6 * polytope.fastest
        assert (settled - chosen >= -1e-6 * settled - most).all(), f"seed {seed}"
        assert (whole - chosen >= -1e-6 * whole - most).all(), f"seed {seed}"
        smaller += sizes[-1] < sizes[0]
    assert smaller >= 15


def test_settled_jobs_and_types_are_out(polytope_of):
    """Two jobs share the one fast GPU for good; the third rises on the slow ones."""
    rates = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.25]])
    polytope = polytope_of(rates, np.ones(3, dtype=np.int64), np.array([0.5, 4.0]))
    rest = ResidualProgram(polytope)
    objective = WaterFilling(np.ones(3), np.array([1.0, 1.0, 0.5]))
    level = WaterLevel.after(objective, np.zeros(3), polytope.fastest)
    proof = certify(polytope, level, solve_highs(polytope, level))
    assert proof.objective == pytest.approx(0.25, rel=1e-9)
    due = level.demand(proof.objective)
    most = rest.settle(proof, np.array([True, True, False]), due)
    np.testing.assert_array_equal(rest.jobs, [2])
    np.testing.assert_array_equal(rest.types, [1])
    np.testing.assert_allclose(rest.polytope.capacity, [4.0], rtol=1e-9)
    np.testing.assert_allclose(most, [0.25, 0.25, 0.25], rtol=1e-9)
    whole = rest.among_all(certify(rest.polytope, level.take(rest.jobs), solve_highs(rest.polytope, level.take([2]))))
    np.testing.assert_allclose(whole.shares[:2], [[0.25, 0.0], [0.25, 0.0]], atol=1e-9)
    assert whole.shares[2, 0] == 0.0


@pytest.mark.parametrize("gpus_per_job", [0.9, 1.2, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_gpus_to_spare_need_no_simplex(polytope_of, gpus_per_job, weighted):
    """Jobs that are full, or held at a level, once left later levels without an interior."""
    rng = np.random.default_rng(7)
    rates, capacity = distinct(rng, 700, gpus_per_job)
    weights = rng.choice([1.0, 2.0, 5.0], 700) if weighted else np.ones(700)
    polytope = polytope_of(rates, np.ones(700, dtype=np.int64), capacity)
    solution = solve(polytope, WaterFilling(proportional_throughput(rates, capacity), weights))
    assert solution.status == "optimal"
    assert polytope.violation(solution.shares) <= 1e-12
    assert {attempt.solver for attempt in solution.attempts} <= {"compiled", "prices", "structured"}
