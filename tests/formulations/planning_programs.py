"""Random planning programs, and their answers by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from formulations.shockwave import PlanningProgram


def draw_program(
    seed: int, *, jobs: int = 8, rounds: int = 6, widths: tuple[int, ...] = (1, 2, 4), **settings: Any
) -> PlanningProgram:
    """Up to so many jobs and rounds: jobs wider than the cluster, without work, with forecasts that do not match."""
    rng = np.random.default_rng([seed, 11])
    N, R, G = int(rng.integers(1, jobs + 1)), int(rng.integers(1, rounds + 1)), int(rng.integers(1, 9))
    epochs = rng.integers(1, 20, N).astype(float)
    done = np.floor(epochs * rng.uniform(0, 1.05, N)).clip(0, epochs)
    seconds = rng.uniform(20, 300, N).round(1)
    remaining = seconds * (epochs - done) * rng.choice([0.0, 0.7, 1.0, 1.3], N)
    now, share = float(rng.integers(0, 20) * 120), min(1.0, G / N)
    target = (now + remaining / share) * np.exp(rng.normal(0.3, 0.5, N)) + 60
    figures: dict[str, Any] = {
        "makespan_weight": float(rng.choice([0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-1])),
        "fairness_exponent": float(rng.choice([1, 5, 12])),
        "largest_rho": float(rng.choice([1, 1.5])),
        "fairness_rows": str(rng.choice(["own_finish", "published", "off"])),
    }
    figures |= settings
    return PlanningProgram(
        G, R, 120.0, rng.choice(widths, N), epochs, done, seconds, remaining, target, now, share, **figures
    )


def schedules(program: PlanningProgram) -> Iterator[np.ndarray]:
    """Every schedule (N, R) that the cluster has room for."""
    sets = [
        np.array(running, dtype=bool)
        for running in itertools.product((False, True), repeat=program.n_jobs)
        if program.widths[np.array(running, dtype=bool)].sum() <= program.gpus
    ]
    for rounds in itertools.product(sets, repeat=program.rounds):
        yield np.array(rounds).T


def progress_of(program: PlanningProgram, schedule: np.ndarray) -> np.ndarray:
    """(N,) epochs p_j that a schedule lets the jobs get through, by the words of the program."""
    seconds = program.round_seconds * schedule.sum(axis=1)
    return np.minimum(program.epochs - program.epochs_done, seconds / program.epoch_seconds)


def objective_of(program: PlanningProgram, schedule: np.ndarray, stage: int) -> float:
    """Objective of a schedule, by the words of the program."""
    epochs = progress_of(program, schedule)
    logs = [np.log(max(base, 1e-6)) for base in program.bases]
    utilities = np.interp((program.epochs_done + epochs) / program.epochs, program.bases, logs)
    left = np.maximum(0.0, program.remaining_seconds - program.epoch_seconds * epochs)
    weights = program.priorities if stage == 2 else np.ones(program.n_jobs)
    return float((weights * utilities).sum() / (program.n_jobs * program.rounds) - program.makespan_weight * left.max())


def is_fair(program: PlanningProgram, schedule: np.ndarray) -> bool:
    """Whether every job fulfils its fairness row, with the finish inside the window followed round by round."""
    left = np.maximum(0.0, program.remaining_seconds - program.epoch_seconds * progress_of(program, schedule))
    end = program.now_seconds + program.rounds * program.round_seconds
    share = np.broadcast_to(np.asarray(program.share), program.n_jobs)
    for job in range(program.n_jobs):
        due = program.largest_rho * program.target_seconds[job]
        if program.fairness_rows == "published" or due >= end:
            if end + left[job] / share[job] > due + 1e-6:
                return False
        elif finish_inside(program, schedule[job], float(program.remaining_seconds[job])) > due + 1e-6:
            return False
    return True


def finish_inside(program: PlanningProgram, running: np.ndarray, remaining: float) -> float:
    """When a job is through that runs in these rounds (R,); infinite when not inside the window."""
    clock = program.now_seconds
    if remaining <= 1e-9:
        return clock
    for runs in running:
        if runs and remaining <= program.round_seconds + 1e-9:
            return clock + remaining
        remaining -= program.round_seconds * runs
        clock += program.round_seconds
    return np.inf
