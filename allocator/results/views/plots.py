"""Pictures of a run with matplotlib: completion times, who ran when, the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from throughputs import InputError
from throughputs.errors import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from allocator.results.result import SimulationResult

_HOUR = 3600.0

# Relative to the clock: sums of times that begin and end together may differ by so much.
_ROUNDING = 1e-9


def plot(result: SimulationResult, kinds: Sequence[str], axes: Axes | Sequence[Axes] | None) -> list[Axes]:
    """Draw the run; see `SimulationResult.plot`."""
    chosen = list(kinds or PLOTS)
    for kind in chosen:
        if kind not in PLOTS:
            raise InputError("plot", field="kind", found=kind, expected=one_of(kind, PLOTS))
    places = _new_axes(len(chosen)) if axes is None else list(np.atleast_1d(np.asarray(axes, dtype=object)))
    if len(places) != len(chosen):
        raise InputError("plot", field="axes", found=len(places), expected=f"{len(chosen)}, one for each picture")
    for kind, place in zip(chosen, places, strict=True):
        PLOTS[kind](result, place)
    return places


def _new_axes(count: int) -> list[Axes]:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        expected = "the extra: pip install 'cluster-allocator[plot]'"
        raise InputError("plot", field="matplotlib", found="no such package", expected=expected) from error
    _, places = pyplot.subplots(1, count, figsize=(5.0 * count, 3.6), squeeze=False, layout="constrained")
    return list(places[0])


def _completion_times(result: SimulationResult, axes: Axes) -> None:
    """The distribution of completion times: the share of all jobs that were through after so many hours."""
    jct = result.jobs["jct"].to_numpy(dtype=np.float64)
    done = np.sort(jct[~np.isnan(jct)]) / _HOUR
    share = np.arange(len(done) + 1) / max(len(jct), 1)
    axes.step(np.concatenate([[0.0], done]), share, where="post", label=result.label)
    axes.set(xlabel="completion time (h)", ylabel="share of the jobs", title="Completion times")
    _from_zero(axes)
    axes.legend(loc="lower right")


def _timeline(result: SimulationResult, axes: Axes) -> None:
    """Who ran when, on which type: a line for each job, in the order of arrival from the top."""
    from matplotlib.collections import LineCollection

    types = result.cluster.accelerators
    rows = result.rounds.sort_values(["job_id", "start_time"], kind="stable")
    job, start, end = (rows[name].to_numpy(dtype=np.float64) for name in ("job_id", "start_time", "end_time"))
    kind = rows["accelerator"].cat.codes.to_numpy()
    # Rounds without a break between them are one line.
    begins = np.ones(len(job), dtype=np.bool_)
    begins[1:] = (job[1:] != job[:-1]) | (kind[1:] != kind[:-1]) | (start[1:] > end[:-1] + _ROUNDING * end[:-1])
    first = np.flatnonzero(begins)
    until = end[np.append(first[1:], len(job)) - 1] if len(first) else end
    width = float(np.clip(200.0 / max(len(result.jobs), 1), 0.4, 6.0))
    for code, name in enumerate(types):
        mine = first[kind[first] == code]
        lines = np.stack(
            [np.stack([start[mine], job[mine]], 1), np.stack([until[kind[first] == code], job[mine]], 1)], 1
        )
        lines[:, :, 0] /= _HOUR
        axes.add_collection(LineCollection(list(lines), colors=f"C{code}", linewidths=width, label=name))
    axes.set(xlabel="time (h)", ylabel="job", title=f"Who ran when: {result.label}")
    axes.set_xlim(0.0, max(float(end.max(initial=0.0)) / _HOUR, 1e-3))
    axes.set_ylim(len(result.jobs) - 0.5, -0.5)
    if types:
        axes.legend(loc="upper right")


def _queue(result: SimulationResult, axes: Axes) -> None:
    """Jobs that wait for GPUs, over time."""
    timeline = result.timeline
    start, end = (timeline[name].to_numpy(dtype=np.float64) / _HOUR for name in ("start_time", "end_time"))
    waiting = timeline["queued_jobs"].to_numpy(dtype=np.float64)
    # Between two rounds in which nobody ran nobody is shown to wait.
    times = np.stack([start, end], 1).ravel()
    jobs = np.stack([waiting, np.where(np.append(start[1:], np.inf) > end * (1 + _ROUNDING), 0.0, waiting)], 1).ravel()
    axes.step(times, jobs, where="post", label=result.label)
    axes.set(xlabel="time (h)", ylabel="jobs", title="Jobs that wait for GPUs")
    _from_zero(axes)
    axes.legend(loc="upper right")


def _from_zero(axes: Axes) -> None:
    """Limits that have room for every run drawn so far, and begin at 0."""
    axes.autoscale()
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)


PLOTS: dict[str, Callable[[SimulationResult, Axes], None]] = {
    "completion_times": _completion_times,
    "timeline": _timeline,
    "queue": _queue,
}
