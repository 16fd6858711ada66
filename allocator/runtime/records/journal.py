"""The journal: what happened, in order, in one SQLite file; all else is made from it.

An event is written before what it announces is done (an order to start a job), or once it is known (a job ended). After
a crash the events say what was ordered, and the cluster says what came of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from allocator.runtime.records.ownership import check_own, own_folder
from throughputs import InputError

_FORMAT = 1
_FILE = "journal.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, clock REAL NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, job TEXT NOT NULL, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job, number);
"""


_ROWS = "SELECT number, clock, at, kind, job, data FROM events"
_LAST_OF_KIND = f"{_ROWS} WHERE kind = ? ORDER BY number DESC LIMIT 1"
_LAST_OF_JOB = f"{_ROWS} WHERE job = ? ORDER BY number DESC LIMIT ?"
_NEXT = f"{_ROWS} WHERE number > ? AND number <= ? ORDER BY number LIMIT 100"


class JournalError(RuntimeError):
    """Nothing can be written, as on a full disk: nothing new may be done before that works again."""


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes
    ----------
    kind : what; `allocator.runtime.records.book` says what each kind means.
    job : UUID of the job, "" for none.
    clock : seconds on the clock of the service.
    data : the rest, ready for JSON.
    at : seconds since 1970.
    number : in the journal; 0 before it is written.
    """

    kind: str
    job: str = ""
    clock: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0
    number: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An entry of `data`."""
        return self.data.get(name, default)


class Journal:
    """The journal of a state folder, owned by one process at a time.

    Parameters
    ----------
    folder : made, private to the user, where it does not exist.

    Raises
    ------
    InputError
        Another service owns the folder, the file is of another format or none of ours, or the folder is a copy of one
        that is still there: what runs is that one's. Or others than the user could have written what is in the folder.
    JournalError
        The disk is full.
    """

    def __init__(self, folder: Path) -> None:
        folder = own_folder(folder, make=True)
        self._lock = _locked(folder)
        self._path = path = folder / _FILE
        fresh = not path.exists()
        if fresh:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            self._base = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
            self._base.execute("PRAGMA journal_mode=WAL")
            # every committed event is on disk before it is acted on
            self._base.execute("PRAGMA synchronous=FULL")
            self._base.executescript(_SCHEMA)
            self._check_format(path)
            ((told,),) = self._base.execute("PRAGMA quick_check(1)")
            if told != "ok":
                raise self._damaged(told)
            self._check_place(folder)
        except InputError:
            self._lock.close()
            raise
        except sqlite3.DatabaseError as error:
            self._lock.close()
            if full_disk(folder):
                raise self._unwritten(error) from None
            raise InputError(str(path), found=str(error), expected="the journal of a service") from None
        wanted = (folder / "lock", path, path.with_name(f"{path.name}-wal"))
        self._files = {one: found for one in wanted if (found := _identity(one))}

    def _check_format(self, path: Path) -> None:
        self._base.execute("INSERT OR IGNORE INTO about VALUES ('format', ?)", (str(_FORMAT),))
        ((found,),) = self._base.execute("SELECT value FROM about WHERE name = 'format'")
        if found != str(_FORMAT):
            raise InputError(str(path), field="format", found=found, expected=f"{_FORMAT}, that of this version")

    def _check_place(self, folder: Path) -> None:
        """Remember where the folder is; one that was moved is the same, one that was copied is not.

        A copy is told by the original, as numbers of devices and files change when disks are mounted anew.
        """
        told = dict(self._base.execute("SELECT name, value FROM about"))
        here = folder.resolve()
        before = Path(told.get("folder", here))
        if here != before and _is_of(before, told["instance"]) and not before.samefile(here):
            either = f"the original, allocator serve --state {before}, or an empty folder for another service"
            expected = f"{either}; to go on with the copy instead, stop the original and move it away"
            raise InputError(str(folder), found="a copy of a state", expected=expected)
        if told.get("folder") != str(here):
            self._base.execute("INSERT OR IGNORE INTO about VALUES ('instance', ?)", (uuid.uuid4().hex,))
            self._base.execute("INSERT OR REPLACE INTO about VALUES ('folder', ?)", (str(here),))

    def check(self) -> None:
        """Raise JournalError where lock or journal were taken away or replaced: nobody would read what is written."""
        for path, identity in self._files.items():
            if _identity(path) != identity:
                raise JournalError(f"journal: {path} was deleted or replaced; end the service, and put it back")

    def append(self, events: Iterable[Event]) -> list[Event]:
        """Write events, all or none; returns them with their numbers.

        Raises
        ------
        JournalError
            They were not written.
        """
        self.check()
        now, written = time.time(), []
        try:
            self._base.execute("BEGIN IMMEDIATE")
            for event in events:
                data = json.dumps(dict(event.data), separators=(",", ":"))
                cursor = self._base.execute(
                    "INSERT INTO events (clock, at, kind, job, data) VALUES (?, ?, ?, ?, ?)",
                    (event.clock, now, event.kind, event.job, data),
                )
                written.append(replace(event, at=now, number=int(cursor.lastrowid or 0)))
            self._base.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise self._unwritten(error) from None
            raise
        return written

    def _unwritten(self, error: sqlite3.Error) -> JournalError:
        return JournalError(f"{self._path}: {full_disk(self._path.parent) or error}")

    def _roll_back(self) -> None:
        try:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
        except sqlite3.Error:
            # the transaction is gone with the connection's next statement
            return

    @property
    def newest(self) -> int:
        """Number of the last event; 0 without any."""
        ((number,),) = self._base.execute("SELECT ifnull(max(number), 0) FROM events")
        return int(number)

    def noted(self, name: str) -> int | None:
        """The number that was noted under a name, None for none."""
        return next((int(v) for (v,) in self._base.execute("SELECT value FROM about WHERE name = ?", [name])), None)

    def note(self, name: str, number: int) -> None:
        """Keep a number under a name; raises JournalError."""
        try:
            self._base.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, str(number)))
        except sqlite3.Error as error:
            raise self._unwritten(error) from None

    def events(self, job: str | None = None, last: int | None = None, after: int = 0) -> Iterator[Event]:
        """All events behind the number `after`, in order; of one `job`, the `last` so many only.

        Those of one job are read at once, all others a few at a time: whoever reads them may take time for it, while
        others are written.
        """
        with self._reading():
            if job is not None:
                most = -1 if last is None else last
                for row in reversed(self._base.execute(_LAST_OF_JOB, [job, most]).fetchall()):
                    yield _event(*row)
                return
            newest = self.newest
            at = after if last is None else max(newest - last, after)
            while rows := self._base.execute(_NEXT, [at, newest]).fetchall():
                for row in rows:
                    yield _event(*row)
                at = rows[-1][0]

    def last(self, kind: str) -> Event | None:
        """The last event of a kind, None without."""
        with self._reading():
            return next((_event(*row) for row in self._base.execute(_LAST_OF_KIND, [kind])), None)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, told: str) -> InputError:
        expected = "a journal that is whole: put a copy there, or serve another folder; what runs is not touched"
        return InputError(str(self._path), found=f"damage: {told}", expected=expected)

    def close(self) -> None:
        """Give the folder back."""
        self._base.close()
        self._lock.close()


class ReadOnlyJournal(Journal):
    """The journal of a state folder as it is, whether a service runs there or not; nothing is changed.

    Raises
    ------
    InputError
        There is no journal, or it is none of ours; or see `own_folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = path = own_folder(folder) / _FILE
        if not path.is_file():
            raise InputError(str(path), found="no such file", expected="the journal of a service")
        try:
            try:
                about = self._opened("mode=ro")
            except sqlite3.OperationalError:
                # on a file system that cannot be written to SQLite makes no index of its log, which then must be empty
                log = path.with_name(f"{path.name}-wal")
                if log.exists() and log.stat().st_size:
                    raise
                about = self._opened("immutable=1")
            self.instance = str(about.get("instance", ""))
        except sqlite3.DatabaseError as error:
            raise InputError(str(path), found=str(error), expected="the journal of a service") from None

    def _opened(self, how: str) -> dict[str, Any]:
        """What the journal says of itself, opened in one of SQLite's ways."""
        uri = f"{self._path.absolute().as_uri()}?{how}"
        self._base = sqlite3.connect(uri, uri=True, check_same_thread=False)
        return dict(self._base.execute("SELECT name, value FROM about"))

    def append(self, events: Iterable[Event]) -> list[Event]:  # noqa: ARG002
        """Raises JournalError: nothing is written."""
        raise JournalError(f"no service runs on {self._path.parent}")

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()


def _event(number: int, clock: float, at: float, kind: str, job: str, data: str) -> Event:
    return Event(kind, job, clock, json.loads(data), at, number)


_LITTLE = 2**20
"""Bytes of a disk below which next to nothing can be written down."""


def full_disk(folder: Path) -> str:
    """That next to nothing can be written there, in words; "" where it can."""
    with suppress(OSError):
        if shutil.disk_usage(folder).free < _LITTLE:
            return f"the disk is full: less than 1 MiB is left at {folder}"
    return ""


def _is_of(folder: Path, instance: str) -> bool:
    """Whether a folder has the journal of an instance of the service."""
    try:
        journal = ReadOnlyJournal(folder)
    except (InputError, OSError):
        return False
    journal.close()
    return journal.instance == instance


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _locked(folder: Path) -> Any:
    """The lock file of a folder, held until it is closed or the process ends."""
    path = folder / "lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(os.open(path, flags, 0o600), "r+")  # noqa: SIM115 - held as long as we run
    status = os.fstat(file.fileno())
    check_own(path, status)
    if status.st_nlink != 1:
        file.close()
        raise InputError(str(path), found="a file of several names", expected=f"one of its own: rm {path}")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = file.read().strip() or "unknown"
        file.close()
        expected = "a folder that no other service uses; `allocator status` speaks with the one that runs"
        raise InputError(str(folder), found=f"a running service, process {owner}", expected=expected) from None
    # over what was there: of a file that is none of ours not more is lost than that
    try:
        file.write(f"{os.getpid():<10}\n")
        file.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    return file
