"""What a user of today wants, where nothing else is said."""

from allocator.presets.preset import Preset

__all__ = ["DEFAULT"]

DEFAULT = Preset()
