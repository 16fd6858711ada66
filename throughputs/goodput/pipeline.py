"""Throughput of jobs that train in a pipeline, with copies of the pipeline side by side (Sia).

A copy of the pipeline has S stages of one GPU each, through which M micro-batches of `micro_batch_size` samples go
forward and, at twice the time, backward. With f = alpha_grad + beta_grad m for a micro-batch of m samples on a stage, a
step takes

    T = 3 ((S - 1) f + M f) + T_sync(nodes, copies)

for copies M m samples: the pipeline fills, every stage does all micro-batches, and copies add up their gradients as
data-parallel GPUs do (`throughputs.goodput.model`).

Source: S. Jayaram Subramanya et al., "Sia: Heterogeneity-aware, Goodput-optimized ML-cluster Scheduling", SOSP 2023,
and its public artifact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError
from throughputs.goodput.efficiency import GradientStatistics
from throughputs.goodput.model import ThroughputModels

Array = NDArray[np.float64]

PASSES = 3.0
"""Time of the forward and the backward pass of a micro-batch, in forward passes."""


@dataclass(frozen=True, eq=False)
class PipelineModels:
    """J jobs in pipelines, or J pairs of such a job and an accelerator type.

    Parameters
    ----------
    throughput : parameters of J jobs; gamma does not matter.
    stages : (J,) GPUs of one copy of the pipeline.
    micro_batches : (J,) micro-batches that one copy takes in a step.
    largest : (J,) the largest global batch size, samples.
    micro_batch_size : (J,) samples of a micro-batch; 1 when omitted.

    Raises
    ------
    InputError
        Arrays that do not fit together, or a number below 1.
    """

    throughput: ThroughputModels
    stages: NDArray[np.int64]
    micro_batches: NDArray[np.int64]
    largest: Array
    micro_batch_size: Array

    def __init__(
        self,
        throughput: ThroughputModels,
        stages: ArrayLike,
        micro_batches: ArrayLike,
        largest: ArrayLike,
        micro_batch_size: ArrayLike = 1.0,
    ) -> None:
        object.__setattr__(self, "throughput", throughput)
        columns = {
            "stages": np.array(stages, dtype=np.int64),
            "micro_batches": np.array(micro_batches, dtype=np.int64),
            "largest": np.array(largest, dtype=np.float64),
            "micro_batch_size": np.array(micro_batch_size, dtype=np.float64),
        }
        for name, values in columns.items():
            try:
                column = np.broadcast_to(values, (len(throughput),))
            except ValueError:
                raise InputError("pipeline", field=name, found=values.shape, expected=f"{len(throughput)}") from None
            if not (np.isfinite(column) & (column >= 1)).all():
                found = column[~(np.isfinite(column) & (column >= 1))][0].item()
                raise InputError("pipeline", field=name, found=found, expected="a number of at least 1")
            object.__setattr__(self, name, np.ascontiguousarray(column))

    def copies(self, gpus: ArrayLike) -> NDArray[np.int64]:
        """(J, C) copies of the pipeline on so many GPUs, (C,) or (J, C); 0 where they do not come out even."""
        total = np.atleast_2d(np.asarray(gpus, dtype=np.int64))
        stages = self.stages[:, None]
        return np.where(total % stages == 0, total // stages, 0)

    def batch_size(self, gpus: ArrayLike) -> Array:
        """(J, C) samples of a step; 0 where GPUs do not come out even, or the largest batch is exceeded."""
        batch = self.copies(gpus) * (self.micro_batches * self.micro_batch_size)[:, None]
        return np.where(batch <= self.largest[:, None], batch, 0.0)

    def samples_per_second(self, nodes: ArrayLike, gpus: ArrayLike) -> Array:
        """(J, C) throughput; 0 where a job cannot run. `nodes` and `gpus` are (C,) or (J, C)."""
        batch, copies = self.batch_size(gpus), self.copies(gpus)
        runs = batch > 0
        forward = self.throughput.gradient_time(self.micro_batch_size)[:, None]
        passes = (self.stages - 1 + self.micro_batches)[:, None]
        count = np.where(runs, copies, 1)
        sync = self.throughput.synchronisation_time(np.minimum(np.atleast_2d(nodes), count), count)
        return np.where(runs, batch / (PASSES * passes * forward + sync), 0.0)

    def goodput(self, statistics: GradientStatistics, initial: ArrayLike, nodes: ArrayLike, gpus: ArrayLike) -> Array:
        """(J, C) throughput times statistical efficiency, for initial batch sizes (J,); 0 where a job cannot run."""
        batch = self.batch_size(gpus)
        scale = np.where(batch > 0, batch, 1.0) / np.asarray(initial, dtype=np.float64).reshape(-1, 1)
        return self.samples_per_second(nodes, gpus) * statistics.efficiency(scale)
