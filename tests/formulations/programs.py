"""Random programs of every family, and the one judge of their solutions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from formulations import (
    FinishTimeFairness,
    Hierarchy,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    PackedPolytope,
    Polytope,
    WaterFilling,
    isolated_throughput,
    proportional_throughput,
)
from throughputs import Configurations, PackedColumns, PlainColumns, ThroughputMatrix

LEVELS = ("max_min", "makespan", "finish_time")
LINEAR = (*LEVELS, "max_sum")
PACKED = (*LINEAR, "water_filling")
KINDS = (*PACKED, "nash_welfare")
FEATURES = 12

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def polytope_of(rates, scale_factors=None, capacity=(), counts=None):
    rates = np.asarray(rates, dtype=float)
    N, M = rates.shape
    sizes = np.ones(N, dtype=np.int64) if scale_factors is None else np.asarray(scale_factors)
    matrix = ThroughputMatrix(rates, range(N), [f"type{j}" for j in range(M)], sizes)
    return Polytope(PlainColumns(matrix), np.asarray(capacity), counts)


def objectives_of(rng, rates, scale_factors, capacity, weights, *, alike=False, decades=(2, 6)):
    """Every family over the same jobs; `alike`: figures of all jobs are those of the first."""
    N = len(rates)
    proportional, isolated = (
        np.where(u > 0, u, 1.0)
        for u in (proportional_throughput(rates, capacity), isolated_throughput(rates, scale_factors, capacity))
    )
    units, steps = proportional / scale_factors, 10.0 ** rng.uniform(*decades, N)
    elapsed = rng.uniform(0, 10.0 ** (decades[1] - 1), N) * (rng.random() < 0.7)
    alone = steps / isolated + rng.uniform(0, 10.0 ** (decades[1] - 2), N)
    if alike:
        weights, steps, elapsed, alone = (np.full(N, f[0]) for f in (weights, steps, elapsed, alone))
    return {
        "max_min": MaxMin(weights * units),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, alone),
        "max_sum": MaxSum(weights / units),
        "nash_welfare": NashWelfare(weights),
        "water_filling": WaterFilling(units, weights),
    }


def draw_hard(seed, most_jobs=14):
    """One feature that is hard for a solver, by ``seed % 12``, and now and then some more of them.

    1: one job; 2: one type; 3: next to no capacity of one type; 4: of all; 5: weights over six orders of magnitude;
    6: gangs above capacity; 7: ties of jobs, types and rates; 8: types and jobs with no rate at all; 9: capacity to
    spare; 10: far too little; 11: types of no capacity.
    """
    rng = np.random.default_rng([seed, 2])
    features = {seed % FEATURES, *np.flatnonzero(rng.random(FEATURES) < 0.12).tolist()}
    N = 1 if 1 in features else int(rng.integers(2, most_jobs + 1))
    M = 1 if 2 in features else int(rng.integers(2, 6))
    rates = rng.uniform(0.05, 1, (N, M)) * 10.0 ** rng.uniform(-2, 3, (N, 1))
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, N + 3, M).astype(float)
    if 6 in features:
        scale_factors, capacity = rng.choice([4, 8, 16], N), rng.integers(1, 4, M).astype(float)
    if 7 in features:
        rates = np.maximum(np.round(rates, 1), 0.1)
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
        rates[:, rng.integers(0, M)] = rates[:, 0]
        scale_factors[:] = scale_factors[0]
    if 8 in features:
        rates[rng.random((N, M)) < 0.35] = 0.0
        rates[:, M - 1] *= M == 1
        rates[rng.integers(0, N)] *= N == 1
    if 9 in features:
        capacity *= 8.0 * N
    if 10 in features:
        capacity *= 0.05
    if 11 in features:
        capacity[rng.integers(0, M)] = 0.0
    if 3 in features:
        capacity[rng.integers(0, M)] = 10.0 ** rng.uniform(-8, -1)
    if 4 in features:
        capacity *= 10.0 ** rng.uniform(-8, -1)
    capacity[0] = max(capacity[0], 1e-9)
    if not (rates[:, capacity > 0] > 0).any():
        rates[0, 0] = 1.0
    weights = 10.0 ** rng.uniform(-3, 3, N) if 5 in features else rng.choice([1.0, 1.0, 2.0, 5.0], N)
    objectives = objectives_of(rng, rates, scale_factors, capacity, weights, alike=7 in features)
    return polytope_of(rates, scale_factors, capacity), objectives


def draw_contended(seed):
    """Distinct jobs on fewer GPUs than they want, of which one type or two have none."""
    rng = np.random.default_rng([seed, 31])
    N, M = int(rng.integers(2, 12)), int(rng.integers(2, 6))
    rates = rng.uniform(0.1, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    if rng.random() < 0.3:
        rates[:, 1:][rng.random((N, M - 1)) < 0.3] = 0
    scale_factors = rng.choice([1, 2, 4], N, p=[0.6, 0.3, 0.1])
    capacity = rng.uniform(0.5, 0.5 * N + 1, M)
    capacity[rng.choice(np.arange(1, M), int(rng.integers(1, 3)) if M > 2 else 1, replace=False)] = 0
    return polytope_of(rates, scale_factors, capacity), objectives_of(
        rng, rates, scale_factors, capacity, rng.uniform(0.5, 3, N), decades=(2, 4)
    )


def draw_many(seed, N):
    """Many distinct jobs with, by ``seed % 7``: 1 ties of rates, 2 zeros, 3 next to no capacity of one type, 4 weights
    over six orders of magnitude, 5 capacity to spare, 6 wide gangs on few GPUs."""
    rng = np.random.default_rng([seed, 5])
    M, feature = int(rng.integers(2, 5)), seed % 7
    rates = rng.uniform(0.05, 1, (N, M)) * 10.0 ** rng.uniform(-1, 2, (N, 1))
    scale_factors = rng.choice([1, 2, 4, 8], N, p=[0.6, 0.2, 0.1, 0.1])
    capacity = rng.integers(1, int(N * rng.choice([0.1, 0.5, 1.2])) + 3, M).astype(float)
    weights = rng.choice([1.0, 1.0, 5.0], N)
    if feature == 1:
        rates = np.maximum(np.round(rates, 1), 0.1)
    if feature == 2:
        rates[rng.random((N, M)) < 0.3] = 0.0
        rates[~(rates > 0).any(axis=1), 0] = 1.0
    if feature == 3:
        capacity[rng.integers(0, M)] = 10.0 ** rng.uniform(-6, -1)
    if feature == 4:
        weights = 10.0 ** rng.uniform(-3, 3, N)
    if feature == 5:
        capacity *= 20.0
    if feature == 6:
        scale_factors, capacity = rng.choice([8, 16], N), rng.integers(1, 4, M).astype(float)
    objectives = objectives_of(rng, rates, scale_factors, capacity, weights)
    return polytope_of(rates, scale_factors, capacity), {**objectives, "max_sum": MaxSum(weights)}


def draw_even(seed, N):
    """Many distinct jobs of which none holds the level alone: rates and weights within a factor of two."""
    rng = np.random.default_rng([seed, 9])
    rates = rng.uniform(0.5, 1, (N, 3))
    scale_factors = rng.choice([1, 2, 4], N, p=[0.7, 0.2, 0.1])
    capacity = rng.integers(N // 10, N // 3, 3).astype(float)
    objectives = objectives_of(rng, rates, scale_factors, capacity, rng.uniform(1, 2, N), decades=(4, 4.3))
    return polytope_of(rates, scale_factors, capacity), objectives


def draw_packed(seed, largest=8):
    """Groups with ties and zero rates, mixed gangs, some above capacity, weights over decades, little capacity."""
    rng = np.random.default_rng(seed)
    N, G, M = int(rng.integers(1, largest + 1)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    alone = rng.uniform(0.01, 1, (G, M)) * 10.0 ** rng.uniform(-1, 2, (G, 1))
    if rng.random() < 0.4:
        alone = np.maximum(np.round(alone, 1), 0.1)
    if rng.random() < 0.4:
        alone[rng.random((G, M)) < 0.3] = 0
    sizes = rng.choice([1, 2, 4], G, p=[0.7, 0.2, 0.1]) if rng.random() < 0.5 else np.ones(G, dtype=np.int64)
    together = alone[:, None, :] * rng.uniform(0.2, 1.0, (G, G, M))
    if rng.random() < 0.5:
        together[rng.random((G, G, M)) < 0.4] = 0
    if rng.random() < 0.2:
        together = np.round(together, 1)
    together[sizes[:, None] != sizes[None, :]] = 0
    capacity = rng.integers(0 if rng.random() < 0.3 else 1, N + 2, M).astype(float)
    if rng.random() < 0.15:
        capacity[rng.integers(0, M)] = 10.0 ** -rng.integers(2, 7)
    columns = PackedColumns(rng.integers(0, G, N), alone, together, sizes)
    weights = 10.0 ** rng.uniform(-3, 3, N) if rng.random() < 0.3 else rng.choice([1.0, 1.0, 5.0], N)
    return PackedPolytope(columns, capacity), objectives_of(
        rng, columns.rates, columns.scale_factors, capacity, weights
    )


def draw_hierarchy(rng, N, deep=2):
    """Up to four entities, some below others, of either policy, with jobs anywhere."""
    E = int(rng.integers(1, 5))
    parent, depth = np.full(E, -1), np.zeros(E)
    for entity in range(1, E):
        above = [other for other in range(entity) if depth[other] < deep]
        if above and rng.random() < 0.6:
            parent[entity] = rng.choice(above)
            depth[entity] = depth[parent[entity]] + 1
    of_job = rng.integers(-1 if rng.random() < 0.4 else 0, E, N)
    weights, fifo = rng.choice([1.0, 2.0, 3.0], E), rng.random(E) < 0.4
    return Hierarchy(parent, weights, fifo, of_job, rng.permutation(N).astype(float))


def with_capacity(polytope, capacity):
    if isinstance(polytope, PackedPolytope):
        return PackedPolytope(polytope.columns, capacity)
    return Polytope(polytope.columns, capacity, polytope.counts)


def with_jobs(polytope, jobs):
    """Some of the jobs, in this order, perhaps more than once."""
    if not isinstance(polytope, PackedPolytope):
        return polytope.restricted(jobs, np.arange(len(polytope.capacity)))
    of = polytope.columns
    return PackedPolytope(
        PackedColumns(of.group[jobs], of.alone, of.together, of.group_scale_factors), polytope.capacity
    )


def given(polytope, found):
    """(N,) throughput of a solution, and what it takes of time (N,) and of GPUs (M,), pairs and all, by dense sums."""
    of, x = polytope.columns, found.shares
    u, time, used = (of.rates * x).sum(1), x.sum(1), of.scale_factors @ x
    if isinstance(polytope, PackedPolytope):
        pairs = zip(*(getattr(found.pairs, n) for n in ("first", "second", "accelerator", "share")), strict=True)
        for i, k, j, share in pairs:
            assert i < k
            assert share > 0
            assert of.scale_factors[i] == of.scale_factors[k]
            u[i] += share * of.together[of.group[i], of.group[k], j]
            u[k] += share * of.together[of.group[k], of.group[i], j]
            time[[i, k]] += share
            used[j] += share * of.scale_factors[i]
    return u, time, used


def feasible(polytope, found, case=""):
    u, time, used = given(polytope, found)
    assert (found.shares >= 0).all(), case
    assert time.max(initial=0) <= 1 + 1e-12, case
    assert ((used - polytope.capacity) <= 1e-12 * np.maximum(polytope.capacity, 1)).all(), case
    assert not u[~found.served].any(), case
    return u


def value_of(objective, u):
    """By the definition of each family, of jobs that are all served; of water filling its first level."""
    match objective:
        case Makespan():
            return float((objective.weights / u).max())
        case MaxMin():
            return float((u / objective.weights).min())
        case FinishTimeFairness():
            return float(((objective.elapsed + objective.remaining / u) / objective.isolated).max())
        case MaxSum():
            return float(objective.gains @ u)
        case NashWelfare():
            return float(objective.budgets @ np.log(u))
        case WaterFilling():
            return float((u / (objective.units * objective.weights)).min())
    raise TypeError


def written_out(columns):
    """Every column as sparse matrices: jobs alone first, then the pairs that have a rate."""
    plain = isinstance(columns, PlainColumns)
    ways = Configurations.from_matrix(columns.matrix) if plain else Configurations.from_packed(columns)
    order = np.argsort(ways.partner >= 0, kind="stable")
    pairs = zip(ways.job[order].tolist(), ways.partner[order].tolist(), strict=True)
    members = tuple((i,) if k < 0 else (i, k) for i, k in pairs)
    matrices = {"time": ways.time[:, order], "rate": ways.rates[:, order], "usage": ways.usage[:, order]}
    return SimpleNamespace(members=members, accelerator=ways.pool[order], **matrices)


def size_of(objective, value):
    """What gaps are relative to."""
    return float(objective.budgets.sum()) if isinstance(objective, NashWelfare) else abs(value)


def supply_of(polytope, worth, prices, jobs, types):
    """Least ``sum m + c . p`` at which the time m of the jobs of every column pays for it."""
    if not isinstance(polytope, PackedPolytope):
        earned = worth[jobs, None] * polytope.rates[jobs] - polytope.scale_factors[jobs, None] * prices
        return float(prices[types] @ polytope.capacity[types] + np.maximum(earned[:, types].max(axis=1), 0.0).sum())
    general = written_out(polytope.columns)
    kept = np.isin(general.accelerator, np.flatnonzero(types))
    kept &= np.array([all(i in jobs for i in members) for members in general.members])
    earned = (general.rate.T @ worth - general.usage.T @ np.where(types, prices, 0.0))[kept]
    time, unit = csr_array(general.time[:, kept]), max(float(np.abs(earned).max()), 1e-300)
    result = linprog(np.ones(time.shape[0]), A_ub=-time.T, b_ub=-earned / unit, bounds=(0, None), options=EXACT)
    assert result.status == 0, result.message
    return unit * float(result.fun) + float(polytope.capacity[types] @ prices[types])


def proven_by(polytope, objective, found):
    """The bound that prices and multipliers prove, over all types whose price is known, GPUs or not."""
    jobs, types = np.flatnonzero(found.served), np.isfinite(found.prices)
    m, goal, prices = found.multipliers[jobs], objective.take(jobs), found.prices
    if isinstance(goal, Makespan):
        # seconds saved per GPU, back into growth of the level
        prices = prices / found.bound**2
    supply = supply_of(
        polytope, objective.gains if isinstance(goal, MaxSum) else found.multipliers, prices, jobs, types
    )
    match goal:
        case MaxSum():
            return supply
        case NashWelfare():
            B = goal.budgets
            return float((B * np.log(B / m) - B).sum()) + supply
        case Makespan():
            return float(m @ goal.weights) / supply
        case MaxMin():
            return supply / float(m @ goal.weights)
        case WaterFilling():
            return supply / float(m @ (goal.units * goal.weights))
    # the worst rho below which the demands are worth more than the supply, by bisection
    held = m > 0
    e, n, D, m = goal.elapsed[held], goal.remaining[held], goal.isolated[held], m[held]
    low = float((e / D).max()) * (1 + 1e-15)
    high = 2 * max(low, found.bound)
    for _ in range(200):
        middle = 0.5 * (low + high)
        needed = float((m * n / np.maximum(middle * D - e, 1e-300)).sum())
        low, high = (middle, high) if needed > supply else (low, middle)
    return low


def verify(polytope, objective, found, case=""):
    """A solution is feasible and worth what it says, and its prices and multipliers prove that nothing is better."""
    rates = written_out(polytope.columns).rate[:, polytope.capacity[written_out(polytope.columns).accelerator] > 0]
    able = rates.max(axis=1).toarray().ravel() > 0 if rates.shape[1] else np.zeros(polytope.n_jobs, dtype=bool)
    if not isinstance(polytope, PackedPolytope):
        np.testing.assert_array_equal(found.served, able, err_msg=case)
    assert found.status == ("optimal" if found.served.any() else "empty"), case
    u = feasible(polytope, found, case)
    if not found.served.any():
        return
    sign = 1 if objective.maximise else -1
    value = value_of(objective.take(np.flatnonzero(found.served)), u[found.served])
    size = size_of(objective, value)
    filling = isinstance(objective, WaterFilling)
    assert abs(value - found.objective) <= (2e-7 if filling else 1e-9) * size, case
    known = np.isfinite(found.prices)
    assert known[polytope.capacity > 0].all(), case
    assert (found.prices[known] >= 0).all(), case
    assert (found.multipliers >= 0).all(), case
    if not filling or (objective.hierarchy.of_job < 0).all():
        bound = proven_by(polytope, objective, found)
        assert abs(bound - found.bound) <= (1e-7 if isinstance(polytope, PackedPolytope) else 1e-8) * size, case
    assert -1e-9 * size <= sign * (found.bound - found.objective) <= 1.001e-7 * size, case


def rows_of(polytope, floors=None):
    """``A x <= b`` over all columns, those of pairs too; with rows of floors (N,) where there are any."""
    general = written_out(polytope.columns)
    rows, limits = [general.time, general.usage], [np.ones(polytope.n_jobs), polytope.capacity]
    if floors is not None:
        rows.append(-general.rate)
        limits.append(-floors)
    return csr_array(vstack(rows)), np.concatenate(limits)


def most(polytope, worth, floors=None):
    """Largest worth (C,) of columns above floors, by simplex; None where they cannot be kept."""
    rows, limits = rows_of(polytope, floors)
    result = linprog(-worth, A_ub=rows, b_ub=limits, bounds=(0, None), options=EXACT)
    return -float(result.fun) if result.status == 0 else None
