"""Trainings after a profile: step times by the throughput model, and a noise scale for each part of the training."""

from __future__ import annotations

import numpy as np

from throughputs.goodput.efficiency import gain
from throughputs.goodput.model import ThroughputModels
from throughputs.goodput.profiles import Profile, Profiles
from throughputs.goodput.trainings.training import Shape, Training, Trainings

__all__ = ["ProfiledTraining", "trainings_of"]


class ProfiledTraining(Training):
    """A model trains as its profile says; the parts of the profile are its epochs."""

    def __init__(self, name: str, profile: Profile) -> None:
        self.name = name
        self.initial_batch_size = profile.initial_batch_size
        self.largest_batch_size = profile.largest_batch_size
        self.least_local = profile.least_local_batch_size
        self.largest_local = profile.largest_local
        self.accumulation = profile.accumulation
        parts = len(profile.noise_scale)
        self.epoch_ends = profile.initial_steps * np.arange(1, parts + 1) / parts
        self._variance = np.asarray(profile.noise_scale) / profile.initial_batch_size
        self._models = {kind: ThroughputModels(values) for kind, values in profile.parameters.items()}

    def statistics(self, batch_size: float, epoch: int) -> tuple[float, float]:  # noqa: ARG002
        """See `Training`."""
        return 1.0, float(self._variance[epoch])

    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """See `Training`."""
        model = self._models[accelerator]
        step = float(model.step_time(len(shape), sum(shape), atomic_batch_size)[0, 0])
        return step, step - float(model.gradient_time(atomic_batch_size)[0])

    def steps(self, batch_size: float, epochs: int) -> float:
        """See `Training`."""
        scale = np.full(epochs, batch_size / self.initial_batch_size)
        worth = gain(scale, np.ones(epochs), self._variance[:epochs])
        return float(np.add.reduce(np.diff(self.epoch_ends[:epochs], prepend=0.0) / worth))


def trainings_of(profiles: Profiles) -> Trainings:
    """The trainings of profiles, as read by `throughputs.goodput.profiles.read_profiles`."""
    return Trainings({name: ProfiledTraining(name, one) for name, one in profiles.models.items()}, profiles.source)
