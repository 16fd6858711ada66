"""``python -m benchmarks [STUDY ...] [--out FILE]``: run, print tables, write JSON."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    deadlines,
    decisions,
    goodput,
    leases,
    long_runs,
    lucid,
    planning,
    simulations,
    solvers,
    trainer_lease,
    virtual_clusters,
)
from benchmarks.runtime import overheads
from throughputs.files import write_text

STUDIES: dict[str, Any] = {
    "deadlines": deadlines,
    "decisions": decisions,
    "goodput": goodput,
    "leases": leases,
    "long_runs": long_runs,
    "lucid": lucid,
    "planning": planning,
    "runtime": overheads,
    "simulations": simulations,
    "solvers": solvers,
    "trainer_lease": trainer_lease,
    "virtual_clusters": virtual_clusters,
}
DEFAULT = ("decisions", "simulations")
"""What runs when no study is named: `solvers` and `deadlines` take many minutes in full."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    default = ", ".join(DEFAULT)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of: {', '.join(STUDIES)} (default: {default})")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"), help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    deadlines.add_arguments(parser)
    solvers.add_arguments(parser)
    chosen = parser.parse_args()
    for name in chosen.studies:
        if name not in STUDIES:
            parser.error(f"no study {name!r}; there are {', '.join(STUDIES)}")
    console = Console()
    figures: dict[str, object] = {"machine": machine()}
    for name in chosen.studies or DEFAULT:
        settings: dict[str, Any] = {}
        if name == "solvers":
            settings = {"options": solvers.options_from(chosen)}
        elif name == "deadlines":
            settings = deadlines.options_from(chosen)
        figures[name] = STUDIES[name].measure(quick=chosen.quick, console=console, **settings)
        console.print(STUDIES[name].table(figures[name]))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(chosen.out, json.dumps(figures, indent=2) + "\n")
    console.print(f"Figures: {chosen.out}")
    if isinstance(measured := figures.get("solvers"), dict):
        solvers.finish(measured, chosen, console)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    packages = ("numpy", "scipy", "highspy", "cvxpy", "cluster-allocator")
    return {"python": platform.python_version(), "processor": platform.machine()} | {p: version(p) for p in packages}


if __name__ == "__main__":
    main()
