"""The journal: what is written stays, by one service at a time."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.runtime.records.book import Book
from allocator.runtime.records.clock import Clock
from allocator.runtime.records.journal import Event, Journal, JournalError
from throughputs import InputError


def test_events_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    written = journal.append([Event("submitted", "a", 1.5, {"command": ["x"]}), Event("node", "", 2.0, {"name": "n"})])
    assert [event.number for event in written] == [1, 2]
    journal.close()
    again = Journal(tmp_path)
    assert [(e.kind, e.job, e.clock, dict(e.data or {})) for e in again.events()] == [
        ("submitted", "a", 1.5, {"command": ["x"]}),
        ("node", "", 2.0, {"name": "n"}),
    ]
    assert [event.number for event in again.events("a")] == [1]
    assert [event.number for event in again.events(last=1)] == [2]


def test_a_second_service_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(InputError, match=f"a running service, process {os.getpid()}"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_files_are_private(tmp_path: Path) -> None:
    Journal(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    for name in ("journal.sqlite", "lock"):
        assert (tmp_path / "state" / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", [b"this is no data base, whatever its name says" * 50, b"SQLite format 3\0" + b"x" * 4000]
)
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.sqlite").write_bytes(content)
    with pytest.raises(InputError, match="expected the journal of a service"):
        Journal(tmp_path)
    assert (tmp_path / "journal.sqlite").read_bytes() == content


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as base:
        base.execute("UPDATE about SET value = '7' WHERE name = 'format'")
    with pytest.raises(InputError, match="field 'format': found '7'"):
        Journal(tmp_path)


def test_all_or_nothing_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    # a page limit stands for a full disk
    (pages,) = journal._base.execute("PRAGMA page_count").fetchone()
    journal._base.execute(f"PRAGMA max_page_count = {pages + 2}")
    events = [Event("note", "a", 0.0, {"text": "x" * 1000}) for _ in range(100)]
    with pytest.raises(JournalError, match="full"):
        journal.append(events)
    assert list(journal.events()) == []
    journal._base.execute("PRAGMA max_page_count = 100000")
    journal.append(events)
    assert len(list(journal.events())) == 100


@pytest.mark.parametrize("wrong", [Event("note", clock=math.nan), Event("note", data={"set": {1}})])
def test_an_event_that_cannot_be_written_hinders_no_later_one(tmp_path: Path, wrong: Event) -> None:
    journal = Journal(tmp_path)
    with pytest.raises((JournalError, TypeError)):
        journal.append([Event("before"), wrong])
    journal.append([Event("after")])
    assert [event.kind for event in journal.events()] == ["after"]


def test_each_commit_is_on_the_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    full = 2
    assert journal._base.execute("PRAGMA synchronous").fetchone() == (full,)
    assert journal._base.execute("PRAGMA journal_mode").fetchone() == ("wal",)


WRITER = """
import os, signal, sys
from pathlib import Path
from allocator.runtime.records.journal import Event, Journal
journal = Journal(Path(sys.argv[1]))
for number in range(10**6):
    journal.append([Event("note", "", 0.0, {"pair": number}), Event("note", "", 0.0, {"pair": number})])
    print(number, flush=True)
"""


def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(25)]
        writer.kill()
        told += [int(line) for line in writer.stdout.read().split()]
    journal = Journal(tmp_path)
    pairs = [event["pair"] for event in journal.events()]
    assert pairs == [number for number in range(len(pairs) // 2) for _ in range(2)]
    assert max(told) <= pairs[-1]


def test_the_clock_goes_on_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = 1e9
    monkeypatch.setattr("time.time", lambda: wall)
    assert Clock()() == pytest.approx(0.0, abs=0.5)
    assert Clock(100.0, 1e9 - 50.0)() == pytest.approx(150.0, abs=0.5)
    # set back while no service ran, or years ahead
    assert Clock(100.0, 1e9 + 5000.0)() == pytest.approx(100.0, abs=0.5)
    assert Clock(100.0, 1e9 - 1e9)() == pytest.approx(100.0, abs=0.5)
    assert Clock(100.0, 1e9 - 400 * 86400)() == pytest.approx(100.0, abs=0.5)
    assert Clock(100.0, 1e9 - 300 * 86400)() == pytest.approx(100.0 + 300 * 86400, abs=0.5)
    clock = Clock(100.0, 1e9)
    before = clock()
    wall = 5.0
    assert 0 <= clock() - before < 1


def test_the_book_ignores_kinds_that_are_for_people() -> None:
    book = Book()
    book.apply(Event("submitted", "a", 1.0, {"command": ["x"], "gpus": 2, "unknown": 1}))
    book.apply(Event("remark", "a", 2.0, {"text": "hello"}))
    assert book.jobs["a"].gpus == 2
    assert book.jobs["a"].state == "queued"


def written_journal(folder: Path) -> bytes:
    """A journal of some hundred events, and what its file holds."""
    journal = Journal(folder)
    journal.append(Event("submitted", f"job{k}", float(k), {"command": ["x" * 50]}) for k in range(400))
    journal.close()
    return (folder / "journal.sqlite").read_bytes()


def read_again(folder: Path) -> list[str] | str:
    """Jobs of the events of a journal, or why it is refused."""
    try:
        journal = Journal(folder)
    except InputError as error:
        return str(error)
    try:
        return [event.job for event in journal.events()]
    except InputError as error:
        return str(error)
    finally:
        journal.close()


@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.6, 0.9, 0.99])
def test_a_journal_that_was_cut_off_is_refused_or_read_from_its_start(tmp_path: Path, part: float) -> None:
    whole = written_journal(tmp_path)
    (tmp_path / "journal.sqlite").write_bytes(whole[: int(part * len(whole))])
    found = read_again(tmp_path)
    if isinstance(found, str):
        assert "journal.sqlite" in found
    else:
        assert found == [f"job{k}" for k in range(len(found))]


def test_a_journal_with_damage_inside_is_refused(tmp_path: Path) -> None:
    whole = written_journal(tmp_path)
    for page in range(1, len(whole) // 4096):
        damaged = bytearray(whole)
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        (tmp_path / "journal.sqlite").write_bytes(damaged)
        found = read_again(tmp_path)
        assert isinstance(found, str)
        assert "journal.sqlite" in found


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal", "lock"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_into_a_journal_that_is_gone(tmp_path: Path, name: str, replaced: bool) -> None:
    journal = Journal(tmp_path)
    journal.append([Event("submitted", "a", data={"command": ["x"]})])
    path, aside = tmp_path / name, tmp_path / "aside"
    path.rename(aside)
    if replaced:
        path.write_bytes(b"")
    for write in (journal.check, lambda: journal.append([Event("cancelled", "a")])):
        with pytest.raises(JournalError, match=f"{name} was deleted or replaced"):
            write()
    aside.replace(path)
    journal.append([Event("cancelled", "a")])
    journal.close()
    again = Journal(tmp_path)
    assert [event.kind for event in again.events()] == ["submitted", "cancelled"]
    again.close()


def test_the_last_events_come_in_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(Event("note", "ab"[number % 2], data={"number": number}) for number in range(9))
    assert [event["number"] for event in journal.events(last=3)] == [6, 7, 8]
    assert [event["number"] for event in journal.events("b")] == [1, 3, 5, 7]
    assert [event["number"] for event in journal.events("a", last=2)] == [6, 8]
    assert len(list(journal.events(last=100))) == 9
