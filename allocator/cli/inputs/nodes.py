"""``allocator nodes``: how many nodes might have slept while a trace ran, by a forecast of their use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from allocator.cli.inputs.predict import since_monday
from allocator.cli.options.groups import option
from allocator.cli.options.shared import JsonOption, OriginOption, TimeUnitOption, console, print_json
from allocator.cli.options.values import named_values
from allocator.conversion import AtLeastOne, NotNegative, convert_all, convert_text, kinds_of
from allocator.predictions.nodes import (
    PUBLISHED_SLEEP,
    NodeSleep,
    SleepSettings,
    jobs_that_wait,
    known_ahead,
    nodes_in_use,
    put_to_sleep,
    use_ahead,
)
from allocator.predictions.sleep_page import render_sleep_page
from allocator.results.output import as_json
from throughputs import InputError, Trace, read_trace
from throughputs.errors import one_of
from throughputs.files import check_table_name, write_frame, write_text
from throughputs.predict.models import MODELS

_DAY = 86400.0
_TRUTH = "truth"

_MOST_BINS = 10_000_000
"""Bins of a run: a year of three seconds each."""


def nodes_command(
    trace: Path,
    nodes: AtLeastOne | None = None,
    gpus_per_node: AtLeastOne = 8,
    model: str = "fast",
    learn: float = 14.0,
    rule: Annotated[
        str,
        option(f"Published settings: {', '.join(PUBLISHED_SLEEP)}.", "NAME"),
    ] = "Venus",
    settings: list[str] | None = None,
    bin_seconds: float = 600.0,
    watts: NotNegative | None = None,
    origin: OriginOption = None,
    out: Path | None = None,
    report: Path | None = None,
    time_unit: TimeUnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """How many nodes might have slept, by a forecast of use, and who would have waited?

    Idle nodes are put to sleep where use has fallen and is forecast to fall further, and woken when they are needed:
    the rule of Helios (SC 2021). Jobs run as the trace recorded them, else from their arrival on, on as few nodes as
    hold their GPUs. docs/prediction.md has more.

    Parameters
    ----------
    trace : FILE|-
        The jobs, with their durations; -: standard input.
    nodes : COUNT
        Nodes of the cluster; the most in use if omitted.
    gpus_per_node : COUNT
        GPUs of each node.
    model : NAME
        Forecast: fast, interpretable, or truth (what came).
    learn : DAYS
        Days before the first forecast, in which none sleeps.
    settings : --set NAME=VALUE
        One of the settings of the rule; may be repeated.
    bin_seconds : --bin SECONDS
        Nodes are put to sleep and woken every so often.
    watts
        What an idle node draws more than one that sleeps.
    out : FILE
        Nodes in use and awake by bin, to write: .csv or .parquet.
    report : FILE
        Page to write: nodes over time, and the figures.
    """
    if out is not None:
        check_table_name(out)
    chosen = _rule(rule, settings or [])
    for name, value in (("--bin", bin_seconds), ("--learn", learn)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(name, found=value, expected="above 0")
    if watts is not None and not np.isfinite(watts):
        raise InputError("--watts", found=watts, expected="a number of watts")
    if model not in (*MODELS, _TRUTH):
        raise InputError("--model", found=model, expected=one_of(model, (*MODELS, _TRUTH)))
    offset = 0.0 if origin is None else since_monday(origin)
    jobs = read_trace(trace, time_unit_seconds=time_unit)
    start, end, recorded = _held(jobs)
    last = float(end.max(initial=0.0))
    if last / bin_seconds > _MOST_BINS:
        expected = f"at least {last / _MOST_BINS:g} s: at most {_MOST_BINS:,} bins up to the end of the last job"
        raise InputError("--bin", found=bin_seconds, expected=expected)
    gpus = jobs.scale_factor * jobs.gpu_fraction
    used = nodes_in_use(start, end, gpus, gpus_per_node, bin_seconds=bin_seconds)
    # After the last submission the log says nothing of what the cluster was asked for.
    used = used[: int(float(jobs.arrival_time.max(initial=0.0)) // bin_seconds) + 1]
    most = int(used.max(initial=0))
    if nodes is not None and nodes < most:
        expected = f"at least {most}, on which jobs ran at the same time"
        raise InputError("--nodes", found=nodes, expected=expected)
    first = round(min(learn * _DAY / bin_seconds, len(used)))
    if len(used) <= first + 1:
        found = f"{len(used) * bin_seconds / _DAY:.1f} days"
        raise InputError(trace, found=found, expected=f"more than the {learn:g} days of --learn")
    soon, later = (
        known_ahead(used, bins)
        if model == _TRUTH
        else use_ahead(used, bins, first=first, model=model, bin_seconds=bin_seconds, offset=offset)
        for bins in (chosen.future, 2 * chosen.future)
    )
    total = most if nodes is None else nodes
    kept = put_to_sleep(used[first:], total, soon[first:], later[first:], chosen, bin_seconds=bin_seconds)
    begin = first * bin_seconds
    wait = jobs_that_wait(start - begin, end - begin, gpus, gpus_per_node, kept)
    started = (start >= begin) & (start < len(used) * bin_seconds)
    figures = _figures(kept, int(wait.sum()), int(started.sum()), watts)
    page = None if report is None else render_sleep_page(kept, figures, source=jobs.source, begin=begin)
    if out is not None:
        import pandas as pd

        times = begin + np.arange(len(kept.awake)) * bin_seconds
        bins = {"time": times, "nodes_in_use": kept.used, "nodes_awake": kept.awake, "forecast_mean_use": kept.soon}
        write_frame(out, pd.DataFrame(bins))
    if report is not None and page is not None:
        write_text(report, page)
    if as_json:
        print_json(figures | {"model": model, "recorded_jobs": recorded})
        return
    for line in _lines(figures, jobs, recorded, out, report):
        console().print(line, soft_wrap=True, highlight=False)


def _rule(name: str, settings: Sequence[str]) -> SleepSettings:
    """The published settings of that name with those that are set."""
    if name not in PUBLISHED_SLEEP:
        raise InputError("--rule", found=name, expected=one_of(name, tuple(PUBLISHED_SLEEP)))
    given = named_values("--set", settings)
    return replace(PUBLISHED_SLEEP[name], **convert_all(given, kinds_of(SleepSettings), "--set", read=convert_text))


def _held(jobs: Trace) -> tuple[Any, Any, int]:
    """(N,) seconds at which each job began and ended to hold its GPUs, and how many of these were recorded."""
    recorded = ~np.isnan(jobs.recorded_end_seconds)
    start = np.where(recorded, jobs.recorded_start_seconds, jobs.arrival_time)
    end = np.where(recorded, jobs.recorded_end_seconds, jobs.arrival_time + jobs.duration)
    unknown = np.isnan(end)
    if unknown.any():
        row = int(np.argmax(unknown))
        expected = "seconds, or a recorded end"
        raise InputError(jobs.source, line=row + 1, field="duration", found="nothing", expected=expected)
    return start, end, int(recorded.sum())


def _figures(kept: NodeSleep, waited: int, started: int, watts: float | None) -> dict[str, Any]:
    """The summary of the rule, who waited, and energy; None for what is not known."""
    known = as_json(kept.summary())
    saved = None if watts is None else known["node_hours_asleep"] * watts / 1000.0
    return {
        "nodes": kept.total,
        **known,
        "jobs_that_waited": waited,
        "jobs_started": started,
        "energy_saved_kwh": saved,
    }


def _lines(figures: dict[str, Any], jobs: Trace, recorded: int, out: Path | None, report: Path | None) -> list[str]:
    def number(name: str, form: str = ",.1f", scale: float = 1.0) -> str:
        return "-" if figures[name] is None else f"{figures[name] * scale:{form}}"

    how = f"{recorded:,} of {len(jobs):,} jobs as recorded, the others from their arrival on"
    if recorded in (0, len(jobs)):
        how = "jobs as recorded" if recorded else "jobs run from their arrival on"
    lines = [
        f"{jobs.source}: {figures['nodes']:,} nodes, {figures['days']:.1f} days up to the last submission ({how})",
        f"  nodes asleep          {number('nodes_asleep')} on average, "
        f"{number('node_hours_asleep', ',.0f')} node hours",
        f"  changes a day         {number('daily_changes')}, upwards {number('daily_wakes')}",
        f"  nodes in use          {number('utilization_before', '.1f', 100)} % of all, "
        f"{number('utilization_after', '.1f', 100)} % of those awake",
        f"  jobs that had to wait {figures['jobs_that_waited']:,} of {figures['jobs_started']:,}, until nodes were up",
        f"  error of the forecast {number('forecast_smape')} % (symmetric, 0 to 200)",
    ]
    if figures["energy_saved_kwh"] is not None:
        lines.append(f"  energy saved          {number('energy_saved_kwh', ',.0f')} kWh")
    lines += [f"Bins: {out}"] if out is not None else []
    return lines + ([f"Page: {report}"] if report is not None else [])
