"""Presets by name: the default, and the worlds of published systems.

A preset of another package is an entry point in the group ``allocator.presets`` whose value is a `Preset` of that name.

>>> preset("gavel").mechanism.recompute_interval_seconds
1920.0
>>> preset("gavel").replace(round_seconds=720.0).mechanism.round_seconds
720.0
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from allocator.presets.default import DEFAULT
from allocator.presets.preset import Comparison, FairnessYardstick, Preset
from throughputs import InputError
from throughputs.errors import one_of

__all__ = ["Comparison", "FairnessYardstick", "Preset", "preset", "preset_names"]

ENTRY_POINT_GROUP = "allocator.presets"

_PRESETS = {DEFAULT.name: DEFAULT}
"""Those that are loaded."""


@cache
def _others() -> dict[str, EntryPoint]:
    """Those of installed packages, without any whose module has gone."""
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if _is_there(entry.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def preset_names() -> tuple[str, ...]:
    """Names of all presets, the default first."""
    return (DEFAULT.name, *_others())


def preset(name: str | Preset) -> Preset:
    """The preset of that name; a `Preset` is returned as it is.

    Raises
    ------
    InputError
        No such preset.
    """
    if isinstance(name, Preset):
        return name
    if name not in preset_names():
        raise InputError("preset", found=name, expected=one_of(name, preset_names()))
    if name not in _PRESETS:
        found = _others()[name].load()
        if not isinstance(found, Preset):
            raise InputError("preset plugin", field=name, found=found, expected="a Preset")
        _PRESETS[name] = found
    return _PRESETS[name]
