"""One lease program of Chronus with several deadlines for most jobs, all jobs admitted at their last one."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.timing import cpu_seconds
from formulations.leases import LeaseProgram, latest_slots, solve_leases

SIZES = ((100, 40, 48), (400, 90, 128), (400, 90, 192))
"""Jobs, leases and GPUs."""

GAP = 1e-4
OBJECTIVES = ("minimize", "maximize")


def draw_program(n_jobs: int, slots: int, gpus: int, seed: int = 0) -> LeaseProgram:
    """Jobs that are admitted one by one, as long as there is room before their last deadline."""
    rng = np.random.default_rng(seed)
    free = np.full(slots, gpus)
    columns: list[tuple[int, int]] = []
    options: list[tuple[int, int, float]] = []
    while len(columns) < n_jobs:
        width = int(rng.choice([1, 2, 4, 8, 16], p=[0.85, 0.05, 0.05, 0.04, 0.01]))
        needed = min(max(1, int(rng.lognormal(1.6, 1.0))), slots - 10)
        due = needed + rng.integers(0, 30) + np.cumsum([0, *rng.integers(1, 6, 3)])
        due = np.minimum(due[: 4 if rng.random() < 0.6 else 1], slots)
        taken = latest_slots(free, width, needed, int(due[-1]))
        if taken is None:
            continue
        free[taken] -= width
        options += [(len(columns), int(day), value) for day, value in zip(due, (10.0, 8.0, 5.0, 2.0), strict=False)]
        columns.append((width, needed))
    widths, leases = (np.array(column) for column in zip(*columns, strict=True))
    job, deadline, value = (np.array(column) for column in zip(*options, strict=True))
    return LeaseProgram(widths, leases, job, deadline, value.astype(float), np.full(slots, gpus))


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per size and objective: CPU time of five programs."""
    sizes, seeds, repetitions = (SIZES[:1], 2, 1) if quick else (SIZES, 5, 3)
    rows = []
    for size in sizes:
        for objective in OBJECTIVES:
            with console.status(f"{size[0]} jobs, {size[1]} leases, {objective}"):
                rows.append(measure_one(size, objective, seeds, repetitions))
    return rows


def measure_one(size: tuple[int, int, int], objective: str, seeds: int, repetitions: int) -> dict[str, Any]:
    """CPU time and worst proven gap of a few programs of one size."""
    drawn = [draw_program(*size, seed) for seed in range(seeds)]
    programs = [LeaseProgram(p.gpus, p.needed, p.job, p.deadline, p.value, p.capacity, objective) for p in drawn]
    found = [solve_leases(program, relative_gap=GAP, time_limit_seconds=60.0) for program in programs]
    seconds = [
        cpu_seconds(lambda p=p: solve_leases(p, relative_gap=GAP, time_limit_seconds=60.0), repetitions)
        for p in programs
    ]
    jobs, slots, gpus = size
    return {
        "jobs": jobs,
        "slots": slots,
        "gpus": gpus,
        "options": int(np.median([len(p.job) for p in programs])),
        "objective": objective,
        "median_seconds": float(np.median(seconds)),
        "worst_seconds": max(seconds),
        "worst_gap": max(each.gap for each in found),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="One lease program in HiGHS to a gap of 1e-4, CPU time")
    for name in ("jobs", "leases", "GPUs", "options", "objective", "median ms", "worst ms", "worst gap"):
        shown.add_column(name, justify="left" if name == "objective" else "right")
    for row in rows:
        shown.add_row(
            str(row["jobs"]),
            str(row["slots"]),
            str(row["gpus"]),
            str(row["options"]),
            row["objective"],
            f"{1e3 * row['median_seconds']:.0f}",
            f"{1e3 * row['worst_seconds']:.0f}",
            f"{row['worst_gap']:.1e}",
        )
    return shown
