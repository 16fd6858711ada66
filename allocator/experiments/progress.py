"""Progress of a sweep on the screen: bars on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allocator.experiments.run import Run

if TYPE_CHECKING:
    from rich.console import Console


class Display:
    """Shows how far a sweep is, and about how long the rest will take.

    The estimate takes the runs to come for as long as those that are over, on average; runs at larger loads are often
    longer.

    Parameters
    ----------
    total : points of the sweep.
    console : where to write; None: nowhere.
    names : what points are called, by identity; else their own labels.
    """

    def __init__(self, total: int, console: Console | None, names: Mapping[str, str] | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn

        screen = console or Console(quiet=True)
        shown = "{task.description}", BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), "{task.fields[note]}"
        self._bars = Progress(*shown, console=screen, transient=True, disable=not screen.is_terminal)
        self._whole = self._bars.add_task("points", total=total, note="")
        self._bars.start()
        self._names = names or {}
        self._total, self._settled, self._made = total, 0, 0
        self._shares: dict[str, float] = {}
        self._tasks: dict[str, Any] = {}
        self._started = time.monotonic()

    def settle(self, count: int) -> None:
        """So many points need no run (any more)."""
        self._settled += count
        self._refresh()

    def begin(self, run: Run) -> None:
        """A run starts."""
        from rich.markup import escape

        self._shares[run.key] = 0.0
        self._tasks[run.key] = self._bars.add_task(f"  {escape(self._name(run))}", total=1.0, note="")

    def advance(self, key: str, share: float) -> None:
        """A run has completed this share of its jobs."""
        self._shares[key] = share
        self._bars.update(self._tasks[key], completed=share)
        self._refresh()

    def end(self, run: Run, message: str) -> None:
        """A run is over; the message says how."""
        del self._shares[run.key]
        self._made += 1
        self._settled += 1
        self._bars.remove_task(self._tasks.pop(run.key))
        left = self.remaining_text()
        line = f"{self._settled} of {self._total}: {self._name(run)}: {message}" + (f"; {left}" if left else "")
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._refresh()

    def close(self) -> None:
        """Take the bars away."""
        self._bars.stop()

    def remaining_text(self) -> str:
        """About how long the rest takes, "" when that is not known or nothing is left."""
        under_way = sum(self._shares.values())
        done, left = self._made + under_way, self._total - self._settled - under_way
        if done <= 0 or left <= 0:
            return ""
        return f"about {_duration((time.monotonic() - self._started) / done * left)} left"

    def _name(self, run: Run) -> str:
        return self._names.get(run.key, run.label)

    def _refresh(self) -> None:
        completed = self._settled + sum(self._shares.values())
        self._bars.update(self._whole, completed=completed, note=self.remaining_text())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
