"""By hand: closed forms, small optima, uniqueness; and the certificate of whatever a backend answers."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import (
    Makespan,
    MaxMin,
    MaxSum,
    Polytope,
    isolated_shares,
    isolated_throughput,
    proportional_shares,
    proportional_throughput,
    solve,
)
from formulations.core.solution import Answer
from formulations.interior_point import structured
from formulations.prices.goals import LevelGoal
from formulations.prices.search import solve_for_worth
from tests.formulations.programs import LINEAR, draw_even, draw_hard, polytope_of, with_jobs


def test_isolated_and_proportional_shares_by_hand():
    for gpus, expected in (
        ([4, 4], [[0.5, 0.5], [0.5, 0.5]]),
        ([1, 1], [[0.5, 0.5], [0.125, 0.125]]),
        ([[1, 4], [0, 4]], [[0.2, 0.8], [0, 0.5]]),  # that each of two jobs may use
    ):
        np.testing.assert_allclose(isolated_shares(np.array([1, 4]), np.array(gpus)), expected)
    rates = np.array([[2.0, 1.0], [8.0, 8.0]])
    np.testing.assert_allclose(isolated_throughput(rates, np.array([1, 4]), np.array([1, 1])), [1.5, 2.0])
    np.testing.assert_allclose(proportional_shares(2, np.array([1, 3])), [[0.25, 0.75]] * 2)
    np.testing.assert_allclose(proportional_throughput(np.array([[4.0, 8.0]]), np.array([1, 3])), [7.0])
    assert not proportional_shares(1, np.array([0, 0])).any()
    assert isolated_shares(np.zeros(0, dtype=np.int64), np.array([1])).shape == (0, 1)


@pytest.mark.parametrize(
    ("rates", "sizes", "gpus", "weights", "objective", "shares"),
    [
        # a has v100 for x of the time and k80 for the rest, b the reverse: x + (1 - x)/4 = (1 - x) + x/2
        ([[4, 1], [2, 1]], [1, 1], [1, 1], [4, 2], 0.7, [[0.6, 0.4], [0.4, 0.6]]),
        ([[1, 4]], [2], [8, 2], [1], 4, [[0, 1]]),  # one job takes its fastest type
        ([[2, 1], [0, 0]], [1, 1], [1, 1], [1, 1], 2, [[1, 0], [0, 0]]),  # one that runs nowhere holds nobody
        ([[2, 0], [1, 0]], [1, 1], [1, 5], [1, 1], 2 / 3, [[1 / 3, 0], [2 / 3, 0]]),  # nothing where nothing is gained
        ([[3]], [4], [1], [1], 0.75, [[0.25]]),  # a gang above capacity gets a fraction
    ],
)
def test_small_optima_by_hand(rates, sizes, gpus, weights, objective, shares):
    found = solve(polytope_of(rates, sizes, gpus), MaxMin(weights))
    assert found.objective == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(found.shares, shares, atol=1e-6)


def test_no_jobs_and_no_gpus():
    nobody = solve(polytope_of(np.zeros((0, 2)), [], [3, 4]), MaxSum(np.zeros(0)))
    assert (nobody.status, nobody.shares.shape) == ("empty", (0, 2))
    assert np.isnan(nobody.objective)
    nothing = solve(polytope_of(np.ones((2, 2)), None, [0, 0]), MaxMin([1, 1]))
    assert (nothing.status, nothing.served.any()) == ("empty", False)


def hard_part(seed, kind, least=0.0):
    """A hard program as a backend gets to see it; None where nothing is left."""
    polytope, objectives = draw_hard(seed)
    types = np.flatnonzero(polytope.capacity > least)
    jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
    return (polytope.restricted(jobs, types), objectives[kind].take(jobs)) if len(jobs) else None


@pytest.mark.parametrize("kind", [*LINEAR, "nash_welfare"])
def test_whatever_a_backend_answers_is_made_feasible_and_its_bound_holds(kind):
    """Weak duality, at any shares, multipliers and prices; a wrong answer does not pass."""
    rng = np.random.default_rng(0)
    for seed in range(24):
        polytope, objective = hard_part(seed, kind)
        best, (N, M) = solve(polytope, objective), polytope.rates.shape
        sign = 1 if objective.maximise else -1
        for shares in (rng.random((N, M)), np.full((N, M), 3.0), -rng.random((N, M)), np.full((N, M), np.nan)):
            answer = Answer(shares, rng.exponential(size=N), rng.exponential(size=M))
            found = objective.certify(polytope, answer)
            assert polytope.violation(found.shares) <= 1e-12, f"seed {seed}"
            assert sign * (found.bound - best.objective) >= -1e-9 * abs(best.objective), f"seed {seed}"
        point = structured.solve(polytope, objective)
        worse = objective.certify(polytope, Answer(point.shares * 0.9, point.multipliers, point.prices))
        assert worse.gap > (1e-6 if kind == "finish_time" else 0.05), f"seed {seed}"


@pytest.mark.parametrize("kind", [*LINEAR, "nash_welfare"])
def test_a_class_is_proven_like_its_jobs(kind):
    """Rough shares and prices of jobs in classes of 1 to 9, and of the same jobs one by one."""
    for seed in range(6):
        rng = np.random.default_rng([seed, 3])
        polytope, objectives = draw_even(seed, 12)
        counts = rng.integers(1, 10, 12)
        each = np.repeat(np.arange(12), counts)
        jobs = Polytope(with_jobs(polytope, each).columns, 4.0 * polytope.capacity)
        classes = Polytope(polytope.columns, jobs.capacity, counts.astype(float))
        objective = objectives[kind].of_classes(np.arange(12), classes.counts)
        best = solve(jobs, objectives[kind].take(each))
        off = [rng.uniform(0.9, 1.1, size) for size in ((12, 3), 12, 3)]
        first = np.searchsorted(each, np.arange(12))
        multipliers = best.multipliers[first] if best.multipliers.size else np.ones(12)
        rough = best.shares[first] * off[0], multipliers * off[1], best.prices * off[2]
        one = objective.certify(classes, Answer(*rough))
        other = objectives[kind].take(each).certify(jobs, Answer(rough[0][each], rough[1][each], rough[2]))
        assert one.objective == pytest.approx(other.objective, rel=1e-9), f"seed {seed}"
        assert one.bound == pytest.approx(other.bound, rel=1e-9), f"seed {seed}"
        assert other.gap > 1e-5, f"seed {seed}"


def test_multipliers_of_floors_prove_the_worth_above_them():
    """Weak duality: what jobs earn beside their floors, less what the floors are worth, is no less than all worth."""
    polytope, objectives = draw_even(0, 40)
    gains, fair = polytope.normalised_worth, solve(polytope, objectives["max_min"])
    floors = 0.9 * polytope.throughput(fair.shares)
    found = solve_for_worth(polytope, gains, floors)
    assert (found.multipliers > 0).any()
    bound = polytope.supply_at(gains + found.multipliers, found.prices) - found.multipliers @ floors
    assert gains @ polytope.throughput(found.shares) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(("objective", "alone"), [(MaxMin([1.0, 1.0]), 1.0), (Makespan([2.0, 2.0]), 0.5)])
def test_no_level_is_better_than_that_of_the_hardest_job_alone(objective, alone):
    goal = LevelGoal.of(polytope_of([[1.0], [3.0]], None, [9.0]), objective)
    assert [goal.moved(alone * 0.8, by) for by in (0.125, 0.5)] == pytest.approx([alone * 0.9, alone])
