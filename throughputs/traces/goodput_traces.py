"""Workloads of Pollux (AdaptDL) and Sia, as tables with named columns.

    pollux   name time application num_replicas batch_size [category] [ddl] [max_sample | samples]

A job asks for `num_replicas` GPUs and a global batch size, with which it is named ``APPLICATION (batch size B)``; what
a scheduler may choose otherwise is its category, of Sia, and "adaptive" where the table has none. Its work is a whole
training, of which the profile of its application (`throughputs.goodput.profiles`) says how many steps it takes with
that batch size; or `max_sample` samples, in the version of ElasticFlow, which has deadlines `ddl` on the clock. How
long it would take as asked for is not in the table; the duration is that of the profile, on nodes of four t4 GPUs.

Sources: A. Qiao et al., "Pollux", OSDI 2021 (petuum/adaptdl); S. Jayaram Subramanya et al., "Sia", SOSP 2023; D. Gu et
al., "ElasticFlow", ASPLOS 2023 (pkusys/ElasticFlow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import did_you_mean
from throughputs.frames import FrameReader
from throughputs.goodput.profiles import default_profiles
from throughputs.trace import Trace
from throughputs.traces.named_rows import in_order_of_arrival, job_types, row_error, seconds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pollux"]

_REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")
_ACCELERATOR, _GPUS_ON_A_NODE = "t4", 4
_SAMPLES = ("max_sample", "samples")


def pollux(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a workload of Pollux or Sia."""
    reader = FrameReader(frame, source, first_line)
    reader.check_columns(_REQUIRED, ("category", "ddl", *_SAMPLES))
    unit = 1.0 if time_unit is None else time_unit
    names = job_types(reader, "application")
    applications, sizes = reader.text("application"), reader.numbers("batch_size")
    gpus, steps = reader.whole_numbers("num_replicas"), _steps(reader, applications.tolist(), sizes)
    columns = {
        "job_type": names,
        "scale_factor": gpus,
        "total_steps": steps,
        "arrival_time": seconds(reader.numbers("time"), unit),
        "duration": steps * _step_times(applications, gpus, sizes),
        "category": reader.text("category", empty="adaptive")
        if reader.has("category")
        else np.full(len(frame), "adaptive", dtype=object),
    }
    if reader.has("ddl"):
        columns["deadline"] = seconds(reader.numbers("ddl", empty=np.nan), unit)
    renamed = {"scale_factor": "num_replicas", "arrival_time": "time", "deadline": "ddl"}
    renamed["total_steps"] = next((name for name in _SAMPLES if reader.has(name)), "application")
    return in_order_of_arrival(columns, np.arange(len(frame)), reader, renamed)


def _steps(reader: FrameReader, applications: list[str], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) steps with the batch sizes asked for."""
    for name in _SAMPLES:
        if reader.has(name):
            return np.asarray(reader.numbers(name) / sizes)
    known = default_profiles().models
    for row, application in enumerate(applications):
        if application not in known:
            expected = f"one of {', '.join(known)}, or a column max_sample{did_you_mean(application, known)}"
            raise row_error(reader, row, "application", application, expected)
    keys = list(zip(applications, sizes.tolist(), strict=True))
    steps = {(application, size): known[application].steps(size) for application, size in set(keys)}
    return np.array([steps[key] for key in keys], dtype=np.float64)


def _step_times(
    applications: NDArray[np.object_], gpus: NDArray[np.int64], sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(N,) seconds of a step as asked for; nan where there is no profile, or no whole sample for each GPU."""
    profiles = default_profiles()
    times = np.full(len(gpus), np.nan)
    known = np.array([name in profiles.models for name in applications.tolist()], dtype=np.bool_) & (gpus >= 1)
    count = gpus[known]
    nodes = -(-count // _GPUS_ON_A_NODE)
    times[known] = profiles.step_times(applications[known].tolist(), _ACCELERATOR, nodes, count, sizes[known])
    return times
