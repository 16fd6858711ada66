"""The exact method for numbers of rounds: against enumeration, in exact arithmetic, at priorities of any size."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from formulations.shockwave import PlanningProgram, solve_plan
from formulations.shockwave.knapsack import DivisibleKnapsack
from formulations.shockwave.order.exchange import improve
from formulations.shockwave.order.moves import Workload
from formulations.shockwave.order.ordering import Ordering, order_rounds
from formulations.shockwave.order.repair import place_missing
from formulations.shockwave.rounds import solve_rounds


def draw_gains(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Falling gains (N, R) with ties, widths that divide each other, GPUs."""
    rng = np.random.default_rng([seed, 3])
    N, R = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    gains = np.sort(rng.choice([rng.random((N, R)), rng.integers(0, 4, (N, R))]), axis=1)[:, ::-1] * 1.0
    widths = rng.choice(rng.choice([(1, 2, 4), (1, 3, 6), (2, 2, 4)]), N)
    return gains, widths, int(rng.integers(1, 9))


def fits(numbers: np.ndarray, widths: np.ndarray, gpus: int, rounds: int) -> bool:
    """The rows of the knapsack, by their words."""
    if (numbers[widths > gpus] > 0).any():
        return False
    return all(
        int((widths // width * numbers)[widths >= width].sum()) <= rounds * (gpus // int(width))
        for width in np.unique(widths)
    )


@pytest.mark.parametrize("seed", range(30))
def test_knapsack_is_exact(seed: int) -> None:
    gains, widths, gpus = draw_gains(seed)
    N, R = gains.shape
    gains[widths > gpus] = 0
    floors = np.random.default_rng(seed).integers(0, 2, N) * (seed % 3 == 0)
    found = DivisibleKnapsack(gains, widths, gpus).best(floors)
    sums = np.concatenate((np.zeros((N, 1)), np.cumsum(gains, axis=1)), axis=1)
    feasible = [
        numbers
        for numbers in map(np.array, itertools.product(range(R + 1), repeat=N))
        if (numbers >= floors).all() and fits(numbers, widths, gpus, R)
    ]
    if not feasible:
        assert found is None
        return
    assert found is not None
    assert any((found == numbers).all() for numbers in feasible)
    best = max(sums[np.arange(N), numbers].sum() for numbers in feasible)
    assert sums[np.arange(N), found].sum() == pytest.approx(best, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_rounds_are_exact_at_any_scale(seed: int) -> None:
    """Gains from 1 to 1e28, compared with every choice of numbers in rational arithmetic."""
    gains, widths, gpus = draw_gains(seed + 100)
    N, R = gains.shape
    rng = np.random.default_rng([seed, 4])
    gains = gains * 10.0 ** rng.choice([0, 8, 28], (N, 1))
    gains[widths > gpus] = 0
    remaining = np.sort(rng.integers(0, 5, (N, R + 1)) * 100.0, axis=1)[:, ::-1].copy()
    remaining[widths > gpus] = remaining[widths > gpus, :1]
    weight = float(rng.choice([0.0, 1e-3, 0.02, 1e7]))
    zeros, ones = np.zeros(N), np.ones(N)
    answer = solve_rounds(
        gains,
        zeros,
        remaining,
        widths,
        gpus,
        weight,
        zeros.astype(np.int64),
        ones * 1e-30,
        relative_gap=1e-15,
        deadline=time.monotonic() + 60,
    )
    assert answer is not None

    def value(numbers: np.ndarray) -> Fraction:
        total = sum(
            (Fraction(float(gain)) for row, n in zip(gains, numbers, strict=True) for gain in row[:n]), Fraction(0)
        )
        return total - Fraction(weight) * Fraction(float(remaining[np.arange(N), numbers].max()))

    choices = map(np.array, itertools.product(range(R + 1), repeat=N))
    best = max(value(numbers) for numbers in choices if fits(numbers, widths, gpus, R))
    assert value(answer.rounds_per_job) >= best - Fraction(1e-9)
    assert answer.excess <= 1e-9


def test_priorities_beyond_double_precision() -> None:
    """One job far beyond all others changes nothing between them."""
    rng = np.random.default_rng(0)
    N = 30
    remaining, target = np.full(N, 3000.0), rng.uniform(9000, 15000, N)
    remaining[0], target[0] = 60.0, 220.0
    figures: dict[str, Any] = {
        "gpus": 8,
        "rounds": 10,
        "round_seconds": 120.0,
        "widths": rng.choice([1, 2], N),
        "epochs": np.full(N, 50.0),
        "epochs_done": rng.integers(1, 40, N).astype(float),
        "epoch_seconds": np.full(N, 60.0),
        "remaining_seconds": remaining,
        "target_seconds": target,
        "now_seconds": 240.0,
        "share": 0.3,
        "fairness_rows": "off",
    }
    program = PlanningProgram(**figures, priority_cap=None)
    assert program.priorities[0] > 1e28
    assert program.priorities[1:].max() < 100
    plan = solve_plan(program, relative_gap=1e-6, ordering="greedy")
    capped = solve_plan(PlanningProgram(**figures, priority_cap=1e4), relative_gap=1e-6, ordering="greedy")
    assert plan.status == "optimal"
    assert plan.schedule[0, 0]
    assert (plan.rounds_per_job == capped.rounds_per_job).all()
    assert plan.ordering_gap <= 1e-2


@pytest.mark.parametrize("seed", range(4))
def test_exchanges_keep_the_numbers_and_lower_the_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    N, R, G = 20, 8, 12
    widths, weights = rng.choice([1, 2, 4], N), rng.uniform(0, 10, N)
    schedule = np.zeros((N, R), dtype=bool)
    for job, now in itertools.product(rng.permutation(N), range(R)):
        schedule[job, now] = rng.random() < 0.6 and widths @ schedule[:, now] + widths[job] <= G

    def cost(of: np.ndarray) -> float:
        return math.fsum(weights * (of * np.arange(R)).sum(axis=1))

    held = np.where(rng.random(N) < 0.2, 3, R)
    better = improve(schedule, Workload(widths, weights, G, held), cost_of=cost, target=-math.inf)
    assert cost(better) < cost(schedule)
    assert (better.sum(axis=1) == schedule.sum(axis=1)).all()
    assert (widths @ better <= G).all()
    early = np.arange(R) < held[:, None]
    assert ((better & early).sum(axis=1) >= (schedule & early).sum(axis=1)).all()


@pytest.mark.parametrize("seed", range(3))
def test_orders_are_within_what_they_prove(seed: int) -> None:
    rng = np.random.default_rng(seed)
    N, R, G = 40, 10, 16
    widths, weights = rng.choice([1, 2, 4], N, p=[0.6, 0.3, 0.1]), 10.0 ** rng.uniform(0, 5, N)
    numbers, room = np.zeros(N, dtype=np.int64), R * G
    for job in rng.permutation(N):
        numbers[job] = min(int(rng.integers(0, R + 1)), room // widths[job])
        room -= numbers[job] * widths[job]
    zeros, end = np.zeros(N, dtype=np.int64), np.full(N, R)
    ordering = Ordering(widths, numbers, weights, G, R, zeros, end)
    greedy, auto, exact = (order_rounds(ordering, method, 1e-4, 20.0) for method in ("greedy", "auto", "exact"))
    for placed in (greedy, auto, exact):
        assert not placed.missing.any()
        assert (placed.schedule.sum(axis=1) == numbers).all()
        assert (widths @ placed.schedule <= G).all()
        assert placed.bound <= exact.cost * (1 + 1e-9)
    assert exact.cost <= greedy.cost
    assert exact.gap <= 1e-4
    assert auto.gap <= 1e-3
    assert greedy.cost <= 1.05 * exact.cost


def test_rounds_without_room_are_given_it() -> None:
    """One idle GPU in each of two rounds: a job of one GPU makes room for a job of two."""
    widths = np.array([1, 1, 1, 2])
    schedule = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=bool)
    load = Workload(widths, np.ones(4), 3, np.full(4, 2))
    placed = place_missing(schedule, np.array([0, 0, 0, 1]), load)
    assert placed.sum(axis=1).tolist() == [1, 2, 1, 1]
    assert (widths @ placed <= 3).all()
    held = place_missing(schedule, np.array([0, 0, 0, 1]), Workload(widths, np.ones(4), 3, np.ones(4, dtype=np.int64)))
    assert held[:2, 0].all()
    assert held[3, 1]
    full = place_missing(schedule, np.array([0, 0, 0, 1]), Workload(widths, np.ones(4), 2, np.full(4, 2)))
    assert (full == schedule).all()
