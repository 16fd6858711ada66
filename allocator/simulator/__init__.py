"""The simulator: a world around the decision core, its settings, results and figures."""

from allocator.results.deadlines import PUBLISHED_SLOS, assign_slos
from allocator.results.metrics import priorities_table, summarize
from allocator.results.observers import Observer, Recorder, StretchOutcome
from allocator.results.result import SimulationResult
from allocator.simulator.arrivals import preload
from allocator.simulator.engine import SimulationStalledError, simulate
from allocator.simulator.presets import Preset, preset, preset_names
from allocator.simulator.settings import SimulatorSettings

__all__ = [
    "PUBLISHED_SLOS",
    "Observer",
    "Preset",
    "Recorder",
    "SimulationResult",
    "SimulationStalledError",
    "SimulatorSettings",
    "StretchOutcome",
    "assign_slos",
    "preload",
    "preset",
    "preset_names",
    "priorities_table",
    "simulate",
    "summarize",
]
