"""What a job reports to the scheduler, and when."""

from __future__ import annotations

import pytest

from allocator.lease import LeaseLockedError, locked_lease, reporter
from allocator.lease.lease import REPORT_SECONDS


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
