"""Policies with space sharing: programs over jobs alone and pairs."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import allocator
from allocator import Allocation, get_policy
from allocator.cluster import Cluster
from allocator.instance import allocation_to_json, state_from_json
from allocator.protocol import ClusterState
from formulations import PackedPolytope
from tests.policies.worlds import state_of
from throughputs import InputError, PackedColumns, ThroughputMatrix

NAMES = ["max_min_fairness_packed", "finish_time_fairness_packed", "min_total_duration_packed"]
TWO_ALIKE = PackedColumns([0, 0], [[1.0]], [[[0.8]]], accelerators=["v100"])


def pairs_of(allocation: Allocation) -> dict[tuple[frozenset[int], str], float]:
    rows = allocation.pairs_frame()[["first", "second", "accelerator", "share"]].itertuples(index=False)
    return {(frozenset((one, other)), name): share for one, other, name, share in rows}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_allocations_are_feasible_proven_and_no_worse_than_without_sharing(name: str, seed: int) -> None:
    state, sign = state_of(14, seed=seed, even=True, sharing=True), 1 if name.startswith("max_min") else -1
    plain = get_policy(name.replace("_packed", "_perf")).allocate(state).objective
    allocation, sizes = get_policy(name).allocate(state), state.scale_factors
    pairs = allocation.pairs
    assert allocation.status == "optimal"
    assert allocation.gap <= 1e-7
    assert PackedPolytope(state.packed, state.capacity).violation(allocation.shares, pairs) <= 1e-9
    assert (sizes[pairs.first] == sizes[pairs.second]).all()
    assert sign * allocation.objective >= sign * plain - 1e-6 * plain
    order = np.random.default_rng(0).permutation(14)
    moved = get_policy(name).allocate(state.take(order))
    np.testing.assert_array_equal(allocation.shares[order], moved.shares)
    assert pairs_of(allocation) == pytest.approx(pairs_of(moved), rel=1e-9)
    alone = get_policy(name).allocate(state_of(14, seed=seed, even=True))
    assert alone.objective == pytest.approx(plain, rel=1e-6)
    assert len(alone.pairs) == 0


def test_two_jobs_that_do_well_together_always_share() -> None:
    allocation = allocator.solve("max_min_fairness_packed", TWO_ALIKE, "v100:1")
    assert allocation.effective_throughput.tolist() == pytest.approx([0.8, 0.8])
    assert not allocation.shares.any()
    rates = allocation.pairs_frame()[["share", "first_rate", "second_rate"]].to_numpy()
    np.testing.assert_allclose(rates, [[1.0, 0.8, 0.8]])
    assert allocator.solve("max_min_fairness_perf", TWO_ALIKE, "v100:1").pairs_frame().empty


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_run_nowhere_or_are_through_take_nothing(name: str) -> None:
    columns = PackedColumns([0, 1, 0], [[1.0], [0.0]], np.zeros((2, 2, 1)), jobs=list("abc"), accelerators=["v100"])
    matrix = ThroughputMatrix([[1.0], [0.0], [1.0]], list("abc"), ["v100"])
    state = ClusterState(Cluster({"v100": 1}), matrix, steps_remaining=np.array([5.0, 5.0, 0.0]), colocation=columns)
    allocation = get_policy(name).allocate(state)
    assert allocation.unserved == ("b", "c")
    assert allocation.shares.ravel().tolist() == pytest.approx([1.0, 0.0, 0.0])
    with pytest.raises(InputError, match="'class_pairs'"):
        get_policy(name, solver="class_pair").allocate(state)


INSTANCE = {
    "cluster": {"v100": 1},
    "jobs": [{"job_id": i, "throughputs": {"v100": 1.0}} for i in range(3)],
    "pairs": [{"pair": [2, 0], "throughputs": {"v100": [0.9, 0.7]}}],
}


def test_instances_with_pairs() -> None:
    state = state_from_json(INSTANCE)
    columns = state.packed
    a, b = columns.group[2], columns.group[0]
    assert (columns.together[a, b, 0], columns.together[b, a, 0]) == (0.9, 0.7)
    answer = allocation_to_json(get_policy("max_min_fairness_packed").allocate(state))
    json.dumps(answer, allow_nan=False)
    (pair,) = (entry for entry in answer["allocation"] if len(entry["jobs"]) == 2)
    assert (pair["jobs"], pair["throughputs"]) == ([0, 2], [0.7, 0.9])
    assert pair["share"] > 0


BAD = """
{} | pairs
[{"throughputs": {}}] | pairs[0]
[{"pair": [0, 9], "throughputs": {}}] | pairs[0]
[{"pair": [1, 1], "throughputs": {}}] | pairs[0]
[{"pair": [0, 1], "throughputs": {}}, {"pair": [1, 0], "throughputs": {}}] | pairs[1]
[{"pair": [0, 1]}] | throughputs
[{"pair": [0, 1], "throughputs": {"v100": [1.0]}}] | v100
[{"pair": [0, 1], "throughputs": {"v100": [1.0, "x"]}}] | v100
[{"pair": [0, 1], "throughputs": {"v100": [1.0, -1.0]}}] | v100
"""


def test_instances_with_bad_pairs() -> None:
    for line in BAD.strip().splitlines():
        pairs, field = line.split(" | ")
        with pytest.raises(InputError, match=re.escape(field)):
            state_from_json(INSTANCE | {"pairs": json.loads(pairs)})
