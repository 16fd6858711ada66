"""Workloads of Pollux (AdaptDL) and Sia, as tables with named columns.

    pollux   name time application num_replicas batch_size [category] [ddl] [max_sample | samples]

A job asks for `num_replicas` GPUs and a global batch size, with which it is named ``APPLICATION (batch size B)``; what
a scheduler may choose otherwise is its category, of Sia, and "adaptive" where the table has none. Its work is a whole
training, of which the profile of its application (`throughputs.goodput.profiles`) says how many steps it takes with
that batch size; or `max_sample` samples, in the version of ElasticFlow, which has deadlines `ddl` on the clock. How
long it would take as asked for is not in the table; the duration is that of the profile, on nodes of four t4 GPUs.

`pollux_frame` makes such a workload of a trace, for a comparison with those systems: a trace for deadlines becomes what
ElasticFlow's comparison with Pollux has made of it (ASPLOS 2023, sec. 6), with deadlines and samples.

Sources: A. Qiao et al., "Pollux", OSDI 2021 (petuum/adaptdl); S. Jayaram Subramanya et al., "Sia", SOSP 2023; D. Gu et
al., "ElasticFlow", ASPLOS 2023 (pkusys/ElasticFlow).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs.arrays import Floats, Ints, Texts
from throughputs.errors import InputError, did_you_mean
from throughputs.frames import Column, FrameReader
from throughputs.goodput.profiles import default_profiles
from throughputs.limits import require
from throughputs.trace import Trace
from throughputs.traces.named import BATCH_SIZE, in_seconds, job_types, trace_of_columns

if TYPE_CHECKING:
    import pandas as pd

_ACCELERATOR, _GPUS_ON_A_NODE = "t4", 4
_SAMPLES = ("max_sample", "samples")
_COLUMNS = {
    "name": Column("name", "", needed=True),
    "time": Column("number"),
    "application": Column("text"),
    "num_replicas": Column("whole"),
    "batch_size": Column("whole", None, *BATCH_SIZE),
    "category": Column("text", "adaptive"),
    "ddl": Column("number", np.nan),
    "max_sample": Column("number", np.nan),
    "samples": Column("number", np.nan),
}

# A job with this much of a sample more than a whole number is through with the whole number.
_ROUNDING = 1e-6


def pollux(frame: pd.DataFrame, source: str, first_line: int, time_unit: float | None) -> Trace:
    """Trace from a workload of Pollux or Sia."""
    reader = FrameReader(frame, source, first_line)
    table = reader.read(_COLUMNS)
    applications, gpus, sizes = table["application"], table["num_replicas"], table["batch_size"].astype(np.float64)
    told_by = next((name for name in _SAMPLES if reader.has(name)), "application")
    known = told_by in _SAMPLES
    steps = table[told_by] / sizes if known else _steps(reader, applications.tolist(), sizes)
    return trace_of_columns(
        reader,
        {
            "job_type": ("job_type", job_types(applications, table["batch_size"])),
            "scale_factor": ("num_replicas", gpus),
            "total_steps": (told_by, steps),
            "arrival_time": ("time", in_seconds(table["time"], time_unit)),
            "duration": ("duration", steps * _step_times(applications, gpus, sizes)),
            "category": ("category", table["category"]),
            "deadline": ("ddl", in_seconds(table["ddl"], time_unit)),
        },
    )


def _steps(reader: FrameReader, applications: list[str], sizes: Floats) -> Floats:
    """(N,) steps with the batch sizes asked for."""
    known = default_profiles().models
    for row, application in enumerate(applications):
        if application not in known:
            expected = f"one of {', '.join(known)}, or a column max_sample{did_you_mean(application, known)}"
            raise reader.error(row, "application", application, expected)
    keys = list(zip(applications, sizes.tolist(), strict=True))
    steps = {(application, size): known[application].steps(size) for application, size in set(keys)}
    return np.array([steps[key] for key in keys], dtype=np.float64)


def _step_times(applications: Texts, gpus: Ints, sizes: Floats) -> Floats:
    """(N,) seconds of a step as asked for; nan where there is no profile, or no whole sample for each GPU."""
    profiles = default_profiles()
    times = np.full(len(gpus), np.nan)
    known = np.array([name in profiles.models for name in applications.tolist()], dtype=np.bool_) & (gpus >= 1)
    count = gpus[known]
    nodes = -(-count // _GPUS_ON_A_NODE)
    times[known] = profiles.step_times(applications[known].tolist(), _ACCELERATOR, nodes, count, sizes[known])
    return times


def merged_models(trace: Trace, rename: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Applications that stand for several models of the trace once these are renamed, with those models.

    >>> trace = Trace(["a (batch size 8)", "b (batch size 8)"], [1, 1], [10.0, 10.0], [0.0, 0.0])
    >>> merged_models(trace, {"a": "b"})
    {'b': ('a', 'b')}
    """
    models: dict[str, list[str]] = {}
    for model in dict.fromkeys(_models(trace)[0]):
        models.setdefault(rename.get(model, model), []).append(model)
    return {name: tuple(of) for name, of in models.items() if len(of) > 1}


def pollux_frame(trace: Trace, *, start: float = 0.0, rename: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The workload of Pollux that a trace is: a table with the columns that its simulator and its cluster scripts read.

    Columns name (``APPLICATION-ID``, with the position of the job in the trace), time (seconds), application,
    num_replicas, batch_size, category where any is known, ddl (seconds on the clock, empty for none) where any job has
    a deadline, max_sample and samples: both the samples of the job, steps times batch size, under the names that the
    simulator of ElasticFlow and the scripts for a cluster use. Priorities, owners, commands and values of deadlines are
    not in it.

    Parameters
    ----------
    trace : the jobs.
    start : time of the trace (seconds) that becomes second 0.
    rename : what applications are called, by the name of the model in the trace, as {"inception3": "inceptionv3"}.

    Raises
    ------
    InputError
        A job type that is not ``MODEL (batch size B)``; an arrival before `start`; a job with an SLO whose duration is
        not known; or a model to be renamed that no job has.
    """
    import pandas as pd

    models, sizes = _models(trace)
    known = dict.fromkeys(models)
    for name in rename or {}:
        if name not in known:
            raise InputError(trace.source, field="rename", found=name, expected=f"one of {', '.join(known)}")
    applications = [(rename or {}).get(model, model) for model in models]
    expected = f"at least the start, {start} s"
    require(trace.arrival_time >= start, trace.arrival_time, trace.source, "arrival_time", expected)
    samples = np.ceil(trace.total_steps * sizes - _ROUNDING)
    columns = {
        "name": [f"{application}-{position}" for position, application in enumerate(applications)],
        "time": _whole_where_all_are(trace.arrival_time - start),
        "application": applications,
        "num_replicas": trace.scale_factor,
        "batch_size": sizes.astype(np.int64),
    }
    if (trace.category != "").any():
        columns["category"] = trace.category
    deadline = _deadlines(trace)
    if not np.isnan(deadline).all():
        columns["ddl"] = _whole_where_all_are(deadline - start)
    return pd.DataFrame(columns | dict.fromkeys(_SAMPLES, _whole_where_all_are(samples)))


def _models(trace: Trace) -> tuple[list[str], Floats]:
    """(N,) models and batch sizes of the job types."""
    names = trace.job_type.tolist()
    parts = {name: re.fullmatch(r"(.+) \(batch size (\d+)\)", name) for name in dict.fromkeys(names)}
    found = [parts[name] for name in names]
    good = np.array([each is not None for each in found], dtype=np.bool_)
    expected = "a type with its batch size, as in 'bert (batch size 64)'"
    require(good, trace.job_type, trace.source, "job_type", expected)
    return [each[1] for each in found if each], np.array([float(each[2]) for each in found if each])


def _deadlines(trace: Trace) -> Floats:
    """(N,) deadlines on the clock, those of SLOs by the durations that the trace states."""
    known = np.isnan(trace.slo) | ~np.isnan(trace.duration)
    expected = "a deadline, or a duration, of which an slo is a multiple"
    require(known, trace.slo, trace.source, "slo", expected)
    by_slo = trace.arrival_time + trace.slo * trace.duration
    return np.where(np.isnan(trace.slo), trace.deadline, by_slo)


def _whole_where_all_are(values: Floats) -> Any:
    """Numbers without a point, if none of them has a fraction; nan stays an empty cell."""
    import pandas as pd

    empty = np.isnan(values)
    if (values[~empty] % 1 != 0).any():
        return values
    return pd.arrays.IntegerArray(np.where(empty, 0, values).astype(np.int64), empty)
