"""Optimal is what is proven within the tolerance, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import formulations.solving.solver
from formulations import FinishTimeFairness, Makespan, MaxMin, maximise_worth, solve, solve_packed
from formulations.columns import engines
from formulations.packed.engines import ENGINES
from formulations.packed.polytope import PackedPolytope
from formulations.solving.backends import get_backend
from throughputs.packed import PackedColumns

RATES = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 5.0]])
SCALES, CAPACITY = np.ones(3, dtype=np.int64), np.array([1.0, 1.0])
OBJECTIVES = {
    "max_min": MaxMin(np.array([1.0, 2.0, 3.0])),
    "makespan": Makespan(np.array([10.0, 20.0, 30.0])),
    "finish_time": FinishTimeFairness(np.array([0.0, 1.0, 2.0]), np.full(3, 10.0), np.full(3, 10.0)),
}

LOSSES = [(1e-9, "optimal"), (3e-8, "optimal"), (3e-7, "feasible"), (2e-6, "feasible"), (8e-6, "feasible")]
"""Part of every share that a rough solver gives away, and what its answer is; the tolerance is 1e-7."""


class Rough:
    """A backend that gives a part of every share away."""

    name, starts, aggregates = "rough", False, True

    def __init__(self, loss: float) -> None:
        self.loss = loss

    def load(self):
        exact = get_backend("structured").load()

        def run(polytope, objective):
            answer = exact(polytope, objective)
            return replace(answer, shares=answer.shares * (1.0 - self.loss))

        return run


@pytest.mark.parametrize(("loss", "status"), LOSSES)
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_an_answer_is_optimal_up_to_the_tolerance(polytope_of, monkeypatch, kind, loss, status):
    monkeypatch.setattr(formulations.solving.solver, "get_backend", lambda _: Rough(loss))
    solution = solve(polytope_of(RATES, SCALES, CAPACITY), OBJECTIVES[kind], solver="rough")
    assert solution.status == status
    assert solution.gap == pytest.approx(loss, rel=0.7, abs=2e-9)
    assert (solution.gap <= 1e-7) == (status == "optimal")


@pytest.mark.parametrize(("loss", "status"), LOSSES)
def test_with_floors_too(polytope_of, monkeypatch, loss, status):
    class RoughHighs(engines.Highs):
        def optimise(self, cost):
            found = super().optimise(cost)
            return replace(found, z=found.z * (1.0 - loss))

    monkeypatch.setitem(engines.ENGINES, "highs", RoughHighs)
    solution = maximise_worth(polytope_of(RATES, SCALES, CAPACITY), RATES, solver="highs")
    assert solution.status == status
    assert solution.gap == pytest.approx(loss, rel=0.01, abs=1e-9)


@pytest.mark.parametrize(("loss", "status"), LOSSES)
def test_with_pairs_too(monkeypatch, loss, status):
    exact = ENGINES["class_pairs"]

    def start(program):
        solve_exactly = exact(program)

        def run(goal):
            point = solve_exactly(goal)
            return replace(point, alone=point.alone * (1.0 - loss), shared=point.shared * (1.0 - loss))

        return run

    monkeypatch.setitem(ENGINES, "rough", start)
    columns = PackedColumns(np.arange(3), RATES, np.broadcast_to(0.6 * RATES[:, None, :], (3, 3, 2)))
    solution = solve_packed(PackedPolytope(columns, CAPACITY), OBJECTIVES["max_min"], solver="rough")
    assert solution.status == status
    assert solution.gap == pytest.approx(loss, rel=0.01, abs=2e-9)


@pytest.mark.parametrize("kind", ["max_min", "makespan", "finish_time", "max_sum"])
def test_the_choice_costs_no_proof(draw, draw_hard, kind):
    """With a tolerance of just what was proven, a choice that costs more than that is not taken."""
    for each in (draw, draw_hard):
        for seed in range(40):
            polytope, objectives = each(seed)
            proven = min((attempt.gap for attempt in solve(polytope, objectives[kind]).attempts), default=0.0)
            solution = solve(polytope, objectives[kind], tolerance=proven)
            assert solution.status in ("optimal", "empty"), f"seed {seed}"
            assert solution.gap <= proven, f"seed {seed}"
