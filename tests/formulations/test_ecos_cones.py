"""The cone program that ECOS is given without cvxpy is the one that cvxpy makes of the statement, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import FinishTimeFairness, MaxMin, Polytope
from formulations.core.solution import NotAcceptedError
from formulations.reference import convex
from formulations.reference.ecos_cones import inverse_cones, solve
from throughputs import PlainColumns, ThroughputMatrix

SIZES = [(1, 1), (2, 1), (25, 1), (1, 3), (6, 2), (9, 3)]


def draw(jobs: int, types: int) -> tuple[Polytope, FinishTimeFairness]:
    """Jobs that run on the first type at least."""
    rng = np.random.default_rng([jobs, types])
    rates = rng.uniform(0.5, 5.0, (jobs, types))
    rates[:, 1:][rng.random((jobs, types - 1)) < 0.3] = 0.0
    matrix = ThroughputMatrix(
        rates, range(jobs), [f"type{m}" for m in range(types)], scale_factors=rng.choice([1, 2, 8], jobs)
    )
    polytope = Polytope(PlainColumns(matrix), np.arange(8, 8 + types))
    seconds = rng.uniform(10.0, 90.0, (3, jobs))
    return polytope, FinishTimeFairness(*seconds)


@pytest.mark.parametrize(("jobs", "types"), SIZES)
def test_same_program(jobs, types):
    pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")
    polytope, objective = draw(jobs, types)
    stated, _ = convex.state(polytope, objective, "ECOS")
    made, _, _ = stated.get_problem_data("ECOS")
    ours = inverse_cones(polytope, *objective.in_inverses())
    assert ours.dims == {"l": made["dims"].nonneg, "q": made["dims"].soc, "e": made["dims"].exp}
    assert ours.matrix.shape == made["G"].shape
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(ours.matrix, name), getattr(made["G"], name))
    for one, other in ((ours.matrix.data, made["G"].data), (ours.right, made["h"]), (ours.cost, made["c"])):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("jobs", "types"), SIZES)
def test_same_answer(jobs, types):
    pytest.importorskip("ecos", reason="the published solver is optional: pip install cluster-allocator[ecos]")
    polytope, objective = draw(jobs, types)
    ours, stated = solve(polytope, objective), convex.solve_ecos(polytope, objective)
    assert ours.iterations == stated.iterations
    for name in ("shares", "multipliers", "prices"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(stated, name))


def test_other_objectives_are_not_taken():
    polytope, _ = draw(3, 1)
    with pytest.raises(NotAcceptedError, match="MaxMin"):
        solve(polytope, MaxMin(np.ones(3)))
