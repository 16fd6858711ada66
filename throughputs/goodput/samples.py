"""Measured steps, from which a throughput model is fitted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import FrameReader

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_COLUMNS = ("nodes", "gpus", "batch_size", "step_time", "sync_time")
"""Columns of a table of samples; the batch size is that of one GPU and one micro-batch."""

SHORTEST_STEP = 1e-6
"""Seconds of gradients, at least: the parameters of a model are at least a hundredth of that."""

LONGEST_STEP = 1_000_000
"""Seconds of a step, at most."""

_SOURCE = "samples"


@dataclass(frozen=True, eq=False)
class Samples:
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

    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    batch_size: NDArray[np.float64]
    gradient_time: NDArray[np.float64]
    step_time: NDArray[np.float64]
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
        given = {
            "nodes": np.array(nodes, dtype=np.int64),
            "gpus": np.array(gpus, dtype=np.int64),
            "batch_size": np.array(batch_size, dtype=np.float64),
            "gradient_time": np.array(gradient_time, dtype=np.float64),
            "step_time": np.array(step_time, dtype=np.float64),
        }
        S = len(given["nodes"]) if given["nodes"].ndim == 1 else -1
        for name, array in given.items():
            if array.shape != (S,):
                raise InputError(source, field=name, found=array.shape, expected=f"{max(S, 0)} numbers")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "source", source)
        if S == 0:
            raise InputError(source, found="no sample", expected="at least one measurement")
        for name, good, expected in (
            ("nodes", self.nodes >= 1, "at least 1 node"),
            ("gpus", self.gpus >= self.nodes, "at least as many GPUs as nodes"),
            ("batch_size", _positive(self.batch_size), "a batch size above 0"),
            ("step_time", _positive(self.step_time), "seconds above 0"),
            ("step_time", self.step_time <= LONGEST_STEP, f"at most {LONGEST_STEP:,} s"),
            ("gradient_time", _positive(self.gradient_time), "seconds above 0: less synchronisation than step time"),
            (
                "gradient_time",
                self.gradient_time >= SHORTEST_STEP,
                f"at least {SHORTEST_STEP:g} s of step_time less sync_time",
            ),
        ):
            if not good.all():
                row = int(np.argmin(good))
                found = given[name][row].item()
                raise InputError(source, line=first_line + row, field=name, found=found, expected=expected)

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
        reader.check_columns(SAMPLE_COLUMNS, ())
        nodes, gpus = reader.whole_numbers("nodes"), reader.whole_numbers("gpus")
        size, step, sync = (reader.numbers(name) for name in SAMPLE_COLUMNS[2:])
        bad = ~(np.isfinite(sync) & (sync >= 0) & ((sync < step) | ~_positive(step)))
        if bad.any():
            row = int(np.argmax(bad))
            expected = f"seconds from 0 to below the step_time, {step[row]:g}"
            found = float(sync[row])
            raise InputError(source, line=first_line + row, field="sync_time", found=found, expected=expected)
        return cls(nodes, gpus, size, step - sync, step, source=source, first_line=first_line)

    def __len__(self) -> int:
        return len(self.nodes)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Samples:
        """Some of the samples."""
        columns = (self.nodes, self.gpus, self.batch_size, self.gradient_time, self.step_time)
        return Samples(*(column[rows] for column in columns), source=self.source)

    @cached_property
    def content(self) -> bytes:
        """All figures: equal for samples that are the same measurements in the same order."""
        columns = (self.nodes, self.gpus, self.batch_size, self.gradient_time, self.step_time)
        return b"".join(column.tobytes() for column in columns)


def read_samples(path: str | os.PathLike[str]) -> Samples:
    """Samples from a CSV or Parquet file with the columns of `SAMPLE_COLUMNS`.

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    where = Path(path)
    frame, first_line = read_frame(where)
    return Samples.from_frame(frame, source=str(where), first_line=first_line)


def _positive(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0)
