"""``allocator explain``: why a job of a finished run waited."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from allocator.cli.options.groups import argument, option
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.service.options import duration
from allocator.explanations.explain import explain
from allocator.explanations.explanation import Explanation
from allocator.explanations.run import FinishedRun
from allocator.explanations.text import explanation_text, overview_text
from allocator.registry import list_policies
from allocator.results.outcomes import RECORDED


def explain_command(
    run: Annotated[Path, argument("Folder of a run: what simulate, compare or record wrote.", "DIR")],
    job: Annotated[str | None, option("--job", "Its id; the jobs that waited longest if omitted.", "ID")] = None,
    since: Annotated[
        str | None,
        option("--since", "From then on, on the clock of the run: 5400, 90m, 1.5h.", "TIME"),
    ] = None,
    until: Annotated[str | None, option("--until", "Up to then.", "TIME")] = None,
    at: Annotated[str | None, option("--at", "The wait at that time, and the decision in force.", "TIME")] = None,
    as_json: JsonOption = False,
) -> None:
    """Why did a job of a finished run wait, who ran instead, and what would have let it run?

    Without a time: the longest wait of the job. What would have let it run is tried: where the policy, asked once more
    as things stood, decides as it did, it is asked with GPUs more, a job less, a smaller gang, or another type.
    docs/explain.md has the reasons and an example.
    """
    times = {
        name: None if text is None else _clock(text, f"--{name}")
        for name, text in (("since", since), ("until", until), ("at", at))
    }
    finished = FinishedRun.of(run)
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


def _clock(text: str, option: str) -> float:
    """Seconds on the clock of the run, which begins with 0."""
    return 0.0 if text in ("0", "0s") else duration(text, option)
