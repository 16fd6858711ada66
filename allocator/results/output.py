"""The tables of a run, and these as files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.results.tables import capacity_table, decisions_table, rates_table, shares_table
from throughputs import InputError
from throughputs.errors import did_you_mean
from throughputs.files import JsonObject, read_json, write_frame, write_json

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.result import SimulationResult

COMMANDS = "allocator simulate, compare or record --out"

EXPLAINED = {
    "jobs.csv": True,
    "rounds.parquet": True,
    "timeline.parquet": True,
    "rates.parquet": True,
    "capacity.parquet": False,
    "decisions.parquet": False,
    "shares.parquet": False,
}
"""Tables that explanations are read from, and whether every run has them."""

_TABLES: dict[str, Callable[[SimulationResult], pd.DataFrame | None]] = {
    "jobs.csv": lambda run: run.jobs,
    "rounds.parquet": lambda run: run.rounds,
    "timeline.parquet": lambda run: run.timeline,
    "efficiency.csv": lambda run: run.efficiency if len(run.efficiency) else None,
    "fragmentation.parquet": lambda run: run.fragmentation if len(run.fragmentation) else None,
    "rates.parquet": lambda run: rates_table(run.record),
    "capacity.parquet": lambda run: capacity_table(run.record),
    "decisions.parquet": lambda run: decisions_table(run.record, run.decisions),
    "shares.parquet": lambda run: shares_table(run.record, run.decisions),
}


def tables_of(result: SimulationResult, names: Iterable[str] = tuple(_TABLES)) -> dict[str, pd.DataFrame]:
    """Those of the tables that a run has, by the names of their files."""
    tables = {name: _TABLES[name](result) for name in names}
    return {name: table for name, table in tables.items() if table is not None}


def save_result(result: SimulationResult, directory: str | Path) -> JsonObject:
    """Write summary.json, jobs.csv, rounds.parquet and timeline.parquet into a directory; returns the summary.

    There is also efficiency.csv if jobs have deadlines and their throughput by number of GPUs is known,
    fragmentation.parquet where servers have several GPUs; and for `allocator.explain` rates.parquet, capacity.parquet
    where GPUs came or went, and decisions.parquet and shares.parquet where the policy decided on shares of time. The
    directory is made if needed. Each file is replaced in one step, the summary last: where it stands, the run is
    complete.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # that of a run which was here before tells nothing of the files that follow
    (directory / "summary.json").unlink(missing_ok=True)
    tables = tables_of(result)
    for name in _TABLES:
        if name in tables:
            write_frame(directory / name, tables[name])
        else:
            (directory / name).unlink(missing_ok=True)
    summary = summary_of(result)
    write_json(directory / "summary.json", summary)
    return summary


def as_json(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists, and numbers that are infinite or do not exist as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summary_of(result: SimulationResult) -> JsonObject:
    """The summary of a run with the servers of its cluster and its settings, ready for JSON."""
    servers = {"gpus_per_server": dict(result.cluster.gpus_per_server)}
    return dict(result.summary()) | servers | {"settings": result.settings}


def read_summary(folder: Path) -> JsonObject:
    """The summary of a run in a folder.

    Raises
    ------
    InputError
        No such folder, or one that holds no run; if it holds some, which.
    """
    if not folder.is_dir():
        beside = [path.parent.name for path in folder.parent.glob("*/summary.json")]
        hint = did_you_mean(folder.name, beside)
        raise InputError(folder, found="no such folder", expected=f"the folder of a run{hint}")
    if not (folder / "summary.json").is_file():
        inside = sorted(path.parent.name for path in folder.glob("*/summary.json"))
        which = f"one of the runs in it: {', '.join(inside)}" if inside else f"a folder that {COMMANDS} wrote"
        raise InputError(folder, found="no summary.json", expected=which)
    summary = read_json(folder / "summary.json")
    if not isinstance(summary, dict):
        raise InputError(folder / "summary.json", found=type(summary).__name__, expected=f"what {COMMANDS} writes")
    return summary
