"""Checkpoints are whole or absent, whoever is killed when, and those of a stale epoch do not count."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.lease import checkpoints as module
from allocator.lease.checkpoints import MANIFEST_FILE, CheckpointError, CheckpointFolder, read_manifest
from allocator.lease.fence import LeaseLockedError, StaleLeaseError, locked_lease, raise_epoch
from allocator.lease.files import LEASE_FILE, Grant, read_file
from tests.lease.jobs import in_child, kill_this_process, wait_until, write_checkpoint


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


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "added", "manifest", "no manifest"])
def test_a_damaged_one_falls_back_to_the_one_before_and_goes_with_the_next(job, damage):
    for steps in (1, 2):
        write_checkpoint(job.checkpoints, steps, saver(steps))
    last = job.folder / "checkpoint" / "00000002"
    model = last / "model"
    if damage == "cut":
        os.truncate(model, 100)
    elif damage == "flip":
        model.write_bytes(b"3" + model.read_bytes()[1:])
    elif damage == "missing":
        model.unlink()
    elif damage == "added":
        (last / "other").touch()
    elif damage == "manifest":
        (last / MANIFEST_FILE).write_text((last / MANIFEST_FILE).read_text().replace('"steps": 2', '"steps": 9'))
    else:
        (last / MANIFEST_FILE).unlink()
    folder = job.checkpoints
    assert folder.latest().steps == 1
    write_checkpoint(folder, 3, saver(3))
    assert names(job) == ["00000001", "00000003"]
    assert job.checkpoints.latest().steps == 3


def test_all_damaged_is_none(job):
    write_checkpoint(job.checkpoints, 1, saver(1))
    (job.folder / "checkpoint" / "00000001" / "model").unlink()
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


@pytest.mark.parametrize(
    "told", [b"null", b"[]", b"{}", b"[" * 90_000, b'{"sha256": 1, "content": {"steps": 1e999}}', b'{"content": 1}']
)
def test_other_manifests_are_none(tmp_path, told):
    (tmp_path / MANIFEST_FILE).write_bytes(told)
    assert read_manifest(tmp_path) is None


def test_a_stale_epoch_commits_nothing(job):
    stale = job.checkpoints
    write_checkpoint(stale, 1, saver(1))
    job.next_epoch()
    with pytest.raises(StaleLeaseError, match="epoch 1 of job a-job commits nothing"):
        write_checkpoint(stale, 2, saver(2))
    assert names(job) == ["00000001"]
    assert job.checkpoints.latest().steps == 1


def test_an_epoch_raised_while_it_is_written_refuses_it(job):
    def save(folder):
        saver(2)(folder)
        job.next_epoch()

    with pytest.raises(StaleLeaseError):
        write_checkpoint(job.checkpoints, 2, save)
    assert names(job) == []


def test_without_a_lease_that_can_be_read_nothing_is_committed(job):
    (job.folder / LEASE_FILE).write_text("{")
    with pytest.raises(StaleLeaseError, match="no lease can be read"):
        write_checkpoint(job.checkpoints, 2, saver(2))


def test_the_later_epoch_clears_what_the_earlier_left_half_written(job):
    stale = job.checkpoints
    stale.begin()
    job.next_epoch()
    folder = job.checkpoints
    write_checkpoint(folder, 2, saver(2))
    assert names(job) == ["00000001"]


def test_an_earlier_epoch_takes_nothing_of_a_later_one_away(job):
    stale = job.checkpoints
    write_checkpoint(stale, 1, saver(1))
    job.next_epoch()
    for steps in (2, 3):
        write_checkpoint(job.checkpoints, steps, saver(steps))
    job.checkpoints.begin()
    stale._clear(1)
    assert names(job) == [".partial-2-00000004", "00000002", "00000003"]


def test_on_a_full_disk_the_last_one_stays_and_the_error_says_so(job):
    write_checkpoint(job.checkpoints, 1, saver(1))

    def save(folder):
        (folder / "small").write_text("fits")
        with open("/dev/full", "w") as full:
            full.write("does not")

    with pytest.raises(
        CheckpointError, match=r"checkpoint of step 2 was not written, that of step 1 stays: .*No space left"
    ):
        write_checkpoint(job.checkpoints, 2, save)
    assert names(job) == ["00000001"]
    assert job.checkpoints.latest().steps == 1


@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_a_disk_that_fails_in_the_commit_leaves_the_last_one(job, monkeypatch, call):
    write_checkpoint(job.checkpoints, 1, saver(1))

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CheckpointError, match="Input/output error"):
        write_checkpoint(job.checkpoints, 2, saver(2))
    monkeypatch.undo()
    assert names(job) == ["00000001"]


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
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
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


@pytest.mark.usefixtures("disk_is_quick")
def test_killed_at_random_while_writing(job):
    """What was said to be committed is there, and whole, in each of forty deaths, and until one came late enough."""
    rng = random.Random(5)
    told = job.folder / "told"
    began = time.monotonic()
    write_checkpoint(job.checkpoints, 1, saver(1, 20_000))
    takes = time.monotonic() - began
    known, deaths = 1, 0
    while deaths < 40 or known == 1:
        deaths += 1
        assert deaths < 1000
        child = os.fork()
        if child == 0:
            try:
                steps = known
                while True:
                    steps += 1
                    write_checkpoint(job.checkpoints, steps, saver(steps, 20_000))
                    told.write_text(f"{steps}")
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0, 5 * takes))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last = job.checkpoints.latest()
        text = told.read_text() if told.exists() else ""
        assert steps_inside(last) == last.steps >= max(known, int(text or 0))
        known = last.steps


def test_the_lock_is_free_when_its_holder_is_killed(job):
    def hold():
        with locked_lease(job.folder):
            kill_this_process()

    assert in_child(hold) == -signal.SIGKILL
    with locked_lease(job.folder, 0.0):
        pass


def test_a_holder_that_is_stopped_is_named_and_an_epoch_waits_for_a_commit(job):
    mark = job.folder / "held"

    def hold():
        with locked_lease(job.folder):
            mark.touch()
            time.sleep(60)

    child = os.fork()
    if child == 0:
        try:
            hold()
        finally:
            os._exit(0)
    wait_until(mark.exists)
    with pytest.raises(LeaseLockedError, match=r"lease\.lock was held for more than 0\.05 s"):
        raise_epoch(job.folder, Grant("a-job", 2), 0.05)
    assert read_file(job.folder / LEASE_FILE, Grant).epoch == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise_epoch(job.folder, Grant("a-job", 2))
    assert read_file(job.folder / LEASE_FILE, Grant).epoch == 2


def test_an_epoch_is_never_lowered_and_may_be_raised_twice(job):
    raise_epoch(job.folder, Grant("a-job", 5, reason="first"))
    raise_epoch(job.folder, Grant("a-job", 5, reason="again"))
    assert read_file(job.folder / LEASE_FILE, Grant).reason == "again"
    with pytest.raises(StaleLeaseError, match="of epoch 5, later than 4"):
        raise_epoch(job.folder, Grant("a-job", 4))


@pytest.mark.usefixtures("disk_is_quick")
def test_two_epochs_that_write_at_once(job):
    """Epochs are raised under a process that commits as fast as it can: what it commits later does not count."""
    for _ in range(10):
        stale = job.checkpoints

        def work(stale=stale):
            for steps in range(1000):
                write_checkpoint(stale, 1000 * stale.epoch + steps, saver(7, 10))

        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        wait_until(lambda epoch=stale.epoch: (last := job.checkpoints.latest()) is not None and last.epoch == epoch)
        job.next_epoch()
        seen = job.checkpoints.latest()
        os.waitpid(child, 0)
        assert job.checkpoints.latest() == seen
        assert seen.epoch == stale.epoch


def test_a_folder_that_is_not_there_yet_is_made(job):
    folder = CheckpointFolder(Path(job.folder / "checkpoint"), "a-job", 1)
    assert folder.latest() is None
    write_checkpoint(folder, 1, saver(1))
    assert folder.latest().steps == 1


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


def test_a_link_to_a_file_counts_as_what_it_leads_to(job):
    outside = job.folder / "outside"
    outside.write_text("weights")
    write_checkpoint(job.checkpoints, 1, saver(1))
    write_checkpoint(job.checkpoints, 2, lambda folder: (folder / "model").symlink_to(outside))
    assert job.checkpoints.latest().steps == 2
    outside.write_text("others")
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


def test_the_lease_of_another_job_commits_nothing(job):
    folder = CheckpointFolder(job.folder / "checkpoint", "another-job", job.grant.epoch)
    with pytest.raises(StaleLeaseError, match="of job a-job; epoch 1 of job another-job commits nothing"):
        write_checkpoint(folder, 1, saver(1))
    assert names(job) == []
