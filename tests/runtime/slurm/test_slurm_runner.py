"""The batch script on its own, without Slurm: which copy may run, and what it says of the end."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Placed, StartOrder
from allocator.runtime.adapters.slurm import runner
from allocator.runtime.adapters.slurm.orders import Start, start_of, write_runner
from tests.runtime.slurm.cluster import LIMIT, wait_until

JOB = "0b6f3c52"


class Folder:
    """A job's folder, and copies of the runner as Slurm would start them."""

    def __init__(self, path):
        self.path, self.copies = path, []

    def order(self, program="print('ran')", epoch=1, lock_seconds=0.3, **others):
        command = (sys.executable, "-c", program)
        order = StartOrder(JOB, epoch, command, Placed("v100", {"v1": (0, 1)}), self.path, self.path, **others)
        write_file(self.path / LEASE_FILE, Grant(JOB, epoch))
        write_runner(self.path)
        self.start = start_of(order)
        self.start.write(order, lock_seconds)
        return self.start

    def begin(self, name=""):
        variables = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "2,3"}
        variables |= {"SLURM_JOB_NAME": name or self.start.name}
        command, how = [self.path / runner.RUNNER_FILE], {"stderr": subprocess.PIPE, "text": True}
        copy = subprocess.Popen(command, cwd=self.path, env=variables, start_new_session=True, **how)
        self.copies.append(copy)
        return copy

    def run(self, **options):
        """Exit status, and what it complains of."""
        copy = self.begin(**options)
        return copy.wait(LIMIT), copy.communicate()[1]

    def refused(self, **options):
        code, complaint = self.run(**options)
        assert code == runner.REFUSED
        return complaint

    def log(self):
        path = self.path / "log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    yield made
    for copy in made.copies:
        with suppress(ProcessLookupError):
            os.killpg(copy.pid, 9)
        copy.wait()
        copy.stderr.close()


def test_it_runs_the_order_once_and_says_how_it_ended(folder):
    start = folder.order("import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(4)")
    assert folder.run() == (4, "")
    how = start.end
    assert (how.code, how.signal, how.reason) == (4, 0, "exit status 4")
    assert Start.read(folder.path) == start
    assert start.begun
    assert "epoch 1 was begun before" in folder.refused()
    assert folder.log() == "2,3\n"


@pytest.mark.exhaustive
def test_one_process_a_gpu(folder):
    program = (
        "import os; os.write(1, b'here\\n'); os.write(1, (os.environ['RANK'] + os.environ['WORLD_SIZE']).encode())"
    )
    folder.order(program, one_process_per_gpu=True)
    assert folder.run() == (0, "")
    assert sorted(folder.log().splitlines()) == ["rank 0: 02", "rank 0: here", "rank 1: 12", "rank 1: here"]
    # one that fails ends the others
    program = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(600)"
    start = folder.order(program, epoch=2, one_process_per_gpu=True)
    assert folder.run()[0] == start.end.code == 7


@pytest.mark.exhaustive
def test_only_the_copy_that_the_order_is_for(folder):
    folder.order()
    assert "allocator-other-1" in folder.refused(name="allocator-other-1")
    assert "no order for the job" in folder.refused(name=f"allocator-{JOB}-2")
    write_file(folder.path / LEASE_FILE, Grant(JOB, 2))
    assert "epoch 1 is stale: the lease is of epoch 2" in folder.refused()
    write_file(folder.path / LEASE_FILE, Grant(JOB, 1))
    assert folder.run() == (0, "")
    assert folder.log() == "ran\n"
    folder.order(epoch=2).erase()
    folder.refused()


def test_a_newer_lease_ends_a_copy_and_the_next_one_waits_for_that(folder):
    first = folder.order("import time; print('first', flush=True); time.sleep(600)")
    old = folder.begin()
    wait_until(lambda: folder.log() == "first\n", "it runs")
    assert "another copy still runs" in folder.refused()
    folder.order("print('second')", epoch=2, lock_seconds=LIMIT)
    assert folder.run() == (0, "")
    assert old.wait(LIMIT) == runner.REFUSED
    assert folder.log() == "first\nsecond\n"
    assert first.end is None, "what a stale copy has to say does not count"


@pytest.mark.exhaustive
def test_the_lock_is_held_until_the_last_process_is_gone(folder):
    folder.order("import time; print('runs', flush=True); time.sleep(600)")
    copy = folder.begin()
    wait_until(lambda: folder.log() == "runs\n", "it runs")
    copy.kill()
    copy.wait()
    folder.order(epoch=2)
    assert "another copy still runs" in folder.refused()


@pytest.mark.exhaustive
def test_a_kill_ends_processes_that_hide(folder):
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    start = folder.order(program)
    copy = folder.begin()
    wait_until(lambda: folder.log().strip().isdecimal(), "it hides")
    start.order_kill()
    assert copy.wait(LIMIT) == 137
    assert (start.end.code, start.end.signal) == (137, 9)
    assert not Path("/proc", folder.log().strip()).exists()
    assert start.kill_ordered
    assert not folder.order(epoch=2).kill_ordered, "a kill is of its epoch"
