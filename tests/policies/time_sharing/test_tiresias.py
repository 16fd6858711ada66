"""Tiresias: queues by the GPU time that jobs have attained."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, get_policy
from allocator.policies.time_sharing.tiresias import Tiresias, TiresiasMemory
from tests.policies.time_sharing.runs import decide, state_of, who_runs
from throughputs import InputError

TWO = Cluster({"a100": 2}, {"a100": 2})
FOUR = Cluster({"a100": 4}, {"a100": 4})


def asked(policy, memory, labels, gpus, seconds, *, cluster=FOUR, clock=0.0, running=()):
    """Who runs, and for how long, of jobs that have trained for so many `seconds`."""
    seconds = np.array(seconds, dtype=float)
    served = {"run_seconds": seconds, "gpu_seconds": seconds * gpus}
    state = state_of(labels, gpus, cluster, clock=clock, running=running, **served)
    plan = policy.plan(state, memory)
    return who_runs(plan, state), plan.steps[0].seconds


def queues(memory: TiresiasMemory) -> dict:
    return dict(zip(memory.jobs, memory.queue.tolist(), strict=True))


def test_new_jobs_run_in_order_of_arrival_until_the_first_reaches_its_limit():
    policy = Tiresias(queue_limits=(100.0, 300.0))
    runs, seconds = asked(policy, policy.new_memory(), [1, 2, 3], [2, 2, 1], [0, 0, 0])
    assert (runs, seconds) == ([1, 2], 50.0)


def test_a_job_that_attained_its_limit_goes_behind_newer_ones():
    policy = Tiresias(queue_limits=(100.0, 300.0))
    memory = policy.new_memory()
    asked(policy, memory, [1, 2], [2, 2], [0, 0], cluster=TWO)
    runs, seconds = asked(policy, memory, [1, 2], [2, 2], [50, 0], cluster=TWO, clock=50.0, running=[1])
    assert (runs, seconds) == ([2], 50.0)
    assert queues(memory) == {1: 1, 2: 0}
    # the second one is let down too, and is behind the first now
    runs, seconds = asked(policy, memory, [1, 2], [2, 2], [50, 50], cluster=TWO, clock=100.0, running=[2])
    assert (runs, seconds) == ([1], 100.0)


def test_who_runs_stays_ahead_in_its_queue():
    policy = get_policy("tiresias")
    memory = policy.new_memory()
    asked(policy, memory, [1, 2, 3], [3, 2, 1], [0, 0, 0])
    assert np.argsort(memory.turn).tolist() == [0, 2, 1]


def test_of_those_let_down_together_large_gangs_come_first():
    policy = Tiresias(queue_limits=(100.0,))
    memory = policy.new_memory()
    asked(policy, memory, [1, 2, 3], [1, 2, 1], [0, 0, 0])
    asked(policy, memory, [1, 2, 3], [1, 2, 1], [100, 60, 100], clock=100.0, running=[1, 2, 3])
    assert np.argsort(memory.turn).tolist() == [1, 0, 2]


def test_a_waiting_job_is_promoted():
    policy = Tiresias(queue_limits=(100.0,), promote_after=2.0)
    memory = policy.new_memory()
    asked(policy, memory, [1], [2], [0], cluster=TWO)
    asked(policy, memory, [1, 2], [2, 2], [60, 0], cluster=TWO, clock=60.0, running=[1])
    assert queues(memory) == {1: 1, 2: 0}
    runs, _ = asked(policy, memory, [1, 2, 3], [2, 2, 2], [60, 45, 0], cluster=TWO, clock=105.0, running=[2])
    assert runs == [2]
    runs, seconds = asked(policy, memory, [1, 2, 3], [2, 2, 2], [60, 50, 0], cluster=TWO, clock=110.0, running=[2])
    assert (runs, seconds) == ([3], 50.0)
    # the first has waited for 120 seconds, twice what it trained
    runs, _ = asked(policy, memory, [1, 2, 3], [2, 2, 2], [60, 50, 49], cluster=TWO, clock=180.0, running=[3])
    assert queues(memory) == {1: 0, 2: 1, 3: 0}
    assert runs == [3]
    assert memory.spent.tolist() == [120.0, 0.0, 0.0]
    asked(policy, memory, [1, 2, 3], [2, 2, 2], [60, 50, 50], cluster=TWO, clock=181.0, running=[3])
    assert queues(memory) == {1: 0, 2: 1, 3: 1}


def test_a_gang_that_waits_is_promoted_after_a_multiple_of_its_seconds():
    """Two seconds of waiting for one of training, on two GPUs: not for one GPU second."""
    policy = Tiresias(queue_limits=(100.0,), promote_after=2.0)
    memory = policy.new_memory()
    asked(policy, memory, [1], [2], [0], cluster=TWO)
    asked(policy, memory, [1, 2], [2, 1], [60, 0], cluster=TWO, clock=60.0, running=[1])
    runs, seconds = asked(policy, memory, [1, 2], [2, 1], [60, 20], cluster=TWO, clock=80.0, running=[2])
    # of 120 seconds the first has waited for 20; the second falls only at 100
    assert (runs, seconds) == ([2], 80.0)
    runs, seconds = asked(policy, memory, [1, 2, 3], [2, 1, 1], [60, 100, 0], cluster=TWO, clock=160.0, running=[2])
    assert seconds == 20.0
    asked(policy, memory, [1, 2, 3], [2, 1, 1], [60, 100, 20], cluster=TWO, clock=180.0, running=[3])
    assert queues(memory)[1] == 0


def test_without_promotion_nobody_is_asked_for_those_who_wait():
    policy = Tiresias(queue_limits=(100.0,), promote_after=None)
    memory = policy.new_memory()
    asked(policy, memory, [1], [2], [0], cluster=TWO)
    _, seconds = asked(policy, memory, [1, 2], [2, 2], [60, 0], cluster=TWO, clock=60.0, running=[1])
    assert seconds == 50.0
    _, seconds = asked(policy, memory, [1, 2], [2, 2], [60, 60], cluster=TWO, clock=120.0, running=[2])
    assert (queues(memory), seconds) == ({1: 1, 2: 1}, np.inf)


def test_published_limits_are_reckoned_from_seconds_and_passed_one_at_a_time():
    policy = Tiresias(queue_limits=(100.0, 300.0), promote_after=None, published_limits=True)
    memory = policy.new_memory()
    _, seconds = asked(policy, memory, [1], [4], [0])
    assert seconds == 25.0
    _, seconds = asked(policy, memory, [1], [4], [10], clock=10.0, running=[1])
    # 60 GPU seconds are left, which take 15 seconds; as published (100 - 10) / 4 rounded up
    assert seconds == 23.0
    asked(policy, memory, [1], [4], [90], clock=90.0, running=[1])
    assert queues(memory) == {1: 1}
    asked(policy, memory, [1], [4], [91], clock=91.0, running=[1])
    assert queues(memory) == {1: 2}
    exact = Tiresias(queue_limits=(100.0, 300.0))
    memory = exact.new_memory()
    asked(exact, memory, [1], [4], [0])
    asked(exact, memory, [1], [4], [90], clock=90.0, running=[1])
    assert queues(memory) == {1: 2}


def test_turns_are_kept_as_published_with_pollux():
    """Jobs that come late run while a gang does not fit; it comes first again as soon as it does."""
    for line, expected in (("entered", [1]), ("turn", [2])):
        policy = Tiresias(queue_limits=(57600.0,), promote_after=None, line=line)
        memory = policy.new_memory()
        assert asked(policy, memory, [0, 1, 2], [1, 2, 1], [0, 0, 0], cluster=TWO)[0] == [0, 2]
        runs, _ = asked(policy, memory, [1, 2], [2, 1], [0, 60], cluster=TWO, clock=60.0, running=[2])
        assert runs == expected


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"queue_limits": (200.0, 100.0)}, "queue_limits"),
        ({"queue_limits": (0.0,)}, "queue_limits"),
        ({"promote_after": 0.0}, "promote_after"),
    ],
)
def test_wrong_settings(settings, field):
    with pytest.raises(InputError, match=field):
        get_policy("tiresias", **settings)


def test_its_queues_survive_a_checkpoint():
    policy = Tiresias(queue_limits=(100.0,))
    memory, other = policy.new_memory(), policy.new_memory()
    asked(policy, memory, [1, 2], [2, 2], [0, 0], cluster=TWO)
    asked(policy, memory, [1, 2], [2, 2], [50, 0], cluster=TWO, clock=50.0, running=[1])
    other.restore(memory.state())
    assert decide(policy, memory, state_of([1, 2], [2, 2], TWO)) == decide(policy, other, state_of([1, 2], [2, 2], TWO))
