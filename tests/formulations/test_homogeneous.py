"""The published path ends where the published solver ends, and its answers are optimal."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, proportional_throughput
from formulations import solve as solve_program
from formulations.core.certificate import certify
from formulations.published.ecos_path import feasible_point, solve
from formulations.solving.choice import bisected_makespan

SAME_POINT = 1e-7
"""Largest difference of a share from the published solver's; rounding alone gives about 1e-9."""


@pytest.fixture
def ecos():
    """The published solver's point for an objective, or for floors."""
    pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")
    from formulations.reference import convex

    def point(polytope, objective=None, floors=None):
        if floors is not None:
            return convex.feasible_point(polytope, floors, "ECOS")
        return convex.solve_ecos(polytope, objective).shares

    return point


@pytest.fixture
def draw_served(draw):
    """Random programs over jobs and types that a backend gets to see."""

    def restricted(seed):
        polytope, objectives = draw(seed)
        types = np.flatnonzero(polytope.capacity > 0)
        jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
        return polytope.restricted(jobs, types), {name: goal.take(jobs) for name, goal in objectives.items()}

    return restricted


@pytest.fixture
def draw_crowd(polytope_of):
    """Up to 100 jobs on three types: classes of identical jobs, zeros, gangs, loose and tight capacity."""

    def crowd(seed):
        rng = np.random.default_rng(seed)
        N = int(rng.integers(1, 101))
        rates = rng.uniform(0.01, 1, (N, 3)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
        if rng.random() < 0.4:
            rates[rng.random((N, 3)) < 0.2] = 0
            rates[~rates.any(axis=1), 0] = 1.0
        if rng.random() < 0.5:
            rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
        scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
        capacity = rng.integers(1, int((3 * N + 2) * 10 ** rng.uniform(-1, 0.3)) + 2, 3)
        weights = rng.choice([1.0, 1.0, 5.0], N)
        objectives = {
            "max_min": MaxMin(weights * proportional_throughput(rates, capacity) / scale_factors),
            "makespan": Makespan(10.0 ** rng.uniform(2, 6, N)),
            "max_sum": MaxSum(np.ones(N)),
        }
        return polytope_of(rates, scale_factors, capacity), objectives

    return crowd


def floors_of(polytope, makespan):
    """Throughput that each job needs to end within the bisected time."""
    seconds = solve_program(polytope, makespan).objective
    return makespan.demand(1.0 / bisected_makespan(seconds))


@pytest.mark.parametrize("kind", ["max_min", "max_sum"])
@pytest.mark.parametrize("source", ["draw_served", "draw_crowd"])
def test_ends_where_the_published_solver_ends(kind, source, ecos, request):
    draw_any = request.getfixturevalue(source)
    for seed in range(50):
        polytope, objectives = draw_any(seed)
        difference = np.abs(solve(polytope, objectives[kind]).shares - ecos(polytope, objectives[kind])).max()
        assert difference <= SAME_POINT, f"seed {seed}"


@pytest.mark.parametrize("source", ["draw_served", "draw_crowd"])
def test_feasible_points_are_the_same(source, ecos, request):
    draw_any = request.getfixturevalue(source)
    for seed in range(50):
        polytope, objectives = draw_any(seed)
        floors = floors_of(polytope, objectives["makespan"])
        difference = np.abs(feasible_point(polytope, floors) - ecos(polytope, floors=floors)).max()
        assert difference <= SAME_POINT, f"seed {seed}"


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9])
def test_small_rates_take_the_same_path(scale, polytope_of, ecos):
    """Rows whose entries are all tiny are not equilibrated."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 1, (6, 3)) * scale
    polytope = polytope_of(rates, np.array([1, 1, 2, 1, 4, 1]), np.array([2, 2, 3]))
    floors = 0.1 * rates.max(axis=1)
    np.testing.assert_allclose(feasible_point(polytope, floors), ecos(polytope, floors=floors), atol=SAME_POINT)


@pytest.mark.parametrize("kind", ["max_min", "makespan", "max_sum"])
def test_answers_are_proven(kind, draw_crowd):
    for seed in range(100):
        polytope, objectives = draw_crowd(seed)
        certificate = certify(polytope, objectives[kind], solve(polytope, objectives[kind]))
        assert certificate.gap <= 1e-6, f"seed {seed}"


def test_floors_are_met(draw_crowd):
    for seed in range(40):
        polytope, objectives = draw_crowd(seed)
        floors = floors_of(polytope, objectives["makespan"])
        shares = feasible_point(polytope, floors)
        assert polytope.violation(shares) <= 1e-8, f"seed {seed}"
        assert (polytope.throughput(shares) >= floors * (1 - 1e-7)).all(), f"seed {seed}"


def test_identical_jobs_get_identical_shares(draw_crowd):
    """As neighbours, when they are one class, and apart, when each is its own."""
    for seed in range(20):
        polytope, objectives = draw_crowd(seed)
        N = polytope.n_jobs
        together, apart = np.repeat(np.arange(N), 2), np.tile(np.arange(N), 2)
        for kind in ("max_min", "max_sum"):
            one = solve(polytope.restricted(together, np.arange(3)), objectives[kind].take(together)).shares
            two = solve(polytope.restricted(apart, np.arange(3)), objectives[kind].take(apart)).shares
            assert np.array_equal(one[::2], one[1::2])
            np.testing.assert_allclose(two[:N], one[::2], atol=SAME_POINT)
            np.testing.assert_allclose(two[N:], one[::2], atol=SAME_POINT)


def test_the_order_of_jobs_does_not_matter(draw_crowd):
    for seed in range(20):
        polytope, objectives = draw_crowd(seed)
        order = np.random.default_rng(seed).permutation(polytope.n_jobs)
        shuffled = polytope.restricted(order, np.arange(3))
        for kind in ("max_min", "max_sum"):
            shares = solve(polytope, objectives[kind]).shares
            again = solve(shuffled, objectives[kind].take(order)).shares
            np.testing.assert_allclose(again, shares[order], atol=SAME_POINT)


def test_what_it_cannot_solve_is_refused(polytope_of):
    polytope = polytope_of(np.ones((2, 2)), np.array([1, 1]), np.array([1, 1]))
    with pytest.raises(RuntimeError, match="FinishTimeFairness"):
        solve(polytope, FinishTimeFairness(np.zeros(2), np.ones(2), np.ones(2)))
    with pytest.raises(RuntimeError, match="stopping rule"):
        feasible_point(polytope, np.array([2.0, 0.5]))
