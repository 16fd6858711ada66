"""Water filling: against the rules event by event, flat and with entities, over shares and over pairs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import (
    Hierarchy,
    PackedPolytope,
    WaterFilling,
    proportional_throughput,
    solve,
)
from formulations.core.certificate import Certificate
from formulations.levels.hierarchy import Filling
from formulations.levels.water_filling import WaterLevel, fill
from tests.formulations.filling_reference import reference_filling
from tests.formulations.programs import (
    draw_hard,
    draw_hierarchy,
    draw_packed,
    feasible,
    given,
    polytope_of,
    with_jobs,
    written_out,
)
from throughputs import PackedColumns


def served(polytope, objective, run):
    """Program and solution without the jobs that run nowhere."""
    found = run(polytope, objective)
    jobs = np.flatnonzero(found.served)
    part, goal = with_jobs(polytope, jobs), objective.take(jobs)
    return part, goal, run(part, goal)


def shortfall(polytope, objective, found):
    """Largest part of a job's time by the rules that it does not have."""
    h = objective.hierarchy
    entities = list(zip(h.parent.tolist(), h.weights.tolist(), h.fifo.tolist(), strict=True))
    general = written_out(polytope.columns)
    exact = reference_filling(
        general, polytope.capacity.astype(float), objective.units, objective.weights, entities, h.of_job, h.rank
    )
    time = feasible(polytope, found) / objective.units
    most = general.rate.max(axis=1).toarray().ravel() / objective.units
    return float(((exact - time) / np.maximum(exact, 1e-4 * most)).max())


@pytest.mark.parametrize("blocks", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_flat_is_the_lexicographic_optimum(blocks):
    """Nobody is below the optimum, and so nobody above."""
    for seed in range(12 * blocks):
        polytope, objectives = draw_hard(seed)
        polytope, objective, found = served(polytope, objectives["water_filling"], solve)
        assert found.status == "optimal"
        assert shortfall(polytope, objective, found) <= 1e-7, f"seed {seed}"


def draw_tree(seed):
    """Entities up to `1 + seed % 3` deep with jobs anywhere, on little, enough and plenty of capacity."""
    rng = np.random.default_rng([seed, 11])
    N, M = int(rng.integers(1, 11)), int(rng.integers(1, 4))
    rates = rng.uniform(0.2, 1, (N, M)) * 10.0 ** rng.uniform(-1, 1, (N, 1))
    if seed % 4 == 1:
        rates[rng.random((N, M)) < 0.3] = 0.0
        rates[~(rates > 0).any(axis=1), 0] = 1.0
    if seed % 4 == 2:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    scale_factors = rng.choice([1, 1, 2, 4], N)
    capacity = rng.integers(1, int(N * rng.choice([0.4, 1.0, 4.0])) + 2, M).astype(float)
    units = proportional_throughput(rates, capacity) / scale_factors
    objective = WaterFilling(units, rng.choice([1.0, 2.0, 5.0], N), draw_hierarchy(rng, N, seed % 3))
    return polytope_of(rates, scale_factors, capacity), objective


@pytest.mark.parametrize("blocks", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_entities_hand_time_on_as_their_rules_say(blocks):
    for seed in range(12 * blocks):
        polytope, objective = draw_tree(seed)
        found = solve(polytope, objective)
        assert found.status == "optimal"
        assert shortfall(polytope, objective, found) <= 1e-6, f"seed {seed}"


def draw_whole_figures(seed):
    """Up to 12 jobs with whole figures, which tie; entities up to three deep, many of them served in turn."""
    rng = np.random.default_rng([seed, 99])
    N, M = int(rng.integers(3, 13)), int(rng.integers(2, 4))
    rates, sizes = rng.integers(1, 5, (N, M)).astype(float), rng.choice([1, 2, 4, 8], N)
    capacity, weights = rng.integers(1, 6, M).astype(float), rng.choice([1.0, 2.0, 5.0], N)
    E = int(rng.integers(1, 7))
    parent, depth = np.full(E, -1), np.zeros(E)
    for entity in range(1, E):
        above = [k for k in range(entity) if depth[k] < 2]
        if above and rng.random() < 0.7:
            parent[entity] = rng.choice(above)
            depth[entity] = depth[parent[entity]] + 1
    of_job = rng.integers(-1 if rng.random() < 0.4 else 0, E, N)
    entities = rng.choice([1.0, 2.0, 3.0], E), rng.random(E) < 0.45
    hierarchy = Hierarchy(parent, *entities, of_job, rng.permutation(N).astype(float))
    return polytope_of(rates, sizes, capacity), WaterFilling(
        proportional_throughput(rates, capacity) / sizes, weights, hierarchy
    )


@pytest.mark.parametrize("solver", ["auto", "highs"])
@pytest.mark.parametrize("seed", [158, 692, 1009])
def test_who_is_fixed_keeps_what_it_has(seed, solver):
    """Levels after the first are of what little is left, for which no job may lose what it was given."""
    polytope, objective = draw_whole_figures(seed)
    found = solve(polytope, objective, solver=solver)
    assert found.status == "optimal"
    assert found.objective <= found.bound
    assert shortfall(polytope, objective, found) <= 1e-6


def test_a_job_that_loses_is_below_the_level_wherever_it_is():
    for tree in (Hierarchy.flat(2), *(Hierarchy([-1], [1.0], [fifo], [0, 0], [0, 1]) for fifo in (False, True))):
        filling = Filling(tree, np.ones(2), np.ones(2), np.array([0.0, 1.0]))
        level = WaterLevel(np.ones(2), np.array([1.0, 0.0]), filling, np.arange(2), below=1.0)
        assert level.level(np.array([0.5, 0.5])) == -0.5


def test_pairs_hand_time_on_as_their_rules_say():
    for seed in range(8):
        polytope, objectives = draw_packed([seed, 41])
        objective, rng = objectives["water_filling"], np.random.default_rng(seed)
        if seed % 2:
            tree = draw_hierarchy(rng, polytope.n_jobs)
            objective = WaterFilling(objective.units, rng.choice([1.0, 2.0, 5.0], polytope.n_jobs), tree)
        polytope, objective, found = served(polytope, objective, solve)
        if found.status != "empty":
            assert found.status == "optimal"
            assert shortfall(polytope, objective, found) <= 2e-5, f"seed {seed}"


def test_one_pair_and_one_job_apart():
    """Two jobs that do not disturb each other, and one that nobody can share with."""
    together = np.zeros((2, 2, 1))
    together[0, 0] = 1.0
    polytope = PackedPolytope(PackedColumns([0, 0, 1], [[1.0], [1.0]], together), [1.5])
    for weights, expected in (([1.0, 1.0, 1.0], 0.75), ([4.0, 4.0, 1.0], [1.0, 1.0, 0.5])):
        found = solve(polytope, WaterFilling(np.ones(3), weights))
        np.testing.assert_allclose(given(polytope, found)[0], expected, atol=1e-8)


def by_hand(shares, rates, gpus, weights, *hierarchy):
    found = solve(polytope_of(rates, None, gpus), WaterFilling(np.ones(len(rates)), weights, Hierarchy(*hierarchy)))
    np.testing.assert_allclose(found.shares[:, 0], shares, atol=1e-7)
    return found


def test_entities_by_hand():
    """Of 1.5 GPUs a third of the time for the first entity, which serves its jobs in turn."""
    ones = np.ones((4, 1))
    by_hand(
        [0, 0.5, 0.25, 0.75], ones, [1.5], [1, 1, 1, 3], [-1, -1], [1, 2], [True, False], [0, 0, 1, 1], [1, 0, 0, 0]
    )
    for fifo in (False, True):  # plenty: weights then only say who is full first
        by_hand([1, 1, 1], [[1.0], [2.0], [3.0]], [9.0], [1, 7, 2], [-1], [1], [fifo], [0, 0, 0], [0, 1, 2])


def test_who_is_full_alone_holds_the_water():
    """A job, or the jobs of an entity, that can never have more than all of their time, whatever GPUs would cost."""
    flat = solve(polytope_of(np.ones((3, 2)), None, [2.0, 0.0]), WaterFilling(np.ones(3), [4.0, 1.0, 1.0]))
    assert flat.objective == pytest.approx(0.25)
    np.testing.assert_allclose(flat.multipliers, [0.25, 0.0, 0.0], atol=1e-9)
    tree = Hierarchy([-1, -1], [8.0, 1.0], [False, False], [0, 0, 1, 1, 1], np.zeros(5))
    deep = solve(polytope_of(np.full((5, 1), 2.0), None, [3.0]), WaterFilling(np.full(5, 2.0), np.ones(5), tree))
    assert deep.bound == pytest.approx(0.25)
    assert float(deep.multipliers.sum()) * 2.0 == pytest.approx(0.25)
    for found in (flat, deep):
        np.testing.assert_allclose(found.prices, 0.0, atol=1e-9)


@pytest.mark.parametrize("counts", [[1.0, 1.0], [1e6, 1.0]])
def test_what_rounding_leaves_of_a_multiplier_holds_nobody(counts):
    """At half of their time the first class is held, the second goes on to all of it."""
    answers = [([0.5, 0.5], [1.0, 1e-9]), ([0.5, 1.0], [0.0, 1.0])]
    polytope = polytope_of(np.ones((2, 1)), None, [1e7], counts)

    def proven(program, _):
        shares, multipliers = map(np.array, answers.pop(0))
        rows = np.arange(2 - program.n_jobs, 2)
        return Certificate(shares[rows, None], 0.5, 0.5, 0.0, multipliers[rows], np.ones(1))

    filled = fill(WaterFilling(np.ones(2), np.ones(2), counts=counts), polytope, proven)
    assert not answers
    assert filled.shares.ravel().tolist() == [0.5, 1.0]


def test_what_rounding_leaves_of_a_small_type_is_no_level():
    """Everybody would rather have the type of a thousandth of a GPU, and a few with large weights do."""
    for seed in range(2, 5):
        rng = np.random.default_rng(seed)
        rates = rng.integers(1, 9, (600, 2)) * 10.0 ** rng.integers(-1, 3, (600, 1)) * [1.0, 1.5]
        polytope = polytope_of(rates, None, [1200.0, 1e-3])
        objective = WaterFilling(proportional_throughput(rates, polytope.capacity), 10.0 ** rng.uniform(-3, 3, 600))
        found = solve(polytope, objective)
        assert found.status == "optimal"
        assert len(found.attempts) <= 4
