"""``allocator profile``: how fast a program runs on what there is."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.options.outputs import SPREAD
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.options.values import distinct_numbers, named_value
from allocator.conversion import AtLeastOne
from allocator.runtime.adapters.base import AdapterError
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.profiling import Figure, Program, Window, measure, spread_frame, table_of
from throughputs import InputError, read_table, write_table
from throughputs.files import TABLE_KINDS, file_kind, read_frame, write_frame
from throughputs.tables.files import merged_tables

if TYPE_CHECKING:
    import pandas as pd


def profile_command(
    command: list[str],
    /,
    job_type: str,
    out: Path | None = None,
    into: Path | None = None,
    virtual: str | None = None,
    gpus: str = "1",
    seconds: float = 10.0,
    warm_up: float = 0.0,
    repeats: AtLeastOne = 3,
    colocate: str | None = None,
    colocate_type: str | None = None,
    pattern: str | None = None,
    patience: float = 300.0,
    per_gpu: bool = False,
    environment: list[str] | None = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how many steps per second a program makes, by accelerator type and number of GPUs.

    The figures make a throughput table, which --throughputs of solve, simulate and serve takes. Their spread is
    printed, and kept beside the table in a file that ends in .spread.csv.

    Parameters
    ----------
    command : -- COMMAND...
        The command and its arguments, after --. No shell reads them.
    job_type : --type NAME
        Its name in the throughput table.
    out : FILE
        The throughput table: .json, .csv or .parquet.
    into : FILE
        A table that the figures are added to; it is replaced unless --out is given.
    virtual : TYPE:COUNT,...
        Accelerators that need not exist; if omitted the NVIDIA GPUs of this machine.
    gpus : COUNT,...
        Numbers of GPUs.
    seconds : SECONDS
        Training that is measured each time, and two steps.
    warm_up : SECONDS
        After the first step, before it is measured.
    repeats
        Starts in each place.
    colocate : COMMAND
        Another command, to be measured on the same GPUs, in one argument.
    colocate_type : NAME
        Its name; that of --type if omitted.
    pattern : --steps-pattern REGEX
        Finds steps in the output of a program that does not report them: a group is their number, without one
        each match is a step.
    patience : SECONDS
        Without a step, after which it is given up.
    per_gpu : --process-per-gpu
        Start it once for each GPU, with the variables of torchrun.
    environment : --env NAME=VALUE
        A variable; may be repeated.
    """
    target = _target(out, into)
    SPREAD.check("--out, --into", _spread_file(target))
    for name, value in (("--seconds", seconds), ("--patience", patience)):
        if not value > 0:
            raise InputError(name, found=value, expected="seconds, above 0")
    how: dict[str, Any] = {
        "pattern": _pattern(pattern),
        "working_directory": Path.cwd(),
        "environment": dict(named_value("--env", text) for text in environment or []),
        "one_process_per_gpu": per_gpu,
    }
    programs = [Program(job_type, tuple(command), **how)]
    if colocate is not None:
        programs.append(Program(colocate_type or job_type, _arguments(colocate), **how))
    known = None if into is None or not into.exists() else read_table(into)
    accelerators = None if virtual is None else virtual_accelerators(virtual)
    window, counts = Window(seconds, max(warm_up, 0.0), patience), distinct_numbers("--gpus", gpus, AtLeastOne)
    with tempfile.TemporaryDirectory(prefix="allocator-profile-") as folder:
        state = Path(folder)
        told = _silent if as_json else _told
        try:
            adapter = LocalAdapter(state, accelerators)
            figures = asyncio.run(measure(adapter, state, programs, counts, window, repeats, told))
        except AdapterError as error:
            raise InputError("--virtual", found=str(error), expected="accelerators") from None
    table = table_of(figures, str(target))
    write_table(table if known is None else merged_tables(known, table), target)
    spread = spread_frame(figures)
    beside = _spread_file(target)
    write_frame(beside, _merged_spread(beside if into is not None else None, spread))
    _show(spread, target, beside, as_json)


def _target(out: Path | None, into: Path | None) -> Path:
    target = out or into
    if target is None:
        raise InputError("--out, --into", found="neither", expected="a file for the throughput table")
    if file_kind(target) not in ("json", *TABLE_KINDS):
        raise InputError("--out, --into", found=str(target), expected="a name ending in .json, .csv or .parquet")
    return target


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InputError("--steps-pattern", found=text, expected=f"a regular expression ({error})") from None


def _arguments(text: str) -> tuple[str, ...]:
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError("--colocate", found=text, expected=f"a command ({error})") from None
    if not arguments:
        raise InputError("--colocate", found=text, expected="a command")
    return arguments


def _spread_file(table: Path) -> Path:
    return table.with_name(f"{table.name.partition('.')[0]}.spread.csv")


def _merged_spread(path: Path | None, spread: pd.DataFrame) -> pd.DataFrame:
    """With the rows of a file that were not measured anew."""
    import pandas as pd

    if path is None or not path.exists():
        return spread
    before, _ = read_frame(path)
    place = ["job_type", "scale_factor", "accelerator", "other_job_type"]
    before = before.astype({"scale_factor": "int64"}).fillna({"other_job_type": ""})
    return pd.concat([before, spread]).drop_duplicates(place, keep="last")


def _silent(_: Figure) -> None:
    pass


def _told(figure: Figure) -> None:
    names = " beside ".join(figure.job_types)
    rates = ", ".join(f"{rate:.4g}" for rate in figure.rates[-1])
    line = f"{names} on {figure.gpus} x {figure.accelerator}: {rates} steps/s"
    console().print(line, style="dim", highlight=False, markup=False)


def _show(spread: pd.DataFrame, target: Path, beside: Path, as_json: bool) -> None:
    rows: list[dict[Any, Any]] = spread.to_dict("records")
    if as_json:
        print_json({"table": os.fspath(target), "spread": os.fspath(beside), "figures": rows})
        return
    from rich.markup import escape
    from rich.table import Table

    shown = Table()
    for name in ("job type", "beside", "GPUs", "on", "steps/s", "quartiles", "n"):
        shown.add_column(name, justify="left" if name in ("job type", "beside", "on") else "right")
    for row in rows:
        shown.add_row(
            escape(row["job_type"]),
            escape(row["other_job_type"]),
            str(row["scale_factor"]),
            row["accelerator"],
            f"{row['median']:.4g}",
            f"{row['lower_quartile']:.4g} to {row['upper_quartile']:.4g}",
            str(row["measurements"]),
        )
    console().print(shown)
    console().print(f"Throughput table: {target}; spread: {beside}", soft_wrap=True)
