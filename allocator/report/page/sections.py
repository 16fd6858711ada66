"""The sections of the report, as markup. Every text that comes from outside goes through `escape`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.bar_charts import bar_panels
from allocator.report.charts import HOUR, cdf_chart, efficiency_chart, policy_class, queue_chart, utilization_chart
from allocator.report.figures import FIGURES, MISSING, best_rows, format_column, value_of
from allocator.report.presentation import Presentation, ended_otherwise, free_restarts

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

__all__ = [
    "allocation_section",
    "bars_section",
    "comparison_section",
    "distribution_sections",
    "efficiency_section",
    "heading",
    "legend",
    "queue_section",
    "sizes_section",
    "timeline_section",
    "utilization_section",
]


_OF_SIZES = tuple(
    figure
    for figure in FIGURES
    if figure.key in ("average_jct", "median_jct", "p99_jct", "average_queueing_time", "worst_rho", "restart_gpu_hours")
)


def heading(results: Sequence[SimulationResult], title: str, description: str) -> str:
    """Title, description and what was run."""
    parts = [f"<header>\n<h1>{escape(title)}</h1>"]
    if description:
        parts.append(f'<p class="lead">{escape(description)}</p>')
    facts = _facts(results)
    if facts:
        rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts)
        parts.append(f'<dl class="facts">{rows}</dl>')
    if any(result.settings for result in results):
        parts.append(_settings(results))
    return "\n".join([*parts, "</header>"])


def _facts(results: Sequence[SimulationResult]) -> list[tuple[str, str]]:
    if not results:
        return []
    facts = [
        ("cluster", _distinct(f"{result.cluster} ({result.cluster.total_gpus} GPUs)" for result in results)),
        ("jobs", _distinct(f"{len(result.jobs):,}" for result in results)),
        ("policies", str(len(results))),
    ]
    ends = [(result.label, ended_otherwise(result.summary())) for result in results]
    if any(words for _, words in ends):
        facts.append(("ended otherwise", "; ".join(f"{label}: {words}" for label, words in ends if words)))
    for key in ("trace", "preset"):
        values = [_setting_text(result.settings[key]) for result in results if key in result.settings]
        if values:
            facts.append((key, _distinct(values)))
    return facts


def _distinct(texts: Any) -> str:
    return "; ".join(dict.fromkeys(texts))


def _settings(results: Sequence[SimulationResult]) -> str:
    """All settings: one column when every policy agrees on a setting, otherwise each policy's value."""
    keys = [key for key in dict.fromkeys(key for r in results for key in r.settings) if key != "policy"]
    rows = []
    for key in keys:
        texts = [_setting_text(result.settings.get(key)) for result in results]
        if len(set(texts)) == 1:
            value = escape(texts[0])
        else:
            pairs = zip(results, texts, strict=True)
            value = "<br>".join(f"{escape(result.label)}: {escape(text)}" for result, text in pairs)
        rows.append(f'<tr><th scope="row">{escape(str(key))}</th><td>{value}</td></tr>')
    return (
        "<details><summary>Settings of the runs</summary>"
        '<table class="settings">'
        '<thead><tr><th scope="col">setting</th><th scope="col">value</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def _setting_text(value: object) -> str:
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def legend(names: Sequence[str]) -> str:
    """One button per policy; pressed means shown. Stays in view, since every chart uses the same colours."""
    buttons = "".join(
        f'<button type="button" class="key {policy_class(position)}" '
        f'data-policy="{position}" aria-pressed="true">'
        '<svg width="26" height="10" aria-hidden="true"><path class="curve" d="M1 5H25"/></svg>'
        f"{escape(name)}</button>"
        for position, name in enumerate(names)
    )
    return f'<nav class="legend" aria-label="Policies: show or hide in every chart">{buttons}</nav>'


def comparison_section(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The table of figures; a click on a heading sorts."""
    shown = Presentation.of(summaries)
    figures = shown.figures
    heads = [
        "policy",
        *(f"{f.heading} ({f.unit})" if f.unit else f.heading for f in figures),
        "jobs done",
    ]
    hints = ["", *(figure.about for figure in figures), "completed jobs of all jobs"]
    head = "".join(
        f'<th scope="col"><button type="button" title="{escape(hint)}">{escape(text)}</button></th>'
        for text, hint in zip(heads, hints, strict=True)
    )
    columns = [
        (
            format_column(figure, summaries),
            [value_of(figure, s) for s in summaries],
            best_rows(figure, summaries),
        )
        for figure in figures
    ]
    rows = []
    for row, summary in enumerate(summaries):
        name = escape(shown.names[row])
        swatch = f'<i class="swatch {policy_class(row)}" aria-hidden="true"></i>'
        cells = [f'<th scope="row" data-value="{name}">{swatch}{name}</th>']
        for texts, values, best in columns:
            mark = ' class="best"' if row in best else ""
            value = "" if np.isnan(values[row]) else f"{values[row]:.9g}"
            star = '<span class="sr"> (best)</span>' if row in best else ""
            cells.append(f'<td{mark} data-value="{value}">{texts[row]}{star}</td>')
        done = summary.get("completed_jobs")
        text = MISSING if done is None else f"{done} / {summary.get('jobs', MISSING)}"
        cells.append(f'<td data-value="{"" if done is None else done}">{escape(text)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f'<table class="figures"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    more_is_better = ", ".join(figure.heading for figure in figures if figure.better == "high")
    how = (
        "Each row is one policy. Green and bold marks the best value of a column, among the policies that "
        f"completed the most jobs. Less is better, except for {more_is_better}. Click a heading to sort."
    )
    how += "".join(f" {line[0].upper()}{line[1:]}." for line in free_restarts(summaries))
    if not shown.usual:
        how += f" Here rho is {shown.meaning}."
    return _section("comparison", "Comparison", how, f'<div class="scroll">{table}</div>')


def bars_section(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The figures that the preset shows as bars, a panel each; nothing where it shows none."""
    panels = bar_panels(summaries)
    if not panels:
        return ""
    how = (
        "The figures by which the paper compares its policies, under its names. Shorter is better. Behind each value "
        f"its ratio to that of {Presentation.of(summaries).labels[0]}, the first of them."
    )
    return _section("bars", "Side by side", how, f'<div class="panels">{"".join(panels)}</div>')


def distribution_sections(results: Sequence[SimulationResult], *, rho: str = "rho", meaning: str = "") -> list[str]:
    """Distributions of completion time and of finish-time fairness, `rho` being the column of the table of jobs."""
    n_jobs = [len(result.jobs) for result in results]
    jct = [result.jobs["jct"].to_numpy(np.float64) / HOUR for result in results]
    rhos = [result.jobs[rho].to_numpy(np.float64) for result in results]
    jct_title, rho_title = "Job completion time", "Finish-time fairness"
    jct_chart = cdf_chart("jct", jct, n_jobs, title=jct_title, x_label="job completion time (hours)")
    rho_label = f"rho: {meaning or 'job completion time / the same on an isolated share of the cluster'}"
    rho_chart = cdf_chart("rho", rhos, n_jobs, title=rho_title, x_label=rho_label, reference=1.0)
    how_jct = (
        "At each time, the fraction of all jobs of the trace that took at most so long from arrival to "
        "completion. Further left and higher is better; the end of the curve is the slowest job."
    )
    how_rho = (
        "Below 1 (dashed line) a job finished sooner than with an equal share of the cluster; "
        "above 1 it was treated unfairly. A fair policy is a steep curve left of the line with a short tail."
    )
    return [
        _section("jct", jct_title, how_jct, _scale_switch("jct") + jct_chart),
        _section("rho", rho_title, how_rho, _scale_switch("rho") + rho_chart),
    ]


def timeline_section(names: Sequence[str]) -> str:
    """Who ran where; drawn by the script, since it is drawn anew at each zoom."""
    how = (
        "One row per GPU, one bar per stretch in which a job kept the GPU, one colour per job. The band "
        "above the rows of an accelerator type shows how many of its GPUs were busy. Point at a bar to "
        "follow its job; drag to move, or use the buttons or the keys ← → + − to move and zoom."
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
    body = (
        f'<div class="controls">{_policy_select("timeline", names)}'
        f'<span class="buttons">{buttons}</span></div>'
        '<p id="timeline-note" class="note" aria-live="polite"></p>'
        '<canvas id="timeline-canvas" tabindex="0" role="img" aria-label="GPU timeline">GPU timeline</canvas>'
        "<noscript><p>The timeline needs JavaScript.</p></noscript>"
    )
    return _section("timeline", "GPU timeline", how, body)


def queue_section(queues: Sequence[Mapping[str, Any]]) -> str:
    """Queue length of all policies over time."""
    how = (
        "Jobs that had arrived, were not finished and did not run in the round, averaged over short stretches "
        "where it changes often. A short queue is better."
    )
    return _section("queue", "Queue", how, queue_chart(queues, title="Jobs in the queue over time"))


def utilization_section(series: Sequence[Mapping[str, Any]]) -> str:
    """Busy part of the cluster of all policies over time."""
    how = (
        "GPUs that jobs had, of all GPUs of the cluster. Once the last job has arrived the cluster runs dry, and how "
        "long that takes is a matter of the longest jobs: the table has the utilisation up to the last arrival, too."
    )
    chart = utilization_chart(series, title="Busy GPUs over time")
    return _section("utilization", "Utilisation", how, chart)


def sizes_section(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What jobs of each size got; nothing where all jobs need as many GPUs."""
    if not any(summary.get("by_size") for summary in summaries):
        return ""
    heads = [
        "policy",
        "GPUs",
        "jobs",
        *(f"{figure.heading} ({figure.unit})" if figure.unit else figure.heading for figure in _OF_SIZES),
    ]
    head = "".join(f'<th scope="col"><button type="button">{escape(text)}</button></th>' for text in heads)
    sizes = [(position, row) for position, summary in enumerate(summaries) for row in summary.get("by_size", [])]
    names, found = Presentation.of(summaries).names, [row for _, row in sizes]
    columns = [(format_column(figure, found), [value_of(figure, row) for row in found]) for figure in _OF_SIZES]
    rows = []
    for at, (position, row) in enumerate(sizes):
        swatch, name = f'<i class="swatch {policy_class(position)}" aria-hidden="true"></i>', escape(names[position])
        smallest = row["gpus"].rstrip("+").partition("-")[0]
        cells = [f'<th scope="row" data-value="{name}">{swatch}{name}</th>']
        cells.append(f'<td data-value="{smallest}">{escape(row["gpus"])}</td>')
        cells.append(f'<td data-value="{row["jobs"]}">{row["jobs"]}</td>')
        for texts, values in columns:
            value = "" if np.isnan(values[at]) else f"{values[at]:.9g}"
            cells.append(f'<td data-value="{value}">{texts[at]}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    how = "What jobs of each size got: how many GPUs a job needs decides how hard it is to place."
    table = f'<table class="figures"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return _section("sizes", "By size of job", how, f'<div class="scroll">{table}</div>')


def efficiency_section(series: Sequence[Mapping[str, Any]]) -> str:
    """Cluster efficiency of all policies over time; nothing where no run has deadlines, or none knows it."""
    if not any(each["value"] for each in series):
        return ""
    how = (
        "What the running jobs make of the cluster: the sum of their speedups over one GPU, over all GPUs. A job that "
        "is given GPUs on which it hardly goes faster adds little. More is better."
    )
    chart = efficiency_chart(series, title="Cluster efficiency over time")
    return _section("efficiency", "Cluster efficiency", how, chart)


def allocation_section(names: Sequence[str]) -> str:
    """The allocation matrix of one decision; filled by the script."""
    how = (
        "What the policy decided: the share of time each job gets on each accelerator type, 1 being always. "
        "The price of a type is what one more GPU of it would add to the objective: 0 where something else, often a "
        "job that already runs all the time, holds the objective where it is."
    )
    body = (
        f'<div class="controls">{_policy_select("allocation", names)}'
        '<label>Decision <input type="range" id="allocation-decision" min="0" max="0" value="0"></label>'
        '<output id="allocation-where" for="allocation-decision"></output></div>'
        '<p id="allocation-note" class="note" aria-live="polite"></p>'
        '<div class="scroll tall" tabindex="0" role="region" aria-label="Allocation matrix">'
        '<table id="allocation-table" class="heat"></table></div>'
        "<noscript><p>The allocation matrix needs JavaScript.</p></noscript>"
    )
    return _section("allocation", "Allocation matrix", how, body)


def _policy_select(name: str, policies: Sequence[str]) -> str:
    options = "".join(f'<option value="{index}">{escape(policy)}</option>' for index, policy in enumerate(policies))
    return f'<label>Policy <select id="{name}-policy">{options}</select></label>'


def _scale_switch(name: str) -> str:
    return (
        f'<div class="controls switch" role="group" aria-label="Scale of the x axis" data-chart="{name}">'
        '<button type="button" data-scale="log" aria-pressed="true">log</button>'
        '<button type="button" data-scale="linear" aria-pressed="false">linear</button></div>'
    )


def _section(name: str, title: str, how: str, body: str) -> str:
    return (
        f'<section aria-labelledby="{name}-heading">\n<h2 id="{name}-heading">{escape(title)}</h2>\n'
        f'<p class="how">{escape(how)}</p>\n{body}\n</section>'
    )
