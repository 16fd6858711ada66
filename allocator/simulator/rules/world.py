"""Worlds as values: every world has the general rules, and its settings are the fields of its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from allocator.conversion import kinds_of
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


def with_changes(world: Rules, changes: Mapping[str, Any]) -> Rules:
    """The world with other values of fields of its rules."""
    found = []
    for rule in world:
        own = {field.name: changes[field.name] for field in fields(rule) if field.name in changes}
        found.append(replace(rule, **own) if own else rule)
    return tuple(found)


def kinds_of_world(world: Rules) -> dict[str, Any]:
    """Declared types of the fields of all rules, by name."""
    owners: list[type] = [type(rule) for rule in world]
    return {name: kind for owner in owners for name, kind in kinds_of(owner).items()}
