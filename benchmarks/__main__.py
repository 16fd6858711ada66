"""``python -m benchmarks [decisions] [simulations] [--out FILE]``: run, print tables, write JSON."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks import decisions, simulations

STUDIES = {"decisions": decisions, "simulations": simulations}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"some of: {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"), help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    chosen = parser.parse_args()
    for name in chosen.studies:
        if name not in STUDIES:
            parser.error(f"no study {name!r}; there are {', '.join(STUDIES)}")
    console = Console()
    figures: dict[str, object] = {"machine": machine()}
    for name in chosen.studies or STUDIES:
        rows = STUDIES[name].measure(quick=chosen.quick, console=console)
        figures[name] = rows
        console.print(STUDIES[name].table(rows))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"Figures: {chosen.out}")


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    packages = ("numpy", "scipy", "highspy", "cvxpy", "cluster-allocator")
    return {"python": platform.python_version(), "processor": platform.machine()} | {p: version(p) for p in packages}


if __name__ == "__main__":
    main()
