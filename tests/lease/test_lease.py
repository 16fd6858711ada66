"""The lease in a training loop, with the scheduler's part written by hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from allocator.lease import CheckpointError, Lease, LeaseLockedError, StaleLeaseError, locked_lease, reporter
from allocator.lease.files import REPORT_FILE, Report, read_file
from allocator.lease.lease import REPORT_SECONDS
from allocator.lease.watch import LOOK_SECONDS, LeaseWatch
from tests.lease.jobs import PATIENCE, ROOT, Job, in_child, wait_until


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def lease(job):
    """A lease in this process, which gives SIGTERM back."""
    lease = Lease(environment=job.environment)
    yield lease
    lease.close()


def save_steps(lease):
    return lambda folder: (folder / "steps").write_text(str(lease.steps))


def fail(_):
    raise AssertionError("not to be called")


def notice():
    """Let so much time pass that the next boundary looks at the file."""
    time.sleep(1.2 * LOOK_SECONDS)


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock for the lease that stands still unless a test moves it; given before the lease."""
    there = SimpleNamespace(**vars(time) | {"now": 1000.0})
    there.monotonic = lambda: there.now
    monkeypatch.setattr("allocator.lease.lease.time", there)
    return there


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


def test_the_steps_of_a_job_end_its_loops_everywhere():
    lease = Lease(5, environment={})
    assert [batch for _ in range(3) for batch in lease(range(2))] == [0, 1, 0, 1, 0]


def test_the_import_is_quick_and_takes_nothing_along():
    code = "import sys, allocator.lease; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    assert not tops & {"numpy", "pandas", "scipy", "torch", "transformers", "asyncio", "typer", "rich", "throughputs"}
    code = "import time; t = time.process_time(); import allocator.lease; print(time.process_time() - t)"
    seconds = min(
        float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)
        for _ in range(5)
    )
    # a tenth of what `import allocator` may take; benchmarks measure it
    assert seconds < 0.15


# A loop under a lease.


def test_a_loop_runs_through_and_reports(job, lease):
    assert job.report.state == "starting"
    lease.total_steps = 4
    for _ in lease(range(10)):
        time.sleep(0.01)
    assert lease.steps == 4
    report = job.report
    assert (report.state, report.steps, report.total_steps, report.epoch) == ("done", 4, 4, 1)
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
                job.write(ends=True, reason="another job has its turn")
                notice()
            if inside:
                assert lease.checkpoint_if_ending(save_steps(lease)) == ((epoch, batch) == (1, 1))
    assert lease.checkpoint_if_ending(fail if inside else save_steps(lease))
    lease.done()
    report = job.report
    assert (report.state, report.message, report.steps) == ("ending", "another job has its turn", 12)
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
    job.write(ends=True)
    wait_until(lambda: lease.ending)
    assert job.report.state == "starting"
    assert lease.poll()
    assert job.report.state == "ending"
    assert list(lease(range(3))) == []


def test_loops_without_an_iterable(job, lease):
    while not lease.step(5):
        if lease.steps == 10:
            job.write(ends=True)
            notice()
    assert lease.steps == 15


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


def test_the_first_step_is_reported_at_once(job, monkeypatch):
    monkeypatch.setattr("allocator.lease.lease.REPORT_SECONDS", 1000.0)
    lease = Lease(environment=job.environment)
    lease.step()
    wait_until(lambda: job.report.state == "training")
    assert job.report.steps == 1
    lease.close()


def test_a_checkpoint_takes_no_time_of_training(clock, lease):
    def save(_):
        clock.now += 60.0

    lease.step()
    lease.step()
    before = lease._trained_seconds
    lease.checkpoint(save)
    clock.now += 0.25
    lease.step()
    assert lease._trained_seconds - before == 0.25


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


# Renewals, epochs, signals.


def test_the_end_is_noticed_soon(job, clock, lease):
    ended = float("inf")
    for steps in lease(range(10**6)):
        clock.now += 0.001
        if steps == 100:
            job.write(ends=True)
            ended = clock.now
    assert clock.now - ended <= LOOK_SECONDS + 0.002


def test_a_lease_that_is_not_renewed_in_time_ends(job, clock, lease):
    job.write(seconds=0.4)
    began = renewed = clock.now
    for _ in lease(range(10**6)):
        clock.now += 0.001
        if clock.now - began > 0.2 and job.grant.serial < 3:
            job.write()
            renewed = clock.now
    assert renewed > began + 0.2
    # what is written is read at the next look, and that the time is over is seen at one
    assert 0.4 <= clock.now - renewed <= 0.4 + 2 * LOOK_SECONDS + 0.002
    assert job.report.message == "the lease was not renewed in time"


def test_a_lease_with_a_term_counts_from_when_it_was_read(job):
    watch = LeaseWatch(job.folder, job.grant.job, job.grant.epoch)
    job.write(seconds=0.4)
    assert not watch.look(100.0)
    assert not watch.look(100.35)
    job.write()
    assert not watch.look(100.4 + LOOK_SECONDS)
    assert not watch.look(100.75)
    job.write()
    assert not watch.look(101.0 - LOOK_SECONDS)
    # nothing new from here on
    assert not watch.look(101.3)
    assert watch.look(101.4)
    watch.close()


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
        assert (job.report.state, job.report.message, job.report.steps) == ("ending", "SIGTERM", 5)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is interrupt
        lease.close()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_signals_are_left_alone(job):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def train():
        lease = Lease(environment=job.environment)
        seen.extend(lease(range(3)))
        lease.close()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [0, 1, 2]
    assert signal.getsignal(signal.SIGTERM) is before


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


def test_a_process_killed_in_training_leaves_its_report(job):
    process = job.start(["-c", TRAINER, "1000000"])
    wait_until(lambda: job.reported(steps=10), process)
    process.kill()
    process.wait()
    assert read_file(job.folder / REPORT_FILE, Report).state == "training"


def test_the_last_steps_are_reported_when_the_process_ends(job):
    code = "from allocator.lease import Lease\nfor _ in Lease()(range(50)): pass"
    process = job.start(["-c", code])
    assert process.wait(PATIENCE) == 0, process.communicate()[0]
    assert (job.report.state, job.report.steps) == ("training", 50)


def test_keyboard_interrupts_come_through(job):
    process = job.start(["-c", TRAINER, "1000000"])
    wait_until(lambda: job.reported(steps=1), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    assert "KeyboardInterrupt" in process.communicate()[0]


def test_a_step_costs_less_than_twenty_microseconds(lease):
    """The whole of it, looks and reports included, beside the same loop without a lease."""
    steps = 100_000

    def seconds(batches):
        began = time.process_time()
        for _ in batches:
            pass
        return time.process_time() - began

    plain = min(seconds(iter(range(steps))) for _ in range(3))
    leased = min(seconds(lease(iter(range(steps)))) for _ in range(3))
    assert (leased - plain) / steps < 20e-6
