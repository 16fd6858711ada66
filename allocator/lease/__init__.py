"""The trainer's side of a lease: no dependency, and nothing to do outside the scheduler (docs/leases.md)."""

from __future__ import annotations

from allocator.lease.checkpoints import Checkpoint, CheckpointError
from allocator.lease.fence import LeaseLockedError, StaleLeaseError, locked_lease, raise_epoch
from allocator.lease.files import Grant, Report
from allocator.lease.lease import Lease

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Grant",
    "Lease",
    "LeaseLockedError",
    "Report",
    "StaleLeaseError",
    "locked_lease",
    "raise_epoch",
]
