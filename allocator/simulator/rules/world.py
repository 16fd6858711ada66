"""The general rules, which every world has."""

from __future__ import annotations

from allocator.simulator.goodput.rule import Goodput
from allocator.simulator.rules.base import Rule, Rules
from allocator.simulator.rules.general import (
    BatchSizes,
    DeadlineMeasure,
    GangRates,
    IdealShares,
    Limits,
    SpreadGangs,
)
from allocator.simulator.rules.slots import Slots
from allocator.simulator.rules.starts import StartsTakeTime, StoppingCostsWork

GENERAL: tuple[type[Rule], ...] = (
    StartsTakeTime,
    Slots,
    StoppingCostsWork,
    Limits,
    IdealShares,
    SpreadGangs,
    GangRates,
    DeadlineMeasure,
    BatchSizes,
    Goodput,
)
"""The rules that every world has, in the order in which they are asked where it does not list them."""


def completed(world: Rules) -> Rules:
    """The world with all general rules, those that it does not list first, with their usual fields."""
    return (*(kind() for kind in GENERAL if not any(isinstance(rule, kind) for rule in world)), *world)
