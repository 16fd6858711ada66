"""Commands in processes of their own: how they end, what they outlive, and what a service that starts again keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.cli import main
from allocator.cli.options.groups import Given
from allocator.cli.service.jobs import _harmless
from allocator.cli.service.options import asked_or_read
from allocator.cli.service.serve_options import Told
from allocator.runtime.door import client as door
from allocator.runtime.door.client import AbsentError, Client, NoServiceError
from allocator.runtime.records.journal import Journal
from tests.runtime.test_requests import GOOD, Serving
from tests.runtime.worlds import PATIENCE
from throughputs import InputError

ROOT = Path(__file__).parents[2]


def start(*arguments, how=("-m", "allocator")):
    """A command under way."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *how, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(*arguments):
    """Exit status, output and errors of a command."""
    with start(*arguments) as command:
        output, errors = command.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    return command.returncode, output, errors


def serve(state, *options):
    """A service that answers."""
    service = start("serve", "--state", state, *(options or ("--virtual", "v100:2", "--round", "5")))
    while True:
        with suppress(NoServiceError):
            Client(state).ask("status", jobs=[])
            return service
        assert service.poll() is None, service.communicate()
        time.sleep(0.1)


def stopped(service, number=signal.SIGTERM):
    """What a service has printed that is told to end."""
    service.send_signal(number)
    output, errors = service.communicate(timeout=PATIENCE)
    assert (service.returncode, errors) == (0, "")
    return output


@pytest.fixture
def in_process(monkeypatch, capsys):
    """Runs a command that ends with a status."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["allocator", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
def test_signals_end_a_service_that_serves_and_leave_its_jobs(tmp_path, number):
    service, client = serve(tmp_path), Client(tmp_path)
    client.ask("submit", jobs=[{"command": ["sleep", "20"], "working_directory": "/"}])
    while client.ask("status")["jobs"][0]["state"] != "running":
        time.sleep(0.1)
    assert "jobs run on" in stopped(service, number)
    assert not (tmp_path / "socket").exists()
    (job,) = asked_or_read(tmp_path, "status")["jobs"]
    assert (job["state"], job["epoch"]) == ("running", 1)
    if number == signal.SIGINT:
        service = serve(tmp_path)
        (job,) = client.ask("status")["jobs"]
        assert (job["state"] in ("running", "completed"), job["epoch"]) == (True, 1)
        client.ask("stop")
        assert service.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--policy", "nope"], "nope"),
        (["--set", "policy.colour=red"], "colour"),
        (["--virtual", "v100:x"], "v100:x"),
        (["--throughputs", "/nowhere.csv"], "/nowhere.csv"),
        (["--adapter", "punch cards"], "punch cards"),
        (["--grace", "-1"], "grace"),
        (["--web", "127.0.0.1:8080"], "--tls-cert"),
        (["--state", ""], "--state"),
    ],
)
def test_a_service_that_is_refused_leaves_no_folder(tmp_path, in_process, wrong, named):
    code, output, errors = in_process("serve", "--state", tmp_path / "state", *wrong)
    assert (code, output) == (2, "")
    assert named in errors
    assert not (tmp_path / "state").exists()


def test_who_follows_waits_for_a_service_that_has_run(tmp_path, capsys):
    with Serving(tmp_path):
        Client(tmp_path).ask("submit", jobs=[GOOD])
    again = Serving(tmp_path)
    thread = threading.Timer(0.3, again.__enter__)
    thread.start()
    # it has never met the service
    assert len(Client(tmp_path).follow("status")["jobs"]) == 1
    thread.join()
    again.__exit__()
    _, errors = capsys.readouterr()
    assert errors.count("\n") == 1
    assert str(tmp_path) in errors


def test_copies_are_submitted_once_though_the_service_is_killed_meanwhile(tmp_path, monkeypatch, in_process):
    ask, sent = Client.ask, []

    def killed(client, what, **fields):
        answer = ask(client, what, **fields)
        sent.append(what)
        if sent.count("submit") == 1 and what == "submit":
            raise AbsentError("ended before it had answered")
        return answer

    with Serving(tmp_path):
        monkeypatch.setattr(Client, "ask", killed)
        _, output, _ = in_process("submit", "--state", tmp_path, "--copies", "5", "--", "true")
        assert output.split("\n")[:5] == [f"job {number}" for number in range(5)]
        assert sent.count("submit") == 2
        monkeypatch.setattr(Client, "ask", ask)
        assert [job["id"] for job in Client(tmp_path).ask("status")["jobs"]] == [0, 1, 2, 3, 4]
    code, _, errors = in_process("submit", "--state", tmp_path, "--", "true")
    assert (code, "allocator serve --state" in errors) == (1, True)


def test_nobody_waits_where_none_has_run_nor_for_ever(tmp_path, monkeypatch, in_process):
    with pytest.raises(AbsentError):
        Client(tmp_path).follow("status")
    # as of a service that was started with a policy that there is not
    Journal(tmp_path).close()
    with pytest.raises(AbsentError, match="no service has run"):
        asked_or_read(tmp_path, "status")
    code, _, errors = in_process("wait", "--state", tmp_path, "--timeout", "0.2s")
    assert (code, "not through after 0.2s: no service runs" in errors) == (2, True)
    monkeypatch.setattr(door, "_ABSENCE", 0.3)
    with Serving(tmp_path):
        pass
    with pytest.raises(NoServiceError, match="allocator serve --state"):
        Client(tmp_path).follow("status")


def test_what_a_job_prints_does_not_steer_a_terminal():
    printed = b"\x1b[31mred\x1b[0m 50%\r100%\n\x1b]0;title\x07\x1b[2J\xff"
    assert _harmless(printed) == b"\x1b[31mred\x1b[0m 50%\r100%\n\\x1b]0;title\\x07\\x1b[2J\xff"


FIRST = Told.of_events(None, None)


def after(told, **said):
    """After another start, by way of the journal's JSON."""
    told = told.after(Given(said))
    policy = {"name": told.policy, "settings": dict(told.policy_settings)}
    return Told.of_events(json.loads(json.dumps(told.options)), json.loads(json.dumps(policy)))


def test_what_is_not_said_stays():
    first = after(FIRST, virtual="v100:2", round_seconds=5.0, policy="max_min_fairness", early_dispatch=False)
    assert after(first) == first
    assert first.words() == ["--virtual v100:2", "--round 5", "--whole-rounds"]
    second = after(first, round_seconds=7.0, hang_seconds=60.0)
    assert second.words() == ["--virtual v100:2", "--round 7", "--whole-rounds", "--hang 60"]
    assert second.policy == "max_min_fairness"


def test_settings_are_kept_by_name_and_another_policy_begins_with_its_own():
    said = ["policy.choice=published", "idle_fill=off", "placement=buddy"]
    first = after(FIRST, policy="max_min_fairness", settings=said)
    second = after(first, settings=["idle_fill=best_type"])
    assert second.settings == ["idle_fill=best_type", "placement=buddy", "policy.choice=published"]
    third = after(second, policy="fifo", settings=["policy.choice=balanced"])
    assert third.policy_settings == {"choice": "balanced"}
    assert after(third, policy="srtf").policy_settings == {}
    # the option of a setting takes its place
    assert after(after(FIRST, settings=["round_seconds=5"]), round_seconds=7.0).settings == []
    assert after(third, choice="published").policy_settings == {}


def test_paths_are_found_again_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = FIRST.after(Given(throughputs="table.csv", web="unix:web", token_file="t"))
    assert told.path("throughputs") == tmp_path / "table.csv"
    assert told.options["web"] == f"unix:{tmp_path}/web"
    assert told.path("token_file") == tmp_path / "t"
    # those in the state folder move with it
    kept = json.loads(json.dumps(told.kept(tmp_path)))
    moved = Told.of_events(kept, None, tmp_path / "moved")
    assert (moved.options["web"], moved.path("token_file")) == (f"unix:{tmp_path}/moved/web", tmp_path / "moved" / "t")
    assert Told.of_events(told.kept(tmp_path / "state"), None, tmp_path / "moved") == told
    with pytest.raises(InputError, match="--throughputs"):
        told.check_files()
    (tmp_path / "table.csv").touch()
    told.check_files()


def test_another_kind_of_cluster_begins_without_the_options_of_the_one_before():
    local = after(FIRST, virtual="v100:2", grace_seconds=5.0)
    slurm = after(local, adapter="slurm", partition="gpu")
    assert slurm.words() == ["--grace 5", "--adapter slurm", "--partition gpu"]
    for told, wrong in ((local, {"partition": "gpu"}), (slurm, {"virtual": "v100:1"})):
        with pytest.raises(InputError, match="--adapter"):
            after(told, **wrong)
