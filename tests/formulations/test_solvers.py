"""Every family by every solver: answers are proven by hand from prices and multipliers, and nobody claims too much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import formulations.solving.choice
from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    PackedPolytope,
    SolverError,
    Threshold,
    WaterFilling,
    isolated_throughput,
    solve,
)
from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import Attempt, NotAcceptedError
from formulations.packed.class_pairs import ClassPairs
from formulations.solving.backends import BACKENDS, get_backend
from formulations.statements.shares import goal
from tests.formulations.programs import (
    FEATURES,
    KINDS,
    LINEAR,
    PACKED,
    draw_contended,
    draw_hard,
    draw_packed,
    feasible,
    most,
    objectives_of,
    polytope_of,
    size_of,
    verify,
)
from throughputs import PackedColumns

ACCURACY = {
    **dict.fromkeys(("structured", "highs"), 2e-8),
    **dict.fromkeys(("clarabel", "cbc"), 1e-6),
    "ecos": 1e-5,
    "scs": 1e-2,
}
"""How near a solver's own point is on programs without traps, relative."""

TAKES = {
    **dict.fromkeys(("highs", "cbc"), PACKED),
    "structured": KINDS,
    **dict.fromkeys(("clarabel", "ecos", "scs"), (*LINEAR, "nash_welfare")),
}
"""The families that each backend takes; the others it refuses by name."""


@pytest.mark.parametrize("blocks", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", KINDS)
def test_optimum_is_proven_by_hand(kind, blocks):
    for draw, number in ((draw_hard, FEATURES * blocks), (draw_contended, 2 * blocks)):
        for seed in range(number):
            polytope, objectives = draw(seed)
            verify(polytope, objectives[kind], solve(polytope, objectives[kind]), f"{draw.__name__} {seed}")


@pytest.mark.parametrize("blocks", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", PACKED)
def test_optimum_in_pairs_is_proven_by_hand(kind, blocks):
    # the last seeds have types with next to no GPUs whose price matters to the bound, or their use to the choice
    hard = [(seed, 8) for seed in range(8 * blocks)] + [(200_357, 60), (200_642, 60), (100_637, 9), (100_434, 9)]
    for seed, largest in hard:
        polytope, objectives = draw_packed(seed, largest)
        found = solve(polytope, objectives[kind])
        verify(polytope, objectives[kind], found, f"seed {seed}")
        if found.served.any() and kind != "max_sum":
            assert found.efficiency_gap <= 1e-6, f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", TAKES)
def test_every_solver_finds_the_same_and_claims_no_more(solver, kind):
    if BACKENDS[solver].missing:
        pytest.skip(f"{solver} is not installed: {BACKENDS[solver].install}")
    if kind not in TAKES[solver]:
        polytope, objectives = draw_contended(0)
        with pytest.raises(SolverError, match=f"^{solver}: "):
            solve(polytope, objectives[kind], solver=solver)
        return
    cvxpy = solver in ("clarabel", "ecos", "scs")
    for draw, number in ((draw_contended, 1), (draw_hard, 1 if cvxpy else 3)):
        for seed in range(number):
            polytope, objectives = draw(seed)
            objective, case = objectives[kind], f"{draw.__name__} {seed}"
            best = solve(polytope, objective)
            try:
                found = solve(polytope, objective, solver=solver)
            except SolverError:
                assert draw is draw_hard, case
                continue
            if best.status == "empty":
                continue
            feasible(polytope, found, case)
            assert (found.status == "optimal") == (found.gap <= 1e-7), case
            size, sign = size_of(objective, best.objective), 1 if objective.maximise else -1
            assert sign * (best.objective - found.bound) <= 1e-9 * size, case
            assert sign * (found.objective - best.bound) <= 1e-9 * size, case
            # seconds are far from the units that conic solvers are told accuracy in
            benign = draw is draw_contended and not (cvxpy and kind == "makespan")
            off = ACCURACY[solver] if benign else 1.2e-7 if found.status == "optimal" else np.inf
            assert abs(found.objective - best.objective) <= off * size, case
            if benign and found.status == "optimal" and kind != "nash_welfare":
                # nor does the choice among optima depend on who found one
                np.testing.assert_allclose(found.shares, best.shares, atol=2e-4 if off < 1e-6 else 1e-2, err_msg=case)


@settings(max_examples=15)
@given(
    rates=arrays(np.float64, (4, 3), elements=st.integers(0, 9).map(float)),
    scale_factors=arrays(np.int64, 4, elements=st.sampled_from([1, 2, 4])),
    capacity=arrays(np.float64, 3, elements=st.integers(0, 6).map(float)),
    weights=arrays(np.float64, 4, elements=st.sampled_from([0.001, 1.0, 1.0, 5.0, 1000.0])),
)
def test_small_whole_numbers(rates, scale_factors, capacity, weights):
    """Every program of small whole numbers is empty or proven, whatever is tied, zero or missing."""
    polytope = polytope_of(rates, scale_factors, capacity)
    served = (rates[:, capacity > 0] > 0).any(axis=1)
    unknown = (capacity == 0) & (rates[~served] > 0).any(axis=0)
    ones = np.ones(4)
    for objective in (MaxMin(weights), Makespan(weights), MaxSum(weights), WaterFilling(ones, weights)):
        found = solve(polytope, objective)
        verify(polytope, objective, found)
        # of a type without GPUs on which somebody runs who runs nowhere else, but in a sum
        expected = ~unknown | (isinstance(objective, MaxSum) & served.any())
        np.testing.assert_array_equal(np.isfinite(found.prices), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_figures_over_eighteen_decades_warn_of_nothing(kind):
    """Jobs that are all but done, that have waited for ages, that hardly run."""
    for seed in range(4):
        rng = np.random.default_rng([seed, 99])
        N, M, decades = int(rng.integers(1, 12)), int(rng.integers(1, 5)), float(rng.choice([1, 3, 6, 9]))
        rates = rng.uniform(0.01, 1, (N, M)) * 10.0 ** rng.uniform(-decades / 2, decades / 2, (N, 1))
        rates[rng.random((N, M)) < rng.choice([0, 0.3])] = 0
        sizes, gpus = rng.choice([1, 2, 4, 8], N), rng.integers(0, 2 * N + 2, M)
        weights = 10.0 ** rng.uniform(-decades / 2, decades / 2, N)
        goals = objectives_of(rng, rates, sizes, gpus, weights, decades=(-decades, decades))
        polytope, objective = polytope_of(rates, sizes, gpus), goals[kind]
        for solver in ("auto", "structured"):
            feasible(polytope, solve(polytope, objective, solver=solver), f"seed {seed}")


def test_a_job_that_is_all_but_done_after_ages():
    """What it still needs is lost in the rounding of its time so far, which alone is its finish-time fairness."""
    objective = FinishTimeFairness([1e9, 10.0], [1e-9, 5.0], [1e9, 20.0])
    found = solve(polytope_of([[1.0, 2.0], [1.0, 3.0]], None, [1, 1]), objective)
    assert (found.status, found.objective) == ("optimal", pytest.approx(1.0, rel=1e-12))


@dataclass(frozen=True, eq=False)
class AboveReserve(Threshold):
    """An objective that the package does not know: the least throughput beyond a reserve, relative to a weight."""

    reserve: np.ndarray
    weights: np.ndarray
    maximise = higher_level_is_better = True
    unit = "beyond the reserve"

    def demand(self, level):
        return self.reserve + self.weights * level

    def slope(self, level):  # noqa: ARG002
        return self.weights

    def levels(self, u):
        return (u - self.reserve) / self.weights

    def bound(self, multipliers, supply):
        weight = float(multipliers @ self.weights)
        return (supply - float(multipliers @ self.reserve)) / weight if weight > 0 else np.inf

    def take(self, jobs):
        return AboveReserve(self.reserve[jobs], self.weights[jobs])

    def key(self):
        return np.column_stack([self.reserve, self.weights])


@goal.register
def stated(objective: AboveReserve, u: Any) -> Any:
    return cp.Maximize(cp.min(cp.multiply(1.0 / objective.weights, u - objective.reserve)))


def above_reserve(seed, N):
    rng = np.random.default_rng([seed, 17])
    rates = rng.uniform(0.1, 1, (N, 3)) * 10.0 ** rng.uniform(-1, 1, (N, 1))
    polytope = polytope_of(rates, rng.choice([1, 2, 4], N), rng.integers(1, N // 2 + 2, 3))
    reserve = rng.uniform(0, 0.6, N) * isolated_throughput(rates, polytope.scale_factors, polytope.capacity)
    return polytope, AboveReserve(reserve, rates.max(axis=1) * rng.uniform(0.5, 2, N))


@pytest.mark.parametrize("solver", ["auto", "structured", "highs", "clarabel", "class_pairs"])
def test_every_path_takes_an_objective_of_ones_own(solver):
    """At the level found the demands can be met, just above it they cannot."""
    for seed in range(2):
        polytope, objective = above_reserve(seed, 7)
        if solver == "class_pairs":
            apart = PackedColumns(np.arange(7), polytope.rates, np.zeros((7, 7, 3)), polytope.scale_factors)
            found = solve(PackedPolytope(apart, polytope.capacity), objective)
        else:
            found = solve(polytope, objective, solver=solver)
            supply = polytope.supply_at(found.multipliers, found.prices)
            assert objective.bound(found.multipliers, supply) == pytest.approx(found.bound, rel=1e-9)
        assert found.status == "optimal"
        assert found.efficiency_gap <= 2e-6
        feasible(polytope, replace(found, pairs=None) if solver == "class_pairs" else found)
        for level, possible in ((found.objective * (1 - 1e-6), True), (found.objective * (1 + 1e-6), False)):
            none = np.zeros(polytope.rates.size)
            assert (most(polytope, none, objective.demand(level)) is not None) == possible, f"seed {seed}"


def test_with_many_jobs_prices_find_an_objective_of_ones_own():
    polytope, objective = above_reserve(0, 3500)
    found = solve(polytope, objective)
    assert (found.solver, found.status) == ("prices", "optimal")


def test_jobs_that_are_worth_nothing_do_not_keep_a_sum_from_its_optimum():
    for seed in range(20):
        rates = np.random.default_rng(seed).integers(1, 5, (4, 2)).astype(float)
        found = solve(polytope_of(rates, None, [1.0, 1.0]), MaxSum([0.0, 1.0, 1.0, 2.0]))
        assert [attempt.solver for attempt in found.attempts] == ["structured"], f"seed {seed}"


def test_highs_is_on_one_thread_beside_others_that_have_more():
    """All of a process share one pool of threads, which HiGHS refuses to use with another number of them."""
    highspy.Highs.resetGlobalScheduler(True)
    x = cp.Variable(nonneg=True)
    cp.Problem(cp.Maximize(x), [x <= 1]).solve(solver="HIGHS", threads=2)
    found = solve(polytope_of(RATES, None, [1.0, 1.0]), MaxMin([1.0, 2.0, 3.0]), solver="highs")
    assert found.status == "optimal"


RATES = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 5.0]])
ROUGH = {
    "max_min": MaxMin([1.0, 2.0, 3.0]),
    "makespan": Makespan([10.0, 20.0, 30.0]),
    "finish_time": FinishTimeFairness([0.0, 1.0, 2.0], np.full(3, 10.0), np.full(3, 10.0)),
}


@pytest.mark.parametrize(
    ("loss", "status"), [(1e-9, "optimal"), (3e-8, "optimal"), (3e-7, "feasible"), (8e-6, "feasible")]
)
@pytest.mark.parametrize("kind", [*ROUGH, "pairs"])
def test_optimal_is_what_is_proven_within_the_tolerance(monkeypatch, kind, loss, status):
    """A solver that gives a part of every share away; the tolerance is 1e-7."""

    class Rough:
        name, aggregates = "rough", True

        def __call__(self, polytope, objective):
            answer = get_backend("structured")(polytope, objective)
            return replace(answer, shares=answer.shares * (1.0 - loss))

    exact = ClassPairs.best

    def rough_pairs(pairs, goal):
        answer = exact(pairs, goal)
        return replace(answer, shares=answer.shares * (1.0 - loss))

    polytope = polytope_of(RATES, None, [1.0, 1.0])
    if kind == "pairs":
        monkeypatch.setattr(ClassPairs, "best", rough_pairs)
        columns = PackedColumns(np.arange(3), RATES, np.broadcast_to(0.6 * RATES[:, None, :], (3, 3, 2)))
        found = solve(PackedPolytope(columns, [1.0, 1.0]), ROUGH["max_min"])
    else:
        monkeypatch.setattr(formulations.solving.choice, "in_order", lambda *_: [Rough()])
        found = solve(polytope, ROUGH[kind], solver="rough")
    assert found.status == status
    assert found.gap == pytest.approx(loss, rel=0.7 if kind in ROUGH else 0.01, abs=2e-9)


@pytest.mark.parametrize("kind", LINEAR)
def test_the_choice_costs_no_proof(kind):
    """With a tolerance of just what was proven, a choice that costs more than that is not taken."""
    for seed in range(FEATURES):
        polytope, objectives = draw_hard(seed)
        proven = min((attempt.gap for attempt in solve(polytope, objectives[kind]).attempts), default=0.0)
        found = solve(polytope, objectives[kind], tolerance=proven)
        assert found.status in ("optimal", "empty"), f"seed {seed}"
        assert found.gap <= proven, f"seed {seed}"


def turn(name, gap, by=""):
    def run():
        if isinstance(gap, Exception):
            raise gap
        return Judged(f"answer of {name}", gap, by)

    return Turn(name, run)


SMALL, BROKEN = NotAcceptedError("too many jobs"), RuntimeError("no progress")


@pytest.mark.parametrize(
    ("turns", "answer", "record"),
    [
        ([("a", 1e-3), ("b", 1e-9), ("c", 0.0)], ("b", "b"), [("a", ""), ("b", "")]),
        # else the smallest gap, the first of equals
        ([("a", 1e-3), ("b", 1e-5), ("c", 1e-5), ("d", np.inf)], ("b", "b"), [(each, "") for each in "abcd"]),
        # failures are on record, refusals are not, and an answer is whose it says
        (
            [("a", SMALL), ("b", BROKEN), ("c", np.linalg.LinAlgError("singular")), ("d", 1e-9, "e")],
            ("d", "e"),
            [("b", "no progress"), ("c", "singular"), ("e", "")],
        ),
    ],
)
def test_one_engine_after_the_other(turns, answer, record):
    attempts: list[Attempt] = []
    assert solve_in_turn([turn(*each) for each in turns], 1e-7, attempts) == (f"answer of {answer[0]}", answer[1])
    assert [(each.solver, each.note) for each in attempts] == record


def test_nobody_has_an_answer_and_other_errors_are_not_swallowed():
    with pytest.raises(SolverError, match=r"^a: too many jobs; b: no progress$"):
        solve_in_turn([turn("a", SMALL), turn("b", BROKEN)], 1e-7, [Attempt("earlier", 0.0, 0.0, "of another")])
    with pytest.raises(KeyError):
        solve_in_turn([turn("a", KeyError("typo")), turn("b", 0.0)], 1e-7, [])
