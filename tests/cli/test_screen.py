"""What commands print: names from outside do nothing to a terminal or a page, and streams may be closed or full."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cli.screen import rich_console, shown_as_text
from allocator.report.page.payload import to_script_json
from allocator.report.progress import policy_progress
from throughputs import gavel_trace, write_trace
from throughputs.shown import UNSHOWN, escape, visible

HOSTILE = "job\u202e\x1b[31m\x9b2J\x07\u2066\u200f"
INSTANCE = {"cluster": {"v100": 4}, "jobs": [{"job_id": HOSTILE, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}


def steers(text: str) -> bool:
    return any(ord(character) in UNSHOWN for character in text)


def test_what_is_not_shown_is_controls_and_marks_of_direction():
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        control = unicodedata.category(character) == "Cc" and character not in "\t\n"
        if control or unicodedata.bidirectional(character) in marks or code in (0x61C, 0x200E, 0x200F):
            assert code in UNSHOWN, hex(code)


@given(st.text())
def test_text_is_as_it_was_but_for_these(text):
    assert not steers(visible(text))
    if not steers(text):
        assert visible(text) == text
    assert not steers(escape(text))
    assert json.loads(to_script_json([text]))[0].translate(dict.fromkeys(range(0x20))) == visible_in_page(text)


def visible_in_page(text: str) -> str:
    """Controls below blank do nothing in a page, and need not be shown."""
    rest = "".join(character for character in text if ord(character) >= 0x20)
    return visible(rest)


def test_streams_and_tables_show_it(capsys):
    from rich.table import Table
    from rich.text import Text

    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE))
    with shown_as_text():
        print(HOSTILE)
        sys.stderr.write(HOSTILE)
        rich_console(width=200).print(HOSTILE, table, markup=False)
    out, err = capsys.readouterr()
    assert not steers(out + err)
    assert out.count("\\u202e") == 4
    assert "\\x1b[31m" in err


def test_colours_are_left_to_tables(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with shown_as_text():
        rich_console().print("[red]x[/]")
    assert "\x1b[31mx" in screen.getvalue()


def command(*words: object, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "allocator", *map(str, words)], text=True, stderr=subprocess.PIPE, check=False, **how
    )


def test_commands_show_it(tmp_path):
    trace, jobs = tmp_path / f"t{HOSTILE}.csv", tmp_path / "t.csv"
    write_trace(gavel_trace(3, 60.0), jobs)
    rows = list(csv.reader(jobs.read_text().splitlines()))
    with trace.open("w", newline="") as file:
        csv.writer(file).writerows([rows[0], *([HOSTILE, *row[1:]] for row in rows[1:])])
    (tmp_path / "i.json").write_text(json.dumps(INSTANCE))
    said = [
        command("trace", "describe", trace, stdout=subprocess.PIPE),
        command("solve", tmp_path / "i.json", "--policy", "fifo", "--table", stdout=subprocess.PIPE),
        command("simulate", "--trace", trace, "--policy", HOSTILE, "--out", tmp_path / "o", stdout=subprocess.PIPE),
        command("compare", "--trace", trace, "--policies", "fifo", "--cluster", "v100:4", "--out", tmp_path / "c",
                stdout=subprocess.PIPE),
    ]  # fmt: skip
    assert [done.returncode for done in said] == [0, 0, 2, 0]
    for done in said:
        assert not steers(done.stdout + done.stderr)
        assert "\\u202e" in done.stdout + done.stderr
    assert not steers((tmp_path / "c" / "report.html").read_text())


@pytest.mark.skipif(sys.platform == "win32", reason="a shell with >&-")
@pytest.mark.parametrize(
    ("ends", "status"), [(">&-", 0), ("<&-", 0), ("2>&-", 0), (">/dev/full", 2), ("| head -c 1 >/dev/null", 0)]
)
def test_streams_that_are_closed_or_full(tmp_path, ends, status):
    (tmp_path / "i.json").write_text(json.dumps(INSTANCE))
    script = f"{sys.executable} -m allocator solve i.json --policy fifo {ends}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == (status != 0)


def test_what_is_written_does_not_land_in_a_closed_stream(tmp_path):
    (tmp_path / "i.json").write_text(json.dumps(INSTANCE))
    script = f"{sys.executable} -m allocator solve i.json --policy fifo --out a.json --table >&- 2>&-"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "a.json").read_text())["policy"] == "fifo"


def test_an_undecodable_state_folder_is_one_line(tmp_path):
    folder = bytes(tmp_path) + b"/\xff"
    for words in (["status"], ["serve", "--virtual", "v100:1"], ["history"]):
        done = subprocess.run(
            [sys.executable, "-m", "allocator", *words, "--state", folder], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith("error: --state")
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_undecodable_working_folder_is_one_line(tmp_path):
    folder = bytes(tmp_path) + b"/\xff"
    os.mkdir(folder)
    done = command("serve", "--state", "s", "--virtual", "v100:1", cwd=folder, timeout=60)
    assert done.returncode == 2
    assert "error: name: found" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_progress_in_lines_goes_on_while_no_job_completes():
    from rich.console import Console

    screen = io.StringIO()
    with policy_progress(["a", "b"], Console(file=screen, width=200), every_seconds=0.01) as progress:
        advance = progress("b")
        advance(7200.0, 3, 12)
        until = time.monotonic() + 20
        while screen.getvalue().count("\n") < 3 and time.monotonic() < until:
            time.sleep(0.01)
    lines = set(screen.getvalue().splitlines())
    assert "b: 3 of 12 jobs completed, simulated clock 2.0 h" in lines


def test_progress_of_short_runs_says_nothing():
    from rich.console import Console

    screen = io.StringIO()
    with policy_progress(["a"], Console(file=screen)) as progress:
        for done in range(100):
            progress("a")(1.0, done, 100)
    assert screen.getvalue() == ""


def test_ray_that_nobody_answers_for(tmp_path):
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    pytest.importorskip("ray", reason="the extra [ray]")
    words = ["sweep", "static", "--jobs", 2, "--policies", "fifo", "--engine", "ray", "--out", tmp_path / "s"]
    for how in (address, f"ray://{address}"):
        done = command(*words, "--address", how, stdout=subprocess.PIPE, timeout=60)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert address in done.stderr
    assert Path(tmp_path / "s").is_dir()


def test_arguments_of_a_job_may_be_any_bytes(tmp_path):
    done = command(
        "submit",
        "--state",
        "absent",
        "--env",
        os.fsdecode(b"A=\xff"),
        "--",
        "echo",
        os.fsdecode(b"a\xff"),
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "absent" in done.stderr
    assert "UTF-8" not in done.stderr
