"""Predictions that come from elsewhere: a file, or the truth with noise."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError
from throughputs.files import read_frame, source_of
from throughputs.frames import FrameReader
from throughputs.limits import LATEST_TIME
from throughputs.numerics import exp
from throughputs.trace import Trace

_Floats = NDArray[np.float64]

_COLUMNS = ("predicted_seconds", "seconds")


def read_predictions(path: str | os.PathLike[str], n_jobs: int) -> _Floats:
    """(N,) predicted seconds of jobs by their ids, the positions in the trace; nan of jobs that the file has not.

    The file is a table with the columns ``job_id`` and ``predicted_seconds``, or ``seconds``; others are not read.

    Raises
    ------
    InputError
        A missing column, an id that the trace has not or that comes twice, or seconds that are not above 0.
    OSError
        The file cannot be opened.
    """
    path = Path(path)
    frame, first_line = read_frame(path)
    reader = FrameReader(frame, source_of(path), first_line)
    given = [name for name in _COLUMNS if reader.has(name)]
    for name, there in (("job_id", reader.has("job_id")), (_COLUMNS[0], bool(given))):
        if not there:
            raise InputError(reader.source, field=name, found=list(frame.columns), expected="this column to be present")
    ids, values = reader.whole_numbers("job_id"), reader.numbers(given[0], empty=np.nan)
    _, first = np.unique(ids, return_index=True)
    again = np.ones(len(ids), dtype=np.bool_)
    again[first] = False
    rules = (
        ("job_id", ids, (ids < 0) | (ids >= n_jobs), f"the id of a job of the trace, from 0 to {n_jobs - 1}"),
        ("job_id", ids, again, "each job once"),
        (given[0], values, (values <= 0) | (values > LATEST_TIME), f"seconds above 0, at most {LATEST_TIME:g}"),
    )
    for field, column, bad, expected in rules:
        if bad.any():
            row = int(np.argmax(bad))
            found = column[row : row + 1].tolist()[0]
            raise InputError(reader.source, line=first_line + row, field=field, found=found, expected=expected)
    seconds = np.full(n_jobs, np.nan)
    seconds[ids] = values
    return seconds


def noisy(duration: _Floats, sigma: float, seed: int = 0) -> _Floats:
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


def with_predictions(trace: Trace, seconds: _Floats) -> Trace:
    """The same jobs with predicted durations, (N,) seconds above 0; nan where unknown."""
    columns = {name: getattr(trace, name) for name in trace.column_names()}
    return Trace(**columns | {"predicted_seconds": seconds}, source=trace.source)
