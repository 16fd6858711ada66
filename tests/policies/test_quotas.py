"""Quotas: who has a right to what, who lends and borrows, and who is preempted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, InputError, ThroughputMatrix, get_policy
from allocator.policies.quotas.limits import Limits
from allocator.protocol import Assignment
from allocator.protocol.entities import Entities, Membership


def state_of(
    said: str, cluster: str = "v100:8", entities: Any = None, rates: Any = None, running: Any = None
) -> ClusterState:
    """Jobs in the order of arrival, as ``a2*3 b4!``: three of a with two GPUs, one of b with four and priority.

    `running` are positions of jobs, and types.
    """
    found = re.findall(r"([a-z]*)(\d+)(!?)(?:\*(\d+))?", said)
    jobs = [(name, int(gpus), 9.0 if high else 1.0) for name, gpus, high, n in found for _ in range(int(n or 1))]
    gpus, now = Cluster.parse(cluster), running or {}
    names, sizes, priorities = zip(*jobs, strict=True)
    speed = np.ones((len(jobs), len(gpus.accelerators))) if rates is None else rates
    parsed = Entities.parse({"a": 1, "b": 1} if entities is None else entities)
    return ClusterState(
        gpus,
        ThroughputMatrix(speed, range(len(jobs)), gpus.accelerators, sizes),
        priority_weights=np.array(priorities),
        elapsed_seconds=np.arange(len(jobs), 0, -1.0),
        membership=Membership(parsed, parsed.positions(np.array(names, dtype=object))),
        running=Assignment.of(list(now), list(now.values()), [sizes[i] for i in now]),
    )


def runs(state: ClusterState, **settings: Any) -> dict[int, int]:
    """Type of each job that runs."""
    plan = get_policy("quotas", **settings).plan(state, None)  # type: ignore[attr-defined]
    rows = plan.steps[0].assignment
    rows.check(state.capacity, "quotas")
    return dict(zip(rows.jobs.tolist(), rows.pool.tolist(), strict=True))


FAMILIES = {"x": 1, "y": 1, "a": {"parent": "x"}, "b": {"parent": "x"}, "c": {"parent": "y"}}
LIMITED = {"lending": {"b.v100": 1}, "reclaim": False}
GIVEN = {"a.v100": 6, "b.v100": 1}
FASTER = [[3.0, 1.0], [3.0, 1.0], [1.0, 2.0]]
ALL_OF_A = dict.fromkeys(range(8), 0)
PREEMPTING = {"running": {0: 0, 1: 0}}
BORROWING = {
    "cluster": "v100:4,k80:2",
    "entities": {"lender": 1, "a": 1, "b": 2},
    "rates": [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]],
    "running": {0: 0},
}
LENDER: dict[str, Any] = {"quotas": {"lender.v100": 4, "lender.k80": 2}, "reclaim": False}


@pytest.mark.parametrize(
    ("said", "world", "settings", "expected"),
    [
        # each entity has its quota; what is idle is lent, and reclaimed
        ("a1*8 b1*8", {}, {}, "0 1 2 3 8 9 10 11"),
        ("a1*8", {}, {}, "0 1 2 3 4 5 6 7"),
        ("a1*8 b4", {"running": ALL_OF_A}, {}, "0 1 2 3 8"),
        ("a1*8 b4", {"running": ALL_OF_A}, {"reclaim": False}, "0 1 2 3 4 5 6 7"),
        # limits of lending and of borrowing
        ("a1*8", {}, {"lending": {"b.v100": 1}}, "0 1 2 3 4"),
        ("a1*8", {}, {"borrowing": {"a.v100": 2}}, "0 1 2 3 4 5"),
        ("a1*8", {}, {"lending": {"b.v100": 0}}, "0 1 2 3"),
        ("a1*8", {}, {"cohorts": "none"}, "0 1 2 3"),
        # nobody is preempted when b comes: what it does not lend has stayed idle
        ("a1*8 b1*3", {"running": dict.fromkeys(range(5), 0)}, LIMITED, "0 1 2 3 4 8 9 10"),
        # only siblings lend to each other
        ("a1*9", {"entities": FAMILIES}, {"cohorts": "siblings"}, "0 1 2 3"),
        ("a1*9", {"entities": FAMILIES}, {}, "0 1 2 3 4 5 6 7"),
        # quotas as they are given; what nobody has a quota of is lent where there is one cohort
        ("a1*8 b1*8", {}, {"quotas": GIVEN, "cohorts": "none"}, "0 1 2 3 4 5 8"),
        ("a1*8 b1*8", {}, {"quotas": GIVEN}, "0 1 2 3 4 5 6 8"),
        # priority preempts within an entity only
        ("a4 b4 a4!", PREEMPTING, {}, "1 2"),
        ("a4 b4 a4!", PREEMPTING, {"preempt": False}, "0 1"),
        ("a4 b4 a4!", PREEMPTING, {"reclaim": False}, "1 2"),
        ("a4 b4 a4!", PREEMPTING, {"reclaim": False, "preempt": False}, "0 1"),
        # a gang beyond the quota borrows the rest
        ("a6 b4", {}, {}, "1"),
        ("a6", {}, {}, "0"),
        # a borrows all of another type: by dominant resource it waits for this one, type by type it does not
        ("a4 a1 b1 b1", BORROWING, LENDER, "0 2 3"),
        ("a4 a1 b1 b1", BORROWING, LENDER | {"sharing": "per_type"}, "0 1 2"),
    ],
)
def test_who_runs(said: str, world: dict[str, Any], settings: dict[str, Any], expected: str) -> None:
    assert sorted(runs(state_of(said, **world), **settings)) == list(map(int, expected.split()))


def test_nominal_quotas_are_by_weight_in_whole_gpus_and_of_members_inside_an_entity() -> None:
    limits = Limits.of(state_of("a1*9 b1*9 c1*9", "v100:9", {"a": 2, "b": 1, "c": 1}), None, {}, {}, "all")
    assert limits.nominal.ravel().tolist() == [5, 2, 2, 0]
    entities = {"top": 1, "b": 1, "inner": {"parent": "top", "weight": 3}, "other": {"parent": "top"}}
    state = state_of("b1", "v100:16", entities)
    limits = Limits.of(state, None, {}, {}, "siblings")
    names = state.membership.entities.names if state.membership else ()
    assert dict(zip(names, limits.nominal.ravel().tolist(), strict=False)) == {"top": 0, "b": 8, "inner": 6, "other": 2}
    assert limits.pooled.ravel().tolist() == [8, 8]


def test_gangs_take_the_fastest_type_with_quota_and_of_equal_priority_who_runs_goes_on_where_it_is() -> None:
    state = state_of("a2*3", "v100:4,k80:4", {"a": 1, "b": 1}, FASTER)
    # a has two of each: the second job has quota of the slower type left, the third borrows
    assert runs(state) == {0: 0, 1: 1, 2: 1}
    assert runs(state, cohorts="none") == {0: 0, 1: 1}
    assert runs(state_of("a2*4", "v100:2,k80:2", {"a": 1}, [[3.0, 1.0]] * 4, {3: 1, 2: 0})) == {2: 0, 3: 1}


def test_what_is_borrowed_is_shared_by_weight() -> None:
    """Of their own 2 and 4, and of the lender's 12 in proportion 1 to 2."""
    chosen = runs(state_of("a1*18 b1*18", "v100:18", {"lender": 6, "a": 1, "b": 2}))
    assert (sum(job < 18 for job in chosen), len(chosen)) == (6, 18)


def test_without_entities_it_is_a_queue_by_priority() -> None:
    matrix = ThroughputMatrix(np.ones((3, 1)), range(3), ["v100"], [2, 2, 1])
    state = ClusterState(Cluster({"v100": 3}), matrix, priority_weights=np.array([1.0, 2.0, 1.0]))
    assert sorted(runs(state)) == [1, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quotas": {"c.v100": 1}}, "quotas.*c.v100"),
        ({"lending": {"a.v10": 1}}, "lending.*'v100'"),
        ({"borrowing": {"a.v100": -1}}, "borrowing.a.v100.*-1"),
        ({"quotas": {"a": 1}}, "quotas.*ENTITY.TYPE"),
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        runs(state_of("a1"), **wrong)


@st.composite
def instances(draw: st.DrawFn) -> tuple[ClusterState, dict[str, Any]]:
    """Two types, three entities and jobs without one, some of which run."""
    types = ["v100", "k80"]
    capacity = [draw(st.integers(0, 8)) for _ in types]
    kinds = ["1", "2!", "a1", "a1", "a2", "a4!", "b1", "b2", "b4!", "c1", "c2!", "c4"]
    jobs = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))
    rates = [[draw(st.sampled_from([0.0, 1.0, 2.0])) for _ in types] for _ in jobs]
    entities = {"a": 1, "b": {"weight": 2}, "c": {"parent": "b", "weight": 1}}
    keys = [f"{name}.{kind}" for name in "abc" for kind in types]
    some = st.dictionaries(st.sampled_from(keys), st.integers(0, 6), max_size=4)
    chosen = {
        "quotas": draw(st.none() | some),
        "lending": draw(some),
        "borrowing": draw(some),
        "cohorts": draw(st.sampled_from(["all", "siblings", "none"])),
        "sharing": draw(st.sampled_from(["dominant", "per_type"])),
        "preempt": draw(st.booleans()),
    }
    cluster = ",".join(f"{name}:{count}" for name, count in zip(types, capacity, strict=True))
    state = state_of(" ".join(jobs), cluster, entities, rates)
    if draw(st.booleans()):
        state = state_of(" ".join(jobs), cluster, entities, rates, running=runs(state, **chosen))
    return state, chosen


@settings(max_examples=25)
@given(instances())
def test_all_limits_hold_and_nobody_waits_who_has_a_right(instance: tuple[ClusterState, dict[str, Any]]) -> None:
    state, chosen = instance
    limits = Limits.of(state, chosen["quotas"], chosen["lending"], chosen["borrowing"], chosen["cohorts"])
    pool_of = runs(state, **chosen)
    assert state.membership is not None
    entity = np.where(state.membership.of_job < 0, len(limits.weights) - 1, state.membership.of_job)
    used = np.zeros(limits.nominal.shape, dtype=np.int64)
    for job, pool in pool_of.items():
        assert state.rates[job, pool] > 0
        used[entity[job], pool] += state.scale_factors[job]
    assert (used.sum(axis=0) <= state.capacity).all()
    assert (used <= limits.nominal + limits.borrowed).all()
    pooled = np.zeros(limits.pooled.shape)
    np.add.at(pooled, limits.cohort, np.maximum(used - (limits.nominal - limits.lent), 0))
    assert (pooled <= limits.pooled).all()
    # where quotas are no more than there is, no gang waits that its entity's quota has room for
    if (limits.nominal.sum(axis=0) <= state.capacity).all():
        for job in set(range(state.n_jobs)) - set(pool_of):
            for pool in np.flatnonzero(state.runnable_rates[job] > 0):
                assert used[entity[job], pool] + state.scale_factors[job] > limits.nominal[entity[job], pool]
