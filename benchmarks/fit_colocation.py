"""``python -m benchmarks.fit_colocation TABLE``: fit the interference model to a table with measured pairs.

Prints the error of the fit, of other numbers of resources, and of pairs held out of the fit; with ``--out`` writes
the numbers that `throughputs.default_colocation` reads. TABLE is the public ``simulation_throughputs.json`` (or
``.json.gz``) of the repository stanford-futuredata/gavel, or any other throughput table with co-location.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.interference import colocation_errors, fit_interference
from throughputs import InterferenceModel, RetainedFractions, ThroughputTable, read_table, retained_fractions
from throughputs.files import write_text

HEADER = """\
# A model of interference between training jobs that share a GPU: for each of two resources how much a job suffers
# from pressure on it (sensitivity) and how much pressure it puts on it, and its share of the GPU's memory.
# Fitted by benchmarks/fit_colocation.py to the single-GPU pairs of D. Narayanan et al., "Heterogeneity-Aware Cluster
# Scheduling Policies for Deep Learning Workloads", OSDI 2020; public artifact stanford-futuredata/gavel (MIT),
# simulation_throughputs.json. Meaning: throughputs.InterferenceModel; error: docs/colocation.md.
"""
DIGITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_colocation", description=__doc__)
    parser.add_argument("table", type=Path, help="throughput table with measured pairs")
    parser.add_argument("--accelerators", default="v100,p100,k80", help="types to fit (default: %(default)s)")
    parser.add_argument("--resources", type=int, default=2, help="shared resources of the model (default: 2)")
    parser.add_argument("--folds", type=int, default=10, help="parts of the cross-validation; 0 leaves it out")
    parser.add_argument("--out", type=Path, help="CSV file for the fitted numbers")
    chosen = parser.parse_args()
    table, accelerators = read_table(chosen.table), chosen.accelerators.split(",")
    console = Console()
    model = rounded(fit_interference(table, accelerators, resources=chosen.resources))
    show(console, f"{chosen.resources} resources, as written", colocation_errors(model, table, accelerators))
    if chosen.out is not None:
        write_text(chosen.out, HEADER + model.to_frame().to_csv(index=False, lineterminator="\n"))
        console.print(f"Numbers: {chosen.out}")
    if chosen.folds:
        for resources in (1, 2, 3):
            fit = fit_interference(table, accelerators, resources=resources)
            show(console, f"{resources} resources, in the fit", colocation_errors(fit, table, accelerators))
            held_out = cross_validated(table, accelerators, resources, chosen.folds)
            show(console, f"{resources} resources, held out", colocation_errors(held_out, table, accelerators))


def rounded(model: InterferenceModel) -> InterferenceModel:
    """The model with the digits that are written."""
    return InterferenceModel.from_frame(model.to_frame().round(DIGITS), model.source)


def cross_validated(
    table: ThroughputTable, accelerators: list[str], resources: int, folds: int, seed: int = 0
) -> RetainedFractions:
    """Each pair as told by a fit to the other `folds` - 1 parts of the pairs."""
    fold = np.random.default_rng(seed).integers(0, folds, len(table.pairs))
    job_types = [name for name, size in table.keys if size == 1]
    told = np.full((len(job_types), len(job_types), len(accelerators)), np.nan)
    for held in range(folds):
        known = np.where((fold == held)[:, np.newaxis, np.newaxis], np.nan, table.colocated)
        rest = ThroughputTable(table.keys, table.accelerators, table.isolated, table.pairs, known, table.source)
        model = fit_interference(rest, accelerators, resources=resources, restarts=2)
        hidden = np.isnan(retained_fractions(rest, job_types, accelerators))
        told = np.where(hidden, model.retained(job_types, accelerators), told)
    return RetainedFractions(tuple(job_types), tuple(accelerators), told)


def show(console: Console, title: str, errors: pd.DataFrame) -> None:
    shown = Table(title=title)
    for name in errors.columns:
        shown.add_column(name.replace("_", " "), justify="left" if name == "accelerator" else "right")
    for row in errors.itertuples(index=False):
        shown.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row))
    console.print(shown)


if __name__ == "__main__":
    main()
