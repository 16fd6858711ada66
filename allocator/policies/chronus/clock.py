"""Whole units of time: ticks, slots and leases.

The published scheduler counts time in whole units, and looks at the cluster once a tick. Lease k lasts from ``k L`` to
``(k + 1) L``. Of the ticks only those matter at which something can change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Sums of times that are whole in exact arithmetic are off by less than this, in units.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class LeaseClock:
    """Times in whole units.

    Attributes
    ----------
    unit : seconds.
    tick, slot, lease : units between two looks at the cluster, two admissions, and two leases.
    """

    unit: float
    tick: int
    slot: int
    lease: int

    def units(self, seconds: float) -> float:
        """A time in units, whole where it is so but for rounding."""
        units = seconds / self.unit
        whole = round(units)
        return float(whole) if abs(units - whole) <= _ROUNDING else units

    def tick_at(self, seconds: float) -> int | None:
        """The tick that has just come, in units; None between ticks. A moment before a tick is between ticks."""
        units = round(self.units(seconds))
        just = units * self.unit <= seconds and self.units(seconds) == units
        return units if just and units % self.tick == 0 else None

    def seconds_until(self, tick: int, seconds: float) -> float:
        """Time to a tick (units) after which the clock is not a moment before it, from `seconds` on the clock."""
        target = tick * self.unit
        left = target - seconds
        while seconds + left < target:
            left = math.nextafter(left, math.inf)
        return left

    def running_lease(self, now: float) -> int:
        """Number of the lease that lasts at `now` (units); at its first moment it has begun."""
        return int(now // self.lease)

    def last_tick(self, seconds: float) -> int:
        """The last tick up to `seconds` on the clock, in units."""
        tick = math.floor(self.units(seconds) / self.tick) * self.tick
        return tick if tick * self.unit <= seconds else tick - self.tick

    def last_slot(self, seconds: float) -> int:
        """The last tick up to `seconds` on the clock at which a slot or a lease begins, in units."""
        tick = self.last_tick(seconds)
        while tick % self.slot and tick % self.lease:
            tick -= self.tick
        return tick

    def next_tick(self, now: float) -> int:
        """The first tick after `now` (units)."""
        return (math.floor(now / self.tick) + 1) * self.tick

    def next_slot(self, now: float) -> int:
        """The first tick after `now` (units) at which a slot or a lease begins."""
        tick = self.next_tick(now)
        while tick % self.slot and tick % self.lease:
            tick += self.tick
        return tick
