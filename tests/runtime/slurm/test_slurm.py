"""Jobs on a real Slurm cluster: lives, and faults in which nothing is lost and no job runs twice at once."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError, Placed
from tests.runtime.contract import AdapterContract, seen, until
from tests.runtime.slurm.jobs import Jobs, holds
from tests.runtime.test_contract import WithCommands

pytestmark = pytest.mark.exhaustive


class OnSlurm(WithCommands, Jobs):
    """The stage of the contract."""

    def order(self, kind, job="", epoch=1):
        order = super().order(epoch, job=job)
        return super().order(epoch, job=order.job, command=self.command(kind, order.folder))

    def folder_of(self, job):
        return self.folder / job


class TestSlurm(AdapterContract):
    @pytest.fixture
    def stage(self, jobs):
        return OnSlurm(jobs.cluster, jobs.folder / "stage")


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


REPORT = """
import os, sys
devices = os.environ["CUDA_VISIBLE_DEVICES"]
print(os.environ["SLURMD_NODENAME"], devices, os.getcwd(), os.environ["COLOUR"], sys.argv[1:])
print(os.environ["ALLOCATOR_JOB_ID"], os.environ["ALLOCATOR_LEASE_EPOCH"], os.environ["ALLOCATOR_CHECKPOINT_DIR"])
"""


async def test_jobs_run_where_they_are_wanted_and_how_they_ended_is_told(jobs):
    adapter = await jobs.open()
    report = python(REPORT, "a b", "$HOME;`id`")
    order = await jobs.start(1, ["v2"], trains=False, gpus=2, command=report, environment={"COLOUR": "dark red"})
    failing = {
        (3, 0): python("import sys; sys.exit(3)"),
        (128 + 11, 11): python("import os; os.kill(os.getpid(), 11)"),
        (126, 0): ["/etc/passwd"],
    }
    others = [await jobs.start(1, ["k1"], trains=False, command=command) for command in failing.values()]
    end = await until(adapter, order, "ended")
    assert (end.code, end.signal, end.ended_at > 0) == (0, 0, True)
    first, second = jobs.log(order.job).splitlines()
    assert first == f"v2 0,1 {jobs.folder} dark red ['a b', '$HOME;`id`']"
    assert second == f"{order.job} 1 {order.folder / 'checkpoint'}"
    assert all(path.stat().st_mode & 0o077 == 0 for path in order.folder.iterdir())
    ends = [await until(adapter, other, "ended") for other in others]
    assert [(end.code, end.signal) for end in ends] == list(failing)
    uneven = replace(order, epoch=2, placed=Placed("v100", {"v1": (0, 1), "v2": (0,)}))
    with pytest.raises(AdapterError, match="the same number of GPUs"):
        await adapter.start(uneven)


def trainers_of(job):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            trains = b"trainer.py" in (folder / "cmdline").read_bytes()
            if trains and f"ALLOCATOR_JOB_ID={job}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def test_a_lease_ends_and_the_next_is_on_another_type_and_of_another_size(jobs):
    adapter = await jobs.open()
    first = await jobs.start(1, ["v1"])
    job = first.job
    await adapter.stop(job, 1)
    assert (await until(adapter, first, "ended")).code == 0
    second = await jobs.start(2, ["p1"], job=job)
    with pytest.raises(AdapterError, match="epoch 1 is stale"):
        await adapter.start(first)
    # a trainer that knows of leases exits by itself: Slurm takes the job for completed
    os.kill(trainers_of(job)[0], 15)
    assert (await until(adapter, second, "ended")).code == 0
    third = await jobs.start(3, ["k1"], job=job)
    trace = jobs.trace(job)
    assert {line[:2] for line in trace} == {(1, "v1"), (2, "p1"), (3, "k1")}
    assert [line[2] for line in trace] == list(range(1, len(trace) + 1)), "no step is made twice"
    await adapter.stop(job, 3)
    await until(adapter, third, "ended")
    await jobs.start(4, ["k1"], job=job, gpus=4)
    states = [row["job_state"] for row in sorted(jobs.slurm_jobs(job), key=lambda row: row["name"])]
    assert states == ["CANCELLED", "COMPLETED", "CANCELLED", "RUNNING"], "one Slurm job for each start"
    await adapter.forget(job)
    await holds(lambda: not trainers_of(job), "its processes are gone")


async def test_jobs_run_on_while_slurmctld_is_killed(jobs, monkeypatch):
    monkeypatch.setattr("allocator.runtime.adapters.slurm.commands.COMMAND_SECONDS", 3.0)
    adapter = await jobs.open()
    order = await jobs.start()
    # a job that it has not saved as running it would end at its return
    state = jobs.cluster.root / "state" / "job_state"
    known = state.stat().st_mtime_ns if state.exists() else 0
    (row,) = jobs.slurm_jobs(order.job)
    jobs.cluster.update(f"JobId={row['job_id']}", "AdminComment=to be saved")
    await holds(lambda: state.exists() and state.stat().st_mtime_ns > known, "slurmctld has saved its state")
    jobs.cluster.kill("slurmctld")
    other = jobs.order(nodes=["v2"])
    for call in (adapter.observe(), adapter.start(other)):
        with pytest.raises(AdapterError):
            await call
    steps = len(jobs.trace(order.job))
    await holds(lambda: len(jobs.trace(order.job)) > steps + 5, "it makes steps without slurmctld")
    jobs.cluster.start_controller(register=False)

    # a scheduler that was killed as well finds the job again
    adopter = await jobs.open()
    assert (await until(adopter, order, "running")).epoch == 1
    assert await seen(adopter, other.job) is None
    await adopter.start(order)
    await adopter.stop(order.job, 1)
    assert (await until(adopter, order, "ended")).code == 0
    assert [line[2] for line in jobs.trace(order.job)] == list(range(1, len(jobs.trace(order.job)) + 1))


async def test_a_node_is_lost_and_comes_back_with_the_old_copy(jobs):
    adapter = await jobs.open()
    first = await jobs.start(1, ["v1"], ending="ignore")
    # its slurmd is gone, the processes of the job are not
    jobs.cluster.kill("v1")
    jobs.cluster.update("NodeName=v1", "State=DOWN", "Reason=lost")
    end = await until(adapter, first, "ended")
    assert end.code is None
    assert "NODE_FAIL" in end.reason
    assert not {node.name: node for node in await adapter.nodes()}["v1"].up
    steps = jobs.steps_of(first.job, 1)
    await holds(lambda: jobs.steps_of(first.job, 1) > steps, "the old copy lives")
    second = await jobs.start(2, ["p1"], job=first.job)
    assert jobs.never_two(first.job)
    jobs.cluster.start_node("v1")
    jobs.cluster.resume("v1")
    await asyncio.sleep(1.5)
    assert jobs.never_two(first.job)
    assert (await until(adapter, second, "running")).epoch == 2


async def test_a_second_slurm_job_of_the_same_start_does_not_run(jobs):
    adapter = await jobs.open()
    order = await jobs.start(1, ["v1"])
    job, name = order.job, f"allocator-{order.job}-1"
    # as of an order that was given again, though the first had arrived
    script = str(order.folder / "runner.py")
    words = [f"--job-name={name}", f"--chdir={order.folder}", "--gres=gpu:1", "--output=second", script]
    second = int(jobs.cluster.run("sbatch", "--parsable", *words))
    await adapter.stop(job, 1)
    assert (await until(adapter, order, "ended")).code == 0
    await jobs.start(2, ["v2"], job=job)
    assert jobs.never_two(job)
    states = {row["job_id"]: row["job_state"] for row in jobs.slurm_jobs(job)}
    assert states[second] in ("CANCELLED", "FAILED")


async def test_a_stale_epoch_is_refused_on_the_node(jobs):
    adapter = await jobs.open()
    order = await jobs.start(4, trains=False, lease=5)
    assert (await until(adapter, order, "ended")).code is None
    assert "epoch 4 is stale: the lease is of epoch 5" in jobs.log(order.job)
    assert not jobs.trace(order.job)
    late = await jobs.start(6, job=order.job)
    write_file(order.folder / LEASE_FILE, Grant(order.job, 7))
    await until(adapter, late, "ended")
    assert "epoch 6 was killed: the lease is of a newer one" in jobs.log(order.job)
