"""Policies that are an order: jobs in line, each takes a gang of GPUs if one is free."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.conversion import NotNegativeWhole
from allocator.policies.base.programs import Array, ClosedFormPolicy
from allocator.protocol import ClusterState
from allocator.registry import register

_PAPER = "Narayanan et al., OSDI 2020, sec. 6 (baseline)"


@register(
    "fifo_perf",
    paper=_PAPER,
    program="in order of arrival: x_ij = 1 on the fastest free type; stop at the first job that fits nowhere",
)
@dataclass(frozen=True)
class FifoPerf(ClosedFormPolicy):
    """First in, first out; each job takes the fastest accelerator type that has room for its gang.

    The first job that fits nowhere blocks those behind it. Ties go to the type whose name is first in the alphabet.
    Placed afresh at each decision, so a job moves up when a faster type becomes free.
    """

    heterogeneity_aware: ClassVar[bool] = True
    fills_idle_gpus: ClassVar[bool] = False
    in_order_of_rows: ClassVar[bool] = True
    status: ClassVar[str] = "order"

    def shares(self, state: ClusterState) -> Array:
        """Share 1 on the type each placed job got."""
        # columns in alphabetical order, so that argmax breaks ties as documented
        by_name = sorted(range(len(state.capacity)), key=lambda j: state.cluster.accelerators[j])
        rates = state.runnable_rates[:, by_name]
        free = state.capacity[by_name].astype(np.int64)
        shares = np.zeros(state.rates.shape)
        for job in np.flatnonzero((rates > 0).any(axis=1)):
            need = state.scale_factors[job]
            fits = free >= need
            if not fits.any():
                break
            best = int(np.argmax(np.where(fits, rates[job], -1.0)))
            if rates[job, best] <= 0:
                continue
            free[best] -= need
            shares[job, by_name[best]] = 1.0
        return shares


@register(
    "fifo",
    paper=_PAPER,
    program="in order of arrival: x_ij = 1 on a random type with room; kept until completion",
)
@dataclass(frozen=True)
class Fifo(ClosedFormPolicy):
    """First in, first out, blind to accelerator types: a job takes any type with room and keeps it.

    A waiting job draws a type at random among those with room for its gang; the first job that fits nowhere blocks
    those behind it. Running jobs stay where they are until they complete. The draw depends on `seed` and the job's
    label alone, so the same job draws alike whatever the others do.

    The published code draws a type and then, by mistake, uses the last one in the list whether or not it has room;
    that is not reproduced.
    """

    seed: NotNegativeWhole = 0

    fills_idle_gpus: ClassVar[bool] = False
    preemptive: ClassVar[bool] = False
    in_order_of_rows: ClassVar[bool] = True
    status: ClassVar[str] = "order"

    def shares(self, state: ClusterState) -> Array:
        """Share 1 on the type each placed job has or got."""
        usable = state.runnable_rates > 0
        free = state.capacity.astype(np.int64)
        shares = np.zeros(state.rates.shape)
        for job in np.flatnonzero(state.current_accelerator >= 0):
            shares[job, state.current_accelerator[job]] = 1.0
            free[state.current_accelerator[job]] -= state.scale_factors[job]
        for job in np.flatnonzero((state.current_accelerator < 0) & usable.any(axis=1)):
            room = np.flatnonzero(usable[job] & (free >= state.scale_factors[job]))
            if not len(room):
                break
            drawn = room[_draw(self.seed, state.throughputs.jobs[job], len(room))]
            shares[job, drawn] = 1.0
            free[drawn] -= state.scale_factors[job]
        return shares


def _draw(seed: int, label: object, n: int) -> int:
    """A number below `n` that depends on the seed and the job alone."""
    return int(np.random.default_rng([seed, zlib.crc32(str(label).encode())]).integers(n))
