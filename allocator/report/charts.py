"""The charts drawn once, as SVG: cumulative distributions, the queue, cluster efficiency. One curve per policy.

Curves carry ``data-policy`` so that the legend can hide them. Axes say in ``data-`` attributes how
pixels map to values, so that the script can say what is under the pointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.report.svg import Axis, Frame, axes, element, step_path
from throughputs.shown import escape

HOUR = 3600.0


def policy_class(position: int) -> str:
    """CSS class of a policy: `colours.style_rules` gives it a colour, and dashes to tell curves apart without it."""
    return f"c{position}"


def ecdf(values: Sequence[float] | NDArray[np.float64], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ascending distinct values, and the fraction of all `n` jobs at or below each.

    Jobs without a value (not completed) count in `n`: the curve of a run that was cut short ends below 1.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    distinct, counts = np.unique(ordered[np.isfinite(ordered)], return_counts=True)
    return distinct, np.cumsum(counts) / max(n, 1)


def cdf_chart(
    name: str,
    series: Sequence[NDArray[np.float64]],
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
    frame = Frame()
    positive = pooled[pooled > 0]
    scales = [Axis(0.0, _above(pooled.max()), *frame.x)]
    if len(positive):
        scales.append(Axis(float(positive.min()) * 0.9, float(positive.max()) * 1.1, *frame.x, log=True))
    views = [
        _view(
            x,
            Axis(0.0, 1.0, *frame.y),
            _cdf_view(frame, x, finite, n_jobs, x_label, reference),
            shown=x is scales[-1],
        )
        for x in scales
    ]
    described = "; ".join(
        f"policy {position + 1}: {len(values)} of {n} jobs"
        + (f", median {np.median(values):.3g}" if len(values) else "")
        for position, (values, n) in enumerate(zip(finite, n_jobs, strict=True))
    )
    return _svg(name, frame, title, described, "".join(views))


def _cdf_view(
    frame: Frame,
    x: Axis,
    series: Sequence[NDArray[np.float64]],
    n_jobs: Sequence[int],
    x_label: str,
    reference: float | None,
) -> str:
    y = Axis(0.0, 1.0, *frame.y)
    parts = [axes(frame, x, y, x_label, "fraction of all jobs", y_percent=True)]
    if reference is not None and x.low <= reference <= x.high:
        mark = float(x.pixels(np.array([reference]))[0])
        parts.append(element("path", d=f"M{mark:.1f} {frame.y[0]}V{frame.y[1]}", class_="reference"))
    for position, (values, n) in enumerate(zip(series, n_jobs, strict=True)):
        at, height = ecdf(values[values > 0] if x.log else values, n)
        pixels = np.concatenate([[frame.x[0]], x.pixels(at), [frame.x[1]]])
        fractions = np.concatenate([[0.0], height, height[-1:] if len(height) else [0.0]])
        parts.append(_curve(position, step_path(pixels, y.pixels(fractions))))
    return "".join(parts)


def queue_chart(queues: Sequence[Mapping[str, Any]], of_run: Sequence[int], *, title: str) -> str:
    """Queued jobs over time as steps; `queues` as `payload.queue_series` gives them, times in seconds."""
    drawn = [queue for queue in queues if queue["value"]]
    if not drawn:
        return '<p class="empty">No round was simulated, so there is no queue to show.</p>'
    last = max(_last_wait(queue) for queue in drawn) / HOUR
    most = max(max(queue["value"]) for queue in drawn)
    labels = f"time (hours); no job waited after {last:.1f} h", "jobs in the queue"
    described = f"{len(drawn)} runs; longest queue {most:g} jobs, none after {last:.1f} hours"
    return _steps_chart("queue", queues, of_run, (last, max(most * 1.05, 1.0)), labels, title, described)


def efficiency_chart(series: Sequence[Mapping[str, Any]], of_run: Sequence[int], *, title: str) -> str:
    """Cluster efficiency over time as steps; `series` as `payload.efficiency_series` gives them, times in seconds."""
    drawn = [each for each in series if each["value"]]
    last = max(each["time"][-1] for each in drawn) / HOUR
    most = max(max(each["value"]) for each in drawn)
    described = f"{len(drawn)} runs; at most {100 * most:.1f} %"
    labels = "time (hours)", "cluster efficiency"
    return _steps_chart("efficiency", series, of_run, (last, most * 1.05), labels, title, described, y_percent=True)


def utilization_chart(series: Sequence[Mapping[str, Any]], of_run: Sequence[int], *, title: str) -> str:
    """Busy part of the cluster over time; `series` as `payload.utilization_series` gives them, times in seconds."""
    drawn = [each for each in series if each["value"]]
    if not drawn:
        return '<p class="empty">No round was simulated.</p>'
    last = max(each["time"][-1] for each in drawn) / HOUR
    described = f"{len(drawn)} runs; at most {100 * max(max(each['value']) for each in drawn):.1f} %"
    labels = "time (hours)", "busy GPUs of all GPUs"
    return _steps_chart("utilization", series, of_run, (last, 1.0), labels, title, described, y_percent=True)


def fragmentation_chart(series: Sequence[Mapping[str, Any]], of_run: Sequence[int], *, title: str) -> str:
    """Fragmented free GPUs over time; `series` as `payload.fragmentation_series` gives them, times in seconds."""
    drawn = [each for each in series if each["value"]]
    last = max(each["time"][-1] for each in drawn) / HOUR
    most = max(max(each["value"]) for each in drawn)
    described = f"{len(drawn)} runs; at most {100 * most:.1f} %"
    labels = "time (hours)", "fragmented GPUs of all GPUs"
    highest = max(most * 1.05, 0.01)
    return _steps_chart("fragmentation", series, of_run, (last, highest), labels, title, described, y_percent=True)


def _steps_chart(
    name: str,
    series: Sequence[Mapping[str, Any]],
    of_run: Sequence[int],
    ends: tuple[float, float],
    labels: tuple[str, str],
    title: str,
    described: str,
    *,
    y_percent: bool = False,
) -> str:
    """Steps over time of all runs that have any, in the looks of their policies; `ends` of the axes (hours, value)."""
    frame = Frame(height=280)
    x, y = Axis(0.0, _above(ends[0]), *frame.x), Axis(0.0, ends[1], *frame.y)
    parts = [axes(frame, x, y, *labels, y_percent=y_percent)]
    for position, each in zip(of_run, series, strict=True):
        if not each["value"]:
            continue
        times = x.pixels(np.minimum(np.array(each["time"]) / HOUR, x.high))
        values = y.pixels(np.array([*each["value"], each["value"][-1]], dtype=np.float64))
        parts.append(_curve(position, step_path(times, values)))
    return _svg(name, frame, title, described, _view(x, y, "".join(parts), shown=True), over_time=True)


def _last_wait(queue: Mapping[str, Any]) -> float:
    """Seconds until which jobs waited; the whole run when none did."""
    ends = [end for end, value in zip(queue["time"][1:], queue["value"], strict=True) if value > 0]
    return float(max(ends, default=queue["time"][-1]))


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
    head = element("title", escape(title), id=f"{name}-title") + element("desc", escape(described), id=f"{name}-desc")
    left, right = frame.x
    bottom, top = frame.y
    cursor = element("path", d=f"M0 {bottom}V{top}", class_="cursor", style="display:none")
    if over_time:  # the stretch that the timelines show
        cursor += element("rect", y=top, height=bottom - top, x=left, width=0, class_="stretch")
    svg = element(
        "svg",
        head + content + cursor,
        id=f"chart-{name}",
        class_="chart",
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        data_left=left,
        data_right=right,
        data_over="time" if over_time else None,
    )
    return element("div", svg, class_="scroll")
