"""Scenarios, run as a sweep: side by side if wanted, and only what a folder does not hold yet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from allocator.cluster import Cluster
from allocator.scenarios.definition import Planned, Scenarios
from allocator.scenarios.logged import recorded_row
from allocator.scenarios.output import write_scenarios
from allocator.scenarios.result import NextGpus, Row, WhatIf
from allocator.sweep import Point, run
from allocator.sweep.store import NOT_OF_SATURATED, Store
from allocator.variants import read_variants
from throughputs import InputError, Trace, write_trace
from throughputs.files import read_frame
from throughputs.goodput.trainings.finding import EMBEDDED

if TYPE_CHECKING:
    from rich.console import Console

RUNS = "runs"
"""Folder of the sweep inside that of the scenarios."""


def whatif(
    trace: Trace | str | os.PathLike[str],
    clusters: Sequence[Cluster | str | Mapping[str, int]] | Cluster | str,
    policies: Sequence[str] | str = "fifo",
    *,
    loads: Sequence[float] = (1.0,),
    restart_penalties: Sequence[float] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    throughputs: str | os.PathLike[str] | None = None,
    prices: Mapping[str, float] | str | os.PathLike[str] | None = None,
    slos: bool = False,
    whole_gpus: bool = False,
    entities_by: str | None = None,
    seed: int = 0,
    next_gpus: int | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    console: Console | None = None,
) -> WhatIf:
    """What would happen to the jobs of a trace on other clusters, at other loads, under other policies.

    >>> from throughputs import TraceGenerator
    >>> trace = TraceGenerator(n_jobs=10, mean_interarrival=600, seed=1).generate()
    >>> whatif(trace, ["v100:4", "v100:8"], next_gpus=0).table["average_jct_ratio"].round(2).tolist()
    [1.0, 0.84]

    Parameters
    ----------
    trace : the jobs, or the file that they are in.
    clusters : one or several, the first of which the others are compared with.
    policies : names, each with settings of its own where wanted, as in ``"elasticflow:admission=repair"``.
    loads : how many times as often jobs arrive; their times of submission are divided by it, and a deadline on the
        clock moves with the arrival of its job.
    restart_penalties : what it costs every gang to start, seconds; that of the preset if there is none.
    vary, settings : settings with several values and with one, by name, "preset" included, as in a sweep.
    throughputs : file of a throughput table. On GPUs of one type, or of types that are equally fast, none is needed.
    prices : dollars per GPU hour by type, or a file of histories.
    slos : draw a deadline for jobs without one.
    whole_gpus : jobs that ask for a fraction of a GPU have it whole.
    entities_by : "user" or "partition": those of the trace become entities, of equal weight.
    seed : of everything that is drawn.
    next_gpus : simulate each row also with so many more GPUs of each type; 0: not; None: 1 where that takes few runs.
    out : folder for table, page and runs; what it holds already is not run again. None: nothing is kept.
    jobs : runs at a time, in processes of their own; 1: one after the other, in this process.
    console : where progress goes; None: nowhere.

    Returns
    -------
    WhatIf
        `table`, `next_gpus` and the rows with their tables of jobs; prints itself in about ten lines.

    Raises
    ------
    InputError
        Something that cannot be used, told before anything runs.
    """
    listed = [clusters] if isinstance(clusters, Cluster | str | Mapping) else clusters
    workload = {
        "slos": slos,
        "whole_gpus": whole_gpus or None,
        "entities_by": entities_by,
        "throughputs": None if throughputs is None else _named(throughputs),
        "prices": dict(prices) if isinstance(prices, Mapping) else prices and str(Path(prices).resolve()),
    }
    with tempfile.TemporaryDirectory() as passing:
        file, name = Path(passing) / "trace.csv", trace.source if isinstance(trace, Trace) else str(trace)
        if isinstance(trace, Trace):
            write_trace(trace, file)
        scenarios = Scenarios(
            trace=str(file if isinstance(trace, Trace) else Path(trace).resolve()),
            clusters=tuple(map(Cluster.of, listed)),
            policies=tuple(read_variants(policies if isinstance(policies, str) else ",".join(policies))),
            loads=tuple(loads),
            restart_penalties=tuple(restart_penalties),
            vary=vary or {},
            workload={name: value for name, value in workload.items() if value is not None},
            settings=settings or {},
            seed=seed,
            next_gpus=next_gpus,
        )
        folder = Path(passing if out is None else out)
        result = run_scenarios(scenarios, folder, jobs=jobs, console=console, name=name)
        if out is not None:
            write_scenarios(result, folder)
    return result


def run_scenarios(
    scenarios: Scenarios, folder: Path, *, jobs: int = 1, console: Console | None = None, name: str | None = None
) -> WhatIf:
    """Run what `folder` does not hold yet of the scenarios, `jobs` at a time, and set the rows side by side.

    `name` is what the trace is called, its file if omitted; other parameters and errors as for `whatif`.
    """
    if jobs < 1:
        raise InputError("jobs", found=jobs, expected="at least 1")
    store, planned, labels = Store(folder / RUNS), scenarios.rows(), scenarios.labels()
    engine: Literal["serial", "local"] = "serial" if jobs == 1 else "local"
    names = _names(planned, labels, scenarios.more_gpus)
    run(scenarios.sweep, store.folder, jobs=jobs, engine=engine, console=console, names=names)
    points = [point for row in planned for point in (row.point, *row.larger.values())]
    records = store.records((point.key for point in points), with_jobs=True)
    rows = tuple(
        _row(row, label, records, store, scenarios.more_gpus) for row, label in zip(planned, labels, strict=True)
    )
    n_jobs = max((int(row.figures.get("jobs") or 0) for row in rows), default=0)
    recorded, told = recorded_row(scenarios, rows[0])
    return WhatIf(rows, scenarios.trace if name is None else name, n_jobs, scenarios.more_gpus, recorded, told)


def _names(planned: Sequence[Planned], labels: Sequence[str], gpus: int) -> dict[str, str]:
    """What progress calls the runs: after the rows, and what they have more."""
    larger = {
        point.key: f"{label} + {gpus} {name}"
        for row, label in zip(planned, labels, strict=True)
        for name, point in row.larger.items()
    }
    return larger | {row.point.key: label for row, label in zip(planned, labels, strict=True)}


def _row(row: Planned, label: str, records: Mapping[str, Any], store: Store, more_gpus: int) -> Row:
    record = _record(row.point, records)
    prices = record["prices"]
    average, unit = prices.get("average_prices", {}), prices.get("price_unit", "")
    return Row(
        label,
        row.cluster,
        row.load,
        row.restart_penalty,
        row.varied,
        row.policy.label,
        record["status"],
        record["status_detail"],
        record["figures"],
        average,
        unit,
        tuple(
            _next(name, more_gpus, _record(point, records), average.get(name), unit)
            for name, point in row.larger.items()
        ),
        _jobs(row.point, record, store),
    )


def _next(name: str, gpus: int, record: Mapping[str, Any], price: float | None, unit: str) -> NextGpus:
    return NextGpus(name, gpus, record["status"], record["status_detail"], record["figures"], price, unit)


def _record(point: Point, records: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is kept of a run; without figures where it failed or its process was killed.

    Of a run that was cut short those remain that do not depend on which jobs happened to complete.
    """
    lost = {"status": "lost", "status_detail": "its process ended; run it again", "figures": {}}
    record: dict[str, Any] = {"prices": {}} | records.get(point.key, lost)
    figures = {} if record["status"] == "failed" else dict(record["figures"])
    if record["status"] == "saturated":
        figures |= dict.fromkeys(figures.keys() & set(NOT_OF_SATURATED))
    return record | {"figures": figures}


def _jobs(point: Point, record: Mapping[str, Any], store: Store) -> Any:
    return read_frame(store.jobs_path(point.key))[0] if record["figures"] else None


def _named(throughputs: str | os.PathLike[str]) -> str:
    """The file or folder from wherever it is read, or the name of the embedded profiles."""
    path = Path(throughputs)
    return EMBEDDED if str(path) == EMBEDDED and not path.exists() else str(path.resolve())
