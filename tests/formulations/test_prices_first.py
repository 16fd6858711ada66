"""Prices first, at sizes where simplex can still look over its shoulder."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxMin, NashWelfare, Objective, Polytope, SolverError, solve
from formulations.core.certificate import Certificate, certify
from formulations.interior_point import structured
from formulations.prices import search as prices
from formulations.reference.linear import solve_highs

KINDS = ("max_min", "makespan", "finish_time", "max_sum")
BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.exhaustive) for block in range(1, 5))]
PER_BLOCK = 28
"""A multiple of the 7 features that `draw_many` goes through."""


@pytest.fixture
def from_200_jobs(monkeypatch):
    """The path taken at sizes that would not need it."""
    for least in ("_SMALLEST", "_MANY_CLASSES"):
        monkeypatch.setattr(prices, least, 200)


def by_prices(polytope: Polytope, objective: Objective) -> Certificate | None:
    """None where the path gives up, which sends the program to the next."""
    try:
        return certify(polytope, objective, prices.solve(polytope, objective))
    except RuntimeError:
        return None


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_interior_point(draw_many, kind, block):
    """It gives up or is proven, and proven answers are the same to 1e-8."""
    proven = 0
    for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        polytope, objectives = draw_many(seed, 200 + (seed * 37) % 500)
        objective = objectives[kind]
        found = by_prices(polytope, objective)
        if found is None:
            continue
        point = certify(polytope, objective, structured.solve(polytope, objective))
        sign = 1 if objective.maximise else -1
        assert sign * (point.objective - found.bound) <= 1e-9 * abs(found.bound), f"{kind}, seed {seed}"
        assert sign * (found.objective - point.bound) <= 1e-9 * abs(point.bound), f"{kind}, seed {seed}"
        assert polytope.violation(found.shares) <= 1e-12, f"{kind}, seed {seed}"
        assert np.isfinite(found.prices).all(), f"{kind}, seed {seed}"
        assert (found.prices >= 0).all(), f"{kind}, seed {seed}"
        if found.gap <= 1e-7:
            proven += 1
            assert found.objective == pytest.approx(point.objective, rel=1e-8 + found.gap + point.gap)
    assert proven >= 0.5 * PER_BLOCK


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_simplex(draw_many, kind):
    for seed in range(14):
        polytope, objectives = draw_many(seed, 220)
        objective = objectives[kind]
        found = by_prices(polytope, objective)
        if found is not None and found.gap <= 1e-9:
            simplex = certify(polytope, objective, solve_highs(polytope, objective))
            assert found.objective == pytest.approx(simplex.objective, rel=1e-8 + simplex.gap), f"seed {seed}"


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("kind", KINDS)
def test_auto_is_proven_whether_or_not_it_gives_up(draw_many, kind):
    """The whole call, choice among optima included, over the same sizes."""
    for seed in range(21):
        polytope, objectives = draw_many(seed, 200 + 20 * seed)
        solution = solve(polytope, objectives[kind])
        assert solution.status == "optimal", f"seed {seed}"
        assert polytope.violation(solution.shares) <= 1e-12, f"seed {seed}"
        assert {attempt.solver for attempt in solution.attempts} <= {"prices", "structured", "highs", "clarabel"}


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("kind", KINDS)
def test_order_of_jobs_does_not_matter(draw_many, kind):
    """Samples are drawn from the canonical order, so the same jobs listed otherwise get the same shares."""
    rng = np.random.default_rng(1)
    for seed in range(7):
        polytope, objectives = draw_many(seed, 400)
        order = rng.permutation(400)
        shuffled = polytope.restricted(order, np.arange(len(polytope.capacity)))
        one, other = solve(polytope, objectives[kind]), solve(shuffled, objectives[kind].take(order))
        np.testing.assert_array_equal(other.shares, one.shares[order], err_msg=f"seed {seed}")


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_is_so_many_jobs(draw_many, kind):
    """Jobs in classes of 1 to 9 and the same jobs one by one."""
    polytope, objectives = draw_many(0, 250)
    counts = np.random.default_rng(0).integers(1, 10, 250)
    each, types = np.repeat(np.arange(250), counts), np.arange(len(polytope.capacity))
    many = Polytope(polytope.restricted(each, types).columns, 5.0 * polytope.capacity)
    classes = Polytope(polytope.columns, 5.0 * polytope.capacity, counts.astype(np.float64))
    objective = objectives[kind]
    found = by_prices(classes, objective.of_classes(np.arange(250), classes.counts))
    one_by_one = certify(many, objective.take(each), structured.solve(many, objective.take(each)))
    assert one_by_one.gap <= 1e-9
    if found is not None:
        assert found.gap <= 1e-7
        assert found.objective == pytest.approx(one_by_one.objective, rel=1e-8 + found.gap)


@pytest.mark.parametrize("kind", KINDS)
def test_at_its_own_size(draw_many, kind):
    """17,000 distinct jobs as they come, proven; the bound of the interior point over all of them agrees."""
    polytope, objectives = draw_many(0, 17_000)
    solution = solve(polytope, objectives[kind])
    assert solution.attempts[0].solver == "prices"
    assert solution.status == "optimal"
    assert polytope.violation(solution.shares) <= 1e-12
    point = certify(polytope, objectives[kind], structured.solve(polytope, objectives[kind]))
    assert solution.objective == pytest.approx(point.objective, rel=1e-8 + point.gap + solution.gap)


def test_a_job_that_holds_the_level_alone(polytope_of):
    """The slowest job on its best type is the optimum: capacity is worth nothing, and prices say nothing."""
    rng = np.random.default_rng(4)
    rates = rng.uniform(1, 2, (17_000, 3))
    rates[0] = [1e-3, 1e-4, 1e-4]
    polytope = polytope_of(rates, np.ones(17_000, dtype=np.int64), np.array([6000.0, 6000.0, 6000.0]))
    solution = solve(polytope, MaxMin(np.ones(17_000)))
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(1e-3, rel=1e-8)
    np.testing.assert_allclose(solution.prices, 0.0, atol=1e-12)


def test_says_what_it_does_not_take(draw_many):
    polytope, objectives = draw_many(0, 40)
    with pytest.raises(SolverError, match="40 classes of jobs are fewer than 3000"):
        solve(polytope, objectives["max_min"], solver="prices")
    with pytest.raises(SolverError, match="NashWelfare is not piecewise linear"):
        solve(polytope, NashWelfare(np.ones(40)), solver="prices")
