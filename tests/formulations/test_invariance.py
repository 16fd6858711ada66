"""What no optimum may depend on, and how it answers to more of something: order, units, copies, GPUs and prices."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import (
    FinishTimeFairness,
    MaxMin,
    MaxSum,
    NashWelfare,
    PackedPolytope,
    Polytope,
    WaterFilling,
    maximise_ratio,
    maximise_worth,
    solve,
)
from tests.formulations.programs import (
    FEATURES,
    KINDS,
    LINEAR,
    PACKED,
    draw_contended,
    draw_hard,
    draw_packed,
    given,
    most,
    polytope_of,
    with_capacity,
    with_jobs,
    written_out,
)
from throughputs import PackedColumns

SHARES, THROUGHPUTS, FLAT = 2e-4, 1e-6, 1e-4
"""How far shares, and throughputs beside each job's fastest, may be apart where units round (of logarithms: flat)."""

STEP, ROUNDING = 1e-3, 2e-8
"""GPUs by which capacity is changed, and the relative error of the difference of two values."""

_SOLVED = {}


def hard(kind, seed):
    """A hard program and its solution, which most properties compare with."""
    if (kind, seed) not in _SOLVED:
        polytope, objectives = draw_hard(seed)
        _SOLVED[kind, seed] = polytope, objectives[kind], solve(polytope, objectives[kind])
    return _SOLVED[kind, seed]


def hard_ones(kind, first=0, step=3):
    """Every third feature, of which each property begins with another."""
    for seed in range(first, FEATURES, step):
        yield seed, np.random.default_rng(seed), *hard(kind, seed)


def close(objective, one, other):
    """Equal up to twice the tolerance of a choice among optima; of logarithms, of a gap."""
    flat = isinstance(objective, NashWelfare)
    size = float(objective.totals.sum()) if flat else max(abs(one), abs(other))
    return np.isnan([one, other]).all() or abs(one - other) <= (1e-7 if flat else 2.5e-8) * size


def relative_throughput(polytope, found):
    return given(polytope, found)[0] / np.maximum(polytope.rates.max(axis=1), 1e-300)


def counted_in(objective, factor):
    """The same objective when job i's throughput is counted in units `factor[i]` times smaller."""
    match objective:
        case MaxMin():
            return type(objective)(objective.weights * factor)
        case FinishTimeFairness():
            return FinishTimeFairness(objective.elapsed, objective.remaining * factor, objective.isolated)
        case MaxSum():
            return MaxSum(objective.gains / factor)
        case WaterFilling():
            return WaterFilling(objective.units * factor, objective.weights)
    return objective


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_jobs_and_types_changes_no_bit(kind):
    for seed in range(4):
        polytope, objectives = draw_contended(seed)
        objective, rng = objectives[kind], np.random.default_rng(seed)
        jobs, types = rng.permutation(polytope.n_jobs), rng.permutation(len(polytope.capacity))
        one, other = solve(polytope, objective), solve(polytope.restricted(jobs, types), objective.take(jobs))
        np.testing.assert_array_equal(other.shares, one.shares[jobs][:, types], err_msg=f"seed {seed}")
        np.testing.assert_array_equal(other.prices, one.prices[types], err_msg=f"seed {seed}")
        np.testing.assert_array_equal(other.multipliers, one.multipliers[jobs], err_msg=f"seed {seed}")


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_a_hard_program(kind):
    """Jobs: to the last bit. Types that are the same to all may swap shares: the value, and nearly all throughputs."""
    far = 0
    for seed, rng, polytope, objective, one in hard_ones(kind, 0, 2):
        jobs, types = rng.permutation(polytope.n_jobs), rng.permutation(len(polytope.capacity))
        other = solve(with_jobs(polytope, jobs), objective.take(jobs))
        np.testing.assert_array_equal(other.shares, one.shares[jobs], err_msg=f"seed {seed}")
        np.testing.assert_array_equal(other.prices, one.prices, err_msg=f"seed {seed}")
        assert other.objective == one.objective or one.status == "empty"
        turned = polytope.restricted(np.arange(polytope.n_jobs), types)
        other = solve(turned, objective)
        assert close(objective, other.objective, one.objective), f"seed {seed}"
        u, v = relative_throughput(polytope, one), relative_throughput(turned, other)
        far += not np.allclose(u, v, rtol=1e-4, atol=1e-4 * float(u.max()))
    assert far <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_each_jobs_throughput(kind):
    """Steps of one job may be epochs of another: with goals in the same units nothing changes but rounding."""
    for seed in range(3):
        polytope, objectives = draw_contended(seed)
        objective, factor = objectives[kind], 10.0 ** np.random.default_rng(seed).uniform(-3, 3, polytope.n_jobs)
        scaled = polytope_of(polytope.rates * factor[:, None], polytope.scale_factors, polytope.capacity)
        one, other = solve(polytope, objective), solve(scaled, counted_in(objective, factor))
        np.testing.assert_allclose(other.shares, one.shares, atol=SHARES)
        u, v = relative_throughput(polytope, one), relative_throughput(scaled, other)
        np.testing.assert_allclose(v, u, atol=FLAT if kind == "nash_welfare" else THROUGHPUTS)


@pytest.mark.parametrize("kind", KINDS)
def test_identical_jobs_get_identical_shares_and_a_class_is_so_many_jobs(kind):
    for seed, rng, polytope, objective, _ in hard_ones(kind, 0):
        N = polytope.n_jobs
        counts = rng.integers(1, 4, N)
        copies = rng.permutation(np.repeat(np.arange(N), counts))
        many = solve(with_jobs(polytope, copies), objective.take(copies))
        for job in range(N):
            rows = many.shares[copies == job]
            np.testing.assert_array_equal(rows, np.broadcast_to(rows[:1], rows.shape), err_msg=f"seed {seed}")
        counted = objective.of_classes(np.arange(N), counts.astype(float))
        classes = solve(Polytope(polytope.columns, polytope.capacity, counts.astype(float)), counted)
        total = objective.take(copies) if kind == "nash_welfare" else objective
        assert close(total, classes.objective, many.objective), f"seed {seed}"


def test_the_first_gpu_of_a_type_and_what_nobody_knows():
    ones = np.ones(2, dtype=np.int64)
    faster = polytope_of([[1.0, 10.0], [1.0, 10.0]], ones, [1.0, 0.0])
    np.testing.assert_allclose(solve(faster, MaxSum([1, 1])).prices, [1.0, 10.0], rtol=1e-9)
    np.testing.assert_allclose(solve(faster, MaxMin([1, 1])).prices, [0.5, 5.0], rtol=1e-9)
    # with GPUs of the second type the objective would be one over more jobs; a sum counts them at nothing already
    joined = polytope_of([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], ones, [0.5, 0.0, 0.0])
    np.testing.assert_allclose(solve(joined, MaxMin([1, 1])).prices, [1.0, np.nan, 2.0], rtol=1e-9)
    np.testing.assert_allclose(solve(joined, MaxSum([1, 1])).prices, [1.0, 3.0, 2.0], rtol=1e-9)
    assert np.isnan(solve(with_capacity(joined, [0, 0, 0]), MaxMin([1, 1])).prices).all()
    ratio = maximise_ratio(polytope_of([[1.0, 10.0, 0.1]], None, [1.0, 0.0, 0.0]), np.ones(3))
    np.testing.assert_array_equal(ratio.prices, [0.0, np.nan, 0.0])


@pytest.mark.parametrize("kind", LINEAR)
def test_efficient_nobody_gains_unless_another_loses(kind):
    """By simplex above what everybody has: over shares, and over shares in pairs."""
    for draw, run, engines in ((draw_contended, solve, ("auto", "highs")), (draw_packed, solve, ("auto",))):
        for seed in range(3):
            polytope, objectives = draw(seed)
            for solver in engines:
                found = run(polytope, objectives[kind], solver=solver)
                if found.status == "empty":
                    continue
                u, general = given(polytope, found)[0], written_out(polytope.columns)
                fastest = np.maximum(
                    general.rate[:, polytope.capacity[general.accelerator] > 0].max(axis=1).toarray(), 0
                )
                gains = np.where(found.served, 1.0 / np.maximum(fastest.ravel(), 1e-300), 0.0)
                best = most(polytope, general.rate.T @ gains, u * (1 - 1e-9))
                assert best - gains @ u <= 2e-6 * max(best, 1.0), f"seed {seed}"
                assert found.efficiency_gap <= 2e-6 or kind == "max_sum", f"seed {seed}"


@pytest.mark.parametrize("kind", PACKED)
def test_order_of_jobs_in_pairs_changes_no_bit(kind):
    for seed in range(5):
        polytope, objectives = draw_packed(4000 + seed, largest=12)
        order = np.random.default_rng(seed).permutation(polytope.n_jobs)
        shuffled = with_jobs(polytope, order)
        one, other = solve(polytope, objectives[kind]), solve(shuffled, objectives[kind].take(order))
        np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")
        assert other.objective == pytest.approx(one.objective, rel=1e-12, nan_ok=True)
        u, v = given(polytope, one)[0], given(shuffled, other)[0]
        np.testing.assert_allclose(v, u[order], rtol=1e-10, atol=1e-12)


def test_identical_jobs_are_treated_alike_in_pairs():
    """Equal times alone, equal times beside each group of jobs, equal throughput."""
    for seed in range(5000, 5006):
        polytope, objectives = draw_packed(seed)
        thrice = np.repeat(np.arange(polytope.n_jobs), 3)
        tripled = with_jobs(polytope, thrice)
        found = solve(tripled, objectives["max_min"].take(thrice))
        group, pairs = tripled.columns.group, found.pairs
        beside = np.zeros((len(thrice), len(polytope.columns.alone)))
        np.add.at(beside, (pairs.first, group[pairs.second]), pairs.share)
        np.add.at(beside, (pairs.second, group[pairs.first]), pairs.share)
        u = given(tripled, found)[0]
        for figures, apart in ((found.shares, 0.0), (beside, 1e-10), (u[:, None] / max(u.max(), 1e-300), 1e-9)):
            assert np.ptp(figures.reshape(-1, 3, figures.shape[1]), axis=1).max(initial=0) <= apart, f"seed {seed}"


def draw_floors(seed, pairs):
    """Contended jobs that keep two fifths of a fair throughput; worth (N, M) and what GPUs cost (M,)."""
    rng = np.random.default_rng([seed, 77])
    if pairs:
        N, G, M = int(rng.integers(2, 9)), int(rng.integers(1, 5)), int(rng.integers(2, 4))
        alone = rng.uniform(0.1, 1, (G, M)) * 10.0 ** rng.uniform(-1, 1, (G, 1))
        columns = PackedColumns(rng.integers(0, G, N), alone, alone[:, None] * rng.uniform(0.3, 1.0, (G, G, M)))
        polytope = PackedPolytope(columns, rng.uniform(0.3, 0.4 * N, M) * (np.arange(M) != rng.integers(1, M)))
    else:
        polytope = draw_contended(seed)[0]
    rates = polytope.columns.rates
    fair = solve(polytope, MaxMin(rates.max(axis=1)))
    return (
        polytope,
        0.4 * given(polytope, fair)[0],
        rng.uniform(0.2, 2, rates.shape),
        rng.uniform(0.5, 2, rates.shape[1]),
    )


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_prices_above_floors_are_what_more_gpus_bring(pairs, ratio):
    for seed in range(3):
        polytope, floors, gains, cost = draw_floors(seed, pairs)

        def run(capacity, p=polytope, f=floors, g=gains, c=cost):
            p = with_capacity(p, capacity)
            return maximise_ratio(p, c, f) if ratio else maximise_worth(p, g, f)

        at = run(polytope.capacity)
        for j in np.flatnonzero(np.isfinite(at.prices)):
            gained = run(polytope.capacity + STEP * (np.arange(len(cost)) == j)).objective - at.objective
            noise = ROUNDING * at.objective / STEP
            # a ratio is not concave in capacity
            assert gained / STEP <= at.prices[j] * (1 + 5e-3) + noise, f"seed {seed}, type {j}"
            assert ratio or pairs or gained / STEP >= at.prices[j] * 0.99 - noise, f"seed {seed}, type {j}"
