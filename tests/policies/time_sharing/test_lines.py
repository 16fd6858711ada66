"""Places in line, by hand: who is ahead of whom where equals are told apart, and what is remembered of it."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, get_policy
from allocator.policies.time_sharing.lines import carried_over, positions_of
from allocator.policies.time_sharing.node_sets import NodeSets
from allocator.policies.time_sharing.published_sets import PublishedNodeSets
from allocator.policies.time_sharing.themis import Themis
from allocator.policies.time_sharing.tiresias import Tiresias
from tests.policies.time_sharing.runs import decide, state_of

ONE = Cluster({"a100": 1}, {"a100": 1})
TWO = Cluster({"a100": 2}, {"a100": 2})
FOUR = Cluster({"a100": 4}, {"a100": 4})
SIXTEEN = Cluster({"a100": 16}, {"a100": 4})


def served(gpus, seconds, **columns):
    """Columns of gangs that have trained for so many seconds."""
    seconds = np.array(seconds, dtype=float)
    return {"run_seconds": seconds, "gpu_seconds": seconds * gpus} | columns


def places(memory):
    """Labels in the order of their turns."""
    return [memory.jobs[i] for i in np.argsort(memory.turn).tolist()]


def sets_of(memory):
    return {size: [one.jobs for one in sets] for size, sets in memory.of_size.items() if sets}


def test_what_jobs_had_goes_with_them_and_new_ones_have_nothing() -> None:
    before = positions_of(["b", "c", "a"], ["a", "b"])
    assert before.tolist() == [1, -1, 0]
    assert carried_over(np.array([5.0, 7.0]), before, np.array([1])).tolist() == [7.0, 0.0, 5.0]
    assert carried_over(np.array([], dtype=np.int64), np.array([-1, -1]), np.array([0, 1])).tolist() == [0, 0]
    assert positions_of(["a", "b"], ["a", "b"]).tolist() == [0, 1]


def test_a_new_job_has_not_waited_though_the_last_in_the_table_has() -> None:
    policy = Tiresias(queue_limits=(100.0,))
    memory = policy.new_memory()
    decide(policy, memory, state_of([1, 2], [1, 1], ONE))
    memory.waited, memory.spent = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], ONE))
    assert (memory.waited.tolist(), memory.spent.tolist()) == ([1.0, 2.0, 0.0], [3.0, 4.0, 0.0])


def test_of_those_let_down_together_who_arrived_first_comes_first() -> None:
    policy = Tiresias(queue_limits=(100.0,))
    memory = policy.new_memory()
    # the last in the table was there first
    columns = served([1, 1, 1], [100, 100, 100], elapsed_seconds=[100.0, 200.0, 300.0])
    decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], ONE, clock=300.0, **columns))
    assert memory.queue.tolist() == [1, 1, 1]
    assert places(memory) == [3, 2, 1]


def test_of_those_who_arrive_together_labels_decide() -> None:
    policy = Tiresias()
    memory = policy.new_memory()
    decide(policy, memory, state_of([3, 1, 2], [1, 1, 1], ONE, elapsed_seconds=[5.0, 5.0, 9.0]))
    assert places(memory) == [2, 1, 3]


def test_a_limit_that_was_planned_counts_as_reached_whatever_rounding_leaves() -> None:
    policy = Tiresias(queue_limits=(100.0,))
    for attained, queue in ((100.0, 1), (100.0 * (1 - 1e-12), 1), (100.0 * (1 - 1e-6), 0)):
        memory = policy.new_memory()
        decide(policy, memory, state_of([1], [1], ONE, clock=100.0, **served([1], [attained])))
        assert memory.queue.tolist() == [queue]


def test_waiting_counts_from_the_first_start_on() -> None:
    """The second job waits for 50 s before it starts, and for 30 s after it has stopped."""
    policy = Tiresias(queue_limits=(100.0,))
    memory = policy.new_memory()
    for clock, seconds, running in (
        (0.0, [0, 0], []),
        (50.0, [50, 0], [1]),
        (100.0, [50, 50], [2]),
        (130.0, [80, 50], [1]),
    ):
        decide(policy, memory, state_of([1, 2], [2, 2], TWO, clock=clock, running=running, **served([2, 2], seconds)))
    assert memory.waited.tolist() == [50.0, 30.0]


def test_who_waits_in_the_first_queue_is_not_promoted_and_nobody_is_asked_for_it() -> None:
    """Both have trained for 10 s; the next thing to happen is that the one who runs reaches its limit, in 90 s."""
    policy = Tiresias(queue_limits=(100.0,), promote_after=2.0)
    memory = policy.new_memory()
    decide(policy, memory, state_of([1, 2], [1, 1], ONE))
    plan = policy.plan(state_of([1, 2], [1, 1], ONE, clock=20.0, running=[1], **served([1, 1], [10, 10])), memory)
    assert plan.steps[0].seconds == 90.0


def test_those_promoted_together_keep_their_order() -> None:
    policy = Tiresias(queue_limits=(10.0,), promote_after=1.0)
    memory = policy.new_memory()
    decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], ONE))
    # the second job reached the limit first, then the first one; both have waited for as long as they trained
    memory.queue, memory.turn = np.array([1, 1, 0]), np.array([2, 1, 0])
    memory.waited, memory.clock = np.array([20.0, 20.0, 0.0]), 50.0
    columns = served([1, 1, 1], [20, 20, 5])
    decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], ONE, clock=50.0, running=[3], **columns))
    assert memory.queue.tolist() == [0, 0, 0]
    assert places(memory) == [3, 2, 1]
    assert (memory.waited.tolist(), memory.spent.tolist()) == ([0.0, 0.0, 0.0], [20.0, 20.0, 0.0])


def test_themis_remembers_who_was_ahead() -> None:
    """Of three jobs on two GPUs the last two are worse off; when all are alike these still are ahead."""
    policy = get_policy("themis")
    memory = policy.new_memory()

    def runs(elapsed, clock):
        columns = {"steps_remaining": [500.0] * 3, "elapsed_seconds": elapsed}
        return decide(policy, memory, state_of([1, 2, 3], [1, 1, 1], TWO, clock=clock, **columns))

    assert runs([10.0, 400.0, 500.0], 500.0) == [2, 3]
    assert places(memory) == [3, 2, 1]
    assert runs([500.0] * 3, 500.0) == [2, 3]


def test_a_job_that_leaves_is_a_change_and_a_decision_is_none() -> None:
    memory = Themis().new_memory()
    for labels, clock, changed in (([1, 2], 5.0, 5.0), ([1, 2], 9.0, 5.0), ([2], 20.0, 20.0), ([2], 30.0, 20.0)):
        decide(Themis(), memory, state_of(labels, [1] * len(labels), TWO, clock=clock))
        assert memory.changed == changed


def test_a_turn_is_over_whatever_rounding_leaves_of_it() -> None:
    policy = get_policy("gandiva_time_slicing")
    memory, late = policy.new_memory(), 1e6
    assert decide(policy, memory, state_of([1, 2], [4, 4], FOUR, clock=late)) == [1]
    assert decide(policy, memory, state_of([1, 2], [4, 4], FOUR, clock=late + 59.0)) == [1]
    assert decide(policy, memory, state_of([1, 2], [4, 4], FOUR, clock=late + 60.0 - 1e-7)) == [2]


def test_published_turns_take_parts_of_seconds_for_none() -> None:
    policy = get_policy("gandiva_time_slicing", published_turns=True)
    memory = policy.new_memory()
    seen = [
        decide(policy, memory, state_of([1, 2], [4, 4], FOUR, clock=clock)) for clock in (61.0, 119.9, 120.7, 121.0)
    ]
    assert seen == [[1], [1], [2], [2]]


def test_a_cluster_that_is_less_than_a_server() -> None:
    policy = get_policy("gandiva_time_slicing")
    small = Cluster({"a100": 2}, {"a100": 4})
    assert decide(policy, policy.new_memory(), state_of([1, 2], [1, 1], small)) == [1, 2]


def test_a_job_that_can_run_no_more_gives_its_servers_back() -> None:
    policy = get_policy("gandiva_time_slicing")
    memory = policy.new_memory()
    assert decide(policy, memory, state_of([1, 2], [4, 2], FOUR)) == [1]
    stopped = state_of([1, 2], [4, 2], FOUR, clock=9.0, rates=[0.0, 1.0])
    assert decide(policy, memory, stopped) == [2]
    assert sets_of(memory) == {2: [[2]]}


def test_sets_of_several_servers_come_back_whole() -> None:
    memory = NodeSets()
    memory.resize(5, 4)
    memory.arrive(1, 8)
    memory.arrive(2, 10)
    assert memory.free == 0
    assert [one.servers for _, one in memory] == [2, 3]
    assert memory.drop({2})
    assert memory.free == 3


def test_those_on_sets_are_placed_before_those_who_wait_when_servers_change() -> None:
    memory = NodeSets()
    memory.resize(1, 4)
    memory.arrive(1, 4)
    memory.arrive(2, 2)
    assert memory.waiting == {2: 2}
    memory.resize(2, 2)
    assert list(memory.waiting) == [1, 2]
    assert memory.known == {1, 2}


def test_small_demands_have_a_server_as_long_as_there_are_any() -> None:
    """A gang of one wants a 13th of the GPUs of four servers, a third of a server."""
    memory = NodeSets()
    memory.resize(4, 4)
    for job in range(3):
        memory.arrive(job, 4)
    memory.arrive(3, 1)
    memory.rebalance()
    assert sets_of(memory) == {4: [[0], [1], [2]], 1: [[3]]}
    # a fourth gang of four has no server of its own
    memory.arrive(4, 4)
    memory.rebalance()
    assert sorted(len(jobs) for jobs in sets_of(memory)[4]) == [1, 1, 2]
    assert sets_of(memory)[1] == [[3]]


def test_what_is_left_goes_to_who_lacks_most_of_its_part_and_of_equals_to_the_largest_gangs() -> None:
    """Twelve GPUs each are wanted by gangs of four and of two: 1.5 of three servers."""
    memory = NodeSets()
    memory.resize(3, 4)
    memory.waiting = dict.fromkeys(range(3), 4) | dict.fromkeys(range(3, 9), 2)
    assert memory._targets() == {2: 1, 4: 2}
    # twelve and four GPUs: 2.25 servers and 0.75, which is one
    memory.waiting = dict.fromkeys(range(3), 4) | dict.fromkeys(range(3, 5), 2)
    assert memory._targets() == {2: 1, 4: 2}
    # four and twelve: 0.75, which is one, and 2.25
    memory.waiting = {0: 4} | dict.fromkeys(range(1, 7), 2)
    assert memory._targets() == {2: 2, 4: 1}


@pytest.mark.parametrize("kind", [NodeSets, PublishedNodeSets])
@pytest.mark.parametrize("seed", range(10))
def test_servers_are_free_or_in_one_set_and_jobs_on_one_set_or_waiting(kind, seed) -> None:
    rng, memory, there = np.random.default_rng(seed), kind(), set()
    memory.resize(6, 4)
    for job in range(40):
        memory.arrive(job, int(rng.choice([1, 2, 3, 4, 6, 8])))
        there.add(job)
        gone = {each for each in there if rng.random() < 0.15}
        there -= gone
        memory.place_waiting(memory.drop(gone))
        memory.rebalance()
        assert memory.free + sum(one.servers for _, one in memory) == 6
        assert memory.free >= 0
        assert sorted([*memory.waiting, *(one for _, sets in memory for one in sets.jobs)]) == sorted(there)
        assert memory.known == there


def test_a_checkpoint_knows_those_who_wait() -> None:
    memory, again = NodeSets(), NodeSets()
    memory.resize(1, 4)
    memory.arrive(1, 4)
    memory.arrive(2, 2)
    again.restore(memory.state())
    assert again.known == {1, 2}
    assert (sets_of(again), again.waiting, again.free) == ({4: [[1]]}, {2: 2}, 0)


@pytest.mark.parametrize(
    ("sizes", "sets", "free"),
    [
        # a gang of one wants one GPU, not all sixteen
        ([1], {1: 1}, 3),
        # the gang of eight wants 8 of 18 GPUs, 7.1 of 16, one less than it has; its only set stays
        ([8, 2, 2, 2, 2, 2], {8: 1, 2: 2}, 0),
        # gangs of four want 12 of 20 GPUs, 9.6 of 16; three less than they have cost them a set
        ([4, 4, 4, 2, 2, 2, 2], {4: 2, 2: 1}, 1),
    ],
)
def test_published_sets_of_each_size(sizes, sets, free) -> None:
    memory = PublishedNodeSets()
    memory.resize(4, 4)
    for job, size in enumerate(sizes):
        memory.arrive(job, size)
    memory.rebalance()
    assert ({size: len(found) for size, found in sets_of(memory).items()}, memory.free) == (sets, free)


def test_published_sets_are_dealt_anew_where_servers_run_out() -> None:
    """Five gangs of three on two of four servers want 15 GPUs and have 8: three sets more, and two servers are free."""
    memory = PublishedNodeSets()
    memory.resize(4, 4)
    for job, size in enumerate([8, 3, 3, 3, 3, 3]):
        memory.arrive(job, size)
    assert len(sets_of(memory)[3]) == 2
    memory.drop({0})
    memory.rebalance()
    assert sorted(len(jobs) for jobs in sets_of(memory)[3]) == [1, 1, 1, 2]


def test_published_sets_of_several_servers_are_always_dealt_anew() -> None:
    memory = PublishedNodeSets()
    memory.resize(6, 4)
    for job, size in enumerate([16, 8, 8]):
        memory.arrive(job, size)
    assert [len(jobs) for jobs in sets_of(memory)[8]] == [2]
    memory.drop({0})
    memory.rebalance()
    assert [len(jobs) for jobs in sets_of(memory)[8]] == [1, 1]
