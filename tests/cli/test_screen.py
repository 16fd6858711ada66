"""What commands print: names from outside do nothing to a terminal or a page, and streams may be closed or full."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cli.app import COMMANDS
from allocator.report.page.payload import to_script_json
from tests.cli.command import ran, refused, run
from throughputs import gavel_trace, write_trace
from throughputs.shown import UNSHOWN, escape, visible

HOSTILE = "job\u202e\x1b[31m\x9b2J\x07\u2066\u200f"
INSTANCE = {"cluster": {"v100": 4}, "jobs": [{"job_id": HOSTILE, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}


def steers(text: str) -> bool:
    return any(ord(character) in UNSHOWN for character in text)


def test_what_is_not_shown_is_controls_and_marks_of_direction() -> None:
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for code in range(0x3000):
        character = chr(code)
        control = unicodedata.category(character) == "Cc" and character not in "\t\n"
        if control or unicodedata.bidirectional(character) in marks or code in (0x61C, 0x200E, 0x200F):
            assert code in UNSHOWN, hex(code)


@given(st.text())
def test_text_is_as_it_was_but_for_these(text: str) -> None:
    assert not steers(visible(text) + escape(text))
    assert steers(text) or visible(text) == text
    # controls below blank do nothing in a page, and need not be shown
    low = dict.fromkeys(range(0x20))
    assert json.loads(to_script_json([text]))[0].translate(low) == visible(text.translate(low))


def test_commands_show_it(folder: Path) -> None:
    trace = f"t{HOSTILE}.csv"
    write_trace(gavel_trace(3, 60.0), "t.csv")
    head, *rows = csv.reader(Path("t.csv").read_text().splitlines())
    with Path(trace).open("w", newline="") as file:
        csv.writer(file).writerows([head, *([HOSTILE, *row[1:]] for row in rows)])
    Path("i.json").write_text(json.dumps(INSTANCE))
    for line, more, code in (
        ("trace describe", [trace], 0),
        ("solve i.json --policy fifo --table", [], 0),
        ("simulate --out o --trace t.csv --policy", [HOSTILE], 2),
        ("compare --policies fifo --cluster v100:4 --out c --trace", [trace], 0),
    ):
        done = run(line, *more)
        assert done.code == code
        assert not steers(done.out + done.err)
        assert "\\u202e" in done.out + done.err
    assert not steers((folder / "c" / "report.html").read_text())


def shell(script: str, **how: object) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", script.replace("allocator", f"{sys.executable} -m allocator")]
    return subprocess.run(words, capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload,no-any-return]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (">&-", 0),
        (">/dev/full", 2),
        ("--out a.json --table >&- 2>&-", 0),
    ],
)
def test_streams_that_are_closed_or_full(folder: Path, ends: str, status: int) -> None:
    Path("i.json").write_text(json.dumps(INSTANCE))
    done = shell(f"allocator solve i.json --policy fifo {ends}")
    assert (done.returncode, len(done.stderr.splitlines())) == (status, status != 0)
    # what is written does not land in a closed stream
    if "--out" in ends:
        assert json.loads((folder / "a.json").read_text())["policy"] == "fifo"


def test_undecodable_names_are_one_line(folder: Path) -> None:
    for line in ("status --state", "serve --virtual v100:1 --state", "history --state"):
        assert refused(line, os.fsdecode(bytes(folder) + b"/\xff")).startswith("error: --state")
    assert list(folder.iterdir()) == []
    words = ["--env", os.fsdecode(b"A=\xff"), "--", "echo", os.fsdecode(b"a\xff")]
    done = run("submit --state absent", *words)
    assert done.code != 0
    assert "absent" in done.err
    assert "UTF-8" not in done.err
    os.mkdir(b"\xff")
    os.chdir(b"\xff")
    assert refused("serve --state s --virtual v100:1").startswith("error: name: found")


def test_every_command_has_help_that_names_what_is_installed() -> None:
    for name in COMMANDS:
        text = ran(f"{name} --help").out
        assert "Usage: " in text
        assert ".md" not in text or name not in ("solve", "audit", "simulate", "submit", "sweep")
