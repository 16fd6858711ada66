"""SIGTERM and forks: a lease ends, and leaves the signals of others alone."""

from __future__ import annotations

import os
import signal
import time

from allocator.lease import Lease
from tests.lease.jobs import in_child, save_steps, wait_until


def test_sigterm_ends_the_lease_and_reaches_who_listened_before(job):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        lease = Lease(environment=job.environment)
        for batch in lease(range(100)):
            if batch == 4:
                os.kill(os.getpid(), signal.SIGTERM)
        assert lease.checkpoint_if_ending(save_steps(lease))
        assert (job.report.state, job.report.steps) == ("ending", 5)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is interrupt
        lease.close()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_fork_of_the_trainer_dies_of_sigterm_and_does_not_report(job, lease):
    mark = job.folder / "forked"
    child = os.fork()
    if child == 0:
        try:
            mark.touch()
            time.sleep(60)
        finally:
            os._exit(1)
    wait_until(mark.exists)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert not lease.ending

    def end_as_interpreters_do():
        lease.steps = 99
        lease._at_exit()

    assert in_child(end_as_interpreters_do) == 0
    assert job.report.steps == 0
    lease._at_exit()
    assert job.report.steps == lease.steps == 0
