"""Water filling against references that share nothing with it but the definition.

Flat programs: levels by simplex, one linear program per job to tell who can rise. Hierarchies: time handed on event by
event, as the entities' rules say.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from formulations import Hierarchy, MaxMin, Polytope, SolverError, WaterFilling, proportional_throughput, solve
from formulations.levels.hierarchy import Filling
from formulations.levels.water_filling import Level, WaterLevel, fill
from throughputs import InputError

Array = NDArray[np.float64]

BLOCKS = range(7)
PER_BLOCK = 72
TOP = -1

FULL = 1e-9
"""Relative difference up to which a job is at its most."""

HELD = 1e-7
"""Relative gain, or multiplier, up to which a job is held."""


def best(cost: Array, rows: Array, limits: Array) -> tuple[float, Array, Array]:
    """Maximum of a linear program by simplex, where it is attained, and the multipliers of its rows."""
    result = None
    for method in ("highs", "highs-ds", "highs-ipm"):
        result = linprog(
            -cost,
            A_ub=rows,
            b_ub=limits,
            bounds=(0, None),
            method=method,
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if result.status == 0:
            return -float(result.fun), result.x, -result.ineqlin.marginals
    raise AssertionError(f"no reference: {result.message if result else ''}")


class Rows:
    """Polytope and throughputs as dense rows, over shares in units of what capacity allows of them.

    Throughputs are in units of `units` (N,), that is, in time.
    """

    def __init__(self, polytope: Polytope, units: Array) -> None:
        N, M = polytope.rates.shape
        unit = np.minimum(1.0, polytope.capacity / polytope.scale_factors[:, None]).ravel()
        job, type_ = np.repeat(np.arange(N), M), np.tile(np.arange(M), N)
        self.base = np.zeros((N + M, N * M))
        self.base[job, np.arange(N * M)] = unit
        self.base[N + type_, np.arange(N * M)] = np.repeat(polytope.scale_factors, M) * unit / polytope.capacity[type_]
        self.time = np.zeros((N, N * M))
        self.time[job, np.arange(N * M)] = polytope.rates.ravel() / units[job] * unit
        self.most = polytope.rates.max(axis=1) / units

    def rise(self, rising: Array, have: Array) -> tuple[Array, Array, bool]:
        """Raise all jobs together until capacity or the first full job ends it.

        Returns what jobs then have, the multipliers (N,) of their rows, and whether capacity ended it.
        """
        up = rising > 0
        size = self.time.max(axis=1)
        # in units in which all figures are near 1: solvers take what is tiny for nothing
        rising = rising * float((size[up] / rising[up]).min())
        full = float(((self.most - have)[up] / rising[up]).min())
        rows = np.hstack([-self.time / size[:, None], (rising / size)[:, None]])
        rows = np.vstack([np.hstack([self.base, np.zeros((len(self.base), 1))]), rows])
        limits = np.concatenate([np.ones(len(self.base)), -have / size * (1 - 1e-13)])
        level, _, multipliers = best(np.append(np.zeros(self.time.shape[1]), 1.0), rows, limits)
        have = np.minimum(have + min(max(level, 0.0), full) * rising, self.most)
        return have, multipliers[len(self.base) :] * rising / size, level < full * (1 - FULL)

    def is_held(self, job: int, have: Array) -> bool:
        """Whether a job cannot rise while the others keep what they have."""
        others = (np.arange(len(have)) != job) & (have > 0)
        rows = np.vstack([self.base, -self.time[others] / have[others, None]])
        limits = np.concatenate([np.ones(len(self.base)), -np.full(int(others.sum()), 1 - 1e-13)])
        size = max(have[job], 1e-9 * self.time[job].max())
        gained, _, multipliers = best(self.time[job] / size, rows, limits)
        # what the rounding of the others' rows may give the job is no gain
        return gained <= 1 + HELD + 1e-12 * float(multipliers.sum())


def lexicographic(polytope: Polytope, units: Array, weights: Array) -> Array:
    """(N,) time of the lexicographic optimum, level by level."""
    rows = Rows(polytope, units)
    have, fixed = np.zeros(polytope.n_jobs), np.zeros(polytope.n_jobs, dtype=bool)
    while not fixed.all():
        have, multipliers, ended = rows.rise(np.where(fixed, 0.0, weights), have)
        full = ~fixed & (have >= rows.most * (1 - FULL))
        held = ended & ~fixed & ~full & (multipliers > HELD * multipliers.max())
        for job in np.flatnonzero(ended & ~fixed & ~full & ~held):
            held[job] = rows.is_held(int(job), have)
        assert (full | held).any()
        fixed |= full | held
    return have


def rising_rates(objective: WaterFilling, live: NDArray[np.bool_]) -> Array:
    """(N,) time per unit of level that each job is handed, by the rules of the entities, member by member."""
    hierarchy, rates = objective.hierarchy, np.zeros(len(live))
    jobs_of = [
        sorted(np.flatnonzero(hierarchy.of_job == entity), key=lambda job: float(hierarchy.rank[job]))
        for entity in range(len(hierarchy.parent))
    ]

    def is_live(entity: int) -> bool:
        inside = any(live[job] for job in jobs_of[entity])
        return inside or any(is_live(int(below)) for below in np.flatnonzero(hierarchy.parent == entity))

    def hand_on(entity: int, rate: float) -> None:
        members = [("job", int(job), objective.weights[job]) for job in jobs_of[entity] if live[job]]
        below = [int(member) for member in np.flatnonzero(hierarchy.parent == entity)]
        members += [("entity", member, hierarchy.weights[member]) for member in below if is_live(member)]
        if not members:
            return
        if hierarchy.fifo[entity]:
            members = members[:1]
        total = sum(weight for _, _, weight in members)
        for kind, member, weight in members:
            if kind == "job":
                rates[member] = rate * weight / total
            else:
                hand_on(member, rate * weight / total)

    for job in np.flatnonzero((hierarchy.of_job == TOP) & live):
        rates[job] = objective.weights[job]
    for entity in np.flatnonzero(hierarchy.parent == TOP):
        hand_on(int(entity), float(hierarchy.weights[entity]))
    return rates


def event_by_event(polytope: Polytope, objective: WaterFilling) -> Array:
    """(N,) time of each job when entities hand time on until nobody can rise; one event is a full or a held job."""
    rows = Rows(polytope, objective.units)
    have, held = np.zeros(polytope.n_jobs), np.zeros(polytope.n_jobs, dtype=bool)
    while True:
        live = ~held & (have < rows.most * (1 - FULL))
        if not live.any():
            return have
        rising = rising_rates(objective, live)
        up = rising > 0
        assert up.any()
        have, multipliers, ended = rows.rise(rising, have)
        if not ended:
            continue
        now = up & (multipliers > HELD * multipliers.max())
        for job in np.flatnonzero(up & ~now):
            now[job] = rows.is_held(int(job), have)
        assert now.any()
        held |= now


def draw_flat(draw_hard, seed: int) -> tuple[Polytope, WaterFilling]:
    """The hard polytopes, without what nobody can use."""
    polytope, objectives = draw_hard(seed)
    types = np.flatnonzero(polytope.capacity > 0)
    jobs = np.flatnonzero((polytope.rates[:, types] > 0).any(axis=1))
    part, max_min = polytope.restricted(jobs, types), objectives["max_min"]
    assert isinstance(max_min, MaxMin)
    units = proportional_throughput(part.rates, part.capacity) / part.scale_factors
    # weights of six orders of magnitude meet throughputs of their own scale only in max-min
    return part, WaterFilling(units, max_min.weights[jobs] / units)


def draw_tree(polytope_of, seed: int) -> tuple[Polytope, WaterFilling]:
    """Entities up to `1 + seed % 3` deep with jobs anywhere, on little, enough and plenty of capacity."""
    rng = np.random.default_rng([seed, 11])
    N, M, E = int(rng.integers(1, 11)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    rates = rng.uniform(0.2, 1, (N, M)) * 10.0 ** rng.uniform(-1, 1, (N, 1))
    if seed % 4 == 1:
        rates[rng.random((N, M)) < 0.3] = 0.0
        rates[~(rates > 0).any(axis=1), 0] = 1.0
    if seed % 4 == 2:
        rates[rng.integers(0, N, N // 2 + 1)] = rates[0]
    scale_factors = rng.choice([1, 1, 2, 4], N)
    capacity = rng.integers(1, int(N * rng.choice([0.4, 1.0, 4.0])) + 2, M).astype(np.float64)
    parent, depth = np.full(E, TOP), np.zeros(E)
    for entity in range(1, E):
        above = [other for other in range(entity) if depth[other] < seed % 3]
        if above and rng.random() < 0.6:
            parent[entity] = rng.choice(above)
            depth[entity] = depth[parent[entity]] + 1
    of_job = rng.integers(TOP if rng.random() < 0.4 else 0, E, N)
    fifo = rng.random(E) < 0.4
    hierarchy = Hierarchy(parent, rng.choice([1.0, 2.0, 3.0], E), fifo, of_job, rng.permutation(N).astype(np.float64))
    polytope = polytope_of(rates, scale_factors, capacity)
    units = proportional_throughput(rates, capacity) / scale_factors
    return polytope, WaterFilling(units, rng.choice([1.0, 2.0, 5.0], N), hierarchy)


@pytest.mark.parametrize("block", BLOCKS)
def test_flat_is_the_lexicographic_optimum(draw_hard, block):
    """Nobody is below the optimum; nobody can be above it without another being below."""
    for seed in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        polytope, objective = draw_flat(draw_hard, seed)
        solution = solve(polytope, objective)
        assert solution.status == "optimal", f"seed {seed}"
        assert polytope.violation(solution.shares) <= 1e-12, f"seed {seed}"
        assert np.isfinite(solution.prices).all(), f"seed {seed}"
        assert (solution.prices >= 0).all(), f"seed {seed}"
        time = polytope.throughput(solution.shares) / objective.units
        exact = lexicographic(polytope, objective.units, objective.weights)
        below = (exact - time) / exact
        assert below.max() <= 1e-7, f"seed {seed}: job {int(below.argmax())} by {below.max():.1e}"


def test_first_level_is_max_min(draw_hard):
    for seed in range(96):
        polytope, objective = draw_flat(draw_hard, seed)
        filled = solve(polytope, objective)
        max_min = solve(polytope, MaxMin(objective.units * objective.weights))
        assert filled.objective == pytest.approx(max_min.objective, rel=2e-8), f"seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_hierarchies_hand_time_on_as_their_rules_say(polytope_of, block):
    for seed in range(40 * block, 40 * (block + 1)):
        polytope, objective = draw_tree(polytope_of, seed)
        solution = solve(polytope, objective)
        assert solution.status == "optimal", f"seed {seed}: gap {solution.gap:.1e}"
        assert polytope.violation(solution.shares) <= 1e-12, f"seed {seed}"
        time = polytope.throughput(solution.shares) / objective.units
        exact = event_by_event(polytope, objective)
        most = polytope.rates.max(axis=1) / objective.units
        below = (exact - time) / np.maximum(exact, 1e-4 * most)
        assert below.max() <= 1e-6, f"seed {seed}: job {int(below.argmax())} by {below.max():.1e}"


def test_two_entities_by_hand(polytope_of):
    """Four equal jobs on two GPUs: a third of the time to the first entity, which serves its jobs in turn."""
    polytope = polytope_of(np.ones((4, 1)), np.ones(4, dtype=np.int64), np.array([1.5]))
    hierarchy = Hierarchy(
        parent=np.array([TOP, TOP]),
        weights=np.array([1.0, 2.0]),
        fifo=np.array([True, False]),
        of_job=np.array([0, 0, 1, 1]),
        rank=np.array([1.0, 0.0, 0.0, 0.0]),
    )
    solution = solve(polytope, WaterFilling(np.ones(4), np.array([1.0, 1.0, 1.0, 3.0]), hierarchy))
    np.testing.assert_allclose(solution.shares[:, 0], [0.0, 0.5, 0.25, 0.75], atol=1e-7)
    assert solution.status == "optimal"


def test_an_entity_passes_on_what_its_full_members_leave(polytope_of):
    """Plenty of capacity: weights then only say who is full first."""
    polytope = polytope_of(np.array([[1.0], [2.0], [3.0]]), np.ones(3, dtype=np.int64), np.array([9.0]))
    for fifo in (False, True):
        hierarchy = Hierarchy(np.array([TOP]), np.ones(1), np.array([fifo]), np.zeros(3, dtype=np.intp), np.arange(3.0))
        solution = solve(polytope, WaterFilling(np.ones(3), np.array([1.0, 7.0, 2.0]), hierarchy))
        np.testing.assert_allclose(solution.shares[:, 0], 1.0, rtol=1e-7)


def test_entities_of_one_job_are_jobs(draw_hard):
    """A job alone in an entity of its weight is the job."""
    for seed in range(36):
        polytope, flat = draw_flat(draw_hard, seed)
        N = polytope.n_jobs
        alone = Hierarchy(np.full(N, TOP), flat.weights, np.zeros(N, dtype=bool), np.arange(N), np.zeros(N))
        one = solve(polytope, flat)
        other = solve(polytope, WaterFilling(flat.units, np.ones(N), alone))
        u, v = polytope.throughput(one.shares), polytope.throughput(other.shares)
        np.testing.assert_allclose(v, u, rtol=1e-4, err_msg=f"seed {seed}")


def test_order_of_jobs_does_not_matter(draw_hard):
    rng = np.random.default_rng(3)
    for seed in range(60):
        polytope, objective = draw_flat(draw_hard, seed)
        order = rng.permutation(polytope.n_jobs)
        shuffled = polytope.restricted(order, np.arange(len(polytope.capacity)))
        one, other = solve(polytope, objective), solve(shuffled, objective.take(order))
        np.testing.assert_array_equal(other.shares, one.shares[order], err_msg=f"seed {seed}")


def test_identical_jobs_get_identical_shares(draw_hard):
    for seed in range(60):
        polytope, objective = draw_flat(draw_hard, seed)
        twice = np.repeat(np.arange(polytope.n_jobs), 2)
        doubled = polytope.restricted(twice, np.arange(len(polytope.capacity)))
        shares = solve(doubled, objective.take(twice)).shares
        np.testing.assert_array_equal(shares[::2], shares[1::2], err_msg=f"seed {seed}")


@pytest.mark.parametrize("n_jobs", [200, 800])
def test_hundreds_of_jobs_end_with_nobody_able_to_rise(draw_many, n_jobs):
    """Every type that is not used up is of no use to any job that is not full."""
    polytope, objectives = draw_many(0, n_jobs)
    max_min = objectives["max_min"]
    assert isinstance(max_min, MaxMin)
    objective = WaterFilling(max_min.weights, np.ones(n_jobs))
    solution = solve(polytope, objective)
    assert solution.status == "optimal"
    assert polytope.violation(solution.shares) <= 1e-12
    time = polytope.throughput(solution.shares) / objective.units
    assert time.min() == pytest.approx(solve(polytope, max_min).objective, rel=2e-8)
    left = polytope.capacity - polytope.loads @ solution.shares
    idle = 1.0 - solution.shares.sum(axis=1)
    spare = left > 1e-6 * polytope.capacity
    assert not (idle[:, None] * polytope.rates[:, spare] / polytope.rates.max(axis=1, keepdims=True) > 1e-5).any()


def drawn_hierarchy(rng):
    """Up to 3 entities, some below others, of up to 8 jobs."""
    N, E = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    parent = np.array([TOP if not entity else rng.integers(TOP, entity) for entity in range(E)])
    weights, fifo = rng.uniform(0.5, 3, E), rng.random(E) < 0.5
    return Hierarchy(parent, weights, fifo, rng.integers(TOP, E, N), rng.permutation(N).astype(np.float64))


def test_filling_is_the_integral_of_its_growth():
    """Time given at a level adds up the rates that the rules hand out on the way."""
    rng = np.random.default_rng(5)
    for trial in range(15):
        hierarchy = drawn_hierarchy(rng)
        N = len(hierarchy.of_job)
        room = rng.uniform(0.1, 2, N)
        filling = Filling(hierarchy, rng.uniform(0.5, 3, N), np.ones(N), room)
        edges = np.linspace(0.0, filling.full_level, 801)
        steps = np.diff(edges)
        growth = np.array([filling.times(float(edge))[1] for edge in edges[:-1]])
        given = np.array([filling.times(float(edge))[0] for edge in edges])
        # a rate changes within a step at most 2 N times
        slack = 2 * N * steps.max() * growth.max()
        np.testing.assert_allclose(growth.T @ steps, given[-1], atol=slack, err_msg=f"trial {trial}")
        np.testing.assert_allclose(given[-1], room, rtol=1e-9)
        assert (np.diff(given, axis=0) >= -1e-12).all()


def test_levels_invert_times():
    """At the level that a job's time asks for, it is given that time; a job that waits asks for nothing yet."""
    rng = np.random.default_rng(6)
    for trial in range(60):
        hierarchy = drawn_hierarchy(rng)
        N = len(hierarchy.of_job)
        filling = Filling(hierarchy, rng.uniform(0.5, 3, N), np.ones(N), rng.uniform(0.1, 2, N))
        level = float(rng.uniform(0, 1)) * filling.full_level
        given, growth = filling.times(level)
        levels = filling.levels(given)
        np.testing.assert_allclose(levels[growth > 0], level, rtol=1e-9, err_msg=f"trial {trial}")
        # nobody's time asks for less than the level at which it is met; who is full is so at any level from there
        waiting_or_rising = given < filling.room * (1 - 1e-9)
        assert (levels[waiting_or_rising] >= level * (1 - 1e-9)).all(), f"trial {trial}"


def test_hierarchy_says_what_is_wrong():
    ones, two = np.ones(1), np.zeros(2)
    with pytest.raises(InputError, match="parents listed first"):
        Hierarchy(np.array([0]), ones, np.array([False]), np.zeros(2, dtype=np.intp), two)
    with pytest.raises(InputError, match="entities below 1"):
        Hierarchy(np.array([TOP]), ones, np.array([False]), np.array([0, 1]), two)
    with pytest.raises(InputError, match="positive weights"):
        Hierarchy(np.array([TOP]), np.zeros(1), np.array([False]), np.zeros(2, dtype=np.intp), two)
    with pytest.raises(InputError, match="one figure per entity and job"):
        Hierarchy(np.array([TOP]), ones, np.array([False]), np.zeros(3, dtype=np.intp), two)
    with pytest.raises(InputError, match="units"):
        WaterFilling(np.array([1.0, 0.0]), np.ones(2))


def test_a_level_that_fixes_nobody_ends_the_filling() -> None:
    """A backend whose multipliers say nothing: without an end, levels of no height would go on for ever."""

    def solve_level(level: WaterLevel) -> Level:
        untold = np.full(2, np.nan)
        return Level(0.0, 0.0, level.units * level.base, untold)

    with pytest.raises(SolverError, match="level 1 "):
        fill(WaterFilling(np.ones(2), np.ones(2)), np.ones(2), solve_level)
