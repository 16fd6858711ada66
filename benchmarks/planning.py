"""One plan of Shockwave: numbers of rounds and their order, beside the program in binaries as published."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.timing import cpu_seconds
from formulations.shockwave import PlanningProgram, solve_plan

SIZES = ((120, 32), (460, 128), (900, 256))
"""Jobs and GPUs, as in the published studies."""

PATHS = (("rounds", "auto"), ("rounds", "highs"), ("counts", "highs"), ("binaries", "highs"))
MOST_JOBS = {"counts": 460, "binaries": 120}
"""Forms whose larger programs take minutes."""


def draw_program(n_jobs: int, gpus: int, seed: int = 0) -> PlanningProgram:
    """Jobs at some point of their training, four to a GPU, a good part of them late; 20 rounds of two minutes."""
    rng = np.random.default_rng(seed)
    widths = rng.choice([1, 2, 4, 8], n_jobs, p=[0.6, 0.3, 0.09, 0.01])
    epochs = rng.integers(5, 200, n_jobs).astype(np.float64)
    seconds = np.exp(rng.uniform(np.log(720), np.log(18000), n_jobs))
    epoch_seconds = np.maximum(1.0, np.round(seconds / epochs))
    done = np.floor(epochs * rng.uniform(0, 1, n_jobs))
    remaining = epoch_seconds * (epochs - done) * rng.uniform(0.8, 1.2, n_jobs)
    now, share = 4800.0, min(1.0, gpus / n_jobs)
    target = (now + remaining / share) * np.exp(rng.normal(-0.1, 0.25, n_jobs))
    return PlanningProgram(
        gpus, 20, 120.0, widths, epochs, done, epoch_seconds, remaining, target, now, share, fairness_rows="off"
    )


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per size and path: the median over programs of the median CPU time of each."""
    sizes, seeds, repetitions = (SIZES[:1], 2, 1) if quick else (SIZES, 5, 3)
    rows = []
    for n_jobs, gpus in sizes:
        programs = [draw_program(n_jobs, gpus, seed) for seed in range(seeds)]
        for form, solver in PATHS:
            if n_jobs <= MOST_JOBS.get(form, n_jobs):
                with console.status(f"{n_jobs} jobs, {gpus} GPUs, {form}, {solver}"):
                    rows.append(measure_one(programs, form, solver, repetitions))
    return rows


def measure_one(programs: list[PlanningProgram], form: str, solver: str, repetitions: int) -> dict[str, Any]:
    """CPU time, worst proven gaps of plan and order, and the objectives."""
    plans = [solve_plan(program, form=form, solver=solver) for program in programs]
    seconds = [
        cpu_seconds(lambda program=program: solve_plan(program, form=form, solver=solver), repetitions)
        for program in programs
    ]
    return {
        "jobs": programs[0].n_jobs,
        "gpus": programs[0].gpus,
        "rounds": programs[0].rounds,
        "form": form,
        "solver": solver,
        "median_seconds": float(np.median(seconds)),
        "worst_seconds": max(seconds),
        "worst_gap": max(plan.gap for plan in plans),
        "worst_ordering_gap": max(plan.ordering_gap for plan in plans),
        "objectives": [plan.objective for plan in plans],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="One plan of 20 rounds, CPU time (gaps: worst of the programs)")
    for name in ("jobs", "GPUs", "form", "solver", "median ms", "worst ms", "gap", "gap of the order"):
        shown.add_column(name, justify="left" if name in ("form", "solver") else "right")
    for row in rows:
        shown.add_row(
            str(row["jobs"]),
            str(row["gpus"]),
            row["form"],
            row["solver"],
            f"{row['median_seconds'] * 1e3:.1f}",
            f"{row['worst_seconds'] * 1e3:.1f}",
            f"{row['worst_gap']:.0e}",
            f"{row['worst_ordering_gap']:.0e}",
        )
    return shown
