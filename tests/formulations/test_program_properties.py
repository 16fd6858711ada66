"""What must hold of any optimum, whatever finds it."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Makespan, MaxMin, MaxSum, Polytope, solve
from formulations.solving.choice import bisected_makespan
from throughputs import InputError

KINDS = ("max_min", "makespan", "finish_time", "max_sum")
SEEDS = range(40)


def best_total_worth(polytope: Polytope, floors: np.ndarray, worth: np.ndarray) -> float:
    """Most worth when every job keeps at least `floors`, by simplex."""
    from scipy.optimize import linprog

    columns = polytope.columns.general
    N = polytope.n_jobs
    from scipy.sparse import vstack

    rows = vstack([columns.time, columns.usage, -columns.rate])
    limits = np.concatenate([np.ones(N), polytope.capacity, -floors])
    result = linprog(-worth.ravel(), A_ub=rows, b_ub=limits, bounds=(0, None), method="highs")
    assert result.status == 0
    return -float(result.fun)


@pytest.mark.parametrize("kind", KINDS)
def test_pareto_efficient(draw, kind):
    """No job can gain unless another loses, and no GPU idles that a job could use."""
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        solution = solve(polytope, objectives[kind])
        u = polytope.throughput(solution.shares)
        relative = polytope.rates / polytope.rates.max(axis=1, keepdims=True)
        total = float((relative * solution.shares).sum())
        best = best_total_worth(polytope, u * (1 - 1e-9), relative)
        assert best - total <= 2e-6 * max(total, 1.0), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_choice_does_not_depend_on_the_solver(draw, kind):
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        one = solve(polytope, objectives[kind], solver="structured")
        other = solve(polytope, objectives[kind], solver="highs")
        np.testing.assert_allclose(
            polytope.throughput(one.shares),
            polytope.throughput(other.shares),
            rtol=1e-3,
            atol=1e-5,
            err_msg=f"seed {seed}",
        )


@pytest.mark.parametrize("kind", KINDS)
def test_job_order_does_not_matter(draw, kind):
    """The same jobs in another order get the same shares, to the last bit."""
    rng = np.random.default_rng(1)
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        order = rng.permutation(polytope.n_jobs)
        shuffled = polytope.restricted(order, np.arange(len(polytope.capacity)))
        one = solve(polytope, objectives[kind])
        other = solve(shuffled, objectives[kind].take(order))
        np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")


@pytest.mark.parametrize("kind", KINDS)
def test_identical_jobs_get_identical_shares(draw, kind, polytope_of):
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        twice = np.repeat(np.arange(polytope.n_jobs), 2)
        doubled = polytope_of(polytope.rates[twice], polytope.scale_factors[twice], polytope.capacity)
        shares = solve(doubled, objectives[kind].take(twice)).shares
        np.testing.assert_array_equal(shares[::2], shares[1::2])


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_types_does_not_matter(draw, kind):
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        turned = np.arange(len(polytope.capacity))[::-1]
        one = solve(polytope, objectives[kind])
        other = solve(polytope.restricted(np.arange(polytope.n_jobs), turned), objectives[kind])
        assert other.objective == pytest.approx(one.objective, rel=1e-7)


@pytest.mark.parametrize("kind", ["max_min", "makespan", "max_sum"])
def test_unit_of_throughput_does_not_matter(draw, kind, polytope_of):
    """Ten times the throughput: the same shares, the objective scaled as its unit says."""
    factor = {"max_min": 10.0, "makespan": 0.1, "max_sum": 10.0}[kind]
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        faster = polytope_of(polytope.rates * 10, polytope.scale_factors, polytope.capacity)
        assert solve(faster, objectives[kind]).objective == pytest.approx(
            factor * solve(polytope, objectives[kind]).objective, rel=1e-7
        )


@pytest.mark.parametrize("kind", KINDS)
def test_more_gpus_never_hurt(draw, kind, polytope_of):
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        larger = polytope_of(polytope.rates, polytope.scale_factors, polytope.capacity + 1)
        before, after = solve(polytope, objectives[kind]).objective, solve(larger, objectives[kind]).objective
        sign = 1 if objectives[kind].maximise else -1
        assert sign * (after - before) >= -1e-7 * abs(before), f"seed {seed}"


@pytest.mark.parametrize("kind", ["max_min", "makespan", "finish_time", "max_sum"])
def test_prices_are_the_value_of_one_more_gpu(kind, polytope_of):
    """A price is the slope of the objective in the capacity, where the optimum is not degenerate."""
    from formulations import FinishTimeFairness

    rng = np.random.default_rng(4)
    rates = rng.uniform(1, 5, (9, 2))
    scale_factors, capacity = np.ones(9, dtype=np.int64), np.array([2.3, 3.1])
    steps = rng.uniform(1e3, 2e3, 9)
    objective = {
        "max_min": MaxMin(rng.uniform(1, 2, 9)),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(rng.uniform(0, 10, 9), steps, rng.uniform(900, 1000, 9)),
        "max_sum": MaxSum(np.ones(9)),
    }[kind]
    step = 1e-3
    at = solve(polytope_of(rates, scale_factors, capacity), objective)
    for j in range(2):
        more = capacity + step * (np.arange(2) == j)
        change = solve(polytope_of(rates, scale_factors, more), objective).objective - at.objective
        gained = change if objective.maximise else -change
        assert at.prices[j] == pytest.approx(gained / step, rel=2e-2)
        assert at.prices[j] > 0


def test_bisection_replays_without_programs():
    """The published bisection, given the optimum, ends at a feasible time within 5 % of it."""
    for makespan in (101.0, 5_000.0, 26_276.2, 999_999.0, 3e6, 4.2e8):
        last = bisected_makespan(makespan)
        assert makespan <= last <= 1.05 * makespan * (1 + 1e-12)
    assert bisected_makespan(10.0) <= 105.1


def test_published_makespan_meets_the_bisected_time(draw):
    for seed in SEEDS:
        polytope, objectives = draw(seed)
        exact = solve(polytope, objectives["makespan"])
        published = solve(polytope, objectives["makespan"], choice="published")
        assert published.objective <= bisected_makespan(exact.objective) * (1 + 1e-6)
        assert published.objective >= exact.objective * (1 - 1e-9)


def test_published_makespan_survives_a_solver_that_finds_no_point(draw, monkeypatch):
    """The named solver's feasibility problem may fail at the last feasible time; a point is returned all the same."""
    from formulations.reference import convex

    def fail(*_arguments):
        raise RuntimeError("infeasible, it says")

    monkeypatch.setattr(convex, "feasible_point", fail)
    polytope, objectives = draw(2)
    exact = solve(polytope, objectives["makespan"]).objective
    published = solve(polytope, objectives["makespan"], solver="clarabel", choice="published").objective
    assert published <= bisected_makespan(exact) * (1 + 1e-6)


def test_polytope_says_what_is_wrong(polytope_of):
    rates = np.ones((2, 3))
    with pytest.raises(InputError, match=r"capacity.*shape \(3,\)"):
        polytope_of(rates, np.array([1, 1]), np.array([1, 1]))
    with pytest.raises(InputError, match=r"capacity.*-1"):
        polytope_of(rates, np.array([1, 1]), np.array([1, -1, 1]))


def test_objectives_say_what_is_wrong():
    with pytest.raises(InputError, match="weights"):
        MaxMin(np.array([1.0, 0.0]))


def test_unknown_choice(draw):
    polytope, objectives = draw(0)
    with pytest.raises(InputError, match="balanced, published"):
        solve(polytope, objectives["max_min"], choice="fair")
