"""The trainer's side of a lease: no dependency, and nothing to do outside the scheduler.

A job holds its GPUs under a lease. When the scheduler wants them for another job, the lease ends: the process saves a
checkpoint at its next step boundary and exits, and a later start goes on from there::

    from allocator.lease import Lease

    lease = Lease()
    lease.restore(load)  # load(folder) reads what save has written
    for batch in lease(loader):  # any iterable, a DataLoader for example
        train(batch)
        lease.checkpoint_if_ending(save)  # save(folder) writes files into an empty folder

A program without it runs, but begins anew whenever it has made room, unless it saves on SIGTERM by itself.
"""

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
