"""Checkpoints are whole or absent, whoever is killed when, and those of a stale epoch do not count."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.lease import checkpoints as module
from allocator.lease.checkpoints import MANIFEST_FILE, CheckpointError, CheckpointFolder, read_manifest
from allocator.lease.fence import LeaseLockedError, StaleLeaseError, locked_lease, raise_epoch
from allocator.lease.files import LEASE_FILE, Grant, read_file
from tests.lease.jobs import in_child, kill_this_process, write_checkpoint


@pytest.fixture
def disk_is_quick(monkeypatch):
    """What a process has written outlives it without fsync, which is for machines that die; and it takes long."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def saver(steps, size=3000):
    """Write files, one of them in a folder, whose content tells the steps."""

    def save(folder):
        (folder / "model").write_bytes(f"{steps}".encode() * size)
        (folder / "shards").mkdir()
        (folder / "shards" / "0").write_text(f"{steps}")

    return save


def steps_inside(checkpoint):
    steps = (checkpoint.folder / "shards" / "0").read_text()
    assert set((checkpoint.folder / "model").read_bytes().decode()) == set(steps)
    return int(steps)


def names(job):
    return sorted(os.listdir(job.folder / "checkpoint"))


def test_the_last_one_is_found_and_two_are_kept(job):
    assert job.checkpoints.latest() is None
    for steps in (5, 10, 15):
        write_checkpoint(job.checkpoints, steps, saver(steps))
        last = job.checkpoints.latest()
        assert (last.steps, last.epoch, last.job) == (steps, 1, "a-job")
        assert steps_inside(last) == steps
        assert abs(last.at - time.time()) < 60
    assert names(job) == ["00000002", "00000003"]
    assert (job.folder / "checkpoint" / "00000003").stat().st_mode & 0o777 == 0o700


def change_manifest(last):
    manifest = last / MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace('"steps": 2', '"steps": 9'))


DAMAGES = {
    "cut": lambda last: os.truncate(last / "model", 100),
    "flip": lambda last: (last / "model").write_bytes(b"3" + (last / "model").read_bytes()[1:]),
    "missing": lambda last: (last / "model").unlink(),
    "added": lambda last: (last / "other").touch(),
    "manifest": change_manifest,
    "no manifest": lambda last: (last / MANIFEST_FILE).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_falls_back_to_the_one_before_and_goes_with_the_next(job, damage):
    for steps in (1, 2):
        write_checkpoint(job.checkpoints, steps, saver(steps))
    DAMAGES[damage](job.folder / "checkpoint" / "00000002")
    folder = job.checkpoints
    assert folder.latest().steps == 1
    write_checkpoint(folder, 3, saver(3))
    assert names(job) == ["00000001", "00000003"]
    assert job.checkpoints.latest().steps == 3
    for number in names(job):
        (job.folder / "checkpoint" / number / "model").unlink()
    assert job.checkpoints.latest() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_manifest_is_read_as_it_was_written_or_not_at_all(job, data):
    folder = job.folder / "checkpoint" / "00000001"
    if not folder.exists():
        write_checkpoint(job.checkpoints, 7, saver(7))
        (job.folder / "manifest").write_bytes((folder / MANIFEST_FILE).read_bytes())
    true = (job.folder / "manifest").read_bytes()
    place = data.draw(st.integers(0, len(true) - 1))
    told = data.draw(
        st.binary(max_size=300)
        | st.just(true[:place])
        | st.integers(0, 255).map(lambda byte: true[:place] + bytes([byte]) + true[place + 1 :])
    )
    (folder / MANIFEST_FILE).write_bytes(told)
    read = read_manifest(folder)
    (folder / MANIFEST_FILE).write_bytes(true)
    assert read is None or read == read_manifest(folder)


def test_a_stale_epoch_commits_nothing(job):
    stale, other = job.checkpoints, CheckpointFolder(job.folder / "checkpoint", "another-job", job.grant.epoch)
    with pytest.raises(StaleLeaseError, match="of job a-job; epoch 1 of job another-job commits nothing"):
        write_checkpoint(other, 1, saver(1))

    def save(folder):
        saver(2)(folder)
        job.next_epoch()

    write_checkpoint(stale, 1, saver(1))
    # raised while it is written, and before
    for _ in range(2):
        with pytest.raises(StaleLeaseError, match="epoch 1 of job a-job commits nothing"):
            write_checkpoint(stale, 2, save)
    assert names(job) == ["00000001"]
    assert job.checkpoints.latest().steps == 1
    # what the earlier left half written is cleared by the later
    stale.begin()
    write_checkpoint(job.checkpoints, 2, saver(2))
    assert names(job) == ["00000001", "00000002"]
    (job.folder / LEASE_FILE).write_text("{")
    with pytest.raises(StaleLeaseError, match="no lease can be read"):
        write_checkpoint(job.checkpoints, 3, saver(3))


@pytest.mark.parametrize("call", ["save", "fsync", "rename", "mkdir"])
def test_on_a_disk_that_fails_the_last_one_stays_and_the_error_says_so(job, monkeypatch, call):
    write_checkpoint(job.checkpoints, 1, saver(1))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    if call != "save":
        monkeypatch.setattr(os, call, full)
    told = r"checkpoint of step 2 was not written, that of step 1 stays: .*No space left"
    with pytest.raises(CheckpointError, match=told):
        write_checkpoint(job.checkpoints, 2, full if call == "save" else saver(2))
    monkeypatch.undo()
    assert names(job) == ["00000001"]
    assert job.checkpoints.latest().steps == 1


def kill_at_line(number):
    """Trace lines of the module of checkpoints, and end this process as by kill -9 before the one of that number."""
    passed = count(1)

    def trace(frame, event, _):
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line" and next(passed) == number:
            kill_this_process()
        return trace

    sys.settrace(trace)


@pytest.mark.usefixtures("disk_is_quick")
@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_before_any_line_of_a_commit(job, stride):
    """The checkpoint before, or the new one; never another state, and the next can be written."""
    found = set()
    for line in count(1, stride):
        write_checkpoint(job.checkpoints, 2 * line, saver(2 * line, 10))
        before = job.checkpoints.latest()
        assert before.steps == 2 * line

        def work(line=line):
            kill_at_line(line)
            write_checkpoint(job.checkpoints, 2 * line + 1, saver(2 * line + 1, 10))

        status = in_child(work)
        after = job.checkpoints.latest()
        assert after == before or after.steps == 2 * line + 1
        assert steps_inside(after) == after.steps
        found.add(after == before)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert line > 100
    assert found == {True, False}
    assert len(names(job)) == module.KEPT


def test_an_epoch_is_never_lowered_and_may_be_raised_twice(job):
    raise_epoch(job.folder, Grant("a-job", 5, gpus=2))
    raise_epoch(job.folder, Grant("a-job", 5, gpus=3))
    assert read_file(job.folder / LEASE_FILE, Grant).gpus == 3
    with pytest.raises(StaleLeaseError, match="of epoch 5, later than 4"):
        raise_epoch(job.folder, Grant("a-job", 4))


@pytest.mark.parametrize("strange", ["pipe", "folder link", "dangling link"])
def test_what_is_no_file_is_not_committed(job, strange):
    write_checkpoint(job.checkpoints, 1, saver(1))

    def save(folder):
        saver(2)(folder)
        if strange == "pipe":
            os.mkfifo(folder / "shards" / "x")
        else:
            (folder / "shards" / "x").symlink_to("/" if strange == "folder link" else "nowhere")

    with pytest.raises(CheckpointError, match=r"neither a file nor a folder of its own.*shards/x"):
        write_checkpoint(job.checkpoints, 2, save)
    assert names(job) == ["00000001"]
    assert job.checkpoints.latest().steps == 1


def test_all_is_on_the_disk_before_it_is_in_place_and_the_lock_is_held_then(job, monkeypatch):
    """A machine that dies is not to be had in a test: what it would leave follows from the order of calls."""
    folder = job.checkpoints
    done, sync, rename = [], os.fsync, os.rename

    def fsync(descriptor):
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), folder.path))
        sync(descriptor)

    def renamed(source, target):
        with pytest.raises(LeaseLockedError), locked_lease(job.folder, 0.0):
            raise AssertionError("whoever raises the epoch could come between the look at it and this")
        done.append("in place")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", renamed)
    write_checkpoint(folder, 1, saver(1))
    partial = ".partial-1-00000001"
    contents = [f"{partial}/{name}" for name in ("model", "shards/0", MANIFEST_FILE)]
    assert sorted(done[:3]) == sorted(contents)
    assert done[3:] == [f"{partial}/shards", partial, "in place", "."]
