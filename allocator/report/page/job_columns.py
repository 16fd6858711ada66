"""The columns of the table of jobs on the page: what was submitted, once for each trace, and what became of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from throughputs.files import JsonObject

if TYPE_CHECKING:
    import pandas as pd


_TO_THE_MINUTE = len("2025-03-03T08:00")


def trace_columns(jobs: pd.DataFrame) -> JsonObject:
    """Of N jobs ids, those of the log if it has some, types, GPUs (a fraction where one asks for it), arrivals (whole
    seconds), and users, partitions, dates of arrival (UTC) and deadlines where any are.
    """
    names = jobs["trace_id"] if "trace_id" in jobs else [""] * len(jobs)
    fractions = jobs["gpu_fraction"] if "gpu_fraction" in jobs else [1] * len(jobs)
    sizes = zip(jobs["scale_factor"].tolist(), fractions, strict=True)
    columns = {
        "id": [name or str(label) for name, label in zip(names, jobs["job_id"], strict=True)],
        **_coded("type", "types", jobs["job_type"]),
        "gpus": [size if fraction == 1 else size * float(fraction) for size, fraction in sizes],
        "arrival": whole_numbers(jobs["arrival_time"]),
    }
    for name in ("user", "partition"):
        if name in jobs:
            columns |= _coded(name, f"{name}s", jobs[name])
    if "arrival_date" in jobs:
        columns["date"] = [date[:_TO_THE_MINUTE].replace("T", " ") for date in jobs["arrival_date"]]
    if "deadline" in jobs:
        columns["deadline"] = whole_numbers(jobs["deadline"])
    return columns


def outcome_columns(jobs: pd.DataFrame, rho: str) -> JsonObject:
    """Completions and seconds on GPUs (whole), rho (thousandths), preemptions and status, and which deadlines were met.

    A column is left out where the table of jobs lacks it; `rho` is the one of finish-time fairness.
    """
    columns: dict[str, Any] = {
        "completion": whole_numbers(jobs["completion_time"]),
        "rho": whole_numbers(1000 * jobs[rho]),
        **_coded("status", "statuses", jobs["status"]),
    }
    of_some = {"running": "running_time", "preemptions": "preemptions", "met": "met"}
    return columns | {name: whole_numbers(jobs[column]) for name, column in of_some.items() if column in jobs}


def whole_numbers(values: pd.Series[float]) -> list[int | None]:
    """Rounded; None where there is none."""
    return [round(value) if math.isfinite(value) else None for value in values.to_numpy(float).tolist()]


def _coded(name: str, plural: str, values: pd.Series[Any]) -> JsonObject:
    """Texts as positions in a list of the different ones."""
    import pandas as pd

    codes, distinct = pd.factorize(values.astype(str).astype(object), sort=True)
    return {plural: distinct.tolist(), name: codes.tolist()}
