"""All calls of the library by goldens: its command line in this process, its list of policies, its files of results.

Where a public name, an option or a file of results changes, this file changes and no other one.
"""

from __future__ import annotations

import csv
import io
import json
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd

from allocator import InputError, list_policies
from allocator.cli import app

ROOT = Path(__file__).resolve().parents[2]

_TIMED = ("policy_seconds", "wall_seconds")
"""Figures of a summary that are wall times."""

_SHAPED = ("settings", "label", *_TIMED)
"""What is not kept of a summary: settings are what went in, and their names are free to change."""


def policy_names() -> list[str]:
    return [entry.name for entry in list_policies()]


def command(arguments: list[str]) -> tuple[str, dict[str, Any] | None]:
    """What `allocator ARGUMENTS` prints in the folder of the repository, and what it refuses, if it does.

    Of a refusal the error's type is told, and what it names, not its sentence.
    """
    printed = io.StringIO()
    with chdir(ROOT), redirect_stdout(printed), redirect_stderr(io.StringIO()):
        try:
            app(arguments, standalone_mode=False)
        except InputError as error:
            named = {name: str(getattr(error, name)) for name in ("source", "line", "field", "found")}
            return printed.getvalue(), {"error": "InputError", **named}
        except Exception as error:
            return printed.getvalue(), {"error": type(error).__name__}
    return printed.getvalue(), None


def simulate(arguments: list[str], folder: Path) -> dict[str, Any] | None:
    """`allocator simulate`, its results in `folder`; what is told of a refusal, if it is one."""
    return command(["simulate", *arguments, "--out", str(folder), "--json"])[1]


def simulate_line(arguments: list[str]) -> str:
    """The command of such a run, to be pasted in the folder of the repository."""
    quoted = (f"'{word}'" if any(sign in word for sign in " |()*") else word for word in arguments)
    return f"allocator simulate {' '.join(quoted)} --out OUT"


def jobs_text(folder: Path) -> str:
    return (folder / "jobs.csv").read_bytes().decode()


def summary(folder: Path) -> dict[str, Any]:
    figures = json.loads((folder / "summary.json").read_text())
    return {name: value for name, value in figures.items() if name not in _SHAPED}


def tables(folder: Path) -> dict[str, list[list[str]]]:
    """Every other table of the results: its header, then its rows as text with all digits."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".parquet":
            found[path.stem] = in_text(pd.read_parquet(path)).to_csv(index=False)
        elif path.suffix == ".csv" and path.stem != "jobs":
            found[path.stem] = path.read_text()
    return {name: list(csv.reader(io.StringIO(text))) for name, text in found.items()}


def in_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with lists of GPUs as text."""
    return table.assign(gpus=[" ".join(map(str, ids)) for ids in table["gpus"]]) if "gpus" in table else table
