"""The published points: where ECOS stops, replayed on the structure, stated without cvxpy, and bisected."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, proportional_throughput, solve
from formulations.core.certificate import certify
from formulations.core.solution import NotAcceptedError
from formulations.published import ecos_path
from formulations.reference import convex, ecos_cones
from formulations.solving.choice import bisected_makespan
from tests.formulations.programs import draw_contended, draw_hard, feasible, polytope_of

SAME_POINT = 1e-7
"""Largest difference of a share from the published solver's; rounding alone gives about 1e-9."""


@pytest.fixture
def _ecos():
    pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")


def draw_crowd(seed):
    """Up to 60 jobs on three types: classes of identical jobs, zeros, gangs, loose and tight capacity."""
    rng = np.random.default_rng(seed)
    N = int(rng.integers(1, 61))
    rates = rng.uniform(0.01, 1, (N, 3)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    if rng.random() < 0.4:
        rates[rng.random((N, 3)) < 0.2] = 0
        rates[~rates.any(axis=1), 0] = 1.0
    if rng.random() < 0.5:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, int((3 * N + 2) * 10 ** rng.uniform(-1, 0.3)) + 2, 3)
    weights = rng.choice([1.0, 1.0, 5.0], N)
    return polytope_of(rates, scale_factors, capacity), {
        "max_min": MaxMin(weights * proportional_throughput(rates, capacity) / scale_factors),
        "makespan": Makespan(10.0 ** rng.uniform(2, 6, N)),
        "max_sum": MaxSum(np.ones(N)),
    }


@pytest.mark.usefixtures("_ecos")
def test_ends_where_the_published_solver_ends():
    for seed in range(12):
        polytope, objectives = draw_crowd(seed)
        for kind in ("max_min", "max_sum"):
            ours, theirs = (by(polytope, objectives[kind]).shares for by in (ecos_path.solve, convex.solve_ecos))
            np.testing.assert_allclose(ours, theirs, atol=SAME_POINT, err_msg=f"{kind}, seed {seed}")
        seconds = bisected_makespan(solve(polytope, objectives["makespan"]).objective)
        floors = objectives["makespan"].demand(1.0 / seconds)
        ours, theirs = ecos_path.feasible_point(polytope, floors), convex.feasible_point(polytope, floors, "ECOS")
        np.testing.assert_allclose(ours, theirs, atol=SAME_POINT, err_msg=f"seed {seed}")
        assert polytope.violation(ours) <= 1e-8, f"seed {seed}"
        assert (polytope.throughput(ours) >= floors * (1 - 1e-7)).all(), f"seed {seed}"


@pytest.mark.usefixtures("_ecos")
@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9])
def test_small_rates_take_the_same_path(scale):
    """Rows whose entries are all tiny are not equilibrated."""
    rates = np.random.default_rng(0).uniform(0.1, 1, (6, 3)) * scale
    polytope, floors = polytope_of(rates, [1, 1, 2, 1, 4, 1], [2, 2, 3]), 0.1 * rates.max(axis=1)
    theirs = convex.feasible_point(polytope, floors, "ECOS")
    np.testing.assert_allclose(ecos_path.feasible_point(polytope, floors), theirs, atol=SAME_POINT)


@pytest.mark.parametrize("kind", ["max_min", "makespan", "max_sum"])
def test_the_path_is_proven_and_minds_neither_order_nor_copies(kind):
    """Identical jobs as neighbours, when they are one class, and apart, when each is its own."""
    types = np.arange(3)
    for seed in range(12):
        polytope, objectives = draw_crowd(seed)
        goal, N = objectives[kind], polytope.n_jobs
        found = ecos_path.solve(polytope, goal)
        assert certify(polytope, goal, found).gap <= 1e-6, f"seed {seed}"
        if kind == "makespan":
            continue
        order = np.random.default_rng(seed).permutation(N)
        shuffled, doubled, apart = (
            ecos_path.solve(polytope.restricted(jobs, types), goal.take(jobs)).shares
            for jobs in (order, np.repeat(np.arange(N), 2), np.tile(np.arange(N), 2))
        )
        np.testing.assert_allclose(shuffled, found.shares[order], atol=SAME_POINT)
        np.testing.assert_array_equal(doubled[::2], doubled[1::2])
        np.testing.assert_allclose(apart, np.tile(doubled[::2], (2, 1)), atol=SAME_POINT)


def test_what_the_path_cannot_solve_is_refused():
    polytope = polytope_of(np.ones((2, 2)), None, [1, 1])
    with pytest.raises(RuntimeError, match="FinishTimeFairness"):
        ecos_path.solve(polytope, FinishTimeFairness(np.zeros(2), np.ones(2), np.ones(2)))
    with pytest.raises(RuntimeError, match="stopping rule"):
        ecos_path.feasible_point(polytope, np.array([2.0, 0.5]))


@pytest.mark.usefixtures("_ecos")
@pytest.mark.parametrize(("jobs", "types"), [(1, 1), (25, 1), (1, 3), (9, 3)])
def test_cones_without_cvxpy_have_the_answer_of_those_that_cvxpy_makes(jobs, types):
    """To the last digit."""
    rng = np.random.default_rng([jobs, types])
    rates = rng.uniform(0.5, 5.0, (jobs, types))
    rates[:, 1:][rng.random((jobs, types - 1)) < 0.3] = 0.0
    polytope = polytope_of(rates, rng.choice([1, 2, 8], jobs), np.arange(8, 8 + types))
    objective = FinishTimeFairness(*rng.uniform(10.0, 90.0, (3, jobs)))
    found, stated = ecos_cones.solve(polytope, objective), convex.solve_ecos(polytope, objective)
    assert found.iterations == stated.iterations
    for name in ("shares", "multipliers", "prices"):
        np.testing.assert_array_equal(getattr(found, name), getattr(stated, name))
    with pytest.raises(NotAcceptedError, match="MaxMin"):
        ecos_cones.solve(polytope, MaxMin(np.ones(jobs)))


def test_bisection_replays_without_programs():
    """It ends at a feasible time within 5 % of the optimum, and its point keeps it."""
    for makespan in (101.0, 5_000.0, 26_276.2, 999_999.0, 3e6, 4.2e8):
        assert makespan <= bisected_makespan(makespan) <= 1.05 * makespan * (1 + 1e-12)
    assert bisected_makespan(10.0) <= 105.1
    # from 100 s and 10^6 s, halving until the feasible end is within 5 % of the other
    assert bisected_makespan(400_000.0) == pytest.approx(406_309.375)
    for seed in range(6):
        for draw in (draw_contended, draw_hard):
            polytope, objectives = draw(seed)
            exact = solve(polytope, objectives["makespan"])
            if exact.status == "empty":
                continue
            found = solve(polytope, objectives["makespan"], choice="published")
            feasible(polytope, found)
            assert exact.objective * (1 - 1e-9) <= found.objective <= bisected_makespan(exact.objective) * (1 + 1e-6)
