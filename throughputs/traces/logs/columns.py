"""Which column of a job log holds what: as it is said, else by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf

from throughputs.errors import InputError, did_you_mean
from throughputs.files import parse_toml
from throughputs.trace import REQUIRED


@cache
def fields() -> Mapping[str, Sequence[str]]:
    """What a log may say of a job, with the names that a column of it usually has, the likeliest first."""
    resource = files("throughputs") / "data" / "job_log_columns.toml"
    return parse_toml(resource.read_text(encoding="utf-8"), resource.name)


UNITS = {
    "ms": ("ms", "msec", "msecs", "millis", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
}
"""Units of time, with the words for them."""

SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit."""

UNIT_OF_WORD = {word: unit for unit, words in UNITS.items() for word in words}
_UNITS_ALONE = ("hours", "minutes", "seconds", "days")
_TIMES = ("submit", "duration", "start", "end", "deadline")


@dataclass(frozen=True)
class Column:
    """The column of a log that holds a field.

    Attributes
    ----------
    name : as in the log.
    guessed : whether its name alone says so.
    """

    name: str
    guessed: bool


def columns_of(
    header: Sequence[str], given: Mapping[str, str], source: str, known: Mapping[str, str] | None = None
) -> dict[str, Column]:
    """Columns by field: those that are `given`, and the others as `known`, or where that is None what names tell.

    Where no column has the time of submission, the start stands in.

    Raises
    ------
    InputError
        A given column does not exist, or there is none for the submission, the GPUs, or the duration or steps.
    """
    for field, name in given.items():
        if name not in header:
            expected = f"a column of it{did_you_mean(name, header)}: one of {', '.join(header)}"
            raise InputError(source, field=field, found=name, expected=expected)
    told = dict(known or {}) | dict(given)
    found = {field: Column(name, False) for field, name in told.items() if name in header}
    free = [name for name in header if name not in given.values()]
    for field, likely in fields().items() if known is None else ():
        best = None if field in found else _likeliest(free, likely, field)
        if best is not None:
            found[field] = Column(best, True)
            free.remove(best)
    if "submit" not in found and "start" in found:
        found["submit"] = found["start"]
    timed = {"duration", "steps"} & found.keys() or {"start", "end"} <= found.keys()
    lacking = [field for field in ("submit", "gpus", *([] if timed else ["duration"])) if field not in found]
    if lacking:
        named = ", ".join(f"--{field} NAME" for field in lacking)
        expected = f"a column for each ({named}), or a trace, with columns {', '.join(REQUIRED)}; by its first row the "
        expected += f"log has the columns {', '.join(header)}"
        raise InputError(source, field=", ".join(lacking), expected=expected)
    return {field: found[field] for field in fields() if field in found}


def unit_of(name: str) -> str | None:
    """The unit of time in the name of a column, such as ``duration_s`` or ``hours``; None where it tells none."""
    words = _words(name)
    return UNIT_OF_WORD.get(words[-1]) if words else None


def _likeliest(header: Sequence[str], likely: Sequence[str], field: str) -> str | None:
    """The column whose name, without a unit of time, is first in `likely`; of equals the first."""

    def rank(name: str) -> float:
        words = _words(name)
        stems = ["_".join(words)]
        if field in _TIMES and unit_of(name) is not None:
            stems.append("_".join(words[:-1]))
        alone = len(likely) if field == "duration" and name.lower() in _UNITS_ALONE else inf
        return min((likely.index(stem) for stem in stems if stem in likely), default=alone)

    best = min(header, key=rank, default=None)
    return best if best is not None and rank(best) < inf else None


def _words(name: str) -> list[str]:
    """``AllocTRES``, ``alloc-tres`` and ``Alloc TRES`` alike as ``["alloc", "tres"]``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^a-z0-9]+", apart.lower()) if word]
