"""Starts from the decision before: the same answers, in no more steps, wherever they lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Objective,
    Polytope,
    WarmStart,
    WaterFilling,
    proportional_throughput,
    solve,
)
from formulations.prices import search as prices
from throughputs import InputError, PlainColumns, ThroughputMatrix

TYPES = ("v100", "p100", "k80")
HOUR = 3600.0


class Jobs:
    """Distinct jobs of which some are there at a time; capacity for three of four."""

    def __init__(self, n_jobs: int, n_active: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        base = np.array([10.0, 5.0, 1.5])
        self.rates = base * rng.uniform(0.75, 1.25, (n_jobs, 3)) * 10.0 ** rng.uniform(-1, 1, (n_jobs, 1))
        self.fastest = self.rates.max(axis=1)
        self.capacity = np.full(3, np.floor(n_active / 4.0))
        self.spent, self.left = rng.uniform(0, HOUR, n_jobs), rng.uniform(HOUR, 2 * HOUR, n_jobs)
        self.isolated = (self.spent + self.left) * rng.uniform(1.0, 1.5, n_jobs)
        self.weights = rng.choice([1.0, 1.0, 2.0], n_jobs)

    def polytope(self, active: np.ndarray) -> Polytope:
        return Polytope(PlainColumns(ThroughputMatrix(self.rates[active], active.tolist(), TYPES)), self.capacity)

    def objective(self, kind: str, active: np.ndarray) -> Objective:
        rates, weights = self.rates[active], self.weights[active]
        steps = self.left[active] * self.fastest[active]
        yardstick = proportional_throughput(rates, self.capacity)
        return {
            "max_min": lambda: MaxMin(yardstick),
            "makespan": lambda: Makespan(steps),
            "finish_time": lambda: FinishTimeFairness(self.spent[active], steps, self.isolated[active]),
            "water_filling": lambda: WaterFilling(yardstick, weights),
            "nash": lambda: NashWelfare(weights),
            "max_sum": lambda: MaxSum(weights),
        }[kind]()


KINDS = ("max_min", "makespan", "finish_time", "water_filling", "nash", "max_sum")


def decisions(n_active: int, steps: int, seed: int) -> Iterator[tuple[Jobs, np.ndarray]]:
    """The active jobs of each decision: from one to the next between 1 and 5 per cent are replaced."""
    rng = np.random.default_rng([seed, 1])
    jobs = Jobs(n_active + steps * (n_active // 20 + 1), n_active, seed)
    active, following = np.arange(n_active), n_active
    for _ in range(steps):
        yield jobs, active
        gone = max(1, int(n_active * rng.uniform(0.01, 0.05)))
        stay = np.sort(rng.permutation(n_active)[gone:])
        active = np.concatenate([active[stay], np.arange(following, following + gone)])
        following += gone


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_active", "steps"),
    [(200, 20), (1000, 20), *(pytest.param(*many, marks=pytest.mark.exhaustive) for many in ((2500, 20), (20_000, 4)))],
)
def test_decisions_in_a_row_are_those_from_nothing(kind, n_active, steps):
    """Objective to 1e-9 (beyond what is proven), the same shares, no more iterations in all."""
    warm_iterations = cold_iterations = used = 0
    last: WarmStart | None = None
    for jobs, active in decisions(n_active, steps, seed=n_active):
        polytope, objective = jobs.polytope(active), jobs.objective(kind, active)
        cold, warm = solve(polytope, objective), solve(polytope, objective, warm=last)
        assert warm.status == "optimal"
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9 + warm.gap + cold.gap)
        assert warm.gap <= 1e-8
        assert polytope.violation(warm.shares) <= 1e-12
        moved = polytope.throughput(warm.shares) - polytope.throughput(cold.shares)
        assert np.abs(moved / polytope.fastest).max() <= 1e-5
        if warm.solver == cold.solver == "prices":
            # an interior point knows less well how a job mixes types between which it is nearly tied
            np.testing.assert_allclose(warm.shares, cold.shares, atol=1e-5)
        assert (warm.prices >= 0).all()
        if warm.solver == cold.solver:
            # those over few undecided jobs are no measure for those over all
            warm_iterations += warm.iterations
            cold_iterations += cold.iterations
        used += any(attempt.warm for attempt in warm.attempts)
        last = warm.warm_start
        assert last is not None
    assert warm_iterations <= cold_iterations
    if n_active > 2000 or (kind == "finish_time" and n_active == 200):
        assert used >= steps - 2


def misleading(honest: WarmStart, seed: int) -> dict[str, WarmStart]:
    rng = np.random.default_rng(seed)
    shape, levels = honest.prices.shape, honest.levels

    def other(prices: np.ndarray, levels: np.ndarray = levels) -> WarmStart:
        return WarmStart(honest.objective, honest.accelerators, prices, levels)

    return {
        "zeros": other(np.zeros(shape)),
        "one type only": other(np.where(np.arange(shape[1]) == 2, 1.0, 0.0) * np.ones(shape)),
        "not a number": other(np.full(shape, np.nan)),
        "infinite": other(np.full(shape, np.inf)),
        "negative": other(-honest.prices),
        "huge": other(honest.prices * 1e300),
        "next to nothing": other(honest.prices * 1e-300),
        "random": other(10.0 ** rng.uniform(-3, 3, shape)),
        "turned round": other(honest.prices[:, ::-1].copy()),
        "another level": other(honest.prices, levels * 50.0),
        "a low level": other(honest.prices, levels * 0.02),
        "no level": other(honest.prices, np.full_like(levels, np.nan)),
        "level zero": other(honest.prices, np.zeros_like(levels)),
        "level below zero": other(honest.prices, -levels - 1.0),
        "no programs": other(np.zeros((0, shape[1])), np.zeros(0)),
        "too many programs": other(np.vstack([honest.prices] * 4), np.tile(levels, 4)),
        "another objective": WarmStart("Another", honest.accelerators, honest.prices, levels),
        "other types": WarmStart(honest.objective, ("a", "b", "c"), honest.prices, levels),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_active", [150, 1600])
def test_a_misleading_start_does_no_harm(kind, n_active):
    for jobs, active in decisions(n_active, 1, seed=7):
        polytope, objective = jobs.polytope(active), jobs.objective(kind, active)
        cold = solve(polytope, objective)
        for name, start in misleading(cold.warm_start, seed=3).items():
            with np.errstate(all="raise", under="ignore", invalid="ignore", divide="ignore"):
                found = solve(polytope, objective, warm=start)
            assert found.status == "optimal", name
            assert found.objective == pytest.approx(cold.objective, rel=1e-9 + found.gap + cold.gap), name
            np.testing.assert_allclose(found.shares, cold.shares, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["max_min", "finish_time"])
def test_a_start_from_another_problem(kind):
    """Half the cluster, other jobs: whatever it is worth, the answer is that of the problem at hand."""
    few, many = Jobs(1700, 3400, seed=1), Jobs(1700, 800, seed=2)
    active = np.arange(1700)
    start = solve(many.polytope(active), many.objective(kind, active)).warm_start
    polytope, objective = few.polytope(active), few.objective(kind, active)
    cold, warm = solve(polytope, objective), solve(polytope, objective, warm=start)
    assert warm.status == "optimal"
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9 + warm.gap + cold.gap)


def test_types_may_lose_or_gain_all_their_gpus():
    jobs, active = next(decisions(1600, 1, seed=5))
    objective, whole = jobs.objective("finish_time", active), jobs.polytope(active)
    without = Polytope(whole.columns, np.array([whole.capacity[0], whole.capacity[1], 0.0]))
    for before, after in ((whole, without), (without, whole)):
        cold = solve(after, objective)
        warm = solve(after, objective, warm=solve(before, objective).warm_start)
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9 + warm.gap + cold.gap)
        np.testing.assert_allclose(warm.shares, cold.shares, atol=1e-5)


def test_failed_attempts_are_on_record(monkeypatch):
    """An attempt from a start that breaks down is counted, and the next one begins from nothing."""
    jobs, active = next(decisions(1600, 1, seed=9))
    polytope, objective = jobs.polytope(active), jobs.objective("finish_time", active)
    start = solve(polytope, objective).warm_start
    honest: Callable[..., object] = prices._Search.run

    def run(self: object, start: object = None) -> object:
        if start is not None:
            raise RuntimeError("broke down")
        return honest(self, start)

    monkeypatch.setattr(prices._Search, "run", run)
    found = solve(polytope, objective, warm=start)
    assert [(attempt.solver, attempt.warm, attempt.note) for attempt in found.attempts] == [
        ("prices", True, "broke down"),
        ("prices", False, ""),
    ]
    assert found.status == "optimal"


def test_the_published_choice_takes_no_start():
    jobs, active = next(decisions(1600, 1, seed=4))
    polytope, objective = jobs.polytope(active), jobs.objective("finish_time", active)
    cold = solve(polytope, objective, choice="published")
    found = solve(polytope, objective, choice="published", warm=cold.warm_start)
    assert not any(attempt.warm or attempt.solver == "prices" for attempt in found.attempts)
    np.testing.assert_array_equal(found.shares, cold.shares)


def test_a_start_has_one_price_per_type():
    with pytest.raises(InputError, match="shape"):
        WarmStart("MaxMin", TYPES, np.ones((1, 2)), np.ones(1))
    with pytest.raises(InputError, match="shape"):
        WarmStart("MaxMin", TYPES, np.ones((1, 3)), np.ones(2))


def test_where_one_job_holds_the_level_nothing_is_passed_on():
    """Capacity is then worth nothing, and says nothing about the next decision."""
    jobs, active = next(decisions(300, 1, seed=6))
    polytope = Polytope(jobs.polytope(active).columns, np.full(3, 1000.0))
    start = solve(polytope, jobs.objective("finish_time", active)).warm_start
    assert start.starts("FinishTimeFairness", TYPES, np.arange(3)) == ()
