"""Nodes that slept, as one HTML page that opens without a network; nothing in it is a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from allocator.predictions.nodes import NodeSleep
from allocator.report.colours import style_rules
from allocator.report.page.markup import document, header, section
from allocator.report.svg import Axis, Frame, axes, element, picture, step_path

TITLE = "Nodes that sleep"
_FRAME = Frame(width=960, height=320)
_DAY = 86400.0
_STYLE = ".key b { color: var(--own) } .key { display: flex; gap: 1.5em }"
_LINES = ("awake", "in use")


def render_sleep_page(kept: NodeSleep, figures: Mapping[str, Any], *, source: str, begin: float = 0.0) -> str:
    """The text of the page.

    Parameters
    ----------
    kept : nodes in use and awake.
    figures : of `NodeSleep.summary`, with nodes, jobs_that_waited, jobs_started and energy_saved_kwh (None: not known).
    source : what the jobs are of.
    begin : when the first bin begins, seconds.
    """
    how = (
        "Nodes in use, and those awake: the area between the second and all nodes (dashed) is what slept. Where use "
        "rises to the nodes awake, more are woken, and jobs wait until these are up."
    )
    key = "".join(f'<span class="c{at}"><b>{name}</b></span>' for at, name in enumerate(_LINES))
    chart = f'<p class="key">{key}</p>{_chart(kept, begin)}'
    body = f"{_heading(figures, source)}\n<main>\n{section('nodes', 'Nodes over time', how, chart)}\n</main>"
    return document(TITLE, body, style_rules(["max_min_fairness_perf", "finish_time_fairness_perf"]) + _STYLE)


def _heading(figures: Mapping[str, Any], source: str) -> str:
    asleep, wakes = figures["nodes_asleep"], figures["daily_wakes"]
    facts = [
        ("nodes", f"{figures['nodes']:,}, {figures['days']:.1f} days of {source}"),
        ("asleep", "-" if asleep is None else f"{asleep:.1f} on average, {figures['node_hours_asleep']:,.0f} node h"),
        ("wake-ups a day", "-" if wakes is None else f"{wakes:.1f}"),
        ("jobs that had to wait", f"{figures['jobs_that_waited']:,} of {figures['jobs_started']:,}"),
    ]
    if figures["energy_saved_kwh"] is not None:
        facts.append(("energy saved", f"{figures['energy_saved_kwh']:,.0f} kWh"))
    return header(TITLE, "How many nodes might have slept, by a forecast of their use, while the jobs ran.", facts)


def _chart(kept: NodeSleep, begin: float) -> str:
    n = len(kept.awake)
    days = (begin + np.arange(n + 1, dtype=np.float64) * kept.bin_seconds) / _DAY
    x = Axis(float(days[0]), float(days[-1]), *_FRAME.x)
    y = Axis(0.0, 1.05 * max(kept.total, 1), *_FRAME.y)
    across = x.pixels(days)
    said = f"{kept.total} nodes; on average {kept.used.mean():.1f} in use and {kept.awake.mean():.1f} awake"
    parts = [axes(_FRAME, x, y, "days", "nodes")]
    left, right = _FRAME.x
    at = float(y.pixels(np.array([float(kept.total)]))[0])
    parts.append(element("path", d=f"M{left} {at:.1f}H{right}", class_="reference"))
    for place, values in enumerate((kept.awake, kept.used)):
        levels = y.pixels(np.append(values, values[-1:]).astype(np.float64))
        parts.append(element("g", element("path", d=step_path(across, levels), class_="curve"), class_=f"c{place}"))
    title, size = "Nodes in use and awake", (_FRAME.width, _FRAME.height)
    return picture("nodes", *size, title, said, "".join(parts), class_="chart panel")
