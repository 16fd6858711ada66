"""The lives of jobs on a real Slurm cluster: start, end of a lease, another type, another size, end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from allocator.runtime.adapters.base import AdapterError
from tests.runtime.slurm.jobs import holds, run, seen, until

REPORT = """
import os, sys
devices = os.environ["CUDA_VISIBLE_DEVICES"]
print(os.environ["SLURMD_NODENAME"], devices, os.getcwd(), os.environ["COLOUR"], sys.argv[1:])
print(os.environ["ALLOCATOR_JOB_ID"], os.environ["ALLOCATOR_LEASE_EPOCH"], os.environ["ALLOCATOR_CHECKPOINT_DIR"])
"""

RANKS = """
import os
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT".split()
os.write(1, (" ".join(os.environ[name] for name in names) + "\\n").encode())
"""


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


def test_nodes_have_a_type_and_gpus_and_say_why_they_are_not_up(jobs):
    async def work():
        adapter = jobs.adapter(partition="gpus", accelerators={"k80": "tesla_k80"})
        await adapter.open()
        jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=fan broken")
        nodes = {node.name: node for node in await adapter.nodes()}
        assert list(nodes) == ["k1", "p1", "v1", "v2"]
        assert [(node.accelerator, node.gpus) for node in nodes.values()] == [
            ("tesla_k80", 4),
            ("p100", 2),
            ("v100", 2),
            ("v100", 2),
        ]
        assert {name: node.drained for name, node in nodes.items()} == {
            "k1": False,
            "p1": True,
            "v1": False,
            "v2": False,
        }
        assert nodes["p1"].up
        assert nodes["p1"].reason == "drain: fan broken"
        jobs.cluster.resume("p1")
        # Slurm looks at the node once more before it gives it work.
        while not all(node.up and not node.drained for node in await adapter.nodes()):
            await asyncio.sleep(0.1)

    run(work())


def test_a_partition_without_gpus_is_refused(jobs):
    with pytest.raises(AdapterError, match="no node of partition none has GPUs"):
        run(jobs.adapter(partition="none").open())


def test_a_job_runs_where_it_is_wanted_and_completes(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(
            nodes=["v2"], gpus=2, command=python(REPORT, "a b", "$HOME;`id`"), environment={"COLOUR": "dark red"}
        )
        await adapter.start(order)
        end = await until(adapter, order, "ended")
        assert (end.code, end.signal) == (0, 0)
        assert end.ended_at > 0
        first, second = jobs.log(order.job).splitlines()
        assert first == f"v2 0,1 {jobs.folder} dark red ['a b', '$HOME;`id`']"
        assert second == f"{order.job} 1 {order.folder / 'checkpoint'}"
        # Once more the same order: nothing happens.
        await adapter.start(order)
        await asyncio.sleep(0.5)
        assert len(jobs.log(order.job).splitlines()) == 2
        assert all(path.stat().st_mode & 0o077 == 0 for path in order.folder.iterdir())
        await adapter.forget(order.job)
        assert await adapter.observe() == []

    run(work())


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        (python("import sys; sys.exit(3)"), 3, 0),
        (python("import os; os.kill(os.getpid(), 11)"), 128 + 11, 11),
        (["no-such-command"], 127, 0),
        (["/etc/passwd"], 126, 0),
    ],
)
def test_failures_are_told(jobs, command, code, signal):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(command=command)
        await adapter.start(order)
        end = await until(adapter, order, "ended")
        assert (end.code, end.signal) == (code, signal)

    run(work())


def test_a_lease_ends_and_the_next_is_on_another_type(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ["v1"])
        await adapter.start(first)
        await until(adapter, first, "running")
        await holds(lambda: jobs.steps_of(first.job, 1) > 5, "it makes steps")
        await adapter.stop(first.job, 1)
        end = await until(adapter, first, "ended")
        assert (end.code, end.signal) == (0, 0)
        # What was asked for once may be asked for again.
        await adapter.stop(first.job, 1)
        await adapter.kill(first.job, 1)

        second = jobs.order(2, ["p1"], job=first.job)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 5, "it goes on")
        await adapter.stop(first.job, 1)
        assert (await until(adapter, second, "running")).epoch == 2
        with pytest.raises(AdapterError, match="epoch 1 is stale"):
            await adapter.start(first)

        # A trainer that knows of leases exits by itself: Slurm takes the job for completed.
        os.kill(next(pid for pid in processes_of(first.job)), 15)
        end = await until(adapter, second, "ended")
        assert end.code == 0
        third = jobs.order(3, ["k1"], job=first.job)
        await adapter.start(third)
        await holds(lambda: jobs.steps_of(first.job, 3) > 5, "it goes on")
        trace = jobs.trace(first.job)
        assert {line[:2] for line in trace} == {(1, "v1"), (2, "p1"), (3, "k1")}
        assert [line[2] for line in trace] == list(range(1, len(trace) + 1)), "no step is made twice"
        assert [row["restart_cnt"] for row in jobs.slurm_jobs(first.job)] == [2], "one Slurm job for all leases"
        await adapter.forget(first.job)
        await holds(lambda: not processes_of(first.job), "its processes are gone")

    run(work())


def processes_of(job):
    """Trainers of a job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            trains = b"trainer.py" in (folder / "cmdline").read_bytes()
            if trains and f"ALLOCATOR_JOB_ID={job}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_another_number_of_gpus_is_another_slurm_job(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ["v1"])
        await adapter.start(first)
        await holds(lambda: jobs.steps_of(first.job, 1) > 2, "it makes steps")
        await adapter.stop(first.job, 1)
        await until(adapter, first, "ended")
        second = jobs.order(2, ["k1"], job=first.job, gpus=4)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 2, "it goes on")
        states = {row["tres_per_node"]: row["job_state"] for row in jobs.slurm_jobs(first.job)}
        assert states == {"gres:gpu:1": "CANCELLED", "gres:gpu:4": "RUNNING"}

    run(work())


def test_one_process_a_gpu_on_two_nodes(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(1, ["v1", "v2"], gpus=2, command=python(RANKS), one_process_per_gpu=True)
        await adapter.start(order)
        assert (await until(adapter, order, "ended")).code == 0
        labelled = sorted(line.split(": ") for line in jobs.log(order.job).splitlines())
        assert [label for label, _ in labelled] == ["rank 0", "rank 1", "rank 2", "rank 3"]
        lines = [line.split() for _, line in labelled]
        assert [line[:4] for line in lines] == [
            ["0", "0", "4", "2"],
            ["1", "1", "4", "2"],
            ["2", "0", "4", "2"],
            ["3", "1", "4", "2"],
        ]
        assert len({line[4] for line in lines}) == 1

        second = jobs.order(2, ["p1", "v2"], job=order.job, gpus=2, one_process_per_gpu=True)
        await adapter.start(second)
        await holds(lambda: all(jobs.trace(order.job, rank) for rank in range(4)), "all ranks make steps")
        assert {jobs.trace(order.job, rank)[0][1] for rank in range(4)} == {"p1", "v2"}
        await adapter.stop(order.job, 2)
        assert (await until(adapter, second, "ended")).code == 0
        assert (order.folder / "checkpoint" / "steps").exists()

    run(work())


def test_nodes_that_are_to_give_different_numbers_are_refused(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order()
        uneven = type(order)(**(vars(order) | {"gpus": {"v1": (0, 1), "v2": (0,)}}))
        with pytest.raises(AdapterError, match="the same number of GPUs"):
            await adapter.start(uneven)
        assert await adapter.observe() == []

    run(work())


def test_a_job_that_ignores_the_end_of_its_lease_is_killed(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        first = jobs.order(1, ending="ignore")
        await adapter.start(first)
        await holds(lambda: jobs.trace(first.job), "it makes steps")
        await adapter.stop(first.job, 1)
        one = await seen(adapter, first.job)
        assert one is not None
        assert one.phase == "running", "its GPUs are not free yet"
        await adapter.kill(first.job, 1)
        end = await until(adapter, first, "ended")
        assert (end.code, end.signal) == (None, 9)
        second = jobs.order(2, ["v2"], job=first.job)
        await adapter.start(second)
        await holds(lambda: jobs.steps_of(first.job, 2) > 2, "it goes on")
        await adapter.kill(first.job, 2)
        assert (await until(adapter, second, "ended")).signal == 9

    run(work())


def test_a_job_that_waits_is_taken_back(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        jobs.cluster.update("NodeName=p1", "State=DRAIN", "Reason=test")
        for epoch, end in enumerate((adapter.stop, adapter.kill), 1):
            order = jobs.order(epoch, ["p1"], job="" if epoch == 1 else order.job)  # noqa: F821
            await adapter.start(order)
            assert (await until(adapter, order, "pending")).phase == "pending"
            await end(order.job, epoch)
            assert (await until(adapter, order, "ended")).code is None
        jobs.cluster.resume("p1")
        await asyncio.sleep(1.0)
        assert not jobs.trace(order.job)

    run(work())


def test_output_is_bounded(jobs):
    async def work():
        adapter = jobs.adapter()
        await adapter.open()
        order = jobs.order(command=python("for i in range(200_000): print('line', i)"), log_bytes=100_000)
        await adapter.start(order)
        assert (await until(adapter, order, "ended")).code == 0
        assert jobs.log(order.job).endswith("line 199999\n")
        assert sum((order.folder / name).stat().st_size for name in ("log", "log.1")) <= 101_000

    run(work())
