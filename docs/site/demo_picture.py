"""The picture of the README, from what `make demo` has written: throughputs, shares and prices, rounds, JCTs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

import allocator
from allocator.report.svg import Axis, element

_POLICY = "max_min_fairness_perf"
_HOUR = 12.0
"""When the picture is taken: in the first busy hours of the run."""

_SHOWN_JOBS, _SHOWN_GPUS, _SHOWN_HOURS = 9, 4, 3.0
_WIDTH, _HEIGHT = 860, 470
_INK, _QUIET, _RULE, _GROUND = "#24292f", "#6a737d", "#e3e6ea", "#ffffff"
_TYPES = {"v100": "#0072B2", "p100": "#009E73", "k80": "#D55E00"}
_KNOWS_THROUGHPUTS = "_perf"
"""How the names of the policies end that know throughputs."""

_AWARE, _BLIND = "#0072B2", "#c3c9d0"
_ROW = 18


def picture(demo: Path) -> str:
    """The picture as SVG.

    Parameters
    ----------
    demo : folder that `allocator compare` has written, with all jobs on the default cluster.
    """
    summaries = json.loads((demo / "comparison.json").read_text())
    cluster = allocator.Cluster.parse(summaries[0]["cluster"])
    jobs = pd.read_csv(demo / _POLICY / "jobs.csv", index_col="job_id")
    seconds = 3600 * _HOUR
    present = jobs[(jobs["arrival_time"] < seconds) & (jobs["completion_time"] > seconds)]
    speeds = allocator.ThroughputMatrix(
        allocator.default_table().rates(list(present["job_type"]), list(present["scale_factor"]), cluster.accelerators),
        list(present.index),
        cluster.accelerators,
        present["scale_factor"].to_numpy(),
    )
    decision = allocator.solve(_POLICY, speeds, cluster)
    rounds = pd.read_parquet(demo / _POLICY / "rounds.parquet")
    inside = [
        _title(24, 28, "Throughputs", "steps/s beside the fastest type"),
        _cells(24, speeds.rates / speeds.rates.max(axis=1, keepdims=True), present, cluster.accelerators),
        _arrow(246),
        _title(278, 28, "A policy decides", "shares of time, proven optimal"),
        _cells(278, decision.shares, present, cluster.accelerators, names=False),
        _prices(278, decision),
        _arrow(438),
        _title(470, 28, "Rounds", f"who runs where, {_SHOWN_GPUS} GPUs of each type"),
        _timeline(470, rounds, cluster),
        _title(24, 302, f"The same {len(jobs)} jobs under nine policies", "average hours from arrival to completion"),
        _bars(24, 340, summaries),
    ]
    ground = element("rect", x=0.5, y=0.5, width=_WIDTH - 1, height=_HEIGHT - 1, rx=8, fill=_GROUND, stroke=_RULE)
    font = "font-family:-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:11px"
    title = element("title", "From throughputs to shares, rounds and completion times: the run of make demo")
    return (
        element(
            "svg",
            "\n".join([title, ground, *inside, ""]),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            width=_WIDTH,
            height=_HEIGHT,
            role="img",
            style=font,
        )
        + "\n"
    )


def _text(x: float, y: float, text: str, *, fill: str = _INK, anchor: str = "start", weight: int = 400) -> str:
    return element("text", text, x=round(x, 1), y=round(y, 1), fill=fill, text_anchor=anchor, font_weight=weight)


def _box(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    sides = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return element("rect", fill=fill, fill_opacity=f"{opacity:.2f}", **sides)


def _title(x: float, y: float, title: str, subtitle: str) -> str:
    return _text(x, y, title, weight=600) + _text(x, y + 15, subtitle, fill=_QUIET)


def _arrow(x: float) -> str:
    return element("path", d=f"M{x} 150h14m-5 -5l5 5l-5 5", fill="none", stroke=_QUIET, stroke_width=1.5)


def _cells(x: float, values: np.ndarray, jobs: pd.DataFrame, types: tuple[str, ...], names: bool = True) -> str:
    """A row for each of the first jobs, a column for each type; the length of a bar is the value."""
    left, wide, top = x + (92 if names else 0), 42, 66
    parts = [_text(left + wide * j, top - 4, name, fill=_QUIET) for j, name in enumerate(types)]
    for row, about in enumerate(jobs.head(_SHOWN_JOBS).to_dict("records")):
        y = top + _ROW * row
        if names:
            model = about["job_type"].partition(" (")[0]
            gang = f" ×{about['scale_factor']}" if about["scale_factor"] > 1 else ""
            parts.append(_text(x, y + 12, f"{_short(model)}{gang}"))
        for j, name in enumerate(types):
            parts.append(_box(left + wide * j, y + 2, wide - 6, _ROW - 5, _RULE))
            parts.append(_box(left + wide * j, y + 2, (wide - 6) * float(values[row, j]), _ROW - 5, _TYPES[name]))
    more = len(jobs) - _SHOWN_JOBS
    if names and more > 0:
        parts.append(_text(x, top + _ROW * _SHOWN_JOBS + 12, f"and {more} more jobs", fill=_QUIET))
    return "".join(parts)


def _short(model: str) -> str:
    return model if len(model) <= 12 else f"{model[:11]}."


def _prices(x: float, decision: allocator.Allocation) -> str:
    """What one more GPU of each type is worth, beside the dearest."""
    y, wide = 66 + _ROW * _SHOWN_JOBS + 12, 42
    prices = decision.price_series()
    parts = [_text(x + wide * j, y, f"{price / prices.max():.2f}", weight=600) for j, price in enumerate(prices)]
    return "".join([*parts, _text(x, y + 15, "price of a GPU", fill=_QUIET)])


def _timeline(x: float, rounds: pd.DataFrame, cluster: allocator.Cluster) -> str:
    """Some hours of some GPUs; every job has a shade of its own."""
    top, right = 66, _WIDTH - 24
    across = Axis(_HOUR, _HOUR + _SHOWN_HOURS, x + 36, right)
    parts = []
    inside = rounds[(rounds["start_time"] < 3600 * (_HOUR + _SHOWN_HOURS)) & (rounds["end_time"] > 3600 * _HOUR)]
    row_of = {}
    for j, (name, first) in enumerate(zip(cluster.accelerators, cluster.first_gpu.tolist(), strict=True)):
        row_of |= {first + i: (_SHOWN_GPUS + 0.4) * j + i for i in range(_SHOWN_GPUS)}
        parts.append(_text(x, top + 13 * (_SHOWN_GPUS + 0.4) * j + 11, name, fill=_QUIET))
    for job, kind, gpu, start, end in _stretches(inside):
        if gpu in row_of:
            left, until = across.pixels(np.clip([start / 3600, end / 3600], _HOUR, _HOUR + _SHOWN_HOURS))
            shade = (0.95, 0.5, 0.75, 0.35, 0.62)[job % 5]
            parts.append(_box(left, top + 13 * row_of[gpu], until - left - 0.4, 12, _TYPES[kind], shade))
    bottom = top + 13 * (3 * _SHOWN_GPUS + 0.8)
    hours = np.arange(_HOUR, _HOUR + _SHOWN_HOURS + 0.5)
    marks = zip(hours, across.pixels(hours), strict=True)
    parts += [_text(float(at), bottom + 14, f"{hour:g} h", fill=_QUIET, anchor="middle") for hour, at in marks]
    return "".join(parts)


def _stretches(rounds: pd.DataFrame) -> list[tuple[int, str, int, float, float]]:
    """(job, type, GPU, start, end) in seconds; rounds of a job that follow each other on a GPU are one stretch."""
    found: list[tuple[int, str, int, float, float]] = []
    latest: dict[int, int] = {}
    columns = (rounds["job_id"], rounds["accelerator"], rounds["gpus"], rounds["start_time"], rounds["end_time"])
    for job, kind, gpus, start, end in zip(*columns, strict=True):
        for gpu in gpus:
            before = found[latest[gpu]] if gpu in latest else None
            if before is not None and before[0] == job and before[4] >= start:
                found[latest[gpu]] = (*before[:4], end)
            else:
                latest[gpu] = len(found)
                found.append((job, kind, gpu, start, end))
    return found


def _bars(x: float, y: float, summaries: list[dict[str, float | str]]) -> str:
    """Average completion times; policies that know throughputs in colour, those that do not in grey."""
    left, row = x + 176, 13.2
    longest = max(float(run["average_jct"]) for run in summaries)
    across = Axis(0.0, longest, left, _WIDTH - 70)
    parts = []
    for place, run in enumerate(sorted(summaries, key=lambda run: float(run["average_jct"]))):
        name, hours = str(run["policy"]), float(run["average_jct"]) / 3600
        aware = name.endswith(_KNOWS_THROUGHPUTS)
        end, top = float(across.pixels(np.array(3600 * hours))), y + row * place
        parts.append(_text(left - 8, top + 9, name, anchor="end"))
        parts.append(_box(left, top, end - left, row - 3, _AWARE if aware else _BLIND))
        parts.append(_text(end + 6, top + 9, f"{hours:.1f} h", fill=_QUIET))
    key = _WIDTH - 24
    parts.append(_text(key, 302, "knows throughputs", fill=_AWARE, anchor="end", weight=600))
    parts.append(_text(key, 317, "blind to types", fill=_QUIET, anchor="end"))
    return "".join(parts)
