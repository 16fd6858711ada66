"""Measured steps, from which a throughput model is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, Rowed
from throughputs.errors import InputError
from throughputs.files import StrPath, read_rows
from throughputs.frames import POSITIVE, Column, FrameReader, column, columns_of, keep_columns
from throughputs.limits import Range, require

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_COLUMNS = ("nodes", "gpus", "batch_size", "step_time", "sync_time")
"""Columns of a table of samples; the batch size is that of one GPU and one micro-batch."""

SHORTEST_STEP = 1e-6
"""Seconds of gradients, at least: the parameters of a model are at least a hundredth of that."""

LONGEST_STEP = 1_000_000
"""Seconds of a step, at most."""

_SOURCE = "samples"

_TABLE = {name: Column("whole" if name in ("nodes", "gpus") else "number") for name in SAMPLE_COLUMNS}


@dataclass(frozen=True, eq=False)
class Samples(Rowed):
    """S measurements of steps that accumulate nothing, or means of such.

    Parameters
    ----------
    nodes, gpus : (S,) whole numbers, no more nodes than GPUs.
    batch_size : (S,) samples of a micro-batch on one GPU.
    gradient_time : (S,) seconds to compute the gradients of a micro-batch: the time of a step that only accumulates.
    step_time : (S,) seconds of a step, synchronisation included.
    source, first_line : for messages: the file, and the line of it that holds the first sample.

    Raises
    ------
    InputError
        No sample, columns of different length, more nodes than GPUs, a size that is not positive, or a
        time that no step takes.
    """

    nodes: Ints = column("whole", within=Range(1), expected="at least 1 node")
    gpus: Ints = column("whole", within=Range(1), expected="at least 1 GPU")
    batch_size: Floats = column("number", within=POSITIVE, expected="a batch size above 0")
    step_time: Floats = column(
        "number",
        within=Range(0, LONGEST_STEP, above=True),
        expected=f"seconds above 0, at most {LONGEST_STEP:,} s",
    )
    gradient_time: Floats = column(
        "number", within=Range(SHORTEST_STEP), expected=f"at least {SHORTEST_STEP:g} s of step_time less sync_time"
    )
    source: str = _SOURCE

    def __init__(
        self,
        nodes: ArrayLike,
        gpus: ArrayLike,
        batch_size: ArrayLike,
        gradient_time: ArrayLike,
        step_time: ArrayLike,
        *,
        source: str = _SOURCE,
        first_line: int = 1,
    ) -> None:
        object.__setattr__(self, "source", source)
        if not np.size(nodes):
            raise InputError(source, found="no sample", expected="at least one measurement")
        times = {"gradient_time": gradient_time, "step_time": step_time}
        keep_columns(self, {"nodes": nodes, "gpus": gpus, "batch_size": batch_size, **times}, source, first_line)
        require(self.gpus >= self.nodes, self.gpus, source, "gpus", "at least as many GPUs as nodes", first_line)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What no sample tells, and what a fit takes instead; a line each, none where samples tell all parameters."""
        several, across = self.gpus > 1, self.nodes > 1
        local = (several & ~across).any()
        if across.any():
            nodes = "" if local else "several GPUs on one node: synchronisation there is taken to cost no time"
        elif local:
            nodes = "several nodes: synchronisation across them is taken to be 1.1 times as long as on one"
        else:
            nodes = "several GPUs: synchronisation is taken to cost no time"
        more = several.any() and not (self.gpus > 2).any()
        one_size = len(np.unique(self.batch_size)) == 1
        lines = (
            nodes,
            "more than two GPUs: each further one is taken to cost no time" if more else "",
            "another batch size: half of the time of gradients is taken to be constant" if one_size else "",
        )
        return tuple(f"no sample of {line}" for line in lines if line)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = _SOURCE, first_line: int = 1) -> Samples:
        """From a table with the columns of `SAMPLE_COLUMNS`; the time of gradients is step_time less sync_time.

        Raises
        ------
        InputError
            A column is missing or unknown, or as the constructor.
        """
        reader = FrameReader(frame, source, first_line)
        table = reader.read(_TABLE)
        step, sync = table["step_time"], table.pop("sync_time")
        below = np.isfinite(sync) & (sync >= 0) & ((sync < step) | ~(np.isfinite(step) & (step > 0)))
        reader.require(below, sync, "sync_time", "seconds from 0 to below the step_time")
        return cls(**table, gradient_time=step - sync, source=source, first_line=first_line)

    @cached_property
    def content(self) -> bytes:
        """All figures: equal for samples that are the same measurements in the same order."""
        return b"".join(getattr(self, name).tobytes() for name in columns_of(Samples))


def read_samples(path: StrPath) -> Samples:
    """Samples from a CSV or Parquet file with the columns of `SAMPLE_COLUMNS`.

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    return read_rows(path, Samples.from_frame)
