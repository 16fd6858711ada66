"""The batch script on its own, without Slurm: which copy may run, and what it says of the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import StartOrder
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.orders import (
    Ended,
    Mark,
    Start,
    begun_epoch,
    ended,
    job_name,
    kill_ordered,
    mark_of,
    order_kill,
    read_start,
    write_runner,
    write_start,
)
from tests.runtime.slurm.cluster import wait_until

JOB = "0b6f3c52"


class Folder:
    """A job's folder, and copies of the runner as Slurm would start them."""

    def __init__(self, path):
        self.path = path
        self._copies = []

    def order(self, program, epoch=1, restarts=0, **others):
        command = (sys.executable, "-c", program)
        order = StartOrder(JOB, epoch, command, {"v1": (0, 1)}, "v100", self.path, self.path, **others)
        write_file(self.path / LEASE_FILE, Grant(JOB, epoch))
        write_runner(self.path, sys.executable)
        return write_start(order, mark_of(order, restarts), lock_seconds=0.3)

    def begin(self, restarts=0, name=job_name(JOB)):
        variables = {"SLURM_JOB_NAME": name, "SLURM_RESTART_COUNT": str(restarts), "CUDA_VISIBLE_DEVICES": "2,3"}
        copy = subprocess.Popen(
            [self.path / runner.RUNNER_FILE],
            cwd=self.path,
            env={"PATH": os.environ["PATH"]} | variables,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._copies.append(copy)
        return copy

    def run(self, **options):
        copy = self.begin(**options)
        return copy.wait(60), copy.communicate()[1]

    def log(self):
        path = self.path / "log"
        return path.read_text() if path.exists() else ""

    @contextmanager
    def closing(self):
        try:
            yield self
        finally:
            for copy in self._copies:
                with suppress(ProcessLookupError):
                    os.killpg(copy.pid, 9)
                copy.wait()
                assert copy.stderr is not None
                copy.stderr.close()


@pytest.fixture
def folder(tmp_path):
    with Folder(tmp_path).closing() as made:
        yield made


def test_it_runs_the_order_and_says_how_it_ended(folder):
    start = folder.order("import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(4)")
    assert folder.run() == (4, "")
    assert folder.log() == "2,3\n"
    how = ended(start)
    assert how is not None
    assert (how.code, how.signal, how.reason) == (4, 0, "exit status 4")
    assert read_start(folder.path) == start
    assert json.loads((folder.path / runner.RUN_FILE).read_text())["epoch"] == 1


def test_one_process_a_gpu(folder):
    program = (
        "import os; os.write(1, b'here\\n'); os.write(1, (os.environ['RANK'] + os.environ['WORLD_SIZE']).encode())"
    )
    folder.order(program, one_process_per_gpu=True)
    assert folder.run() == (0, "")
    assert sorted(folder.log().splitlines()) == ["rank 0: 02", "rank 0: here", "rank 1: 12", "rank 1: here"]


def test_one_process_that_fails_ends_the_others(folder):
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(60)"
    start = folder.order(program, one_process_per_gpu=True)
    assert folder.run()[0] == 7
    how = ended(start)
    assert how is not None
    assert how.code == 7


def test_an_epoch_is_begun_once(folder):
    folder.order("print('ran')")
    assert folder.run()[0] == 0
    code, complaint = folder.run()
    assert code == runner.REFUSED
    assert "epoch 1 was begun before" in complaint
    assert folder.log() == "ran\n"


def test_only_the_copy_that_the_order_is_for(folder):
    folder.order("print('ran')", restarts=2)
    assert "queued the job again 3 times, and the order is for 2" in folder.run(restarts=3)[1]
    assert "no order for the job allocator-other" in folder.run(name="allocator-other", restarts=2)[1]
    assert folder.run(restarts=2) == (0, "")
    assert folder.log() == "ran\n"


def test_without_an_order_nothing_runs(folder):
    folder.order("print('ran')")
    (folder.path / runner.START_FILE).unlink()
    assert folder.run()[0] == runner.REFUSED


def test_a_newer_lease_forbids_the_start(folder):
    folder.order("print('ran')")
    write_file(folder.path / LEASE_FILE, Grant(JOB, 2))
    assert "epoch 1 is stale: the lease is of epoch 2" in folder.run()[1]


def test_a_newer_lease_ends_a_copy_and_the_next_one_waits_for_that(folder):
    first = folder.order("import time; print('first', flush=True); time.sleep(60)")
    old = folder.begin()
    wait_until(lambda: folder.log() == "first\n", "it runs")
    assert "another copy still runs" in folder.run()[1]
    folder.order("print('second')", epoch=2, restarts=1)
    write_start_again(folder, lock_seconds=30.0)
    assert folder.run(restarts=1) == (0, "")
    assert old.wait(30) == runner.REFUSED
    assert folder.log() == "first\nsecond\n"
    assert ended(first) is None, "what a stale copy has to say does not count"


def write_start_again(folder, lock_seconds):
    path = folder.path / runner.START_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lock_seconds": lock_seconds}))


def test_the_lock_is_held_until_the_last_process_is_gone(folder):
    folder.order("import time; print('runs', flush=True); time.sleep(60)")
    copy = folder.begin()
    wait_until(lambda: folder.log() == "runs\n", "it runs")
    copy.kill()
    copy.wait()
    folder.order("print('second')", epoch=2)
    assert "another copy still runs" in folder.run()[1]


def test_a_kill_ends_processes_that_hide(folder):
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    start = folder.order(program)
    copy = folder.begin()
    wait_until(lambda: folder.log().strip().isdecimal(), "it hides")
    order_kill(start)
    assert copy.wait(30) == 137
    how = ended(start)
    assert how is not None
    assert (how.code, how.signal) == (137, 9)
    assert not Path("/proc", folder.log().strip()).exists()


def test_a_full_log_does_not_hold_the_command_up(folder):
    folder.order("print('x' * 300_000)", log_bytes=1000)
    assert folder.run() == (0, "")
    assert len(folder.log()) <= 500


def test_marks_are_read_as_they_are_written():
    mark = Mark(JOB, 3, 1, 2, 4)
    assert str(mark) == f"allocator:{JOB}:3:1:2x4"
    assert Mark.read(str(mark)) == mark
    for comment in (
        "",
        "allocator",
        f"other:{JOB}:3:1:2x4",
        f"allocator:{JOB}:3:one:2x4",
        f"allocator:{JOB}:3:1:2x4:5",
    ):
        assert Mark.read(comment) is None


def test_orders_are_private_and_a_kill_is_of_its_epoch(tmp_path):
    folder = Folder(tmp_path)
    first = folder.order("")
    assert (tmp_path / runner.START_FILE).stat().st_mode & 0o077 == 0
    order_kill(first)
    assert kill_ordered(first)
    assert not kill_ordered(folder.order("", epoch=2))


def test_a_copy_that_is_behind_the_order_does_not_run(tmp_path):
    folder = Folder(tmp_path)
    folder.order("open('ran', 'w')", restarts=1)
    copy = folder.begin(restarts=0)
    assert "the order is for 1" in copy.communicate()[1]
    assert copy.returncode == runner.REFUSED
    assert not (tmp_path / "ran").exists()


def test_what_stands_in_the_place_of_files_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = Folder(tmp_path).order("")
    for name in (runner.EXIT_FILE, runner.RUN_FILE):
        os.mkfifo(name)
        assert runner.read(name) == {}
        assert ended(start) is None
        assert begun_epoch(start) == -1
        os.unlink(name)
    Path(runner.EXIT_FILE).write_text('{"epoch": 1, "code": [], "signal": {}, "ended_at": NaN}')
    assert ended(start) == Ended(None, 0, "None", 0.0)
    Path(runner.START_FILE).write_text('{"mark": "allocator:a:1:0:1x1", "node_names": 7}')
    assert read_start(tmp_path) == Start(Mark("a", 1, 0, 1, 1), tmp_path)
