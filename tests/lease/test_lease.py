"""The lease in a training loop, with the scheduler's part written by hand."""

from __future__ import annotations

import re
import signal
import time

import pytest

from allocator.lease import Lease
from tests.lease.jobs import ROOT, fail, notice, save_steps, wait_until

# Outside the scheduler.


def test_outside_the_scheduler_it_counts_and_does_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    lease = Lease(environment={"PATH": "/bin"})
    assert not lease.active
    assert not lease.restore(fail)
    seen = []
    for batch in lease(iter("abc")):
        seen.append(batch)
        assert not lease.checkpoint_if_ending(fail)
        assert not lease.checkpoint(fail)
        assert not lease.ending
        assert not lease.poll()
    lease.request(batch_size=3, gpus=2)
    lease.done()
    lease.close()
    assert (seen, lease.steps) == (["a", "b", "c"], 3)
    assert lease.last_checkpoint() is None
    assert signal.getsignal(signal.SIGTERM) is before
    assert list(tmp_path.iterdir()) == []


# A loop under a lease.


def test_a_loop_runs_through_and_reports(job, lease):
    assert job.report.state == "starting"
    lease.total_steps = 4
    for _ in lease(range(10)):
        time.sleep(0.01)
    assert lease.steps == 4
    report = job.report
    assert (report.state, report.steps, report.epoch) == ("done", 4, 1)
    assert report.trained_steps == 3
    assert 0.03 <= report.trained_seconds < 60
    assert report.start_seconds > 0
    assert abs(report.at - time.time()) < 60


@pytest.mark.parametrize("inside", [True, False])
def test_the_end_of_a_lease_ends_the_loop_with_a_checkpoint(job, lease, inside):
    for epoch in range(3):
        for batch in lease(range(10)):
            assert (epoch, batch) <= (1, 1)
            if (epoch, batch) == (1, 1):
                job.write(ends=True)
                notice()
            if inside:
                assert lease.checkpoint_if_ending(save_steps(lease)) == ((epoch, batch) == (1, 1))
    assert lease.checkpoint_if_ending(fail if inside else save_steps(lease))
    lease.done()
    report = job.report
    assert (report.state, report.steps) == ("ending", 12)
    assert report.saved_steps == 12
    assert abs(report.saved_at - time.time()) < 60
    assert 0 < report.save_seconds < 60
    assert (job.checkpoints.latest().folder / "steps").read_text() == "12"


def test_the_next_start_goes_on_where_the_last_one_ended(job):
    seen = []
    for _ in range(3):
        lease = Lease(7, environment=job.environment)
        restored = lease.restore(lambda folder: seen.append(int((folder / "steps").read_text())))
        assert restored == (job.grant.epoch > 1)
        for _ in lease(range(100)):
            if lease.steps % 3 == 2:
                job.write(ends=True)
                notice()
            lease.checkpoint_if_ending(save_steps(lease))
        lease.close()
        state = job.report.state
        job.next_epoch()
    assert seen == [3, 6]
    assert (state, job.report.steps, job.report.epoch) == ("done", 7, 3)
    assert job.report.saved_steps == 6


def test_a_lease_that_has_ended_before_the_first_step_trains_nothing(job):
    job.write(ends=True)
    lease = Lease(environment=job.environment)
    assert list(lease(range(5))) == []
    assert lease.checkpoint_if_ending(fail)
    assert (job.report.state, job.report.steps) == ("ending", 0)
    lease.close()


def test_the_last_step_is_done_even_if_the_lease_ends_with_it(job):
    lease = Lease(2, environment=job.environment)
    for batch in lease(range(5)):
        if batch == 1:
            job.write(ends=True)
            notice()
    assert not lease.checkpoint_if_ending(fail)
    assert job.report.state == "done"
    lease.close()


def test_an_evaluation_sees_the_end(job, lease):
    assert not lease.ending
    assert not lease.step(5)
    job.write(ends=True)
    wait_until(lambda: lease.ending)
    assert job.report.state != "ending"
    assert lease.poll()
    assert (job.report.state, job.report.steps) == ("ending", 5)
    assert lease.step(2)
    assert list(lease(range(3))) == []


def test_time_outside_of_steps_is_no_training(job, clock, lease):
    def let_pass(seconds):
        clock.now += seconds

    for batch in lease(range(4)):
        if batch == 2:
            let_pass(60.0)
            lease.poll()
        let_pass(0.25)
        if batch == 1:
            lease.checkpoint(lambda _: let_pass(60.0))
    let_pass(60.0)
    for _ in lease(range(2)):
        let_pass(0.25)
    lease.report_now()
    # the first step of a start is none that counts: what came before it was no training
    assert job.report.trained_steps == 5
    assert job.report.trained_seconds == 5 * 0.25
    assert job.report.save_seconds == 60.0


def test_the_lines_of_the_page_run(job, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "leases.md").read_text(), re.DOTALL).group(1)
    for name, value in job.environment.items():
        monkeypatch.setenv(name, value)
    seen = []
    names = {"loader": range(4), "train": seen.append, "load": fail, "save": fail}
    exec(code, names)
    names["lease"].close()
    assert seen == [0, 1, 2, 3]
    assert (job.report.state, job.report.steps) == ("training", 4)
