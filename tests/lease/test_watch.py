"""Leases that end, cannot be read, or are of an earlier epoch."""

from __future__ import annotations

import os

import pytest

from allocator.lease import Lease, StaleLeaseError
from allocator.lease.watch import LOOK_SECONDS, LeaseWatch
from tests.lease.jobs import notice, save_steps


def test_the_end_is_noticed_soon(job, clock, lease):
    ended = float("inf")
    for steps in lease(range(10**6)):
        clock.now += 0.001
        if steps == 100:
            job.write(ends=True)
            ended = clock.now
    assert clock.now - ended <= LOOK_SECONDS + 0.002


def test_a_file_that_looks_unchanged_is_read_once_a_second(job):
    path = job.folder / "lease.json"
    watch = LeaseWatch(job.folder, job.grant.job, job.grant.epoch)
    assert not watch.look(100.0)
    before, text = path.stat(), path.read_text()
    path.write_text(text.replace('"ends": false', '"ends": true '))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert not watch.look(100.5)
    assert watch.look(101.1)
    watch.close()


@pytest.mark.parametrize("damage", ["absent", "not understood", "of another job", "of an earlier epoch"])
def test_a_lease_that_cannot_be_read_goes_on(job, lease, damage):
    path = job.folder / "lease.json"
    if damage == "absent":
        path.unlink()
    else:
        texts = {
            "not understood": "{",
            "of another job": '{"job": "b", "epoch": 9, "ends": true}',
            "of an earlier epoch": '{"job": "a-job", "epoch": 0, "ends": true}',
        }
        path.write_text(texts[damage])
    notice()
    assert sum(1 for _ in lease(range(5))) == 5


def test_a_stale_trainer_stops_at_once_and_leaves_nothing(job):
    lease = Lease(environment=job.environment)
    batches = lease(range(1000))
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    job.next_epoch()
    Lease(environment=job.environment).close()
    notice()
    with pytest.raises(StaleLeaseError, match="of epoch 2; epoch 1 stops"):
        next(batches)
    for attempt in (lambda: lease.checkpoint(save_steps(lease)), lambda: lease.ending, lease.step):
        with pytest.raises(StaleLeaseError):
            attempt()
    lease.close()
    assert job.checkpoints.latest() is None
    assert (job.report.epoch, job.report.steps) == (2, 0)
