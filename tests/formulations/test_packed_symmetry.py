"""Programs with space sharing: the order of the jobs does not matter, and equal jobs are treated alike."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import MaxMin
from formulations.packed import PackedPolytope, solve_packed
from tests.formulations.packed_reference import KINDS, draw_packed
from throughputs.packed import PackedColumns


@pytest.mark.parametrize("kind", KINDS)
def test_job_order_does_not_matter(kind):
    """The same jobs in another order get the same times alone and the same throughput."""
    rng = np.random.default_rng(5)
    for seed in range(4000, 4060):
        polytope, objectives = draw_packed(seed, largest=12)
        order = rng.permutation(polytope.n_jobs)
        columns = polytope.columns
        shuffled = PackedPolytope(
            PackedColumns(columns.group[order], columns.alone, columns.together, columns.group_scale_factors),
            polytope.capacity,
        )
        one = solve_packed(polytope, objectives[kind])
        other = solve_packed(shuffled, objectives[kind].take(order))
        np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")
        assert one.objective == pytest.approx(other.objective, rel=1e-12, nan_ok=True)
        np.testing.assert_allclose(
            polytope.throughput(one.shares, one.pairs)[order],
            shuffled.throughput(other.shares, other.pairs),
            rtol=1e-10,
            atol=1e-12,
        )


def test_distinct_jobs_in_another_order_get_the_same_pairs_to_the_last_bit():
    rng = np.random.default_rng(6)
    for seed in range(20):
        N, M = 9, 2
        alone = rng.uniform(1, 5, (N, M))
        together = alone[:, None, :] * rng.uniform(0.4, 0.9, (N, N, M))
        order = rng.permutation(N)
        position = np.argsort(order)
        weights = rng.choice([1.0, 2.0], N)
        one = solve_packed(PackedPolytope(PackedColumns(np.arange(N), alone, together), [2, 2]), MaxMin(weights))
        shuffled = PackedColumns(np.arange(N), alone[order], together[np.ix_(order, order)])
        other = solve_packed(PackedPolytope(shuffled, [2, 2]), MaxMin(weights[order]))
        found = {}
        for i, k, j, share in zip(
            one.pairs.first, one.pairs.second, one.pairs.accelerator, one.pairs.share, strict=True
        ):
            found[frozenset((int(position[i]), int(position[k]))), int(j)] = share
        expected = {
            (frozenset((int(i), int(k))), int(j)): share
            for i, k, j, share in zip(
                other.pairs.first, other.pairs.second, other.pairs.accelerator, other.pairs.share, strict=True
            )
        }
        assert found == expected, f"seed {seed}"
        np.testing.assert_array_equal(one.shares[order], other.shares)


@pytest.mark.parametrize("solver", ["class_pairs", "highs"])
def test_identical_jobs_get_identical_shares(solver):
    """Equal times alone, equal times beside each group of jobs, equal throughput."""
    for seed in range(5000, 5040):
        polytope, objectives = draw_packed(seed)
        columns = polytope.columns
        G = len(columns.alone)
        thrice = np.repeat(np.arange(polytope.n_jobs), 3)
        tripled = PackedPolytope(
            PackedColumns(columns.group[thrice], columns.alone, columns.together, columns.group_scale_factors),
            polytope.capacity,
        )
        solution = solve_packed(tripled, objectives["max_min"].take(thrice), solver=solver)
        assert (np.ptp(solution.shares.reshape(-1, 3, solution.shares.shape[1]), axis=1) == 0).all()
        beside = np.zeros((len(thrice), G))
        group = tripled.columns.group
        pairs = solution.pairs
        np.add.at(beside, (pairs.first, group[pairs.second]), pairs.share)
        np.add.at(beside, (pairs.second, group[pairs.first]), pairs.share)
        assert np.ptp(beside.reshape(-1, 3, G), axis=1).max(initial=0) <= 1e-10
        u = tripled.throughput(solution.shares, pairs).reshape(-1, 3)
        np.testing.assert_allclose(u, u[:, :1].repeat(3, axis=1), rtol=1e-9, atol=1e-12)
