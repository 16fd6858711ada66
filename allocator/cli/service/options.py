"""Options of commands that speak with a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.options.words import argument, option
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
    factor = _UNITS.get(text[-1:])
    number = text[:-1] if factor else text
    try:
        seconds = float(number) * (factor or 1.0)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise InputError(option, found=text, expected="a length of time, as in 90, 45s, 30m, 12h or 7d")
    return seconds


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
