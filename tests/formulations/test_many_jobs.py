"""Hundreds to thousands of jobs: prices first, and classes of identical jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxMin, NashWelfare, Polytope, SolverError, WaterFilling, proportional_throughput, solve
from formulations.core.reductions import classes_of, spread_weights
from formulations.interior_point import structured
from formulations.prices import search as prices
from formulations.solving.backends import AUTO
from tests.formulations.programs import (
    LINEAR,
    draw_even,
    draw_many,
    polytope_of,
    verify,
    with_jobs,
)

FEATURES = 7


@pytest.fixture
def from_200_jobs(monkeypatch):
    """Prices first at sizes that would not need it."""
    monkeypatch.setattr(prices, "_SMALLEST", 200)


def by_prices(polytope, objective):
    """None where the path gives up, which sends the program to the next."""
    try:
        return objective.certify(polytope, prices.solve(polytope, objective))
    except RuntimeError:
        return None


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", [LINEAR[0], *(pytest.param(k, marks=pytest.mark.exhaustive) for k in LINEAR[1:])])
def test_prices_agree_with_the_interior_point(kind, blocks):
    """The path gives up or is proven; the whole call is proven either way, whatever the order of the jobs."""
    proven = 0
    for seed in range(FEATURES * blocks):
        N = 200 + (seed * 37) % 200
        polytope, objectives = draw_many(seed, N)
        objective = objectives[kind]
        solution, found = solve(polytope, objective), by_prices(polytope, objective)
        verify(polytope, objective, solution, f"seed {seed}")
        assert {attempt.solver for attempt in solution.attempts} <= set(AUTO)
        order = np.random.default_rng(seed).permutation(N)
        other = solve(with_jobs(polytope, order), objective.take(order))
        np.testing.assert_array_equal(other.shares, solution.shares[order], err_msg=f"seed {seed}")
        if found is None:
            continue
        point, sign = (
            objective.certify(polytope, structured.solve(polytope, objective)),
            1 if objective.maximise else -1,
        )
        assert sign * (point.objective - found.bound) <= 1e-9 * abs(found.bound), f"seed {seed}"
        assert sign * (found.objective - point.bound) <= 1e-9 * abs(point.bound), f"seed {seed}"
        assert polytope.violation(found.shares) <= 1e-12, f"seed {seed}"
        assert (found.prices >= 0).all(), f"seed {seed}"
        if found.gap <= 1e-7:
            proven += 1
            assert found.objective == pytest.approx(point.objective, rel=1e-8 + found.gap + point.gap)
    assert proven >= 0.5 * FEATURES * blocks


@pytest.mark.usefixtures("from_200_jobs")
@pytest.mark.parametrize("kind", LINEAR)
def test_a_class_is_so_many_jobs(kind):
    """Jobs in classes of 1 to 9, the same jobs one by one, and one by one with rates that differ by next to nothing."""
    polytope, objectives = draw_many(0, 220)
    counts = np.random.default_rng(0).integers(1, 10, 220)
    each, objective = np.repeat(np.arange(220), counts), objectives[kind]
    many = Polytope(with_jobs(polytope, each).columns, 5.0 * polytope.capacity)
    classes = Polytope(polytope.columns, many.capacity, counts.astype(float))
    found = by_prices(classes, objective.of_classes(np.arange(220), classes.counts))
    together = solve(many, objective.take(each))
    apart = polytope_of(many.rates * (1 + 1e-13 * np.arange(len(each))[:, None]), many.scale_factors, many.capacity)
    for other in (solve(apart, objective.take(each)), found):
        if other is not None:
            assert other.gap <= 1e-7
            assert other.objective == pytest.approx(together.objective, rel=1e-8 + other.gap + together.gap)


@pytest.mark.parametrize("kind", [*LINEAR, "nash_welfare"])
def test_prices_clear_the_market(kind):
    """That the interior point would prove them as well hides no mistake here."""
    for seed in (0, 1, 3):
        polytope, objectives = draw_even(seed, 3200)
        found = solve(polytope, objectives[kind])
        assert found.solver == "prices", f"seed {seed}"
        assert found.gap <= 1e-9, f"seed {seed}"
        verify(polytope, objectives[kind], found, f"seed {seed}")


@pytest.mark.parametrize("gpus", [1000.0, 1250.0])
def test_budgets_that_buy_two_types_by_turns(gpus):
    """Hundreds of jobs mix types; with more GPUs, those of two types are worth nothing."""
    rng = np.random.default_rng(0)
    polytope = polytope_of(10.0 ** rng.uniform(-1.5, 1.5, (3200, 3)), None, gpus * np.array([0.6, 1.0, 1.4]))
    objective = NashWelfare(rng.uniform(1, 5, 3200))
    found = solve(polytope, objective)
    assert found.solver == "prices"
    assert found.gap <= 1e-9
    verify(polytope, objective, found)
    assert ((found.shares > 1e-9).sum(axis=1) > 1).sum() > 100
    assert (found.prices > 0).sum() == (3 if gpus < 1200 else 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [*LINEAR, "nash_welfare"])
def test_at_its_own_size(kind):
    polytope, objectives = draw_many(0, 17_000)
    found = solve(polytope, objectives[kind], solver="prices")
    assert found.attempts[0].solver == "prices"
    verify(polytope, objectives[kind], found)


def test_a_job_that_holds_the_level_alone():
    """The slowest job on its best type is the optimum: capacity is worth nothing, and prices say nothing."""
    for N in (300, 3300):
        rates = np.random.default_rng(4).uniform(1, 2, (N, 3))
        rates[0] = [1e-3, 1e-4, 1e-4]
        found = solve(polytope_of(rates, None, np.full(3, N / 3.0)), MaxMin(np.ones(N)))
        assert (found.status, found.objective) == ("optimal", pytest.approx(1e-3, rel=1e-8))
        np.testing.assert_allclose(found.prices, 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", [3, pytest.param(0, marks=pytest.mark.exhaustive)])
def test_where_all_that_could_change_are_full_others_are_asked(seed):
    """Weights over ten decades: at the first level nearly all jobs have all of their time."""
    rng, N = np.random.default_rng(seed), 4000
    rates, sizes = rng.uniform(0.1, 1.0, (N, 3)), rng.choice([1, 2, 4], N)
    capacity = np.array([0.5, 0.6, 0.7]) * N * [1, 0.3, 0.05][seed % 3]
    units = proportional_throughput(rates, capacity) / sizes
    found = solve(polytope_of(rates, sizes, capacity), WaterFilling(units, 10.0 ** rng.uniform(-5, 5, N)))
    assert found.status == "optimal"


def test_prices_say_what_they_do_not_take():
    polytope, objectives = draw_many(0, 40)
    for kind in ("max_min", "nash_welfare"):
        with pytest.raises(SolverError, match=r"40 .* 3000"):
            solve(polytope, objectives[kind], solver="prices")


def columns_of(rng, n_jobs, n_kinds, n_columns=5):
    """Rows of `n_kinds` kinds; the last column holds integers, as scale factors do."""
    kinds = rng.uniform(0, 1, (n_kinds, n_columns)) * 10.0 ** rng.integers(-6, 7, (n_kinds, 1))
    columns = list(kinds[rng.integers(0, n_kinds, n_jobs)].T.copy())
    columns[-1] = np.floor(columns[-1]).astype(np.int64)
    return columns


def check_classes(classes, columns):
    """Members are equal to the first of their class, different classes differ, and all are counted."""
    rows = np.stack([column.astype(float) for column in columns], axis=1)
    np.testing.assert_array_equal(rows[classes.first][classes.of], rows)
    assert len(np.unique(rows, axis=0)) == len(classes.first)
    np.testing.assert_array_equal(np.bincount(classes.of, minlength=len(classes.first)), classes.counts)
    np.testing.assert_array_equal(classes.of[classes.first], np.arange(len(classes.first)))


@pytest.mark.parametrize(("n_jobs", "n_kinds"), [(1, 1), (50, 7), (300, 300), (60_000, 40)])
def test_classes_depend_on_content_alone(n_jobs, n_kinds):
    """In any order."""
    rng = np.random.default_rng(2)
    columns, order = columns_of(rng, n_jobs, n_kinds), rng.permutation(n_jobs)
    one, other = classes_of(columns), classes_of([column[order] for column in columns])
    check_classes(one, columns)
    np.testing.assert_array_equal(other.of, one.of[order])
    np.testing.assert_array_equal(other.counts, one.counts)
    for column in columns:
        np.testing.assert_array_equal(column[order][other.first], column[one.first])


def test_different_rows_that_meet_in_one_place_stay_apart():
    """Two rows of which the second figure makes up for the first, to the last bit."""
    weights, rng = spread_weights(3)[1:], np.random.default_rng(3)
    for _ in range(20_000):
        a, b = rng.uniform(0, 1, 2)
        c = a + rng.uniform(0.01, 1)
        pair = [np.array([a, c]), np.array([b, (a * weights[0] + b * weights[1] - c * weights[0]) / weights[1]])]
        place = pair[0] * weights[0] + pair[1] * weights[1]
        if place[0] == place[1]:
            break
    assert place[0] == place[1]
    at = rng.integers(0, 2, 60_000)
    for columns in (pair, [column[at] for column in pair]):
        check_classes(classes_of(columns), columns)


def test_weights_and_gangs_tell_jobs_apart():
    """Equal rates are not enough: 1 t + 2 t + 2 t + 4 t = 2."""
    found = solve(polytope_of(np.ones((4, 1)), [1, 1, 2, 2], [2.0]), MaxMin([1.0, 2.0, 1.0, 2.0]))
    np.testing.assert_allclose(found.shares[:, 0], np.array([1, 2, 1, 2]) * 2 / 9, rtol=1e-8)
