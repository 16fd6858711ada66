"""The settings of the policy that its parts read, and how long jobs are believed to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.memory import Array, Integers
from throughputs.numerics import log2

if TYPE_CHECKING:
    from allocator.policies.chronus.admission import Promises
    from allocator.policies.chronus.opportunistic import Offers


@dataclass(frozen=True)
class LeaseRules:
    """Settings in units of time. What they mean stands at the policy's parameters.

    Attributes
    ----------
    clock : units, ticks, slots and leases.
    capacity : GPUs of the cluster.
    promises, offers : who is promised a deadline, and who is offered GPUs between slots.
    """

    clock: LeaseClock
    capacity: int
    promises: Promises
    offers: Offers
    objective: str
    solver: str
    time_limit_seconds: float
    relative_gap: float | None
    tie_break: str
    forced_guarantee: bool
    accepted_run_early: bool
    start_cost: float
    margin: float
    noise: float
    trusted_noise: float
    tolerate_ratio: float
    max_search_options: int | None

    def start_units(self, gpus: Array | Integers) -> Array:
        """w(g): what it costs to start a gang, units."""
        return self.start_cost * (1.0 + log2(gpus))

    def estimates(self, duration: Array, gpus: Integers) -> Integers:
        """Time that jobs are given: with the cost of one start in each lease, and a margin; whole units."""
        return np.floor(
            duration * (1.0 + (1.0 + log2(gpus)) * self.start_cost / self.clock.lease) * self.margin
        ).astype(np.int64)

    def leases_for(self, units: Array) -> Integers:
        """Leases in which a job can run for so many units."""
        return np.maximum(np.ceil(units / self.clock.lease), 0).astype(np.int64)


def rounded_gpus(gpus: Integers) -> Integers:
    """GPUs that the lease program reckons with: up to 8, the next power of two."""
    steps = np.array([1, 2, 4, 8])
    return np.where(gpus <= 8, steps[np.minimum(np.searchsorted(steps, gpus), 3)], gpus)
