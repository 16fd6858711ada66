"""Water filling with space sharing against a sequence of programs over all pairs of jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Hierarchy, MaxMin, PackedPolytope, Polytope, WaterFilling, solve, solve_packed
from tests.formulations.filling_reference import reference_filling
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.packed import PackedColumns


def draw(seed, n_jobs=7, *, entities=False):
    """Groups of mixed gangs, ties in some; up to three entities, one of them inside another, of either policy."""
    rng = np.random.default_rng([seed, 41])
    N, G, M = int(rng.integers(2, n_jobs + 1)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    alone = rng.uniform(0.2, 1, (G, M)) * 10.0 ** rng.uniform(-1, 1, (G, 1))
    if seed % 3 == 0:
        alone = np.maximum(np.round(alone, 1), 0.1)
    if seed % 4 == 1:
        alone[rng.random((G, M)) < 0.3] = 0.0
        alone[~(alone > 0).any(axis=1), 0] = 1.0
    sizes = rng.choice([1, 2], G) if rng.random() < 0.5 else np.ones(G, dtype=np.int64)
    together = alone[:, None, :] * rng.uniform(0.3, 1.0, (G, G, M))
    if rng.random() < 0.5:
        together[rng.random((G, G, M)) < 0.4] = 0
    together[sizes[:, None] != sizes[None, :]] = 0
    columns = PackedColumns(rng.integers(0, G, N), alone, together, sizes)
    capacity = rng.integers(1, max(N // 2, 2) + 1, M).astype(float)
    units = (columns.rates @ capacity) / capacity.sum() / columns.scale_factors
    weights = rng.choice([1.0, 1.0, 2.0, 5.0], N)
    hierarchy = None
    if entities:
        parent, fifo = np.array([-1, -1, int(rng.integers(-1, 2))]), rng.random(3) < 0.5
        of_job, rank = rng.integers(-1, 3, N), rng.permutation(N).astype(float)
        hierarchy = Hierarchy(parent, rng.choice([1.0, 2.0, 3.0], 3), fifo, of_job, rank)
    return PackedPolytope(columns, capacity), WaterFilling(units, weights, hierarchy)


def reference(polytope, objective):
    h = objective.hierarchy
    entities = list(zip(h.parent.tolist(), h.weights.tolist(), h.fifo.tolist(), strict=True))
    return reference_filling(
        polytope.columns.general, polytope.capacity, objective.units, objective.weights, entities, h.of_job, h.rank
    )


def normalised(polytope, objective, solution):
    return polytope.throughput(solution.shares, solution.pairs) / objective.units


@pytest.mark.parametrize(
    ("engine", "entities"),
    [("auto", False), ("auto", True), ("class_pairs", False), ("class_pairs", True), ("highs", False)],
)
def test_is_what_trying_every_job_finds(engine, entities):
    for seed in range(40 if engine == "auto" else 10):
        polytope, objective = draw(seed, entities=entities)
        solution = solve_packed(polytope, objective, solver=engine)
        assert solution.status == "optimal" or (engine != "auto" and solution.gap < 1e-5)
        assert polytope.violation(solution.shares, solution.pairs) <= 1e-12
        found = normalised(polytope, objective, solution)
        wanted = reference(polytope, objective)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=f"seed {seed}")


def test_the_first_level_is_max_min():
    for seed in range(20):
        polytope, objective = draw(seed)
        plain = solve_packed(polytope, MaxMin(objective.weights * objective.units))
        filled = solve_packed(polytope, objective)
        assert filled.objective == pytest.approx(plain.objective, rel=1e-8)
        assert filled.objective <= filled.bound * (1 + 1e-9)


def test_without_useful_pairs_it_is_the_plain_program():
    for seed in range(20):
        polytope, objective = draw(seed, entities=seed % 2 == 0)
        columns = polytope.columns
        apart = PackedColumns(columns.group, columns.alone, 0 * columns.together, columns.group_scale_factors)
        packed = solve_packed(PackedPolytope(apart, polytope.capacity), objective)
        matrix = ThroughputMatrix(columns.rates, columns.jobs, columns.accelerators, columns.scale_factors)
        plain = solve(Polytope(PlainColumns(matrix), polytope.capacity), objective)
        assert len(packed.pairs) == 0
        np.testing.assert_allclose(
            (columns.rates * packed.shares).sum(1) / objective.units,
            (columns.rates * plain.shares).sum(1) / objective.units,
            rtol=1e-5,
            atol=1e-5,
            err_msg=f"seed {seed}",
        )


def test_sharing_raises_whoever_can_rise():
    """Two jobs that do not disturb each other, and one that nobody can share with: only the pair gains."""
    together = np.zeros((2, 2, 1))
    together[0, 0] = 1.0
    columns = PackedColumns([0, 0, 1], [[1.0], [1.0]], together)
    objective = WaterFilling(np.ones(3), np.ones(3))
    solution = solve_packed(PackedPolytope(columns, [1.5]), objective)
    u = PackedPolytope(columns, [1.5]).throughput(solution.shares, solution.pairs)
    np.testing.assert_allclose(u, [0.75, 0.75, 0.75], atol=1e-8)
    unequal = WaterFilling(np.ones(3), np.array([4.0, 4.0, 1.0]))
    solution = solve_packed(PackedPolytope(columns, [1.5]), unequal)
    u = PackedPolytope(columns, [1.5]).throughput(solution.shares, solution.pairs)
    np.testing.assert_allclose(u, [1.0, 1.0, 0.5], atol=1e-8)


def test_a_job_that_is_full_does_not_stop_the_others():
    """A level that ends because a job runs all the time holds nobody."""
    columns = PackedColumns([0, 1], [[1.0], [1.0]], np.zeros((2, 2, 1)))
    objective = WaterFilling(np.ones(2), np.array([5.0, 1.0]))
    solution = solve_packed(PackedPolytope(columns, [2.0]), objective)
    np.testing.assert_allclose(solution.shares[:, 0], [1.0, 1.0], atol=1e-8)


def test_nobody_to_serve():
    columns = PackedColumns([0, 0], [[0.0]], [[[0.0]]])
    solution = solve_packed(PackedPolytope(columns, [1.0]), WaterFilling(np.ones(2), np.ones(2)))
    assert solution.status == "empty"
    assert not solution.shares.any()
