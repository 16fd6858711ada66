"""The life of one job: when it waited, when it was being started, when it ran."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from allocator.explanations.run import FinishedRun, Rows
from allocator.presets import preset_of
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.starts import StartsTakeTime
from throughputs.arrays import Flags, Floats

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

    def within(self, since: float, until: float) -> Interval:
        """The part of it that is in some time (seconds)."""
        return replace(self, start=max(self.start, since), end=min(self.end, until))


def life_of(run: FinishedRun, job: int) -> list[Interval]:
    """From its arrival to its end (of the run, if it was still there), without gaps and overlaps."""
    rows = run.rows.take(np.flatnonzero(run.rows.job_id == job))
    rows = rows.take(np.argsort(rows.start_time, kind="stable"))
    clock, gone = float(run.jobs.arrival_time[job]), float(run.jobs.gone[job])
    end = gone if gone < np.inf else max(run.end, clock)
    found: list[Interval] = []
    columns = (rows.start_time, rows.end_time, rows.pool, rows.gpu_count, starting_seconds(run, rows, job))
    for start, finish, pool, gpus, seconds in zip(*(column.tolist() for column in columns), strict=True):
        finish, had = min(finish, end), (run.cluster.accelerators[pool], gpus)
        _add(found, Interval("waiting", clock, start))
        # in a world without rounds a job has several types at once
        start = max(start, clock)
        trains = min(start + seconds, finish)
        _add(found, Interval("starting", start, trains, *had))
        _add(found, Interval("running", trains, finish, *had))
        clock = max(clock, finish)
    _add(found, Interval("waiting", clock, end))
    return found


def _add(found: list[Interval], new: Interval) -> None:
    """Append an interval, or lengthen the last one by it."""
    if new.end <= new.start:
        return
    if found and found[-1].end == new.start and replace(new, start=found[-1].start, end=new.start) == found[-1]:
        found[-1] = replace(found[-1], end=new.end)
    else:
        found.append(new)


def starting_seconds(run: FinishedRun, rows: Rows, job: int) -> Floats:
    """(L,) seconds at the beginning of each of the job's rows, in order of time, in which it was being started.

    Zeros where starts are free, where they shorten a round instead of coming first, and where the sum over the rows is
    not what the run wrote down (`restart_gpu_seconds` in jobs.csv), as with rules of published simulators.
    """
    preset = preset_of(run.settings)
    cost = rule_of(preset.world, StartsTakeTime)
    if not len(rows) or run.ideal or (run.in_rounds and not cost.restart_delays):
        return np.zeros(len(rows))
    kinds = np.full(len(rows), run.jobs.job_type[job])
    lost = np.where(_starts(run, rows, cost), cost.seconds_of(rows.gpu_count, kinds), 0.0)
    if run.in_rounds:
        # what is left of a start that takes longer than a round is made in the next one, where the job goes on
        seconds = preset.mechanism.round_seconds
        for row in range(len(lost) - 1):
            lost[row + 1] = lost[row + 1] or max(lost[row] - seconds, 0.0)
        lost = np.minimum(lost, seconds)
    written = float(run.jobs.restart_gpu_seconds[job])
    as_written = abs(float((lost * rows.weighted_gpus).sum()) - written) <= _TOLERANCE * max(written, 1.0)
    return lost if as_written else np.zeros(len(rows))


def _starts(run: FinishedRun, rows: Rows, cost: StartsTakeTime) -> Flags:
    """(L,) which rows of the job, in order of time, begin with a start."""
    rounds = run.rounds
    if run.in_rounds:
        at = rounds.round.searchsorted(rows.round)
        follows = (at[1:] == at[:-1] + 1) & (rounds.start_time[at[1:]] == rounds.end_time[at[:-1]])
    else:
        follows = rows.start_time[1:] == rows.end_time[:-1]
    if cost.restart_when_moved:
        for column in (rows.pool, rows.gpu_count, rows.gpus):
            follows = follows & (column[1:] == column[:-1])
    return np.append(True, ~follows)
