"""``allocator predict``: durations of jobs from what is known when they are submitted."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from allocator.api import load_throughputs
from allocator.cli.options.shared import (
    AcceleratorOption,
    JsonOption,
    OriginOption,
    SeedOption,
    TableOption,
    TimeUnitOption,
    console,
    print_json,
    warn,
)
from allocator.conversion import Positive
from allocator.predictions.page import cells_of, render_page, told_sources
from allocator.results.output import as_json
from throughputs import InputError, Trace, read_trace, write_trace
from throughputs.arrays import Floats
from throughputs.files import check_table_name, read_frame, source_of, write_text
from throughputs.frames import FrameReader
from throughputs.predict import (
    Columns,
    DurationPredictions,
    Submissions,
    given_durations,
    noisy,
    predict_durations,
    read_predictions,
    shape_functions,
    with_predictions,
)
from throughputs.predict.durations import FEWEST_JOBS
from throughputs.traces.description import durations_alone

_DAY = 86400.0
_SHAPES = 5


def predict_command(
    trace: Path,
    out: Path,
    model: str | None = None,
    refit: Positive = 7.0,
    columns: Path | None = None,
    origin: OriginOption = None,
    given: Path | None = None,
    truth: bool = False,
    noise: float = 0.0,
    seed: SeedOption = 0,
    report: Path | None = None,
    throughputs: TableOption = None,
    accelerator: AcceleratorOption = None,
    time_unit: TimeUnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict how long jobs will run, from what is known when they are submitted.

    Each job is predicted from jobs that had ended before it was submitted, by a model that is fitted anew every week.
    Predictions may also come from a file, or be the truth with noise. The trace is written with them, and it is told
    how good they are. Durations that the trace does not state are steps over throughput. docs/prediction.md has more.

    Parameters
    ----------
    trace : FILE|-
        The jobs, with their durations; -: standard input.
    out : FILE
        Trace to write, with the column predicted_seconds: .csv or .parquet.
    model : NAME
        fast (gradient boosting), or interpretable; fast if omitted.
    refit : DAYS
        A model is fitted anew after so many days.
    columns : FILE
        Table with job_id and what else is known of the jobs: a name, a profile.
    given : --from FILE
        No model, but a table with the columns job_id and predicted_seconds.
    truth
        No model, but the durations themselves.
    noise : SIGMA
        With --truth: standard deviation of an error of their logarithm.
    report : FILE
        Page to write: errors, and what was learned.
    """
    check_table_name(out)
    _check_sources(model, given, truth, noise)
    jobs = read_trace(trace, time_unit_seconds=time_unit)
    rows = Submissions.of_trace(
        jobs,
        _durations(jobs, throughputs, accelerator),
        None if columns is None else _columns(columns, len(jobs)),
        0.0 if origin is None else since_monday(origin),
    )
    seconds = refit * _DAY
    if given is not None:
        made = given_durations(rows, read_predictions(given, len(jobs)), "file", refit_seconds=seconds)
    elif truth:
        made = given_durations(rows, noisy(rows.duration, noise, seed), "truth", refit_seconds=seconds)
    else:
        made = predict_durations(rows, model or "fast", refit_seconds=seconds)
    page = None if report is None else render_page(made, source=jobs.source)
    write_trace(with_predictions(jobs, made.seconds), out, format="table")
    if report is not None and page is not None:
        write_text(report, page)
    if as_json:
        print_json(_as_json(made) | {"out": str(out)})
        return
    learns = given is None and not truth
    for line in _lines(made, out, report, learns=learns):
        console().print(line, soft_wrap=True, highlight=False)
    warn(_unlearned(made, trace, learns=learns))


def _unlearned(made: DurationPredictions, trace: Path, *, learns: bool) -> str:
    """What could not be learned or judged, and why; empty where nothing is to be said."""
    by = made.quality()["predicted"]
    if not len(made.seconds):
        return ""
    if learns and set(by) == {"none"}:
        return (
            f"{trace}: no job was predicted: at the last fit before it was submitted none had ended, so their cells "
            "are empty (--refit DAYS fits more often)"
        )
    if learns and "model" not in by:
        return (
            f"{trace}: no model was fitted, for which {FEWEST_JOBS} jobs must have ended before a fit: the median of "
            "those that had stands in (--refit DAYS fits more often)"
        )
    if made.quality()["compared"]:
        return ""
    return (
        f"{trace}: nothing can be said about errors: of no job a duration, a prediction and the median of jobs that "
        "had ended are known"
    )


def _check_sources(model: str | None, given: Path | None, truth: bool, noise: float) -> None:
    sources = [name for name, is_there in (("--model", model), ("--from", given), ("--truth", truth)) if is_there]
    if len(sources) > 1:
        raise InputError(", ".join(sources), found="several", expected="one of them")
    if noise and not truth:
        raise InputError("--noise", found=noise, expected="nothing without --truth, whose error it is")


def _durations(jobs: Trace, throughputs: Path | None, accelerator: str | None) -> Floats:
    """(N,) as the trace states them, else steps over throughput where the table has the job; nan otherwise."""
    durations = jobs.duration.copy()
    if np.isnan(durations).any():
        table = load_throughputs(throughputs, accelerator=accelerator)
        timed = np.flatnonzero(np.isnan(durations) & table.has(jobs.job_type, jobs.scale_factor))
        profiled = np.ones(len(timed), dtype=np.bool_)
        durations[timed] = durations_alone(jobs.take(timed), table, profiled, accelerator)
    return durations


def _columns(path: Path, n_jobs: int) -> Columns:
    """Further columns of the jobs, in the order of their ids."""
    frame, first_line = read_frame(path)
    reader = FrameReader(frame, source_of(path), first_line)
    if not reader.has("job_id"):
        raise InputError(reader.source, field="job_id", found=list(frame.columns), expected="this column to be present")
    ids = reader.whole_numbers("job_id")
    if sorted(ids.tolist()) != list(range(n_jobs)):
        found = f"{len(ids)} rows"
        raise InputError(
            reader.source, field="job_id", found=found, expected=f"each job of the trace once, 0 to {n_jobs - 1}"
        )
    return Columns.from_frame(frame.drop(columns="job_id").iloc[np.argsort(ids)], reader.source, first_line)


def since_monday(text: str) -> float:
    """Seconds from the last Monday at midnight to a date, on its own clock."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("--origin", found=text, expected="a date (ISO 8601), as 2024-05-31T08:15:00") from None
    return date.weekday() * _DAY + date.hour * 3600.0 + date.minute * 60.0 + date.second


def _as_json(made: DurationPredictions) -> dict[str, Any]:
    """Quality over all and by period; what is not known is null."""
    periods = [
        {"begin_s": each.begin, "end_s": each.end, "jobs": each.jobs, "known": each.known} | as_json(each.quality)
        for each in made.periods
    ]
    factors = [] if made.last is None else [(shape.name, shape.reach) for shape in shape_functions(made.last)]
    return dict(as_json(made.quality())) | {"periods": periods, "reach_of_columns": dict(factors)}


def _lines(made: DurationPredictions, out: Path, report: Path | None, *, learns: bool) -> list[str]:
    quality = made.quality()
    texts = cells_of(quality)
    lines = [f"{out}: {quality['jobs']:,} jobs, {told_sources(quality)}"]
    if "none" in quality["predicted"] and learns and len(quality["predicted"]) > 1:
        lines.append(
            "  not predicted         at the last fit before their submission no job had ended; cells are empty"
        )
    if quality["compared"]:
        lines += [
            f"  rank correlation      {texts['rank_correlation']}  (predicted and true, {texts['compared']} jobs)",
            f"  mean absolute error   {texts['error_s']} s",
            f"  that of the median    {texts['error_of_median_s']} s  (of the durations known by then, for all jobs)",
        ]
    if made.last is not None:
        shapes = shape_functions(made.last)[:_SHAPES]
        lines.append(f"  columns that count    {'; '.join(f'{each.name} (×{_factor(each.reach)})' for each in shapes)}")
    return [*lines, f"Page: {report}"] if report is not None else lines


def _factor(reach: float) -> str:
    return f"{reach:.1f}" if reach < 10 else f"{reach:,.0f}"
