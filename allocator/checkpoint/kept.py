"""What a checkpoint keeps of the objects of a run, and which of them it may hold as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

VALUES: dict[str, type[Any]] = {}
"""Classes whose objects a checkpoint may hold, by module and name: they are made again of their fields."""


def hold(*kinds: type[Any]) -> None:
    """Let checkpoints hold objects of these classes."""
    VALUES.update({f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds})


class Kept:
    """An object of which a checkpoint keeps the attributes that `keeps` names."""

    keeps: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in self.keeps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        for name, value in state.items():
            setattr(self, name, value)
