"""Profiles of models: what is known about a job of which only the model's name and the batch size are.

A file of profiles is TOML:

    source = "where the figures come from"

    [models.NAME]
    initial_batch_size = 128
    largest_batch_size = 4096
    least_local_batch_size = 32      # of a micro-batch on one GPU
    accumulation = true
    initial_steps = 39063            # steps of the initial batch size that a training takes
    noise_scale = [100, 300]         # gradient noise scale in samples, over equal parts of those steps

    micro_batches = 48               # only of a model that trains in a pipeline: in a step of least_local_batch_size

    [models.NAME.types.t4]           # for each accelerator type: the seven parameters, and what its memory allows
    largest_local_batch_size = 1024
    alpha_grad = 0.02                # ...
    stages = 8                       # of the pipeline

With the package come six models on one type, fitted by us to the published measurements of Pollux
(``python -m benchmarks.fit_goodput``); how far they are off is in docs/goodput.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError, did_you_mean, expect
from throughputs.files import Document, JsonObject, StrPath, parse_toml, read_text
from throughputs.goodput.batch_size import BatchSizeLimits, GoodputModels, best_batch_sizes
from throughputs.goodput.efficiency import GradientStatistics
from throughputs.goodput.model import PARAMETERS, ThroughputModels
from throughputs.limits import Range
from throughputs.numerics import quotient


class HasTypes(Protocol):
    """What says of some accelerator types the most samples on one GPU."""

    @property
    def largest_local(self) -> Mapping[str, int]:
        """By accelerator type."""


Model = TypeVar("Model", bound=HasTypes)

_SIZES = ("initial_batch_size", "largest_batch_size", "least_local_batch_size")
_OF_MODEL = (*_SIZES, "accumulation", "initial_steps", "noise_scale", "types", "micro_batches")
_MAY_LACK = ("accumulation", "micro_batches")
_OF_TYPE = ("largest_local_batch_size", *PARAMETERS)


@dataclass(frozen=True)
class Profile:
    """What is known about the jobs of one model.

    Attributes
    ----------
    initial_batch_size, largest_batch_size, least_local_batch_size : samples.
    accumulation : whether gradients may be accumulated.
    initial_steps : steps of the initial batch size that a training takes.
    noise_scale : gradient noise scale in samples, over equal parts of a training.
    largest_local : the most samples of a micro-batch on a GPU, by accelerator type.
    parameters : those of the throughput model, by accelerator type.
    stages : of the pipeline that it trains in, one GPU each, by accelerator type; empty: GPUs have replicas of their
        own. Batch sizes of a GPU are those of a copy of the pipeline, then, and the parameters are those of a
        micro-batch on one stage.
    micro_batches : that a copy of the pipeline takes in a step.
    """

    initial_batch_size: int
    largest_batch_size: int
    least_local_batch_size: int
    accumulation: bool
    initial_steps: float
    noise_scale: tuple[float, ...]
    largest_local: Mapping[str, int]
    parameters: Mapping[str, tuple[float, ...]]
    stages: Mapping[str, int] = field(default_factory=dict)
    micro_batches: int = 1

    def noise_at(self, progress: ArrayLike) -> Floats:
        """Gradient noise scale in samples after these shares of the training, from 0 to 1."""
        parts = len(self.noise_scale)
        part: Ints = np.floor(np.asarray(progress, dtype=float) * parts).astype(np.int64)
        return np.asarray(self.noise_scale)[np.minimum(np.maximum(part, 0), parts - 1)]

    def steps(self, batch_size: float) -> float:
        """Steps of a training with this batch size throughout."""
        scale = batch_size / self.initial_batch_size
        ones = np.ones(len(self.noise_scale))
        statistics = GradientStatistics(ones, np.asarray(self.noise_scale) / self.initial_batch_size)
        return float(np.mean(1.0 / statistics.gain(ones * scale)) * self.initial_steps)


@dataclass(frozen=True)
class OfModels(Generic[Model]):
    """What is known of models, by their names.

    Attributes
    ----------
    models : by name.
    source : where the figures come from.
    """

    models: Mapping[str, Model]
    source: str

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Accelerator types that some model has figures for."""
        return tuple(dict.fromkeys(name for model in self.models.values() for name in model.largest_local))

    def find(self, name: str) -> Model:
        """What is known of a model.

        Raises
        ------
        InputError
            Nothing is.
        """
        if name not in self.models:
            expected = f"one of {', '.join(self.models)}{did_you_mean(name, self.models)}"
            raise InputError(self.source, field="model", found=name, expected=expected)
        return self.models[name]


class Profiles(OfModels[Profile]):
    """Profiles by the names of models."""

    def goodput(self, names: Sequence[str], accelerator: str, progress: ArrayLike = 0.0) -> GoodputModels:
        """Goodput models of J jobs on one accelerator type.

        Parameters
        ----------
        names : J names of models.
        accelerator : the type.
        progress : (J,) or one number: the share of each training that is done, from 0 to 1.

        Raises
        ------
        InputError
            There is no profile of a model, or none for the type.
        """
        done = np.broadcast_to(np.asarray(progress, dtype=float), (len(names),))
        found = [self.find(name) for name in names]
        for name, profile in zip(names, found, strict=True):
            expect(
                not profile.stages,
                self.source,
                "model",
                name,
                "a model with a replica on each GPU; see throughputs.goodput.trainings",
            )
            if accelerator not in profile.parameters:
                known = ", ".join(profile.parameters)
                hint = did_you_mean(accelerator, profile.parameters)
                field = f"accelerator type of {name}"
                raise InputError(self.source, field=field, found=accelerator, expected=f"one of {known}{hint}")
        noise = np.array([float(p.noise_at(share)) for p, share in zip(found, done.tolist(), strict=True)])
        initial = np.array([p.initial_batch_size for p in found], dtype=float)
        limits = BatchSizeLimits(
            initial,
            [p.largest_batch_size for p in found],
            [p.least_local_batch_size for p in found],
            [p.largest_local[accelerator] for p in found],
            [p.accumulation for p in found],
        )
        statistics = GradientStatistics(np.ones(len(found)), noise / initial)
        return GoodputModels(ThroughputModels([p.parameters[accelerator] for p in found]), statistics, limits)

    def step_times(
        self, names: Sequence[str], accelerator: str, nodes: ArrayLike, gpus: ArrayLike, batch_size: ArrayLike
    ) -> Floats:
        """(J,) seconds of a step of J jobs whose global batch sizes are fixed; nan for less than a sample on each GPU.

        Parameters
        ----------
        names, accelerator : as of `goodput`.
        nodes, gpus, batch_size : (J,) of each job.

        Raises
        ------
        InputError
            As `goodput`, or as `throughputs.goodput.best_batch_sizes`.
        """
        jobs, sizes = self.goodput(names, accelerator), np.asarray(batch_size, dtype=float)
        limits = BatchSizeLimits(sizes, largest_local=jobs.limits.largest_local, accumulation=True)
        fixed = GoodputModels(jobs.throughput, jobs.statistics, limits)
        rate = best_batch_sizes(fixed, np.asarray(nodes)[:, None], np.asarray(gpus)[:, None]).throughput[:, 0]
        return quotient(sizes, rate, np.nan)


@cache
def default_profiles() -> Profiles:
    """The profiles that come with the package: six models on t4 GPUs, four of them on a node."""
    resource = files("throughputs") / "goodput" / "data" / "adaptdl_t4.toml"
    return _parsed(parse_toml(resource.read_text(encoding="utf-8"), resource.name), "default profiles")


def read_profiles(path: StrPath) -> Profiles:
    """Profiles from a TOML file; see the top of this module.

    Raises
    ------
    InputError
        Names the file and the key that cannot be used.
    OSError
        The file cannot be opened.
    """
    where = Path(path)
    return _parsed(parse_toml(read_text(where), where), str(where))


def _parsed(content: JsonObject, source: str) -> Profiles:
    read = Document(source)
    read.table(content, "", ("source", "models"), may_lack=("source",))
    models = read.table(content["models"], "models")
    if not models:
        raise read.error("models", None, "at least one model, [models.NAME]")
    return Profiles({name: _profile(read, value, f"models.{name}") for name, value in models.items()}, source)


def _profile(read: Document, value: object, where: str) -> Profile:
    table = read.table(value, where, _OF_MODEL, _MAY_LACK)
    initial, largest, least = (read.whole(table[key], f"{where}.{key}") for key in _SIZES)
    if largest < initial:
        raise read.error(f"{where}.largest_batch_size", largest, f"at least initial_batch_size, {initial}")
    accumulation = table.get("accumulation", False)
    if not isinstance(accumulation, bool):
        raise read.error(f"{where}.accumulation", accumulation, "true or false")
    noise = table["noise_scale"]
    if not isinstance(noise, list) or not noise:
        raise read.error(f"{where}.noise_scale", noise, "a list of numbers, in samples")
    types = read.table(table["types"], f"{where}.types")
    if not types:
        raise read.error(f"{where}.types", None, f"at least one accelerator type, [{where}.types.NAME]")
    local: dict[str, int] = {}
    parameters: dict[str, tuple[float, ...]] = {}
    stages: dict[str, int] = {}
    in_pipelines = "micro_batches" in table
    for name, figures in types.items():
        place = f"{where}.types.{name}"
        row = read.table(figures, place, (*_OF_TYPE, "stages") if in_pipelines else _OF_TYPE, ())
        if in_pipelines:
            stages[name] = read.whole(row["stages"], f"{place}.stages")
        local[name] = read.whole(row[_OF_TYPE[0]], f"{place}.{_OF_TYPE[0]}", least)
        parameters[name] = tuple(
            read.number(row[key], f"{place}.{key}", Range(1.0 if key == "gamma" else 0.0)) for key in PARAMETERS
        )
    return Profile(
        initial,
        largest,
        least,
        accumulation,
        read.number(table["initial_steps"], f"{where}.initial_steps", Range(1)),
        tuple(read.number(x, f"{where}.noise_scale", Range()) for x in noise),
        local,
        parameters,
        stages,
        read.whole(table.get("micro_batches", 1), f"{where}.micro_batches"),
    )
