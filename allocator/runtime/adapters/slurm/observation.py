"""What is to be thought of a start, from what Slurm says and what the runner has written."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from allocator.runtime.adapters.base import Seen
from allocator.runtime.adapters.slurm.orders import Start, begun_epoch, ended, kill_ordered
from allocator.runtime.adapters.slurm.records import SlurmJob


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
    if how is not None and row is not None and _is_taken(start, row) and (how.code or not row.held):
        # it was ended to be queued again, whatever it made of that
        return Seen(job, epoch, "ended", None, how.signal, f"taken by Slurm: {how.reason}", how.ended_at)
    # why a job ended with an error Slurm knows when it has seen the end itself
    settled = row is None or row.restarts != start.mark.restarts or row.completing or not row.holds_gpus
    if how is not None and (settled or not how.code):
        return how
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


def _is_taken(start: Start, row: SlurmJob) -> bool:
    """Whether Slurm has queued the job again, or has ended it for reasons that are not the job's."""
    return row.restarts != start.mark.restarts or bool(row.states & _TAKEN)


def _finished(start: Start, row: SlurmJob, number: int) -> Seen:
    """Slurm's own word, which stands in for the runner's where that has written nothing."""
    job, epoch, said = start.mark.job, start.mark.epoch, f"Slurm: {row.state}, {row.reason}"
    if begun_epoch(start) < epoch or _is_taken(start, row):
        return Seen(job, epoch, "ended", signal=number, reason=said)
    if row.states & {"COMPLETED", "FAILED"}:
        return Seen(job, epoch, "ended", row.exit_status, row.exit_signal, said)
    # out of time or memory, or cancelled
    return Seen(job, epoch, "ended", 128 + signal.SIGKILL, signal.SIGKILL, said)


_TAKEN = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"})
