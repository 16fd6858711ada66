"""What packages bring along, by name: entry points, imported when they are asked for.

Readers, generators and fits that only one published system has are no part of what all share. Each is declared as an
entry point, ours in ``pyproject.toml`` as anybody's, in one of these groups:

========================  ==============================================================================================
``throughputs.traces``    ``(frame, source, first_line, time_unit_seconds) -> Trace`` of a table of that system
``throughputs.writers``   the table of that system from a `Trace`
``throughputs.logs``      a `Layout` of job logs (`throughputs.traces.logs.layouts`), under the name of its format
``throughputs.draws``     ``(n_jobs, mean_interarrival, **settings) -> Trace``, draw for draw as published
``throughputs.tables``    throughputs from a folder of that system
``throughputs.goodput``   trainings from the measured tables of that system
``throughputs.fits``      ``(cells) -> parameters, losses``: a fit of the throughput model (`throughputs.goodput.fit`)
========================  ==============================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from throughputs.errors import InputError, one_of


def load(kind: str, name: str) -> Any:
    """What is declared under a name in the group ``throughputs.KIND``.

    Raises
    ------
    InputError
        No installed package has it.
    """
    known = entries_of(f"throughputs.{kind}")
    if name not in known:
        expected = one_of(name, known) if known else "an installed package that has it"
        raise InputError(f"entry point throughputs.{kind}", found=name, expected=expected)
    return known[name].load()


@dataclass(frozen=True)
class Entry:
    """What a package declares under a name, or a module that was imported by reference."""

    declared: EntryPoint | None = None
    given: Any = None

    def load(self) -> Any:
        """The object; InputError where its module cannot be imported, which names the entry."""
        if self.declared is None:
            return self.given
        try:
            return self.declared.load()
        except Exception as error:
            found, place = f"{type(error).__name__}: {error}", f"entry point {self.declared.group}"
            expected = f"{self.declared.value} to be there and importable, or the package to be uninstalled"
            raise InputError(place, field=self.declared.name, found=found, expected=expected) from error


_given: dict[str, dict[str, Entry]] = {}


def declare(group: str, name: str, value: Any) -> None:
    """Let something be known in this process as if a package had declared it."""
    _given.setdefault(group, {})[name] = Entry(given=value)


def entries_of(group: str) -> dict[str, Entry]:
    """Those of a group by name, without any whose module has gone."""
    return _installed(group) | _given.get(group, {})


@cache
def _installed(group: str) -> dict[str, Entry]:
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: Entry(entry) for entry in found if _is_there(entry.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
