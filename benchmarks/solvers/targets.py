"""The figures aimed at, as data: what a decision may cost at a size, and how much memory it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Target:
    """A limit for the path `auto`.

    Attributes
    ----------
    limit : seconds, or for memory the peak as a multiple of the input.
    cores : on one core the figure is CPU time, on more it is wall time.
    """

    decision: str
    family: str
    jobs: int
    types: int
    limit: float
    cores: int = 1
    quantity: Literal["seconds", "memory"] = "seconds"


TARGETS = (
    Target("max_min", "published", 2048, 3, 1e-3),
    Target("max_min", "distinct", 2048, 3, 4e-3),
    Target("max_min", "distinct", 100_000, 3, 80e-3),
    Target("max_min", "distinct", 1_000_000, 4, 1.0, cores=2),
    Target("max_min", "published", 1_000_000, 4, 150e-3),
    Target("finish_time", "distinct", 2048, 3, 15e-3),
    Target("makespan", "distinct", 2048, 3, 6e-3),
    Target("water_filling", "distinct", 2048, 3, 15e-3),
    Target("proportional_fairness", "distinct", 1_000_000, 4, 1.0, cores=2),
    Target("packed_max_min", "published", 512, 3, 30e-3),
    Target("packed_max_min", "published", 2048, 3, 60e-3),
    Target("max_min", "distinct", 1_000_000, 4, 6.0, quantity="memory"),
)


def against_targets(rows: Sequence[dict[str, Any]], targets: Sequence[Target] = TARGETS) -> list[dict[str, Any]]:
    """One row per target: the measured figure, or None, and by what factor it is above the limit."""
    compared = []
    for target in targets:
        measured, proven = _measured(rows, target)
        compared.append(
            {
                "decision": target.decision,
                "family": target.family,
                "jobs": target.jobs,
                "types": target.types,
                "quantity": target.quantity,
                "cores": target.cores,
                "limit": target.limit,
                "measured": measured,
                "factor": None if measured is None else measured / target.limit,
                "proven": proven,
                "met": None if measured is None else bool(measured <= target.limit and proven),
            }
        )
    return compared


def _measured(rows: Sequence[dict[str, Any]], target: Target) -> tuple[float | None, bool]:
    """The figure of the path `auto`, and whether its answer was proven optimal: speed without proof meets nothing."""
    key = "memory_factor" if target.quantity == "memory" else "cpu_seconds" if target.cores == 1 else "wall_seconds"
    for row in rows:
        same = all(row[name] == getattr(target, name) for name in ("decision", "family", "jobs", "types"))
        if same and row["path"] == "auto" and row["outcome"] == "measured":
            return row[key], row["status"] == "optimal"
    return None, False
