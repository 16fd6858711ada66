"""Throughput per dollar, deadlines, and the programs behind them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from allocator import Cluster, ClusterState, ThroughputMatrix, Trigger, default_table, get_policy
from formulations import MaxMin, Polytope, SolverError, keep_most_floors, maximise_ratio, maximise_worth, solve
from throughputs import InputError, PlainColumns, PriceTable

TYPES = ["v100", "p100", "k80"]
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
BOTH = ["max_sum_throughput_normalized_by_cost_perf", "max_sum_throughput_normalized_by_cost_perf_SLOs"]
SLOS = BOTH[1]


def draw(seed, n=12, gpus=3):
    """Rates with ties and zeros, gangs, floors of some jobs, GPUs."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 1.0, (n, 3)) * 10.0 ** rng.uniform(-1, 2, (n, 1))
    rates[rng.random((n, 3)) < 0.15] = 0.0
    rates[~(rates > 0).any(axis=1), 0] = 1.0
    if seed % 3 == 0:
        rates[1::4] = rates[0]
    sizes = rng.choice([1, 1, 2], n)
    floors = rates.max(axis=1) * np.where(rng.random(n) < 0.7, rng.uniform(0.1, 0.9, n), 0.0)
    return rates, sizes, floors, np.full(3, gpus)


def polytope_of(rates, sizes, capacity):
    return Polytope(PlainColumns(ThroughputMatrix(rates, range(len(rates)), TYPES, sizes)), capacity)


def rows_of(rates, sizes, capacity, floors):
    """``A x <= b`` of the polytope with floors, columns job by job."""
    N, M = rates.shape
    time = np.kron(np.eye(N), np.ones(M))
    use = np.kron(sizes, np.eye(M)).reshape(M, N * M)
    demand = np.zeros((N, N * M))
    for i in range(N):
        demand[i, i * M : (i + 1) * M] = -rates[i]
    return np.vstack([time, use, demand]), np.concatenate([np.ones(N), capacity, -floors])


def state_of(seed, *, slo_hours=(2.0, 60.0), with_slos=True, n=18, cluster="v100:4,p100:4,k80:4"):
    rng = np.random.default_rng(seed)
    table, gpus = default_table(), Cluster.parse(cluster)
    names = [table.job_types[k] for k in rng.integers(len(table.job_types), size=n)]
    steps = rng.uniform(1e4, 3e5, n)
    slos = np.where(rng.random(n) < 0.6, rng.uniform(*slo_hours, n) * 3600, np.inf)
    return ClusterState(
        gpus,
        table.matrix(range(n), names, np.ones(n, dtype=int), gpus.accelerators),
        steps_remaining=steps,
        slo_seconds=slos if with_slos else None,
        gpu_prices=np.array([PRICES[name] for name in gpus.accelerators]),
    )


@pytest.mark.parametrize("seed", range(25))
def test_largest_worth_is_that_of_a_plain_linear_program(seed):
    rates, sizes, floors, capacity = draw(seed)
    polytope = polytope_of(rates, sizes, capacity)
    kept = keep_most_floors(polytope, floors)
    worth = rates * np.random.default_rng(seed).uniform(-0.2, 1.0, rates.shape)
    solution = maximise_worth(polytope, worth, kept.floors)
    A, b = rows_of(rates, sizes, capacity, kept.floors)
    exact = -linprog(-worth.ravel(), A_ub=A, b_ub=b * (1 + 1e-12 * np.sign(b))).fun
    scale = np.abs(worth).max()
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(exact, rel=1e-7, abs=1e-7 * scale)
    assert solution.bound >= exact - 1e-7 * scale
    assert (polytope.throughput(solution.shares) >= kept.floors * (1 - 1e-7)).all()
    assert polytope.violation(solution.shares) <= 1e-12


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_paths_with_floors_agree(solver):
    rates, sizes, floors, capacity = draw(4)
    polytope = polytope_of(rates, sizes, capacity)
    kept = keep_most_floors(polytope, floors).floors
    assert kept.any()
    by_default = maximise_worth(polytope, rates, kept)
    named = maximise_worth(polytope, rates, kept, solver=solver)
    assert named.solver == solver
    assert named.objective == pytest.approx(by_default.objective, rel=1e-7)


def test_a_solver_without_floors_says_so():
    rates, sizes, floors, capacity = draw(1)
    with pytest.raises(SolverError, match="ecos: takes no floors"):
        maximise_worth(polytope_of(rates, sizes, capacity), rates, 0.01 * floors, solver="ecos")


@pytest.mark.parametrize("seed", range(25))
def test_ratio_is_that_of_the_transformed_linear_program(seed):
    """Against Charnes and Cooper's linear program, written out densely."""
    rates, sizes, floors, capacity = draw(seed)
    polytope = polytope_of(rates, sizes, capacity)
    kept = keep_most_floors(polytope, floors).floors
    cost = sizes[:, None] * np.array([0.74, 0.43, 0.135])
    gains = np.random.default_rng(seed).uniform(0.5, 2.0, len(rates))
    solution = maximise_ratio(polytope, gains, cost, kept)
    A, b = rows_of(rates, sizes, capacity, kept)
    worth = (gains[:, None] * rates).ravel()
    exact = linprog(
        -np.append(worth, 0.0),
        A_ub=np.column_stack([A, -b]),
        b_ub=np.zeros(len(b)),
        A_eq=np.append(cost.ravel(), 0.0)[None],
        b_eq=[1.0],
    )
    attained = worth @ solution.shares.ravel() / (cost * solution.shares).sum()
    assert solution.objective == pytest.approx(-exact.fun, rel=1e-8)
    assert solution.objective == pytest.approx(attained, rel=1e-12)
    assert solution.bound >= -exact.fun * (1 - 1e-9)
    assert solution.gap <= 1e-7
    assert solution.status == "optimal"


def test_without_floors_the_best_column_is_all_that_runs():
    rates, sizes, _, capacity = draw(2)
    cost = sizes[:, None] * np.ones(3)
    solution = maximise_ratio(polytope_of(rates, sizes, capacity), np.ones(len(rates)), cost)
    best = (rates / cost).max()
    assert solution.objective == pytest.approx(best, rel=1e-12)
    assert np.allclose((rates / cost)[solution.shares > 0], best)


def test_prices_of_the_ratio_are_what_one_more_gpu_improves_it_by():
    rates, sizes, floors, capacity = draw(7, gpus=2)
    cost, gains = sizes[:, None] * np.array([0.74, 0.43, 0.135]), np.ones(len(rates))
    kept = keep_most_floors(polytope_of(rates, sizes, capacity), floors).floors
    base = maximise_ratio(polytope_of(rates, sizes, capacity), gains, cost, kept)
    step = 1e-4
    for j in range(3):
        more = capacity + step * (np.arange(3) == j)
        better = maximise_ratio(polytope_of(rates, sizes, more), gains, cost, kept)
        gained = (better.objective - base.objective) / step
        assert gained == pytest.approx(base.prices[j], rel=1e-3, abs=1e-4 * base.objective)


@pytest.mark.parametrize("seed", range(12))
def test_fewest_floors_are_given_up(seed):
    """Against every subset."""
    rates, sizes, _, capacity = draw(seed, n=7, gpus=2)
    floors = rates.max(axis=1) * np.random.default_rng(seed).uniform(0.4, 1.1, 7)
    polytope = polytope_of(rates, sizes, capacity)
    kept = keep_most_floors(polytope, floors)

    def attainable(jobs):
        part = polytope.restricted(np.array(jobs), np.arange(3))
        return solve(part, MaxMin(floors[list(jobs)])).objective >= 1 - 1e-6

    largest = next(k for k in range(7, -1, -1) if k == 0 or any(map(attainable, combinations(range(7), k))))
    assert kept.kept.sum() == largest
    assert (kept.kept ^ kept.dropped).all()
    if largest:
        assert attainable(np.flatnonzero(kept.kept))
    np.testing.assert_allclose(kept.floors, np.where(kept.kept, floors, 0.0), rtol=2e-6)


def test_bad_floors_and_costs_say_so():
    rates, sizes, floors, capacity = draw(0)
    polytope = polytope_of(rates, sizes, capacity)
    with pytest.raises(InputError, match="field 'floors'"):
        maximise_worth(polytope, rates, -floors - 1)
    with pytest.raises(InputError, match="field 'cost'"):
        maximise_ratio(polytope, np.ones(len(rates)), np.zeros(rates.shape))
    idle = polytope_of(np.zeros((1, 3)), [1], capacity)
    with pytest.raises(InputError, match="floor of job 0"):
        maximise_worth(idle, np.ones((1, 3)), [1.0])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cost", ["by_type", "total"])
def test_deadlines_are_met_and_dropped_ones_are_named(seed, cost):
    state = state_of(seed, slo_hours=(1.0, 20.0))
    allocation = get_policy(SLOS, cost=cost).allocate(state)
    dropped = set(allocation.dropped_slos)
    due = np.isfinite(state.slo_seconds)
    assert dropped <= set(np.flatnonzero(due))
    needed = state.steps_remaining / state.slo_seconds
    kept = due & ~np.isin(np.arange(state.n_jobs), list(dropped))
    assert (allocation.effective_throughput[kept] >= needed[kept] * (1 - 1e-5)).all()
    assert allocation.status == "optimal"
    assert allocation.gap <= 1e-7


def test_total_cost_is_the_cheaper_way_to_meet_deadlines():
    cheaper = 0
    for seed in range(6):
        state = state_of(seed)
        dollars = np.array([PRICES[name] for name in TYPES])
        per_dollar = {}
        for cost in ("by_type", "total"):
            allocation = get_policy(SLOS, cost=cost, prices=PRICES).allocate(state)
            spent = (state.scale_factors[:, None] * dollars * allocation.shares).sum()
            per_dollar[cost] = allocation.effective_throughput.sum() * 3600 / spent
        assert per_dollar["total"] >= per_dollar["by_type"] * (1 - 1e-9)
        cheaper += per_dollar["total"] > per_dollar["by_type"] * 1.01
    assert cheaper


def test_without_deadlines_it_is_the_policy_without_them():
    state = state_of(3, with_slos=False)
    np.testing.assert_array_equal(get_policy(BOTH[0]).allocate(state).shares, get_policy(SLOS).allocate(state).shares)


def test_without_prices_every_gpu_costs_the_same():
    state = state_of(3, with_slos=False)
    free = ClusterState(state.cluster, state.throughputs, steps_remaining=state.steps_remaining)
    plain = get_policy("max_sum_throughput_perf").allocate(free)
    assert get_policy(BOTH[0]).allocate(free).objective == pytest.approx(plain.objective, rel=1e-8)


def test_prices_come_from_a_table_at_the_time_of_the_decision():
    state = state_of(1, with_slos=False)
    table = PriceTable({name: ([0.0, 100.0], [PRICES[name], 2 * PRICES[name]]) for name in TYPES})
    now = get_policy(BOTH[0], prices=table).allocate(state)
    assert now.objective == pytest.approx(get_policy(BOTH[0]).allocate(state).objective)
    later = ClusterState(state.cluster, state.throughputs, steps_remaining=state.steps_remaining, clock=150.0)
    assert get_policy(BOTH[0], prices=table).allocate(later).objective == pytest.approx(now.objective / 2)


def test_a_missed_deadline_is_dropped_and_the_job_runs_on():
    matrix = ThroughputMatrix([[2.0, 1.0, 0.5]] * 2, ["late", "due"], TYPES)
    state = ClusterState(
        Cluster.parse("v100:1,p100:1,k80:0"),
        matrix,
        steps_remaining=np.array([1e4, 1e4]),
        slo_seconds=np.array([-5.0, 1e4]),
    )
    allocation = get_policy(SLOS).allocate(state)
    assert allocation.dropped_slos == ("late",)
    assert allocation.effective_throughput[1] >= 1.0 - 1e-9
    assert allocation.effective_throughput.sum() == pytest.approx(3.0)


def test_published_way_drops_every_deadline_when_one_cannot_be_met():
    state = state_of(0, slo_hours=(0.05, 2.0))
    fewest = get_policy(SLOS).allocate(state)
    everything = get_policy(SLOS, infeasible="drop_all").allocate(state)
    assert 0 < len(fewest.dropped_slos) < np.isfinite(state.slo_seconds).sum() == len(everything.dropped_slos)
    unbound = get_policy(BOTH[0]).allocate(state)
    assert everything.objective == pytest.approx(unbound.objective, rel=1e-7)
    assert fewest.objective <= unbound.objective * (1 + 1e-9)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("cost", ["by_type", "total"])
def test_order_of_jobs_does_not_matter(name, cost):
    state = state_of(5, slo_hours=(0.5, 10.0))
    order = np.random.default_rng(1).permutation(state.n_jobs)
    policy = get_policy(name, cost=cost)
    first, second = policy.allocate(state), policy.allocate(state.subset(order))
    np.testing.assert_array_equal(first.shares[order], second.shares)
    assert set(first.dropped_slos) == set(second.dropped_slos)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost": "free"}, "one of by_type, total"),
        ({"prices": {"v100": 1.0}}, "accelerator"),
        ({"prices": PRICES | {"k80": 0.0}}, "price of k80"),
        ({"prices": PRICES | {"k80": -1.0}}, "at least 0"),
    ],
)
def test_bad_settings_say_so(settings, message):
    with pytest.raises(InputError, match=message):
        get_policy(BOTH[0], **settings).allocate(state_of(0))


def test_bad_infeasible_says_so():
    with pytest.raises(InputError, match="drop_fewest, drop_all"):
        get_policy(SLOS, infeasible="give_up")


def test_gpus_left_unused_for_their_price_stay_unused():
    for name in BOTH:
        assert get_policy(name).fills_idle_gpus
        assert not get_policy(name, cost="total").fills_idle_gpus
        assert Trigger.PRICES in get_policy(name).triggers


def test_worth_without_floors():
    rates = np.random.default_rng(0).uniform(1.0, 9.0, (200, 3))
    found = maximise_worth(polytope_of(rates, np.ones(200, int), [20, 20, 20]), rates)
    assert found.status == "optimal"
    assert [attempt.solver for attempt in found.attempts] == ["highs"]
