"""Trainings as they were measured: tables of steps by placement, and of epochs by batch size.

A folder has a folder for each model, with the files of `allocator.published.pollux.tables`. Step times of a placement
that was measured are interpolated between its batch sizes, those of others between placements with about as many nodes
and GPUs. Limits of batch sizes are those that were measured. Of a model that trains in a pipeline the tables have the
time of a micro-batch on one stage in the place of a step (`PipelinedMeasurements`).

Sources: A. Qiao et al., "Pollux", OSDI 2021, public artifact petuum/adaptdl, branch osdi21-artifact; S. Jayaram
Subramanya et al., "Sia", SOSP 2023, public artifact.

The published fit of throughput models is bounded L-BFGS-B of SciPy, from one start for all.

It ends where the loss falls by less than a tolerance, which is often well before the minimum of `log_errors`, and
schedulers that rest on such models choose otherwise. So published schedules are met with this fit, and not with a
better one. Its digits are those of SciPy's linear algebra, which depend on the processor.

Source: the fits of the public artifacts of Pollux (OSDI 2021), with SciPy's own tolerances, and of Sia (SOSP 2023).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from allocator.published.pollux.tables import StepTimes, Validation, read_step_times, read_validation
from throughputs.arrays import Floats
from throughputs.errors import InputError
from throughputs.goodput.log_errors import Cells, Loss
from throughputs.goodput.trainings.profiled import PASSES
from throughputs.goodput.trainings.training import Shape, Training, Trainings, packed_shape

_MOST_NODES = 16
"""Placements on more nodes count as on so many, where they have to be interpolated: more were not measured."""

_MICRO_BATCHES = 48
"""Of one sample each, that a copy of a pipeline takes in a step (Sia, artifact); the tables do not say it."""

_FILE = re.compile(r"(placements|scalability)-(.+)\.csv")


class _Steps:
    """Step times of one model on one accelerator type."""

    def __init__(self, placed: StepTimes, scaled: StepTimes | None) -> None:
        self._curves: dict[str, tuple[Floats, Floats, Floats]] = {}
        for name in dict.fromkeys(placed.placement.tolist()):
            rows = np.flatnonzero(placed.placement == name)
            rows = rows[np.argsort(placed.batch_size[rows], kind="stable")]
            self._curves[name] = placed.batch_size[rows], placed.step_time[rows], placed.sync_time[rows]
        self._tables = [placed] + ([] if scaled is None else [scaled])
        self._known: dict[tuple[Shape, float], tuple[float, float]] = {}

    @cached_property
    def _between(self) -> Any:
        """Linear between (nodes, GPUs, batch size); placements with the same three count by their mean.

        None where these do not span a solid.
        """
        from scipy.interpolate import LinearNDInterpolator
        from scipy.spatial import QhullError

        placed, *scaled = self._tables
        keys, which, count = np.unique(_keys(placed), axis=0, return_inverse=True, return_counts=True)
        means = [np.bincount(which.ravel(), times) / count for times in _times(placed).T]
        # of the triangulations of a grid it is the order of the points that decides which one is found
        points = np.concatenate([keys, *map(_keys, scaled)])
        times = np.concatenate([np.stack(means, axis=1), *map(_times, scaled)])
        try:
            return LinearNDInterpolator(points, times)
        except QhullError:
            return None

    @cached_property
    def _nearest(self) -> Any:
        """The times of the point next to one that is not between any, each axis in parts of its extent."""
        from scipy.interpolate import NearestNDInterpolator

        return NearestNDInterpolator(self._between.points, self._between.values, rescale=True)

    def at(self, shape: Shape, size: float) -> tuple[float, float] | None:
        """Step and synchronisation time; beyond what was measured those of the nearest measurement.

        None for a placement that was not measured where others are too few to interpolate between.
        """
        key = shape, size
        if key not in self._known:
            name = _canonical(shape)
            if name in self._curves:
                sizes, step, sync = self._curves[name]
                self._known[key] = float(np.interp(size, sizes, step)), float(np.interp(size, sizes, sync))
            else:
                if self._between is None:
                    return None
                point = [[min(len(shape), _MOST_NODES), sum(shape), size]]
                found = self._between(point)[0]
                found = self._nearest(point)[0] if np.isnan(found).any() else found
                self._known[key] = float(found[0]), float(found[1])
        return self._known[key]

    def with_as_many(self, gpus: int) -> Shape | None:
        """The first placement that was measured with so many GPUs."""
        shapes = (tuple(map(int, name)) for name in self._curves)
        return next((shape for shape in shapes if sum(shape) == gpus), None)

    def on_placement(self, shape: Shape) -> tuple[Floats, Floats] | None:
        """Batch sizes, ascending, and step times measured on a placement; None where it was not measured."""
        curve = self._curves.get(_canonical(shape))
        return None if curve is None else curve[:2]

    def largest(self, shape: Shape) -> float:
        """The largest batch size measured on a placement, or on as many GPUs; inf where there is none."""
        name = _canonical(shape)
        if name in self._curves:
            return float(self._curves[name][0][-1])
        gpus = sum(shape)
        return max((float(t.batch_size[t.gpus == gpus].max(initial=0)) for t in self._tables), default=0.0) or np.inf


def _keys(table: StepTimes) -> Floats:
    """(R, 3) nodes, GPUs and batch sizes."""
    return np.stack([table.nodes, table.gpus, table.batch_size], axis=1).astype(np.float64)


def _times(table: StepTimes) -> Floats:
    """(R, 2) seconds of steps, and of synchronisation."""
    return np.stack([table.step_time, table.sync_time], axis=1)


class MeasuredTraining(Training):
    """A model trains as it was measured.

    Parameters
    ----------
    name : of the model.
    steps : tables of placements, and of scalability if there is one, by accelerator type.
    validation : trainings with several batch sizes.
    """

    accumulation = True

    def __init__(
        self, name: str, steps: Mapping[str, tuple[StepTimes, StepTimes | None]], validation: Validation
    ) -> None:
        self.name = name
        self._steps = {kind: _Steps(*tables) for kind, tables in steps.items()}
        self.largest_local: dict[str, int] = {kind: int(placed.batch_size.max()) for kind, (placed, _) in steps.items()}
        self.least_local = int(min(placed.batch_size.min() for placed, _ in steps.values()))
        self.initial_batch_size, self.largest_batch_size = int(validation.batch_size[0]), int(validation.batch_size[-1])
        self._validation = validation
        self.epoch_ends = validation.least_progress()

    @classmethod
    def from_tables(
        cls, name: str, steps: Mapping[str, tuple[StepTimes, StepTimes | None]], validation: Validation
    ) -> MeasuredTraining:
        """The training that the tables are of: in a pipeline, where synchronisation takes longer than a step.

        In a step of data-parallel replicas it is contained.
        """
        tables = [table for both in steps.values() for table in both if table is not None]
        in_pipelines = any(bool((table.sync_time >= table.step_time).any()) for table in tables)
        return (PipelinedMeasurements if in_pipelines else MeasuredTraining)(name, steps, validation)

    def with_largest_local(self, accelerator: str, samples: int) -> MeasuredTraining:
        """The same with another limit of a micro-batch on one GPU of a type."""
        other = copy(self)
        other.largest_local = self.largest_local | {accelerator: samples}
        return other

    def statistics(self, batch_size: float, epoch: int) -> tuple[float, float]:
        """See `Training`; a batch that rounding made larger than all that were measured has the figures of those."""
        size = min(max(batch_size, self.initial_batch_size), self.largest_batch_size)
        square, variance = self._validation.statistics(size, epoch)
        return float(square), float(variance)

    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """See `Training`.

        Raises
        ------
        InputError
            The placement was not measured, and others are too few to interpolate between.
        """
        found = self._steps[accelerator].at(shape, atomic_batch_size)
        if found is None:
            where = f"{'+'.join(map(str, shape))} GPUs of {accelerator}"
            expected = "a placement that was measured, or others around it with several nodes, GPUs and batch sizes"
            raise InputError(f"model {self.name}", field="step time", found=where, expected=expected)
        return found

    def largest_atomic(self, accelerator: str, shape: Shape) -> float:
        """See `Training`."""
        return self._steps[accelerator].largest(shape)

    def speed_of_replica(self, accelerator: str, per_node: int) -> float:
        """See `Training`; the largest micro-batch over the longest step, as published: steps need not grow with it."""
        found = self._steps[accelerator].on_placement(packed_shape(self.replica(accelerator), per_node))
        if found is None:
            return super().speed_of_replica(accelerator, per_node)
        sizes, steps = found
        return float(sizes[-1] / steps.max())

    def micro_batches(self, accelerator: str) -> tuple[float, ...]:
        """See `Training`; those that were measured on one GPU."""
        found = self._steps[accelerator].on_placement((self.replica(accelerator),))
        return super().micro_batches(accelerator) if found is None else tuple(found[0].tolist())

    def steps(self, batch_size: float, epochs: int) -> float:
        """See `Training`."""
        if epochs == 0:
            return 0.0
        return float(np.interp(batch_size, self._validation.batch_size, self._validation.iteration[:, epochs - 1]))


class PipelinedMeasurements(MeasuredTraining):
    """A model trains in pipelines, side by side, as it was measured (`throughputs.goodput.trainings.profiled`).

    The placement with the fewest GPUs is that of one copy of the pipeline, with a GPU for each stage; all others are of
    several. `step_time` of the tables is the forward pass of a micro-batch of so many samples through one stage,
    `sync_time` what adding up the gradients of the copies takes. A copy takes 48 micro-batches of one sample in a step.

    Raises
    ------
    InputError
        A placement whose GPUs are not those of whole copies.
    """

    accumulation = False

    def __init__(
        self, name: str, steps: Mapping[str, tuple[StepTimes, StepTimes | None]], validation: Validation
    ) -> None:
        super().__init__(name, steps, validation)
        self.stages = {kind: int(placed.gpus.min()) for kind, (placed, _) in steps.items()}
        for kind, stages in self.stages.items():
            for gpus in (int(count) for table in steps[kind] if table is not None for count in table.gpus):
                if gpus % stages:
                    expected = f"a multiple of {stages}, the GPUs of one copy of the pipeline"
                    raise InputError(f"model {name}", field=f"GPUs of {kind}", found=gpus, expected=expected)
        self.least_local = _MICRO_BATCHES
        self.largest_local = dict.fromkeys(steps, _MICRO_BATCHES)

    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """See `Training`; the batch is that of a copy. GPUs on other nodes than measured take as long as on those."""
        samples = atomic_batch_size / _MICRO_BATCHES
        there = self._steps[accelerator].at(shape, samples)
        if there is None:
            shape = self._steps[accelerator].with_as_many(sum(shape)) or shape
        forward, sync = super().step_time(accelerator, shape, samples)
        return PASSES * (self.stages[accelerator] - 1 + _MICRO_BATCHES) * forward + sync, sync

    def largest_atomic(self, accelerator: str, shape: Shape) -> float:  # noqa: ARG002
        """See `Training`."""
        return float(_MICRO_BATCHES)

    def speed_of_replica(self, accelerator: str, per_node: int) -> float:
        """See `Training`; of a whole copy, where the tables have a stage."""
        return Training.speed_of_replica(self, accelerator, per_node)

    def micro_batches(self, accelerator: str) -> tuple[float, ...]:
        """See `Training`."""
        return Training.micro_batches(self, accelerator)


def _canonical(shape: Shape) -> str:
    """Of the orders of the nodes that only rotate, the one that the tables have: the least."""
    digits = "".join(map(str, shape))
    return min(digits[k:] + digits[:k] for k in range(len(digits)))


def read_trainings(folder: str | os.PathLike[str]) -> Trainings:
    """The trainings of all models that have a folder of tables in this one.

    Raises
    ------
    InputError
        No model, one without a table of placements, or a file, line and field that cannot be used.
    OSError
        A file cannot be opened.
    """
    where = Path(folder)
    found = {path.name: path for path in sorted(where.iterdir()) if any(path.glob("validation-*.csv"))}
    if not found:
        expected = "folders of models with files placements-TYPE.csv and validation-BATCHSIZE.csv"
        raise InputError(where, found="no model", expected=expected)
    return Trainings({name: _read_training(name, path) for name, path in found.items()}, str(where))


def _read_training(name: str, folder: Path) -> MeasuredTraining:
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("*.csv")):
        match = _FILE.fullmatch(path.name)
        if match:
            files.setdefault(match[2], {})[match[1]] = path
    tables = {
        kind: (
            read_step_times(paths["placements"]),
            read_step_times(paths["scalability"]) if "scalability" in paths else None,
        )
        for kind, paths in files.items()
        if "placements" in paths
    }
    if not tables:
        expected = "a file placements-TYPE.csv, with the accelerator type in its name"
        raise InputError(folder, found="no table of placements", expected=expected)
    for kind, (placed, _) in tables.items():
        if not len(placed):
            raise InputError(files[kind]["placements"], found="no row", expected="at least one measured step")
    return MeasuredTraining.from_tables(name, tables, read_validation(folder))


_START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])


def descended(cells: Cells, tolerance: float | None = None) -> tuple[Floats, Floats]:
    """(P, 7) parameters at which the published descent ends, each problem by itself, and their losses (P,).

    Parameters
    ----------
    cells : the problems.
    tolerance : of the loss, relative, and of its derivatives; None: those of SciPy.
    """
    from scipy.optimize import Bounds, minimize

    theta, best = np.empty(cells.lower.shape), np.empty(len(cells.lower))
    for p in range(len(theta)):
        loss = Loss(cells.take(np.array([p])))
        lower, upper = loss.cells.lower[0], loss.cells.upper[0]

        def value_and_slope(x: Floats, loss: Loss = loss) -> tuple[float, Floats]:
            value, slope = loss.slope(x[None])
            return float(value[0]), slope[0]

        found = minimize(
            value_and_slope,
            np.minimum(np.maximum(_START, lower), upper),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower, upper),
            tol=tolerance,
        )
        theta[p], best[p] = found.x, found.fun
    return theta, best
