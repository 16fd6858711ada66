"""The training of one model: step times by placement, gradient statistics by epoch, and when epochs are over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError, did_you_mean
from throughputs.goodput.efficiency import gain
from throughputs.goodput.profiles import OfModels

Shape = tuple[int, ...]
"""GPUs of a job on each of its nodes, most first."""


class Training(ABC):
    """How a model trains.

    Progress is counted in steps with the initial batch size, or by its `unit`; what a batch of another size is worth
    follows from gradient statistics (`throughputs.goodput.efficiency`).

    Attributes
    ----------
    name : of the model.
    initial_batch_size, largest_batch_size, least_local : samples of a batch, and of a micro-batch on one GPU.
    largest_local : the most samples of a micro-batch on one GPU, by accelerator type.
    accumulation : whether gradients may be accumulated.
    epoch_ends : (E,) progress after which each epoch is over.
    unit : (E,) steps with the initial batch size in one unit of progress, by epoch; None: 1.
    stages : GPUs of one replica, by accelerator type, of models that train in a pipeline; empty: one GPU each. What is
        said of one GPU is of one replica, then.
    """

    name: str
    initial_batch_size: int
    largest_batch_size: int
    least_local: int
    largest_local: Mapping[str, int]
    accumulation: bool
    epoch_ends: Floats
    unit: Floats | None = None
    stages: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def statistics(self, batch_size: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of gradients, at the initial batch size, in an epoch (from 0) with this batch."""

    @abstractmethod
    def step_time(self, accelerator: str, shape: Shape, atomic_batch_size: float) -> tuple[float, float]:
        """Seconds of a step that accumulates nothing, and of those the ones for synchronisation."""

    def replica(self, accelerator: str) -> int:
        """GPUs of one replica."""
        return self.stages.get(accelerator, 1)

    def largest_atomic(self, accelerator: str, shape: Shape) -> float:  # noqa: ARG002
        """The most samples of a micro-batch on a GPU with which steps on this placement are known; inf: any."""
        return np.inf

    @abstractmethod
    def steps(self, batch_size: float, epochs: int) -> float:
        """Steps with a batch size throughout until so many epochs are over."""

    def worth_in(self, batch_size: float, epoch: int) -> float:
        """Progress of a step with this batch size in an epoch (from 0)."""
        square, variance = self.statistics(batch_size, epoch)
        scale = np.asarray(batch_size / self.initial_batch_size)
        worth = float(gain(scale, np.asarray(square), np.asarray(variance)))
        return worth if self.unit is None else worth / float(self.unit[epoch])

    def speed_of_replica(self, accelerator: str, per_node: int) -> float:
        """Samples/s of one replica with the largest micro-batch, `per_node` GPUs on a node of the type."""
        size = self.largest_local[accelerator]
        return size / self.step_time(accelerator, packed_shape(self.replica(accelerator), per_node), size)[0]

    def micro_batches(self, accelerator: str) -> tuple[float, ...]:
        """Sizes of micro-batches, ascending, with which one replica is measured before the first run: twofold steps."""
        most = self.largest_local[accelerator]
        sizes = [float(min(self.least_local, most))]
        while 2.0 * sizes[-1] < most:
            sizes.append(2.0 * sizes[-1])
        return tuple(sizes) if sizes[-1] >= most else (*sizes, float(most))

    @property
    def total_progress(self) -> float:
        """Progress of the whole training."""
        return float(self.epoch_ends[-1])


class Trainings(OfModels[Training]):
    """Trainings by the name of the model."""

    def check_types(self, accelerators: Sequence[str]) -> None:
        """Raise InputError where no model has figures for a type."""
        for name in accelerators:
            if name not in self.accelerators:
                known = f"{', '.join(self.accelerators)}{did_you_mean(name, self.accelerators)}"
                expected = f"a type that there are figures for in {self.source}: {known}"
                raise InputError("cluster", field="accelerator type", found=name, expected=expected)


def packed_shape(gpus: int, per_node: int) -> Shape:
    """So many GPUs on as few nodes as possible."""
    full, rest = divmod(gpus, per_node)
    return (*(per_node,) * full, *((rest,) if rest else ()))
