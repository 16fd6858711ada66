"""Jobs on a real Slurm cluster: lives, and faults in which nothing is lost and no job runs twice at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.commands import Slurm
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


async def test_nodes_have_a_type_and_gpus_and_say_why_they_are_not_up(jobs):
    adapter = await jobs.open(partition="gpus", accelerators={"k80": "tesla_k80"})
    jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=fan broken")
    nodes = await adapter.nodes()
    assert [(node.name, node.accelerator, node.gpus, node.up, node.drained) for node in nodes] == [
        ("k1", "tesla_k80", 4, True, False),
        ("p1", "p100", 2, True, True),
        ("v1", "v100", 2, True, False),
        ("v2", "v100", 2, True, False),
    ]
    assert nodes[1].reason == "drain: fan broken"
    with pytest.raises(AdapterError, match="partition none"):
        await jobs.open(partition="none")


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
    uneven = type(order)(**(vars(order) | {"epoch": 2, "gpus": {"v1": (0, 1), "v2": (0,)}}))
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
    assert [row["restart_cnt"] for row in jobs.slurm_jobs(job)] == [2], "one Slurm job for all leases"
    await adapter.stop(job, 3)
    await until(adapter, third, "ended")
    await jobs.start(4, ["k1"], job=job, gpus=4)
    states = {row["tres_per_node"]: row["job_state"] for row in jobs.slurm_jobs(job)}
    assert states == {"gres:gpu:1": "CANCELLED", "gres:gpu:4": "RUNNING"}
    await adapter.forget(job)
    await holds(lambda: not trainers_of(job), "its processes are gone")


async def test_one_process_a_gpu_on_two_nodes(jobs):
    adapter = await jobs.open()
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT"
    program = f"import os; os.write(1, (' '.join(os.environ[n] for n in '{names}'.split()) + '\\n').encode())"
    ranks = {"gpus": 2, "one_process_per_gpu": True}
    order = await jobs.start(1, ["v1", "v2"], trains=False, command=python(program), **ranks)
    assert (await until(adapter, order, "ended")).code == 0
    labels, told = zip(*sorted(line.split(": ") for line in jobs.log(order.job).splitlines()), strict=True)
    assert labels == ("rank 0", "rank 1", "rank 2", "rank 3")
    assert [line.split()[:4] for line in told] == [
        ["0", "0", "4", "2"],
        ["1", "1", "4", "2"],
        ["2", "0", "4", "2"],
        ["3", "1", "4", "2"],
    ]
    assert len({line.split()[4] for line in told}) == 1
    second = await jobs.start(2, ["p1", "v2"], trains=False, job=order.job, **ranks)
    await holds(lambda: all(jobs.trace(order.job, rank) for rank in range(4)), "all ranks make steps")
    assert {jobs.trace(order.job, rank)[0][1] for rank in range(4)} == {"p1", "v2"}
    await adapter.stop(order.job, 2)
    assert (await until(adapter, second, "ended")).code == 0
    assert (order.folder / "checkpoint" / "steps").exists()


async def test_a_job_that_waits_is_taken_back(jobs):
    adapter = await jobs.open()
    jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
    job = ""
    for epoch, end in enumerate((adapter.stop, adapter.kill), 1):
        order = await jobs.start(epoch, ["p1"], trains=False, job=job)
        job = order.job
        await until(adapter, order, "pending")
        await end(job, epoch)
        assert (await until(adapter, order, "ended")).code is None
    jobs.cluster.resume("p1")
    await asyncio.sleep(1.0)
    assert not jobs.trace(job)


async def test_jobs_run_on_while_slurmctld_is_killed(jobs):
    adapter = await jobs.open(command_seconds=3.0)
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


async def test_a_kill_reaches_a_job_without_slurmctld(jobs):
    adapter = await jobs.open(command_seconds=2.0)
    order = await jobs.start(ending="ignore")
    jobs.cluster.kill("slurmctld")
    with pytest.raises(AdapterError):
        await adapter.kill(order.job, 1)
    await holds((order.folder / runner.EXIT_FILE).exists, "it ends")
    jobs.cluster.start_controller()
    assert (await until(adapter, order, "ended")).signal == 9


async def test_a_submission_that_slurm_lost_is_given_again(jobs):
    adapter = await jobs.open()
    jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
    keep_state(jobs)
    lost = await jobs.start(1, ["p1"], trains=False, steps=3)
    await until(adapter, lost, "pending")
    (number,) = [row["job_id"] for row in jobs.slurm_jobs(lost.job)]
    # killed before it has saved its state: it was acknowledged, and is gone
    return_to_kept_state(jobs)
    assert await seen(adapter, lost.job) is None
    other = await jobs.start()
    assert [row["job_id"] for row in jobs.slurm_jobs(other.job)] == [number], "the number comes again"
    # orders for the one that was lost do not reach the other
    await adapter.stop(lost.job, 1)
    await adapter.kill(lost.job, 1)
    await adapter.start(lost)
    await until(adapter, lost, "pending")
    jobs.cluster.resume("p1")
    assert (await until(adapter, lost, "ended")).code == 0
    assert jobs.trace(lost.job) == [(1, "p1", step) for step in (1, 2, 3)]
    await adapter.forget(lost.job)
    assert (await seen(adapter, other.job)).phase == "running"


def keep_state(jobs):
    """What slurmctld knows now."""
    root = jobs.cluster.root
    jobs.cluster.kill("slurmctld", 15)
    shutil.copytree(root / "state", root / "kept")
    jobs.cluster.start_controller()


def return_to_kept_state(jobs):
    """As slurmctld does that is killed before it has saved what has happened since."""
    root = jobs.cluster.root
    jobs.cluster.kill("slurmctld")
    shutil.rmtree(root / "state")
    (root / "kept").rename(root / "state")
    jobs.cluster.start_controller()


@pytest.mark.parametrize("known", ["not at all", "as waiting"])
async def test_slurmctld_comes_back_with_a_state_in_which_the_job_did_not_run(jobs, known):
    adapter = await jobs.open()
    jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
    if known == "not at all":
        keep_state(jobs)
    first = await jobs.start(1, ["p1"], trains=False)
    await until(adapter, first, "pending")
    if known == "as waiting":
        keep_state(jobs)
    jobs.cluster.resume("p1")
    await holds(lambda: jobs.steps_of(first.job, 1) > 3, "it makes steps")
    return_to_kept_state(jobs)
    jobs.cluster.resume("p1")
    await until(adapter, first, "ended")
    await jobs.start(2, ["v1"], job=first.job)
    assert jobs.never_two(first.job)


async def test_a_node_is_lost_and_comes_back_with_the_old_copy(jobs):
    adapter = await jobs.open()
    first = await jobs.start(1, ["v1"], ending="ignore")
    # its slurmd is gone, the processes of the job are not
    jobs.cluster.kill("v1")
    jobs.cluster.update("NodeName=v1", "State=DOWN", "Reason=lost")
    end = await until(adapter, first, "ended")
    assert end.code is None
    assert "queued it again" in end.reason
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


async def test_a_copy_that_slurm_queued_again_by_itself_does_not_run(jobs):
    adapter = await jobs.open()
    order = await jobs.start(1, ["v1"])
    job = order.job
    (row,) = jobs.slurm_jobs(job)
    jobs.cluster.run("scontrol", "requeue", str(row["job_id"]))
    await until(adapter, order, "ended")
    steps = jobs.steps_of(job, 1)
    await holds(lambda: jobs.slurm_jobs(job)[0]["job_state"] == "PENDING", "it is in the queue")
    jobs.cluster.update(f"JobId={row['job_id']}", "StartTime=now", "ReqNodeList=v2")
    await holds(lambda: jobs.slurm_jobs(job)[0]["job_state"] == "FAILED", "it refuses")
    assert "Slurm has queued the job again" in jobs.log(job)
    assert jobs.steps_of(job, 1) == steps
    assert (await until(adapter, order, "ended")).code is None
    await jobs.start(2, ["v2"], job=job)


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


async def test_a_start_of_which_the_answer_is_lost_counts(jobs, monkeypatch):
    submit = Slurm.submit

    async def submit_and_lose_the_answer(*arguments):
        await submit(*arguments)
        raise AdapterError("sbatch has not answered")

    adapter = await jobs.open()
    monkeypatch.setattr(Slurm, "submit", submit_and_lose_the_answer)
    order = await jobs.start(trains=False, steps=3)
    assert (await until(adapter, order, "ended")).code == 0
    assert len(jobs.slurm_jobs(order.job)) == 1


async def test_a_start_that_stopped_half_way_is_given_again(jobs, monkeypatch):
    control = Slurm.control

    async def no_release(slurm, verb, number):
        if verb == "release":
            raise AdapterError("scontrol has not answered")
        await control(slurm, verb, number)

    adapter = await jobs.open()
    first = await jobs.start(1, ["v1"])
    await adapter.stop(first.job, 1)
    await until(adapter, first, "ended")
    with monkeypatch.context() as broken:
        broken.setattr(Slurm, "control", no_release)
        with pytest.raises(AdapterError):
            await jobs.start(2, ["v2"], job=first.job)
    assert await seen(adapter, first.job) is None
    await jobs.start(2, ["v2"], job=first.job)
    assert len(jobs.slurm_jobs(first.job)) == 1
