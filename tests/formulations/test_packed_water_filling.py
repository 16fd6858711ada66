"""Water filling with space sharing against a sequence of programs over all pairs of jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Hierarchy, MaxMin, PackedPolytope, Polytope, WaterFilling, solve, solve_packed
from formulations.packed.engines import ENGINES
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


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
@pytest.mark.parametrize("entities", [False, True], ids=["flat", "entities"])
def test_is_what_trying_every_job_finds(engine, entities):
    for seed in range(40 if engine == "auto" else 12):
        polytope, objective = draw(seed, entities=entities)
        solution = solve_packed(polytope, objective, solver=engine)
        assert solution.status == "optimal"
        assert polytope.violation(solution.shares, solution.pairs) <= 1e-12
        np.testing.assert_allclose(
            normalised(polytope, objective, solution),
            reference(polytope, objective),
            rtol=1e-5,
            atol=1e-5,
            err_msg=f"seed {seed}",
        )
