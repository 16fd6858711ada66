"""Ranks leave their loop at the same step: by a file here, by torch.distributed in the tests of the examples."""

from __future__ import annotations

import os
import random
import time

import pytest

from allocator.lease import Lease
from allocator.lease.agreement import APART, FileAgreement, TorchAgreement
from tests.lease.jobs import Job, wait_until


class InStep:
    """Ranks that end a step when all have begun it, as in a reduction of gradients: forks, joined by pipes."""

    def __init__(self, job: Job, world: int) -> None:
        self.job, self.world = job, world
        self.up = [os.pipe() for _ in range(world)]
        self.down = [os.pipe() for _ in range(world)]

    def gather(self, rank: int) -> None:
        """Returns when all ranks have come here."""
        if rank == 0:
            for other in range(1, self.world):
                assert os.read(self.up[other][0], 1) == b"."
            for other in range(1, self.world):
                os.write(self.down[other][1], b".")
        else:
            os.write(self.up[rank][1], b".")
            assert os.read(self.down[rank][0], 1) == b"."

    def run(self, rank: int, seed: int) -> None:
        """Train in step with the others, at uneven speed; writes the steps at which it left."""
        rng = random.Random(1000 * seed + rank)
        variables = {"RANK": str(rank), "WORLD_SIZE": str(self.world)}
        lease = Lease(environment=self.job.environment | variables)
        for _ in lease(iter(int, 1)):
            self.gather(rank)
            time.sleep(rng.choice([0.0, 0.0, 0.001, 0.003]))
            lease.checkpoint_if_ending(lambda folder: (folder / "rank").write_text(str(rank)))
        (self.job.folder / f"left.{rank}").write_text(str(lease.steps))
        lease.close()


@pytest.mark.parametrize(
    ("world", "seed"),
    [(2, 0), (4, 1), *(pytest.param(4, seed, marks=pytest.mark.exhaustive) for seed in range(2, 8))],
)
def test_ranks_leave_at_the_same_step(tmp_path, world, seed):
    job = Job(tmp_path)
    together = InStep(job, world)
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                together.run(rank, seed)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    wait_until(lambda: job.reported(steps=3))
    time.sleep(random.Random(seed).uniform(0, 0.05))
    job.write(ends=True)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * world
    left = {(tmp_path / f"left.{rank}").read_text() for rank in range(world)}
    assert len(left) == 1
    last = job.checkpoints.latest()
    assert str(last.steps) in left
    assert (last.folder / "rank").read_text() == "0"
    assert (job.report.state, job.report.steps) == ("ending", last.steps)


def test_the_first_rank_that_sees_the_end_decides(tmp_path):
    first, second = (FileAgreement(tmp_path / "stop") for _ in range(2))
    assert not second.at_boundary(False, 0.0, step=True)
    assert not first.at_boundary(True, 0.0, step=True)
    assert (tmp_path / "stop").read_text() == str(1 + APART)
    assert not second.at_boundary(True, 0.0, step=True)
    assert not first.at_boundary(True, 0.0, step=True)
    assert second.at_boundary(False, 0.0, step=False)
    assert first.at_boundary(False, 0.0, step=False)
    assert [path.name for path in tmp_path.iterdir()] == ["stop"]


def test_only_the_first_rank_reports_and_saves(tmp_path):
    job = Job(tmp_path)
    variables = job.environment | {"RANK": "1", "WORLD_SIZE": "2"}
    lease = Lease(environment=variables)
    lease.step()
    assert lease.checkpoint(lambda _: pytest.fail("saves"))
    with pytest.raises(RuntimeError, match=r"needs torch\.distributed"):
        lease.checkpoint(lambda _: None, every_rank=True)
    # it stays what it was at the first boundary, even if what tells it goes before the last report
    del variables["RANK"], variables["WORLD_SIZE"]
    lease.close()
    assert lease.rank == 1
    assert {path.name for path in tmp_path.iterdir()} == {"lease.json", "lease.lock"}


class OneProcess:
    """torch and torch.distributed as far as they are used, for ranks that stand in one process one after the other."""

    class ReduceOp:
        MAX, MIN = max, min

    def __init__(self) -> None:
        self.calls = 0
        self.others: list[list[int]] = []

    def new_group(self, backend):
        return backend

    def tensor(self, values):
        return Tensor(values)

    def all_reduce(self, tensor, op, group, async_op):
        assert group == "gloo"
        assert async_op
        self.calls += 1
        for other in self.others:
            tensor.values = list(map(op, tensor.values, other))
        return Work()


class Work:
    def wait(self):
        pass


class Tensor:
    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


def test_the_end_and_the_pace_of_another_rank_count():
    world = OneProcess()
    agreement = TorchAgreement(world, world)
    world.others = [[0, -1]]
    assert not any(agreement.at_boundary(False, 0.001 * steps, step=True) for steps in range(100))
    assert world.calls == 100
    world.others = [[1, -1]]
    assert agreement.at_boundary(False, 0.1, step=True)
    world.others = [[0]]
    assert agreement.at_boundary(False, 0.1, step=False)
