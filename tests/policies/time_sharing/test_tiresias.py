"""Tiresias: queues by the GPU time that jobs have attained, and the Gittins index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from allocator import get_policy
from tests.policies.time_sharing.runs import Asked


def tiresias(gpus: int = 2, **settings: Any) -> Asked:
    return Asked("tiresias", gpus, gpus, **{"queue_limits": (100.0,)} | settings)


def queues(asked: Asked) -> dict[int, int]:
    return dict(zip(asked.memory.jobs, asked.memory.queue.tolist(), strict=True))


def test_new_jobs_run_in_order_of_arrival_until_the_first_reaches_its_limit() -> None:
    asked = tiresias(4, queue_limits=(100.0, 300.0))
    assert asked([1, 2, 3], [2, 2, 1], trained=[0, 0, 0]) == ([1, 2], 50.0)


def test_a_job_that_attained_its_limit_goes_behind_newer_ones() -> None:
    asked = tiresias(queue_limits=(100.0, 300.0))
    asked([1, 2], [2, 2], trained=[0, 0])
    assert asked([1, 2], [2, 2], 50.0, [1], trained=[50, 0]) == ([2], 50.0)
    assert queues(asked) == {1: 1, 2: 0}
    # the second one is let down too, and is behind the first now
    assert asked([1, 2], [2, 2], 100.0, [2], trained=[50, 50]) == ([1], 100.0)


def test_places_of_those_who_come_or_are_let_down_together() -> None:
    """Large gangs, then who arrived first; of those who arrive together labels decide."""
    asked = tiresias(4)
    asked([1, 2, 3], [1, 2, 1], trained=[0, 0, 0])
    elapsed = {"elapsed_seconds": [100.0, 200.0, 300.0]}
    asked([1, 2, 3], [1, 2, 1], 300.0, [1, 2, 3], trained=[100, 60, 100], **elapsed)
    assert queues(asked) == {1: 1, 2: 1, 3: 1}
    assert asked.places == [2, 3, 1]
    asked = tiresias(1)
    asked([3, 1, 2], [1, 1, 1], elapsed_seconds=[5.0, 5.0, 9.0])
    assert asked.places == [2, 1, 3]


def test_a_limit_that_was_planned_counts_as_reached_whatever_rounding_leaves() -> None:
    for attained, queue in ((100.0, 1), (100.0 * (1 - 1e-12), 1), (100.0 * (1 - 1e-6), 0)):
        asked = tiresias(1)
        asked([1], [1], 100.0, trained=[attained])
        assert queues(asked) == {1: queue}


def test_a_waiting_job_is_promoted() -> None:
    asked = tiresias(promote_after=2.0)
    asked([1], [2], trained=[0])
    asked([1, 2], [2, 2], 60.0, [1], trained=[60, 0])
    assert queues(asked) == {1: 1, 2: 0}
    assert asked([1, 2, 3], [2, 2, 2], 105.0, [2], trained=[60, 45, 0])[0] == [2]
    assert asked([1, 2, 3], [2, 2, 2], 110.0, [2], trained=[60, 50, 0]) == ([3], 50.0)
    # the first has waited for 120 seconds, twice what it trained
    assert asked([1, 2, 3], [2, 2, 2], 180.0, [3], trained=[60, 50, 49])[0] == [3]
    assert queues(asked) == {1: 0, 2: 1, 3: 0}
    assert asked.memory.spent.tolist() == [120.0, 0.0, 0.0]
    asked([1, 2, 3], [2, 2, 2], 181.0, [3], trained=[60, 50, 50])
    assert queues(asked) == {1: 0, 2: 1, 3: 1}


def test_a_gang_that_waits_is_promoted_after_a_multiple_of_its_seconds() -> None:
    """Two seconds of waiting for one of training, on two GPUs: not for one GPU second."""
    asked = tiresias(promote_after=2.0)
    asked([1], [2], trained=[0])
    asked([1, 2], [2, 1], 60.0, [1], trained=[60, 0])
    # of 120 seconds the first has waited for 20; the second falls only at 100
    assert asked([1, 2], [2, 1], 80.0, [2], trained=[60, 20]) == ([2], 80.0)
    assert asked([1, 2, 3], [2, 1, 1], 160.0, [2], trained=[60, 100, 0])[1] == 20.0
    asked([1, 2, 3], [2, 1, 1], 180.0, [3], trained=[60, 100, 20])
    assert queues(asked)[1] == 0


def test_waiting_counts_from_the_first_start_on() -> None:
    """The second job waits for 50 s before it starts, and for 30 s after it has stopped; a new one has not waited."""
    asked = tiresias()
    for clock, seconds, running in ((0, [0, 0], []), (50, [50, 0], [1]), (100, [50, 50], [2]), (130, [80, 50], [1])):
        asked([1, 2], [2, 2], clock, running, trained=seconds)
    assert asked.memory.waited.tolist() == [50.0, 30.0]
    asked([1, 2, 3], [2, 2, 2], 130.0, trained=[80, 50, 0])
    assert asked.memory.waited.tolist() == [50.0, 30.0, 0.0]


def test_lines_by_turn_by_queue_and_by_arrival() -> None:
    """Jobs that come late run while a gang does not fit; as published with Pollux it comes first as soon as it does."""
    for system, expected in (("pollux", [1]), ("default", [2]), ("lucid", [1])):
        asked = tiresias(queue_limits=(57600.0,), promote_after=None, system=system)
        assert asked([0, 1, 2], [1, 2, 1], trained=[0, 0, 0])[0] == [0, 2]
        assert asked([1, 2], [2, 1], 60.0, [2], trained=[0, 60])[0] == expected
    # of those who arrived together who runs goes on
    asked = tiresias(1, system="lucid")
    assert asked([1, 2], [1, 1], 60.0, [2], elapsed_seconds=[9.0, 9.0])[0] == [2]


@examples(max_examples=30)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 60), st.lists(st.integers(0, 60), min_size=1)
)
def test_the_gittins_index_by_its_definition(samples: list[int], quantum: int, attained: list[int]) -> None:
    policy = get_policy("tiresias_gittins", samples=tuple(map(float, samples)), quantum=float(quantum))
    found = policy.index(np.array(attained, dtype=np.float64))
    for at, index in zip(attained, found.tolist(), strict=True):
        left = [sample - at for sample in samples if sample > at]
        ends = sum(more <= quantum for more in left)
        expected = ends / sum(min(more, quantum) for more in left) if left else 0.0
        assert index == pytest.approx(expected, rel=1e-12)
