"""Policies for deadlines beside each other: ElasticFlow, its baselines, Chronus (docs/deadlines.md).

    python -m benchmarks deadlines --quick
    python -m benchmarks deadlines --study end_to_end --study ablation
    python -m benchmarks deadlines --study clusters --processes 2       # ten clusters, 70,000 jobs; can be continued

Every study is one or more sweeps, kept run by run under ``--folder``: what is there is not made again.

Figures (key ``deadlines`` of the JSON file): for each study its rows, one for each run, with study, label, case,
cluster, jobs, seed, status, status_detail, deadline_ratio, admitted, rejected, late, best_effort_average_jct,
average_jct, cluster_efficiency, wasted_gpu_hours, cpu_seconds; null where there is nothing to measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from benchmarks.deadlines.inputs import Inputs
from benchmarks.deadlines.published import TESTBED_RATIOS
from benchmarks.deadlines.report import rows_of, tables
from benchmarks.deadlines.studies import (
    AS_PUBLISHED,
    ONE_BY_ONE,
    OURS,
    REPAIR,
    STUDIES,
    efficiency_over_time,
    run_study,
)

__all__ = [
    "ALL",
    "AS_PUBLISHED",
    "FOLDER",
    "OURS",
    "REPAIR",
    "STUDIES",
    "TESTBED_RATIOS",
    "Inputs",
    "add_arguments",
    "efficiency_over_time",
    "measure",
    "options_from",
    "run_study",
    "table",
]

ALL = (*STUDIES, *ONE_BY_ONE)
"""Names of the studies."""

FOLDER = Path("benchmarks/results/deadlines")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this study."""
    group = parser.add_argument_group("deadlines", "what the study `deadlines` runs; everything by default")
    group.add_argument("--study", action="append", choices=ALL, help="may be repeated")
    group.add_argument("--folder", type=Path, default=FOLDER, help="where runs are kept; they are not made again")
    group.add_argument("--processes", type=int, help="runs at a time; all cores if it is left out")


def options_from(chosen: argparse.Namespace) -> dict[str, Any]:
    """Settings from the command line, for `measure`."""
    names = tuple(dict.fromkeys(chosen.study or ALL))
    return {"studies": names, "folder": chosen.folder, "processes": chosen.processes}


def measure(
    *,
    quick: bool,
    console: Console,
    studies: tuple[str, ...] = ALL,
    folder: Path = FOLDER,
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """The rows of the studies, one for each run."""
    folder = folder / ("small" if quick else "full")
    inputs = Inputs.found(folder / "inputs")
    rows: list[dict[str, Any]] = []
    for name in studies:
        console.print(f"[bold]{name}[/bold]")
        results = run_study(name, folder, small=quick, inputs=inputs, jobs=processes, console=console)
        rows += rows_of(name, results)
    return rows


def table(rows: list[dict[str, Any]]) -> RenderableType:
    """The rows for people, a table for each study."""
    return tables(rows)
