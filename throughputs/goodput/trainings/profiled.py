"""Trainings after a profile: step times by the throughput model, and a noise scale for each part of the training.

A copy of a pipeline has S stages of one GPU each, through which M micro-batches of m samples go forward and, at twice
the time, backward. With f = alpha_grad + beta_grad m for a micro-batch on a stage, a step takes

    T = 3 ((S - 1) f + M f) + T_sync(nodes, copies)

for copies M m samples: the pipeline fills, every stage does all micro-batches, and copies add up their gradients as
data-parallel GPUs do (`throughputs.goodput.model`). Source of pipelines: S. Jayaram Subramanya et al., "Sia:
Heterogeneity-aware, Goodput-optimized ML-cluster Scheduling", SOSP 2023, and its public artifact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from throughputs.entry_points import load
from throughputs.files import StrPath
from throughputs.goodput.efficiency import gain
from throughputs.goodput.model import ThroughputModels
from throughputs.goodput.profiles import Profile, Profiles, default_profiles, read_profiles
from throughputs.goodput.trainings.training import Shape, Training, Trainings

PASSES = 3.0
"""Time of the forward and the backward pass of a micro-batch, in forward passes."""


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
        self._initial_steps = np.diff(self.epoch_ends, prepend=0.0)
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
        return float(np.add.reduce(self._initial_steps[:epochs] / worth))


class PipelinedTraining(ProfiledTraining):
    """A model trains in pipelines, side by side, as its profile says (see the top of this module).

    A replica is a copy of the pipeline, with a GPU for each stage. The samples that it takes in a step go through it in
    micro-batches, as many as the profile says in each step.
    """

    def __init__(self, name: str, profile: Profile) -> None:
        super().__init__(name, profile)
        self.stages = profile.stages
        self._samples = profile.least_local_batch_size / profile.micro_batches

    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """See `Training`; the batch is that of a copy of the pipeline."""
        model, stages = self._models[accelerator], self.stages[accelerator]
        copies = sum(shape) // stages
        sync = float(model.synchronisation_time(min(len(shape), copies), copies)[0, 0])
        forward = float(model.gradient_time(self._samples)[0])
        return PASSES * (stages - 1 + atomic_batch_size / self._samples) * forward + sync, sync


def trainings_of(profiles: Profiles) -> Trainings:
    """The trainings of profiles, as read by `throughputs.goodput.profiles.read_profiles`."""
    kinds = {name: PipelinedTraining if one.stages else ProfiledTraining for name, one in profiles.models.items()}
    return Trainings({name: kinds[name](name, one) for name, one in profiles.models.items()}, profiles.source)


EMBEDDED = "goodput"
"""The name of the embedded profiles."""


def find_trainings(source: StrPath) -> Trainings | None:
    """The trainings that are meant, None where it is something else.

    A folder with a folder of measured tables for each model, profiles in a TOML file, or the embedded profiles, which
    are called "goodput" where there is no such file.

    Raises
    ------
    InputError
        Tables or profiles that cannot be used.
    OSError
        A file cannot be opened.
    """
    path = Path(source)
    if path.is_dir():
        if not any(path.glob("*/validation-*.csv")):
            return None
        measured: Trainings = load("goodput", "trainings")(path)
        return measured
    if path.suffix.lower() == ".toml":
        return trainings_of(read_profiles(path))
    return trainings_of(default_profiles()) if str(path) == EMBEDDED and not path.exists() else None
