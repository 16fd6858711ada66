"""Predicted lengths of jobs in a file of their own: a table with a row for each job.

job_id and predicted_seconds, or, as Helios and Lucid have it, job_id and priority
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import Column, FrameReader

if TYPE_CHECKING:
    import pandas as pd

_NOT_POSITIVE = 1000.0
"""Seconds that stand for a prediction that is not above 0, which regressions on seconds make (Lucid's loader)."""


def with_predictions(jobs: pd.DataFrame, source: str, path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table of `jobs` with a column predicted_seconds, from the file `path`.

    A job that the file does not name has no prediction. Predictions that are not above 0 become 1000 s.

    Raises
    ------
    InputError
        `jobs` (of `source`) have no job_id or have predictions already, or a line of the file cannot be used, names a
        job twice, or none of its jobs is there.
    """
    frame, first_line = read_frame(Path(path))
    reader = FrameReader(frame, str(path), first_line)
    column = "priority" if reader.has("priority") else "predicted_seconds"
    table = reader.read({"job_id": Column("text"), column: Column("number")})
    if "job_id" not in jobs.columns or "predicted_seconds" in jobs.columns:
        found = [str(name) for name in jobs.columns]
        expected = "a column job_id and no predicted_seconds, where predictions are in a file of their own"
        raise InputError(source, found=found, expected=expected)
    ids, values = table["job_id"], table[column]
    reader.require_once(ids.astype(str), ids, "job_id", "each job once")
    predicted = dict(zip(ids.tolist(), np.where(values > 0, values, _NOT_POSITIVE).tolist(), strict=True))
    known = jobs["job_id"].astype(str).map(predicted)
    if len(jobs) and known.isna().all():
        expected = f"predictions for jobs of {source}, such as {jobs['job_id'].iloc[0]}"
        raise InputError(str(path), field="job_id", found="none of its jobs", expected=expected)
    return jobs.assign(predicted_seconds=known.astype(np.float64))
