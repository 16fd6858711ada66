"""How long a decision takes: families of problems x sizes x paths, ours beside what one would use otherwise.

    python -m benchmarks solvers --quick
    python -m benchmarks solvers --decision max_min --family distinct --sizes 128,1024,8192 --plot solvers.png

A decision is timed from arrays (for the plain path: dictionaries) to shares. For our own paths that includes the
proof and the choice among optima; a peer's answer is scaled into the feasible set and compared with the best bound
that our paths proved for the same problem. Each repetition gets fresh objects, so nothing is kept from the last one,
except by `cvxpy_parameters`, which is compiled once.

A new family, decision or path is one function under a decorator of `benchmarks.solvers.problems`, there or in
`benchmarks.solvers.paths`.

Rows
----
One per problem and path, with

- decision, family, jobs, types, path, kind ("own" or "peer");
- outcome: "measured", "skipped" or "failed", and the reason where not measured;
- status: the path's own word ("optimal" of ours is proven); solver: whose answer; iterations, as that solver counts;
- repetitions; cpu_seconds and wall_seconds: medians; CPU time counts all threads;
- prepare_seconds: wall time before the first decision (compilation of parameters, dictionaries), not in the others;
- build_seconds, solve_seconds, recover_seconds: median wall seconds of phases. Ours: recover is the choice among
  optima, the proof is part of solve. cvxpy: compiling is build;
- objective, bound, gap (relative), violation: largest violation of a row as the path left it, relative;
- held_by_one_job: whether a single job that could do no better alone fixes the optimum (an easy instance);
- ratio: CPU time of the plain path over this one's, in the same run; null without it;
- memory_bytes, memory_factor: see `benchmarks.solvers.measure.peak_memory`; null unless asked for.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import tables
from benchmarks.solvers.measure import PROBLEM, Chosen, against_targets, runs
from benchmarks.solvers.problems import DECISIONS, FAMILIES, PATHS
from benchmarks.study import Study
from benchmarks.tables import Shown, duration

__all__ = ["STUDY", "add_arguments", "options_from", "study"]


@dataclass(frozen=True)
class Solvers(Study):
    """Tables by decision, what was not measured and why, and the targets.

    Attributes
    ----------
    plot : picture of time against jobs, as PNG and SVG; None: none.
    """

    plot: Path | None = None

    def table(self, results: pd.DataFrame) -> pd.DataFrame:
        """What was measured."""
        return super().table(results[results["outcome"] == "measured"])

    def on_screen(self, results: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Tables by title."""
        measured = results[results["outcome"] == "measured"].copy()
        measured["problem"] = list(map(_problem, measured.itertuples()))
        made = {
            f"{decision}: {self.title}": tables.table(rows, ("problem", "path"), self.shown)
            for decision, rows in measured.groupby("decision", sort=False)
        }
        made["Not measured"] = _not_measured(results[results["outcome"] != "measured"])
        made["Targets for auto"] = _aimed_at(against_targets(results))
        return {title: cells for title, cells in made.items() if len(cells)}

    def write(self, results: pd.DataFrame, stem: Path) -> list[Path]:
        """Write the first table, and the picture where one is asked for."""
        from benchmarks.solvers.plot import draw

        return [*super().write(results, stem), *(draw(results, self.plot) if self.plot else ())]


def _not_measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Each path and reason once, whatever the figures in it, with the number of problems that it holds for."""
    told: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for row in rows.to_dict("records"):
        reason = f"{row['outcome']}: {row['reason'].splitlines()[0][:90]}"
        alike = (row["path"], re.sub(r"\d[\d.,e+]*", "#", reason))
        told.setdefault(alike, (reason, []))[1].append(f"{row['decision']}/{row['family']}/{row['jobs']:,}")
    cells = [(path, reason, problems[0], len(problems)) for (path, _), (reason, problems) in told.items()]
    return pd.DataFrame(cells, columns=["path", "reason", "first of", "problems"])


def _aimed_at(targets: pd.DataFrame) -> pd.DataFrame:
    """Target, measured, met or by what factor missed."""

    def figure(value: float, kind: str) -> str:
        return "not measured" if pd.isna(value) else duration(value) if kind == "seconds" else f"{value:.3g} x input"

    def verdict(row: Any) -> str:
        if row.met is None:
            return ""
        return ("met" if row.met else f"{row.factor:.3g}x over") if row.proven else "not proven"

    rows = list(targets.itertuples())
    return pd.DataFrame(
        {
            "problem": [f"{row.decision}, {_problem(row)}" for row in rows],
            "cores": targets["cores"],
            "target": [figure(row.limit, row.quantity) for row in rows],
            "measured": [figure(row.measured, row.quantity) for row in rows],
            "met": [verdict(row) for row in rows],
        }
    )


def _problem(row: Any) -> str:
    held = " *" if getattr(row, "held_by_one_job", False) is True else ""
    return f"{row.family}, {row.jobs:,} x {row.types}{held}"


def study(chosen: Chosen | None = None, plot: Path | None = None) -> Solvers:
    """The study of what is chosen."""
    return Solvers(
        "median CPU time, wall time of its phases; gap to the best bound proven; CPU time of cvxpy + ECOS over this; "
        "*: one job, which could do no better alone, holds the optimum",
        partial(runs, chosen or Chosen()),
        by=(*PROBLEM, "path"),
        shown={
            "CPU": Shown("cpu_seconds", duration, over="median"),
            **{name: Shown(f"{name}_seconds", duration, over="median") for name in ("build", "solve", "recover")},
            "gap": Shown("gap", ".0e", over="max"),
            "to plain": Shown("ratio", ".3g", over="median"),
        },
        plot=plot,
    )


STUDY = study()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this study."""
    group = parser.add_argument_group("solvers", "what the study `solvers` measures; everything by default")
    for what, registered in (("family", FAMILIES), ("decision", DECISIONS), ("path", PATHS)):
        group.add_argument(f"--{what}", action="append", choices=list(registered), help="may be repeated")
    group.add_argument("--sizes", type=_numbers, metavar="N,...", help="numbers of jobs, instead of the families' own")
    group.add_argument("--targets", action="store_true", help="only the problems that a target is set for")
    group.add_argument("--memory", action="store_true", help="peak memory of our own paths from 100,000 jobs")
    group.add_argument(
        "--limit", type=float, metavar="SECONDS", help="leave out what would take longer (5; with --quick 2)"
    )
    group.add_argument("--plot", type=Path, metavar="FILE", help="picture of time against jobs, as PNG and SVG")


def options_from(chosen: argparse.Namespace) -> Chosen:
    """What is chosen on the command line."""
    names = [tuple(dict.fromkeys(given)) if given else None for given in (chosen.family, chosen.decision, chosen.path)]
    return Chosen(*names, chosen.sizes, chosen.quick, chosen.targets, chosen.memory, limit=chosen.limit)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 128,1024") from error
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError("a number of jobs is at least 1")
    return sizes
