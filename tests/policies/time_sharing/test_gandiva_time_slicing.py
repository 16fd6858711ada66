"""Gandiva's time slicing: node sets by the size of gangs, and turns."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, get_policy
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.policies.time_sharing.published_sets import PublishedNodeSets
from allocator.protocol import Trigger
from tests.policies.time_sharing.runs import decide, state_of
from throughputs import InputError

ONE_SERVER = Cluster({"a100": 4}, {"a100": 4})
FOUR_SERVERS = Cluster({"a100": 16}, {"a100": 4})


def sets_of(memory: NodeSets) -> dict[int, list[list[int]]]:
    return {size: [one.jobs for one in sets] for size, sets in memory.of_size.items() if sets}


def test_where_there_is_room_all_run_and_nobody_is_asked_again():
    policy, state = get_policy("gandiva_time_slicing"), state_of([1, 2, 3], [2, 1, 4], FOUR_SERVERS)
    plan = policy.plan(state, policy.new_memory())
    assert plan.steps[0].assignment.jobs.tolist() == [1, 0, 2]
    assert plan.steps[0].seconds == np.inf


def test_jobs_of_a_full_set_take_turns():
    policy = get_policy("gandiva_time_slicing", turn_seconds=30.0)
    memory, labels = policy.new_memory(), [1, 2, 3, 4, 5, 6]
    seen = [decide(policy, memory, state_of(labels, [1] * 6, ONE_SERVER, clock=30.0 * turn)) for turn in range(1, 5)]
    assert seen == [[1, 2, 3, 4], [1, 2, 5, 6], [3, 4, 5, 6], [1, 2, 3, 4]]


def test_a_turn_goes_on_when_somebody_arrives_in_it():
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    plan = policy.plan(state_of([1, 2], [4, 4], ONE_SERVER, clock=100.0), memory)
    assert plan.steps[0].seconds == 60.0
    later = state_of([1, 2, 3], [4, 4, 4], ONE_SERVER, clock=120.0)
    plan = policy.plan(later, memory)
    assert (plan.steps[0].assignment.jobs.tolist(), plan.steps[0].seconds) == ([0], 40.0)


def test_sizes_get_servers_in_proportion_to_the_gpus_they_want():
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    assert decide(policy, memory, state_of([1, 2, 3, 4], [4] * 4, FOUR_SERVERS)) == [1, 2, 3, 4]
    # 16 GPUs are wanted by gangs of four and 8 by gangs of two: 2.7 servers and 1.3
    more = state_of(range(1, 9), [4] * 4 + [2] * 4, FOUR_SERVERS, clock=5.0)
    assert decide(policy, memory, more) == [2, 3, 4, 5, 6]
    assert sets_of(memory) == {4: [[2, 1], [3], [4]], 2: [[5, 6, 7, 8]]}


def test_who_finds_no_room_takes_turns_where_fewest_do():
    memory = NodeSets()
    memory.resize(2, 4)
    for job in range(8):
        memory.arrive(job, 2)
    assert sets_of(memory) == {2: [[0, 1, 4, 6], [2, 3, 5, 7]]}


def test_gangs_of_several_servers():
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    assert decide(policy, memory, state_of([1, 2], [6, 8], FOUR_SERVERS)) == [1, 2]
    assert memory.free == 0


def test_who_has_ended_gives_back_servers_to_those_who_wait():
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    assert decide(policy, memory, state_of([1, 2], [4, 2], ONE_SERVER)) == [1]
    assert memory.waiting == {2: 2}
    assert decide(policy, memory, state_of([2], [2], ONE_SERVER, clock=9.0)) == [2]
    assert not memory.waiting


def test_lost_servers_are_taken_out_of_the_sets():
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    assert decide(policy, memory, state_of([1, 2], [4, 4], FOUR_SERVERS)) == [1, 2]
    assert decide(policy, memory, state_of([1, 2], [4, 4], ONE_SERVER, clock=1.0)) == [1]


def test_published_sets_take_one_job_less_than_they_have_room_for():
    memory = PublishedNodeSets()
    memory.resize(2, 4)
    for job in range(5):
        memory.arrive(job, 1)
    assert sets_of(memory) == {1: [[3, 4], [0, 1, 2]]}


def test_published_load_counts_jobs_that_have_ended():
    memory = PublishedNodeSets()
    memory.resize(2, 4)
    for job in range(3):
        memory.arrive(job, 1)
    memory.drop({0, 1})
    memory.arrive(3, 1)
    assert sets_of(memory) == {1: [[3], [2]]}


def test_published_retries_pass_over_the_neighbour_of_a_job_that_starts():
    memory = PublishedNodeSets()
    memory.resize(1, 4)
    memory.arrive(0, 4)
    for job in (1, 2, 3):
        memory.arrive(job, 2)
    assert memory.drop({0})
    memory.place_waiting(released=True)
    assert sets_of(memory) == {2: [[1, 3]]}
    assert memory.waiting == {2: 2}


def test_published_turns_come_with_the_clock():
    policy = get_policy("gandiva_time_slicing", published_sets=True, published_turns=True)
    assert policy.triggers == Trigger.ARRIVAL
    assert get_policy("gandiva_time_slicing").triggers != Trigger.ARRIVAL
    memory = policy.new_memory()
    times = (60.0, 119.0, 120.0, 130.0, 180.0)
    seen = [decide(policy, memory, state_of([1, 2], [4, 4], ONE_SERVER, clock=time)) for time in times]
    assert seen == [[1], [1], [2], [2], [1]]


def test_published_decisions_that_can_change_nothing_are_left_out():
    policy = get_policy("gandiva_time_slicing", published_sets=True, published_turns=True)
    memory = policy.new_memory()
    slots = {"more_arrivals": False, "slot_seconds": 240.0}

    def seconds(labels, clock, left):
        gpus = [2] * len(labels)
        state = state_of(labels, gpus, FOUR_SERVERS, clock=clock, steps_remaining=left, **slots)
        return policy.plan(state, memory).steps[0].seconds

    # the first decision places two jobs, the second one finds nothing to change until the first can end
    assert seconds([1, 2], 7.0, [1000.0, 3000.0]) == 240.0
    assert seconds([1, 2], 247.0, [760.0, 2760.0]) == 4 * 240.0
    assert seconds([2], 1207.0, [1800.0]) == 240.0
    assert seconds([2], 1447.0, [1560.0]) == 7 * 240.0


def test_published_turns_are_planned_ahead_until_a_job_may_end():
    policy = get_policy("gandiva_time_slicing", published_sets=True, published_turns=True)
    labels, gpus, left = [1, 2, 3], [4, 4, 2], np.array([300.0, 900.0, 900.0])
    memory, slots = policy.new_memory(), {"steps_remaining": left, "slot_seconds": 60.0}
    state = state_of(labels, gpus, ONE_SERVER, clock=60.0, more_arrivals=False, **slots)
    plan = policy.plan(state, policy.new_memory())
    assert {step.seconds for step in plan.steps} == {60.0}
    assert len(plan.steps) > 3
    for number, step in enumerate(plan.steps):
        # as long as jobs are expected there is a decision at a time
        state = state_of(labels, gpus, ONE_SERVER, clock=60.0 * (number + 1), **slots)
        assert policy.plan(state, memory).steps[0].assignment.jobs.tolist() == step.assignment.jobs.tolist()
        # nobody ends in a step that others follow
        assert number == 0 or left.min() > 60.0
        left[step.assignment.jobs] -= 60.0


def test_published_decisions_wait_for_arrivals():
    policy = get_policy("gandiva_time_slicing", published_sets=True, published_turns=True)
    for more, expected in ((True, np.inf), (False, 1.0)):
        plan = policy.plan(state_of([1], [2], ONE_SERVER, more_arrivals=more), policy.new_memory())
        assert plan.steps[0].seconds == expected


def test_wrong_settings():
    with pytest.raises(InputError, match="turn_seconds"):
        get_policy("gandiva_time_slicing", turn_seconds=0.0)
