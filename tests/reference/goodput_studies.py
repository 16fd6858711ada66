"""Tables of docs/goodput.md from the studies of goodput, whose rows are kept: `RECORDED` and `RECORDED_FULL`.

``python -m tests.reference.goodput_studies`` makes those of the small setting anew, in some minutes, and with
``--full`` those of the full one, in an hour.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from allocator.sweep import run
from benchmarks.studies import sweep_of

RECORDED = Path(__file__).with_name("goodput_studies.csv")
RECORDED_FULL = Path(__file__).with_name("goodput_studies_full.csv")
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks/results/goodput"

NAMES = {
    "goodput_adaptivity": "what jobs leave to choose",
    "goodput_sia": "settings of Sia",
    "goodput_scale": "size",
}
"""What the table calls the studies."""

FIGURES = ("average_jct", "p99_jct", "makespan", "preemptions")


def record(folder: Path = FOLDER, *, small: bool = True) -> None:
    """Keep the figures of all runs; those that are in the folder are not made again."""
    made = [
        run(sweep_of(study, small=small), folder / study).assign(study=study)[
            ["study", "case", "policy", "seed", *FIGURES]
        ]
        for study in NAMES
    ]
    kept = RECORDED if small else RECORDED_FULL
    pd.concat(made).to_csv(kept, index=False, float_format="%.10g", lineterminator="\n")


def recorded(*, small: bool = True) -> pd.DataFrame:
    """A row for each run: study, case, policy, seed, and `FIGURES`, times in seconds."""
    return pd.read_csv(RECORDED if small else RECORDED_FULL)


def table(*, small: bool = True) -> str:
    """Means over the draws of jobs."""
    lines = [
        "| study | case | policy | average JCT, h | p99 JCT, h | makespan, h | preemptions |",
        "|---|---|---|---|---|---|---|",
    ]
    means = recorded(small=small).groupby(["study", "case", "policy"], sort=False)[list(FIGURES)].mean()
    for (study, case, policy), row in means.iterrows():
        hours = [f"{row[name] / 3600.0:.2f}" for name in FIGURES[:3]]
        lines.append(f"| {NAMES[study]} | {case} | `{policy}` | {' | '.join(hours)} | {row['preemptions']:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--full", action="store_true")
    chosen = arguments.parse_args()
    record(FOLDER.with_name("goodput_full") if chosen.full else FOLDER, small=not chosen.full)
