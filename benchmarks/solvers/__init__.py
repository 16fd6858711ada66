"""How long a decision takes: families of problems x sizes x paths, ours beside what one would use otherwise.

    python -m benchmarks solvers --quick
    python -m benchmarks solvers --decision max_min --family distinct --sizes 128,1024,8192 --plot solvers.png

A decision is timed from arrays (for the plain path: dictionaries) to shares. For our own paths that includes the
proof and the choice among optima; a peer's answer is scaled into the feasible set and compared with the best bound
that our paths proved for the same problem. Each repetition gets fresh objects, so nothing is kept from the last one,
except by `cvxpy_parameters`, which is compiled once.

A new family, decision or path is one function under a decorator of `benchmarks.solvers.registry`, in a module that is
imported below.

Figures (key ``solvers`` of the JSON file)
------------------------------------------
``rows``: one per problem and path, with

- decision, family, jobs, types, path, kind ("own" or "peer");
- outcome: "measured", "skipped" or "failed", and the reason where not measured;
- status: the path's own word ("optimal" of ours is proven); solver: whose answer; iterations, as that solver counts;
- repetitions; cpu_seconds and wall_seconds: medians; CPU time counts all threads;
- prepare_seconds: wall time before the first decision (compilation of parameters, dictionaries), not in the others;
- phases: median wall seconds of build, solve and recover. Ours: recover is the choice among optima, the proof is
  part of solve. cvxpy: compiling is build;
- objective, bound, gap (relative), violation: largest violation of a row as the path left it, relative;
- held_by_one_job: whether a single job that could do no better alone fixes the optimum (an easy instance);
- ratio: CPU time of the plain path over this one's, in the same run; null without it;
- memory_bytes, memory_factor: see `benchmarks.solvers.memory`; null unless asked for.

``targets``: one per target, with its limit, the measured figure, factor (above 1 is missed), proven and met; null
where not measured. ``options``: the settings of the run.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

# imported for what they register
from benchmarks.solvers import decisions as _decisions  # noqa: F401
from benchmarks.solvers import families as _families  # noqa: F401
from benchmarks.solvers import paths as _paths  # noqa: F401
from benchmarks.solvers import peers as _peers  # noqa: F401
from benchmarks.solvers.measure import measure_rows
from benchmarks.solvers.plan import Options
from benchmarks.solvers.registry import DECISIONS, FAMILIES, PATHS
from benchmarks.solvers.report import tables
from benchmarks.solvers.targets import against_targets

__all__ = ["add_arguments", "finish", "measure", "options_from", "table"]


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


def options_from(chosen: argparse.Namespace) -> Options:
    """Settings from the command line."""

    def names(values: list[str] | None) -> tuple[str, ...] | None:
        return None if values is None else tuple(dict.fromkeys(values))

    return Options(
        families=names(chosen.family),
        decisions=names(chosen.decision),
        paths=names(chosen.path),
        sizes=chosen.sizes,
        quick=chosen.quick,
        targets_only=chosen.targets,
        memory=chosen.memory,
        limit_seconds=chosen.limit or (2.0 if chosen.quick else 5.0),
        repetitions=3 if chosen.quick else 9,
    )


def measure(*, quick: bool, console: Console, options: Options | None = None) -> dict[str, Any]:
    """The figures described above."""
    options = options or Options(quick=quick, repetitions=3 if quick else 9)
    rows = measure_rows(options, console)
    return {"options": dataclasses.asdict(options), "rows": rows, "targets": against_targets(rows)}


def table(figures: dict[str, Any]) -> RenderableType:
    """The figures for people."""
    return tables(figures)


def finish(figures: dict[str, Any], chosen: argparse.Namespace, console: Console) -> None:
    """Draw the picture where one is asked for."""
    if chosen.plot is not None:
        from benchmarks.solvers.plot import draw

        for path in draw(figures, chosen.plot):
            console.print(f"Picture: {path}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 128,1024") from error
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError("a number of jobs is at least 1")
    return sizes
