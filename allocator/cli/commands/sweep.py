"""``allocator sweep``: many simulations, of every combination of policies, seeds, loads, clusters and settings."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.options.groups import option_groups
from allocator.cli.options.outputs import SWEPT
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.options.sweep import (
    DefinitionOptions,
    DrawnOptions,
    EveryOption,
    LoadOption,
    OutOption,
    PreloadOption,
    RunningOptions,
    TraceOption,
    numbers,
    stopped,
    window,
)
from allocator.cli.screen import rich_console
from allocator.sweep import Sweep, run
from allocator.sweep.store import Store
from allocator.sweep.summary import summary_table

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(no_args_is_help=True, help="Sweeps: policies x seeds x loads x clusters x settings, resumable.")

SOURCE = "allocator sweep"
SHOWN_ROWS = 60


@app.command("continuous")
@option_groups
def continuous_command(
    out: OutOption,
    rates: Annotated[str, typer.Option("--rates", help="Jobs per hour.", metavar="RATE,...|FIRST:LAST:COUNT")],
    definition: DefinitionOptions,
    drawn: DrawnOptions,
    running: RunningOptions,
    measured: Annotated[
        str, typer.Option("--window", help="Jobs FIRST to END-1 are measured.", metavar="FIRST:END")
    ] = "4000:5000",
    preload: PreloadOption = False,
    every_point: EveryOption = False,
) -> None:
    """Jobs arrive at a rate; those of a window in the middle are measured.

    A run beyond capacity is stopped and marked as saturated, and so are larger rates without running. Writes one row
    per run into DIR/results.parquet; `python -m pydoc allocator.sweep.store` describes the folder.
    """
    stated = definition.definition("continuous", drawn.workload(preload=preload))
    stated |= {"rates": numbers("--rates", rates), "window": window(measured), "skip_saturated": not every_point}
    _go(_sweep(stated), out, running)


@app.command("static")
@option_groups
def static_command(
    out: OutOption,
    jobs: Annotated[
        str, typer.Option("--jobs", help="Numbers of jobs, all there at time 0.", metavar="N,...|FIRST:LAST:COUNT")
    ],
    definition: DefinitionOptions,
    drawn: DrawnOptions,
    running: RunningOptions,
) -> None:
    """All jobs are there at the start; the makespan is what matters.

    Writes one row per run into DIR/results.parquet; `python -m pydoc allocator.sweep.store` describes the folder.
    """
    _go(_sweep(definition.definition("static", drawn.workload()) | {"jobs": numbers("--jobs", jobs)}), out, running)


@app.command("trace")
@option_groups
def trace_command(
    out: OutOption,
    trace: TraceOption,
    definition: DefinitionOptions,
    running: RunningOptions,
    load: LoadOption = "1",
) -> None:
    """All jobs of a trace, as they were submitted or so many times as often; all are measured.

    Writes one row per run into DIR/results.parquet; docs/sweeps.md describes the folder and the columns.
    """
    stated = definition.definition("trace", {"trace": str(trace)})
    _go(_sweep(stated | {"loads": numbers("--load", load)}), out, running)


@app.command("run")
@option_groups
def run_command(
    file: Annotated[Path, typer.Argument(help="Definition of a sweep (TOML).", metavar="FILE")],
    running: RunningOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the sweep; sweeps/NAME, or sweeps/NAME-small, if omitted.", metavar="DIR"
        ),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="The small variant that the file defines.")] = False,
) -> None:
    """Run a sweep from a file, or what is missing of it."""
    sweep = Sweep.from_toml(file, small=small)
    folder = out or Path("sweeps") / (f"{sweep.name}-small" if small else sweep.name)
    SWEPT.check("--out", folder)
    _go(sweep, folder, running)


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep.", metavar="DIR")],
    as_json: JsonOption = False,
) -> None:
    """Show the results of a sweep as far as it has come, and bring results.parquet up to date."""
    store = Store(folder)
    table = store.write_results()
    _print(table, store.contents(), as_json)


def _go(sweep: Sweep, out: Path, running: RunningOptions) -> None:
    """Run the sweep and print what came of it; status 1 if a run failed or was lost."""
    if running.plan:
        _print_plan(sweep, running.as_json)
        return
    screen = rich_console(stderr=True)
    try:
        # Ray prints what happens to its nodes; standard output is for results.
        with redirect_stdout(sys.stderr):
            table = run(
                sweep,
                out,
                jobs=running.parallel,
                engine=running.checked_engine(),
                address=running.address,
                retry_failed=running.retry_failed,
                console=screen,
            )
    except KeyboardInterrupt:
        stopped(out)
    contents = Store(out).contents()
    _print(table, contents, running.as_json)
    lost = len(contents["points"]) - len(table)
    failed = int((table["status"] == "failed").sum()) if len(table) else 0
    if failed:
        typer.echo(f"{failed} runs failed; their logs are in {out / 'logs'}", err=True)
    if lost:
        typer.echo(f"{lost} runs were lost; run the same command again to make up for them", err=True)
    if failed or lost:
        raise typer.Exit(1)


def _sweep(definition: dict[str, Any]) -> Sweep:
    return Sweep.from_dict(definition, source=SOURCE)


def _print_plan(sweep: Sweep, as_json: bool) -> None:
    points = sweep.points()
    if as_json:
        print_json([point.specification() | {"point": point.key} for point in points])
        return
    screen = console()
    for point in points:
        screen.print(f"{point.key}  {point.label} on {point.cluster}", markup=False, highlight=False, soft_wrap=True)
    screen.print(f"{len(points)} points")


def _print(table: pd.DataFrame, contents: dict[str, Any], as_json: bool) -> None:
    if as_json:
        rows = json.loads(table.to_json(orient="records")) if len(table) else []
        print_json({"name": contents["name"], "points": len(contents["points"]), "results": rows})
        return
    screen = console()
    if len(table):
        screen.print(summary_table(table, title=contents["name"], rows=SHOWN_ROWS))
    screen.print(f"{len(table)} of {len(contents['points'])} points have results")
