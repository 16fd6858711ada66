"""The jobs of a trace as trainings; also with the batch size asked for, in steps of which progress counts then."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError, did_you_mean, expect
from throughputs.goodput.trainings.training import Shape, Training, Trainings, packed_shape
from throughputs.trace import Trace


def submitted_training(training: Training, batch_size: float) -> Training:
    """The same training with its progress counted in steps with this batch size (samples).

    So throughput, in steps/s, is the same in each epoch, as policies suppose that choose no batch size. Rounding to
    whole samples on each GPU may make a batch a little larger or smaller, and a step worth a little more or less.

    >>> from throughputs.goodput.profiles import default_profiles
    >>> from throughputs.goodput.trainings import trainings_of
    >>> training = trainings_of(default_profiles()).find("cifar10")
    >>> submitted = submitted_training(training, 1024)
    >>> round(training.total_progress), round(submitted.total_progress), round(submitted.worth_in(1024, 0), 9)
    (39063, 5592, 1.0)
    """
    progress = np.diff(training.epoch_ends, prepend=0.0)
    worth = np.array([training.worth_in(batch_size, epoch) for epoch in range(len(progress))])
    other = copy(training)
    other.unit, other.epoch_ends = worth, np.add.accumulate(progress / worth)
    return other


_NAME = re.compile(r"(.+?) \(batch size (\d+)\)")


@dataclass(frozen=True, eq=False)
class TrainingJobs:
    """What N jobs train.

    Attributes
    ----------
    trace : the jobs; their type is the name of the model, and their steps are those with its initial batch size.
    trainings : (N,) of each job.
    batch_size : (N,) samples that each asked for.
    """

    trace: Trace
    trainings: tuple[Training, ...]
    batch_size: Floats

    def gang_rates(
        self,
        accelerators: tuple[str, ...],
        gpus_per_server: Mapping[str, int],
        *,
        asked_for: bool = False,
        always_two: bool = False,
    ) -> Floats:
        """(N, M) initial steps/s in the first epoch, with the GPUs and the batch size asked for, packed on nodes.

        With `asked_for` the steps are those with that batch size; `always_two` as in `step_time_with`.
        """
        known: dict[tuple[str, int, float, str], float] = {}
        rates = np.zeros((len(self.trainings), len(accelerators)))
        for i, training in enumerate(self.trainings):
            gpus, batch = int(self.trace.scale_factor[i]), float(self.batch_size[i])
            for m, kind in enumerate(accelerators):
                key = training.name, gpus, batch, kind
                if kind in training.largest_local and gpus % training.replica(kind) == 0 and key not in known:
                    shape = packed_shape(gpus, int(gpus_per_server[kind]))
                    seconds, size = step_time_with(training, kind, shape, batch, always_two=always_two)
                    worth = 1.0 if asked_for else training.worth_in(size, 0)
                    known[key] = worth / seconds
                rates[i, m] = known.get(key, 0.0)
        return rates

    def submitted(self) -> tuple[Training, ...]:
        """(N,) trainings with the batch size asked for, in steps with it."""
        known: dict[tuple[str, float], Training] = {}
        for training, batch in zip(self.trainings, self.batch_size.tolist(), strict=True):
            if (training.name, batch) not in known:
                known[training.name, batch] = submitted_training(training, batch)
        return tuple(
            known[one.name, batch] for one, batch in zip(self.trainings, self.batch_size.tolist(), strict=True)
        )

    def as_asked_for(self) -> Trace:
        """The jobs with the GPUs and the batch size asked for; steps are with that batch size, then."""
        return dataclasses.replace(self.trace, total_steps=np.array([one.total_progress for one in self.submitted()]))


def step_time_with(
    training: Training,
    accelerator: str,
    shape: Shape,
    batch_size: float,
    *,
    always_two: bool = False,
    as_it_fits: bool = False,
) -> tuple[float, float]:
    """Step time with a batch size in as few micro-batches as fit, and the samples of such a step, rounded up.

    A batch above the initial one comes in two micro-batches at least on a single GPU, as the noise of gradients is
    measured between them, and rounding makes none larger than the largest; `always_two`: any batch, as published
    schedulers reckon; `as_it_fits`: neither, as those who draw workloads do.
    """
    replicas = sum(shape) // training.replica(accelerator)
    share = np.ceil(batch_size / replicas)
    steps = np.ceil(share / training.largest_local[accelerator]) - 1.0
    if sum(shape) == 1 and not as_it_fits and (always_two or batch_size > training.initial_batch_size):
        steps = max(steps, 1.0)
    most = np.inf if as_it_fits else training.largest_batch_size // (replicas * (steps + 1.0))
    atomic = float(min(np.ceil(share / (steps + 1.0)), max(most, 1.0)))
    step, sync = training.step_time(accelerator, shape, atomic)
    batch = replicas * atomic * (steps + 1.0)
    return step + (step - sync) * float(steps), batch


def training_jobs(trace: Trace, trainings: Trainings) -> TrainingJobs:
    """The jobs of a trace, whose types are names of models, with ``(batch size B)`` where they ask for one.

    Each job is a whole training, whatever steps the trace has.

    Raises
    ------
    InputError
        A model that there is no training of, or a batch size beyond its limits.
    """
    found, sizes = [], []
    for i, name in enumerate(trace.job_type.tolist()):
        match = _NAME.fullmatch(name)
        model = match[1] if match else name
        if model not in trainings.models:
            expected = (
                f"one of {', '.join(trainings.models)} of {trainings.source}{did_you_mean(model, trainings.models)}"
            )
            raise InputError(trace.source, field=f"job_type of job {i}", found=name, expected=expected)
        training = trainings.models[model]
        size = int(match[2]) if match else training.initial_batch_size
        expect(
            training.initial_batch_size <= size <= training.largest_batch_size,
            trace.source,
            f"job_type of job {i}",
            name,
            f"a batch size from {training.initial_batch_size} to {training.largest_batch_size}",
        )
        found.append(training)
        sizes.append(size)
    renamed = dataclasses.replace(
        trace,
        job_type=np.array([one.name for one in found], dtype=object),
        total_steps=np.array([one.total_progress for one in found]),
    )
    return TrainingJobs(renamed, tuple(found), np.array(sizes, dtype=float))
