"""What no solver may break: units, order, more capacity, equal jobs, prices as slopes, and efficiency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    Polytope,
    Solution,
    WaterFilling,
    proportional_throughput,
    solve,
)
from throughputs import PlainColumns, ThroughputMatrix

KINDS = ("max_min", "makespan", "finish_time", "max_sum", "nash_welfare", "water_filling")
SEEDS = range(72)


def polytope_over(rates: np.ndarray, scale_factors: np.ndarray, capacity: np.ndarray) -> Polytope:
    N, M = rates.shape
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], scale_factors)
    return Polytope(PlainColumns(matrix), capacity)


def program(draw_hard, seed: int, kind: str) -> tuple[Polytope, Objective]:
    """The hard draws, with two families more; jobs that run nowhere are left out."""
    polytope, objectives = draw_hard(seed)
    types = np.flatnonzero(polytope.capacity > 0)
    jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
    part, max_min = polytope.restricted(jobs, types), objectives["max_min"].take(jobs)
    assert isinstance(max_min, MaxMin)
    units = proportional_throughput(part.rates, part.capacity) / part.scale_factors
    more: dict[str, Objective] = {
        "nash_welfare": NashWelfare(max_min.weights / units),
        "water_filling": WaterFilling(units, max_min.weights / units),
    }
    return part, more[kind] if kind in more else objectives[kind].take(jobs)


_SOLVED: dict[tuple[int, str], Solution] = {}


def solved(seed: int, kind: str, polytope: Polytope, objective: Objective) -> Solution:
    """The solution of a program as it is drawn: most properties compare with it, so it is found once."""
    if (seed, kind) not in _SOLVED:
        _SOLVED[seed, kind] = solve(polytope, objective)
    return _SOLVED[seed, kind]


def rescaled(objective: Objective, factor: np.ndarray) -> Objective:
    """The same objective when job i's throughput is counted in units `factor[i]` times smaller."""
    match objective:
        case Makespan():
            return Makespan(objective.weights * factor)
        case MaxMin():
            return MaxMin(objective.weights * factor)
        case FinishTimeFairness():
            return FinishTimeFairness(objective.elapsed, objective.remaining * factor, objective.isolated)
        case MaxSum():
            return MaxSum(objective.gains / factor)
        case WaterFilling():
            return WaterFilling(objective.units * factor, objective.weights)
    return objective


def close(kind: str, objective: Objective, one: float, other: float) -> bool:
    """Equal up to twice the tolerance of a choice among optima."""
    if kind == "nash_welfare":
        assert isinstance(objective, NashWelfare)
        return abs(one - other) <= 1e-7 * float(objective.totals.sum())
    return abs(one - other) <= 2.5e-8 * max(abs(one), abs(other))


@pytest.mark.parametrize("kind", KINDS)
def test_unit_of_each_jobs_throughput(draw_hard, kind):
    """Steps of one job may be epochs of another: with goals in the same units nothing changes."""
    rng = np.random.default_rng(1)
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        factor = 2.0 ** rng.integers(-9, 10, polytope.n_jobs)
        scaled = polytope_over(polytope.rates * factor[:, None], polytope.scale_factors, polytope.capacity)
        one, other = solved(seed, kind, polytope, objective), solve(scaled, rescaled(objective, factor))
        expected = one.objective
        if isinstance(objective, NashWelfare):
            expected += float(objective.totals @ np.log(factor))
        assert close(kind, objective, other.objective, expected), f"seed {seed}"


# finish times do not scale with throughput: the work does
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "finish_time"])
def test_unit_of_all_throughput(draw_hard, kind):
    """A thousand times the throughput, goals as they were: the value scales as its unit says."""
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        scaled = polytope_over(polytope.rates * 1000.0, polytope.scale_factors, polytope.capacity)
        one, other = solved(seed, kind, polytope, objective), solve(scaled, objective)
        expected = one.objective * (1e-3 if isinstance(objective, Makespan) else 1e3)
        if isinstance(objective, NashWelfare):
            expected = one.objective + float(objective.totals.sum()) * np.log(1e3)
        assert close(kind, objective, other.objective, expected), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_jobs_changes_no_bit(draw_hard, kind):
    rng = np.random.default_rng(2)
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        order = rng.permutation(polytope.n_jobs)
        shuffled = polytope.restricted(order, np.arange(len(polytope.capacity)))
        one, other = solved(seed, kind, polytope, objective), solve(shuffled, objective.take(order))
        np.testing.assert_array_equal(other.shares, one.shares[order], err_msg=f"seed {seed}")
        np.testing.assert_array_equal(other.prices, one.prices, err_msg=f"seed {seed}")
        assert other.objective == one.objective, f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_types(draw_hard, kind):
    """The same value; the same throughputs where no six orders of magnitude or dust stand between."""
    rng = np.random.default_rng(3)
    far = 0
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        types = rng.permutation(len(polytope.capacity))
        turned = polytope.restricted(np.arange(polytope.n_jobs), types)
        one, other = solved(seed, kind, polytope, objective), solve(turned, objective)
        assert close(kind, objective, other.objective, one.objective), f"seed {seed}"
        u, v = polytope.throughput(one.shares), turned.throughput(other.shares)
        far += not np.allclose(u, v, rtol=1e-4, atol=1e-4 * float((u / polytope.rates.max(axis=1)).max()))
    assert far <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_more_capacity_never_hurts(draw_hard, kind):
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        sign = 1 if objective.maximise else -1
        before = solved(seed, kind, polytope, objective)
        for j in range(len(polytope.capacity)):
            capacity = polytope.capacity.copy()
            capacity[j] += 1.0
            after = solve(polytope_over(polytope.rates, polytope.scale_factors, capacity), objective)
            gained = sign * (after.objective - before.objective)
            assert gained >= 0 or close(kind, objective, after.objective, before.objective), f"seed {seed}, type {j}"


# makespan and finish times are convex functions of a level: with them, slopes alone agree
@pytest.mark.parametrize("kind", ["max_min", "max_sum", "nash_welfare"])
def test_prices_bound_what_more_capacity_gives(draw_hard, kind):
    """The value is concave in capacity: one more GPU is worth no more than its price, one fewer costs no less."""
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        at = solved(seed, kind, polytope, objective)
        sign = 1 if objective.maximise else -1
        size = float(objective.totals.sum()) if isinstance(objective, NashWelfare) else abs(at.objective)
        for j in range(len(polytope.capacity)):
            for change in (0.5, -0.25 * min(polytope.capacity[j], 1.0)):
                capacity = polytope.capacity.copy()
                capacity[j] += change
                moved = solve(polytope_over(polytope.rates, polytope.scale_factors, capacity), objective).objective
                gained = sign * (moved - at.objective)
                assert gained <= at.prices[j] * change + 1e-7 * max(size, abs(moved)), f"seed {seed}, type {j}"


@pytest.mark.parametrize("kind", KINDS)
def test_identical_jobs_get_identical_rows(draw_hard, kind):
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        rng = np.random.default_rng(seed)
        copies = rng.permutation(np.repeat(np.arange(polytope.n_jobs), rng.integers(1, 4, polytope.n_jobs)))
        many = polytope.restricted(copies, np.arange(len(polytope.capacity)))
        shares = solve(many, objective.take(copies)).shares
        for job in range(polytope.n_jobs):
            rows = shares[copies == job]
            np.testing.assert_array_equal(rows, np.broadcast_to(rows[:1], rows.shape), err_msg=f"seed {seed}")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_useful_is_left_idle(draw_hard, kind):
    """Where a type has GPUs left, no job that it would speed up has time left, or is on a slower type."""
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        if isinstance(objective, MaxSum) and not (objective.gains > 0).all():
            continue
        shares = solved(seed, kind, polytope, objective).shares
        left = polytope.capacity - polytope.loads @ shares
        idle = 1.0 - shares.sum(axis=1)
        relative = polytope.rates / polytope.rates.max(axis=1, keepdims=True)
        for j in np.flatnonzero(left > 1e-5 * np.maximum(polytope.capacity, 1e-6)):
            fits = left[j] / polytope.scale_factors
            gained = np.minimum(idle, fits) * relative[:, j]
            assert gained.max() <= 1e-4 * max(1e-6, shares.max()), f"seed {seed}, type {j}"
            better = np.maximum(relative[:, j : j + 1] - relative, 0.0)
            moved = (np.minimum(shares, fits[:, None]) * better).max()
            assert moved <= 1e-4 * max(1e-6, shares.max()), f"seed {seed}, type {j}"


@pytest.mark.parametrize("kind", ["max_min", "makespan"])
def test_a_job_more_never_helps(draw_hard, kind):
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, kind)
        if polytope.n_jobs < 2:
            continue
        rest = np.arange(1, polytope.n_jobs)
        fewer = polytope.restricted(rest, np.arange(len(polytope.capacity)))
        sign = 1 if objective.maximise else -1
        one, other = solved(seed, kind, polytope, objective).objective, solve(fewer, objective.take(rest)).objective
        assert sign * (other - one) >= 0 or close(kind, objective, one, other), f"seed {seed}"


def test_max_min_is_the_makespan_of_its_weights(draw_hard):
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, "max_min")
        assert isinstance(objective, MaxMin)
        level = solved(seed, "max_min", polytope, objective).objective
        assert solve(polytope, Makespan(objective.weights)).objective == pytest.approx(1.0 / level, rel=2.5e-8)


def test_finish_times_without_a_past_are_a_makespan(draw_hard):
    """With no time elapsed the worst rho is the makespan of the steps left per isolated second."""
    for seed in SEEDS:
        polytope, objective = program(draw_hard, seed, "finish_time")
        assert isinstance(objective, FinishTimeFairness)
        fair = FinishTimeFairness(np.zeros(polytope.n_jobs), objective.remaining, objective.isolated)
        span = Makespan(objective.remaining / objective.isolated)
        assert solve(polytope, fair).objective == pytest.approx(solve(polytope, span).objective, rel=2.5e-8), seed


whole_rates = arrays(np.float64, (4, 3), elements=st.integers(0, 9).map(float))


@given(
    rates=whole_rates,
    scale_factors=arrays(np.int64, 4, elements=st.sampled_from([1, 2, 4])),
    capacity=arrays(np.float64, 3, elements=st.integers(0, 6).map(float)),
    weights=arrays(np.float64, 4, elements=st.sampled_from([0.001, 1.0, 1.0, 5.0, 1000.0])),
)
def test_small_whole_numbers(rates, scale_factors, capacity, weights):
    """Every program of small whole numbers is empty or proven, whatever is tied, zero or missing."""
    polytope = polytope_over(rates, scale_factors, capacity)
    for objective in (MaxMin(weights), Makespan(weights), MaxSum(weights), WaterFilling(np.ones(4), weights)):
        solution = solve(polytope, objective)
        assert polytope.violation(solution.shares) <= 1e-12
        served = (rates[:, capacity > 0] > 0).any(axis=1)
        # a type without GPUs on which somebody runs who runs nowhere else
        unknown = (capacity == 0) & (rates[~served] > 0).any(axis=0)
        if isinstance(objective, MaxSum) and served.any():
            unknown[:] = False
        np.testing.assert_array_equal(np.isfinite(solution.prices), ~unknown)
        assert (solution.prices[~unknown] >= 0).all()
        np.testing.assert_array_equal(solution.served, served)
        assert not solution.shares[~served].any()
        assert solution.status == ("optimal" if served.any() else "empty")
