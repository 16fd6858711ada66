"""``allocator sweep``: many simulations, of every combination of policies, seeds, loads, clusters and settings."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.options.groups import Commands, Given, option, options
from allocator.cli.options.outputs import SWEPT as FOLDER
from allocator.cli.options.shared import JsonOption, check_picture, console, kind_of, print_json, say
from allocator.cli.options.sweep import (
    DRAWN,
    RUNNING,
    SWEPT,
    definition,
    numbers,
    stopped,
    window,
)
from allocator.cli.screen import rich_console
from allocator.experiments.definition import Sweep
from allocator.experiments.runner import run
from allocator.experiments.store import Store
from allocator.experiments.summary import swept, table
from allocator.experiments.workloads import Workload
from allocator.studies import tables
from throughputs import InputError
from throughputs.files import write_text

if TYPE_CHECKING:
    import pandas as pd

    from allocator.studies.study import Study

app = Commands()

SOURCE = "allocator sweep"
SHOWN_ROWS = 60


@app.command("continuous")
def continuous_command(
    out: Path,
    rates: str,
    given: Annotated[Given, SWEPT, DRAWN, options(Workload, "preload")],
    running: Annotated[Given, RUNNING],
    measured: str = "4000:5000",
    every_point: bool = False,
) -> None:
    """Jobs arrive at a rate; those of a window in the middle are measured.

    A run beyond capacity is stopped and marked as saturated, and so are larger rates without running. Writes one row
    per run into DIR/results.parquet; `python -m pydoc allocator.experiments.store` describes the folder.

    Parameters
    ----------
    out : DIR
        Folder of the sweep; run again to continue.
    rates : RATE,...|FIRST:LAST:COUNT
        Jobs per hour.
    measured : --window FIRST:END
        Jobs FIRST to END-1 are measured.
    every_point
        Run points beyond saturation too.
    """
    more = {"rates": numbers("--rates", rates), "window": window(measured), "skip_saturated": not every_point}
    _go(Sweep.from_dict(definition(given, "continuous", **more), source=SOURCE), out, running)


@app.command("static")
def static_command(
    out: Path,
    jobs: str,
    given: Annotated[Given, SWEPT, DRAWN],
    running: Annotated[Given, RUNNING],
) -> None:
    """All jobs are there at the start; the makespan is what matters.

    Writes one row per run into DIR/results.parquet; `python -m pydoc allocator.experiments.store` describes the folder.

    Parameters
    ----------
    out : DIR
        Folder of the sweep; run again to continue.
    jobs : N,...|FIRST:LAST:COUNT
        Numbers of jobs, all there at time 0.
    """
    _go(Sweep.from_dict(definition(given, "static", jobs=numbers("--jobs", jobs)), source=SOURCE), out, running)


@app.command("trace")
def trace_command(
    out: Path,
    trace: Path,
    given: Annotated[Given, SWEPT],
    running: Annotated[Given, RUNNING],
    load: str = "1",
) -> None:
    """All jobs of a trace, as they were submitted or so many times as often; all are measured.

    Writes one row per run into DIR/results.parquet; docs/sweeps.md describes the folder and the columns.

    Parameters
    ----------
    out : DIR
        Folder of the sweep; run again to continue.
    trace : FILE
        Jobs as they were submitted.
    load : FACTOR,...|FIRST:LAST:COUNT
        How many times as often as in the trace jobs arrive; a deadline moves with the arrival of its job.
    """
    given = Given(given, trace=str(trace))
    _go(Sweep.from_dict(definition(given, "trace", loads=numbers("--load", load)), source=SOURCE), out, running)


@app.command("run")
def run_command(
    file: Path,
    /,
    running: Annotated[Given, RUNNING],
    out: Path | None = None,
    small: bool = False,
) -> None:
    """Run a sweep from a file, or what is missing of it.

    Parameters
    ----------
    file : FILE
        Definition of a sweep (TOML).
    out : DIR
        Folder of the sweep; sweeps/NAME, or sweeps/NAME-small, if omitted.
    small
        The small variant that the file defines.
    """
    sweep = Sweep.from_toml(file, small=small)
    folder = out or Path("sweeps") / (f"{sweep.name}-small" if small else sweep.name)
    FOLDER.check("--out", folder)
    _go(sweep, folder, running)


@app.command("show")
def show_command(
    folder: Path,
    /,
    as_json: JsonOption = False,
) -> None:
    """Show the results of a sweep as far as it has come, and bring results.parquet up to date.

    Parameters
    ----------
    folder : DIR
        Folder of a sweep.
    """
    store = Store(folder)
    _print(store.write_results(), store.contents(), as_json)


FiguresOption = Annotated[
    str | None, option("--figures", "Columns of results.parquet, as average_jct,makespan.", "NAME,...")
]


@app.command("plot")
def plot_command(
    folder: Path,
    /,
    out: Path,
    figures: FiguresOption = None,
    width: Annotated[
        float | None, option("Width of the picture; panels have at least 3 in.", "INCHES", min=1.0)
    ] = None,
) -> None:
    """Draw the results of a sweep: a line per series against the load, bars where there is one load.

    Means over seeds with their 95 % intervals. A load at which a run has saturated is marked and has no mean.

    Parameters
    ----------
    folder : DIR
        Folder of a sweep.
    out : FILE.pdf|FILE.svg|FILE.png
        The picture.
    """
    check_picture("--out", out)
    study, results = _swept(folder, figures)
    assert study.draw is not None
    tables.save_picture(study.draw(study, results, within=width), out)
    print(f"wrote {out}")


@app.command("export")
def export_command(
    folder: Path,
    /,
    out: Path,
    figures: FiguresOption = None,
) -> None:
    """Write the results of a sweep as a table: a row per series and load, means over seeds with 95 % intervals.

    CSV has numbers, with half the width of each interval in a column of its own; LaTeX needs the package booktabs.

    Parameters
    ----------
    folder : DIR
        Folder of a sweep.
    out : FILE.csv|FILE.tex
        The table.
    """
    as_csv = kind_of("--out", out, "csv", "tex") == "csv"
    study, results = _swept(folder, figures)
    write_text(out, tables.csv(study.numbers(results)) if as_csv else tables.latex(study.table(results)))
    print(f"wrote {out}")


def _swept(folder: Path, figures: str | None) -> tuple[Study, pd.DataFrame]:
    store = Store(folder)
    names = None if figures is None else [name.strip() for name in figures.split(",")]
    results = store.write_results()
    if len(results) and "completed" not in set(results["status"]):
        raise InputError(folder, found="no run that completed", expected="one of which figures are known")
    return swept(results, store.contents()["name"], names)


def _go(sweep: Sweep, out: Path, running: Given) -> None:
    """Run the sweep and print what came of it; status 1 if a run failed or was lost."""
    as_json, engine = running.get("as_json", False), running["engine"]
    if running.get("plan"):
        _print_plan(sweep, as_json)
        return
    if engine not in ("local", "ray"):
        raise InputError("--engine", found=engine, expected="local or ray")
    try:
        # Ray prints what happens to its nodes; standard output is for results.
        with redirect_stdout(sys.stderr):
            results = run(
                sweep,
                out,
                jobs=running.get("parallel"),
                engine=engine,
                console=rich_console(stderr=True),
                **running.some(("address", "retry_failed")),
            )
    except KeyboardInterrupt:
        stopped(out)
    contents = Store(out).contents()
    _print(results, contents, as_json)
    lost = len(contents["points"]) - len(results)
    failed = int((results["status"] == "failed").sum()) if len(results) else 0
    if failed:
        say(f"{failed} runs failed; their logs are in {out / 'logs'}")
    if lost:
        say(f"{lost} runs were lost; run the same command again to make up for them")
    if failed or lost:
        raise typer.Exit(1)


def _print_plan(sweep: Sweep, as_json: bool) -> None:
    points = sweep.points()
    if as_json:
        print_json([point.specification() | {"point": point.key} for point in points])
        return
    screen = console()
    for point in points:
        screen.print(f"{point.key}  {point.label} on {point.cluster}", markup=False, highlight=False, soft_wrap=True)
    screen.print(f"{len(points)} points")


def _print(results: pd.DataFrame, contents: dict[str, Any], as_json: bool) -> None:
    if as_json:
        rows = json.loads(results.to_json(orient="records")) if len(results) else []
        print_json({"name": contents["name"], "points": len(contents["points"]), "results": rows})
        return
    screen = console()
    if len(results):
        screen.print(table(*swept(results, contents["name"]), SHOWN_ROWS))
    screen.print(f"{len(results)} of {len(contents['points'])} points have results")
