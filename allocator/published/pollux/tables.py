"""Readers of the measured tables of AdaptDL (Pollux) and Sia: what steps take where, and how gradients change.

Of each model there are, in a folder of its name, tables of steps and of epochs:

    placements[-TYPE].csv   placement, local_bsz, step_time, sync_time
    scalability[-TYPE].csv  num_nodes, num_replicas, local_bsz, step_time, sync_time
    validation-B.csv        progress, iteration, metric, grad_sqr, grad_var

A placement is written as its GPUs on each node, a digit a node, so that ``44`` is two nodes with four GPUs each. Times
are seconds, batch sizes those of a micro-batch on one GPU. The rows of a validation table are the epochs of a training
with batch size B: `progress` counts them in steps of the initial batch size, which is the smallest B.

Sources: A. Qiao et al., "Pollux", OSDI 2021, public artifact petuum/adaptdl, branch osdi21-artifact; S. Jayaram
Subramanya et al., "Sia: Heterogeneity-aware, Goodput-optimized ML-cluster Scheduling", SOSP 2023, public artifact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, Texts
from throughputs.errors import InputError
from throughputs.files import read_rows
from throughputs.frames import FINITE, NOT_NEGATIVE, POSITIVE, Column, FrameReader
from throughputs.goodput.samples import Samples
from throughputs.limits import Range

if TYPE_CHECKING:
    import pandas as pd


_STEPS = {
    "local_bsz": Column("number", None, POSITIVE, "a batch size above 0"),
    "step_time": Column("number", None, POSITIVE, "seconds above 0"),
    "sync_time": Column("number", None, NOT_NEGATIVE, "seconds, at least 0"),
}
_PLACEMENTS = {"placement": Column("text")} | _STEPS
_SCALABILITY = {
    "num_nodes": Column("whole", None, Range(1), "at least 1 node"),
    "num_replicas": Column("whole", None, Range(1), "at least 1 GPU"),
} | _STEPS
_VALIDATION = {name: Column("number", None, FINITE, "a number") for name in ("progress", "iteration", "metric")} | {
    name: Column("number", None, NOT_NEGATIVE, "a number of at least 0") for name in ("grad_sqr", "grad_var")
}


@dataclass(frozen=True, eq=False)
class StepTimes:
    """R measured steps.

    Attributes
    ----------
    nodes, gpus : (R,) where they ran.
    batch_size : (R,) samples of a micro-batch on one GPU.
    step_time, sync_time : (R,) seconds of a step, and of those the ones for synchronisation.
    placement : (R,) str, GPUs on each node, a digit a node; empty where only their numbers are known.
    """

    nodes: Ints
    gpus: Ints
    batch_size: Floats
    step_time: Floats
    sync_time: Floats
    placement: Texts

    @classmethod
    def joined(cls, tables: Sequence[StepTimes]) -> StepTimes:
        """The rows of several tables, one after the other."""
        return cls(*(np.concatenate([getattr(table, field.name) for table in tables]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.nodes)

    def samples(self) -> Samples:
        """What a throughput model is fitted to; the gradients take what synchronisation does not.

        Raises
        ------
        InputError
            A step whose synchronisation takes all of its time, as in tables of jobs in a pipeline.
        """
        return Samples(self.nodes, self.gpus, self.batch_size, self.step_time - self.sync_time, self.step_time)


def read_step_times(path: str | os.PathLike[str]) -> StepTimes:
    """Steps from a table of placements or of scalability, told apart by its columns.

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    return read_rows(path, _steps_of)


def _steps_of(frame: pd.DataFrame, source: str, first_line: int) -> StepTimes:
    reader = FrameReader(frame, source, first_line)
    if reader.has("placement"):
        table = reader.read(_PLACEMENTS)
        placement = table["placement"]
        nodes, gpus = _shapes(placement, reader)
    else:
        table = reader.read(_SCALABILITY)
        placement = np.full(len(frame), "", dtype=object)
        nodes, gpus = table["num_nodes"], table["num_replicas"]
        reader.require(gpus >= nodes, gpus, "num_replicas", "at least as many GPUs as nodes")
    return StepTimes(nodes, gpus, table["local_bsz"], table["step_time"], table["sync_time"], placement)


def _shapes(placement: Texts, reader: FrameReader) -> tuple[Ints, Ints]:
    """(R,) nodes and (R,) GPUs of placements."""
    good = np.array([re.fullmatch("[1-9]+", text) is not None for text in placement.tolist()], dtype=np.bool_)
    reader.require(good, placement, "placement", "GPUs from 1 to 9 on each node, a digit a node, as in 44")
    nodes = np.array([len(text) for text in placement.tolist()], dtype=np.int64)
    gpus = np.array([sum(map(int, text)) for text in placement.tolist()], dtype=np.int64)
    return nodes, gpus


@dataclass(frozen=True, eq=False)
class Validation:
    """How a model trains with each of V batch sizes, over E epochs.

    Attributes
    ----------
    batch_size : (V,) ascending; the first is the initial one.
    progress : (V, E) steps of the initial batch size that the training is worth after each epoch.
    iteration : (V, E) steps after each epoch.
    metric : (V, E) what the training is judged by, in a unit of its own.
    square_norm, variance : (V, E) gradient statistics at the initial batch size.
    """

    batch_size: Ints
    progress: Floats
    iteration: Floats
    metric: Floats
    square_norm: Floats
    variance: Floats

    @property
    def epochs(self) -> int:
        """E."""
        return len(self.progress[0])

    def least_progress(self) -> Floats:
        """(E,) progress after which each epoch is over, whatever the batch size."""
        return np.asarray(self.progress.min(axis=0))

    def statistics(self, batch_size: ArrayLike, epoch: int) -> tuple[Floats, Floats]:
        """Squared norms and variances in an epoch (from 0), for batch sizes between those measured by interpolation.

        Raises
        ------
        InputError
            An epoch beyond the last, or a batch size beyond those measured.
        """
        size = np.asarray(batch_size, dtype=np.float64)
        first, last = int(self.batch_size[0]), int(self.batch_size[-1])
        if not 0 <= epoch < self.epochs:
            raise InputError("validation", field="epoch", found=epoch, expected=f"0 to {self.epochs - 1}")
        outside = ~((size >= first) & (size <= last))
        if outside.any():
            found = float(size[outside].ravel()[0])
            raise InputError("validation", field="batch_size", found=found, expected=f"from {first} to {last}")
        square, variance = (np.interp(size, self.batch_size, x[:, epoch]) for x in (self.square_norm, self.variance))
        return square, variance


def read_validation(folder: str | os.PathLike[str]) -> Validation:
    """The trainings in the files ``validation-B.csv`` of a folder.

    Raises
    ------
    InputError
        No such file, files of different length, or a file, line and field that cannot be used.
    OSError
        A file cannot be opened.
    """
    where = Path(folder)
    named = {path: re.fullmatch(r"validation-([1-9]\d*)\.csv", path.name) for path in where.iterdir()}
    files = sorted((int(found[1]), path) for path, found in named.items() if found)
    if not files:
        raise InputError(where, found="no such file", expected="files validation-BATCHSIZE.csv")
    tables = [read_rows(path, _epochs_of) for _, path in files]
    for (_, path), table in zip(files, tables, strict=True):
        if table.shape != tables[0].shape:
            expected = f"{tables[0].shape[1]}, as in {files[0][1].name}"
            raise InputError(path, field="epochs", found=table.shape[1], expected=expected)
    return Validation(np.array([size for size, _ in files], dtype=np.int64), *np.stack(tables, axis=1))


def _epochs_of(frame: pd.DataFrame, source: str, first_line: int) -> Floats:
    """(5, E) the columns of one table."""
    reader = FrameReader(frame, source, first_line)
    table = reader.read(_VALIDATION)
    if not len(frame):
        raise InputError(source, found="no row", expected="one for each epoch")
    for name in ("progress", "iteration"):
        rises = np.diff(table[name], prepend=0.0) > 0
        reader.require(rises, table[name], name, "a number above that of the epoch before")
    return np.stack(list(table.values()))
