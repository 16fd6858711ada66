"""A fixed life of a service: what it decides and writes, through kills, and what its journal says after every record.

`service/journal.json` is the journal of such a life as it was once, with the folder's name left out. It is put into a
state folder and cut off after any record; then `status`, `history` and `record` are asked, as of a service that was
killed there. Time is that of the model: no clock of the machine is read.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from allocator.runtime.door.requests import Requests
from tests.golden.commands import answer_of, plain
from tests.golden.kept import Case, Taken
from tests.runtime.model_cluster import (
    ModelCluster,
    end,
    job,
    leave,
    run_on,
    service_on,
    settle,
    two_types,
    world_under,
)

JOURNAL = Path(__file__).parent / "service" / "journal.json"
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY, clock REAL NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, job TEXT NOT NULL, data TEXT NOT NULL);
INSERT INTO about VALUES ('format', '1');
"""
"""Of the file as it is on disks of users: a journal that was written by a release is read by those that follow."""

Record = tuple[int, float, float, str, str, dict[str, Any]]
Asked = dict[str, Any]


def jobs(first: int, *wanted: Asked) -> Asked:
    """A request: jobs of known names."""
    return {"do": "submit", "jobs": [one | {"uuid": f"{first + n:032x}"} for n, one in enumerate(wanted)]}


LIFE: list[tuple[float, Asked | str]] = [
    (0.0, jobs(1, job(60.0, name="one", user="ann"), job(200.0, gpus=2, weight=2.0), job(40.0, "crash"))),
    (0.0, jobs(4, job(30.0, "deaf"), job(30.0, "stubborn"), job(5.0, "refused"))),
    (0.0, jobs(7, job(10.0, gpus=9))),
    (7.0, "kill"),
    (7.5, jobs(8, job(80.0, deadline=300.0, entity=""), job(80.0, "broken", retries=1), job(50.0, "careless"))),
    (12.0, {"do": "cancel", "jobs": [6]}),
    (15.0, {"do": "drain", "node": "k"}),
    (22.0, "kill"),
    (31.0, {"do": "resume", "node": "k"}),
    (33.0, jobs(11, job(90.0, "doomed"), job(25.0, duration=25.0), job(70.0, deadline=36.0))),
    (40.0, "max_min_fairness_perf"),
    (41.0, "kill"),
    (63.0, "kill"),
    (64.0, {"do": "cancel", "jobs": [8, 1]}),
    (90.0, jobs(14, job(10.0), job(10.0, "calls_absent"))),
]
"""What happens when: a request, another policy, or a kill."""


async def _live(folder: Path, cluster: ModelCluster) -> tuple[list[Any], list[Any]]:
    policy, answers = "fifo_perf", []
    service = await service_on(folder, cluster, policy)
    for at, what in LIFE:
        await run_on(service, at - cluster.clock, 0.5)
        cluster.clock = max(cluster.clock, at)
        if what == "kill":
            await leave(service)
            cluster.advance(3.0)
            service = await service_on(folder, cluster, policy)
        elif isinstance(what, str):
            policy = what
            service.use_policy(world_under(policy), {})
        else:
            answers.append(Requests(service).answer(what))
        await settle(service)
    await run_on(service, 400.0 - cluster.clock, 0.5)
    await end(service)
    return answers, sorted(cluster.starts)


def lived(folder: Path) -> tuple[list[Any], list[Any], list[Record]]:
    """Answers of a service, starts on its cluster, and its journal."""
    cluster = two_types(2, 2)
    with mock.patch("time.time", side_effect=lambda: 1e6 + cluster.clock):
        answers, starts = asyncio.run(_live(folder, cluster))
    return answers, starts, read_journal(folder)


def read_journal(folder: Path) -> list[Record]:
    """Records as rows, without what differs from run to run."""
    base = sqlite3.connect(folder / "journal.sqlite")
    rows = base.execute("SELECT number, clock, at, kind, job, data FROM events ORDER BY number").fetchall()
    base.close()
    shown = [(*row[:5], plain(json.loads(row[5]), folder)) for row in rows]
    for row in shown:
        row[5].update({name: 0 for name in ("pid", "ahead", "seconds") if name in row[5]})
    return shown


def write_journal(folder: Path, records: Sequence[Record]) -> None:
    """A state folder of a service that wrote these and was killed."""
    folder.mkdir(mode=0o700)
    base = sqlite3.connect(folder / "journal.sqlite")
    base.executescript(SCHEMA)
    base.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", [(*r[:5], json.dumps(r[5])) for r in records])
    base.commit()
    base.close()
    os.chmod(folder / "journal.sqlite", 0o600)


def recorded() -> list[Record]:
    """The journal that was kept."""
    return [tuple(row) for row in json.loads(JOURNAL.read_text())]  # type: ignore[misc]


@contextmanager
def at_rest(now: float) -> Iterator[None]:
    """The clocks of the machine stand still, in UTC."""
    with (
        mock.patch("time.time", return_value=now),
        mock.patch("time.monotonic", return_value=5.0),
        mock.patch.dict(os.environ, {"TZ": "UTC"}),
    ):
        time.tzset()
        yield
    time.tzset()


def asked(records: Sequence[Record], commands: Sequence[str]) -> dict[str, Any]:
    """Answers of a service that was killed after these records."""
    with at_rest(records[-1][2] + 5.0):
        return answer_of(commands, lambda folder: write_journal(folder / "state", records))


def _of_life() -> Taken:
    with tempfile.TemporaryDirectory() as made:
        answers, starts, journal = lived(Path(made).resolve() / "state")
    told = [f"{n} {clock:g} {kind} {job[-2:]} {json.dumps(data)}" for n, clock, _, kind, job, data in journal]
    return Taken({"answers": answers, "starts": [list(start) for start in starts], "journal": told})


def _of_cut(command: str, places: Sequence[int]) -> Taken:
    records = recorded()
    return Taken({f"after {n} {records[n - 1][3]}": asked(records[:n], [command]) for n in places})


def cases() -> list[Case]:
    """The life, and its journal cut off: the status after every record, all else after some."""
    n = len(recorded())
    some, tenth = [*range(7, n, 37), n], set(range(1, n, 10))
    of_cuts: list[tuple[str, Iterable[int], str]] = [
        ("status --json --state state", tenth, ""),
        ("status --json --state state ", set(range(1, n + 1)) - tenth, "exhaustive"),
        ("status --state state", some, "exhaustive"),
        ("queue --json --state state", some, ""),
        ("history --json --state state", [n], ""),
        ("history --details --state state", [n], ""),
        ("history 2 --state state", [n], ""),
        ("record --no-simulate --out out --json --state state", some, "exhaustive"),
        ("record --out out --state state", [n], "exhaustive"),
    ]
    taken = [(line, partial(_of_cut, line.strip(), tuple(sorted(at))), tier) for line, at, tier in of_cuts]
    life = Case("service/life", "life", "python -m tests.golden service/life", _of_life)
    return [life, *(Case("service/cut", line, f"allocator {line}", take, tier) for line, take, tier in taken)]
