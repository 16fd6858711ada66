"""Table of docs/goodput.md from the small setting of the studies of goodput, whose rows are kept in `RECORDED`.

``python -m tests.reference.goodput_studies`` makes them anew, in some minutes.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from allocator.sweep import Sweep, run
from benchmarks.figures import STUDIES

RECORDED = Path(__file__).with_name("goodput_studies.csv")
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks/results/goodput"

NAMES = {
    "goodput_adaptivity": "what jobs leave to choose",
    "goodput_sia": "settings of Sia",
    "goodput_scale": "size",
}
"""What the table calls the studies."""

FIGURES = ("average_jct", "p99_jct", "makespan", "preemptions")


def sweep_of(study: str) -> Sweep:
    """The small setting of a study."""
    return Sweep.from_toml(STUDIES / f"{study}.toml", small=True)


def record(folder: Path = FOLDER) -> None:
    """Keep the figures of all runs; those that are in the folder are not made again."""
    made = [
        run(sweep_of(study), folder / study).assign(study=study)[["study", "case", "policy", "seed", *FIGURES]]
        for study in NAMES
    ]
    pd.concat(made).to_csv(RECORDED, index=False, float_format="%.10g", lineterminator="\n")


def recorded() -> pd.DataFrame:
    """A row for each run: study, case, policy, seed, and `FIGURES`, times in seconds."""
    return pd.read_csv(RECORDED)


def table() -> str:
    """Means over the draws of jobs."""
    lines = [
        "| study | case | policy | average JCT, h | p99 JCT, h | makespan, h | preemptions |",
        "|---|---|---|---|---|---|---|",
    ]
    means = recorded().groupby(["study", "case", "policy"], sort=False)[list(FIGURES)].mean()
    for (study, case, policy), row in means.iterrows():
        hours = [f"{row[name] / 3600.0:.2f}" for name in FIGURES[:3]]
        lines.append(f"| {NAMES[study]} | {case} | `{policy}` | {' | '.join(hours)} | {row['preemptions']:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    record()
