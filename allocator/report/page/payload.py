"""The data embedded in a report: what the page's script needs, and no more.

Times are whole seconds, shares whole thousandths; jobs are positions in the trace, written once for all
runs of the same trace.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.bars import Bars, merge_rounds
from allocator.report.page.job_columns import outcome_columns, trace_columns
from throughputs.arrays import Floats, Ints
from throughputs.files import JsonObject
from throughputs.numerics import interval_means
from throughputs.shown import UNSHOWN, visible

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.allocation import Allocation
    from allocator.results.result import SimulationResult


# Sizes that keep a page of ten policies below about 5 MB; a bar takes about 8 characters, a share about 3.
TOTAL_BARS = 360_000
BARS_PER_RUN = 120_000
TOTAL_SHARES = 240_000
DECISIONS_PER_RUN = 200
PACKED = 1_000_000
CDF_POINTS = 2000
COURSE_POINTS = 200
OCCUPANCY_BINS = 300

_OF_ONE_RUN = {
    "completion",
    "running",
    "rho",
    "preemptions",
    "status",
    "statuses",
    "met",
    "roundStart",
    "roundEnd",
    "bars",
    "busy",
    "decisions",
}
"""What is needed of a run only once it is chosen: all that is in the table of jobs, the timelines or the matrix."""


def build_payload(
    results: Sequence[SimulationResult], names: Sequence[str], policies: Sequence[str], of_run: Sequence[int], rho: str
) -> JsonObject:
    """Everything the script of the page draws from, ready for JSON.

    Parameters
    ----------
    results : R runs.
    names : of the runs.
    policies, of_run : (P,) names of the policies, and (R,) position of the policy of each run.
    rho : column of finish-time fairness.
    """
    traces: list[JsonObject] = []
    runs = []
    positions = [_positions(result, result.rounds["job_id"]) for result in results]
    bars = [merge_rounds(result.rounds, job) for result, job in zip(results, positions, strict=True)]
    most_bars = min(BARS_PER_RUN, fair_limit([len(each) for each in bars], TOTAL_BARS))
    for run, (result, job, own_bars) in enumerate(zip(results, positions, bars, strict=True)):
        trace = trace_columns(result.jobs)
        if trace not in traces:
            traces.append(trace)
        runs.append(
            {"name": names[run], "policy": of_run[run], "trace": traces.index(trace)}
            | _figures(result, rho)
            | outcome_columns(result.jobs, rho)
            | _busy_gpus(result, job)
            | _gpu_timeline(result, own_bars, most_bars)
            | _decisions(result, TOTAL_SHARES // len(results))
        )
    fairness = "slowdown" if rho == "bounded_slowdown" else "rho"
    origins = {_origin(result) for result in results}
    origin = origins.pop() if len(origins) == 1 else None
    return {"traces": traces, "policies": list(policies), "fairness": fairness, "origin": origin, "runs": runs}


def _origin(result: SimulationResult) -> float | None:
    """Second 0 of the clock in seconds since 1970 (UTC), where jobs have dates."""
    dates, arrival = result.record.jobs.arrival_date, result.record.jobs.arrival_time
    if not len(dates) or np.isnat(dates[0]):
        return None
    return round(float(dates[0].astype(np.int64)) / 1e6 - float(arrival[0]), 3)


def script_elements(payload: JsonObject) -> str:
    """The data as script elements: one with what every visitor sees, and one per run, read when it is looked at.

    Those of more than `PACKED` characters are gzip in base64.
    """
    parts = {"report-data": dict(payload)}
    parts["report-data"]["runs"] = [
        {name: value for name, value in run.items() if name not in _OF_ONE_RUN} for run in payload["runs"]
    ]
    for at, run in enumerate(payload["runs"]):
        parts[f"run-{at}"] = {name: value for name, value in run.items() if name in _OF_ONE_RUN}
    return "\n".join(_script(name, to_script_json(part)) for name, part in parts.items())


def _script(name: str, text: str) -> str:
    kind = "json"
    if len(text) > PACKED:
        kind, text = "gzip", base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/{kind}" id="{name}">{text}</script>'


def fair_limit(counts: Sequence[int], total: int) -> int:
    """Largest limit L with sum_k min(counts[k], L) <= total: what small ones do not need goes to the large."""
    left, ascending = total, sorted(counts)
    for position, count in enumerate(ascending):
        share = left // (len(ascending) - position)
        if count > share:
            return share
        left -= count
    return total


def to_script_json(payload: object) -> str:
    """Compact JSON that cannot end the script element it stands in."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # controls below blank, which do nothing in a page, are escapes of JSON by now
    escapes = {code: json.dumps(visible(chr(code)))[1:-1] for code in UNSHOWN if code > 0x1F}
    return text.translate(escapes | {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def _positions(result: SimulationResult, ids: Any) -> Ints:
    """Positions of jobs in the table of jobs; -1 where they are not in it."""
    import pandas as pd

    return np.asarray(pd.Index(result.jobs["job_id"]).get_indexer(ids), dtype=np.int64)


def _figures(result: SimulationResult, rho: str) -> JsonObject:
    cluster = result.cluster
    return {
        "accelerators": list(cluster.accelerators),
        "capacity": cluster.capacity.tolist(),
        "nodeSizes": [int(cluster.gpus_per_server[name]) for name in cluster.accelerators],
        "jobs": len(result.jobs),
        "jctValues": _distribution(result.jobs["jct"], None),
        "rhoValues": _distribution(result.jobs[rho], 4),
        **_courses(result),
    }


def _distribution(column: pd.Series[float], decimals: int | None) -> JsonObject:
    """At most `CDF_POINTS` of the values, evenly spaced in rank and with the largest kept; and how many there were."""
    values = column.to_numpy(float)
    ordered = np.sort(values[np.isfinite(values)])
    count = len(ordered)
    if count > CDF_POINTS:
        ordered = ordered[np.ceil(np.linspace(0, 1, CDF_POINTS + 1)[1:] * count).astype(np.int64) - 1]
    return {"count": count, "values": [round(value, decimals) for value in ordered.tolist()]}


def course(start: Floats, end: Floats, height: Floats, decimals: int) -> dict[str, list[float]]:
    """The sum of pulses over time as steps: value k holds from time k (whole seconds) to time k + 1.

    Exact while changes are few, otherwise time-weighted means over equal bins up to the last time at which there is
    something: the end of a run is often one long job and no queue.
    """
    if not len(start):
        return {"time": [], "value": []}

    def steps(edges: Floats) -> tuple[Floats, Floats]:
        values = np.round(interval_means(start, end, height, edges), decimals)
        changes = np.append(True, values[1:] != values[:-1])
        return np.append(edges[:-1][changes], edges[-1]), values[changes]

    edges = np.unique(np.rint(np.concatenate([start, end])))
    if len(edges) < 2:
        return {"time": [], "value": []}
    times, values = steps(edges)
    if len(values) > COURSE_POINTS:
        last = times[np.flatnonzero(values)[-1] + 1]
        bins = np.linspace(edges[0], last, COURSE_POINTS + 1)
        times, values = steps(np.append(bins, edges[edges > last][-1:]))
    return {"time": [round(t) for t in times.tolist()], "value": [_short(v, decimals) for v in values.tolist()]}


def _courses(result: SimulationResult) -> JsonObject:
    """What is measured of the cluster over time, by the names of `charts.COURSES`."""
    gpus, (free, efficiency) = result.cluster.total_gpus, (result.fragmentation, result.efficiency)
    start, end, queued, busy = _numbers(result.timeline, "start_time", "end_time", "queued_jobs", "busy_gpus")
    since, fragmented = _numbers(free, "time", "fragmented_gpus")
    # the row of a type holds until its next one
    last = np.append(np.diff(free["accelerator"].astype("category").cat.codes) != 0, True)[: len(since)]
    until = np.where(last, max(since.max(initial=0.0), end.max(initial=0.0)), np.append(since[1:], 0.0)[: len(since)])
    times, values = _numbers(efficiency, "time", "efficiency")
    return {
        "queue": course(start, end, queued, 2),
        "utilization": course(start, end, busy / max(gpus, 1), 3),
        "fragmentation": course(since, until, fragmented / max(gpus, 1), 4),
        "efficiency": course(times[:-1], times[1:], values[:-1], 4),
    }


def _numbers(table: pd.DataFrame, *names: str) -> list[Floats]:
    return [table[name].to_numpy(float) for name in names]


def _gpu_timeline(result: SimulationResult, bars: Bars, most_bars: int) -> JsonObject:
    """Bars of each GPU as [rounds since the last bar's first, rounds, job, ...], the first `most_bars` in time."""
    if not len(bars):
        return {"roundStart": [], "roundEnd": [], "bars": [], "barCount": 0, "until": None}
    until, shown = None, bars
    if len(bars) > most_bars:
        until = float(np.partition(bars.start, most_bars)[most_bars])
        shown = bars.take(bars.start < until)
    clock = result.rounds.groupby("round", sort=True).agg(start=("start_time", "min"), end=("end_time", "max"))
    starts, ends = _numbers(clock, "start", "end")
    first, last = (np.searchsorted(clock.index, number) for number in (shown.first_round, shown.last_round))
    if (starts[first] != shown.start).any():
        # Between events the rows of a round begin when their jobs do: count stretches in which no bar begins or ends.
        times = np.unique(np.concatenate([shown.start, shown.end]))
        starts, ends = times[:-1], times[1:]
        first, last = np.searchsorted(starts, shown.start), np.searchsorted(ends, shown.end)
    return {
        "roundStart": [round(t) for t in starts.tolist()],
        "roundEnd": [round(t) for t in ends.tolist()],
        "bars": _bar_rows(shown, first, last, result.cluster.total_gpus),
        "barCount": len(bars),
        "until": None if until is None else round(until),
    }


def _bar_rows(bars: Bars, first: Ints, last: Ints, n_gpus: int) -> list[list[int]]:
    same_gpu = np.concatenate([[False], np.diff(bars.gpu) == 0])
    since = np.where(same_gpu, np.diff(first, prepend=0), first)
    table = np.column_stack([since, last - first + 1, bars.job])
    bounds = np.searchsorted(bars.gpu, np.arange(n_gpus + 1))
    return [table[a:b].ravel().tolist() for a, b in pairwise(bounds.tolist())]


def _busy_gpus(result: SimulationResult, job: Ints) -> JsonObject:
    """Mean number of busy GPUs of each accelerator type in equal bins from 0 to the end of the last round."""
    rounds = result.rounds
    if not len(rounds):
        return {"busyUntil": 0, "busy": []}
    start, end = _numbers(rounds, "start_time", "end_time")
    count = rounds["gpu_count"] if "gpu_count" in rounds else result.jobs["scale_factor"].iloc[job]
    gpus, decimals = count.to_numpy(float), 1
    if "gpu_fraction" in result.jobs:
        gpus, decimals = gpus * result.jobs["gpu_fraction"].to_numpy(float)[job], 3
    edges = np.linspace(0.0, max(float(end.max()), 1.0), OCCUPANCY_BINS + 1)
    busy = []
    for name in result.cluster.accelerators:
        own = (rounds["accelerator"] == name).to_numpy()
        means = interval_means(start[own], end[own], gpus[own], edges)
        busy.append([_short(value, decimals) for value in means.tolist()])
    return {"busyUntil": round(float(edges[-1])), "busy": busy}


def _decisions(result: SimulationResult, share_limit: int) -> JsonObject:
    decisions = result.decisions
    shares = sum(allocation.shares.size for _, _, allocation in decisions)
    affordable = len(decisions) if shares <= share_limit else max(1, len(decisions) * share_limit // shares)
    count = min(len(decisions), DECISIONS_PER_RUN, affordable)
    kept = sorted({round(index) for index in np.linspace(0, len(decisions) - 1, count).tolist()}) if count else []
    return {
        "decisionCount": len(decisions),
        "decisions": [{"number": index + 1} | _decision(result, *decisions[index]) for index in kept],
    }


def _decision(result: SimulationResult, number: int, clock: float, allocation: Allocation) -> JsonObject:
    labels = allocation.throughputs.jobs
    # Labels that are not in the trace stay as text, so that no row is dropped silently.
    positions = zip(_positions(result, labels).tolist(), labels, strict=True)
    prices = None if allocation.prices is None else [_significant(price) for price in allocation.prices]
    return {
        "round": int(number),
        "clock": round(float(clock)),
        "status": allocation.status,
        "unit": allocation.objective_unit,
        "solver": allocation.solver,
        **{name: _significant(getattr(allocation, name)) for name in ("objective", "gap", "seconds")},
        "accelerators": list(allocation.throughputs.accelerators),
        "prices": prices,
        "rowPrices": {name: _significant(price) for name, price in allocation.row_prices.items()},
        "jobs": [str(label) if position < 0 else position for position, label in positions],
        "shares": np.rint(np.nan_to_num(allocation.shares) * 1000).astype(np.int64).ravel().tolist(),
        "unserved": [str(label) for label in allocation.unserved],
    }


def _short(value: float, decimals: int) -> float:
    """Rounded, and a whole number written without its point."""
    rounded = round(value, decimals)
    return int(rounded) if rounded == int(rounded) else rounded


def _significant(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
