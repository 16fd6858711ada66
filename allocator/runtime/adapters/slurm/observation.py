"""What is to be thought of a start, from what Slurm says and what the runner has written."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from allocator.runtime.adapters.base import Seen
from allocator.runtime.adapters.slurm.orders import Start, begun_epoch, ended, kill_ordered
from allocator.runtime.adapters.slurm.records import SlurmJob

__all__ = ["row_of", "see"]


def row_of(start: Start, rows: Sequence[SlurmJob]) -> SlurmJob | None:
    """The Slurm job that a start was ordered with; others of the same job are of another epoch or another size.

    A slurmctld that was killed comes back with an older state: then none is of this epoch.
    """
    ours = [row for row in rows if row.mark == start.mark]
    return max(ours, key=lambda row: (not row.finished, row.number), default=None)


def see(start: Start, row: SlurmJob | None, *, starting: bool = False) -> Seen | None:
    """What an adapter tells of a start; None: it has never begun, and may be ordered again.

    Parameters
    ----------
    row : Slurm's job, by `row_of`.
    starting : an order for the job is being given.
    """
    job, epoch = start.mark.job, start.mark.epoch
    number = signal.SIGKILL if kill_ordered(start) else 0
    how = ended(start)
    if how is not None:
        return Seen(job, epoch, "ended", how.code, how.signal, how.reason, how.ended_at)
    if row is not None and row.restarts == start.mark.restarts:
        if row.holds_gpus:
            return Seen(job, epoch, "running", reason=row.state if row.completing else "")
        if row.pending and not (row.held and not starting):
            return Seen(job, epoch, "pending", reason=row.reason)
        if row.finished:
            return _finished(start, row, number)
    elif row is not None and row.completing:
        return Seen(job, epoch, "running", reason="it is being ended")
    elif row is not None:
        why = "it was stopped" if row.held else "Slurm has queued it again, as after the loss of a node"
        return Seen(job, epoch, "ended", signal=number, reason=why)
    if begun_epoch(start) >= epoch:
        return Seen(job, epoch, "ended", signal=number, reason="Slurm no longer knows the job")
    return Seen(job, epoch, "pending", reason="it is being started") if starting else None


def _finished(start: Start, row: SlurmJob, number: int) -> Seen:
    """Slurm's own word, which stands in for the runner's where that has written nothing."""
    job, epoch = start.mark.job, start.mark.epoch
    if row.states & {"COMPLETED", "FAILED"}:
        return Seen(job, epoch, "ended", row.exit_status, row.exit_signal, f"Slurm: {row.state}, {row.reason}")
    return Seen(job, epoch, "ended", signal=number, reason=f"Slurm: {row.state}, {row.reason}")
