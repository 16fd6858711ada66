"""Where runs happen: what the runner asks of an engine.

The runner decides what runs next and writes all results; an engine carries single runs out and tells of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from allocator.sweep.definition.point import Point
from allocator.sweep.execute import Outcome


@dataclass(frozen=True)
class Task:
    """One run to be made: a point, whether its jobs are kept, and the file of its log."""

    point: Point
    keep_jobs: bool
    log: Path


@dataclass(frozen=True)
class Advanced:
    """A run has completed this share of its jobs."""

    key: str
    share: float


@dataclass(frozen=True)
class Ended:
    """A run is over."""

    key: str
    outcome: Outcome


@dataclass(frozen=True)
class Lost:
    """A run is gone without a result: its process was killed, or its machine left."""

    key: str
    reason: str


Event = Advanced | Ended | Lost


class Engine(Protocol):
    """Carries out runs, up to `slots` at a time."""

    @property
    def slots(self) -> int:
        """How many runs may be under way."""

    def start(self, task: Task) -> None:
        """Begin a run; called only while fewer than `slots` are under way."""

    def wait(self, seconds: float) -> list[Event]:
        """What has happened, waiting up to `seconds` for something."""

    def close(self) -> None:
        """Stop everything that is under way."""
