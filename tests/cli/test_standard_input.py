"""`-` in place of a file is the standard input, and messages name it; options that mean nothing are refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import allocator
from allocator.cli.app import app
from allocator.instance import read_instance
from throughputs import InputError, TraceGenerator, default_table, read_table, read_trace, write_table, write_trace

INSTANCE = json.dumps({"cluster": {"v100": 1}, "jobs": [{"job_id": 7, "throughputs": {"v100": 2.0}}]})


def run(*arguments: str, given: bytes = b""):
    return CliRunner().invoke(app, list(arguments), input=given)


@pytest.fixture
def standard_input(monkeypatch):
    def give(contents: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(contents)))

    return give


@pytest.mark.parametrize("command", ["solve", "audit"])
def test_instances(command, tmp_path):
    (tmp_path / "instance.json").write_text(INSTANCE)
    options = ("--policy", "isolated", *(("--json",) if command == "audit" else ()))
    piped = json.loads(run(command, "-", *options, given=INSTANCE.encode()).stdout)
    read = json.loads(run(command, str(tmp_path / "instance.json"), *options).stdout)
    assert {**piped, "seconds": 0} == {**read, "seconds": 0}


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet", "jobs.trace"])
def test_traces(name, tmp_path, standard_input):
    write_trace(TraceGenerator(n_jobs=3, seed=1).generate(), tmp_path / name)
    contents = (tmp_path / name).read_bytes()
    standard_input(contents)
    trace = read_trace("-")
    assert trace.source == "standard input"
    assert trace.to_frame().equals(read_trace(tmp_path / name).to_frame())
    told = run("trace", "describe", "-", "--json", given=contents)
    assert json.loads(told.stdout)["n_jobs"] == 3
    assert "standard input" in run("trace", "describe", "-", given=contents).stdout
    out = tmp_path / "run"
    options = ("--cluster", "v100:8", "--policy", "fifo", "--out", str(out))
    done = run("simulate", "--trace", "-", *options, given=contents)
    assert done.exit_code == 0
    assert "standard input on v100:8" in done.stdout
    assert json.loads((out / "summary.json").read_text())["completed_jobs"] == 3


@pytest.mark.parametrize("name", ["table.json", "table.csv"])
def test_throughput_tables(name, tmp_path, standard_input):
    write_table(default_table(), tmp_path / name)
    standard_input((tmp_path / name).read_bytes())
    assert read_table("-").rates(["A3C"], [1], ["v100"]) == default_table().rates(["A3C"], [1], ["v100"])


def test_what_is_wrong_with_it_is_told_of_the_standard_input(standard_input):
    standard_input(b'{"cluster": {"v100": 1}}')
    with pytest.raises(InputError, match=r"^standard input: field 'jobs'"):
        read_instance(Path("-"))
    standard_input(b"job_type,scale_factor,total_steps,arrival_time\na,1,x,0\n")
    with pytest.raises(InputError, match=r"^standard input:2: field 'total_steps': found 'x'"):
        read_trace("-")
    done = run("solve", "-", "--policy", "isolated")
    assert str(done.exception) == "standard input:1: found 'Expecting value', expected JSON"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("solve", "-", "--policy", "fifo", "--solver", "highs"), "under policy fifo, which asks no solver"),
        (("audit", "-", "--policy", "fifo", "--choice", "balanced"), "fifo, which does not choose among optima"),
        (("simulate", "--trace", "x", "--out", "y", "--policy", "srtf", "--solver", "highs"), "which asks no solver"),
        (("compare", "--out", "y", "--policies", "fifo,srtf", "--solver", "ecos"), "fifo, srtf, which ask no solver"),
        (("solve", "-", "--policy", "ffo", "--solver", "highs"), "expected a known policy (did you mean 'fifo'?)"),
    ],
)
def test_a_solver_for_a_policy_that_has_none(arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trace(TraceGenerator(n_jobs=2, seed=1).generate(), "x")
    done = run(*arguments, given=INSTANCE.encode())
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)


def test_a_comparison_may_have_policies_without_a_solver(tmp_path):
    options = ("--policies", "fifo,max_min_fairness_perf", "--solver", "highs", "--jobs", "3", "--out", str(tmp_path))
    assert run("compare", *options).exit_code == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: allocator.get_policy("max_min_fairness_perf", solver="higs").allocate(read_instance("-")),
        lambda: read_trace("x.trace", format="gavl"),
        lambda: allocator.get_policy("isolatd"),
        lambda: default_table().rates(["A3C"], [1], ["v10"]),
    ],
)
def test_the_likely_name_comes_before_the_list(wrong, standard_input):
    standard_input(INSTANCE.encode())
    with pytest.raises(InputError) as told:
        wrong()
    message = str(told.value)
    assert message.index("did you mean") < message.index("one of ")


def test_messages_point_to_what_is_installed():
    """Nobody who has the wheel alone has the pages of docs."""
    root = Path(allocator.__file__).parent
    for command in ("solve", "audit", "simulate", "submit", "sweep"):
        assert ".md" not in run(command, "--help").stdout
    texts = [(path, path.read_text()) for path in root.rglob("*.py")]
    assert not [path for path, text in texts if "see docs/" in text.partition('"""')[2].partition('"""')[2]]
