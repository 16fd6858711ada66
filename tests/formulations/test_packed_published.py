"""The published choice among packed makespans: the point at which ECOS stops on the program written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from formulations import Makespan, PackedPolytope, solve_packed
from formulations.published.packed_makespan import _Rows, published_makespan
from formulations.solving.choice import bisected_makespan
from throughputs import InputError, PackedColumns


def draw(seed: int, n: int, sizes: tuple[int, ...] = (1, 2)) -> tuple[PackedPolytope, Makespan]:
    """Jobs of six groups, some of which do not fit beside each other or on a type."""
    rng = np.random.default_rng(seed)
    size = rng.choice(sizes, 6)
    alone = rng.uniform(1, 20, (6, 3)) * (rng.random((6, 3)) > 0.1)
    alone[:, 0] = np.maximum(alone[:, 0], 1.0)
    kept = rng.uniform(0.3, 0.9, (6, 6, 3)) * (rng.random((6, 6, 3)) > 0.3)
    kept *= (kept > 0).swapaxes(0, 1) & (size[:, None] == size[None, :])[..., None]
    columns = PackedColumns(rng.integers(0, 6, n), alone, kept * alone[:, None], size)
    return PackedPolytope(columns, np.array([3.0, 2.0, 2.0])), Makespan(rng.uniform(1e3, 1e5, n))


def dense(polytope: PackedPolytope) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Capacity, time and demand rows of the program as the paper states it, and the jobs of its rows."""
    columns = polytope.columns
    n, m, sizes = columns.n_jobs, columns.n_accelerators, columns.scale_factors
    rows: list[tuple[int, ...]] = [(i,) for i in range(n)]
    rows += [(i, k) for i in range(n) for k in range(i + 1, n) if sizes[i] == sizes[k]]
    matrix = np.zeros((m + 2 * n, len(rows) * m))
    for r, who in enumerate(rows):
        for j in range(m):
            c = r * m + j
            matrix[j, c] = sizes[who[0]]
            for i in who:
                beside = [k for k in who if k != i]
                rate = columns.rates[i, j]
                if beside:
                    rate = columns.together[columns.group[i], columns.group[beside[0]], j]
                matrix[m + i, c], matrix[m + n + i, c] = 1.0, -rate
    return matrix, rows


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_of_the_program(seed):
    polytope, _ = draw(seed, 7)
    matrix, who = dense(polytope)
    rows = _Rows(polytope)
    np.testing.assert_array_equal(rows.matrix.toarray(), matrix)
    assert [(i,) for i in range(7)] + list(zip(rows.one.tolist(), rows.other.tolist(), strict=True)) == who


@pytest.mark.parametrize("seed", range(12))
def test_the_point_is_that_of_ecos(seed):
    ecos = pytest.importorskip("ecos")
    n = 4 + 2 * seed
    polytope, objective = draw(seed, n, (1, 2) if seed % 2 else (1,))
    best = solve_packed(polytope, objective)
    ours = published_makespan(polytope, objective, best)
    matrix, rows = dense(polytope)
    m, size = 3, matrix.shape[1]
    time = bisected_makespan(best.objective)
    limits = [polytope.capacity, np.ones(n), -objective.demand(1 / time)]
    answer = ecos.solve(
        np.zeros(size),
        scipy.sparse.csc_matrix(np.vstack([-np.eye(size), matrix])),
        np.concatenate([np.zeros(size), *limits]),
        {"l": size + len(matrix), "q": []},
        verbose=False,
    )
    assert answer["info"]["exitFlag"] == 0
    expected = answer["x"].reshape(-1, m)
    position = {who: r for r, who in enumerate(rows)}
    found = np.zeros_like(expected)
    found[:n] = ours.shares
    for a, b, j, share in zip(
        ours.pairs.first, ours.pairs.second, ours.pairs.accelerator, ours.pairs.share, strict=True
    ):
        found[position[int(a), int(b)], j] = share
    np.testing.assert_allclose(found, np.clip(expected, 0, 1), atol=2e-7)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_feasible_and_within_five_percent(seed):
    polytope, objective = draw(seed, 15)
    best = solve_packed(polytope, objective)
    ours = published_makespan(polytope, objective, best)
    assert best.objective * (1 - 1e-7) <= ours.objective <= bisected_makespan(best.objective) * (1 + 1e-6)
    assert ours.bound == best.bound
    assert ours.objective == pytest.approx(objective.value(polytope.throughput(ours.shares, ours.pairs)))
    busy = ours.shares.sum(axis=1)
    for member in (ours.pairs.first, ours.pairs.second):
        busy = busy + np.bincount(member, ours.pairs.share, minlength=15)
    assert busy.max() <= 1 + 1e-12
    sizes = polytope.columns.scale_factors
    used = sizes @ ours.shares
    np.add.at(used, ours.pairs.accelerator, sizes[ours.pairs.first] * ours.pairs.share)
    assert (used <= polytope.capacity * (1 + 1e-7)).all()


def test_the_policy_takes_either():
    import allocator
    from allocator.protocol.jobs import JobTable
    from allocator.protocol.policy import Need
    from throughputs import gavel_trace

    cluster, table = allocator.Cluster.parse("v100:2,p100:2,k80:2"), allocator.load_throughputs(colocated=True)
    jobs = JobTable.from_trace(gavel_trace(12, 0.0, seed=0), table, cluster, needs=Need.COLOCATION)
    state = jobs.snapshot(np.arange(12), 0.0, cluster, needs=Need.COLOCATION)
    plain, published = (
        allocator.get_policy("min_total_duration_packed", choice=choice).allocate(state)
        for choice in ("balanced", "published")
    )
    assert plain.status == "optimal"
    assert published.status == "feasible"
    assert plain.objective < published.objective < 1.06 * plain.objective
    assert published.bound == plain.bound
    with pytest.raises(InputError, match="choice"):
        allocator.get_policy("min_total_duration_packed", choice="other").allocate(state)
