"""The files by which a scheduler and a training process speak: small, whole, replaced by renaming.

A job has a folder, in which each file has one writer::

    lease.json    the scheduler's   who may run, and whether the lease goes on
    report.json   the trainer's     how far it is
    checkpoint/   the trainer's

A *lease epoch* counts the starts of a job. Whoever writes for an epoch that is not that of the lease is late: another
copy of the job runs, or will, and what the late one does must not count (fencing).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from allocator.lease.whole import LEASE_FILE, MOST_BYTES, REPORT_FILE, parse_object, read_bytes, write_bytes

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["LEASE_FILE", "REPORT_FILE"]

JOB = "ALLOCATOR_JOB_ID"
EPOCH = "ALLOCATOR_LEASE_EPOCH"
CHECKPOINTS = "ALLOCATOR_CHECKPOINT_DIR"
"""The variables that a trainer is started with; the folder of the job is the parent of that of its checkpoints."""


@dataclass(frozen=True)
class Grant:
    """What the scheduler says of a lease.

    Attributes
    ----------
    job, epoch : whose lease it is: the job's UUID, and the number of its start.
    ends : whether the lease ends: the trainer is to checkpoint at its next step boundary and to exit.
    gpus, accelerator : what the job runs on.
    """

    job: str
    epoch: int
    ends: bool = False
    gpus: int = 1
    accelerator: str = ""


@dataclass(frozen=True)
class Report:
    """What a trainer says of itself.

    Attributes
    ----------
    job, epoch : who reports.
    state : "starting", "training", "ending" or "done".
    steps : steps of the job so far, those of earlier epochs included.
    trained_steps, trained_seconds : steps of this epoch and the time that they took, its first step not included.
    saved_steps : steps that the last checkpoint holds.
    saved_at : when that was written, seconds since 1970; 0: never.
    save_seconds : how long it took to write; 0: this epoch has written none.
    start_seconds : from the start of the process to the end of its first step: what a restart costs besides the
        checkpoint, warm-up included.
    batch_size, gpus : what the job would like from its next start on; None: as it is.
    at : when this was written, seconds since 1970.
    """

    job: str
    epoch: int
    state: str = "starting"
    steps: float = 0.0
    trained_steps: float = 0.0
    trained_seconds: float = 0.0
    saved_steps: float = 0.0
    saved_at: float = 0.0
    save_seconds: float = 0.0
    start_seconds: float = 0.0
    batch_size: int | None = None
    gpus: int | None = None
    at: float = 0.0


Content = TypeVar("Content", bound="DataclassInstance")


def write_file(path: Path, content: Grant | Report) -> None:
    """Replace a file as a whole, see `write_bytes`."""
    write_bytes(path, json.dumps(vars(content)).encode())


def read_file(path: Path, kind: type[Content]) -> Content | None:
    """What a file says; None where it is absent or not understood: it comes from a process that we do not control."""
    return parse(read_bytes(path), kind)


def parse(told: bytes, kind: type[Content]) -> Content | None:
    """What the bytes of a file say, or None; names that are not known are passed over."""
    values = parse_object(told) if len(told) <= MOST_BYTES else None
    if values is None:
        return None
    known = {}
    for field in fields(kind):
        if field.name in values:
            value = values[field.name]
            if not _is_of(value, str(field.type)):
                return None
            known[field.name] = value
    try:
        return kind(**known)
    except TypeError:
        return None


def _is_of(value: object, annotation: str) -> bool:
    """Whether a value from JSON fits a field; numbers are finite, and no truth value stands for a number."""
    if value is None:
        return annotation.endswith("| None")
    wanted = annotation.removesuffix(" | None")
    if isinstance(value, bool):
        return wanted == "bool"
    if isinstance(value, int):
        return wanted in ("int", "float") and abs(value) < 1 << 63
    if isinstance(value, float):
        return wanted == "float" and math.isfinite(value)
    return isinstance(value, str) and wanted == "str"
