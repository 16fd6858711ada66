"""The commands as users give them: what they print, how they end, and that they outlive a restart of the service."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.cli.service.tables import jobs_table, service_lines
from allocator.runtime.door.client import Client, NoServiceError

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def start(*arguments, **more):
    """A command under way."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "allocator", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def told(*arguments):
    """Exit status, output and errors of a command."""
    with start(*arguments) as command:
        output, errors = command.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    return command.returncode, output, errors


def serve(state):
    """A service that answers."""
    service = start("serve", "--state", str(state), "--virtual", "v100:2", "--round", "5")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(NoServiceError):
            Client(state).ask("status", jobs=[])
            return service
        assert service.poll() is None, service.communicate()
        time.sleep(0.05)
    raise AssertionError("no service")


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    yield folder
    with suppress(NoServiceError):
        client = Client(folder)
        client.ask("cancel", jobs=[job["id"] for job in client.ask("status", active=True)["jobs"]])
        deadline = time.monotonic() + PATIENCE
        while client.ask("status", active=True)["jobs"] and time.monotonic() < deadline:
            time.sleep(0.1)
        client.ask("stop")


COUNTING = "import time\nfor n in range(10 ** 6): print('line', n, flush=True); time.sleep(0.02)"


def test_commands_that_follow_outlive_a_restart_of_the_service(state):
    service = serve(state)
    client = Client(state)
    command = [sys.executable, "-c", COUNTING]
    client.ask("submit", jobs=[{"command": one, "working_directory": "/"} for one in (command, ["true"])])
    place = ("--state", str(state))
    with start("wait", *place, "--check") as waiting, start("logs", *place, "-f", "0") as following:
        # two commands from beginning to end: those that follow have met the service by then
        for _ in range(2):
            code, output, _ = told("wait", *place, "1", "--json")
            assert (code, json.loads(output)["jobs"][0]["state"]) == (0, "completed")
        assert following.stdout is not None
        lines = [following.stdout.readline() for _ in range(20)]
        service.kill()
        service.communicate()
        code, _, errors = told("cancel", *place, "0")
        assert code == 1
        assert errors == f"error: no service runs on {state}; start one with allocator serve --state {state}\n"
        time.sleep(1.0)
        again = serve(state)
        assert waiting.poll() is None
        code, output, _ = told("cancel", *place, "0", "1")
        assert (code, output) == (0, "job 0 cancelled\njob 1 was through before\n")
        _, errors = waiting.communicate(timeout=PATIENCE)
        assert waiting.returncode == 1
        assert errors == "job 0 cancelled\n"
        lines += following.stdout.readlines()
        assert following.wait(PATIENCE) == 0
    assert lines == [f"line {n}\n" for n in range(len(lines))]
    code, output, _ = told("status", *place)
    assert code == 0
    assert "1 cancelled, 1 completed" in output
    code, _, errors = told("logs", *place)
    assert (code, errors) == (0, "job 1, true, completed:\njob 1 has printed nothing so far; it is completed\n")
    code, _, errors = told("drain", *place, "local-v10")
    assert (code, errors) == (2, "error: request: field 'node': found 'local-v10', expected one of local-v100\n")
    code, _, errors = told("wait", *place, "7")
    assert (code, errors) == (2, "error: request: field 'jobs': found 7, expected the number of a job, from 0 to 1\n")
    again.send_signal(signal.SIGTERM)
    _, errors = again.communicate(timeout=PATIENCE)
    assert (again.returncode, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_service_that_serves_and_leave_its_jobs(state, number):
    service = serve(state)
    Client(state).ask("submit", jobs=[{"command": ["sleep", "600"], "working_directory": "/"}])
    deadline = time.monotonic() + PATIENCE
    while Client(state).ask("status")["jobs"][0]["state"] != "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    service.send_signal(number)
    output, errors = service.communicate(timeout=PATIENCE)
    assert (service.returncode, errors) == (0, "")
    assert "jobs run on" in output
    assert not (state / "socket").exists()
    serve(state)
    (job,) = Client(state).ask("status")["jobs"]
    assert (job["state"], job["epoch"]) == ("running", 1)


@pytest.mark.exhaustive
def test_signals_at_any_moment_of_a_start(state):
    """No traceback, no service that stays, and the next one serves."""
    draw = random.Random(0)
    for number in (signal.SIGTERM, signal.SIGINT) * 6:
        service = start("serve", "--state", str(state), "--virtual", "v100:2")
        time.sleep(draw.random() * 3.0)
        service.send_signal(number)
        _, errors = service.communicate(timeout=PATIENCE)
        # while Python itself is starting, nobody can catch it
        assert "Traceback" not in errors or errors.endswith("KeyboardInterrupt\n")
    serve(state)


def view(number, **more):
    shown = {"id": number, "name": "train.py", "state": "running", "gpus": 1, "accelerator": "v100", "steps": 12.0}
    times = {"waited_seconds": 44.0, "run_seconds": 9000.0, "seconds_left": 400.0}
    none = {"deadline": None, "met": None, "due_in": None, "finished_at": None, "reckoned": False, "unsaved_stops": 0}
    return shown | times | none | {"total_steps": 200_000.0, "reason": ""} | more


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_says_why(width):
    from rich.console import Console

    why = "failed 5 times without a newly saved step in between, the last time: not found: the command x, " + "y" * 300
    jobs = [view(12_345, name="train_resnet_imagenet.py"), view(2, state="failed", reason=why, name="a [bold]name")]
    screen = Console(width=width, file=io.StringIO())
    screen.print(jobs_table(jobs, width))
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert "train_resnet_imagenet.py" in text
    assert "a [bold]name" in text
    words = " ".join(text.split())
    assert "12/200000" in words
    if width == 80:
        assert "job 2: failed 5 times without a newly saved step in between, the last time: not found" in words


def test_the_lines_above_the_table_say_what_is_wrong():
    node = {"name": "n[v]", "accelerator": "v100", "gpus": 2, "state": "drained", "reason": "", "jobs": [[3], []]}
    other = node | {"name": "m", "state": "up", "jobs": [[], [4]]}
    told = {"policy": "fifo", "counts": {"queued": 0, "running": 2}, "nodes": [node, other], "trouble": "[disk] full"}
    assert service_lines(told | {"deadlines": {"met": 3, "missed": 1}}) == [
        "fifo: 1 of 2 GPUs busy; jobs: 2 running",
        "[yellow]node n\\[v] is drained[/]; 1 of its GPUs are still busy",
        "deadlines of jobs that are through: 3 met, 1 missed",
        "[red]trouble:[/] \\[disk] full",
    ]


@pytest.mark.parametrize("command", [["status"], ["cancel", "0"], ["admit", "--job-type", "x", "--steps", "3"]])
def test_no_folder_is_not_the_working_folder(command: list[str]) -> None:
    code, output, errors = told(*command, "--state", "")
    assert (code, output) == (2, "")
    assert "--state" in errors
    assert "''" in errors
