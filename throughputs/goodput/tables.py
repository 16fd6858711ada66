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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import FrameReader
from throughputs.goodput.samples import Samples

Array = NDArray[np.float64]

_PLACEMENTS = ("placement", "local_bsz", "step_time", "sync_time")
_SCALABILITY = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
_VALIDATION = ("progress", "iteration", "metric", "grad_sqr", "grad_var")


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

    nodes: NDArray[np.int64]
    gpus: NDArray[np.int64]
    batch_size: Array
    step_time: Array
    sync_time: Array
    placement: NDArray[np.object_]

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
    where = Path(path)
    frame, first_line = read_frame(where)
    reader = FrameReader(frame, str(where), first_line)
    if reader.has("placement"):
        reader.check_columns(_PLACEMENTS, ())
        placement = reader.text("placement")
        nodes, gpus = _shapes(placement, reader)
    else:
        reader.check_columns(_SCALABILITY, ())
        placement = np.full(len(frame), "", dtype=object)
        nodes, gpus = reader.whole_numbers("num_nodes"), reader.whole_numbers("num_replicas")
        _check(reader, "num_nodes", nodes, nodes >= 1, "at least 1 node")
        _check(reader, "num_replicas", gpus, gpus >= nodes, "at least as many GPUs as nodes")
    size, step, sync = (reader.numbers(name) for name in ("local_bsz", "step_time", "sync_time"))
    _check(reader, "local_bsz", size, np.isfinite(size) & (size > 0), "a batch size above 0")
    _check(reader, "step_time", step, np.isfinite(step) & (step > 0), "seconds above 0")
    _check(reader, "sync_time", sync, np.isfinite(sync) & (sync >= 0), "seconds, at least 0")
    return StepTimes(nodes, gpus, size, step, sync, placement)


def _shapes(placement: NDArray[np.object_], reader: FrameReader) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(R,) nodes and (R,) GPUs of placements."""
    good = np.array([re.fullmatch("[1-9]+", text) is not None for text in placement.tolist()], dtype=np.bool_)
    _check(reader, "placement", placement, good, "GPUs from 1 to 9 on each node, a digit a node, as in 44")
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

    batch_size: NDArray[np.int64]
    progress: Array
    iteration: Array
    metric: Array
    square_norm: Array
    variance: Array

    @property
    def epochs(self) -> int:
        """E."""
        return len(self.progress[0])

    def least_progress(self) -> Array:
        """(E,) progress after which each epoch is over, whatever the batch size."""
        return np.asarray(self.progress.min(axis=0))

    def statistics(self, batch_size: ArrayLike, epoch: int) -> tuple[Array, Array]:
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
    tables = [_read_training(path) for _, path in files]
    for (_, path), table in zip(files, tables, strict=True):
        if table.shape != tables[0].shape:
            expected = f"{tables[0].shape[1]}, as in {files[0][1].name}"
            raise InputError(path, field="epochs", found=table.shape[1], expected=expected)
    return Validation(np.array([size for size, _ in files], dtype=np.int64), *np.stack(tables, axis=1))


def _read_training(path: Path) -> Array:
    """(5, E) the columns of one table."""
    frame, first_line = read_frame(path)
    reader = FrameReader(frame, str(path), first_line)
    reader.check_columns(_VALIDATION, ())
    if not len(frame):
        raise InputError(path, found="no row", expected="one for each epoch")
    columns = {name: reader.numbers(name) for name in _VALIDATION}
    for name in ("progress", "iteration"):
        rises = np.isfinite(columns[name]) & (np.diff(columns[name], prepend=0.0) > 0)
        _check(reader, name, columns[name], rises, "a number above that of the epoch before")
    for name in ("grad_sqr", "grad_var"):
        good = np.isfinite(columns[name]) & (columns[name] >= 0)
        _check(reader, name, columns[name], good, "a number of at least 0")
    _check(reader, "metric", columns["metric"], np.isfinite(columns["metric"]), "a number")
    return np.stack(list(columns.values()))


def _check(
    reader: FrameReader,
    field: str,
    values: NDArray[np.object_] | NDArray[np.int64] | Array,
    good: NDArray[np.bool_],
    expected: str,
) -> None:
    if not good.all():
        row = int(np.argmin(good))
        found = values[row : row + 1].tolist()[0]
        raise InputError(reader.source, line=reader.first_line + row, field=field, found=found, expected=expected)
