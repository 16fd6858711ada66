"""A claim that an optimum is the only one, against simplex looking for another on the optimal face."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import vstack

from formulations import MaxMin, MaxSum, Objective, Polytope, Threshold
from formulations.core.certificate import Certificate, certify
from formulations.interior_point import structured
from formulations.solving.uniqueness import Freedom, is_unique

DIRECTIONS = 3


def claim(polytope: Polytope, objective: Objective, best: Certificate) -> bool:
    """What is said of a certified optimum where every job is held."""
    if isinstance(objective, MaxSum):
        worth = objective.gains[:, None] * polytope.rates
        return is_unique(polytope, worth, best.dual_prices, np.zeros(polytope.n_jobs, dtype=bool))
    if not (best.multipliers > 1e-9 * best.multipliers.max()).all():
        # a job that does not hold the level may have more of anything
        return False
    worth = best.multipliers[:, None] * polytope.rates
    return is_unique(polytope, worth, best.dual_prices, np.ones(polytope.n_jobs, dtype=bool))


def width_of_face(
    polytope: Polytope, objective: Objective, value: float, rng: np.random.Generator, relaxation: float = 1e-11
) -> float:
    """Largest difference of a random linear function of the shares over the allocations that attain the optimum, but
    for a relative `relaxation`."""
    columns = polytope.columns.general
    N, M = polytope.rates.shape
    used = np.minimum(1.0, polytope.capacity / polytope.scale_factors[:, None]).ravel()
    rows, limits = vstack([columns.time, columns.usage]).toarray(), np.concatenate([np.ones(N), polytope.capacity])
    if isinstance(objective, MaxSum):
        gain = (objective.gains @ columns.rate) / value
        rows, limits = np.vstack([rows, -gain]), np.append(limits, -(1 - relaxation))
    else:
        assert isinstance(objective, Threshold)
        floors = objective.demand(objective.relaxed(value, relaxation))
        rows = np.vstack([rows, -columns.rate.toarray() / floors[:, None]])
        limits = np.append(limits, -np.ones(N))
    rows = rows * used
    size = np.abs(rows).max(axis=1)
    width = 0.0
    for _ in range(DIRECTIONS):
        direction = rng.normal(size=N * M)
        ends = [
            linprog(
                sign * direction,
                A_ub=rows / size[:, None],
                b_ub=limits / size,
                bounds=(0, None),
                method="highs",
                options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
            )
            for sign in (1, -1)
        ]
        if any(end.status != 0 for end in ends):
            continue
        width = max(width, -float(ends[0].fun) - float(ends[1].fun))
    return width


@pytest.mark.parametrize(
    "kind", ["makespan", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("max_min", "max_sum"))]
)
def test_no_second_optimum_is_found_where_none_is_claimed(draw_hard, kind):
    rng = np.random.default_rng(0)
    claimed, others = 0, 0
    for seed in range(240):
        polytope, objectives = draw_hard(seed)
        types = np.flatnonzero(polytope.capacity > 1e-3)
        jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
        if not len(jobs):
            continue
        polytope, objective = polytope.restricted(jobs, types), objectives[kind].take(jobs)
        if isinstance(objective, MaxSum) and not (objective.gains > 0).all():
            continue
        best = certify(polytope, objective, structured.solve(polytope, objective))
        value = best.objective
        if isinstance(objective, Threshold):
            value = objective.level(polytope.throughput(best.shares))
        if best.gap > 1e-9 or not claim(polytope, objective, best):
            others += 1
            continue
        claimed += 1
        width = width_of_face(polytope, objective, value, rng)
        if width > 1e-3 and (polytope.rates > 0).all():
            # columns of no rate are no choice, and what grows with the relaxation is its doing
            wider = width_of_face(polytope, objective, value, rng, 1e-9)
            assert wider > 10 * width, f"{kind}, seed {seed}: {width:.1e}"
    # both happen
    assert claimed >= 20
    assert others >= 20


def unique(polytope: Polytope, multipliers: np.ndarray, prices: np.ndarray) -> bool:
    worth = multipliers[:, None] * polytope.rates
    return is_unique(polytope, worth, prices, np.ones(polytope.n_jobs, dtype=bool))


def test_two_jobs_with_different_tastes_have_one_optimum(polytope_of):
    """Max-min of two jobs on two types: the prices make one of them indifferent, capacity settles it."""
    polytope = polytope_of(np.array([[4.0, 1.0], [2.0, 1.0]]), np.ones(2, dtype=np.int64), np.array([0.5, 1.0]))
    objective = MaxMin(np.array([4.0, 2.0]))
    best = certify(polytope, objective, structured.solve(polytope, objective))
    assert best.gap <= 1e-10
    assert unique(polytope, best.multipliers, best.dual_prices)


def test_equal_types_leave_a_choice(polytope_of):
    """Two jobs, two types that are the same to both."""
    polytope = polytope_of(np.ones((2, 2)), np.ones(2, dtype=np.int64), np.array([0.5, 0.5]))
    objective = MaxMin(np.ones(2))
    best = certify(polytope, objective, structured.solve(polytope, objective))
    assert best.gap <= 1e-10
    assert not unique(polytope, best.multipliers, best.dual_prices)


def test_equal_types_to_spare_leave_a_choice(polytope_of):
    """A job at its most, to whom two types are the same: its time and its throughput are one condition, not two."""
    polytope = polytope_of(np.ones((1, 2)), np.ones(1, dtype=np.int64), np.array([4.0, 10.0]))
    objective = MaxMin(np.ones(1))
    best = certify(polytope, objective, structured.solve(polytope, objective))
    assert not unique(polytope, best.multipliers, best.dual_prices)


def test_equal_jobs_leave_a_choice(polytope_of):
    """Two jobs of the same tastes can trade mixes of three types."""
    rates = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    polytope = polytope_of(rates, np.ones(2, dtype=np.int64), np.array([0.4, 0.6, 0.5]))
    objective = MaxMin(np.ones(2))
    best = certify(polytope, objective, structured.solve(polytope, objective))
    assert best.gap <= 1e-10
    assert not unique(polytope, best.multipliers, best.dual_prices)


@pytest.mark.parametrize("speed", [1e-9, 1.0, 1e7, 1e12])
def test_the_unit_of_the_steps_changes_nothing(polytope_of, speed):
    """Fast jobs that may idle: a demand in millions of steps/s does not drown the row of time."""
    polytope = polytope_of(speed * np.array([[2.0, 1.0], [1.0, 1.0]]), np.ones(2, dtype=np.int64), np.ones(2))
    both = np.ones(2, dtype=bool)
    freedom = Freedom(polytope, np.ones((2, 2), dtype=bool), both, both)
    assert freedom.degrees.tolist() == [1, 1]
    with np.errstate(all="raise"):
        moves = freedom.moves(np.arange(2))
    # throughput and, with idle time, all time stay
    np.testing.assert_allclose((moves * polytope.rates / speed).sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose((moves * moves).sum(axis=1), 1.0)


def test_a_fast_job_with_one_column_that_may_idle_has_no_move(polytope_of):
    """What it may change is its idle time alone, and that its time does not let it."""
    polytope = polytope_of(np.array([[1e9, 0.0]]), np.ones(1, dtype=np.int64), np.ones(2))
    every = np.ones(1, dtype=bool)
    freedom = Freedom(polytope, polytope.rates > 0, every, every)
    with np.errstate(all="raise"):
        assert freedom.moves(np.arange(1)).shape == (0, 2)
