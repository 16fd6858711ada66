"""The published order of scaling, in which only scores that may be others are reckoned anew: as if all of them were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from formulations.deadlines import (
    DeadlineJob,
    DeadlineOrder,
    Filling,
    FreeProfile,
    ScalingCurve,
    use_left_over,
)
from formulations.deadlines.published import Published

SHAPES = ((1.0, 1.9, 3.4, 5.5), (1.0, 1.4, 3.2, 3.1), (1.0, 2.0, 4.0, 8.0), (2.0, 2.5, 2.6, 7.0))


class Anew(Published):
    """Reckons every score anew after each step, and sorts the whole list."""

    def _update(self, at, step):  # noqa: ARG002 - all of them
        for entry in self._listed:
            if entry.next is not None:
                self._score(entry, entry.next)
        self._sort()


def scaled(kind, seed, filling, now, grid, keep_met):
    """Jobs that are let in or late, some without a deadline, some of which run; times of work on a `grid` make ties."""
    rng = np.random.default_rng(seed)
    gpus = int(rng.choice([8, 16, 32]))
    curves = [ScalingCurve([1, 2, 4, 8], shape, gpus, float(rng.choice([4, 8]))) for shape in SHAPES]
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(filling, FreeProfile(now, gpus))
    for _ in range(int(rng.integers(2, 14))):
        curve, seconds = curves[rng.integers(4)], float(rng.integers(1, 40)) * grid
        due = now + math.ceil(seconds * rng.uniform(0.5, 3.0)) if rng.random() < 0.9 else math.inf
        held = int(rng.choice([0, *curve.levels]))
        job = DeadlineJob(curve, seconds * curve.rates[rng.integers(2)], due, held, float(rng.choice([0.0, 7.0])))
        if not order.admit([job]) and rng.random() < 0.3:
            order.add([job])
    free, plans = order.left_over, list(order.plans)
    scaling = kind(filling, free, order.jobs, plans, keep_met)
    listed = scaling.run() if free.free[0] >= 0 else []
    rows = [(plan.starts, plan.gpus, plan.end, plan.real_end, plan.charged_until) for plan in plans]
    return listed, rows, free.times, free.free, getattr(scaling, "passed_ends", None)


@pytest.mark.parametrize("grid", [60.0, 37.0])
@pytest.mark.parametrize("slots", [(), (60.0, True), (240.0, True), (60.0,), (60.0, True, 20.0), (0.0, True)])
def test_scores_that_are_not_reckoned_anew_are_those_that_are_the_same(slots, grid):
    # the last one has a step whose first change is beyond a first interval and decides on a plan interval by interval
    for seed in (*range(24), 1110):
        for keep_met in (False, True):
            case = seed, Filling(*slots), (0.0, 1000.0, 100.5)[seed % 3], grid, keep_met
            assert scaled(Published, *case) == scaled(Anew, *case), seed


def test_ends_that_are_passed_are_those_at_which_gpus_would_have_come_back():
    """50 s on one GPU, which comes back with the slot of 60 s; on two GPUs the job ends at 25 s."""
    order: DeadlineOrder[DeadlineJob] = DeadlineOrder.filled(Filling(60.0), FreeProfile(0.0, 2))
    order.add([DeadlineJob(ScalingCurve([1, 2], [1.0, 2.0], capacity=2), 50.0, 100.0)])
    plans = list(order.plans)
    found = use_left_over(Filling(60.0), order.left_over, order.jobs, plans, score="published", keep_met=False)
    assert (found.listed, found.passed_ends) == ([0], {60.0})
    assert (plans[0].gpus, plans[0].real_end) == ([2], 25.0)
