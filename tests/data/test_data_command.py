"""``allocator data`` as a user runs it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from allocator import cli
from allocator.data import (
    CACHE_VARIABLE,
    datasets,
    find,
    path_of,
)
from tests.data.local_server import CONTENT, PATIENCE, SHA256


def run(*arguments, cache, check=True, wait=True):
    command = [sys.executable, "-m", "allocator", "data", *map(str, arguments)]
    environment = os.environ | {CACHE_VARIABLE: str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if not wait:
        return process
    out, err = process.communicate(timeout=PATIENCE)
    assert not check or process.returncode == 0, err
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.exhaustive
def test_two_processes_fetch_at_once(server, tmp_path):
    name = "simulation_throughputs.json"  # its right hash is unknown, so anything will do
    server.behaviour.files = {f"/gavel-throughputs/{name}": CONTENT}
    server.behaviour.pause = threading.Event()
    arguments = ("fetch", "gavel-throughputs", "--file", name, "--url-base", server.url)
    first, second = (run(*arguments, cache=tmp_path, wait=False) for _ in range(2))
    told = threading.Event()
    lines: list[str] = []

    def listen(process):
        for line in process.stderr:
            lines.append(line)
            told.set()

    listeners = [threading.Thread(target=listen, args=(process,), daemon=True) for process in (first, second)]
    for listener in listeners:
        listener.start()
    assert told.wait(PATIENCE)  # one of them found the other at it
    server.behaviour.pause.set()
    for process in (first, second):
        assert f"it has {SHA256}" in process.stdout.read()
        assert process.wait(PATIENCE) == 0
    assert len(server.behaviour.requests) == 1
    assert path_of(f"gavel-throughputs/{name}", cache=tmp_path).read_bytes() == CONTENT


@pytest.mark.exhaustive
def test_a_killed_process_leaves_no_lock(server, tmp_path):
    server.behaviour.files = {"/gavel-throughputs/simulation_throughputs.json": CONTENT}
    server.behaviour.pause = threading.Event()
    arguments = ("fetch", "gavel-throughputs", "--file", "simul*", "--url-base", server.url)
    process = run(*arguments, cache=tmp_path, wait=False)
    part = tmp_path / "gavel-throughputs" / "simulation_throughputs.json.part"
    deadline = time.monotonic() + PATIENCE
    while not part.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert part.exists()
    server.behaviour.pause.set()
    assert SHA256 in run(*arguments, cache=tmp_path).stdout
    assert not part.exists()


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys):
    """Runs a command in this process."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))

    def run_here(*arguments):
        monkeypatch.setattr("sys.argv", ["allocator", "data", *arguments])
        code = 0
        try:
            code = cli.main() or 0
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run_here


def test_commands(server, tmp_path, ran):
    listed = {entry["name"]: entry for entry in json.loads(ran("list", "--json").stdout)}
    assert len(listed) == len(datasets())
    assert listed["philly"]["files"][0]["sha256"] == find("philly").files[0].sha256
    shown = ran("list", "gavel-throughputs").stdout
    assert "SHA-256 unknown" in shown
    assert find("gavel-throughputs").files[0].url in shown

    server.behaviour.files = {
        "/gavel-throughputs/simulation_throughputs.json": b"{}",
        "/gavel-throughputs/physical_cluster_throughputs.json": b"{ }",
    }
    done = ran("fetch", "gavel-throughputs", "--url-base", server.url)
    assert "licence: MIT" in done.stdout
    assert hashlib.sha256(b"{ }").hexdigest() in done.stdout  # nobody knows the right one: say the one it has
    assert done.stderr == ""
    reports = json.loads(ran("verify", "--json").stdout)
    assert [report["state"] for report in reports] == ["unchanged", "unchanged"]
    (tmp_path / "gavel-throughputs" / "simulation_throughputs.json").write_bytes(b"[]")
    wrong = ran("verify")
    assert wrong.returncode == 1
    assert "run `allocator data fetch gavel-throughputs`" in wrong.stdout
    for arguments, code, told in (
        (("fetch", "philly", "--url-base", server.url), 1, "404"),
        (("fetch", "phily"), 2, "'philly'"),
        (("list", "../outside"), 2, "'../outside'"),
    ):
        done = ran(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert told in done.stderr
