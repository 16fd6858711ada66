"""How jobs train, epoch by epoch: batch sizes and durations, as a policy is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, Ragged, offsets_of
from throughputs.errors import expect
from throughputs.limits import require

STEADY_EPOCHS = 100
"""Epochs of a job of whose data set nothing is known; fewer if it has fewer steps."""

MOST_STEADY_EPOCHS = 100_000
"""Most epochs of a job that never changes its batch size: a profile holds every one, and more would tell no more."""


@dataclass(frozen=True, eq=False)
class Profiles(Ragged):
    """The epochs of N jobs, one job after the other.

    Attributes
    ----------
    offsets : (N + 1,) job i has the epochs from offsets[i] up to offsets[i + 1].
    batch_size : (T,) batch size of each epoch, samples.
    epoch_seconds : (T,) duration of each epoch on the job's own gang, seconds.
    samples_per_epoch : (N,) samples that one epoch of a job goes through.

    Raises
    ------
    InputError
        Shapes that do not fit together, a job without epochs, or a figure that is not positive.
    """

    per_job: ClassVar[tuple[str, ...]] = ("samples_per_epoch",)

    offsets: Ints
    batch_size: Ints
    epoch_seconds: Floats
    samples_per_epoch: Ints

    def __post_init__(self) -> None:
        n = len(self.samples_per_epoch)
        total = int(self.offsets[-1]) if len(self.offsets) else -1
        fits = self.offsets.shape == (n + 1,) and self.batch_size.shape == self.epoch_seconds.shape == (total,)
        expect(fits and self.offsets[0] == 0, "profiles", "offsets", self.offsets.shape, f"{n + 1} numbers, from 0")
        lengths = np.diff(self.offsets)
        require(lengths >= 1, lengths, "profiles", "epochs", "at least 1 epoch")
        for name in ("batch_size", "epoch_seconds", "samples_per_epoch"):
            values = getattr(self, name)
            require(np.isfinite(values) & (values > 0), values, "profiles", name, "a finite number above 0")

    @classmethod
    def of_jobs(
        cls, batch_sizes: Sequence[ArrayLike], epoch_seconds: Sequence[ArrayLike], samples_per_epoch: ArrayLike
    ) -> Profiles:
        """From one list of batch sizes and one of durations (seconds) for each job."""
        lengths = [len(np.atleast_1d(sizes)) for sizes in batch_sizes]
        return cls(
            offsets_of(lengths),
            np.concatenate([np.empty(0), *map(np.atleast_1d, batch_sizes)]).astype(np.int64),
            np.concatenate([np.empty(0), *map(np.atleast_1d, epoch_seconds)]).astype(float),
            np.asarray(samples_per_epoch, dtype=np.int64),
        )

    @classmethod
    def steady(cls, total_steps: ArrayLike, total_seconds: ArrayLike, epochs: int = STEADY_EPOCHS) -> Profiles:
        """Jobs that always train in the same way: `epochs` equal epochs, with batches of one sample.

        Parameters
        ----------
        total_steps, total_seconds : (N,) of each job, above 0; seconds when it runs all the time.
        epochs : into how many parts the progress of a job is divided.
        """
        seconds = np.asarray(total_seconds, dtype=float)
        n = len(seconds)
        samples = np.maximum(np.rint(np.asarray(total_steps, dtype=float) / epochs), 1).astype(np.int64)
        ones = np.ones(n * epochs, dtype=np.int64)
        return cls(np.arange(n + 1) * epochs, ones, np.repeat(seconds / epochs, epochs), samples)

    @cached_property
    def epochs(self) -> Ints:
        """(N,) epochs of each job."""
        return np.diff(self.offsets)

    @cached_property
    def total_seconds(self) -> Floats:
        """(N,) seconds that each job needs when it runs all the time."""
        return np.add.reduceat(self.epoch_seconds, self.offsets[:-1]) if len(self) else np.empty(0)
