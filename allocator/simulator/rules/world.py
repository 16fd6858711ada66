"""The general rules, which every world has."""

from __future__ import annotations

from allocator.simulator.goodput.rule import Goodput
from allocator.simulator.rules.base import Rule, Rules
from allocator.simulator.rules.failures import NodesFail
from allocator.simulator.rules.general import (
    BatchSizes,
    DeadlineMeasure,
    GangRates,
    IdealShares,
    Limits,
    Slots,
    SpreadGangs,
)
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
    NodesFail,
)
"""The rules that every world has."""


def completed(world: Rules) -> Rules:
    """The world with all general rules: those that it does not list come first, with their usual fields.

    Failures, which cut short what the others say, come last.
    """
    missing = [kind() for kind in GENERAL if not any(isinstance(rule, kind) for rule in world)]
    cuts = [rule for rule in (*missing, *world) if isinstance(rule, NodesFail)]
    return (*(rule for rule in (*missing, *world) if rule not in cuts), *cuts)
