"""Levels in closed form, and types on which every job is as fast."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import FinishTimeFairness, Makespan, MaxMin, MaxSum, NashWelfare, Polytope, SolverError, solve
from tests.formulations.programs import polytope_of

N = 12
KINDS = {
    "max_min": lambda rng: MaxMin(rng.uniform(1, 9, N)),
    "makespan": lambda rng: Makespan(10.0 ** rng.uniform(3, 4, N)),
    "finish_time": lambda rng: FinishTimeFairness(
        rng.uniform(0, 1e4, N), 10.0 ** rng.uniform(3, 4, N), rng.uniform(1e4, 2e4, N)
    ),
}


def drawn(seed: int, n_types: int) -> tuple[Polytope, np.random.Generator]:
    rng = np.random.default_rng(seed)
    rates = 10.0 ** rng.uniform(-1, 1, (N, n_types))
    gangs = rng.choice([1, 2, 4], N)
    return polytope_of(rates, gangs, rng.uniform(0.1, 1.2, n_types) * gangs.sum() / n_types), rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_types", [1, 3])
def test_levels_are_those_of_the_linear_program(kind, n_types):
    """On one type always; on several where one job holds the level alone and the others fit beside it."""
    found = 0
    for seed in range(30):
        polytope, rng = drawn(seed, n_types)
        objective = KINDS[kind](rng)
        exact = solve(polytope, objective, solver="highs")
        try:
            direct = solve(polytope, objective, solver="closed_form")
        except SolverError:
            assert n_types > 1
            continue
        found += 1
        assert (direct.status, direct.solver) == ("optimal", "closed_form")
        assert direct.objective == pytest.approx(exact.objective, rel=1e-9)
        assert polytope.violation(direct.shares) <= 1e-9
        if n_types > 1:
            assert (direct.prices == 0).all()
    assert found >= (30 if n_types == 1 else 3)


def test_a_level_that_jobs_hold_together_is_left_to_others():
    polytope = polytope_of([[1.0, 2.0], [2.0, 1.0]], None, [0.5, 0.5])
    with pytest.raises(SolverError, match="jobs hold the level together"):
        solve(polytope, MaxMin(np.ones(2)), solver="closed_form")


@pytest.mark.parametrize("objective", [MaxSum(np.ones(3)), NashWelfare(np.ones(3))])
def test_sums_have_no_level(objective):
    polytope = polytope_of(np.ones((3, 1)), None, [2.0])
    with pytest.raises(SolverError, match="is not piecewise linear"):
        solve(polytope, objective, solver="closed_form")


def test_types_on_which_all_are_as_fast_are_one():
    """Two of three types: the same level as with one of as many GPUs, split as the GPUs are, at one price."""
    rng = np.random.default_rng(0)
    fast, slow = rng.uniform(4, 9, N), rng.uniform(1, 3, N)
    objective = MaxMin(rng.uniform(1, 2, N))
    apart = solve(polytope_of(np.column_stack([slow, fast, slow]), None, [3.0, 2.0, 1.0]), objective)
    one = solve(polytope_of(np.column_stack([slow, fast]), None, [4.0, 2.0]), objective)
    assert apart.objective == pytest.approx(one.objective, rel=1e-12)
    np.testing.assert_allclose(apart.shares[:, [0, 2]], one.shares[:, :1] * [0.75, 0.25], atol=1e-12)
    np.testing.assert_allclose(apart.prices, one.prices[[0, 1, 0]])
    # no two types alike where one job tells them apart
    told = np.column_stack([slow, fast, slow])
    told[0, 2] *= 2.0
    assert solve(polytope_of(told, None, [3.0, 2.0, 1.0]), objective).objective > one.objective
