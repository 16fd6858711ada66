"""The simulator: a world around the decision core.

Names are imported at first use: settings and presets know nothing of the engine that they are for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.presets import preset
    from allocator.simulator.engine import SimulationStalledError, simulate
    from allocator.simulator.rules.base import Rule, RunningRule

__all__ = ["Rule", "RunningRule", "SimulationStalledError", "preset", "simulate"]

_HOME = {
    "Rule": "allocator.simulator.rules.base",
    "RunningRule": "allocator.simulator.rules.base",
    "SimulationStalledError": "allocator.simulator.engine",
    "preset": "allocator.presets",
    "simulate": "allocator.simulator.engine",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'allocator.simulator' has no attribute {name!r}")
