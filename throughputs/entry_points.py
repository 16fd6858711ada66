"""What published systems have for themselves, by name: formats, measured tables and generators of their artifacts.

They live with their systems, in `allocator.published`, and are imported when they are asked for. An entry point is
``module:attribute``. `entries_of` finds those that installed packages, ours among them, declare by group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

_ENTRY_POINTS = {
    "gavel_trace": "allocator.published.gavel.generator:gavel_trace",
    "shockwave_trace": "allocator.published.shockwave.generator:shockwave_trace",
    "workload gavel": "allocator.published.gavel.workload:GavelWorkload",
    "workload shockwave": "allocator.published.shockwave.workload:ShockwaveWorkload",
    "trace elasticflow": "allocator.published.elasticflow.traces:elasticflow",
    "trace chronus": "allocator.published.chronus.traces:chronus",
    "trace pollux": "allocator.published.pollux.traces:pollux",
    "trace lucid": "allocator.published.lucid.traces:lucid",
    "merged models": "allocator.published.pollux.traces:merged_models",
    "write pollux": "allocator.published.pollux.traces:pollux_frame",
    "predictions": "allocator.published.lucid.predictions:with_predictions",
    "log philly": "allocator.published.logs.philly:philly_cells",
    "log pai-2020": "allocator.published.logs.pai:pai_cells",
    "table folder": "allocator.published.elasticflow.tables:read_folder",
    "trainings": "allocator.published.pollux.trainings:read_trainings",
    "fit": "allocator.published.pollux.descent:descended",
}


def load(name: str) -> Any:
    """What is registered under a name, imported now."""
    module, _, attribute = _ENTRY_POINTS[name].partition(":")
    return getattr(import_module(module), attribute)


def published(kind: str) -> dict[str, Callable[[], Any]]:
    """What is registered under names that begin with a word, by the rest of the name: functions that import it."""
    names = [name for name, place in _ENTRY_POINTS.items() if name.startswith(f"{kind} ") and _is_there(place)]
    return {name.removeprefix(f"{kind} "): partial(load, name) for name in names}


@cache
def entries_of(group: str) -> dict[str, EntryPoint]:
    """Those of a group by name, without any whose module has gone."""
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if _is_there(entry.module)}


def _is_there(place: str) -> bool:
    try:
        return find_spec(place.partition(":")[0]) is not None
    except ModuleNotFoundError:
        return False
