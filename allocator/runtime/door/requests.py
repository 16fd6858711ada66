"""What can be asked of a running service: names of requests, their fields, and the answers; all plain data."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from allocator.conversion import Range, read_field
from allocator.runtime.door.client import MOST_AT_ONCE
from allocator.runtime.door.views import event_view, service_view, status
from allocator.runtime.records.book import COMPLETED, FINAL, RUNNING, SUBMITTED, Job, checked
from allocator.runtime.records.journal import JournalError
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.runtime.service import Service

_IN_A_PIECE = 25

_Answer = dict[str, Any]


class Requests:
    """Answers requests; of bad ones it says which field is wrong.

    Parameters
    ----------
    service : that is asked.
    set_policy : takes name and settings of another policy into use; None where that cannot be done.
    """

    def __init__(self, service: Service, set_policy: Callable[[str, Mapping[str, str]], None] | None = None) -> None:
        self._service, self._set_policy = service, set_policy
        self._turn = asyncio.Lock()

    def answer(self, asked: Any) -> _Answer:
        """The answer to a request: ``{"ok": True, ...}`` or ``{"ok": False, "error": ..., "fault": ...}``.

        A ``fault`` is the service's; otherwise something is wrong with the request.
        """
        answer = self.open(asked)
        return {name: list(value) if isinstance(value, Iterator) else value for name, value in answer.items()}

    async def stream(self, answer: _Answer) -> AsyncIterator[str]:
        """The pieces of an answer that is `open`, however many are asked for at once one in each turn of the loop."""
        pieces = self.pieces(answer)
        while True:
            async with self._turn:
                piece = next(pieces, None)
                await asyncio.sleep(0)
            if piece is None:
                return
            yield piece

    @staticmethod
    def pieces(answer: _Answer) -> Iterator[str]:
        """As JSON, in pieces that take a few milliseconds each and say what is so when they are made."""
        for position, (name, value) in enumerate(answer.items()):
            yield f'{"," if position else "{"}"{name}":'
            if not isinstance(value, Iterator):
                yield _json(value)
                continue
            before = "["
            while some := list(islice(value, _IN_A_PIECE)):
                yield before + _json(some)[1:-1]
                before = ","
            yield "]" if before == "," else "[]"
        yield "}"

    def open(self, asked: Any) -> _Answer:
        """The answer, of which what may be long is an iterator."""
        try:
            if not isinstance(asked, dict):
                raise InputError("request", found=type(asked).__name__, expected="an object with a field do")
            what = asked.get("do")
            checked("do", what, isinstance(what, str) and what in REQUESTS, f"one of {', '.join(REQUESTS)}")
            return {"ok": True} | REQUESTS[str(what)](self, asked)
        except InputError as error:
            return {"ok": False, "error": str(error)}
        except JournalError as error:
            return {"ok": False, "error": f"not done, as nothing can be written down: {error}", "fault": True}

    def _submit(self, asked: Mapping[str, Any]) -> _Answer:
        listed = _list(asked.get("jobs"), 1, f"1 to {MOST_AT_ONCE:,} jobs")
        active, most = len(self._service.book.active), self._service.settings.max_jobs
        found = f"{active} jobs that wait or run, and {len(listed)} more"
        checked("jobs", found, active + len(listed) <= most, f"at most {most:,} at once")
        book, asked_for = self._service.book, []
        new: dict[str, dict[str, Any]] = {}
        for one in listed:
            data = _submission(one, self._service.clock())
            self._service.deciding.world.check_entity(data.get("entity", ""))
            key = _uuid(one.get("uuid"))
            job, limit = Job.submitted(-1, key, data), self._service.settings.user_gpus
            self._service.deciding.prospects.check(job)
            checked("gpus", job.gpus, not limit or job.gpus <= limit, f"at most {limit}, what a user may ask for")
            for before in self._jobs(list(data.get("after", ())), "after"):
                through = before.state in FINAL and before.state != COMPLETED
                checked("after", f"job {before.id}: {before.state}", not through, "jobs that may complete")
            asked_for.append(key)
            # one that is there already was sent again, as the first answer was lost
            if key not in book.jobs:
                new.setdefault(key, data)
        self._service.submit(new.items())
        return {"jobs": list(self._submitted([book.jobs[key] for key in asked_for]))}

    def _submitted(self, jobs: Iterable[Job]) -> Iterator[_Answer]:
        """Jobs that were just let in, and what their user should know of each."""
        deciding, now = self._service.deciding, self._service.clock()
        about_type = cache(deciding.prospects.about_type)
        for job in jobs:
            unfit = deciding.why_unfit(job)
            told = (
                f"cannot start now: {unfit}" if unfit else "",
                about_type(job.job_type, job.gpus),
                deciding.prospects.about_deadline(job, now),
            )
            yield {"id": job.id, "uuid": job.uuid, "notices": [text for text in told if text]}

    def _status(self, asked: Mapping[str, Any]) -> _Answer:
        book, wanted = self._service.book, asked.get("jobs")
        some = book.active.values() if asked.get("active") else book.by_id
        chosen = list(some) if wanted is None else self._jobs(wanted)
        if asked.get("last") is not None:
            chosen = chosen[max(len(chosen) - _whole("last", asked["last"], 0), 0) :]
        return status(self._service, chosen)

    def _cancel(self, asked: Mapping[str, Any]) -> _Answer:
        jobs = self._jobs(asked.get("jobs"))
        through = [job.id for job in jobs if job.state in FINAL]
        self._service.cancel(jobs)
        return {"cancelled": [job.id for job in jobs if job.id not in through], "through": through}

    def _drain(self, asked: Mapping[str, Any]) -> _Answer:
        name, known = asked.get("node"), [node.name for node in self._service.hardware.nodes]
        checked("node", name, name in known, f"one of {', '.join(known)}")
        service = self._service
        service.drain(str(name), asked["do"] == "drain", self._jobs(asked.get("evict", [])))
        left = [job.id for job in service.book.holding.values() if name in job.placed.places and job.state == RUNNING]
        return {"node": name, "drained": name in service.hardware.drained, "jobs": left}

    def _history(self, asked: Mapping[str, Any]) -> _Answer:
        last = min(_whole("last", asked.get("last", 1000), 1), 100_000)
        (job,) = (None,) if asked.get("job") is None else self._jobs([asked["job"]])
        events = self._service.journal.events(None if job is None else job.uuid, last)
        return {"events": (event_view(self._service.book, event) for event in events)}

    def _policy(self, asked: Mapping[str, Any]) -> _Answer:
        name = asked.get("name")
        if name is not None:
            settings = asked.get("settings") or {}
            if self._set_policy is None:
                raise InputError("request", field="name", found=name, expected="a service whose policy may be changed")
            if not isinstance(name, str) or not isinstance(settings, dict):
                raise InputError("request", field="name", found=name, expected="a name, and settings by name")
            self._set_policy(name, {str(key): str(value) for key, value in settings.items()})
        return service_view(self._service)

    def _stop(self, asked: Mapping[str, Any]) -> _Answer:  # noqa: ARG002
        self._service.close()
        return {"stopping": True}

    def _jobs(self, wanted: Any, field: str = "jobs") -> list[Job]:
        """The jobs that are named, each once."""
        book, named = self._service.book, {}
        there = f"from 0 to {len(book.by_id) - 1}" if book.by_id else "but no job was submitted so far"
        for one in _list(wanted, 0, f"a list of numbers of jobs, at most {MOST_AT_ONCE:,}"):
            if not (isinstance(one, str) and one in book.jobs):
                good = type(one) is int and 0 <= one < len(book.by_id)
                one = book.by_id[checked(field, one, good, f"the number of a job, {there}")].uuid
            named[one] = book.jobs[one]
        return list(named.values())


REQUESTS: dict[str, Callable[[Requests, Mapping[str, Any]], _Answer]] = {
    "submit": Requests._submit,
    "status": Requests._status,
    "cancel": Requests._cancel,
    "drain": Requests._drain,
    "resume": Requests._drain,
    "history": Requests._history,
    "policy": Requests._policy,
    "stop": Requests._stop,
}
"""By name: on the socket, and on the web where its door lets them."""

READING = ("history", "status")
"""Those that change nothing; for others the web door needs leave."""


def _submission(one: Any, now: float) -> dict[str, Any]:
    """Data of the event ``submitted``, checked."""
    checked("jobs", type(one).__name__, isinstance(one, dict), "objects")
    for name in one:
        checked(str(name)[:80], "unknown", name in SUBMITTED or name == "uuid", f"one of {', '.join(SUBMITTED)}")
    data = {name: _read(name, one[name], kind) for name, kind in SUBMITTED.items() if one.get(name) is not None}
    checked("command", "none", "command" in data, "a command with its arguments")
    checked("deadline", data.get("deadline"), data.get("deadline", inf) > now, f"seconds above {now:.3f}, now")
    return data


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _read(name: str, value: Any, kind: Any) -> Any:
    return read_field(value, kind, source="request", field=name, folder=Path())


def _whole(name: str, value: Any, least: int) -> int:
    return int(_read(name, value, Annotated[int, Range(least)]))


def _list(value: Any, least: int, expected: str) -> list[Any]:
    """Of jobs, at most as many as are asked for at once."""
    is_list = isinstance(value, list)
    found = f"{len(value):,} of them" if is_list else value
    checked("jobs", found, is_list and least <= len(value) <= MOST_AT_ONCE, expected)
    return list(value)


def _uuid(given: Any) -> str:
    if given is None:
        return uuid.uuid4().hex
    try:
        return uuid.UUID(str(given)).hex
    except ValueError:
        raise InputError("request", field="uuid", found=given, expected="a UUID") from None
