"""Errors that end a command without a traceback of this package, beside those of bad input."""

from __future__ import annotations

from allocator.data import DataError
from allocator.protocol.policy import fault_of, told
from allocator.registry import policies_of_others
from allocator.runtime.adapters.base import AdapterError, ProfilingError
from allocator.runtime.door.client import ServiceError
from allocator.runtime.records.journal import JournalError
from allocator.simulator.engine import SimulationStalledError
from formulations import SolverError

EXPECTED = (AdapterError, DataError, JournalError, ProfilingError, ServiceError, SolverError, SimulationStalledError)


def told_of_policy(error: Exception) -> str | None:
    """The traceback of an error in a policy that is not ours, without our lines; None of any other error."""
    policies = policies_of_others()
    return None if fault_of(error, *policies) is None else told(error, policies)
