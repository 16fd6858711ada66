"""How fast data-parallel training runs on so many nodes and GPUs, with which batch size: the model of Pollux.

With m samples on each of K GPUs of N nodes a step needs

    T_grad = alpha_grad + beta_grad m                    for the gradients of m samples,
    T_sync = 0                                           on one GPU,
             alpha_local + beta_local (K - 2)            on one node,
             alpha_node  + beta_node  (K - 2)            on several, to add them up,
    T_step = (T_grad^gamma + T_sync^gamma)^(1 / gamma)   where the two overlap: not at all for gamma = 1, and
                                                         wholly as gamma grows.

A step may accumulate the gradients of s more micro-batches before it adds them up, and takes s T_grad + T_step for
B = K m (s + 1) samples then: the throughput is B / (s T_grad + T_step) samples/s.

Source: A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021,
sections 3.2 and 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, Rowed
from throughputs.errors import InputError
from throughputs.numerics import exp, log

PARAMETERS = ("alpha_grad", "beta_grad", "alpha_node", "beta_node", "alpha_local", "beta_local", "gamma")
"""Names of the parameters, in the order in which a model keeps them; seconds, and seconds per sample or GPU."""

LARGEST_GAMMA = 10.0
"""Of a fit: more overlap than this cannot be told from a maximum."""

NO_TIME = 1e-8
"""Seconds: the published code's stand-in for none, so that logarithms exist; and its GPUs beyond the second of two."""


@dataclass(frozen=True, eq=False)
class ThroughputModels(Rowed):
    """The throughput models of J jobs, or of J pairs of a job and an accelerator type.

    Parameters
    ----------
    parameters : (J, 7) in the order of `PARAMETERS`.

    Raises
    ------
    InputError
        Another shape, a time that is negative or not finite, a gamma below 1, or a model in which computing takes no
        time.
    """

    parameters: Floats

    def __init__(self, parameters: ArrayLike) -> None:
        values = np.atleast_2d(np.array(parameters, dtype=float))
        if not values.size:
            values = values.reshape(0, len(PARAMETERS))
        if values.ndim != 2 or values.shape[1] != len(PARAMETERS):
            raise InputError("throughput model", found=values.shape, expected=f"{len(PARAMETERS)} parameters a job")
        least = np.array([0.0] * 6 + [1.0])
        bad = ~np.isfinite(values) | (values < least)
        if bad.any():
            row, column = (int(k) for k in np.argwhere(bad)[0])
            expected = "a number of at least 1" if column == 6 else "seconds, at least 0"
            found = float(values[row, column])
            raise InputError("throughput model", line=row + 1, field=PARAMETERS[column], found=found, expected=expected)
        idle = values[:, :2].sum(axis=1) <= 0
        if idle.any():
            row = int(np.argmax(idle))
            raise InputError(
                "throughput model", line=row + 1, field="alpha_grad, beta_grad", found=0.0, expected="time"
            )
        object.__setattr__(self, "parameters", values)

    def gradient_time(self, atomic_batch_size: ArrayLike) -> Floats:
        """(J, ...) seconds for the gradients of one micro-batch; `atomic_batch_size` has J, or 1, as first axis."""
        size = np.asarray(atomic_batch_size, dtype=float)
        alpha, beta = (column.reshape(-1, *(1,) * max(size.ndim - 1, 0)) for column in self.parameters.T[:2])
        return np.asarray(alpha + beta * size)

    def synchronisation_time(self, nodes: ArrayLike, gpus: ArrayLike) -> Floats:
        """(J, C) seconds to add up gradients on `nodes` and `gpus`, each (C,) or (J, C)."""
        count, more = synchronised_gpus(nodes, gpus)
        columns = self.parameters.T
        local = columns[4][:, None] + columns[5][:, None] * more
        across = columns[2][:, None] + columns[3][:, None] * more
        return np.where(count > 1, across, np.where(count == 1, local, NO_TIME))

    def step_time(self, nodes: ArrayLike, gpus: ArrayLike, atomic_batch_size: ArrayLike) -> Floats:
        """(J, C) seconds of a step that accumulates nothing; all arguments (C,) or (J, C)."""
        gamma = self.parameters[:, 6][:, None]
        size = np.atleast_2d(np.asarray(atomic_batch_size, dtype=float))
        return overlapped(self.gradient_time(size), self.synchronisation_time(nodes, gpus), gamma)


def synchronised_gpus(nodes: ArrayLike, gpus: ArrayLike) -> tuple[Ints, Floats]:
    """Nodes, 0 for a single GPU that has none to wait for, and GPUs beyond the second.

    Raises
    ------
    InputError
        Numbers that are not at least one node, and as many GPUs as nodes.
    """
    count, total = np.broadcast_arrays(np.asarray(nodes), np.asarray(gpus))
    good = (count >= 1) & (total >= count)
    if not good.all():
        found = (count[~good].ravel()[0].item(), total[~good].ravel()[0].item())
        raise InputError("configuration", field="(nodes, GPUs)", found=found, expected="1 <= nodes <= GPUs")
    count = np.where(total > 1, count, 0).astype(np.int64)
    return count, np.maximum(total - 2.0, NO_TIME)


def overlapped(gradient: Floats, synchronisation: Floats, gamma: Floats) -> Floats:
    """(T_grad^gamma + T_sync^gamma)^(1/gamma), of positive arrays that broadcast."""
    longer, shorter = np.maximum(gradient, synchronisation), np.minimum(gradient, synchronisation)
    ratio = exp(gamma * log(shorter / longer))
    return np.asarray(longer * exp(log(1.0 + ratio) / gamma))
