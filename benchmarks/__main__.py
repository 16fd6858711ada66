"""``python -m benchmarks [STUDY ...]``: make the runs of studies, print their tables, write rows, tables and pictures.

A study is a name, or a file of one's own with a `STUDY` (docs/studies.md). Rows go to ``--out``; tables and pictures
lie beside it, as CSV, LaTeX, SVG and PDF.
"""

from __future__ import annotations

import argparse
import json
import platform
import runpy
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from allocator.cli.options.shared import console as wide_console
from allocator.studies import tables
from allocator.studies.study import Options, Study
from benchmarks import deadlines, decisions, failures, lucid, simulations, solvers, studies
from benchmarks.runtime import overheads
from throughputs.files import write_text

RESULTS = Path("benchmarks/results")

STUDIES: dict[str, Study] = {
    **deadlines.STUDIES,
    **lucid.STUDIES,
    **studies.STUDIES,
    "goodput_load": studies.STUDIES["goodput"],
    "decisions": decisions.DECISIONS,
    "elastic": simulations.ELASTIC,
    "failures": failures.STUDY,
    "goodput": decisions.GOODPUT,
    "leases": decisions.LEASES,
    "long_runs": simulations.LONG_RUNS,
    "planning": decisions.PLANNING,
    "runtime": overheads.RUNTIME,
    "simulations": simulations.SIMULATIONS,
    "solver_targets": solvers.TARGET_STUDY,
    "solvers": solvers.STUDY,
    "trainer_lease": overheads.TRAINER_LEASE,
    "virtual_clusters": simulations.VIRTUAL_CLUSTERS,
}
"""By name. `goodput` is how long decisions take; the sweep of that name is `goodput_load`."""

GROUPS = {"deadlines": tuple(deadlines.STUDIES), "lucid": tuple(lucid.STUDIES)}
"""Names of several studies at once."""

DEFAULT = ("decisions", "simulations")
"""What runs when no study is named: others take many minutes in full."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join([*GROUPS, *(name for name in STUDIES if name not in GROUPS)])
    told = f"of: {names}; or a file FILE.py (default: {', '.join(DEFAULT)})"
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=told)
    parser.add_argument("--out", type=Path, default=RESULTS / "latest.json", help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--folder", type=Path, help=f"where sweeps are kept, run by run (default: in {RESULTS})")
    parser.add_argument("--processes", type=int, help="runs of a sweep at a time; all cores if it is left out")
    parser.add_argument("--only", action="append", default=[], metavar="LABEL=VALUE,...", help="measured runs to make")
    chosen = parser.parse_args()
    console = wide_console()
    figures: dict[str, Any] = {"machine": machine()}
    only = {name: values.split(",") for name, _, values in (given.partition("=") for given in chosen.only)}
    for name, study in _chosen(parser, chosen.studies or DEFAULT):
        console.print(f"[bold]{name}[/bold]")
        folder = chosen.folder or RESULTS / ("deadlines" if name in deadlines.STUDIES else "sweeps")
        options = Options(chosen.quick, folder / ("small" if chosen.quick else "full"), chosen.processes, console, only)
        results = study.results(options)
        console.print(tables.on_screen(study.title, study.table(results), tables.never_served(results)))
        rows = results.astype(object)
        figures[name] = rows.where(rows.notna(), None).to_dict("records")
        for path in study.write(results, chosen.out.with_name(name)):
            console.print(path, soft_wrap=True)
    write_text(chosen.out, json.dumps(figures, indent=2, default=str) + "\n")
    console.print(f"Figures: {chosen.out}")


def _chosen(parser: argparse.ArgumentParser, names: Iterable[str]) -> Iterator[tuple[str, Study]]:
    """The studies of the command line by name."""
    for given in names:
        for name in GROUPS.get(given, (given,)):
            if name.endswith(".py"):
                yield Path(name).stem, runpy.run_path(name)["STUDY"]
            elif name in STUDIES:
                yield name, STUDIES[name]
            else:
                parser.error(f"no study {name!r}; there are {', '.join((*GROUPS, *STUDIES))}")


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    packages = ("numpy", "scipy", "highspy", "cvxpy", "cluster-allocator")
    return {"python": platform.python_version(), "processor": platform.machine()} | {p: version(p) for p in packages}


if __name__ == "__main__":
    main()
