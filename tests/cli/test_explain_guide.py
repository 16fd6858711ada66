"""The commands of docs/explain.md, one after the other, and the errors of `allocator explain`."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

from tests.cli.test_own_cluster_guide import ROOT, run

PAGE = (ROOT / "docs" / "explain.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
(SAID,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The folder in which all commands ran, and what each of them said."""
    folder = tmp_path_factory.mktemp("explain")
    said = {}
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "allocator"
        done = run(*arguments, cwd=folder)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        said[command] = done.stdout
    return folder, said


def test_the_answer_is_as_printed(guide):
    _, said = guide
    printed = said["allocator explain shared --job 99"]
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in SAID.splitlines()]


def test_the_overview_names_those_that_waited_longest(guide):
    _, said = guide
    assert re.search(r"^ +99 +2 +4\.19 h", said["allocator explain shared"], re.MULTILINE)
    assert "More: --job 99" in said["allocator explain shared"]


def test_json_has_all_of_it(guide):
    _, said = guide
    told = json.loads(next(text for command, text in said.items() if command.endswith("--json")))
    assert (told["job"], told["trace_id"]) == (95, "99")
    assert len(told["waits"]) > 5
    for wait in told["waits"]:
        assert sum(reason["seconds"] for reason in wait["reasons"]) == pytest.approx(wait["end"] - wait["start"])
        assert {"holders", "moment", "stretches"} <= wait.keys()


def test_a_time_may_be_asked_about(guide):
    folder, said = guide
    whole = json.loads(next(text for command, text in said.items() if command.endswith("--json")))
    since, until = whole["since"] + 60.0, whole["until"] - 60.0
    times = ("--since", f"{since}", "--until", f"{until / 60}m")
    told = json.loads(run("explain", "shared", "--job", "99", *times, "--json", cwd=folder).stdout)
    assert (told["since"], told["until"]) == (since, pytest.approx(until))
    wait = whole["waits"][1]
    at = ("--at", f"{(wait['start'] + wait['end']) / 2}")
    (there,) = json.loads(run("explain", "shared", "--job", "99", *at, "--json", cwd=folder).stdout)["waits"]
    assert (there["start"], there["end"]) == (wait["start"], wait["end"])


def spoilt(folder, name, spoil):
    """A copy of a run with something wrong."""
    copy = folder / name
    shutil.copytree(folder / "shared", copy, dirs_exist_ok=True)
    spoil(copy)
    return name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "error: nowhere: found 'no such folder', expected the folder of a run"),
        (["share"], "error: share: found 'no such folder', expected the folder of a run (did you mean 'shared'?)"),
        (["."], "error: .: found 'no summary.json', expected one of the runs in it: shared, shortest"),
        (
            ["shared", "--job", "2000"],
            "error: shared: field 'job': found '2000', expected one job by its trace_id, as in ",
        ),
        (["shared", "--job", "0"], "error: shared: field 'job': found '0', expected one job by its trace_id"),
        (["shared", "--at", "5h"], "field 'job': found nothing, expected the id of a job, where a time is given"),
        (["shared", "--job", "3", "--at", "soon"], "error: --at: found 'soon', expected a length of time"),
    ],
)
def test_errors_are_one_line(guide, arguments, message):
    folder, _ = guide
    done = run("explain", *arguments, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_a_policy_of_ones_own_is_to_be_imported(guide):
    folder, _ = guide

    def rename(copy):
        summary = json.loads((copy / "summary.json").read_text())
        (copy / "summary.json").write_text(json.dumps(summary | {"policy": "my_own"}))

    name = spoilt(folder, "imported", rename)
    for arguments in ([name], [name, "--job", "99"]):
        done = run("explain", *arguments, cwd=folder)
        assert done.returncode == 0
        assert "my_own" in done.stderr
        assert "--import" in done.stderr
    assert run("explain", "shared", "--job", "99", cwd=folder).stderr == ""
    shutil.rmtree(folder / name)


def test_a_run_of_an_older_version_says_what_is_missing(guide):
    folder, _ = guide
    name = spoilt(folder, "old", lambda copy: (copy / "rates.parquet").unlink())
    done = run("explain", name, "--job", "3", cwd=folder)
    shutil.rmtree(folder / name)
    assert done.returncode == 2
    expected = "rates.parquet, which older versions did not write: run it again"
    assert done.stderr == f"error: old: found 'a run without it', expected {expected}\n"


def test_a_spoilt_file_is_named(guide):
    folder, _ = guide
    lines = (folder / "shared" / "jobs.csv").read_text().splitlines()
    lines[3] = lines[3].replace(",", ",many,", 1)
    name = spoilt(folder, "cut", lambda copy: (copy / "jobs.csv").write_text("\n".join(lines)))
    done = run("explain", name, cwd=folder)
    shutil.rmtree(folder / name)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cut/jobs.csv:4: ")
