"""The charts drawn once, as SVG: cumulative distributions, and courses over time. One curve per policy.

Curves carry ``data-policy`` so that the legend can hide them. Axes say in ``data-`` attributes how
pixels map to values, so that the script can say what is under the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.report.figures import Row, Rows
from allocator.report.svg import Axis, Frame, axes, element, picture, step_path
from throughputs.arrays import Floats, Numbers

HOUR = 3600.0


def policy_class(position: int) -> str:
    """CSS class of a policy: `colours.style_rules` gives it a colour, and dashes to tell curves apart without it."""
    return f"c{position}"


def ecdf(values: Numbers, n: int) -> tuple[Floats, Floats]:
    """Ascending distinct values, and the fraction of all `n` jobs at or below each.

    Jobs without a value (not completed) count in `n`: the curve of a run that was cut short ends below 1.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    distinct, counts = np.unique(ordered[np.isfinite(ordered)], return_counts=True)
    return distinct, np.cumsum(counts) / max(n, 1)


def cdf_chart(
    name: str,
    series: Sequence[Floats],
    n_jobs: Sequence[int],
    *,
    title: str,
    x_label: str,
    reference: float | None = None,
) -> str:
    """Cumulative distributions of all policies on a linear and on a logarithmic axis, one of them shown.

    Parameters
    ----------
    name : key of the series in the embedded data ("jct" or "rho"), also the id of the chart.
    series : one array per policy in the units of the axis; nan for jobs that did not complete.
    n_jobs : jobs of each policy's trace.
    reference : value to mark with a vertical line.
    """
    finite = [values[np.isfinite(values)] for values in series]
    pooled = np.concatenate([*finite, np.empty(0)])
    if not len(pooled):
        return '<p class="empty">No job completed, so there is no distribution to show.</p>'
    frame, y = Frame(), Axis(0.0, 1.0, *Frame().y)
    positive = pooled[pooled > 0]
    scales = [Axis(0.0, _above(pooled.max()), *frame.x)]
    if len(positive):
        scales.append(Axis(float(positive.min()) * 0.9, float(positive.max()) * 1.1, *frame.x, log=True))
    views = ""
    for x in scales:
        parts = [axes(frame, x, y, x_label, "fraction of all jobs", y_percent=True)]
        if reference is not None and x.low <= reference <= x.high:
            mark = float(x.pixels(np.array([reference]))[0])
            parts.append(element("path", d=f"M{mark:.1f} {frame.y[0]}V{frame.y[1]}", class_="reference"))
        for position, (values, n) in enumerate(zip(finite, n_jobs, strict=True)):
            at, height = ecdf(values[values > 0] if x.log else values, n)
            pixels = np.concatenate([[frame.x[0]], x.pixels(at), [frame.x[1]]])
            fractions = np.concatenate([[0.0], height, height[-1:] if len(height) else [0.0]])
            parts.append(_curve(position, step_path(pixels, y.pixels(fractions))))
        views += _view(x, y, "".join(parts), shown=x is scales[-1])
    described = "; ".join(
        f"policy {position + 1}: {len(values)} of {n} jobs"
        + (f", median {np.median(values):.3g}" if len(values) else "")
        for position, (values, n) in enumerate(zip(finite, n_jobs, strict=True))
    )
    return _svg(name, frame, title, described, views)


@dataclass(frozen=True)
class Course:
    """What is measured of the cluster over time, and drawn as steps.

    Attributes
    ----------
    name : key of its series in the embedded data; also the id of its section and its chart.
    heading, title, how : of the section and of the chart, and how to read it.
    label : of the vertical axis.
    top : least and largest upper end of that axis.
    percent : whether values are parts of a whole.
    ends : what is said of the time after the last value above 0, at which the chart ends; empty: it goes on.
    always : whether there is a section where no run has any value.
    """

    name: str
    heading: str
    title: str
    how: str
    label: str
    top: tuple[float, float] = (0.01, np.inf)
    percent: bool = True
    ends: str = ""
    always: bool = False


COURSES = (
    Course(
        "queue",
        "Queue",
        "Jobs in the queue over time",
        "Jobs that had arrived, were not finished and did not run in the round, averaged over short stretches where it "
        "changes often. A short queue is better.",
        "jobs in the queue",
        top=(1.0, np.inf),
        percent=False,
        ends="no job waited after",
        always=True,
    ),
    Course(
        "utilization",
        "Utilisation",
        "Busy GPUs over time",
        "GPUs that jobs had, of all GPUs of the cluster. Once the last job has arrived the cluster runs dry, and how "
        "long that takes is a matter of the longest jobs: the table has the utilisation up to the last arrival, too.",
        "busy GPUs of all GPUs",
        top=(1.0, 1.0),
        always=True,
    ),
    Course(
        "fragmentation",
        "Fragmentation",
        "Fragmented free GPUs over time",
        "Free GPUs on servers that are partly used, of all GPUs of the cluster: a gang that needs whole servers cannot "
        "have them. Less is better, for as long as jobs wait.",
        "fragmented GPUs of all GPUs",
    ),
    Course(
        "efficiency",
        "Cluster efficiency",
        "Cluster efficiency over time",
        "What the running jobs make of the cluster: the sum of their speedups over one GPU, over all GPUs. A job that "
        "is given GPUs on which it hardly goes faster adds little. More is better.",
        "cluster efficiency",
    ),
)
"""In the order of the page."""


def course_chart(course: Course, series: Rows, of_run: Sequence[int], origin: float | None) -> str:
    """Steps over time of all runs that have any, in the looks of their policies.

    Parameters
    ----------
    series : of each run, as the payload has them, times in seconds.
    of_run : position of the policy of each run.
    origin : time 0 in seconds since 1970; None: times are no dates.
    """
    drawn = [(position, each) for position, each in zip(of_run, series, strict=True) if each["value"]]
    if not drawn:
        return '<p class="empty">No round was simulated.</p>'
    last = max(_last(each) if course.ends else each["time"][-1] for _, each in drawn) / HOUR
    most = max(max(each["value"]) for _, each in drawn)
    shown = f"{100 * most:.1f} %" if course.percent else f"{most:g}"
    end = (
        f"{last:.1f} h"
        if origin is None
        else str(np.datetime64(round(origin + last * HOUR), "s"))[:16].replace("T", " ")
    )
    until = f"; {course.ends} {end}"
    frame = Frame(height=280)
    x, y = Axis(0.0, _above(last), *frame.x), Axis(0.0, float(np.clip(most * 1.05, *course.top)), *frame.y)
    label = f"{'time (hours)' if origin is None else 'date (UTC)'}{until if course.ends else ''}"
    ticks = None if origin is None else date_ticks(origin, last)
    parts = [axes(frame, x, y, label, course.label, y_percent=course.percent, x_ticks=ticks)]
    for position, each in drawn:
        times = x.pixels(np.minimum(np.array(each["time"]) / HOUR, x.high))
        values = y.pixels(np.array([*each["value"], each["value"][-1]], dtype=float))
        parts.append(_curve(position, step_path(times, values)))
    view = _view(x, y, "".join(parts), shown=True)
    return _svg(course.name, frame, course.title, f"{len(drawn)} runs; at most {shown}", view, over_time=True)


_DATE_STEPS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)
"""Hours from one date on an axis to the next."""

_MOST_DATES = 10


def date_ticks(origin: float, last: float) -> list[tuple[float, str]]:
    """Hours after `origin` (seconds since 1970), up to the `last`, with the date of each, at most about ten of them."""
    step = next((each for each in _DATE_STEPS if last / each <= _MOST_DATES), math.ceil(last / _MOST_DATES))
    first = math.ceil(origin / HOUR / step)
    ticks = [(k * step - origin / HOUR, k * step) for k in range(first, math.floor(origin / HOUR + last) // step + 1)]
    shown = [str(np.datetime64(hour, "h")) for _, hour in ticks]
    return [
        (at, text[5:10] if step >= 24 else f"{text[5:10]} {text[11:13]}:00")
        for (at, _), text in zip(ticks, shown, strict=True)
    ]


def _last(course: Row) -> float:
    """Seconds until which there was something; the whole run where there never was."""
    ends = [end for end, value in zip(course["time"][1:], course["value"], strict=True) if value > 0]
    return float(max(ends, default=course["time"][-1]))


def _above(value: float) -> float:
    return float(value) * 1.02 if value > 0 else 1.0


def _curve(position: int, path: str) -> str:
    return element("path", d=path, class_=f"curve {policy_class(position)}", data_policy=position)


def _view(x: Axis, y: Axis, content: str, *, shown: bool) -> str:
    return element(
        "g",
        content,
        class_="view",
        data_scale="log" if x.log else "linear",
        data_low=x.low,
        data_high=x.high,
        data_ylow=y.low,
        data_yhigh=y.high,
        style=None if shown else "display:none",
    )


def _svg(name: str, frame: Frame, title: str, described: str, content: str, *, over_time: bool = False) -> str:
    (left, right), (bottom, top) = frame.x, frame.y
    content += element("path", d=f"M0 {bottom}V{top}", class_="cursor", style="display:none")
    if over_time:  # the stretch that the timelines show
        content += element("rect", y=top, height=bottom - top, x=left, width=0, class_="stretch")
    data = {"data_left": left, "data_right": right, "data_over": "time" if over_time else None}
    looks = {"id": f"chart-{name}", "class_": "chart", **data}
    svg = picture(name, frame.width, frame.height, title, described, content, **looks)
    return element("div", svg, class_="scroll")
