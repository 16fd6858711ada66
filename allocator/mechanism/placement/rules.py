"""What placement is, and its rules by name: ours, and those of other packages.

Those of others are entry points in the group ``allocator.placements``, whose value is a subclass of `Consolidated`, of
which every pool has one, or one of `Places` that is made of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from allocator.protocol.assignment import Assignment
from throughputs.entry_points import entries_of

ENTRY_POINT_GROUP: Final = "allocator.placements"

OURS: Final = ("in_order", "consolidated", "buddy", "best_fit", "first_fit")

Gpus = tuple[int, ...]


class Places(ABC):
    """Which GPUs the rows of one assignment after the other get; remembers who has which."""

    @abstractmethod
    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """GPU ids, ascending, for every row of `assignment`; two jobs that share have the same tuple."""

    @abstractmethod
    def gpus_of(self, job: int) -> Gpus:
        """GPU ids, ascending, of a job of the last assignment; KeyError for others."""

    @abstractmethod
    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """The rows `running` hold these `gpus` (ids, ascending) already; nobody else holds any."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the rows of the last assignment and their GPUs."""
        return {}

    def restore(self, running: Assignment, gpus: Sequence[Gpus], state: dict[str, Any]) -> None:  # noqa: ARG002
        """Go on from the `running` rows, their `gpus` and the `state`."""
        self.adopt(running, gpus)


def rule_names() -> tuple[str, ...]:
    """All rules, and "off" for none."""
    return ("off", *OURS, *entries_of(ENTRY_POINT_GROUP))


def rule_of_others(name: str) -> Any:
    """The class of a rule that is not ours; None for ours."""
    return None if name in OURS else entries_of(ENTRY_POINT_GROUP)[name].load()
