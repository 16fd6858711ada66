"""The simulator: a world around the decision core, its settings, results and figures."""

from allocator.simulator.engine import SimulationStalledError, simulate
from allocator.simulator.metrics import summarize
from allocator.simulator.observers import Observer, Recorder, RoundOutcome
from allocator.simulator.presets import Preset, preset, preset_names
from allocator.simulator.result import SimulationResult
from allocator.simulator.settings import SimulatorSettings

__all__ = [
    "Observer",
    "Preset",
    "Recorder",
    "RoundOutcome",
    "SimulationResult",
    "SimulationStalledError",
    "SimulatorSettings",
    "preset",
    "preset_names",
    "simulate",
    "summarize",
]
