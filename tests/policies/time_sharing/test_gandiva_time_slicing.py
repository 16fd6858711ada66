"""Gandiva's time slicing: node sets by the size of gangs, and turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from allocator import Cluster
from allocator.checkpoint.state_file import Part
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.protocol import Trigger
from allocator.published.elasticflow.node_sets import PublishedNodeSets
from tests.policies.time_sharing.runs import Asked


def gandiva(servers: int = 1, **settings: Any) -> Asked:
    return Asked("gandiva_time_slicing", 4 * servers, 4, **settings)


def sets_of(memory: NodeSets) -> dict[int, list[list[int]]]:
    return {size: [one.jobs for one in sets] for size, sets in memory.of_size.items() if sets}


def arrived(servers: int, sizes: Sequence[int], kind: type[NodeSets] = NodeSets, per_server: int = 4) -> NodeSets:
    """Jobs 0, 1, ... of these gangs."""
    memory = kind()
    memory.resize(servers, per_server)
    for job, size in enumerate(sizes):
        memory.arrive(job, size)
    return memory


def test_where_there_is_room_all_run_and_nobody_is_asked_again() -> None:
    plan = gandiva(4).plan([1, 2, 3], [2, 1, 4])
    assert (plan.steps[0].assignment.jobs.tolist(), plan.steps[0].seconds) == ([1, 0, 2], np.inf)
    small = Asked("gandiva_time_slicing", 2, 4)
    assert small([1, 2], [1, 1])[0] == [1, 2]


def test_jobs_of_a_full_set_take_turns() -> None:
    asked = gandiva(turn_seconds=30.0)
    seen = [asked([1, 2, 3, 4, 5, 6], [1] * 6, 30.0 * turn)[0] for turn in range(1, 5)]
    assert seen == [[1, 2, 3, 4], [1, 2, 5, 6], [3, 4, 5, 6], [1, 2, 3, 4]]


def test_a_turn_goes_on_when_somebody_arrives_in_it() -> None:
    asked = gandiva()
    assert asked([1, 2], [4, 4], 100.0) == ([1], 60.0)
    assert asked([1, 2, 3], [4, 4, 4], 120.0) == ([1], 40.0)


def test_a_turn_is_over_whatever_rounding_leaves_of_it() -> None:
    asked, late = gandiva(), 1e6
    assert [asked([1, 2], [4, 4], late + after)[0] for after in (0.0, 59.0, 60.0 - 1e-7)] == [[1], [1], [2]]


def test_sizes_get_servers_in_proportion_to_the_gpus_they_want() -> None:
    asked = gandiva(4)
    assert asked([1, 2, 3, 4], [4] * 4)[0] == [1, 2, 3, 4]
    # 16 GPUs are wanted by gangs of four and 8 by gangs of two: 2.7 servers and 1.3
    assert asked(range(1, 9), [4] * 4 + [2] * 4, 5.0)[0] == [2, 3, 4, 5, 6]
    assert sets_of(asked.memory) == {4: [[2, 1], [3], [4]], 2: [[5, 6, 7, 8]]}


def test_who_finds_no_room_takes_turns_where_fewest_do() -> None:
    assert sets_of(arrived(2, [2] * 8)) == {2: [[0, 1, 4, 6], [2, 3, 5, 7]]}


def test_gangs_of_several_servers_give_them_back_whole() -> None:
    memory = arrived(5, [8, 10])
    assert (memory.free, [one.servers for _, one in memory]) == (0, [2, 3])
    assert memory.drop({1})
    assert memory.free == 3


def test_who_ends_or_can_run_no_more_gives_back_servers_to_those_who_wait() -> None:
    for later in ([2], [1, 2]):
        asked = gandiva()
        assert asked([1, 2], [4, 2])[0] == [1]
        assert asked.memory.waiting == {2: 2}
        rates = {"rates": [0.0, 1.0][-len(later) :]}
        assert asked(later, [4, 2][-len(later) :], 9.0, **rates)[0] == [2]
        assert sets_of(asked.memory) == {2: [[2]]}
        assert not asked.memory.waiting


def test_when_servers_change_those_on_sets_are_placed_before_those_who_wait() -> None:
    asked = gandiva(4)
    assert asked([1, 2], [4, 4])[0] == [1, 2]
    asked.cluster = Cluster({"a100": 4}, {"a100": 4})
    assert asked([1, 2], [4, 4], 1.0)[0] == [1]
    memory = arrived(1, [4, 2])
    assert memory.waiting == {1: 2}
    memory.resize(2, 2)
    assert (list(memory.waiting), memory.known) == ([0, 1], {0, 1})


def test_small_demands_have_a_server_as_long_as_there_are_any() -> None:
    """A gang of one wants a 13th of the GPUs of four servers, a third of a server."""
    memory = arrived(4, [4, 4, 4, 1])
    memory.rebalance()
    assert sets_of(memory) == {4: [[0], [1], [2]], 1: [[3]]}
    # a fourth gang of four has no server of its own
    memory.arrive(4, 4)
    memory.rebalance()
    assert sorted(len(jobs) for jobs in sets_of(memory)[4]) == [1, 1, 2]
    assert sets_of(memory)[1] == [[3]]


@pytest.mark.parametrize(
    ("servers", "fours", "twos", "expected"),
    [(3, 3, 6, {2: 1, 4: 2}), (3, 3, 2, {2: 1, 4: 2}), (3, 1, 6, {2: 2, 4: 1}), (4, 9, 14, {2: 2, 4: 2})],
)
def test_what_is_left_goes_to_who_lacks_most_of_its_part_and_of_equals_to_the_largest_gangs(
    servers: int, fours: int, twos: int, expected: dict[int, int]
) -> None:
    """Parts of servers: 1.5 each; 2.25 and 0.75, which is one; 0.75, which is one, and 2.25; 2.25 and 1.75."""
    memory = arrived(servers, [])
    memory.waiting = dict(enumerate([4] * fours + [2] * twos))
    memory.rebalance()
    assert {size: len(sets) for size, sets in sets_of(memory).items()} == expected


@pytest.mark.parametrize("kind", [NodeSets, PublishedNodeSets])
@pytest.mark.parametrize("seed", range(6))
def test_servers_are_free_or_in_one_set_and_jobs_on_one_set_or_waiting(kind: type[NodeSets], seed: int) -> None:
    rng, memory, there = np.random.default_rng(seed), arrived(6, [], kind), set()
    for job in range(40):
        memory.arrive(job, int(rng.choice([1, 2, 3, 4, 6, 8])))
        there.add(job)
        gone = {each for each in there if rng.random() < 0.15}
        there -= gone
        memory.place_waiting(memory.drop(gone))
        memory.rebalance()
        again = kind()
        again.restore(Part.of(memory.state()).tree())
        for each in (memory, again):
            assert each.free + sum(one.servers for _, one in each) == 6
            assert each.free >= 0
            assert sorted([*each.waiting, *(one for _, sets in each for one in sets.jobs)]) == sorted(there)
            assert each.known == there
        assert Part.of(again.state()).data == Part.of(memory.state()).data


def test_published_sets_take_one_job_less_than_they_have_room_for() -> None:
    assert sets_of(arrived(2, [1] * 5, PublishedNodeSets)) == {1: [[3, 4], [0, 1, 2]]}


def test_published_turns_come_with_the_clock_in_whole_seconds() -> None:
    asked = gandiva(system="elasticflow")
    assert asked.policy.triggers == Trigger.ARRIVAL != gandiva().policy.triggers
    times = (60.0, 119.9, 120.7, 121.0, 180.0)
    assert [asked([1, 2], [4, 4], time)[0] for time in times] == [[1], [1], [2], [2], [1]]
