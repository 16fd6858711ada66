"""Services that cannot start or are away: what they leave, what is said, and who waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from allocator.cli.service.asking import asked_or_read
from allocator.runtime.door import client as door
from allocator.runtime.door.client import AbsentError, Client, NoServiceError
from tests.runtime.small_disks import small_disk_at
from tests.runtime.test_commands import serve, told
from tests.runtime.test_real_faults import fill
from tests.runtime.test_requests import GOOD, Serving
from tests.runtime.test_stopped import ended


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--policy", "nope"], "nope"),
        (["--set", "policy.colour=red"], "colour"),
        (["--virtual", "v100:x"], "v100:x"),
        (["--throughputs", "/nowhere.csv"], "/nowhere.csv"),
        (["--adapter", "punch cards"], "punch cards"),
        (["--grace", "-1"], "grace"),
    ],
)
def test_a_service_that_is_refused_leaves_no_folder(tmp_path, wrong, named):
    code, output, errors = told("serve", "--state", str(tmp_path / "state"), *wrong)
    assert (code, output) == (2, "")
    assert named in errors
    assert not (tmp_path / "state").exists()


def test_the_page_without_its_packages_is_refused_before_anything_else(tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    options = ["--state", str(tmp_path / "state"), "--virtual", "v100:1", "--web", f"unix:{tmp_path}/web"]
    done = subprocess.run(
        [sys.executable, "-m", "allocator", "serve", *options],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --web: ")
    assert "uvicorn" in done.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("room", [0, 8, 64])
def test_a_start_on_a_full_disk_is_refused_in_one_line_and_may_be_tried_again(tmp_path, room):
    """With `room` KiB."""
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        (disk / "room").write_bytes(b"r" * 1024 * room)
        fill(disk / "filler")
        (disk / "room").unlink()
        code, output, errors = told("serve", "--state", str(disk / "state"), "--virtual", "v100:2")
        assert code in (1, 2)
        assert (output, errors.count("\n")) == ("", 1)
        assert "full" in errors or "No space" in errors
        (disk / "filler").unlink()
        service = serve(disk / "state")
        Client(disk / "state").ask("stop")
        assert service.wait(60) == 0


@pytest.mark.parametrize("killed", [False, True])
def test_a_stopped_service_answers_from_a_disk_that_cannot_be_written_to(tmp_path, killed):
    with small_disk_at(tmp_path / "disk", "8m") as disk:
        (disk / "state").mkdir()
        ended(disk / "state", killed=killed)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert len(asked_or_read(disk / "state", "status")["jobs"]) == 7
        assert asked_or_read(disk / "state", "history", last=3)["events"]


def later(act):
    def work():
        time.sleep(0.3)
        act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_who_follows_waits_for_a_service_that_has_run(tmp_path, capsys):
    with Serving(tmp_path):
        Client(tmp_path).ask("submit", jobs=[GOOD])
    again = Serving(tmp_path)
    thread = later(again.__enter__)
    # it has never met the service
    assert len(Client(tmp_path).follow("status")["jobs"]) == 1
    thread.join()
    again.__exit__()
    _, errors = capsys.readouterr()
    assert errors.count("\n") == 1
    assert str(tmp_path) in errors


def test_nobody_waits_where_none_has_run_nor_for_ever(tmp_path, monkeypatch):
    with pytest.raises(AbsentError):
        Client(tmp_path).follow("status")
    monkeypatch.setattr(door, "_ABSENCE", 0.3)
    with Serving(tmp_path):
        pass
    with pytest.raises(NoServiceError, match="allocator serve --state"):
        Client(tmp_path).follow("status")
