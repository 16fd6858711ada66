"""``allocator explain``: why a job of a finished run waited."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.service.options import duration
from allocator.explanations.explain import explain
from allocator.explanations.explanation import Explanation
from allocator.explanations.run import FinishedRun
from allocator.explanations.text import explanation_text, overview_text
from allocator.registry import list_policies
from allocator.results.outcomes import RECORDED
from throughputs import InputError

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def explain_command(
    run: Path,
    /,
    job: str | None = None,
    since: str | None = None,
    until: str | None = None,
    at: str | None = None,
    as_json: JsonOption = False,
) -> None:
    """Why did a job of a finished run wait, who ran instead, and what would have let it run?

    Without a time: the longest wait of the job. What would have let it run is tried: where the policy, asked once more
    as things stood, decides as it did, it is asked with GPUs more, a job less, a smaller gang, or another type.
    docs/explain.md has the reasons and an example.

    Parameters
    ----------
    run : DIR
        Folder of a run: what simulate, compare or record wrote.
    job : ID
        Its id; the jobs that waited longest if omitted.
    since : TIME
        From then on, on the clock of the run: 5400, 90m, 1.5h, or a date (UTC).
    until : TIME
        Up to then.
    at : TIME
        The wait at that time, and the decision in force.
    """
    finished = FinishedRun.of(run)
    times = {
        name: None if text is None else _clock(text, f"--{name}", finished)
        for name, text in (("since", since), ("until", until), ("at", at))
    }
    told = explain(run, None if job is None else finished.job_number(job), **times)
    if finished.policy_name not in (RECORDED, *(entry.name for entry in list_policies())):
        print(
            f"policy {finished.policy_name} is not known here, so no change is tried: name the file that defines it "
            "with --import, as for the run",
            file=sys.stderr,
        )
    if as_json:
        print_json(told.as_dict())
        return
    screen = console()
    for part in explanation_text(told) if isinstance(told, Explanation) else overview_text(told):
        screen.print(part, soft_wrap=isinstance(part, str), highlight=False)
    if not isinstance(told, Explanation) and told.longest:
        screen.print(f"More: --job {told.longest[0].trace_id or told.longest[0].job}", markup=False, highlight=False)


def _clock(text: str, option: str, run: FinishedRun) -> float:
    """Seconds on the clock of the run, which begins with 0, of a time on it, or of a date where the run has dates."""
    if text in ("0", "0s"):
        return 0.0
    dates = run.jobs.arrival_date
    if _DATE.match(text) and not np.isnat(dates).all():
        first = int(np.isnat(dates).argmin())
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise InputError(option, found=text, expected="a date (ISO 8601; UTC), as 2025-03-03T08:00") from None
        date = date.replace(tzinfo=date.tzinfo or UTC)
        return float(date.timestamp() - dates[first].astype(np.int64) / 1e6 + run.jobs.arrival_time[first])
    return duration(text, option)
