"""Policies with space sharing: programs over jobs alone and pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import allocator
from allocator.cluster import Cluster
from allocator.instance import allocation_to_json, state_from_json
from allocator.protocol import ClusterState
from allocator.registry import get_policy, settings_of
from formulations import PackedPolytope
from throughputs import InputError, PackedColumns, ThroughputMatrix, default_colocation, default_table

NAMES = ["max_min_fairness_packed", "finish_time_fairness_packed", "min_total_duration_packed"]
TABLE = default_table().with_colocation(default_colocation(), (1, 2, 4))
TWO_ALIKE = PackedColumns([0, 0], [[1.0]], [[[0.8]]], accelerators=["v100"])


def plain(name: str) -> str:
    return name.replace("_packed", "_perf")


def state_of(n: int, seed: int, *, sharing: bool = True, cluster: str = "v100:4,p100:4,k80:4") -> ClusterState:
    """Jobs of published types with mixed gangs, weights and progress."""
    rng = np.random.default_rng(seed)
    gpus = Cluster.parse(cluster)
    sizes = rng.choice([1, 1, 1, 2, 4], n)
    candidates = {s: [t for t in TABLE.job_types if s in TABLE.scale_factors_of(t)] for s in (1, 2, 4)}
    types = [candidates[int(s)][rng.integers(len(candidates[int(s)]))] for s in sizes]
    matrix = TABLE.matrix(range(n), types, sizes, gpus.accelerators)
    return ClusterState(
        gpus,
        matrix,
        priority_weights=rng.choice([1.0, 5.0], n),
        # As much work for every job on its fastest type: else one long job decides alone.
        steps_remaining=rng.uniform(1e4, 2e4, n) * matrix.rates.max(axis=1),
        elapsed_seconds=rng.uniform(0, 1e4, n),
        isolated_seconds=rng.uniform(0, 1e4, n),
        colocation=PackedColumns.from_table(TABLE, types, sizes, gpus.accelerators) if sharing else None,
    )


def better(name: str, one: float, other: float) -> bool:
    """Whether objective `one` is at least as good as `other`."""
    slack = 1e-6 * abs(other)
    return one >= other - slack if name.startswith("max_min") else one <= other + slack


@pytest.mark.parametrize("name", NAMES)
def test_allocations_are_feasible_and_proven(name: str) -> None:
    for seed in range(5):
        state = state_of(14, seed)
        allocation = get_policy(name).allocate(state)
        pairs, sizes = allocation.pairs, state.scale_factors
        assert allocation.status == "optimal"
        assert allocation.gap <= 1e-7
        assert pairs is not None
        polytope = PackedPolytope(state.packed, state.capacity)
        assert polytope.violation(allocation.shares, pairs) <= 1e-9
        assert (sizes[pairs.first] == sizes[pairs.second]).all()
        np.testing.assert_allclose(
            allocation.effective_throughput, polytope.throughput(allocation.shares, pairs), rtol=1e-12
        )


@pytest.mark.parametrize("name", NAMES)
def test_sharing_never_hurts_and_mostly_helps(name: str) -> None:
    gains = []
    for seed in range(3):
        state = state_of(60, seed)
        packed, alone = get_policy(name).allocate(state), get_policy(plain(name)).allocate(state)
        assert better(name, packed.objective, alone.objective)
        gains.append(abs(packed.objective / alone.objective - 1))
    assert max(gains) > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_without_figures_for_pairs_the_optimum_is_the_plain_one(name: str) -> None:
    for seed in range(4):
        state = state_of(12, seed, sharing=False)
        packed, alone = get_policy(name).allocate(state), get_policy(plain(name)).allocate(state)
        assert packed.objective == pytest.approx(alone.objective, rel=1e-6)
        assert packed.pairs is not None
        assert len(packed.pairs) == 0


@pytest.mark.parametrize("name", NAMES)
def test_order_of_jobs_does_not_matter(name: str) -> None:
    state = state_of(13, seed=3)
    order = np.random.default_rng(0).permutation(13)
    first, second = get_policy(name).allocate(state), get_policy(name).allocate(state.subset(order))
    np.testing.assert_array_equal(first.shares[order], second.shares)

    def by_label(allocation: allocator.Allocation) -> dict[tuple[frozenset[int], str], float]:
        frame = allocation.pairs_frame()
        return {
            (frozenset((one, other)), name): share
            for one, other, name, share in zip(
                frame["first"], frame["second"], frame["accelerator"], frame["share"], strict=True
            )
        }

    assert by_label(first) == pytest.approx(by_label(second), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("solver", ["class_pairs", "highs"])
def test_engines_agree(name: str, solver: str) -> None:
    state = state_of(9, seed=1)
    assert get_policy(name, solver=solver).allocate(state).objective == pytest.approx(
        get_policy(name).allocate(state).objective, rel=1e-5
    )


def test_two_jobs_that_do_well_together_always_share() -> None:
    allocation = allocator.solve("max_min_fairness_packed", TWO_ALIKE, "v100:1")
    assert allocation.effective_throughput.tolist() == pytest.approx([0.8, 0.8])
    assert not allocation.shares.any()
    frame = allocation.pairs_frame()
    assert frame[["first", "second", "accelerator"]].to_numpy().tolist() == [[0, 1, "v100"]]
    assert frame["share"].tolist() == pytest.approx([1.0])
    assert frame[["first_rate", "second_rate"]].to_numpy().tolist() == [[0.8, 0.8]]


def test_pairs_frame_of_a_policy_that_does_not_pack_is_empty() -> None:
    frame = allocator.solve("max_min_fairness_perf", TWO_ALIKE, "v100:1").pairs_frame()
    assert list(frame.columns) == ["first", "second", "accelerator", "share", "first_rate", "second_rate"]
    assert frame.empty


def test_gangs_share_only_where_they_fit() -> None:
    columns = PackedColumns([0, 0], [[1.0, 1.0]], [[[0.9, 0.9]]], [2], accelerators=["v100", "k80"])
    allocation = allocator.solve("max_min_fairness_packed", columns, "v100:1,k80:2")
    assert allocation.pairs is not None
    assert allocation.pairs.accelerator.tolist() == [1]
    assert allocation.effective_throughput.tolist() == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_run_nowhere_or_are_through_take_nothing(name: str) -> None:
    columns = PackedColumns([0, 1, 0], [[1.0], [0.0]], np.zeros((2, 2, 1)), jobs=["a", "b", "c"], accelerators=["v100"])
    state = ClusterState(
        Cluster({"v100": 1}),
        ThroughputMatrix([[1.0], [0.0], [1.0]], ["a", "b", "c"], ["v100"]),
        steps_remaining=np.array([5.0, 5.0, 0.0]),
        colocation=columns,
    )
    allocation = get_policy(name).allocate(state)
    assert allocation.unserved == ("b", "c")
    assert allocation.shares.ravel().tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_settings() -> None:
    for name in NAMES:
        assert settings_of(name) == (("solver", "choice") if name == "min_total_duration_packed" else ("solver",))
        get_policy(name).prepare()
    with pytest.raises(InputError, match="did you mean 'highs'"):
        get_policy("max_min_fairness_packed", solver="high").allocate(state_of(4, seed=0))


def test_states_refuse_what_does_not_fit() -> None:
    matrix = ThroughputMatrix([[1.0], [1.0]], ["a", "b"], ["v100"])
    with pytest.raises(InputError, match="colocation"):
        ClusterState(Cluster({"v100": 1}), matrix, colocation=TWO_ALIKE)
    with pytest.raises(InputError, match="current_partner"):
        ClusterState(Cluster({"v100": 1}), matrix, current_partner=np.array([2, 0]))


def test_a_part_of_a_state_keeps_its_partners() -> None:
    state = ClusterState(
        Cluster({"v100": 1}),
        ThroughputMatrix(np.ones((4, 1)), [4, 5, 6, 7], ["v100"]),
        current_partner=np.array([3, 2, 1, 0]),
        colocation=PackedColumns(
            [0, 1, 1, 0], np.ones((2, 1)), np.ones((2, 2, 1)), jobs=[4, 5, 6, 7], accelerators=["v100"]
        ),
    )
    part = state.subset(np.array([3, 1, 0]))
    assert part.current_partner.tolist() == [2, -1, 0]
    assert part.packed.jobs == (7, 5, 4)
    assert part.packed.group.tolist() == [0, 1, 0]


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
    assert pair["jobs"] == [0, 2]
    assert pair["throughputs"] == [0.7, 0.9]
    assert pair["share"] > 0


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({}, "a list of pairs"),
        ([{"throughputs": {}}], "two job ids"),
        ([{"pair": [0, 9], "throughputs": {}}], "two different jobs"),
        ([{"pair": [1, 1], "throughputs": {}}], "two different jobs"),
        ([{"pair": [0, 1], "throughputs": {}}, {"pair": [1, 0], "throughputs": {}}], "each pair once"),
        ([{"pair": [0, 1]}], "an object by type"),
        ([{"pair": [0, 1], "throughputs": {"v100": [1.0]}}], "two throughputs"),
        ([{"pair": [0, 1], "throughputs": {"v100": [1.0, "x"]}}], "two throughputs"),
        ([{"pair": [0, 1], "throughputs": {"v100": [1.0, -1.0]}}], "at least 0"),
    ],
)
def test_instances_with_bad_pairs(pairs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        state_from_json(INSTANCE | {"pairs": pairs})
