"""What a job reports to the scheduler, and when."""

from __future__ import annotations

import pytest

from allocator.lease import CheckpointError, Lease, LeaseLockedError, locked_lease, reporter
from allocator.lease.lease import REPORT_SECONDS
from tests.lease.jobs import wait_until


def test_the_first_step_is_reported_at_once(job, monkeypatch):
    monkeypatch.setattr("allocator.lease.lease.REPORT_SECONDS", 1000.0)
    lease = Lease(environment=job.environment)
    lease.step()
    wait_until(lambda: job.report.state == "training")
    assert job.report.steps == 1
    lease.close()


def test_a_report_is_written_behind_the_fence(job, lease, monkeypatch):
    """Else a later epoch could be granted, and report, between the look at the lease and the report of this one."""
    written, write = [], reporter.write_file

    def checked(path, content):
        with pytest.raises(LeaseLockedError), locked_lease(job.folder, 0.0):
            raise AssertionError("the lease is not locked")
        written.append(content.steps)
        write(path, content)

    monkeypatch.setattr(reporter, "write_file", checked)
    lease.step()
    lease.report_now()
    assert written[-1] == 1


def test_wishes_are_reported_at_once_and_stay(job, lease):
    lease.request(batch_size=256)
    lease.request(gpus=4)
    assert (job.report.batch_size, job.report.gpus) == (256, 4)


def test_reports_are_given_twice_a_second(clock, lease, monkeypatch):
    given = []
    monkeypatch.setattr(reporter.Reporter, "write_soon", lambda _, report: given.append(report.steps))
    for _ in lease(range(130)):
        clock.now += 1 / 128
    assert REPORT_SECONDS == 0.5
    assert given == [1, 65, 129]


def test_a_disk_too_full_for_reports_stops_no_training(lease, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reporter, "write_file", full)
    lease.request(gpus=1)
    lease.request(gpus=2)
    assert sum(1 for _ in lease(range(10))) == 10
    assert capsys.readouterr().err.count("progress cannot be reported: [Errno 28]") == 1


def test_a_checkpoint_that_fails_is_reported(job, lease):
    def full(_):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="there is none before it"):
        lease.checkpoint(full)
    assert "No space left on device" in job.report.message
    assert job.report.saved_at == 0
