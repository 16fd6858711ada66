"""Pictures of small runs as SVG within the page, so that they follow its light or dark colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from allocator import SimulationResult
from allocator.report.colours import LIGHT, policy_colour
from allocator.report.svg import Axis, element

_WIDTH, _LEFT, _RIGHT = 720, 64, 12
_ROW = 15
_TINTS = (0.75, 0.45, 0.62, 0.32, 0.53)
_HOURS = 8.0
_BLACK, _GREY = LIGHT[4], LIGHT[8]
_LEAST_LABEL = 14.0
"""Pixels that a stretch must last to have the number of its job written on it."""


def colour_of(name: str) -> str:
    """The colour of a policy in all pictures; grey instead of black, which is not seen on a dark page."""
    colour = policy_colour(name)
    return _GREY if colour == _BLACK else colour


def who_runs_where(result: SimulationResult, colour: str) -> str:
    """The first hours of a run: a row for each GPU, a box for each stretch of a job, with its number where it fits."""
    bottom = 8 + _ROW * result.cluster.total_gpus
    across = Axis(0.0, _HOURS, _LEFT, _WIDTH - _RIGHT)
    parts = []
    for kind, first in zip(result.cluster.accelerators, result.cluster.first_gpu.tolist(), strict=True):
        top = 8 + _ROW * first
        parts.append(element("text", kind, x=_LEFT - 8, y=top + 11, text_anchor="end", class_="tick"))
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=top - 0.5, y2=top - 0.5, class_="rule"))
    for job, row, start, end in _stretches(result):
        left, right = across.pixels(np.array([start, min(end, _HOURS)]))
        top = 8 + _ROW * row
        shown = f"job {job}: {start:.2f} h to {end:.2f} h"
        wide = f"{max(right - left - 0.6, 0.6):.1f}"
        look = {"fill": colour, "fill_opacity": _TINTS[job % len(_TINTS)], "height": _ROW - 2}
        parts.append(element("rect", element("title", shown), x=f"{left:.1f}", y=top, width=wide, **look))
        if right - left >= _LEAST_LABEL:
            parts.append(
                element(
                    "text", str(job), x=f"{(left + right) / 2:.1f}", y=top + 10, text_anchor="middle", class_="on-box"
                )
            )
    parts += _ticks(across, bottom, "hours")
    return _figure("".join(parts), bottom + 34, f"Who runs where in the first {_HOURS:.0f} hours, a row for each GPU")


def completions(curves: Mapping[str, Sequence[float]], name: str, colour: str) -> str:
    """Share of jobs completed within so many hours of their arrival: one policy in colour, the others behind it.

    Parameters
    ----------
    curves : completion times in hours, by policy.
    name : of the policy in colour.
    colour : that of the policy.
    """
    height, top = 200, 12
    every = [time for times in curves.values() for time in times]
    across = Axis(min(every) / 1.05, max(every) * 1.05, _LEFT, _WIDTH - _RIGHT, log=True)
    up = Axis(0.0, 1.0, height, top)
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = float(up.pixels(np.array([share]))[0])
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="rule"))
        parts.append(element("text", f"{share:.0%}", x=_LEFT - 8, y=y + 4, text_anchor="end", class_="tick"))
    for other in sorted(curves, key=lambda other: other == name):
        times = np.sort(np.asarray(curves[other]))
        shares = np.arange(1, len(times) + 1) / len(times)
        points = [f"M{_LEFT} {height}"]
        for x, y in zip(across.pixels(times), up.pixels(shares), strict=True):
            points.append(f"H{x:.1f}V{y:.1f}")
        own = {"stroke": colour, "stroke_width": 2.4} if other == name else {"class_": "other"}
        parts.append(element("path", element("title", other), d="".join(points), fill="none", **own))
    parts += _ticks(across, height, "hours from arrival to completion")
    return _figure("".join(parts), height + 34, f"Share of jobs completed: {name} in colour, the other policies grey")


def _stretches(result: SimulationResult) -> list[tuple[int, int, float, float]]:
    """(job, GPU, start, end) in hours; rounds of a job that follow each other on one GPU are one stretch."""
    rows: dict[tuple[int, int], list[list[float]]] = {}
    table = result.rounds
    columns = (table["job_id"], table["gpus"], table["start_time"], table["end_time"])
    for job, gpus, start, end in zip(*columns, strict=True):
        if start >= 3600 * _HOURS:
            continue
        for gpu in gpus:
            known = rows.setdefault((int(job), gpu), [])
            if known and abs(known[-1][1] - start) < 1e-6:
                known[-1][1] = end
            else:
                known.append([start, end])
    return [
        (job, gpu, start / 3600, end / 3600)
        for (job, gpu), stretches in sorted(rows.items())
        for start, end in stretches
    ]


def _ticks(across: Axis, y: float, title: str) -> list[str]:
    marks = []
    for value in across.ticks():
        x = f"{float(across.pixels(np.array([value]))[0]):.1f}"
        marks.append(element("text", f"{value:g}", x=x, y=y + 16, text_anchor="middle", class_="tick"))
    return [*marks, element("text", title, x=_WIDTH - _RIGHT, y=y + 30, text_anchor="end", class_="tick")]


def _figure(inside: str, height: float, label: str) -> str:
    drawn = element("svg", inside, viewBox=f"0 0 {_WIDTH} {height:.0f}", role="img", aria_label=label)
    return f'<figure class="run">{drawn}</figure>'
