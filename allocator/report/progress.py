"""Progress of several simulations in the terminal.

>>> with policy_progress(["fifo", "max_min_fairness"]) as progress:
...     for name in ["fifo", "max_min_fairness"]:
...         advance = progress(name)
...         advance(360.0, 1, 2)  # simulated clock in seconds, completed jobs, all jobs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Advance", "policy_progress"]

Advance = Callable[[float, int, int], None]
"""Told of the simulated clock in seconds, of completed jobs and of all jobs."""

# A log wants a few lines for each policy, not one for each job.
PLAIN_STEPS = 4


@contextmanager
def policy_progress(
    policies: Sequence[str], *, console: Console | None = None, plain_lines: bool = False
) -> Iterator[Callable[[str], Advance]]:
    """Yield a function that takes a policy's name and returns the `progress` callback for `simulate`.

    On a terminal each policy has a bar. Elsewhere nothing is written, or with `plain_lines` one line for each
    quarter of a policy's jobs. Writes to standard error unless `console` is given.
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    if console.is_terminal:
        with _bars(policies, console) as start:
            yield start
    elif plain_lines:
        yield lambda policy: _plain_advance(policy, console)
    else:
        yield lambda _policy: _silent


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


def _plain_advance(policy: str, console: Console) -> Advance:
    reached = 0

    def advance(_clock: float, completed_jobs: int, total_jobs: int) -> None:
        nonlocal reached
        step = PLAIN_STEPS * completed_jobs // total_jobs if total_jobs else PLAIN_STEPS
        if step > reached:
            reached = step
            line = f"{policy}: {completed_jobs} of {total_jobs} jobs completed"
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    return advance


def _silent(_clock: float, _completed_jobs: int, _total_jobs: int) -> None:
    return None
