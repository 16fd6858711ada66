"""Gandiva's random pairs, and first in, first out with pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy
from allocator.policies.pairing_rules import fifo_packed, gandiva, pair_gain
from formulations import PackedPolytope, isolated_shares
from tests.policies.worlds import TYPES
from throughputs import PackedColumns, ThroughputMatrix


def columns_of(rates: Any, together: Any, gangs: Any = None) -> PackedColumns:
    """Jobs a, b, ... on the first types."""
    matrix = ThroughputMatrix(rates, "abcdefghijklmnopqrstuvwxyz"[: len(rates)], TYPES[: len(rates[0])], gangs)
    return PackedColumns.from_jobs(matrix, together)


def draw(seed: int, n: int = 14, sizes: Any = (1, 1, 2, 4)) -> PackedColumns:
    """Jobs with a table of their own; some pairs are not known to fit on one GPU."""
    rng = np.random.default_rng(seed)
    rates, gangs = rng.uniform(0.5, 5.0, (n, 3)), rng.choice(sizes, n)
    together = rates[:, None, :] * rng.uniform(0.3, 1.0, (n, n, 3))
    together *= (gangs[:, None] == gangs)[:, :, None]
    missing = rng.random((n, n, 3)) < 0.2
    together[missing | missing.transpose(1, 0, 2)] = 0.0
    return columns_of(rates, together, gangs)


def colocated(fraction: float) -> PackedColumns:
    """Four equal jobs that keep `fraction` of their throughput when they share."""
    return columns_of(np.full((4, 3), 2.0), np.full((4, 4, 3), 2.0 * fraction))


class Packing:
    """Shares, pairs, and the two jobs of each pair by label."""

    def __init__(self, columns: PackedColumns, shares: Any, pairs: Any) -> None:
        self.shares, self.pairs = shares, pairs
        ends = dict.fromkeys(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
        self.partners = tuple((columns.jobs[one], columns.jobs[other]) for one, other in ends)


def drawn(columns: PackedColumns, seed: int, *before: Any, capacity: Any = (1, 1, 1)) -> Packing:
    return Packing(columns, *gandiva(columns, np.array(capacity), np.random.default_rng(seed), *before))


def in_line(columns: PackedColumns, gpus: int, **settings: Any) -> Packing:
    return Packing(columns, *fifo_packed(columns, np.array([gpus]), **settings))


@pytest.mark.parametrize("seed", range(8))
def test_gandiva_keeps_within_the_cluster_and_shares_equally(seed: int) -> None:
    """Pairs and single jobs that are limited by GPUs, not by time, all have the same GPU time of every type."""
    columns = draw(seed)
    packing = drawn(columns, seed, capacity=(3, 2, 3))
    assert PackedPolytope(columns, np.array([3, 2, 3])).violation(packing.shares, packing.pairs) <= 1e-12
    assert len({job for pair in packing.partners for job in pair}) == 2 * len(packing.partners)
    for one, other in packing.partners:
        i, k = columns.jobs.index(one), columns.jobs.index(other)
        assert columns.scale_factors[i] == columns.scale_factors[k]
        assert not packing.shares[[i, k]].any()
    columns = draw(seed, n=24)
    packing = drawn(columns, seed, capacity=(4, 4, 4))
    pairs, combos = packing.pairs, columns.n_jobs - len(packing.partners)
    np.testing.assert_allclose(columns.scale_factors[pairs.first] * pairs.share, 4.0 / combos)
    alone = (columns.scale_factors[:, None] * packing.shares)[packing.shares > 0]
    np.testing.assert_allclose(alone, 4.0 / combos)
    assert (pair_gain(columns, pairs.first, pairs.second)[np.arange(len(pairs)), pairs.accelerator] > 0).all()


def test_gandiva_shares_nothing_when_there_is_a_gpu_for_everybody_or_nobody_can() -> None:
    columns = draw(1)
    capacity = np.array([columns.scale_factors.sum(), 0, 4])
    packing = drawn(columns, 0, capacity=capacity)
    assert packing.partners == ()
    np.testing.assert_allclose(packing.shares, isolated_shares(columns.scale_factors, capacity))
    packing = drawn(colocated(0.0), 0)
    assert packing.partners == ()
    assert (packing.shares.sum(axis=1) > 0).all()


def test_gandiva_is_seeded_and_does_not_mind_the_order() -> None:
    columns, capacity = draw(2, sizes=(1,)), (2, 2, 2)
    first, again = (drawn(columns, 5, capacity=capacity) for _ in range(2))
    assert first.partners == again.partners
    assert len({drawn(columns, seed, capacity=capacity).partners for seed in range(6)}) > 1
    order = np.random.default_rng(0).permutation(columns.n_jobs)
    jobs = [columns.jobs[i] for i in order]
    moved = PackedColumns(columns.group[order], columns.alone, columns.together, jobs=jobs, accelerators=TYPES)
    again = drawn(moved, 5, capacity=capacity)
    assert set(map(frozenset, again.partners)) == set(map(frozenset, first.partners))
    np.testing.assert_array_equal(again.shares, first.shares[order])


def test_gandiva_keeps_a_pair_that_pays_and_undoes_one_that_does_not() -> None:
    for seed in range(5):
        assert ("a", "c") in drawn(colocated(0.6), seed, [(0, 2)]).partners
    redrawn = {drawn(colocated(0.4), seed, [(0, 2)]).partners for seed in range(12)}
    assert any(("a", "c") not in partners for partners in redrawn)


def test_fifo_packs_the_line_behind_the_cluster() -> None:
    """Two GPUs, four jobs: the third joins the better of the first two, the fourth the other."""
    together = np.zeros((5, 5, 1))
    for one, other, fraction in ((0, 2, 0.8), (1, 2, 0.95), (0, 3, 0.8), (1, 3, 1.0)):
        together[one, other] = together[other, one] = 2.0 * fraction
    packing = in_line(columns_of([[2.0]] * 5, together), 2)
    assert packing.partners == (("a", "d"), ("b", "c"))
    assert not packing.shares.any()
    np.testing.assert_array_equal(packing.pairs.share, [1.0, 1.0])


def test_the_gain_of_a_pair_is_in_units_of_what_each_does_alone() -> None:
    columns = columns_of([[2.0], [4.0]], [[[0.0], [1.0]], [[3.0], [0.0]]])
    assert pair_gain(columns, [0], [1]).tolist() == [[1 / 2 + 3 / 4]]


def test_fifo_stops_at_the_first_without_a_partner_and_pairs_must_pay() -> None:
    together = np.zeros((4, 4, 1))
    together[0, 3] = together[3, 0] = 2.0
    packing = in_line(columns_of([[2.0]] * 4, together), 2)
    assert (packing.partners, packing.shares[:, 0].tolist()) == ((), [1, 1, 0, 0])
    columns = columns_of([[2.0]] * 2, np.full((2, 2, 1), 1.5))
    assert in_line(columns, 1).partners == ()
    assert in_line(columns, 1, least_gain=1.4).partners == (("a", "b"),)


def packed_state(columns: PackedColumns, cluster: str, **known: Any) -> ClusterState:
    matrix = ThroughputMatrix(columns.rates, columns.jobs, TYPES, columns.scale_factors)
    return ClusterState(Cluster.parse(cluster), matrix, colocation=columns, **known)


def test_gandiva_keeps_the_pairs_of_the_last_decision_and_draws_others_at_other_times() -> None:
    def pairs(**known: Any) -> frozenset[tuple[int, int]]:
        found = get_policy("gandiva").allocate(packed_state(colocated(0.8), "v100:1,p100:0,k80:0", **known)).pairs
        return frozenset(zip(found.first.tolist(), found.second.tolist(), strict=True))

    assert pairs(current_partner=np.array([3, 2, 1, 0]), clock=10.0) == {(0, 3), (1, 2)}
    assert len({pairs(clock=float(clock)) for clock in range(8)}) > 1
