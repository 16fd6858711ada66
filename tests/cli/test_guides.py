"""The commands of docs/explain.md, one after the other, say what the page says that they do; imports of logs."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from tests.cli.command import Done, ran, refused, run, told
from throughputs import read_trace

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


Guide = tuple[Path, dict[str, Done]]


def carried_out(page: str, folder: Path) -> Guide:
    """The folder in which all commands of a page ran, and what each of them said."""
    commands = [line.removeprefix("allocator ") for block in blocks(page, "sh") for line in block.splitlines()]
    with chdir(folder):
        return folder, {command: ran(command) for command in commands}


@pytest.fixture(scope="module")
def why(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    return carried_out("explain", tmp_path_factory.mktemp("explain"))


@pytest.mark.exhaustive
def test_the_guide_to_explanations(why: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, answers = why
    monkeypatch.chdir(folder)
    (printed,) = blocks("explain", "text")
    assert plain(answers["explain shared --job 99"].out) == plain(printed)
    assert re.search(r"^ +99 +2 +4\.19 h", answers["explain shared"].out, re.MULTILINE)
    whole = json.loads(next(done.out for line, done in answers.items() if line.endswith("--json")))
    assert (whole["job"], whole["trace_id"]) == (95, "99")
    for wait in whole["waits"]:
        assert sum(reason["seconds"] for reason in wait["reasons"]) == pytest.approx(wait["end"] - wait["start"])
    since, until = whole["since"] + 60.0, whole["until"] - 60.0
    part = told(f"explain shared --job 99 --since {since} --until {until / 60}m")
    assert (part["since"], part["until"]) == (since, pytest.approx(until))
    wait = whole["waits"][1]
    (there,) = told(f"explain shared --job 99 --at {(wait['start'] + wait['end']) / 2}")["waits"]
    assert (there["start"], there["end"]) == (wait["start"], wait["end"])


@pytest.mark.exhaustive
def test_what_cannot_be_explained_is_told(why: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(why[0])

    def spoilt(name: str) -> Path:
        return Path(shutil.copytree("shared", name))

    (spoilt("old") / "rates.parquet").unlink()
    lines = Path("shared/jobs.csv").read_text().splitlines()
    lines[3] = lines[3].replace(",", ",many,", 1)
    (spoilt("cut") / "jobs.csv").write_text("\n".join(lines))
    for line, *words in (
        ("explain share", "share:", "'shared'"),
        ("explain .", ".:", "shared, shortest"),
        ("explain shared --job 2000", "shared:", "'job'", "'2000'"),
        ("explain shared --job 0", "shared:", "'job'", "'0'"),
        ("explain shared --at 5h", "'job'"),
        ("explain shared --job 3 --at soon", "--at", "'soon'"),
        ("explain old --job 3", "old:", "rates.parquet"),
        ("explain cut", "cut/jobs.csv:4:"),
    ):
        message = refused(line)
        assert [word for word in words if word not in message] == [], message
    summary = spoilt("imported") / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"policy": "my_own"}))
    for line, said in (("explain imported", True), ("explain imported --job 99", True), ("explain shared", False)):
        assert [word in ran(line).err for word in ("my_own", "--import")] == [said] * 2


@pytest.mark.parametrize("out", ["jobs.csv", "jobs.csv.gz", "jobs.parquet"])
def test_an_import_that_fails_leaves_nothing_behind(folder: Path, out: str) -> None:
    Path("log.csv").write_text("submit,hours,gpus\n0,1,1\n60,many,2\n")
    message = refused("trace import log.csv --strict --out", out)
    assert message.startswith("error: log.csv:3: field 'hours': found 'many'")
    assert [path.name for path in folder.iterdir()] == ["log.csv"]
    assert "jobs.trace" in refused("trace import absent.csv --out jobs.trace")  # before the log is read
    assert "absent.csv" in refused("trace import absent.csv --out jobs.csv")
    ran("trace import log.csv --cluster a100:1 --out", out)
    assert len(read_trace(out)) == 1


@pytest.mark.usefixtures("folder")
def test_logs_and_traces_come_from_the_standard_input() -> None:
    log = b"submit,hours,gpus,partition\n0,1,4,a100\n3600,1,8,a100\n3600,2,8,\n7200,0,1,\n"
    answer = ran("trace import - --out j.csv --json", given=log).out
    assert '"zero duration": 1' in answer
    described = told("trace describe - --cluster a100:4,h100:8", given=Path("j.csv").read_bytes())
    assert '"n_jobs_impossible": 1' in json.dumps(described)
    assert f'"demand": {20 / 12}' in json.dumps(described)
    done = run("simulate --trace - --cluster h100:8 --policy fifo --out run", given=Path("j.csv").read_bytes())
    assert (done.code, "standard input on h100:8" in done.out) == (0, True)
    assert "standard input:2: field 'total_steps': found 'x'" in refused(
        "trace describe -", given=b"job_type,scale_factor,total_steps,arrival_time\na,1,x,0\n"
    )
