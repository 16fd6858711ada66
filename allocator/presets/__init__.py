"""Presets: sets of settings by name, one for each published system, and the default.

>>> preset("gavel").mechanism.recompute_interval_seconds
1920.0
>>> preset("gavel").replace(round_seconds=720.0).mechanism.round_seconds
720.0
"""

from allocator.presets.chronus import CHRONUS, CHRONUS_ELASTICFLOW
from allocator.presets.default import DEFAULT
from allocator.presets.elasticflow import ELASTICFLOW
from allocator.presets.gavel import GAVEL
from allocator.presets.lucid import LUCID
from allocator.presets.preset import Comparison, FairnessYardstick, Preset
from allocator.presets.shockwave import SHOCKWAVE, SHOCKWAVE_PUBLISHED
from throughputs import InputError
from throughputs.errors import one_of

__all__ = ["Comparison", "FairnessYardstick", "Preset", "preset", "preset_names"]

_ALL = (DEFAULT, GAVEL, SHOCKWAVE, SHOCKWAVE_PUBLISHED, ELASTICFLOW, CHRONUS, CHRONUS_ELASTICFLOW, LUCID)
_PRESETS = {preset.name: preset for preset in _ALL}


def preset_names() -> tuple[str, ...]:
    """Names of all presets."""
    return tuple(_PRESETS)


def preset(name: str | Preset) -> Preset:
    """The preset of that name; a `Preset` is returned as it is.

    Raises
    ------
    InputError
        No such preset.
    """
    if isinstance(name, Preset):
        return name
    if name not in _PRESETS:
        raise InputError("preset", found=name, expected=one_of(name, _PRESETS))
    return _PRESETS[name]
