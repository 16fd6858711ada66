"""``allocator trace import`` and ``example-log``: job logs of one's own cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.inputs.description import print_description
from allocator.cli.inputs.examples import EXAMPLE_COLUMNS, example_log
from allocator.cli.options.groups import Given, option, options
from allocator.cli.options.shared import JsonOption, SeedOption, print_json
from allocator.cli.options.values import make_cluster, named_values, run_anywhere
from allocator.conversion import AtLeastOne, Positive, convert_all, convert_text
from throughputs import ImportedLog, describe_trace, import_log
from throughputs.files import check_table_name, write_text
from throughputs.shown import counted

DemandOption = Annotated[
    str | None,
    option(
        "--cluster",
        "GPUs by accelerator type, or a list of nodes (CSV), to set the demand of the jobs against.",
        "TYPE:COUNT,...|FILE",
    ),
]


_UNIT_OPTIONS = {"duration": "--duration-unit", "submit": "--clock-unit"}


class _Columns:
    """Fields of a job that a column of a log may hold, and what such a column says.

    Options
    -------
    submit : COLUMN
        When a job was submitted: a number, or a date (ISO 8601).
    duration : COLUMN
        How long it ran: a number, or [D-]HH:MM:SS.
    gpus : COLUMN
        Its GPUs: a number, or gres/gpu=N in text as of Slurm.
    user : COLUMN
        Who submitted it.
    account : COLUMN
        The account, team or project that it is charged to: its entity.
    limit : COLUMN
        Its time limit: a number, or [D-]HH:MM:SS; kept as predicted_seconds.
    model : COLUMN
        What it trains: the job type.
    fraction : COLUMN
        Share of each GPU, at most 1.
    utilization : COLUMN
        How much of its GPUs it used: percent, or shares up to 1.
    priority : COLUMN
        Its weight, above 0.
    deadline : COLUMN
        When it should be done, on the clock of --submit.
    partition : COLUMN
        The partition or queue that it was submitted to.
    steps : COLUMN
        Its training steps; without, a step is a second.
    gpu_type : COLUMN
        The type of its GPUs; without, what Slurm's resources say.
    id : COLUMN
        What it is called; kept as trace_id.
    start : COLUMN
        When it started; empty: never.
    end : COLUMN
        When it ended, for logs without durations.
    state : COLUMN
        Its state; of a job that is PENDING nothing is taken.
    """


def import_command(
    log: str,
    /,
    out: Path,
    given: Annotated[Given, options(_Columns)],
    duration_unit: str | None = None,
    clock_unit: str | None = None,
    zone: str | None = None,
    date_format: str | None = None,
    mapped: list[str] | None = None,
    weights: str | None = None,
    separator: str | None = None,
    strict: bool = False,
    cluster: DemandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a job log of one's own into a trace, which simulate and compare take as it is.

    Columns that no option names are told by their names, and what was guessed is printed. Jobs that cannot be used are
    left out and counted by reason. Ends with the description of the trace, with --cluster also of demand against GPUs.

    Parameters
    ----------
    log : FILE|-
        Job log: a table with a header, or what sacct -p, -P or --json printed; -: standard input.
    out : FILE
        Trace to write: .csv or .parquet.
    duration_unit : UNIT
        Unit of durations; told by the name of the column, else s.
    clock_unit : UNIT
        Unit of times that are numbers: ms, s, min, h or d.
    zone : NAME
        Zone of dates that name none; UTC if omitted.
    date_format : FORMAT
        Form of dates that are not ISO 8601, as '%d/%m/%Y %H:%M'.
    mapped : --map NAME=TYPE
        What a GPU type, the GPUs of a partition, or a model of the log is called here; repeatable.
    weights : NAME=WEIGHT,...
        Weights of the names in the column of --priority, else of QOS.
    separator : CHARACTER
        Between columns, if not , ; | or a tab.
    strict
        A job that cannot be used is an error.
    """
    check_table_name(out)
    asked = None if cluster is None else make_cluster(cluster, None)
    heavy = named_values("--weights", [] if weights is None else weights.split(","))
    imported = import_log(
        log,
        given,
        separator=separator,
        duration_unit=duration_unit,
        clock_unit=clock_unit,
        zone=zone,
        date_format=date_format,
        renamed=named_values("--map", mapped or []),
        weights=convert_all(heavy, dict.fromkeys(heavy, Positive), "--weights", read=convert_text) or None,
        strict=strict,
    )
    described = describe_trace(imported.trace, capacity=None if asked is None else asked.gpus)
    imported.write(out)
    if as_json:
        print_json(imported.as_dict() | {"out": str(out), "trace": described})
        return
    print_account(imported)
    if asked is not None and (imported.trace.gpu_type != "").any() and (line := run_anywhere(imported.trace, asked)[0]):
        typer.echo(f"note: {line}")
    typer.echo(f"{out}: {counted(len(imported.trace), 'job')}")
    print_description(described, title=str(out))


def print_account(imported: ImportedLog) -> None:
    """Print what was made of a log."""
    for line in _account(imported):
        typer.echo(line)


def _account(imported: ImportedLog) -> list[str]:
    """What was made of a log, in lines."""
    kind = "" if imported.kind == "table" else f" of {imported.kind}"
    lines = [f"{imported.source}: {counted(imported.rows, 'job')}{kind}; second 0 of the trace is {imported.origin}"]
    for field, column in imported.columns.items():
        unit = f" [{imported.units[field]}]" if field in imported.units else ""
        if field in imported.assumed and imported.kind == "table":
            unit += f"  (unit assumed; {_UNIT_OPTIONS[field]} says otherwise)"
        guess = (
            f"  (guessed; --{field.replace('_', '-')} says otherwise)"
            if column.guessed and imported.kind == "table"
            else ""
        )
        lines.append(f"  {field:<10}{column.name}{unit}{guess}")
    if imported.unread:
        lines.append(f"not read: {', '.join(imported.unread)}")
    if imported.left_out:
        lines.append(imported.left_out)
    return lines + [f"note: {note}" for note in imported.notes]


def example_command(
    out: Path,
    jobs: AtLeastOne = 200,
    seed: SeedOption = 0,
) -> None:
    """Write a job log as a cluster might keep it, to try `allocator trace import` with.

    Parameters
    ----------
    out : FILE
        File to write, as text with commas.
    jobs
        Number of jobs.
    """
    write_text(out, example_log(jobs, seed))
    typer.echo(f"{out}: {counted(jobs, 'job')}, with the columns {', '.join(EXAMPLE_COLUMNS)}")
