"""Bounds told from shares: never below the optimum, and tight where rounding alone had left a gap."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxMin, MaxSum, Polytope
from formulations.core.certificate import certify
from formulations.core.dual_repair import repair_duals
from formulations.core.objectives import relative_gap
from formulations.interior_point import compiled
from formulations.reference.linear import solve_highs


def served(draw_hard, seed: int, kind: str) -> tuple[Polytope, MaxMin | MaxSum]:
    polytope, objectives = draw_hard(seed)
    types = np.flatnonzero(polytope.capacity > 0)
    jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
    objective = objectives[kind].take(jobs)
    assert isinstance(objective, MaxMin | MaxSum)
    return polytope.restricted(jobs, types), objective


def test_any_figures_prove_a_bound(draw_hard):
    """Random shares, multipliers and prices: what comes out is at least 0 and proves no less than the optimum."""
    rng = np.random.default_rng(5)
    for seed in range(60):
        polytope, objective = served(draw_hard, seed, "max_min")
        best = certify(polytope, objective, solve_highs(polytope, objective)).objective
        shares = polytope.repaired(rng.uniform(0, 1, polytope.rates.shape) * rng.choice([0.01, 1.0]))
        multipliers = rng.uniform(0, 1, polytope.n_jobs) / polytope.fastest
        prices = rng.uniform(0, 1, len(polytope.capacity)) * rng.choice([0.0, 1.0], len(polytope.capacity))
        found, raised = repair_duals(polytope, shares, multipliers, prices)
        assert (found >= 0).all()
        assert (raised >= prices).all()
        supply = polytope.supply_at(found, raised)
        assert objective.bound(polytope.counts * found, supply) >= best * (1 - 1e-9), f"seed {seed}"
        given, raised = repair_duals(polytope, shares, multipliers, prices, given=True)
        np.testing.assert_array_equal(given, multipliers)
        assert (raised >= prices).all()


@pytest.mark.parametrize("kind", ["max_min", "max_sum"])
def test_rounding_is_taken_back(draw_hard, kind):
    """Multipliers of an optimum, off by a billionth, prove it to a billionth where GPUs are next to nothing too."""
    rng = np.random.default_rng(6)
    plain, sharp = 0, 0
    for seed in range(3, 240, 12):
        polytope, objective = served(draw_hard, seed, kind)
        best = certify(polytope, objective, solve_highs(polytope, objective))
        gains = objective.gains if isinstance(objective, MaxSum) else best.multipliers
        prices = best.dual_prices * (1.0 - 1e-9 * rng.uniform(0, 1, len(polytope.capacity)))

        def gap(multipliers, prices, polytope=polytope, objective=objective, best=best):
            supply = polytope.supply_at(multipliers, prices)
            if isinstance(objective, MaxSum):
                return relative_gap(best.objective, supply)
            return relative_gap(best.objective, objective.bound(polytope.counts * multipliers, supply))

        plain += gap(gains, prices) <= 1e-8
        sharp += gap(*repair_duals(polytope, best.shares, gains, prices, given=kind == "max_sum")) <= 1e-8
    assert sharp > plain
    assert sharp >= 18


@pytest.mark.parametrize("kind", ["max_min", "makespan", "finish_time", "max_sum"])
def test_small_programs_are_proven_at_the_first_attempt(draw_hard, kind):
    """Near-zero capacity, weights over six decades and all: Clarabel alone is proven to 1e-9 nearly everywhere."""
    proven = 0
    for seed in range(120):
        polytope, objectives = draw_hard(seed)
        types = np.flatnonzero(polytope.capacity > 0)
        jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
        part, objective = polytope.restricted(jobs, types), objectives[kind].take(jobs)
        try:
            proven += certify(part, objective, compiled.solve(part, objective)).gap <= 1e-9
        except RuntimeError:
            continue
    assert proven >= 114
