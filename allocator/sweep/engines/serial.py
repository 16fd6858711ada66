"""Runs in this process, one after the other: no process is started, and none can be killed alone."""

from __future__ import annotations

from allocator.sweep.engines.engine import Ended, Event, Task
from allocator.sweep.execute import Materials, run_point


class SerialEngine:
    """Makes each run when it is waited for; how far it is shows in its log alone.

    Parameters
    ----------
    materials : what the runs read.
    """

    slots = 1

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._task: Task | None = None

    def start(self, task: Task) -> None:
        """Take the run."""
        self._task = task

    def wait(self, _seconds: float) -> list[Event]:
        """Make the run that was taken, however long that takes."""
        task, self._task = self._task, None
        if task is None:
            return []
        with open(task.log, "w", encoding="utf-8", buffering=1) as log:
            outcome = run_point(
                task.point,
                self._materials,
                keep_jobs=task.keep_jobs,
                log=lambda text: print(text, file=log),
                report=lambda _share: None,
            )
        return [Ended(task.point.key, outcome)]

    def close(self) -> None:
        """Nothing is under way."""
