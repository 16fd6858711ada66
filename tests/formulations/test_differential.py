"""Every family of programs, 504 hard draws each, against simplex and a conic solver that are told nothing of ours.

The references are judged too: where one proves less than 1e-9 for itself, all that it may not do is beat our bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from formulations import FinishTimeFairness, MaxMin, MaxSum, Objective, Polytope, Solution, Threshold, solve
from formulations.core.certificate import Certificate, certify
from formulations.core.solution import Answer
from formulations.solving.backends import get_backend

Array = NDArray[np.float64]

KINDS = ("max_min", "makespan", "finish_time", "max_sum")
BLOCKS = range(7)
PER_BLOCK = 72
"""A multiple of the 12 features that `draw_hard` goes through."""

CLOSE = 1e-8
"""Relative difference of objectives that is asked for."""

SURE = 1e-9
"""Relative gap from which a reference is believed."""


def served_part(polytope: Polytope, objective: Objective) -> tuple[Polytope, Objective]:
    """The jobs that gain something somewhere, and the types that have GPUs."""
    types = np.flatnonzero(polytope.capacity > 0)
    jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
    return polytope.restricted(jobs, types), objective.take(jobs)


def proven(backend: str, polytope: Polytope, objective: Objective) -> Certificate | None:
    """What one backend alone finds, and proves; None where it gives up."""
    try:
        return certify(polytope, objective, get_backend(backend).load()(polytope, objective))
    except RuntimeError:
        return None


def in_clarabel(polytope: Polytope, objective: Objective) -> Certificate | None:
    """The program as a textbook states it, straight into Clarabel; None where that does not end.

    Shares are counted in what capacity allows of them, throughputs in those of an even split, levels in the level of
    an even split; finish-time fairness is ``a b >= 1``, a cone, with ``a`` the throughput and ``b`` the time left.
    """
    import clarabel

    N, M = polytope.rates.shape
    unit = np.minimum(1.0, polytope.capacity / polytope.scale_factors[:, None])
    even = (polytope.rates * unit).max(axis=1) / (N * M)
    columns = N * M + 1
    job, type_, column = np.repeat(np.arange(N), M), np.tile(np.arange(M), N), np.arange(N * M)
    one = np.zeros((N + M + N * M, columns))
    one[job, column] = unit.ravel()
    one[N + type_, column] = (polytope.scale_factors[:, None] * unit / polytope.capacity).ravel()
    one[N + M + column, column] = -1.0
    limit = np.concatenate([np.ones(N + M), np.zeros(N * M)])
    gain = np.zeros((N, columns))
    gain[job, column] = (polytope.rates * unit).ravel() / even[job]
    cost, cones = np.zeros(columns), [clarabel.NonnegativeConeT(len(one))]
    rows, limits = [one], [limit]
    if isinstance(objective, MaxSum):
        cost = -((objective.gains * even) @ gain)
        cost /= max(np.abs(cost).max(), 1e-300)
        scale = 1.0
    elif isinstance(objective, FinishTimeFairness):
        scale = objective.level(even)
        growth = objective.isolated * even / objective.remaining
        cone = np.zeros((N, 3, columns))
        cone[:, 0], cone[:, 1] = -gain, -gain
        cone[:, 0, -1], cone[:, 1, -1] = -growth * scale, growth * scale
        left = -objective.elapsed * even / objective.remaining
        rows.append(cone.reshape(3 * N, columns))
        limits.append(np.stack([left, -left, np.full(N, 2.0)], axis=1).ravel())
        cones += [clarabel.SecondOrderConeT(3)] * N
        cost[-1] = 1.0
    else:
        assert isinstance(objective, MaxMin)
        scale = objective.level(even)
        demand = -gain
        demand[:, -1] = objective.weights * scale / even
        rows.append(demand)
        limits.append(np.zeros(N))
        cones.append(clarabel.NonnegativeConeT(N))
        cost[-1] = -1.0
    settings: Any = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    matrix = csc_matrix(np.concatenate(rows))
    quadratic = csc_matrix((columns, columns))
    point: Any = clarabel.DefaultSolver(quadratic, cost, matrix, np.concatenate(limits), cones, settings).solve()
    x, dual = np.array(point.x), np.array(point.z)
    if not (np.isfinite(x).all() and np.isfinite(dual).all()):
        return None
    of_demand = dual[len(one) :]
    if isinstance(objective, FinishTimeFairness):
        of_demand = of_demand.reshape(N, 3)[:, :2].sum(axis=1)
    prices = dual[N : N + M] / polytope.capacity
    if isinstance(objective, MaxSum):
        # back from a cost whose largest figure is 1
        prices *= np.abs((objective.gains * even) @ gain).max()
    answer = Answer(x[: N * M].reshape(N, M) * unit, of_demand / even if len(of_demand) else np.zeros(0), prices)
    return certify(polytope, objective, answer)


def bound_by_hand(polytope: Polytope, objective: Objective, solution: Solution) -> float:
    """The bound that a solution's prices and multipliers prove, from nothing but the definition of the polytope."""
    prices, multipliers = solution.prices, solution.multipliers
    served = np.flatnonzero(solution.served)
    if isinstance(objective, MaxSum):
        worth = objective.gains
    else:
        assert isinstance(objective, Threshold)
        worth = multipliers
        if isinstance(objective, MaxMin) and not objective.maximise:
            # seconds saved per GPU, back into the growth of the level
            prices = prices / solution.bound**2
    most = float(prices @ polytope.capacity)
    for i in served:
        profit = worth[i] * polytope.rates[i] - polytope.scale_factors[i] * prices
        most += max(0.0, float(profit[polytope.capacity > 0].max()))
    if isinstance(objective, MaxSum):
        return most
    rates = polytope.rates[:, polytope.capacity > 0]
    if isinstance(objective, MaxMin):
        alone = float((rates.max(axis=1) / objective.weights)[served].min())
        level = min(most / float((multipliers * objective.weights)[served].sum()), alone)
        return level if objective.maximise else 1.0 / level
    assert isinstance(objective, FinishTimeFairness)
    e, n, D = objective.elapsed[served], objective.remaining[served], objective.isolated[served]
    alone = float(((e + n / rates[served].max(axis=1)) / D).max())
    low, high = float((e / D).max()) * (1 + 1e-15), max(alone, solution.objective) * 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        needed = float((multipliers[served] * n / np.maximum(middle * D - e, 1e-300)).sum())
        low, high = (middle, high) if needed > most else (low, middle)
    return max(low, alone)


def beyond(objective: Objective, value: float, limit: float) -> float:
    """How much better a value is than a limit, relative; negative where it is worse."""
    if not np.isfinite([value, limit]).all():
        # a job that gets nothing at all never ends
        return -np.inf if np.isposinf(value) and not objective.maximise else np.inf
    size = max(abs(value), abs(limit), 1e-300)
    return (value - limit if objective.maximise else limit - value) / size


def hard_cases(draw_hard, block: int, kind: str):
    for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        polytope, objectives = draw_hard(seed)
        yield f"{kind}, seed {seed}", polytope, objectives[kind]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_as_users_call_it(draw_hard, kind, block):
    """Proven, feasible, priced, and what simplex and the conic solver find too."""
    sure = {"simplex": 0, "conic": 0}
    for case, polytope, objective in hard_cases(draw_hard, block, kind):
        solution = solve(polytope, objective)
        assert solution.status == "optimal", case
        assert solution.gap <= 1e-7, case
        assert beyond(objective, solution.bound, solution.objective) <= CLOSE, case
        assert polytope.violation(solution.shares) <= 1e-12, case
        assert (solution.shares >= 0).all(), case
        for figures in (solution.prices, solution.multipliers):
            assert np.isfinite(figures).all(), case
            assert (figures >= 0).all(), case
        part, goal = served_part(polytope, objective)
        for name, reference in (("simplex", proven("highs", part, goal)), ("conic", in_clarabel(part, goal))):
            if reference is None:
                continue
            assert beyond(objective, reference.objective, solution.bound) <= SURE, f"{case}: {name} beats the bound"
            assert beyond(objective, solution.objective, reference.bound) <= SURE, f"{case}: beats the bound of {name}"
            if reference.gap <= SURE:
                sure[name] += 1
                assert abs(beyond(objective, solution.objective, reference.objective)) <= CLOSE, f"{case}: {name}"
    assert sure["simplex"] >= 0.9 * PER_BLOCK, sure
    assert sure["conic"] >= 0.7 * PER_BLOCK, sure


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_follows_from_prices_and_multipliers(draw_hard, kind, block):
    """What a solution reports is enough to prove its bound again by hand."""
    for case, polytope, objective in hard_cases(draw_hard, block, kind):
        solution = solve(polytope, objective)
        by_hand = bound_by_hand(polytope, objective, solution)
        assert abs(beyond(objective, by_hand, solution.bound)) <= CLOSE, case
        assert beyond(objective, solution.objective, by_hand) <= SURE, case


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_structured_path_alone(draw_hard, kind, block):
    """The path that every size falls back on proves each draw by itself, nearly all far within what is asked."""
    gaps = []
    for case, polytope, objective in hard_cases(draw_hard, block, kind):
        part, goal = served_part(polytope, objective)
        certificate = proven("structured", part, goal)
        assert certificate is not None, case
        assert certificate.gap <= 1e-7, case
        assert part.violation(certificate.shares) <= 1e-12, case
        gaps.append(certificate.gap)
    assert np.mean(np.array(gaps) <= SURE) >= 0.97


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_path_alone(draw_hard, kind, block):
    """It may give up or prove little; what it claims holds against the structured path."""
    good = 0
    for case, polytope, objective in hard_cases(draw_hard, block, kind):
        part, goal = served_part(polytope, objective)
        compiled, structured = proven("compiled", part, goal), proven("structured", part, goal)
        assert structured is not None, case
        if compiled is None:
            continue
        assert beyond(objective, structured.objective, compiled.bound) <= SURE, case
        assert beyond(objective, compiled.objective, structured.bound) <= SURE, case
        good += compiled.gap <= SURE
    assert good >= 0.6 * PER_BLOCK


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_jobs", [200, 600, 1200])
def test_hundreds_of_distinct_jobs(draw_many, kind, n_jobs):
    polytope, objectives = draw_many(n_jobs, n_jobs)
    objective = objectives[kind]
    solution, simplex = solve(polytope, objective), proven("highs", polytope, objective)
    assert solution.status == "optimal"
    assert polytope.violation(solution.shares) <= 1e-12
    assert simplex is not None
    assert simplex.gap <= SURE
    assert solution.objective == pytest.approx(simplex.objective, rel=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_jobs_of_some_types(draw_many, kind):
    """3,000 jobs of 150 kinds are one program over 150 classes, and the same one over 3,000 jobs."""
    polytope, objectives = draw_many(0, 150)
    rng = np.random.default_rng(0)
    each, types = rng.integers(0, 150, 3000), np.arange(len(polytope.capacity))
    many = Polytope(polytope.restricted(each, types).columns, 10.0 * polytope.capacity)
    objective = objectives[kind].take(each)
    solution, simplex = solve(many, objective), proven("highs", many, objective)
    assert solution.status == "optimal"
    assert many.violation(solution.shares) <= 1e-12
    assert simplex is not None
    assert solution.objective == pytest.approx(simplex.objective, rel=CLOSE)
    for kind_of_job in range(150):
        rows = solution.shares[each == kind_of_job]
        np.testing.assert_array_equal(rows, np.broadcast_to(rows[:1], rows.shape))
