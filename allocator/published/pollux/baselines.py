"""Optimus and Tiresias as the simulator of Pollux has them."""

from dataclasses import dataclass
from typing import ClassVar

from allocator.policies.goodput.optimus import Optimus
from allocator.policies.time_sharing.tiresias import Tiresias


@dataclass(frozen=True)
class PublishedOptimus(Optimus):
    """Marginal gains are those of one GPU at a time, and smaller gangs are placed first."""

    single_steps: ClassVar[bool] = True
    smaller_first: ClassVar[bool] = True


@dataclass(frozen=True)
class TiresiasByEntry(Tiresias):
    """In a queue goes first who came to it first, whether it runs or waits."""

    runs_first: ClassVar[bool] = False
