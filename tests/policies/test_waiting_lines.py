"""Lines of jobs that are not preempted: schedules computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, get_policy, simulate
from allocator.checkpoint.state_file import Part
from allocator.presets import preset
from allocator.protocol import Assignment
from throughputs import ThroughputMatrix, Trace

NO_COSTS = preset("default").replace(restart_penalty_seconds=0.0, restart_penalty_by_gpus=())


def times(jobs: str, policy: str, cluster: str = "v:4", **more: Any) -> str:
    """Start and end of jobs (arrival, GPUs, seconds, and partition); `more` are settings, and predicted seconds."""
    rows = [(*job.split(), "")[:4] for job in jobs.split("; ")]
    arrival, gpus, seconds = (list(map(float, column)) for column in list(zip(*rows, strict=True))[:3])
    known = {"predicted_seconds": more.pop("predicted_seconds")} if "predicted_seconds" in more else {}
    if any(row[3] for row in rows):
        known["partition"] = [row[3].strip("-") for row in rows]
    trace = Trace(["job"] * len(rows), gpus, seconds, arrival, duration=seconds, **known)
    made = preset(more.pop("system", "default")).make_policy(policy, Cluster.parse(cluster), **more)
    table = simulate(trace, cluster, made, preset=NO_COSTS).jobs
    return " ".join(f"{a:g}-{b:g}" for a, b in zip(table["start_time"], table["completion_time"], strict=True))


SCHEDULES = """
# four GPUs: the second job needs all of them and waits for the first, which ends at 10
T | fcfs | | 0-10 10-15 15-21 15-24 15-19
# only the third job ends before the second one could start; the others would delay it
T | fcfs | backfill="easy" | 0-10 10-15 2-8 15-24 15-19
0 2 10; 1 4 5; 2 1 8 | fcfs | backfill="easy" | 0-10 10-15 2-10
# with three GPUs promised at 10 one is over, on which the fourth job may run as long as it likes
0 2 10; 1 3 5; 2 1 6; 3 1 9; 4 2 4 | fcfs | backfill="easy" | 0-10 10-15 2-8 3-12 15-19
# the third is expected to run into the promise, the fourth not: it runs past it, and the second has to wait
T | fcfs | backfill="easy", predicted_seconds=[10.0, 5.0, 60.0, 2.0, 4.0] | 0-10 12-17 17-23 3-12 17-21
T | fcfs | backfill="skip" | 0-10 14-19 2-8 3-12 10-14
# the shortest; and nobody is preempted
0 4 10; 1 1 7; 2 4 3; 3 1 5 | sjf | | 0-10 13-20 10-13 13-18
0 4 100; 1 1 1 | sjf | | 0-100 100-101
# 7 GPU seconds before 12
0 4 10; 1 1 7; 2 4 3 | qssf | | 0-10 10-17 17-20
0 4 10; 1 1 7; 2 4 3 | qssf | predicted_seconds=[10.0, 50.0, 3.0] | 0-10 13-20 10-13
# a burst is first ordered by GPUs; who still waits after it stands by its predicted GPU time
0 2 1; 0 4 2; 0 1 90 | qssf | | 0-1 1-3 3-93
0 2 1; 0 4 2; 0 1 90 | qssf | system="lucid" | 0-1 90-92 0-90
0 4 10; 1 1 60; 1 2 1; 1 4 2 | qssf | system="lucid" | 0-10 13-73 10-11 11-13
# lines of virtual clusters do not hold each other up
0 1 10 a; 1 2 5 a; 2 1 1 a; 3 1 1 b | fcfs | cluster="a:2,b:2" | 0-10 10-15 15-16 3-4
# a gang that waits for two pools lets nobody pass there, nor does who may use two pools pass where a gang waits
0 1 10 a; 0 1 20 b; 1 2 5 -; 2 1 1 a; 2 1 1 b | fcfs | cluster="a:2,b:2" | 0-10 0-20 10-15 15-16 10-11
0 1 10 a; 0 1 20 b; 1 2 5 a; 2 1 1 - | fcfs | cluster="a:2,b:1" | 0-10 0-20 10-15 15-16
# the same by time limits; without reservations whoever fits starts
T | slurm | | 0-10 10-15 2-8 15-24 15-19
T | slurm | reservations=0 | 0-10 14-19 2-8 3-12 10-14
# the fourth runs beyond its limit, and is expected to end within a minute: who needs no longer may start
T | slurm | predicted_seconds=[10.0, 5.0, 60.0, 2.0, 4.0] | 0-10 16-21 10-16 3-12 10-14
T | slurm | predicted_seconds=[10.0, 5.0, 99.0, 2.0, 99.0] | 0-10 12-17 17-23 3-12 17-21
# nobody of less weight is there to preempt, and promises are kept
T | slurm | preempts=True | 0-10 10-15 2-8 15-24 15-19
# of two pools the promise is on the one that is free first
0 1 10 a; 0 1 30 b; 1 2 5 -; 2 1 15 a; 2 1 15 b | slurm | cluster="a:2,b:2" | 0-10 0-30 10-15 15-30 2-17
# the last does not delay the first gang that waits, but the second one
0 3 10; 1 3 5; 2 4 10; 3 1 30 | slurm | | 0-10 10-15 33-43 3-33
0 3 10; 1 3 5; 2 4 10; 3 1 30 | slurm | reservations=2 | 0-10 10-15 15-25 25-55
# the wide one first, or the narrow one
0 4 10; 1 1 5; 2 4 3 | slurm | size_weight=1.0 | 0-10 13-18 10-13
0 4 10; 1 4 5; 2 1 3 | slurm | size_weight=1.0, favor_small=True | 0-10 13-18 10-13
# partitions do not hold each other up
0 1 10 a; 1 2 5 a; 2 1 1 a; 3 1 1 b | slurm | cluster="a:2,b:2" | 0-10 10-15 2-3 3-4
"""
TEXTBOOK = "0 2 10; 1 4 5; 2 1 6; 3 1 9; 4 2 4"


@pytest.mark.parametrize("line", [line for line in SCHEDULES.strip().splitlines() if line[0] != "#"])
def test_schedules_by_hand(line: str) -> None:
    jobs, policy, settings, expected = (part.strip() for part in line.split("|"))
    assert times(jobs.replace("T", TEXTBOOK), policy, **eval(f"dict({settings})")) == expected


def test_who_runs_already_does_not_start_again() -> None:
    """Of a state that was put together, too, it is the others that stand in line."""
    matrix = ThroughputMatrix(np.ones((3, 1)), jobs=["a", "b", "c"], accelerators=["v"])
    running = Assignment.of([0], [0], [1])
    state = ClusterState(Cluster({"v": 2}), matrix, steps_remaining=[9.0, 5.0, 7.0], running=running)
    policy = get_policy("fcfs")
    assert policy.plan(state, policy.new_memory()).steps[0].assignment.jobs.tolist() == [0, 1]


def state_of(gpus: list[int], running: Any = None) -> ClusterState:
    matrix = {"v": np.ones(len(gpus)), "scale_factor": gpus}
    return ClusterState(Cluster({"v": 4}), matrix, running=running)


@pytest.mark.parametrize(
    ("system", "name", "settings"), [("lucid", "qssf", {}), ("default", "fcfs", {"backfill": "easy"})]
)
def test_the_line_is_the_same_after_a_checkpoint(system: str, name: str, settings: dict[str, Any]) -> None:
    policy = preset(system).make_policy(name, Cluster({"v": 4}), **settings)
    memory, again = policy.new_memory(), policy.new_memory()
    policy.plan(state_of([2, 4, 3, 1]), memory)
    again.restore(Part.of(memory.state()).tree())
    assert {**vars(again), "free": None} == {**vars(memory), "free": None}
    assert memory.since or name == "qssf"


def test_who_may_use_other_pools_than_before_looks_again() -> None:
    policy = get_policy("fcfs")
    memory = policy.new_memory()
    for version, rate, runs in ((0, 0.0, [0]), (1, 1.0, [0, 1])):
        matrix = ThroughputMatrix([[1.0, 0.0], [1.0, rate]], [0, 1], ["a", "b"])
        running = Assignment.of([0], [0], [1])
        state = ClusterState(Cluster.parse("a:1,b:1"), matrix, running=running, rates_version=version)
        assert policy.plan(state, memory).steps[0].assignment.jobs.tolist() == runs


def test_who_waits_is_told_why() -> None:
    policy = get_policy("fcfs")
    told = policy.hindrance(state_of([2, 4, 1]), 2)
    assert told.reason == "queue_blocked"
    assert "place 3" in told.text
    assert "job 1 before it needs 4 GPUs" in told.text
    assert "1 more before it finds no room either" in policy.hindrance(state_of([2, 4, 4, 1]), 3).text
    assert policy.hindrance(state_of([4, 4]), 1) is not None
    assert replace(policy, backfill="skip").hindrance(state_of([4, 4]), 1).reason == "ranked_behind"


def test_starts_are_remembered_of_those_who_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = get_policy("fcfs", backfill="easy")
    memory = policy.new_memory()
    monkeypatch.setattr(type(policy), "new_memory", lambda _: memory)
    trace = Trace(["job"] * 9, [1] * 9, [10.0] * 9, [20.0 * i for i in range(9)])
    simulate(trace, "v:1", policy, [[1.0]] * 9, preset=NO_COSTS)
    assert len(memory.since) <= 1
