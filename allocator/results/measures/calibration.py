"""How near a simulated policy comes to the schedule that a job log records, and what follows in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.results.measures.parts import size_names
from throughputs.files import JsonObject

if TYPE_CHECKING:
    import pandas as pd

NEAR = 600.0
"""Seconds by which a start may miss the recorded one and count as the same."""

_LEAST = 60.0
"""Seconds of waiting below which a ratio says nothing."""

_FAR, _CLOSE = 1.25, 1.005
"""A mean is said to be off above the one factor, and to be met below the other."""

_HOUR = 3600.0

Words = tuple[str, ...]

_PERCENTILES = {"median": 50.0, "90th percentile": 90.0, "99th percentile": 99.0}


@dataclass(frozen=True, eq=False)
class Calibration:
    """A policy beside what was recorded, over the jobs that completed in both.

    Attributes
    ----------
    policy : what the run is called.
    table : one row per part of the jobs, all of them by mean and percentiles, then the mean of each size: columns part,
        jobs, recorded and simulated (seconds that they waited), off (the difference over the recorded one; nan where
        jobs hardly waited).
    starts_near : part of the jobs that start within `NEAR` seconds of when they did.
    """

    policy: str
    table: pd.DataFrame
    starts_near: float

    @classmethod
    def of(cls, policy: str, recorded: pd.DataFrame, simulated: pd.DataFrame) -> Calibration | None:
        """From the tables of jobs of two runs; None where no job completed in both."""
        import pandas as pd

        waits = [jobs["queueing_time"].where(jobs["jct"].notna()).to_numpy(float) for jobs in (recorded, simulated)]
        both = ~np.isnan(waits[0]) & ~np.isnan(waits[1])
        if not both.any():
            return None
        waited = np.stack(waits)[:, both]
        rows = [("mean", both.sum(), *waited.mean(axis=1))]
        rows += [(name, both.sum(), *np.percentile(waited, at, axis=1)) for name, at in _PERCENTILES.items()]
        names, of = size_names(recorded["scale_factor"].to_numpy()[both])
        rows += [
            (f"{name} GPU{'s' * (name != '1')}", (of == k).sum(), *waited[:, of == k].mean(axis=1))
            for k, name in enumerate(names)
        ]
        table = pd.DataFrame(rows, columns=["part", "jobs", "recorded", "simulated"])
        table["off"] = _off(table["recorded"].to_numpy(), table["simulated"].to_numpy())
        starts = (recorded["start_time"] - simulated["start_time"]).abs().to_numpy()[both]
        return cls(policy, table, float((starts <= NEAR).mean()))

    @property
    def factor(self) -> float:
        """How many times the one mean is the other, at least 1, where a wait of less than a minute counts as one."""
        waits = self.table[["recorded", "simulated"]].iloc[0].clip(lower=_LEAST).to_numpy()
        return float(waits.max() / waits.min())

    def as_dict(self) -> JsonObject:
        """Ready for JSON, times in seconds."""
        rows = self.table.astype(object).where(self.table.notna(), None).to_dict("records")
        return {"policy": self.policy, "starts_within_ten_minutes": self.starts_near, "waiting": rows}


def _off(recorded: np.ndarray[Any, Any], simulated: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    much = np.maximum(recorded, simulated) > _LEAST
    return np.where(much, (simulated - recorded) / np.maximum(recorded, _LEAST), np.nan)


def hours(seconds: float) -> str:
    """As people say it."""
    if seconds < _LEAST:
        return "less than a minute"
    return (
        f"{seconds / _HOUR:,.{0 if seconds >= 10 * _HOUR else 1}f} h" if seconds >= _HOUR else f"{seconds / 60:.0f} min"
    )


def _times(factor: float) -> str:
    return f"{factor:,.{2 if factor < 2 else 1 if factor < 10 else 0}f}"


def answer(
    recorded: Mapping[str, Any] | None,
    rows: Sequence[tuple[Words, Mapping[str, Any]]],
    calibration: Calibration | None,
    costs: Mapping[Words, float] | None = None,
) -> str:
    """What was, what the first of the rows makes of it, and the best of the others, in three sentences; "" where there
    is nothing to compare. Before the last one a fourth warns where the rows are of other jobs, as some are too large.

    Parameters
    ----------
    recorded : figures of the recorded schedule.
    rows : the changes that make up each, as in ("with 8 more a100", "under srtf"), and its figures.
    calibration : of the first of them.
    costs : dollars a month by which a row costs more than the first.
    """
    waited = [(words, float(row["average_queueing_time"])) for words, row in rows if row.get("average_queueing_time")
              is not None]  # fmt: skip
    if not waited:
        return ""
    (changes, usual), told = waited[0], []
    first = " ".join(changes)
    if recorded is not None and recorded.get("average_queueing_time") is not None:
        told.append(f"Jobs waited {hours(recorded['average_queueing_time'])} on average (recorded).")
    how_long = f"they would have waited {hours(usual)}" if told else f"jobs wait {hours(usual)} on average"
    sentence = f"{first[0].upper()}{first[1:]} {how_long}"
    if calibration is None:
        told.append(f"{sentence}; nothing recorded says how near that is.")
    else:
        near = f"{calibration.starts_near:.0%} of them start within ten minutes of when they did"
        far = ", and smaller differences say little" * (calibration.factor > _FAR)
        least = "at least " * bool(far and calibration.table[["recorded", "simulated"]].iloc[0].min() < _LEAST)
        off = (
            f"off by a factor of {least}{_times(calibration.factor)}" if calibration.factor > _CLOSE else "as recorded"
        )
        told.append(f"{sentence}, {off}{far}; {near}.")
    served = [int(row["completed_jobs"]) for _, row in rows if row.get("completed_jobs") is not None]
    if served and min(served) < max(served):
        told.append(
            f"Rows are of {min(served):,} to {max(served):,} jobs, as some fit no type of a cluster: compare with care."
        )
    if len(waited) > 1:
        told.append(_best(*waited, calibration=calibration, costs=costs or {}))
    return " ".join(told)


def _best(
    usual: tuple[Words, float],
    *others: tuple[Words, float],
    calibration: Calibration | None,
    costs: Mapping[Words, float],
) -> str:
    """The sentence on the row under which jobs wait least, and on each of its changes alone."""
    (first, wait), (changes, least) = usual, min(others, key=lambda row: row[1])
    words = " ".join(changes)
    factor = 1.0 if calibration is None else calibration.factor
    if max(least, wait) <= factor * min(least, wait):
        farthest, most = max(others, key=lambda row: row[1])
        beside = f", {' '.join(farthest)} {hours(most)}" * (most > least)
        differs = "is below" if most > factor * wait else "differs from"
        more = "" if factor < _CLOSE else " by more than the simulation differs from what was recorded"
        return f"No other row {differs} the one {' '.join(first)}{more}: {words} it is {hours(least)}{beside}."
    dollars = costs.get(changes)
    price = "" if dollars is None else f", about ${float(f'{dollars:.2g}'):,.0f} a month"
    within = "" if factor < _CLOSE else f", or {hours(least / factor)} to {hours(least * factor)} if that is as far off"
    alone = "".join(
        f"; {hours(alone)} {row[0].partition(',')[0]} alone"
        for row, alone in others
        if len(row) == 1 < len(changes) and row[0] in changes
    )
    return f"{words[0].upper()}{words[1:]} it would have been {hours(least)}{within}{price}{alone}."
