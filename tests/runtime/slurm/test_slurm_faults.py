"""What goes wrong on a real Slurm cluster: nothing is lost, and no job runs twice at once."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.commands import Slurm
from tests.runtime.slurm.jobs import holds, run, seen, until


def test_jobs_run_on_while_slurmctld_is_killed(jobs):
    async def work():
        adapter = jobs.adapter(command_seconds=3.0)
        await adapter.open()
        order = jobs.order()
        await adapter.start(order)
        await holds(lambda: jobs.trace(order.job), "it makes steps")
        # A job that it has not saved as running it would end at its return.
        state = jobs.cluster.root / "state" / "job_state"
        known = time.time()
        (row,) = jobs.slurm_jobs(order.job)
        jobs.cluster.update(f"JobId={row['job_id']}", "AdminComment=to be saved")
        await holds(lambda: state.stat().st_mtime > known, "slurmctld has saved its state")
        jobs.cluster.kill("slurmctld")
        with pytest.raises(AdapterError):
            await adapter.observe()
        other = jobs.order(nodes=["v2"])
        with pytest.raises(AdapterError):
            await adapter.start(other)
        steps = len(jobs.trace(order.job))
        await holds(lambda: len(jobs.trace(order.job)) > steps + 5, "it makes steps without slurmctld")
        jobs.cluster.start_controller(register=False)

        # A scheduler that was killed as well finds the job again.
        adopter = jobs.adapter()
        await adopter.open()
        assert (await until(adopter, order, "running")).epoch == 1
        assert await seen(adopter, other.job) is None
        await adopter.start(order)
        await adopter.stop(order.job, 1)
        assert (await until(adopter, order, "ended")).code == 0
        assert [line[2] for line in jobs.trace(order.job)] == list(range(1, len(jobs.trace(order.job)) + 1))

    run(work())


def test_a_kill_reaches_a_job_without_slurmctld(jobs):
    async def work():
        adapter = jobs.adapter(command_seconds=2.0)
        await adapter.open()
        order = jobs.order(ending="ignore")
        await adapter.start(order)
        await holds(lambda: jobs.trace(order.job), "it makes steps")
        jobs.cluster.kill("slurmctld")
        with pytest.raises(AdapterError):
            await adapter.kill(order.job, 1)
        await holds((order.folder / runner.EXIT_FILE).exists, "it ends")
        jobs.cluster.start_controller()
        assert (await until(adapter, order, "ended")).signal == 9

    run(work())


def test_a_submission_that_slurm_lost_is_given_again(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
        keep_state(jobs)
        lost = jobs.order(nodes=["p1"], steps=3)
        await adapter.start(lost)
        await until(adapter, lost, "pending")
        (number,) = [row["job_id"] for row in jobs.slurm_jobs(lost.job)]
        # Killed before it has saved its state: it was acknowledged, and is gone.
        return_to_kept_state(jobs)
        assert await seen(adapter, lost.job) is None

        other = jobs.order(nodes=["v1"])
        await adapter.start(other)
        await holds(lambda: jobs.trace(other.job), "the other makes steps")
        assert [row["job_id"] for row in jobs.slurm_jobs(other.job)] == [number], "the number comes again"
        # Orders for the one that was lost do not reach the other.
        await adapter.stop(lost.job, 1)
        await adapter.kill(lost.job, 1)
        await adapter.start(lost)
        await until(adapter, lost, "pending")
        jobs.cluster.resume("p1")
        assert (await until(adapter, lost, "ended")).code == 0
        assert [line[:3] for line in jobs.trace(lost.job)] == [(1, "p1", 1), (1, "p1", 2), (1, "p1", 3)]
        await adapter.forget(lost.job)
        one = await seen(adapter, other.job)
        assert one is not None
        assert one.phase == "running"

    run(work())


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
def test_slurmctld_comes_back_with_a_state_in_which_the_job_did_not_run(jobs, known):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ["p1"])
        jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
        if known == "not at all":
            keep_state(jobs)
        await adapter.start(first)
        await until(adapter, first, "pending")
        if known == "as waiting":
            keep_state(jobs)
        jobs.cluster.resume("p1")
        await holds(lambda: jobs.steps_of(first.job, 1) > 5, "it makes steps")
        return_to_kept_state(jobs)
        jobs.cluster.resume("p1")
        await until(adapter, first, "ended")
        second = jobs.order(2, ["v1"], job=first.job)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 5, "it goes on")
        epochs = [line[0] for line in jobs.trace(first.job)]
        assert epochs == sorted(epochs), "never did two copies run"

    run(work())


def test_a_node_is_lost_and_comes_back_with_the_old_copy(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ["v1"], ending="ignore")
        await adapter.start(first)
        await holds(lambda: jobs.steps_of(first.job, 1) > 5, "it makes steps")
        # Its slurmd is gone, the processes of the job are not.
        jobs.cluster.kill("v1")
        jobs.cluster.update("NodeName=v1", "State=DOWN", "Reason=lost")
        end = await until(adapter, first, "ended")
        assert end.code is None
        assert "queued it again" in end.reason
        assert not {node.name: node for node in await adapter.nodes()}["v1"].up
        steps = jobs.steps_of(first.job, 1)
        await holds(lambda: jobs.steps_of(first.job, 1) > steps, "the old copy lives")

        second = jobs.order(2, ["p1"], job=first.job)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 5, "the new copy makes steps")
        epochs = [line[0] for line in jobs.trace(first.job)]
        assert epochs == sorted(epochs), "the old copy was gone before the new one began"
        jobs.cluster.start_node("v1")
        jobs.cluster.resume("v1")
        await asyncio.sleep(1.5)
        epochs = [line[0] for line in jobs.trace(first.job)]
        assert epochs == sorted(epochs), "it does not come back"
        assert (await until(adapter, second, "running")).epoch == 2

    run(work())


def test_a_copy_that_slurm_queued_again_by_itself_does_not_run(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(1, ["v1"])
        await adapter.start(order)
        await holds(lambda: jobs.steps_of(order.job, 1) > 5, "it makes steps")
        (row,) = jobs.slurm_jobs(order.job)
        jobs.cluster.run("scontrol", "requeue", str(row["job_id"]))
        await until(adapter, order, "ended")
        steps = jobs.steps_of(order.job, 1)
        await holds(lambda: jobs.slurm_jobs(order.job)[0]["job_state"] == "PENDING", "it is in the queue")
        jobs.cluster.update(f"JobId={row['job_id']}", "StartTime=now", "ReqNodeList=v2")
        await holds(lambda: jobs.slurm_jobs(order.job)[0]["job_state"] == "FAILED", "it refuses")
        assert "Slurm has queued the job again" in jobs.log(order.job)
        assert jobs.steps_of(order.job, 1) == steps
        assert (await until(adapter, order, "ended")).code is None
        second = jobs.order(2, ["v2"], job=order.job)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(order.job, 2) > 5, "the next epoch makes steps")

    run(work())


def test_a_stale_epoch_is_refused_on_the_node(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(4, lease=5)
        await adapter.start(order)
        end = await until(adapter, order, "ended")
        assert end.code is None
        assert "epoch 4 is stale: the lease is of epoch 5" in jobs.log(order.job)
        assert not jobs.trace(order.job)

        late = jobs.order(6, job=order.job)
        await adapter.start(late)
        await holds(lambda: jobs.steps_of(order.job, 6) > 5, "it makes steps")
        write_file(order.folder / LEASE_FILE, Grant(order.job, 7))
        await until(adapter, late, "ended")
        assert "epoch 6 was killed: the lease is of a newer one" in jobs.log(order.job)

    run(work())


def test_a_start_of_which_the_answer_is_lost_counts(jobs, monkeypatch):
    submit = Slurm.submit

    async def submit_and_lose_the_answer(*arguments):
        await submit(*arguments)
        raise AdapterError("sbatch has not answered")

    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        monkeypatch.setattr(Slurm, "submit", submit_and_lose_the_answer)
        order = jobs.order(steps=3)
        await adapter.start(order)
        assert (await until(adapter, order, "ended")).code == 0
        assert len(jobs.slurm_jobs(order.job)) == 1

    run(work())


def test_a_start_that_stopped_half_way_is_given_again(jobs, monkeypatch):
    control = Slurm.control

    async def no_release(slurm, verb, number):
        if verb == "release":
            raise AdapterError("scontrol has not answered")
        await control(slurm, verb, number)

    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ["v1"])
        await adapter.start(first)
        await holds(lambda: jobs.steps_of(first.job, 1) > 2, "it makes steps")
        await adapter.stop(first.job, 1)
        await until(adapter, first, "ended")
        second = jobs.order(2, ["v2"], job=first.job)
        with monkeypatch.context() as broken:
            broken.setattr(Slurm, "control", no_release)
            with pytest.raises(AdapterError):
                await adapter.start(second)
        assert await seen(adapter, first.job) is None
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 2, "it goes on")
        assert len(jobs.slurm_jobs(first.job)) == 1

    run(work())


def test_many_jobs_at_once(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        orders = [jobs.order(nodes=[node], steps=3) for node in ("v1", "v2", "p1", "k1") for _ in range(3)]
        await asyncio.gather(*(adapter.start(order) for order in orders))
        for order in orders:
            assert (await until(adapter, order, "ended")).code == 0
        await asyncio.gather(*(adapter.forget(order.job) for order in orders))
        assert await adapter.observe() == []

    run(work())
