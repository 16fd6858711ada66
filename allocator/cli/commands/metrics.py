"""``allocator metrics``: figures of runs that are over, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.cli.options.groups import Commands
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.report.figures import format_count
from allocator.results.measures.recorded_runs import deadline_judgement, read_recorded_jobs
from allocator.results.summary import percent

_ADMISSION = {"accepted": "admitted", "declined": "rejected", "not_submitted": "not submitted in this run"}
_ENDS = {
    "met": "met",
    "late": "completed late",
    "missed": "not completed and past the deadline",
    "open": "not completed and before it",
}

app = Commands()


@app.command("deadlines")
def deadlines_command(
    run: Path,
    /,
    trace: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """How many deadlines did a run keep, whether or not its scheduler knew of them?

    Jobs are matched with those of --trace by name, or by the number behind the last dash of the name, which is the
    position in the trace. The satisfactory ratio is given over all jobs with a deadline, and over the jobs that have
    finished so far, as the simulator of ElasticFlow's comparison with Pollux does.

    Parameters
    ----------
    run : RUN
        Folder of a run, or a log or summary of Pollux' simulators (JSON).
    trace : FILE
        Trace with the deadlines; those in the run if omitted.
    """
    figures = deadline_judgement(read_recorded_jobs(run, trace))
    if as_json:
        print_json(figures)
        return
    for line in _lines(str(run), figures):
        console().print(line, soft_wrap=True, highlight=False, markup=False)


def _lines(name: str, figures: Mapping[str, Any]) -> list[str]:
    counts = {key: format_count(figures[key]) for key in ("jobs", "deadline_jobs", "completed_jobs")}
    finished = f"of the {counts['completed_jobs']} jobs that have finished"
    return [
        f"{name}: {counts['jobs']} jobs, {counts['deadline_jobs']} with a deadline",
        "  " + ", ".join(f"{figures[key]} {words}" for key, words in _ADMISSION.items()),
        "  " + ", ".join(f"{figures[key]} {words}" for key, words in _ENDS.items()),
        f"  satisfactory ratio: {percent(figures['satisfactory_ratio'])} of all jobs with a deadline, "
        f"{percent(figures['satisfactory_ratio_of_finished'])} {finished}",
    ]
