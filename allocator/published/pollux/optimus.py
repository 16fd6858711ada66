"""Optimus as the simulator of Pollux has it."""

from dataclasses import dataclass
from typing import ClassVar

from allocator.policies.goodput.optimus import Optimus


@dataclass(frozen=True)
class PublishedOptimus(Optimus):
    """Marginal gains are those of one GPU at a time, and smaller gangs are placed first."""

    single_steps: ClassVar[bool] = True
    smaller_first: ClassVar[bool] = True
