"""Predictions that come from elsewhere: a file, or the truth with noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError
from throughputs.files import StrPath, read_frame, source_of
from throughputs.frames import Column, FrameReader
from throughputs.limits import LATEST_TIME, Range
from throughputs.numerics import exp
from throughputs.trace import Trace

_COLUMNS = ("predicted_seconds", "seconds")
_SECONDS = Column("number", np.nan, Range(0, LATEST_TIME, above=True), f"seconds above 0, at most {LATEST_TIME:g}")


def read_predictions(path: StrPath, n_jobs: int) -> Floats:
    """(N,) predicted seconds of jobs by their ids, the positions in the trace; nan of jobs that the file has not.

    The file is a table with the columns ``job_id`` and ``predicted_seconds``, or ``seconds``; others are not read.

    Raises
    ------
    InputError
        A missing column, an id that the trace has not or that comes twice, or seconds that are not above 0.
    OSError
        The file cannot be opened.
    """
    frame, first_line = read_frame(Path(path))
    reader = FrameReader(frame, source_of(Path(path)), first_line)
    name = next((name for name in _COLUMNS if reader.has(name)), _COLUMNS[0])
    table = reader.read({"job_id": Column("whole"), name: _SECONDS}, list(map(str, frame.columns)))
    ids, values = table["job_id"], table[name]
    there = (ids >= 0) & (ids < n_jobs)
    reader.require(there, ids, "job_id", f"the id of a job of the trace, from 0 to {n_jobs - 1}")
    reader.require_once(ids, ids, "job_id", "each job once")
    seconds = np.full(n_jobs, np.nan)
    seconds[ids] = values
    return seconds


def noisy(duration: Floats, sigma: float, seed: int = 0) -> Floats:
    """(N,) durations times exp(sigma z), z normally distributed and drawn job by job; with 0 the durations themselves.

    Half of the predictions are within a factor of exp(0.67 sigma) of the truth.

    Raises
    ------
    InputError
        A sigma below 0 or above 10.
    """
    if not 0 <= sigma <= 10:
        raise InputError("noise", found=sigma, expected="a standard deviation of logarithms, from 0 to 10")
    drawn = np.random.default_rng(seed).standard_normal(len(duration))
    return np.asarray(np.clip(duration * exp(sigma * drawn), 1e-3, LATEST_TIME))


def with_predictions(trace: Trace, seconds: Floats) -> Trace:
    """The same jobs with predicted durations, (N,) seconds above 0; nan where unknown."""
    return replace(trace, predicted_seconds=seconds)
