"""Rules of placement by name: ours, and those of other packages, entry points in the group ``allocator.placements``.

The value of an entry point is a subclass of `Consolidated`, of which every pool has one, or a class with the methods
`place` and `place_changes` of `Placement`, made of a cluster.
"""

from __future__ import annotations

from typing import Any, Final

from throughputs.entry_points import entries_of

ENTRY_POINT_GROUP: Final = "allocator.placements"

OURS: Final = ("in_order", "consolidated", "buddy", "best_fit", "first_fit")


def rule_names() -> tuple[str, ...]:
    """All rules, and "off" for none."""
    return ("off", *OURS, *entries_of(ENTRY_POINT_GROUP))


def rule_of_others(name: str) -> Any:
    """The class of a rule that is not ours; None for ours."""
    return None if name in OURS else entries_of(ENTRY_POINT_GROUP)[name].load()
