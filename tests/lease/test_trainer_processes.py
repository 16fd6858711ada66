"""Trainers in processes of their own, which are told to end, are killed or complete."""

from __future__ import annotations

import signal

import pytest

from tests.lease.jobs import PATIENCE, wait_until

TRAINER = """
import sys, time
from allocator.lease import Lease
lease = Lease(int(sys.argv[1]))
lease.restore(lambda folder: None)
for _ in lease(iter(int, 1)):
    time.sleep(0.002)
    lease.checkpoint_if_ending(lambda folder: (folder / "steps").write_text(str(lease.steps)))
"""


@pytest.mark.parametrize("how", ["lease", "signal"])
def test_a_process_ends_and_the_next_one_completes(job, how):
    first = job.start(["-c", TRAINER, "1000000"])
    wait_until(lambda: job.reported(steps=10), first)
    if how == "lease":
        job.write(ends=True)
    else:
        first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0, first.communicate()[0]
    ended = job.report
    assert ended.state == "ending"
    assert ended.steps == ended.saved_steps >= 10
    job.next_epoch()
    second = job.start(["-c", TRAINER, str(int(ended.steps) + 5)])
    assert second.wait(PATIENCE) == 0, second.communicate()[0]
    assert (job.report.state, job.report.steps) == ("done", ended.steps + 5)
    assert job.report.trained_steps == 4
    assert job.report.start_seconds > 0.01
