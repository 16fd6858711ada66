"""Errors that end a command with one line on standard error and without a traceback, beside those of bad input."""

from __future__ import annotations

from allocator.runtime.adapters.base import AdapterError
from allocator.runtime.door.client import ServiceError
from allocator.runtime.profiling.measure import ProfilingError
from allocator.runtime.records.journal import JournalError
from allocator.simulator.engine import SimulationStalledError
from formulations import SolverError

__all__ = ["EXPECTED"]

EXPECTED = (AdapterError, JournalError, ProfilingError, ServiceError, SolverError, SimulationStalledError)
