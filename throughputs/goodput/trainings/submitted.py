"""A training with the batch size that was asked for, whose progress is counted in steps with that batch size."""

from __future__ import annotations

import numpy as np

from throughputs.goodput.trainings.training import Shape, Training


class SubmittedTraining(Training):
    """A model trains with one batch size, in steps of which its progress is counted.

    So throughput, in steps/s, is the same in each epoch, as policies suppose that choose no batch size. Rounding to
    whole samples on each GPU may make a batch a little larger or smaller, and a step worth a little more or less.

    Parameters
    ----------
    training : of the same model, with the initial batch size.
    batch_size : samples asked for.

    >>> from throughputs.goodput.profiles import default_profiles
    >>> from throughputs.goodput.trainings import trainings_of
    >>> training = trainings_of(default_profiles()).find("cifar10")
    >>> submitted = SubmittedTraining(training, 1024)
    >>> round(training.total_progress), round(submitted.total_progress), round(submitted.worth_in(1024, 0), 9)
    (39063, 5592, 1.0)
    """

    def __init__(self, training: Training, batch_size: float) -> None:
        self._training = training
        self.name = training.name
        self.initial_batch_size, self.largest_batch_size = training.initial_batch_size, training.largest_batch_size
        self.least_local, self.largest_local = training.least_local, training.largest_local
        self.accumulation, self.stages = training.accumulation, training.stages
        progress = np.diff(training.epoch_ends, prepend=0.0)
        self._worth = np.array([training.worth_in(batch_size, epoch) for epoch in range(len(progress))])
        self.epoch_ends = np.add.accumulate(progress / self._worth)

    def statistics(self, batch_size: float, epoch: int) -> tuple[float, float]:
        """See `Training`."""
        return self._training.statistics(batch_size, epoch)

    def worth_in(self, batch_size: float, epoch: int) -> float:
        """See `Training`; in steps with the batch size asked for."""
        return self._training.worth_in(batch_size, epoch) / float(self._worth[epoch])

    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """See `Training`."""
        return self._training.step_time(accelerator, shape, atomic_batch_size)

    def largest_atomic(self, accelerator: str, shape: Shape) -> float:
        """See `Training`."""
        return self._training.largest_atomic(accelerator, shape)

    def steps(self, batch_size: float, epochs: int) -> float:
        """See `Training`."""
        return self._training.steps(batch_size, epochs)
