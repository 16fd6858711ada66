"""The commands of docs/own_cluster.md, one after the other, say what the page says that they do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from throughputs import read_trace

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own_cluster.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
LOG_LINES, ACCOUNT = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(*arguments, **options):
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "allocator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The folder in which all commands ran, and what each of them said."""
    folder = tmp_path_factory.mktemp("guide")
    said = []
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "allocator"
        done = run(*arguments, cwd=folder)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        said.append(done)
    return folder, said


def test_the_log_and_its_account_are_as_printed(guide):
    folder, said = guide
    assert (folder / "mine.csv").read_text().startswith(LOG_LINES)
    assert said[1].stdout.startswith(ACCOUNT)
    assert re.search(r"demand +│ 0\.78", said[1].stdout)
    assert len(read_trace(folder / "jobs.csv")) == 193


def test_runs_complete_and_say_what_they_do_not_use(guide):
    folder, said = guide
    assert (folder / "comparison" / "report.html").exists()
    assert "not used: user (--entities-by user" in said[2].stderr
    assert all(name in said[3].stdout for name in ("ada", "ben", "cleo", "dev", "eli"))
    assert "partition" not in said[4].stderr  # here partitions are types
    assert "partition" in said[2].stderr


def test_the_python_example_runs_on_the_same_log(guide, monkeypatch, capsys):
    folder, _ = guide
    monkeypatch.chdir(folder)
    exec(compile(PYTHON, "own_cluster.md", "exec"), {"__name__": "guide"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("2025-03-03T08:00:00+00:00 {'zero duration': 4")
    assert float(printed[1]) > 3600
    assert printed[2] == "193 jobs of mine.csv; × is the ratio to the first row"
    assert printed[4].startswith("a100:32, fifo")


def test_the_table_of_what_if_is_as_printed(guide):
    folder, said = guide
    (printed,) = re.findall(r"```\n( +193 jobs.*?)\n```", PAGE, re.DOTALL)
    shown = "\n".join(line.rstrip() for line in said[5].stdout.splitlines())
    assert shown.startswith(printed)
    assert all((folder / name / "whatif.html").exists() for name in ("more", "growth"))
    assert "Change by 8 more GPUs" in said[6].stdout


def test_standard_input_and_json(tmp_path):
    log = "user;when;mins;gpus\nann;2024-05-01T10:00:00Z;60;4\nbob;2024-05-01T10:00:00Z;0;4\n"
    done = run(
        "trace",
        "import",
        "-",
        "--submit",
        "when",
        "--duration",
        "mins",
        "--out",
        "j.csv",
        "--json",
        cwd=tmp_path,
        input=log,
    )
    assert done.returncode == 0, done.stderr
    assert '"origin": "2024-05-01T10:00:00+00:00"' in done.stdout
    assert '"zero duration": 1' in done.stdout
    assert '"gpu_hours": 4.0' in done.stdout


@pytest.mark.parametrize("out", ["jobs.csv", "jobs.csv.gz", "jobs.parquet"])
def test_errors_are_one_line_and_leave_nothing_behind(tmp_path, out):
    (tmp_path / "log.csv").write_text("submit,hours,gpus\n0,1,1\n60,many,2\n")
    done = run("trace", "import", "log.csv", "--strict", "--out", out, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: log.csv:3: field 'hours': found 'many', expected a number, or [D-]HH:MM:SS (unreadable duration)\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    before = (tmp_path / "log.csv").read_bytes()
    onto = run("trace", "import", "log.csv", "--out", "./log.csv", cwd=tmp_path)
    assert onto.stderr.startswith("error: --out: found 'log.csv', expected another file than log.csv, which is read")
    assert (onto.returncode, (tmp_path / "log.csv").read_bytes()) == (2, before)
    good = run("trace", "import", "log.csv", "--out", out, "--cluster", "a100:1", cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert len(read_trace(tmp_path / out)) == 1


def test_a_name_that_is_no_table_is_refused_before_the_log_is_read(tmp_path):
    done = run("trace", "import", "absent.csv", "--out", "jobs.trace", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: jobs.trace: found 'jobs.trace', expected a name ending in .csv, .csv.gz or .parquet\n"
    missing = run("trace", "import", "absent.csv", "--out", "jobs.csv", cwd=tmp_path)
    assert missing.stderr == "error: absent.csv: No such file or directory\n"


def test_describe_sets_demand_against_a_cluster(tmp_path):
    log = "submit,hours,gpus,partition\n0,1,4,a100\n3600,1,8,a100\n3600,2,8,\n"
    done = run("trace", "import", "-", "--out", "j.csv", cwd=tmp_path, input=log)
    assert done.returncode == 0, done.stderr
    described = run("trace", "describe", "j.csv", "--cluster", "a100:4,h100:8", "--json", cwd=tmp_path)
    assert described.returncode == 0, described.stderr
    assert '"n_jobs_impossible": 1' in described.stdout
    assert '"cluster_gpus": 12' in described.stdout
    assert f'"demand": {28 / 12}' in described.stdout
