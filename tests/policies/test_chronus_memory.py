"""What Chronus does with its table of jobs, step by step on tables made by hand; one unit of time is a minute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.memory import ACCEPTED, BEST_EFFORT, UNACCEPTED, ChronusMemory
from allocator.policies.chronus.policy import Chronus
from allocator.protocol import ClusterState

FAR = 1000.0


def memory_of(*jobs: dict[str, Any], capacity: int = 1) -> ChronusMemory:
    """Rows in order: all wait but those with `runs`; jobs last `units`, which is what they are believed to."""
    rows = []
    for job in jobs:
        units = job.get("units", 100.0)
        known = {"gpus": 1, "kind": BEST_EFFORT, "duration": units, "known_duration": units, "estimate": units}
        rows.append(known | {"due": FAR, "needed": 0} | job)
    memory = ChronusMemory(capacity=capacity)
    labels = [f"job {at}" for at in range(len(jobs))]
    memory.recall(ClusterState("v100:1", {"v100": dict.fromkeys(labels, 1.0)}))
    for at, row in enumerate(rows):
        for name in row.keys() - {"runs", "units"}:
            getattr(memory, name)[at] = row[name]
    memory.options = [(np.array([row["due"]]), np.array([10.0])) for row in rows]
    memory.waiting = [*range(len(jobs))]
    memory.start([at for at, row in enumerate(rows) if row.get("runs")], 0)
    return memory


def test_times_are_whole_units() -> None:
    clock = LeaseClock(60.0, tick=1, slot=6, lease=20)
    assert [clock.next_slot(now) for now in (0, 11, 17.5, 18, 20)] == [6, 12, 18, 20, 24]
    assert [clock.running_lease(now) for now in (0, 19.9, 20, 40)] == [0, 0, 1, 2]
    assert [clock.tick_at(seconds) for seconds in (60.0, 90.0, math.nextafter(60.0, 0.0), 60.0 + 1e-7)] == [
        1, None, None, 1,
    ]  # fmt: skip
    # what rounds to a tick has not come before it
    assert [clock.last_tick(seconds) for seconds in (60.0, 119.0, math.nextafter(60.0, 0.0))] == [1, 1, 0]


def test_leases_too_many_are_taken_off_the_early_end() -> None:
    memory = memory_of({"units": 60, "needed": 3, "ran": 25.0, "kind": ACCEPTED})
    memory.leases[0] = np.array([3, 5, 8])
    Chronus().count_needed(memory, [0])
    assert memory.needed.tolist() == [2]
    assert memory.leases[0].tolist() == [5, 8]


@pytest.mark.parametrize(("unaccepted", "lease_begun", "runs"), [(0, 2, True), (1, 2, False), (1, 1, True)], ids=str)
def test_gpus_are_kept_free_for_those_who_were_turned_away_since_the_last_lease(unaccepted, lease_begun, runs) -> None:
    """One lease is needed of two; after a lease in which there was nobody, nobody was turned away."""
    memory = memory_of({"units": 15, "needed": 1, "kind": ACCEPTED, "planned": True, "granted": 0, "due": 100.0})
    memory.unaccepted, memory.lease_begun = unaccepted, lease_begun
    Chronus(objective="adaptive").begin_lease(memory, 60)
    assert (memory.running == [0]) is runs
    assert memory.leased.tolist() == [runs]
    assert memory.needed.tolist() == [1 - runs]


def test_who_has_run_for_its_estimate_loses_its_promise_but_not_its_lease() -> None:
    job = {"units": 10, "kind": ACCEPTED, "planned": True, "runs": True}
    memory = memory_of(job | {"leased": True}, job)
    memory.leases = [np.array([3]), np.array([3])]
    Chronus().look_at_running(memory, 10)
    assert memory.overrun.tolist() == [False, True]
    assert memory.planned.tolist() == [True, False]
    assert memory.kind.tolist() == [ACCEPTED, UNACCEPTED]
    assert [plan is None for plan in memory.leases] == [False, True]
    Chronus().look_at_running(memory, 20)
    assert memory.overrun.all()
    assert memory.ran.tolist() == [20.0, 20.0]


def test_short_jobs_are_guaranteed_their_gpus_by_gpu_time() -> None:
    """Of four GPUs: one for 20 minutes, the whole lease; four for 5.5, which do not fit beside it; two for 12."""
    jobs = [{"gpus": gpus, "units": units, "kind": UNACCEPTED} for gpus, units in ((4, 5.5), (1, 20.0), (2, 12.0))]
    memory = memory_of(
        *jobs,
        {"gpus": 1, "units": 20.5, "kind": UNACCEPTED},
        {"gpus": 2, "units": 13.0, "kind": UNACCEPTED},
        capacity=4,
    )
    Chronus(forced_guarantee=True).serve_waiting(memory, 0)
    assert memory.forced.tolist() == [False, True, True, False, False]
    assert memory.running == [1, 2, 3]


def test_those_with_most_gpu_time_left_give_way_and_no_more_than_needed() -> None:
    best, new = {"runs": True, "kind": BEST_EFFORT}, {"units": 10.0, "kind": UNACCEPTED}
    # 120 GPU minutes and 100
    memory = memory_of(best | {"gpus": 2, "units": 60}, best | {"units": 100}, new, capacity=3)
    Chronus(forced_guarantee=True).serve_waiting(memory, 0)
    assert memory.running == [1, 2]
    assert memory.waiting == [0]


def test_who_stops_has_no_lease_any_more() -> None:
    memory = memory_of({"runs": True, "leased": True}, {"runs": True, "leased": True})
    memory.stop([0], 7)
    assert (memory.running, memory.waiting) == ([1], [0])
    assert memory.leased.tolist() == [False, True]
    assert memory.seen.tolist() == [7.0, 0.0]


@pytest.mark.parametrize(
    ("gpus", "settings", "units"),
    [
        # 85 (1 + 0.5 / 20) 1.1 = 95.8
        (1, {}, 95),
        # 85 (1 + 2 / 20) 1.1 = 102.9
        (8, {}, 102),
        # slots are of no consequence; 85 (1 + 0.5 / 40) 1.1 = 94.7
        (1, {"slot_seconds": 600.0, "lease_seconds": 2400.0}, 94),
        (1, {"margin": 1.0}, 87),
        (8, {"start_cost": 0.0, "margin": 1.0}, 85),
    ],
)
def test_estimates_have_the_cost_of_one_start_in_each_lease_and_a_margin(gpus, settings, units) -> None:
    assert Chronus(**settings).estimates(np.array([85.0]), np.array([gpus])).tolist() == [units]
