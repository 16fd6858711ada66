"""What Slurm's versions say, and what is made of it."""

from __future__ import annotations

import json

import pytest

from allocator.runtime.adapters.base import Node
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.observation import row_of, see
from allocator.runtime.adapters.slurm.orders import Mark, Start
from allocator.runtime.adapters.slurm.records import SlurmJob, read_jobs, read_servers

MARK = Mark("0b6f3c52", 2, 1, 1, 1)

# The same job in JSON of 22.05, and as later versions write numbers and states.
OLD = {
    "job_id": 7,
    "comment": str(MARK),
    "user_id": 1000,
    "job_state": "PENDING",
    "state_reason": "JobHeldUser",
    "priority": 0,
    "restart_cnt": 2,
    "exit_code": 3 << 8,
    "nodes": "",
    "submit_time": 1795340952,
}
NEW = OLD | {
    "job_state": ["PENDING"],
    "priority": {"set": True, "infinite": False, "number": 0},
    "exit_code": {
        "status": ["ERROR"],
        "return_code": {"set": True, "infinite": False, "number": 3},
        "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
    },
    "submit_time": {"set": True, "infinite": False, "number": 1795340952},
}


@pytest.mark.parametrize("row", [OLD, NEW])
def test_jobs_of_old_and_new_versions(row):
    states = frozenset({"PENDING"})
    (job,) = read_jobs({"jobs": [row]}, user=1000)
    assert job == SlurmJob(7, MARK, states, "JobHeldUser", True, 2, 3, 0, "", 1795340952)


def test_a_mark_in_a_job_of_somebody_else_does_not_count():
    rows = [OLD, OLD | {"user_id": 1001}, OLD | {"comment": "nothing of ours"}, OLD | {"comment": None}]
    assert len(read_jobs({"jobs": rows}, user=1000)) == 1


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
    servers = read_servers({"nodes": rows}, "gpus", {"a100": "a100_40gb"})
    assert [server.node for server in servers] == [
        # what runs there goes on to its end
        Node("a0", "a100_40gb", 4, True, "drain: fan", drained=True),
        Node("a1", "a100_40gb", 4),
        Node("a2", "a100_40gb", 4, False, "down not_responding"),
        Node("a3", "a100_40gb", 4, False, "down drain", drained=True),
        Node("x0", "a100_40gb", 4, False, "GPUs of several types on one node: gpu:a100:2,gpu:v100:2"),
        Node("y0", "gpu", 2),
    ]
    assert [server.heard_of for server in servers] == [True, True, True, True, True, False]
    assert (servers[1].cpus, servers[1].memory) == (64, 512000)


def job(state, **others):
    return SlurmJob(7, others.pop("mark", MARK), frozenset(state.split()), restarts=others.pop("restarts", 1), **others)


CASES = {
    "it waits": (job("PENDING", reason="Resources"), 1, "pending"),
    "it runs": (job("RUNNING"), 2, "running"),
    "it is about to begin": (job("CONFIGURING"), 1, "running"),
    "its processes are being ended": (job("COMPLETING", restarts=2, held=True), 2, "running"),
    "it was stopped": (job("PENDING", restarts=2, held=True), 2, "ended"),
    "its node was lost": (job("PENDING", restarts=2), 2, "ended"),
    "a refused copy of it runs": (job("RUNNING", restarts=2), 2, "ended"),
    "it failed": (job("FAILED", exit_status=3), 2, "ended"),
    "its node failed": (job("NODE_FAIL"), 2, "ended"),
    "it was preempted": (job("PREEMPTED"), 2, "ended"),
    "it took too long": (job("TIMEOUT"), 2, "ended"),
    "its copy was refused": (job("FAILED", exit_status=runner.REFUSED), 1, "ended"),
    "Slurm has lost it before it began": (None, 1, None),
    "Slurm has lost it": (None, 2, "ended"),
    "it was steered and not released": (job("PENDING", held=True), 1, None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_seen(tmp_path, case):
    row, begun, phase = CASES[case]
    (tmp_path / runner.RUN_FILE).write_text(json.dumps({"epoch": begun}))
    one = see(Start(MARK, tmp_path), row)
    assert (one and one.phase) == phase
    if one is not None and phase == "ended":
        assert one.code == {"it failed": 3, "it took too long": 137}.get(case)
    # The runner's word goes before all that Slurm says, but not where Slurm took the job from it.
    taken = case in ("its node was lost", "a refused copy of it runs", "its node failed", "it was preempted")
    for code, number in ((0, 0), (3, 0), (143, 15)):
        (tmp_path / runner.EXIT_FILE).write_text(
            json.dumps({"epoch": 2, "code": code, "signal": number, "ended_at": 9.0})
        )
        one = see(Start(MARK, tmp_path), row)
        assert one is not None
        if code and row is not None and row.restarts == 1 and row.holds_gpus:
            # perhaps it was ended to be queued again, of which these rows are too old to tell
            assert one.phase == "running"
            continue
        requeued = row is not None and row.restarts == 2
        assert (one.phase, one.signal, one.ended_at) == ("ended", number, 9.0)
        assert one.code == (None if taken or (code and requeued) else code)


def test_while_a_start_is_being_given_it_is_not_lost(tmp_path):
    for row in (None, job("PENDING", held=True)):
        one = see(Start(MARK, tmp_path), row, starting=True)
        assert one is not None
        assert one.phase == "pending"


def test_jobs_of_another_epoch_or_size_are_others(tmp_path):
    start = Start(MARK, tmp_path)
    others = [job("RUNNING", mark=Mark("0b6f3c52", *rest)) for rest in ((1, 1, 1, 1), (2, 0, 1, 1), (2, 1, 1, 2))]
    assert row_of(start, others) is None
    through, runs = job("FAILED"), job("RUNNING")
    assert row_of(start, [*others, through, runs]) == runs
