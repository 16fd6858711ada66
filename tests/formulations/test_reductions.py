"""Classes of identical jobs: both ways to find them, collisions, and programs that do not notice."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxMin, Polytope, solve
from formulations.core.reductions import Classes, _by_hash, _by_order, _project, classes_of
from throughputs import PlainColumns, ThroughputMatrix


def columns_of(rng: np.random.Generator, n_jobs: int, n_kinds: int, n_columns: int = 5) -> list[np.ndarray]:
    """Rows of `n_kinds` kinds; the last column holds integers, as scale factors do."""
    kinds = rng.uniform(0, 1, (n_kinds, n_columns)) * 10.0 ** rng.integers(-6, 7, (n_kinds, 1))
    columns = list(kinds[rng.integers(0, n_kinds, n_jobs)].T.copy())
    columns[-1] = np.floor(columns[-1]).astype(np.int64)
    return columns


def check(classes: Classes, columns: list[np.ndarray]) -> None:
    """Members are equal to the first of their class, different classes differ, and all are counted."""
    rows = np.stack([column.astype(np.float64) for column in columns], axis=1)
    np.testing.assert_array_equal(rows[classes.first][classes.of], rows)
    assert len(np.unique(rows, axis=0)) == len(classes.first)
    np.testing.assert_array_equal(np.bincount(classes.of, minlength=len(classes.first)), classes.counts)
    np.testing.assert_array_equal(classes.of[classes.first], np.arange(len(classes.first)))


def test_both_ways_find_the_same_classes():
    rng = np.random.default_rng(0)
    for trial in range(60):
        n_jobs, n_kinds = int(rng.integers(1, 400)), int(rng.integers(1, 60))
        columns = columns_of(rng, n_jobs, n_kinds)
        place = _project(columns)
        ordered, hashed = _by_order(columns, place), _by_hash(columns, place)
        assert hashed is not None, f"trial {trial}"
        check(ordered, columns)
        np.testing.assert_array_equal(hashed.of, ordered.of, err_msg=f"trial {trial}")
        np.testing.assert_array_equal(hashed.counts, ordered.counts)
        check(hashed, columns)


@pytest.mark.parametrize("n_kinds", [40, 60_000])
def test_many_jobs(n_kinds):
    """Above the size at which the hash table is tried, with few kinds and with nearly as many as jobs."""
    rng = np.random.default_rng(1)
    columns = columns_of(rng, 60_000, n_kinds, 3)
    check(classes_of(columns), columns)


def test_order_of_classes_depends_on_content_alone():
    rng = np.random.default_rng(2)
    for n_jobs, n_kinds in ((50, 7), (300, 300), (60_000, 20)):
        columns = columns_of(rng, n_jobs, n_kinds)
        order = rng.permutation(n_jobs)
        one, other = classes_of(columns), classes_of([column[order] for column in columns])
        np.testing.assert_array_equal(other.of, one.of[order])
        np.testing.assert_array_equal(other.counts, one.counts)
        for column in columns:
            np.testing.assert_array_equal(column[order][other.first], column[one.first])


def collision() -> list[np.ndarray]:
    """Two columns whose different rows share a place: the second figure makes up for the first, to the last bit."""
    weights = _project([np.array([1.0, 0.0]), np.array([0.0, 1.0])])
    rng = np.random.default_rng(3)
    for _ in range(20_000):
        a, b = rng.uniform(0, 1, 2)
        c = a + rng.uniform(0.01, 1)
        d = (a * weights[0] + b * weights[1] - c * weights[0]) / weights[1]
        columns = [np.array([a, c]), np.array([b, d])]
        place = _project(columns)
        if place[0] == place[1]:
            return columns
    raise AssertionError("no collision found")


def test_rows_that_meet_in_one_place_stay_apart():
    columns = collision()
    place = _project(columns)
    assert place[0] == place[1]
    assert len(classes_of(columns).first) == 2
    check(classes_of(columns), columns)
    # the hash table cannot tell them apart, and says so
    assert _by_hash(columns, place) is None


def test_many_rows_with_a_collision_among_them():
    """The hash table gives up, and sorting takes over."""
    pair = collision()
    rng = np.random.default_rng(4)
    at = rng.integers(0, 2, 60_000)
    columns = [column[at] for column in pair]
    classes = classes_of(columns)
    rows = np.stack(columns, axis=1)
    # equal rows that lie apart among their equals in place may be more than one class, but no class mixes rows
    np.testing.assert_array_equal(rows[classes.first][classes.of], rows)
    assert classes.counts.sum() == 60_000


def test_single_keeps_every_job():
    classes = Classes.single(4)
    np.testing.assert_array_equal(classes.first, classes.of)
    np.testing.assert_array_equal(classes.counts, np.ones(4))


@pytest.mark.parametrize("kind", ["max_min", "makespan", "finish_time", "max_sum"])
def test_program_over_classes_is_the_program_over_jobs(draw_many, kind):
    """Copies that differ by less than anything matters are no class, and get the same value."""
    polytope, objectives = draw_many(0, 60)
    each, types = np.repeat(np.arange(60), 5), np.arange(len(polytope.capacity))
    many = polytope.restricted(each, types)
    apart = many.rates * (1.0 + 1e-13 * np.arange(300)[:, None])
    objective = objectives[kind].take(each)
    grouped = solve(many, objective)
    matrix = ThroughputMatrix(apart, range(300), [f"type{j}" for j in types], many.scale_factors)
    singly = solve(Polytope(PlainColumns(matrix), many.capacity), objective)
    assert singly.objective == pytest.approx(grouped.objective, rel=1e-8)
    # each of its own class: solved by another path
    assert grouped.solver != singly.solver


def test_weights_and_scale_factors_tell_jobs_apart(polytope_of):
    """Equal rates are not enough."""
    rates = np.ones((4, 1))
    polytope = polytope_of(rates, np.array([1, 1, 2, 2]), np.array([2.0]))
    solution = solve(polytope, MaxMin(np.array([1.0, 2.0, 1.0, 2.0])))
    # 1 t + 2 t + 2 t + 4 t = 2
    np.testing.assert_allclose(solution.shares[:, 0], np.array([1, 2, 1, 2]) * 2 / 9, rtol=1e-8)
