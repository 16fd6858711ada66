"""The simulator: a world around the decision core.

Names are imported at first use: settings and presets know nothing of the engine that they are for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.presets import Preset, preset, preset_names
    from allocator.results.deadlines import PUBLISHED_SLOS, assign_slos
    from allocator.results.measures.parts import priorities_table
    from allocator.results.metrics import summarize
    from allocator.results.observers import Observer, Recorder, StretchOutcome
    from allocator.results.result import SimulationResult
    from allocator.results.summary import Summary
    from allocator.simulator.arrivals import preload
    from allocator.simulator.engine import SimulationStalledError, simulate
    from allocator.simulator.rules.base import Round, Rule, Running, Stretch

__all__ = [
    "PUBLISHED_SLOS",
    "Observer",
    "Preset",
    "Recorder",
    "Round",
    "Rule",
    "Running",
    "SimulationResult",
    "SimulationStalledError",
    "Stretch",
    "StretchOutcome",
    "Summary",
    "assign_slos",
    "preload",
    "preset",
    "preset_names",
    "priorities_table",
    "simulate",
    "summarize",
]

_HOME = {
    "PUBLISHED_SLOS": "allocator.results.deadlines",
    "Observer": "allocator.results.observers",
    "Preset": "allocator.presets",
    "Recorder": "allocator.results.observers",
    "Round": "allocator.simulator.rules.base",
    "Rule": "allocator.simulator.rules.base",
    "Running": "allocator.simulator.rules.base",
    "Stretch": "allocator.simulator.rules.base",
    "SimulationResult": "allocator.results.result",
    "SimulationStalledError": "allocator.simulator.engine",
    "StretchOutcome": "allocator.results.observers",
    "Summary": "allocator.results.summary",
    "assign_slos": "allocator.results.deadlines",
    "preload": "allocator.simulator.arrivals",
    "preset": "allocator.presets",
    "preset_names": "allocator.presets",
    "priorities_table": "allocator.results.measures.parts",
    "simulate": "allocator.simulator.engine",
    "summarize": "allocator.results.metrics",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'allocator.simulator' has no attribute {name!r}")
