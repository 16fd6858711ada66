"""Errors that end a command with one line on standard error and without a traceback, beside those of bad input."""

from __future__ import annotations

from allocator.runtime.client import NoServiceError
from allocator.runtime.profiling.measure import ProfilingError
from allocator.simulator.engine import SimulationStalledError
from formulations import SolverError

__all__ = ["EXPECTED"]

EXPECTED = (NoServiceError, ProfilingError, SolverError, SimulationStalledError)
