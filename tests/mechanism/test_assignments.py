"""Assignments without those who have left, and those that nobody can run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.protocol.assignment import Assignment
from throughputs import InputError


@settings(max_examples=25)
@given(jobs=st.lists(st.integers(0, 50), unique=True, max_size=20), gone=st.lists(st.integers(0, 50), max_size=8))
def test_without_those_who_are_gone_is_among_those_who_are_not(jobs, gone):
    pairs = dict(zip(jobs[::4], jobs[1::4], strict=False))
    beside = pairs | {b: a for a, b in pairs.items()}
    rows = Assignment.of(jobs, [0] * len(jobs), [1] * len(jobs), [beside.get(job, -1) for job in jobs])
    left = rows.without(np.array(gone, dtype=np.int64))
    among = rows.among(np.array(sorted(set(range(51)) - set(gone)), dtype=np.int64))
    assert left.jobs.tolist() == among.jobs.tolist() == [job for job in jobs if job not in gone]
    assert left.partner.tolist() == among.partner.tolist()
    assert left.shares_gpus == any(a not in gone and b not in gone for a, b in pairs.items())
    assert left.gpus_used(1).tolist() == [left.busy_gpus]


@settings(max_examples=25)
@given(jobs=st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_a_job_runs_once(jobs):
    rows = Assignment.of(jobs, [0] * len(jobs), [1] * len(jobs))
    if len(set(jobs)) == len(jobs):
        rows.check(np.array([8]), "test")
    else:
        with pytest.raises(InputError, match="a job twice"):
            rows.check(np.array([8]), "test")


def test_ids_and_pools_are_from_zero():
    with pytest.raises(InputError, match="assignment"):
        Assignment.of([-1, 0], [0, 0], [1, 1]).check(np.array([8]), "test")
    for pool in (-1, 2):
        with pytest.raises(InputError, match="pools below 2"):
            Assignment.of([0], [pool], [1]).check(np.array([8, 8]), "test")
    with pytest.raises(InputError, match="without GPUs"):
        Assignment.of([0], [0], [0]).check(np.array([8]), "test")
    with pytest.raises(InputError, match=r"\[9\] GPUs"):
        Assignment.of([0, 1], [0, 0], [4, 5]).check(np.array([8]), "test")
    with pytest.raises(InputError, match=r"\[0, 9\] GPUs"):
        Assignment.of([0, 1], [1, 1], [4, 5]).check(np.array([8, 8]), "test")
