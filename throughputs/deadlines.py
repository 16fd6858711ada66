"""Deadlines of a workload: for each job none, one, or several with what each is worth (soft deadlines).

A job with several is worth most by its first deadline and less by each later one (W. Gao et al., "Chronus: A Novel
Deadline-aware Scheduler for Deep Learning Training Jobs", SoCC 2021). In a trace they are one cell for each job, a
tuple of (seconds, value); for programs and policies they are ragged arrays, `DeadlineOptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, Ragged, Texts, offsets_of
from throughputs.errors import InputError
from throughputs.frames import parsed_number
from throughputs.limits import LATEST_TIME

OptionRow = tuple[tuple[float, float], ...]
"""The deadlines of one job: (seconds on the clock, value) each, ascending; empty for none."""

_EXPECTED = "SECONDS:VALUE pairs separated by spaces, later deadlines behind and of no more value, as in 3600:10 7200:5"


@dataclass(frozen=True, eq=False)
class DeadlineOptions(Ragged):
    """Deadlines of N jobs with their values, as ragged arrays.

    Parameters
    ----------
    offsets : (N + 1,) the options of job i are those from ``offsets[i]`` to ``offsets[i + 1] - 1``.
    seconds : (P,) deadlines on the clock, ascending within a job.
    value : (P,) what it is worth that the job completes by then, rather than at all.
    """

    offsets: Ints
    seconds: Floats
    value: Floats

    @classmethod
    def of_rows(cls, rows: Sequence[OptionRow] | Texts) -> DeadlineOptions:
        """Those of N jobs, each as a trace has them."""
        flat = np.array([option for row in rows for option in row], dtype=float).reshape(-1, 2)
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        return cls(offsets_of(lengths), flat[:, 0], flat[:, 1])

    @classmethod
    def of_deadlines(cls, deadline: ArrayLike, value: float = 1.0) -> DeadlineOptions:
        """One option of this `value` for each job with a deadline: (N,) seconds on the clock, nan or inf for none."""
        seconds = np.asarray(deadline, dtype=float)
        given = np.isfinite(seconds)
        return cls(offsets_of(given), seconds[given], np.full(int(given.sum()), value))

    @property
    def best_value(self) -> Floats:
        """(N,) value of the first deadline of each job; 0 for a job without."""
        return self.value_at(np.full(len(self), -np.inf))

    def value_at(self, completion: ArrayLike) -> Floats:
        """(N,) value of the first deadline that a job kept which completed then (seconds; nan: never); 0 for none."""
        done = np.asarray(completion, dtype=float)
        kept = np.flatnonzero(done[self.job] <= self.seconds)
        value = np.zeros(len(self))
        value[self.job[kept[::-1]]] = self.value[kept[::-1]]  # written last to first, so that the first one stays
        return value


def checked_options(values: Any, n: int, source: str) -> Texts:
    """(N,) cells of a trace; None stands for none at all.

    Raises
    ------
    InputError
        Another number of jobs, or a cell (with its row) that is not a tuple of (seconds, value) as it should be.
    """
    column = np.empty(n, dtype=object)
    column[:] = [()] * n
    if values is None:
        return column
    if len(values) != n:
        found = f"{len(values)} cells"
        raise InputError(source, field="deadline_options", found=found, expected=f"one for each of {n} jobs")
    for row, cell in enumerate(values):
        if cell != ():
            column[row] = _checked_row(cell, row, source)
    return column


def _checked_row(cell: Any, row: int, source: str) -> OptionRow:
    try:
        pairs = np.array([(float(seconds), float(value)) for seconds, value in cell]).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError):
        pairs = np.full((1, 2), np.nan)
    seconds, value = pairs[:, 0], pairs[:, 1]
    good = np.isfinite(pairs).all() and (value > 0).all() and (seconds >= 0).all() and (seconds <= LATEST_TIME).all()
    if not (good and (seconds[1:] > seconds[:-1]).all() and (value[1:] <= value[:-1]).all()):
        expected = "tuples (seconds, value) of finite numbers: times ascending to "
        expected += f"{LATEST_TIME:g}, values above 0 and not ascending"
        raise InputError(source, line=row + 1, field="deadline_options", found=cell, expected=expected)
    return tuple(zip(seconds.tolist(), value.tolist(), strict=True))


def option_text(row: OptionRow) -> str:
    """The cell of a table: ``3600.0:10.0 7200.0:5.0``."""
    return " ".join(f"{seconds!r}:{value!r}" for seconds, value in row)


def option_row(text: str, source: str, line: int) -> OptionRow:
    """What the cell of a table says; empty for none.

    Raises
    ------
    InputError
        The text is not of that form.
    """
    pairs = []
    for part in text.split():
        seconds, _, value = part.partition(":")
        try:
            pairs.append((parsed_number(seconds), parsed_number(value)))
        except ValueError:
            raise InputError(source, line=line, field="deadline_options", found=text, expected=_EXPECTED) from None
    return tuple(pairs)
