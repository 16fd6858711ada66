"""What Slurm's versions say, and what is made of it."""

from __future__ import annotations

import json

import pytest

from allocator.runtime.adapters.base import Node
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.adapter import row_of, see
from allocator.runtime.adapters.slurm.orders import Start
from allocator.runtime.adapters.slurm.records import SlurmJob, read_jobs, read_servers

NAME = "allocator-0b6f3c52-2"

# The same job in JSON of 22.05, and as later versions write numbers and states.
OLD = {
    "job_id": 7,
    "name": NAME,
    "user_id": 1000,
    "job_state": "PENDING",
    "state_reason": "JobHeldUser",
}
NEW = OLD | {"job_state": ["PENDING"]}


@pytest.mark.parametrize("row", [OLD, NEW])
def test_jobs_of_old_and_new_versions(row):
    # the name of a job of somebody else does not count
    others = [row | {"user_id": 1001}, row | {"name": "nothing of ours"}, row | {"name": None}]
    (job,) = read_jobs({"jobs": [row, *others]}, user=1000)
    assert job == SlurmJob(7, NAME, frozenset({"PENDING"}), "JobHeldUser")


def test_nodes_of_old_and_new_versions():
    old = {
        "name": "a1",
        "gres": "gpu:a100:4(S:0-1),shard:8",
        "state": "idle",
        "state_flags": [],
        "partitions": ["gpus"],
    }
    old |= {"cpus": 64, "real_memory": 512000, "reason": ""}
    rows = [
        old,
        old | {"name": "a0", "state": ["IDLE", "DRAIN"], "reason": "fan"},
        old | {"name": "a2", "state": "down", "state_flags": ["NOT_RESPONDING"]},
        old | {"name": "a3", "state": "DOWN+DRAIN"},
        old | {"name": "c0", "gres": ""},
        old | {"name": "o0", "partitions": ["others"]},
        old | {"name": "x0", "gres": "gpu:a100:2,gpu:v100:2"},
        old | {"name": "y0", "gres": "gpu:2", "state": "unknown"},
    ]
    servers = read_servers({"nodes": rows}, "gpus")
    assert [server.node for server in servers] == [
        # what runs there goes on to its end
        Node("a0", "a100", 4, True, "drain: fan", drained=True),
        Node("a1", "a100", 4),
        Node("a2", "a100", 4, False, "down not_responding"),
        Node("a3", "a100", 4, False, "down drain", drained=True),
        Node("x0", "a100", 4, False, "GPUs of several types on one node: gpu:a100:2,gpu:v100:2"),
        Node("y0", "gpu", 2),
    ]
    assert [server.heard_of for server in servers] == [True, True, True, True, True, False]
    assert (servers[1].cpus, servers[1].memory) == (64, 512000)


def job(state, name=NAME, **others):
    return SlurmJob(7, name, frozenset(state.split()), **others)


# the row, the epoch that has begun, the phase, and the exit status
CASES = {
    "it waits": (job("PENDING", reason="Resources"), 1, "pending", None),
    "it runs": (job("RUNNING"), 2, "running", None),
    "it is about to begin": (job("CONFIGURING"), 1, "running", None),
    "its processes are being ended": (job("CANCELLED COMPLETING"), 2, "running", None),
    "it was stopped": (job("CANCELLED"), 2, "ended", 137),
    "it was stopped before it began": (job("CANCELLED"), 1, "ended", None),
    "it waits a second time": (job("PENDING"), 2, "ended", None),
    "it failed": (job("FAILED"), 2, "ended", 1),
    "its node failed": (job("NODE_FAIL"), 2, "ended", None),
    "it was preempted": (job("PREEMPTED"), 2, "ended", None),
    "it took too long": (job("TIMEOUT"), 2, "ended", 137),
    "its copy was refused": (job("FAILED"), 1, "ended", None),
    "Slurm has lost it before it began": (None, 1, None, None),
    "Slurm has lost it": (None, 2, "ended", None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_seen(tmp_path, case):
    row, begun, phase, status = CASES[case]
    start = Start("0b6f3c52", 2, tmp_path)
    (tmp_path / runner.RUN_FILE).write_text(json.dumps({"epoch": begun}))
    one = see(start, row)
    assert (one and one.phase, one and one.code) == (phase, status)
    # the runner's word goes before all that Slurm says, but not where Slurm took the job from it
    for code, number in ((0, 0), (3, 0), (143, 15)):
        told = {"epoch": 2, "code": code, "signal": number, "ended_at": 9.0}
        (tmp_path / runner.EXIT_FILE).write_text(json.dumps(told))
        one = see(start, row)
        if code and row in (job("RUNNING"), job("CONFIGURING")):
            # perhaps Slurm has ended it, of which these rows are too old to tell
            assert one.phase == "running"
        else:
            expected = None if row is not None and row.taken else code
            assert (one.phase, one.signal, one.ended_at, one.code) == ("ended", number, 9.0, expected)


def test_while_a_start_is_being_given_it_is_not_lost(tmp_path):
    start = Start("0b6f3c52", 2, tmp_path)
    assert see(start, None, starting=True).phase == "pending"
    # jobs of another epoch are others
    assert row_of(start, [job("RUNNING", name="allocator-0b6f3c52-1")]) is None
    through, runs = job("FAILED"), job("RUNNING")
    assert row_of(start, [through, runs]) == runs


def test_a_job_whose_processes_are_being_ended_still_holds_its_gpus(tmp_path):
    start = Start("0b6f3c52", 2, tmp_path)
    (tmp_path / runner.RUN_FILE).write_text(json.dumps({"epoch": 2}))
    assert [see(start, job(state)).phase for state in ("FAILED COMPLETING", "FAILED")] == ["running", "ended"]
