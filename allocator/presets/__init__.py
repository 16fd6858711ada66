"""Presets by name: the default, and the worlds of published systems.

A preset of another package is an entry point in the group ``allocator.presets`` whose value is a `Preset` of that name.

>>> preset("gavel").mechanism.recompute_interval_seconds
1920.0
>>> preset("gavel").replace(round_seconds=720.0).mechanism.round_seconds
720.0
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from allocator.mechanism.rounds import Discipline
from allocator.presets.preset import DEFAULT, ENTRY_POINT_GROUP, Comparison, FairnessYardstick, Preset
from throughputs import InputError
from throughputs.entry_points import entries_of
from throughputs.errors import one_of

__all__ = ["Comparison", "FairnessYardstick", "Preset", "preset", "preset_names"]

_PRESETS = {DEFAULT.name: DEFAULT}
"""Those that are loaded."""


def preset_names() -> tuple[str, ...]:
    """Names of all presets, the default first."""
    return (DEFAULT.name, *entries_of(ENTRY_POINT_GROUP))


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
        found = entries_of(ENTRY_POINT_GROUP)[name].load()
        if not isinstance(found, Preset):
            raise InputError("preset plugin", field=name, found=found, expected="a Preset")
        _PRESETS[name] = found
    return _PRESETS[name]


def discipline_named(name: str) -> Discipline | None:
    """The discipline of that name, with its usual settings; None where no preset has one."""
    found = (discipline for each in preset_names() for discipline in preset(each).disciplines())
    return next((type(discipline)() for discipline in found if discipline.name == name), None)


def preset_of(settings: Mapping[str, Any]) -> Preset:
    """What a run had whose `settings` are as `Preset.as_dict` tells them, from JSON or not; others are left out.

    Raises
    ------
    InputError
        A setting that is out of range.
    """
    named, discipline = settings.get("preset"), discipline_named(settings.get("discipline", ""))
    chosen = preset(named if named in preset_names() else "default")
    chosen = chosen if discipline is None else chosen.replace(discipline=discipline)
    names = chosen.kinds().keys() - {"discipline"}
    return chosen.replace(**{name: settings[name] for name in names if name in settings})


def kinds_of_presets() -> Mapping[str, Any]:
    """Settings that `Preset.replace` changes under any preset, each with the types that it has anywhere."""
    return _kinds_of(preset_names())


@cache
def _kinds_of(names: tuple[str, ...]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for each in names:
        for name, kind in preset(each).kinds().items():
            found[name] = found[name] | kind if name in found else kind
    return found
