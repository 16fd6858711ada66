"""Policies that are an order: jobs in line, each takes a gang of GPUs if one is free."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.conversion import NotNegativeWhole
from allocator.policies.base.programs import ClosedFormPolicy
from allocator.protocol import ClusterState
from allocator.registry import register
from throughputs.arrays import Floats, Ints

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

    def shares(self, state: ClusterState) -> Floats:
        """Share 1 on the type each placed job got."""
        shares = np.zeros(state.rates.shape)
        type_of, _ = first_in_line(
            state.runnable_rates, state.scale_factors, state.capacity, state.cluster.accelerators
        )
        shares[list(type_of), list(type_of.values())] = 1.0
        return shares


def first_in_line(rates: Floats, sizes: Ints, capacity: Ints, types: Sequence[str]) -> tuple[dict[int, int], list[int]]:
    """Jobs in order take the fastest type with room for their gang: type by job; and who is behind the first that fits
    nowhere, itself included. Ties go to the type whose name is first in the alphabet.

    Parameters
    ----------
    rates, sizes : (N, M) and (N,), throughput, 0 where a gang cannot run, and GPUs of the gang.
    capacity, types : (M,) GPUs of each type, and its name.
    """
    by_name = np.array(sorted(range(len(types)), key=types.__getitem__))
    line, free = deque(np.flatnonzero((rates > 0).any(axis=1)).tolist()), capacity.copy()
    type_of: dict[int, int] = {}
    while line and len(room := by_name[free[by_name] >= sizes[line[0]]]):
        job = line.popleft()
        best = int(room[np.argmax(rates[job, room])])
        if rates[job, best] > 0:
            type_of[job] = best
            free[best] -= sizes[job]
    return type_of, list(line)


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

    def shares(self, state: ClusterState) -> Floats:
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
