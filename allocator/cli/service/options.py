"""Options of commands that speak with a service, and questions to one that may have been stopped."""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.options.groups import argument, option
from allocator.runtime.door.client import AbsentError, Client, granted
from allocator.runtime.door.words import span
from throughputs import InputError


def state_folder(text: str) -> Path:
    """A folder by its name: no name is the working folder's, and whoever gives none had an empty variable in mind."""
    if not text:
        raise typer.BadParameter("found '', expected the state folder of a service")
    return Path(text)


StateOption = Annotated[
    Path,
    option("--state", "State folder of the service.", "DIR", envvar="ALLOCATOR_STATE", parser=state_folder),
]
JobsArgument = Annotated[list[str], argument("Numbers of jobs.", "JOB...", show_default=False)]


def job_numbers(given: list[str]) -> list[Any]:
    """Numbers, or UUIDs, of jobs."""
    return [int(text) if text.isdecimal() else text for text in given]


def duration(text: str, option: str) -> float:
    """Seconds of a text such as 90, 45s, 30m, 12h or 7d."""
    if ":" in text and (clock := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)):
        days, hours, minutes, last = (int(part or 0) for part in clock.groups())
        text = str(86400 * days + 3600 * hours + 60 * minutes + last)
    factor = _UNITS.get(text[-1:])
    number = text[:-1] if factor else text
    try:
        seconds = float(number) * (factor or 1.0)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InputError(option, found=text, expected="a length of time above 0: 90, 45s, 30m, 12h, 7d or 1-12:00:00")
    return seconds


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def asked_or_read(state: Path, what: str, **fields: Any) -> dict[str, Any]:
    """The answer of a service to a question that changes nothing; where none runs, from its journal, and said so.

    Raises
    ------
    NoServiceError
        None answers, and there is no journal.
    RefusedError, ServiceError
        See `Client.ask`.
    """
    try:
        return Client(state).ask(what, **fields)
    except AbsentError:
        if not (state / "journal.sqlite").is_file():
            raise
    # the policies take long to load, and a service that runs is asked without them
    service = import_module("allocator.runtime.door.stopped").at_rest(state)
    requests = import_module("allocator.runtime.door.requests").Requests(service)
    answer, book = granted(requests.answer({"do": what, **fields}), state), service.book
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(book.at))
    ago = span(max(time.time() - book.at, 0.0))
    last = f"it {'ended' if book.stopped else 'last wrote'} {ago} ago, {stamp}"
    print(
        f"no service runs on {state}: this is from its journal; {last}; start it again with "
        f"allocator serve --state {state}",
        file=sys.stderr,
    )
    return answer
