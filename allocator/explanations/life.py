"""The life of one job: when it waited, when it was being started, when it ran."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from allocator.explanations.columns import Rows
from allocator.explanations.replay import settings_of
from allocator.explanations.run import FinishedRun
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.starts import StartsTakeTime

_Floats = NDArray[np.float64]

Kind = Literal["waiting", "starting", "running"]

# Relative; what the sum over the starts of a job may differ by from what the run wrote down.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Interval:
    """Part of the life of a job.

    Attributes
    ----------
    kind : "waiting" without GPUs, "starting" on GPUs and not training yet, "running".
    start, end : seconds.
    accelerator, gpus : what it had; "" and 0 while it waited.
    """

    kind: Kind
    start: float
    end: float
    accelerator: str = ""
    gpus: int = 0

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.start


def life_of(run: FinishedRun, job: int) -> list[Interval]:
    """From its arrival to its end (of the run, if it was still there), without gaps and overlaps."""
    jobs = run.jobs
    rows = run.rows.take(np.flatnonzero(run.rows.job == job))
    rows = rows.take(np.argsort(rows.start, kind="stable"))
    clock, end = float(jobs.arrival[job]), _end(run, job)
    lost = starting_seconds(run, rows, job)
    names = run.cluster.accelerators
    found: list[Interval] = []
    columns = (rows.start, rows.finish, rows.pool, rows.gpus, lost)
    for start, finish, pool, gpus, seconds in zip(*(column.tolist() for column in columns), strict=True):
        finish = min(finish, end)
        if start > clock:
            _add(found, Interval("waiting", clock, start))
        # in a world without rounds a job has several types at once
        start = max(start, clock)
        trains = min(start + seconds, finish)
        _add(found, Interval("starting", start, trains, names[pool], gpus))
        _add(found, Interval("running", trains, finish, names[pool], gpus))
        clock = max(clock, finish)
    _add(found, Interval("waiting", clock, end))
    return found


def _end(run: FinishedRun, job: int) -> float:
    gone = float(run.jobs.gone[job])
    return gone if gone < np.inf else max(run.end, float(run.jobs.arrival[job]))


def _add(found: list[Interval], new: Interval) -> None:
    """Append an interval, or lengthen the last one by it."""
    if new.end <= new.start:
        return
    last = found[-1] if found else None
    if last is not None and dataclasses.replace(new, start=last.start, end=last.end) == last and last.end == new.start:
        found[-1] = dataclasses.replace(last, end=new.end)
    else:
        found.append(new)


def starting_seconds(run: FinishedRun, rows: Rows, job: int) -> _Floats:
    """(L,) seconds at the beginning of each of the job's rows, in order of time, in which it was being started.

    Zeros where starts are free, where they shorten a round instead of coming first, and where the sum over the rows is
    not what the run wrote down (`restart_gpu_seconds` in jobs.csv), as with rules of published simulators.
    """
    nothing = np.zeros(len(rows))
    if not len(rows) or run.ideal:
        return nothing
    preset = settings_of(run)
    cost = rule_of(preset.world, StartsTakeTime)
    if run.in_rounds and not cost.restart_delays:
        return nothing
    lost = np.where(_starts(run, rows, cost), cost.seconds_of(rows.gpus, np.full(len(rows), run.jobs.kind[job])), 0.0)
    if run.in_rounds:
        # a start that takes longer than a round is broken off with it, and made anew in the next one where it goes on
        lost = np.minimum(lost, preset.mechanism.round_seconds)
    gpu_seconds = float((lost * rows.weighted_gpus).sum())
    written = float(run.jobs.restart_gpu_seconds[job])
    return lost if abs(gpu_seconds - written) <= _TOLERANCE * max(written, 1.0) else nothing


def _starts(run: FinishedRun, rows: Rows, cost: StartsTakeTime) -> NDArray[np.bool_]:
    """(L,) which rows of the job, in order of time, begin with a start."""
    follows = np.zeros(len(rows), dtype=np.bool_)
    if run.in_rounds:
        at = run.round_index.searchsorted(rows.round)
        follows[1:] = (at[1:] == at[:-1] + 1) & (run.round_start[at[1:]] == run.round_end[at[:-1]])
    else:
        follows[1:] = rows.start[1:] == rows.finish[:-1]
    same = np.zeros(len(rows), dtype=np.bool_)
    same[1:] = (
        (rows.pool[1:] == rows.pool[:-1]) & (rows.gpus[1:] == rows.gpus[:-1]) & (rows.places[1:] == rows.places[:-1])
    )
    return ~follows | ~same if cost.restart_when_moved else ~follows
