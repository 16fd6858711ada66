"""Entry points of installed packages, ours among them: presets, rules of placement."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec


@cache
def entries_of(group: str) -> dict[str, EntryPoint]:
    """Those of a group by name, without any whose module has gone."""
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if _is_there(entry.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
