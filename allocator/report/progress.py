"""Progress of several simulations: bars in a terminal, a line now and then elsewhere.

>>> with policy_progress(["fifo", "max_min_fairness"]) as progress:
...     for name in ["fifo", "max_min_fairness"]:
...         advance = progress(name)
...         advance(360.0, 1, 2)  # simulated clock in seconds, completed jobs, all jobs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[float, int, int], None]
"""Told of the simulated clock in seconds, of completed jobs and of all jobs."""

_SECONDS_BETWEEN_LINES = 60.0
_HOUR = 3600.0


@contextmanager
def policy_progress(policies: Sequence[str], console: Console | None = None) -> Iterator[Callable[[str], Advance]]:
    """Yield a function that takes a policy's name and returns the `progress` callback for `simulate`.

    On a terminal each policy has a bar. Elsewhere there is a line of text every minute, whether or not jobs
    complete; none where all is over before. Writes to standard error unless `console` is given.
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    with _bars(policies, console) if console.is_terminal else _lines(console) as start:
        yield start


@contextmanager
def _bars(policies: Sequence[str], console: Console) -> Iterator[Callable[[str], Advance]]:
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {policy: progress.add_task(escape(policy), total=None, start=False) for policy in policies}

        def start(policy: str) -> Advance:
            task = tasks[policy]
            progress.start_task(task)

            def advance(_clock: float, completed_jobs: int, total_jobs: int) -> None:
                progress.update(task, completed=completed_jobs, total=total_jobs)

            return advance

        yield start


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[str], Advance]]:
    """How far it is, told by a thread of its own: a decision may take long."""
    state = {"text": ""}
    over = Event()

    def tell() -> None:
        while not over.wait(_SECONDS_BETWEEN_LINES):
            if state["text"]:
                console.print(state["text"], markup=False, highlight=False, soft_wrap=True)

    def start(policy: str) -> Advance:
        def advance(clock: float, completed_jobs: int, total_jobs: int) -> None:
            of_all = f"{completed_jobs} of {total_jobs} jobs" if total_jobs else "no job"
            state["text"] = f"{policy}: {of_all} completed, simulated clock {clock / _HOUR:.1f} h"

        advance(0.0, 0, 0)
        return advance

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield start
    finally:
        over.set()
        thread.join()
