"""The sections of the report, as markup. Every text that comes from outside goes through `escape`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from allocator.report.charts import COURSES, HOUR, cdf_chart, course_chart
from allocator.report.figures import Rows
from allocator.report.page.markup import choice, section
from allocator.results.outcomes import RECORDED

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult


def distribution_sections(
    results: Sequence[SimulationResult], of_run: Sequence[int], rho: str, meaning: str
) -> list[str]:
    """Distributions of completion time and of finish-time fairness, over the jobs of all runs of a policy.

    Parameters
    ----------
    results : (R,) runs.
    of_run : (R,) position of the policy of each.
    rho, meaning : column of the table of jobs, and what it is.
    """
    n_policies = max(of_run) + 1
    n_jobs, jct, rhos = [0] * n_policies, *([np.empty(0)] * n_policies for _ in range(2))
    for policy, result in zip(of_run, results, strict=True):
        hours = result.jobs["jct"].to_numpy(float) / HOUR
        # of a log those jobs alone of which it tells when they ran
        n_jobs[policy] += int(np.isfinite(hours).sum()) if result.policy == RECORDED else len(hours)
        jct[policy] = np.append(jct[policy], hours)
        rhos[policy] = np.append(rhos[policy], result.jobs[rho].to_numpy(float))
    how_jct = (
        "At each time, the fraction of all jobs of the trace that took at most so long from arrival to "
        "completion. Further left and higher is better; the end of the curve is the slowest job."
    )
    slowed = rho == "bounded_slowdown"
    how_rho = (
        "At each slowdown, the fraction of all jobs of the trace that had at most so much. 1 is a job that took as "
        "long as it does alone. Further left and higher is better."
        if slowed
        else "Below 1 (dashed line) a job finished sooner than with an equal share of the cluster; above 1 it was "
        "treated unfairly. A fair policy is a steep curve left of the line with a short tail."
    )
    rho_label = f"{'slowdown' if slowed else 'rho'}: {meaning}"
    shown = (
        ("jct", "Job completion time", jct, how_jct, "job completion time (hours)", None),
        ("rho", "Slowdown" if slowed else "Finish-time fairness", rhos, how_rho, rho_label, 1.0),
    )
    return [
        section(
            name,
            title,
            how,
            _scale_switch(name) + cdf_chart(name, series, n_jobs, title=title, x_label=label, reference=reference),
        )
        for name, title, series, how, label, reference in shown
    ]


def timeline_section(names: Sequence[str]) -> str:
    """Who ran where, in one run or in two beside each other; drawn by the script, anew at each zoom."""
    how = (
        "One row per GPU, one bar per stretch in which a job kept the GPU, one colour per job, the same in both "
        "timelines. The band above the rows of an accelerator type shows how many of its GPUs were busy. Point at a "
        "bar to follow its job, click to keep it; drag to move; zoom with the buttons, the keys ← → + −, two fingers, "
        "or Ctrl and the wheel. Dragging over the queue or the utilisation chooses the same stretch of time."
    )
    buttons = "".join(
        f'<button type="button" data-move="{move}" aria-label="{label}">{sign}</button>'
        for move, label, sign in (
            ("left", "earlier", "←"),
            ("right", "later", "→"),
            ("in", "zoom in", "+"),
            ("out", "zoom out", "−"),
            ("all", "whole run", "whole run"),
        )
    )
    second = choice("timeline-second", "Second", names, none="none") if len(names) > 1 else ""
    panes = "".join(
        f'<figure class="pane" id="pane-{place}"><figcaption id="pane-{place}-name"></figcaption>'
        f'<canvas tabindex="0" role="img" aria-label="GPU timeline">GPU timeline</canvas></figure>'
        for place in ("first", "second")
    )
    body = (
        f'<div class="controls">{choice("timeline-first", "First", names)}{second}'
        '<label hidden>GPUs of <select id="timeline-pool"></select></label>'
        f'<span class="buttons">{buttons}</span></div>'
        '<p id="timeline-note" class="note" aria-live="polite"></p>'
        f'<p id="timeline-job" class="note" aria-live="polite" hidden></p>{panes}'
        "<noscript><p>The timeline needs JavaScript.</p></noscript>"
    )
    return section("timeline", "GPU timelines", how, body)


def jobs_section(names: Sequence[str]) -> str:
    """All jobs of one run; filled by the script, as much of it as is in view."""
    how = (
        "All jobs of one policy, times in hours. Search for words in id, type, user, partition and status, or in one "
        "column, as in type:resnet, status:completed or jct>10. Click a heading to sort, and a job to see it in "
        "the timelines."
    )
    body = (
        f'<div class="controls">{choice("jobs-run", "Policy", names)}'
        '<label>Search <input type="search" id="jobs-search" autocomplete="off" spellcheck="false"></label>'
        '<output id="jobs-count" for="jobs-search jobs-run"></output></div>'
        '<div id="jobs-view" class="scroll tall jobs" tabindex="0" role="region" aria-label="Jobs">'
        '<table id="jobs-table"><thead></thead><tbody></tbody></table></div>'
        "<noscript><p>The table of jobs needs JavaScript.</p></noscript>"
    )
    return section("jobs", "Jobs", how, body)


def course_sections(runs: Rows, of_run: Sequence[int], origin: float | None) -> list[str]:
    """What is measured of the cluster over time; without those of which no run has anything.

    `origin` is second 0 of the clock, in seconds since 1970; None: times are no dates.
    """
    return [
        section(
            course.name,
            course.heading,
            course.how,
            course_chart(course, [run[course.name] for run in runs], of_run, origin),
        )
        for course in COURSES
        if course.always or any(run[course.name]["value"] for run in runs)
    ]


def allocation_section(names: Sequence[str]) -> str:
    """The allocation matrix of one decision; filled by the script."""
    how = (
        "What the policy decided: the share of time each job gets on each accelerator type, 1 being always. "
        "The price of a type is what one more GPU of it would add to the objective: 0 where something else, often a "
        "job that already runs all the time, holds the objective where it is."
    )
    body = (
        f'<div class="controls">{choice("allocation-run", "Policy", names)}'
        '<label>Decision <input type="range" id="allocation-decision" min="0" max="0" value="0"></label>'
        '<output id="allocation-where" for="allocation-decision"></output></div>'
        '<p id="allocation-note" class="note" aria-live="polite"></p>'
        '<div class="scroll tall" tabindex="0" role="region" aria-label="Allocation matrix">'
        '<table id="allocation-table" class="heat"></table></div>'
        "<noscript><p>The allocation matrix needs JavaScript.</p></noscript>"
    )
    return section("allocation", "Allocation matrix", how, body)


def _scale_switch(name: str) -> str:
    return (
        f'<div class="controls switch" role="group" aria-label="Scale of the x axis" data-chart="{name}">'
        '<button type="button" data-scale="log" aria-pressed="true">log</button>'
        '<button type="button" data-scale="linear" aria-pressed="false">linear</button></div>'
    )
