"""Every backend finds the same optimum, and the certificate says so."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Makespan, MaxMin, Objective, Polytope, SolverError, solve
from formulations.core.certificate import certify
from formulations.core.solution import Answer
from formulations.solving.backends import BACKENDS, available
from throughputs import InputError

OBJECTIVES = ("max_min", "makespan", "finish_time", "max_sum")

# Relative accuracy that each backend's default algorithm reaches on these programs.
ACCURACY = {"structured": 1e-8, "highs": 1e-8, "clarabel": 1e-6, "ecos": 1e-3, "cbc": 1e-6}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_structured_equals_highs(draw, kind):
    """The structured path against simplex on programs with ties, zeros and weights over six orders of magnitude."""
    for seed in range(120):
        polytope, objectives = draw(seed)
        structured = solve(polytope, objectives[kind], solver="structured", choice="balanced")
        simplex = solve(polytope, objectives[kind], solver="highs")
        assert structured.gap <= 1e-7, f"seed {seed}"
        assert structured.objective == pytest.approx(simplex.objective, rel=5e-8), f"seed {seed}"
        assert polytope.violation(structured.shares) <= 1e-12, f"seed {seed}"


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("backend", ["clarabel", "ecos", "cbc"])
def test_other_backends_agree(draw, kind, backend):
    if backend not in available():
        pytest.skip(f"{backend} is not installed: {BACKENDS[backend].install}")
    for seed in range(300, 312):
        polytope, objectives = draw(seed)
        reference = solve(polytope, objectives[kind])
        other = solve(polytope, objectives[kind], solver=backend)
        assert other.objective == pytest.approx(reference.objective, rel=ACCURACY[backend]), f"seed {seed}"
        assert polytope.violation(other.shares) <= 1e-12


def test_operator_splitting_is_reported_as_it_is(draw):
    """SCS is inaccurate at times; its answers are then called feasible, never optimal."""
    for seed in range(20):
        polytope, objectives = draw(seed)
        solution = solve(polytope, objectives["max_min"], solver="scs")
        assert (solution.status == "optimal") == (solution.gap <= 1e-7)
        assert polytope.violation(solution.shares) <= 1e-12


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_small_programs_in_clarabel_equal_the_structured_path(draw, kind):
    for seed in range(200, 260):
        polytope, objectives = draw(seed)
        try:
            compiled = solve(polytope, objectives[kind], solver="compiled")
        except RuntimeError as error:
            assert "Clarabel stopped" in str(error)  # noqa: PT017
            continue
        structured = solve(polytope, objectives[kind], solver="structured")
        assert compiled.objective == pytest.approx(structured.objective, rel=max(5e-8, 2 * compiled.gap))


def test_large_programs_are_left_to_the_structured_path(polytope_of):
    rng = np.random.default_rng(0)
    polytope = polytope_of(rng.uniform(1, 2, (130, 2)), np.ones(130, dtype=np.int64), np.array([20, 20]))
    solution = solve(polytope, MaxMin(np.ones(130)))
    assert [attempt.solver for attempt in solution.attempts] == ["structured"]
    with pytest.raises(SolverError, match="compiled: 130 classes of jobs are more than 96"):
        solve(polytope, MaxMin(np.ones(130)), solver="compiled")


def test_auto_is_always_proven(draw):
    for seed in range(400, 460):
        polytope, objectives = draw(seed)
        for kind, objective in objectives.items():
            solution = solve(polytope, objective)
            assert solution.status == "optimal", f"{kind}, seed {seed}"


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_any_multipliers_bound_the_optimum(draw, kind):
    """Weak duality: whatever prices and multipliers a backend returns, the bound is never passed."""
    rng = np.random.default_rng(0)
    for seed in range(60):
        polytope, objectives = draw(seed)
        objective = objectives[kind]
        optimum = solve(polytope, objective, choice="published")
        if isinstance(objective, Makespan):
            optimum = solve(polytope, objective)
        N, M = polytope.rates.shape
        answer = Answer(rng.random((N, M)), rng.exponential(size=N), rng.exponential(size=M))
        bound = certify(polytope, objective, answer).bound
        sign = 1 if objective.maximise else -1
        assert sign * bound >= sign * optimum.objective * (1 - sign * 1e-9)


def test_a_wrong_answer_does_not_pass(draw):
    polytope, objectives = draw(3)
    good = solve(polytope, objectives["max_min"], choice="published")
    answer = Answer(good.shares * 0.9, good.multipliers, good.prices)
    assert certify(polytope, objectives["max_min"], answer).gap > 0.05


def test_infeasible_shares_are_scaled_into_the_polytope(draw):
    polytope, objectives = draw(5)
    answer = Answer(np.full(polytope.rates.shape, 3.0), np.ones(polytope.n_jobs), np.ones(len(polytope.capacity)))
    certificate = certify(polytope, objectives["max_min"], answer)
    assert polytope.violation(certificate.shares) <= 1e-12


def test_next_backend_is_tried_and_counted(draw, monkeypatch):
    """A first backend that fails or misses the tolerance is followed by the next and stays on record."""
    from formulations.interior_point import compiled, structured

    polytope, objectives = draw(7)

    def fail(_polytope: Polytope, _objective: Objective) -> Answer:
        raise RuntimeError("out of order")

    monkeypatch.setattr(compiled, "solve", fail)
    monkeypatch.setattr(structured, "solve", fail)
    solution = solve(polytope, objectives["max_min"])
    assert solution.solver == "highs"
    assert [attempt.solver for attempt in solution.attempts] == ["compiled", "structured", "highs"]
    assert solution.attempts[0].note == "out of order"


def test_unknown_solver_names_the_nearest(draw):
    polytope, objectives = draw(1)
    with pytest.raises(InputError, match="did you mean 'clarabel'"):
        solve(polytope, objectives["max_min"], solver="clarable")


def test_missing_package_says_how_to_get_it(draw, monkeypatch):
    from dataclasses import replace

    polytope, objectives = draw(1)
    monkeypatch.setitem(BACKENDS, "ecos", replace(BACKENDS["ecos"], requires=("no_such_package",)))
    with pytest.raises(InputError, match=r"pip install cluster-allocator\[ecos\]"):
        solve(polytope, objectives["max_min"], solver="ecos")
