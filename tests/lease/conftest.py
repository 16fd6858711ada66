"""A job, and its lease in this process."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from allocator.lease import Lease
from tests.lease.jobs import Job


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def lease(job):
    """A lease in this process, which gives SIGTERM back."""
    lease = Lease(environment=job.environment)
    yield lease
    lease.close()


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock for the lease that stands still unless a test moves it; given before the lease."""
    there = SimpleNamespace(**vars(time) | {"now": 1000.0})
    there.monotonic = lambda: there.now
    monkeypatch.setattr("allocator.lease.lease.time", there)
    return there
