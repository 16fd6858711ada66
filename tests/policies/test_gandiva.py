"""Gandiva's random pairs, and first in, first out with pairs."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy
from allocator.policies.pairing_rules import fifo_packed, gandiva, pair_gain
from formulations import PackedPolytope, isolated_shares
from throughputs import InputError, PackedColumns, ThroughputMatrix

TYPES = ["v100", "p100", "k80"]


def draw(seed, n=14, sizes=(1, 1, 2, 4)):
    """Jobs with a table of their own; some pairs are not known to fit on one GPU."""
    rng = np.random.default_rng(seed)
    rates, gangs = rng.uniform(0.5, 5.0, (n, 3)), rng.choice(sizes, n)
    together = rates[:, None, :] * rng.uniform(0.3, 1.0, (n, n, 3))
    together *= (gangs[:, None] == gangs)[:, :, None]
    missing = rng.random((n, n, 3)) < 0.2
    together[missing | missing.transpose(1, 0, 2)] = 0.0
    matrix = ThroughputMatrix(rates, [f"job {i}" for i in range(n)], TYPES, gangs)
    return PackedColumns.from_jobs(matrix, together)


@pytest.mark.parametrize("seed", range(15))
def test_gandiva_keeps_within_the_cluster(seed):
    columns, capacity = draw(seed), np.array([3, 2, 3])
    packing = gandiva(columns, capacity, np.random.default_rng(seed))
    assert PackedPolytope(columns, capacity).violation(packing.shares, packing.pairs) <= 1e-12
    together = {job for pair in packing.partners for job in pair}
    assert len(together) == 2 * len(packing.partners)
    for one, other in packing.partners:
        i, k = columns.jobs.index(one), columns.jobs.index(other)
        assert columns.scale_factors[i] == columns.scale_factors[k]
        assert not packing.shares[[i, k]].any()


@pytest.mark.parametrize("seed", range(5))
def test_gandiva_shares_equally(seed):
    """Pairs and single jobs that are limited by GPUs, not by time, all have the same GPU time of every type."""
    columns, capacity = draw(seed, n=24), np.array([4, 4, 4])
    packing = gandiva(columns, capacity, np.random.default_rng(seed))
    pairs = packing.pairs
    gpus = columns.scale_factors[pairs.first] * pairs.share
    combos = len(packing.partners) + columns.n_jobs - 2 * len(packing.partners)
    np.testing.assert_allclose(gpus, 4.0 / combos)
    alone = (columns.scale_factors[:, None] * packing.shares)[packing.shares > 0]
    np.testing.assert_allclose(alone, 4.0 / combos)
    assert (pair_gain(columns, pairs.first, pairs.second)[np.arange(len(pairs)), pairs.accelerator] > 0).all()


def test_gandiva_shares_nothing_when_there_is_a_gpu_for_everybody():
    columns = draw(1)
    capacity = np.array([columns.scale_factors.sum(), 0, 4])
    packing = gandiva(columns, capacity, np.random.default_rng(0))
    assert packing.partners == ()
    np.testing.assert_allclose(packing.shares, isolated_shares(columns.scale_factors, capacity))


def test_gandiva_is_seeded_and_does_not_mind_the_order():
    columns, capacity = draw(2, sizes=(1,)), np.array([2, 2, 2])
    first = gandiva(columns, capacity, np.random.default_rng(5))
    assert first.partners == gandiva(columns, capacity, np.random.default_rng(5)).partners
    others = {gandiva(columns, capacity, np.random.default_rng(seed)).partners for seed in range(6)}
    assert len(others) > 1
    order = np.random.default_rng(0).permutation(columns.n_jobs)
    moved = PackedColumns(
        columns.group[order], columns.alone, columns.together, jobs=[columns.jobs[i] for i in order], accelerators=TYPES
    )
    again = gandiva(moved, capacity, np.random.default_rng(5))
    assert {frozenset(pair) for pair in again.partners} == {frozenset(pair) for pair in first.partners}
    np.testing.assert_array_equal(again.shares, first.shares[order])


def colocated(fraction):
    """Four equal jobs that keep `fraction` of their throughput when they share."""
    matrix = ThroughputMatrix(np.full((4, 3), 2.0), list("abcd"), TYPES)
    return PackedColumns.from_jobs(matrix, np.full((4, 4, 3), 2.0 * fraction))


def test_gandiva_keeps_a_pair_that_pays_and_undoes_one_that_does_not():
    capacity = np.array([1, 1, 1])
    for seed in range(5):
        kept = gandiva(colocated(0.6), capacity, np.random.default_rng(seed), [("a", "c")])
        assert ("a", "c") in kept.partners
    redrawn = {
        gandiva(colocated(0.4), capacity, np.random.default_rng(seed), [("a", "c")]).partners for seed in range(12)
    }
    assert any(("a", "c") not in partners for partners in redrawn)


def test_gandiva_forgets_pairs_of_jobs_that_left():
    packing = gandiva(colocated(0.9), np.array([1, 1, 1]), np.random.default_rng(0), [("a", "gone")])
    assert {job for pair in packing.partners for job in pair} == set("abcd")


def test_gandiva_refuses_a_job_in_two_pairs():
    with pytest.raises(InputError, match="without a job in common"):
        gandiva(colocated(0.9), [1, 1, 1], np.random.default_rng(0), [("a", "b"), ("b", "c")])


def test_fifo_packs_the_line_behind_the_cluster():
    """Two GPUs, four jobs: the third joins the better of the first two, the fourth the other."""
    matrix = ThroughputMatrix([[2.0], [2.0], [2.0], [2.0], [2.0]], list("abcde"), ["v100"])
    together = np.zeros((5, 5, 1))
    for one, other, fraction in ((0, 2, 0.8), (1, 2, 0.95), (0, 3, 0.8), (1, 3, 1.0)):
        together[one, other] = together[other, one] = 2.0 * fraction
    packing = fifo_packed(PackedColumns.from_jobs(matrix, together), [2])
    assert packing.partners == (("a", "d"), ("b", "c"))
    assert not packing.shares.any()
    np.testing.assert_array_equal(packing.pairs.share, [1.0, 1.0])


def test_fifo_stops_at_the_first_without_a_partner():
    matrix = ThroughputMatrix([[2.0]] * 4, list("abcd"), ["v100"])
    together = np.zeros((4, 4, 1))
    together[0, 3] = together[3, 0] = 2.0
    packing = fifo_packed(PackedColumns.from_jobs(matrix, together), [2])
    assert packing.partners == ()
    np.testing.assert_array_equal(packing.shares[:, 0], [1, 1, 0, 0])


def test_fifo_pairs_must_pay():
    matrix = ThroughputMatrix([[2.0]] * 2, list("ab"), ["v100"])
    columns = PackedColumns.from_jobs(matrix, np.full((2, 2, 1), 1.5))
    assert fifo_packed(columns, [1]).partners == ()
    assert fifo_packed(columns, [1], least_gain=1.4).partners == (("a", "b"),)


@pytest.mark.parametrize("seed", range(15))
def test_fifo_packed_keeps_within_the_cluster(seed):
    columns, capacity = draw(seed), np.array([4, 2, 4])
    packing = fifo_packed(columns, capacity)
    assert PackedPolytope(columns, capacity).violation(packing.shares, packing.pairs) == 0.0
    for pair, one, other, j in zip(
        packing.partners, packing.pairs.first, packing.pairs.second, packing.pairs.accelerator, strict=True
    ):
        assert pair == (columns.jobs[one], columns.jobs[other])
        assert pair_gain(columns, [one], [other])[0, j] > 1.5


def test_bad_capacity_says_so():
    with pytest.raises(InputError, match="GPUs of 3 types"):
        fifo_packed(draw(0), [1, 2])
    with pytest.raises(InputError, match="GPUs of 3 types"):
        gandiva(draw(0), [1, -2, 0], np.random.default_rng(0))


def packed_state(columns, cluster="v100:3,p100:2,k80:3", **known):
    matrix = ThroughputMatrix(columns.rates, columns.jobs, TYPES, columns.scale_factors)
    return ClusterState(Cluster.parse(cluster), matrix, colocation=columns, **known)


@pytest.mark.parametrize("name", ["gandiva", "fifo_packed"])
@pytest.mark.parametrize("seed", range(5))
def test_policies_return_what_the_rules_say(name, seed):
    state = packed_state(draw(seed))
    allocation = get_policy(name).allocate(state)
    polytope = PackedPolytope(state.packed, state.capacity)
    assert polytope.violation(allocation.shares, allocation.pairs) <= 1e-12
    expected = polytope.throughput(allocation.shares, allocation.pairs)
    np.testing.assert_allclose(allocation.effective_throughput, expected, rtol=1e-12)
    np.testing.assert_array_equal(allocation.shares, get_policy(name).allocate(state).shares)


def test_gandiva_keeps_the_pairs_of_the_last_decision():
    state = packed_state(colocated(0.8), "v100:1,p100:0,k80:0", current_partner=np.array([3, 2, 1, 0]), clock=10.0)
    pairs = get_policy("gandiva").allocate(state).pairs
    assert {(0, 3), (1, 2)} == set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    drawn = set()
    for clock in range(8):
        later = packed_state(colocated(0.8), "v100:1,p100:0,k80:0", clock=float(clock))
        pairs = get_policy("gandiva").allocate(later).pairs
        drawn.add(tuple(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)))
    assert len(drawn) > 1


def test_jobs_that_cannot_share_are_not_paired():
    packing = gandiva(colocated(0.0), np.array([1, 1, 1]), np.random.default_rng(0))
    assert packing.partners == ()
    assert (packing.shares.sum(axis=1) > 0).all()


@pytest.mark.parametrize(("name", "settings"), [("gandiva", {"seed": -1}), ("fifo_packed", {"least_gain": -0.5})])
def test_bad_settings_say_so(name, settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        get_policy(name, **settings)
