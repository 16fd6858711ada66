"""The job table, and what policies see of it."""

from allocator.protocol.jobs.table import JobTable

__all__ = ["JobTable"]
