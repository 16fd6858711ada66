"""Services that do not run: what is asked of them is answered from their folders, and nothing is changed."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from allocator.cli.app import load
from allocator.cli.service.asking import asked_or_read
from allocator.runtime.door.client import AbsentError, RefusedError
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.stopped import StoppedService
from allocator.runtime.records.journal import Journal
from tests.runtime.lives import leave, started
from tests.runtime.model_cluster import job, run_on, two_types

QUESTIONS = [
    {"do": "status"},
    {"do": "status", "active": True},
    {"do": "status", "jobs": [2]},
    {"do": "status", "jobs": [9]},
    {"do": "job", "job": 0},
    {"do": "history", "last": 5},
]


def ended(folder, *, killed):
    """What a service has answered that has ended since: two jobs are through, two run, one waits, one has no room."""

    async def go():
        cluster = two_types(2, 1)
        jobs = [job(2.0), job(2.0), *(job(500.0) for _ in range(4)), job(5.0, gpus=9)]
        service = await started(folder, cluster, *jobs)
        await run_on(service, cluster, 9.0)
        service.drain("k", True)
        answers = [Requests(service).answer(asked) for asked in QUESTIONS]
        await (leave if killed else type(service)._finish)(service)
        return answers

    return asyncio.run(go())


def shape(told):
    """Names and kinds of values."""
    if isinstance(told, dict):
        return {name: shape(value) for name, value in told.items()}
    if isinstance(told, list):
        return [shape(one) for one in told]
    return "number" if isinstance(told, int | float) and not isinstance(told, bool) else type(told).__name__


@pytest.mark.parametrize("killed", [False, True])
def test_answers_are_those_of_the_service(tmp_path, killed):
    before = ended(tmp_path, killed=killed)
    stopped = StoppedService(tmp_path)
    assert stopped.in_order is not killed
    assert stopped.last_at > 0
    for asked, was in zip(QUESTIONS, before, strict=True):
        told = stopped.answer(asked)
        if asked["do"] == "history":
            assert told["events"][-1]["kind"] == ("node" if killed else "stopped")
            continue
        assert shape(told) == shape(was)
        if asked["do"] != "status" or not was["ok"]:
            continue
        for name in ("policy", "counts", "nodes", "cluster"):
            assert told["service"][name] == was["service"][name]
        for one, other in zip(told["jobs"], was["jobs"], strict=True):
            for name in ("id", "uuid", "state", "places", "saved_steps", "epoch", "finished_at", "folder"):
                assert one[name] == other[name]
            assert one["steps"] >= other["steps"]
    waiting = stopped.answer({"do": "status"})["jobs"][-2:]
    assert [one["reason"] for one in waiting] == [
        "no decision: no service runs",
        before[0]["jobs"][-1]["reason"],
    ]


def test_nothing_is_changed(tmp_path):
    ended(tmp_path, killed=False)

    def files():
        left = (path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".sqlite-shm",))
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in left if path.stat().st_size}

    before = files()
    for asked in (
        {"do": "submit", "jobs": [{"command": ["true"], "working_directory": "/"}]},
        {"do": "cancel", "jobs": [3, 4]},
        {"do": "drain", "node": "v"},
    ):
        answer = StoppedService(tmp_path).answer(asked)
        assert (answer["ok"], answer["fault"]) == (False, True)
        assert f"no service runs on {tmp_path}" in answer["error"]
    assert files() == before


def test_commands_say_where_their_answers_are_from(tmp_path, capsys):
    ended(tmp_path, killed=False)
    assert len(asked_or_read(tmp_path, "status")["jobs"]) == 7
    output, errors = capsys.readouterr()
    assert output == ""
    where, again = f"no service runs on {tmp_path}", f"start it again with allocator serve --state {tmp_path}"
    told = rf"{re.escape(where)}: this is from its journal; it ended \d+s ago, [^\n]+; {re.escape(again)}\n"
    assert re.fullmatch(told, errors)
    with pytest.raises(RefusedError, match="the number of a job, from 0 to 6"):
        asked_or_read(tmp_path, "status", jobs=[7])
    with pytest.raises(AbsentError, match="there is no such folder"):
        asked_or_read(tmp_path / "nowhere", "status")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AbsentError, match="start one with allocator serve"):
        asked_or_read(tmp_path / "empty", "status")


def test_a_folder_on_which_no_service_has_run(tmp_path):
    # as one that was started with a policy that there is not
    Journal(tmp_path).close()
    with pytest.raises(AbsentError, match="no service has run"):
        asked_or_read(tmp_path, "status")


def test_logs_are_found_wherever_the_service_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended(Path("state"), killed=False)
    told = StoppedService(Path("state")).answer({"do": "status"})["jobs"]
    assert told[0]["folder"] == str(tmp_path / "state" / "jobs" / told[0]["uuid"])
    (Path(told[0]["folder"]) / "log").write_text("step 1\n")
    (Path(told[1]["folder"]) / "log").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def logs(job):
        done = CliRunner().invoke(load("logs"), ["--state", str(tmp_path / "state"), str(job)])
        assert done.exit_code == 0
        return done.output

    assert "step 1\n" in logs(0)
    assert "nothing so far" not in logs(0)
    assert "has printed nothing so far" in logs(1)
    # of one that ran and has no log, and of one that never ran, it is not said that they printed nothing
    assert told[2]["folder"] in logs(2)
    assert "nothing so far" not in logs(2) + logs(6)
    assert "was not started" in logs(6)
