"""Programs over configurations: against brute force, simplex and CBC; order, proof, and what cannot be solved."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

from formulations.columns import (
    ColumnProgram,
    InfeasibleError,
    Least,
    MostFloors,
    Ratio,
    Rows,
    Total,
    engines,
    solve_columns,
)
from formulations.columns.objectives import largest_ratio
from formulations.columns.order import undominated
from formulations.columns.written import rounded_rows, write_out
from formulations.core.solution import SolverError
from formulations.reference.mixed_integer import Cbc, MixedProgram, solve_mixed
from formulations.reference.stopping import StopRule
from throughputs import Configurations, InputError

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def programs(draw, *, whole, rows=True, floors=True):
    """Up to 4 jobs on up to 2 pools with small whole figures; floors and rows that shares of 0.1 each may keep."""
    rng = np.random.default_rng(draw(SEEDS))
    N, M = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    keys = [(i, j, g, -1) for i, j, g in product(range(N), range(M), (1, 2, 4))]
    keys += [(i, j, 1, k) for i, k, j in product(range(N), range(N), range(M)) if i < k]
    size = int(rng.integers(1, min(len(keys), 9) + 1))
    job, pool, gpus, partner = np.array([keys[c] for c in rng.choice(len(keys), size, replace=False)]).T
    ways = Configurations(
        job,
        pool,
        gpus,
        rng.integers(0, 8, size) / 2,
        partner=partner,
        partner_rate=np.where(partner >= 0, rng.integers(1, 4, size), 0),
        jobs=range(N),
        pools=[f"pool{j}" for j in range(M)],
    )
    needed = coupling = None
    if floors and rng.random() < 0.5:
        most = ways.rates.toarray().max(axis=1)
        needed = np.where(rng.random(N) < 0.5, most * (1.0 if whole else rng.choice([0.1, 0.5, 1.0])), 0.0)
    if rows and rng.random() < 0.5:
        coupling = Rows(rng.integers(-1, 2, (2, size)), [-np.inf, -1.0], [1.0, rng.integers(0, 2)])
    return ColumnProgram(ways, rng.integers(0, 6, M), floors=needed, rows=coupling, whole=whole)


ANY = programs(whole=True) | programs(whole=False)


def values_for(program, seed, number=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 6, program.columns.n_columns).astype(float) for _ in range(number)]


def rows_of(program):
    """``A x <= b``, dense."""
    of = program.columns
    rows = [of.time.toarray(), of.usage.toarray(), -of.rates.toarray()]
    limits = [np.ones(of.n_jobs), program.capacity, -program.floors]
    if program.rows is not None:
        coupled = program.rows.matrix.toarray()
        for sign, ends in ((1, program.rows.upper), (-1, -program.rows.lower)):
            rows.append(sign * coupled[np.isfinite(ends)])
            limits.append(ends[np.isfinite(ends)])
    return np.vstack(rows), np.concatenate(limits)


def allowed(program, x, slack=1e-9):
    rows, limits = rows_of(program)
    return bool((rows @ x <= limits + slack).all())


def optimum(program, values):
    """Lexicographic over all choices of whole columns, else of the first by simplex; None where none is allowed."""
    if program.whole.all():
        choices = (np.array(x, dtype=float) for x in product((0, 1), repeat=program.columns.n_columns))
        return max((tuple(float(v @ x) for v in values) for x in choices if allowed(program, x)), default=None)
    rows, limits = rows_of(program)
    result = linprog(-values[0], A_ub=rows, b_ub=limits, bounds=(0, None))
    return (-float(result.fun),) if result.status == 0 else None


@pytest.mark.parametrize("solver", ["highs", "cbc"])
@settings(max_examples=25, deadline=None)
@given(program=ANY, seed=SEEDS)
def test_optima_are_those_of_brute_force_and_simplex(solver, program, seed):
    values = values_for(program, seed, 2)
    goals, expected = [Total(v) for v in values], optimum(program, values)
    if expected is None:
        with pytest.raises(InfeasibleError):
            solve_columns(program, goals, solver=solver)
        return
    found, whole = solve_columns(program, goals, solver=solver), program.whole.all()
    # CBC prints eight digits of shares and multipliers
    off = 1e-5 if solver == "cbc" else 1e-7
    assert found.solver == solver
    assert found.status == "optimal" or (solver == "cbc" and not whole)
    assert not whole or set(found.x.tolist()) <= {0.0, 1.0}
    assert allowed(program, found.x, 1e-7 if solver == "cbc" else 1e-9)
    for stage, best in zip(found.stages, expected, strict=False):
        assert stage.objective == pytest.approx(best, abs=off)
        # weak duality, from multipliers alone
        assert best - off <= stage.bound <= (np.inf if whole else best + 10 * off)
        assert stage.gap <= 1e-5
    np.testing.assert_allclose(found.throughput, program.columns.rates.toarray() @ found.x, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(ANY, SEEDS)
def test_no_set_of_more_floors_can_be_kept(program, seed):
    columns, rng = program.columns, np.random.default_rng(seed)
    floors = columns.rates.toarray().max(axis=1) * rng.choice([0.0, 0.1, 0.5, 1.0], columns.n_jobs)

    def can_keep(jobs):
        held = np.maximum(program.floors, np.where(np.isin(range(columns.n_jobs), jobs), floors, 0.0))
        part = ColumnProgram(columns, program.capacity, floors=held, rows=program.rows, whole=program.whole)
        return optimum(part, [np.zeros(columns.n_columns)]) is not None

    sets = [jobs for n in range(columns.n_jobs + 1) for jobs in combinations(np.flatnonzero(floors > 0).tolist(), n)]
    most = max((len(jobs) for jobs in sets if can_keep(jobs)), default=None)
    if most is None:
        with pytest.raises(InfeasibleError):
            solve_columns(program, MostFloors(floors))
        return
    found = solve_columns(program, MostFloors(floors))
    assert found.status == "optimal"
    assert (found.objective, found.bound) == pytest.approx((most, most), abs=1e-6)


def test_a_bound_on_a_ratio_is_per_unit_of_what_it_costs_at_least():
    """What is left of the numerator at the ratio that is reached may be worth more per cost where costs are small."""
    largest = largest_ratio(lambda ratio: ("any", ratio, 0.1), 1.0, least=0.5)
    assert (largest.ratio, largest.bound) == (1.0, 1.2)


@settings(max_examples=20, deadline=None)
@given(ANY, SEEDS)
def test_the_order_of_jobs_columns_pools_and_rows_does_not_matter(program, seed):
    """Bit for bit: the same program listed in another order has the same answer."""
    rng, of = np.random.default_rng(seed), program.columns
    jobs, pools, listed = (rng.permutation(n) for n in (of.n_jobs, len(of.pools), of.n_columns))
    at, on = np.argsort(jobs), np.argsort(pools)
    other = Configurations(
        at[of.job][listed],
        on[of.pool][listed],
        of.gpus[listed],
        of.rate[listed],
        partner=np.where(of.partner < 0, -1, at[of.partner])[listed],
        partner_rate=of.partner_rate[listed],
        jobs=[of.jobs[i] for i in jobs],
        pools=[of.pools[j] for j in pools],
    )
    found = []
    for ways, job, pool, rows in (
        (of, np.arange(of.n_jobs), np.arange(len(of.pools)), [0, 1]),
        (other, jobs, pools, [1, 0]),
    ):
        both = ways.rate + ways.partner_rate
        coupling = Rows(np.array([ways.gpus - 2.0, both > 1.0])[rows], -np.inf, np.array([1.0, 3.0])[rows])
        asked = ColumnProgram(
            ways, program.capacity[pool], floors=program.floors[job], rows=coupling, whole=program.whole.all()
        )
        with suppress(InfeasibleError):
            found.append(solve_columns(asked, Total(np.round(3 * both) % 7 - ways.gpus / 4)))
    if found:
        np.testing.assert_array_equal(found[1].throughput, found[0].throughput[jobs])
        np.testing.assert_array_equal(found[1].prices, found[0].prices[pools])
        np.testing.assert_array_equal(np.sort(found[1].x), np.sort(found[0].x))


@settings(max_examples=20, deadline=None)
@given(ANY, SEEDS)
def test_dominated_columns_change_no_optimum(program, seed):
    goals = [Total(np.abs(v)) for v in values_for(program, seed)]
    best = optimum(program, [goals[0].values])
    assume(best is not None)
    reduced = solve_columns(program, goals)
    assert reduced.objective == pytest.approx(best[0], abs=1e-7)
    assert not reduced.x[~undominated(program, goals)].any()


def test_a_column_is_dropped_only_where_another_is_as_good_in_everything():
    ways = Configurations([0, 0, 0], [0, 0, 0], [1, 2, 4], [1.0, 2.0, 2.0], jobs="a", pools=["v100"])
    plain, low = ColumnProgram(ways, [4]), Total([3, 2, 2])
    for program, goals, kept in (
        (plain, [Total([1, 2, 2])], "110"),
        (plain, [low], "100"),
        # throughput counts where there is a floor, and every objective does
        (ColumnProgram(ways, [4], floors=[1.5]), [low], "110"),
        (plain, [low, Total(ways.rate)], "110"),
        (plain, [low, Total([1, 1, 0], maximise=False)], "101"),
        # a column in a coupling row is left alone, and so is one that cannot have all of the time
        (ColumnProgram(ways, [4], rows=Rows([[0.0, 0.0, 1.0]], upper=0.5)), [Total([1, 2, 2])], "111"),
        (ColumnProgram(ways, [4], most=[1, 0.5, 1]), [Total([1, 2, 2])], "111"),
    ):
        assert undominated(program, goals).tolist() == [each == "1" for each in kept]
    alike = Configurations([0, 0], [0, 0], [2, 2], [1.0, 1.0], batch_size=[8, 16], jobs="a", pools=["v100"])
    assert undominated(ColumnProgram(alike, [4]), [Total([1, 1])]).tolist() == [True, False]


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_later_objective_has_room_for_the_digits_that_the_solver_leaves_out(solver):
    """Thirds as CBC writes them are worth more than the optimum: with a row that asks for so much there is no point."""
    ways = Configurations(
        [0, 0, 0, 1, 1], [0, 0, 1, 0, 1], [1, 2, 1, 1, 4], [1.5, 0.0, 1.5, 3.0, 3.5],
        partner=[1, -1, 1, 2, -1], partner_rate=[2.0, 0.0, 2.0, 2.0, 0.0], jobs=range(3), pools=["a", "b"],
    )  # fmt: skip
    program = ColumnProgram(ways, [5, 5], rows=Rows([[1, 1, -1, 1, 0], [1, 0, 0, 1, 1]], [-np.inf, -1.0], [1.0, 1.0]))
    found = solve_columns(
        program, [Total([3.0, 5.0, 1.0, 5.0, -2.0]), Total([4.0, 5.0, 1.0, -2.0, -1.0])], solver=solver
    )
    assert [stage.objective for stage in found.stages] == pytest.approx([7.0, 7 / 3], abs=1e-6)


def test_jobs_that_must_run_do():
    ways = Configurations([0, 0, 1], [0, 0, 0], [1, 2, 2], [1.0, 3.0, 1.0])
    for exactly, expected in ((False, [0, 1, 0]), (True, [1, 0, 1])):
        program = ColumnProgram(ways, [3], whole=True, exactly=exactly)
        assert solve_columns(program, Total([1.0, 3.0, -1.0])).x.tolist() == expected
    with pytest.raises(InfeasibleError, match="2 jobs that must run"):
        solve_columns(ColumnProgram(ways, [2], whole=True, exactly=True), Total([1.0, 3.0, -1.0]))


def test_slots_have_a_capacity_and_a_life_each():
    """One GPU in the first slot, three in the second; a floor over both."""
    ways = Configurations([0, 0, 1], [0, 0, 0], [1, 2, 1], [1.0, 2.0, 1.0], jobs="ab", pools=["v100"])
    program = ColumnProgram(ways, [[1, 3]], floors=[3.0, 0.0], whole=True)
    found = solve_columns(program, Total(np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 5.0]])))
    np.testing.assert_array_equal(found.x, [[1, 0], [0, 1], [0, 1]])
    assert (found.throughput.tolist(), found.prices.shape) == ([3.0, 1.0], (1, 2))
    assert found.to_frame()[["share 0", "share 1"]].to_numpy().sum() == 3


def test_counts_stand_for_identical_jobs_and_nothing_for_nothing():
    one = Configurations([0, 0, 1], [0, 1, 0], [1, 1, 2], [4.0, 1.0, 3.0])
    merged = solve_columns(ColumnProgram(one, [4, 1], counts=[3, 1]), Total([12.0, 3.0, 3.0]))
    many = Configurations([0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 1, 0, 1, 0], [1] * 6 + [2], [4.0, 1.0] * 3 + [3.0])
    assert merged.objective == pytest.approx(solve_columns(ColumnProgram(many, [4, 1]), Total(many.rate)).objective)
    nothing = Configurations([], [], [], [], jobs="ab", pools=["v100"])
    found = solve_columns(ColumnProgram(nothing, [4]), Total([]))
    assert (found.status, found.objective, found.x.shape) == ("optimal", 0.0, (0,))
    with pytest.raises(InfeasibleError):
        solve_columns(ColumnProgram(nothing, [4], floors=[1, 0]), Total([]))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_rows_may_be_generated_when_they_are_violated(solver):
    ways = Configurations(np.arange(6), np.zeros(6, int), np.ones(6, int), np.arange(1.0, 7.0))
    every, asked = np.eye(6)[1:] - 2 * np.eye(6)[:-1], []

    def no_job_more_than_twice_the_next(x):
        worst = every @ x > 1e-6
        asked.append(x.shape)
        return Rows(csr_array(every[worst]), upper=0.0) if worst.any() else None

    at_once = solve_columns(ColumnProgram(ways, [2], rows=Rows(every, upper=0.0)), Total(ways.rate))
    found = solve_columns(
        ColumnProgram(ways, [2]), Total(ways.rate), solver=solver, generate=no_job_more_than_twice_the_next
    )
    assert len(asked) > 1
    assert found.generated > 0
    assert found.status == "optimal"
    assert (found.objective, found.bound) == pytest.approx((at_once.objective,) * 2, rel=1e-7)


def test_what_was_not_proven_is_not_called_optimal_and_what_breaks_a_row_is_not_taken(monkeypatch):
    """Engines that stop short of the optimum, or over a limit, and say that they did not."""

    def highs(change):
        class Changed(engines.Engine):
            def optimise(self, cost):
                found = super().optimise(cost)
                return replace(found, z=change(found.z))

        monkeypatch.setitem(engines.ENGINES, "highs", partial(Changed, "highs"))

    program, goal = ColumnProgram(Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0]), [1]), Total([1.0, 2.0])
    highs(lambda z: z * 0.5)
    short = solve_columns(program, goal, solver="highs")
    assert (short.status, short.gap) == ("feasible", pytest.approx(0.5))
    second = solve_columns(program, goal)
    assert (second.status, second.solver) == ("optimal", "cbc")
    assert [attempt.solver for attempt in second.attempts] == ["highs", "cbc"]
    highs(np.ones_like)
    with pytest.raises(SolverError, match="rows violated by"):
        solve_columns(program, goal, solver="highs")


WAYS = Configurations([0, 0, 1], [0, 1, 0], [1, 1, 1], [1.0, 2.0, 3.0], pools=["v100", "k80"])
FINE = ColumnProgram(WAYS, [1, 1])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: ColumnProgram(WAYS, [1]), r"capacity.*shape \(2,\)"),
        (lambda: ColumnProgram(WAYS, [1, -1]), "capacity.*-1.0"),
        (lambda: ColumnProgram(WAYS, [1, 1], floors=[1.0]), r"floors.*shape \(2,\)"),
        (lambda: ColumnProgram(WAYS, [1, 1], most=1.5), "most.*1.5"),
        (lambda: ColumnProgram(WAYS, [1, 1], counts=[-1, 1]), "counts"),
        (lambda: ColumnProgram(WAYS, [1, 1], rows=Rows(np.ones((1, 2)))), "rows.*3 columns"),
        (lambda: ColumnProgram(WAYS, [1, 1], exactly=None), "exactly"),
        (lambda: Rows(np.ones((1, 2)), 2.0, 1.0), "lower <= upper"),
        (lambda: solve_columns(FINE, Total([1.0])), "values"),
        (lambda: solve_columns(FINE, Least(np.zeros((0, 3)))), "rows of Least"),
        (lambda: solve_columns(FINE, MostFloors(np.ones(3))), "floors"),
        (lambda: solve_columns(FINE, Ratio(WAYS.rate, WAYS.rate)), "costs"),
        (lambda: Least.of_throughput(WAYS, [1.0]), "weights"),
        (lambda: solve_columns(FINE, []), "objectives"),
        (lambda: solve_columns(FINE, Total(WAYS.rate), solver="gurobi"), "gurobi.*auto, highs, cbc"),
    ],
)
def test_bad_programs_rows_objectives_and_solvers_are_named(call, named):
    with pytest.raises(InputError, match=named):
        call()


def test_a_point_that_does_not_keep_the_rows_gives_way_to_one_that_does():
    """CBC 2.10 calls (1, 1, 0) optimal, although the second row allows one of the two."""
    matrix = csr_array(np.array([[-1.0, 1.0, -1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]))
    rows = (np.array([-1.0, -np.inf, -np.inf, -np.inf]), np.array([0.0, 1.0, 2.0, 1.0]))
    cost = np.array([0.0, 0.5, -1.0])
    program = MixedProgram.of(matrix, cost, rows, upper=1.0, whole=True, maximise=True)
    found = Cbc(program).solve(StopRule())
    assert (matrix @ found.columns <= rows[1]).all()
    assert (cost @ found.columns, found.proven) == (0.0, True)


def test_what_cbc_cannot_read_is_a_solver_that_failed():
    program = MixedProgram.of(csr_array([[np.inf, 1.0]]), np.ones(2), (-np.inf, np.ones(1)))
    with pytest.raises(RuntimeError, match="refused the model"):
        Cbc(program).solve(StopRule())


def gangs(seed, jobs, capacity, gpus=(1, 2, 4, 8, 12), *, whole=True):
    """Jobs on powers of two within nodes of four GPUs, or on whole nodes; written out, with their values."""
    rng = np.random.default_rng(seed)
    job, pool, at = (axis.ravel() for axis in np.indices((jobs, len(capacity), len(gpus))))
    count = np.array(gpus)[at]
    rate = count ** rng.uniform(0.6, 1.0, jobs)[job] * rng.uniform(1.0, 2.0, (jobs, len(capacity)))[job, pool]
    program = ColumnProgram(Configurations(job, pool, count, rate), capacity, whole=whole)
    return program, rate, write_out(program, [Total(rate)])


def test_capacity_in_units_of_several_gpus_is_rounded_down():
    """Of 7 GPUs in nodes of four: 3 pairs, 1 node."""
    rows, _, upper = rounded_rows(gangs(0, 2, (7,), (1, 2, 4, 8))[2])
    assert upper.tolist() == [3.0, 1.0]
    assert rows.toarray().tolist() == [[0.0, 1.0, 2.0, 4.0] * 2, [0.0, 0.0, 1.0, 2.0] * 2]


@pytest.mark.parametrize("capacity", [(47, 31), (46, 29, 23), (95,)])
def test_a_search_with_rounded_rows_ends_at_the_same_optimum(capacity):
    """Its multipliers are those of the program's own rows, and another objective is solved as by a fresh engine."""
    program, rate, stated = gangs(3, 40, capacity)
    every = solve_mixed(replace(stated, cost=rate, maximise=True), "highs", StopRule(absolute_gap=1e-9))
    near, engine = solve_columns(program, Total(rate), solver="highs"), engines.ENGINES["highs"](stated, 60.0)
    assert (near.status, every.proven) == ("optimal", True)
    assert near.objective == pytest.approx(rate @ every.columns, rel=1e-9)
    first, again, fresh = (
        e.optimise(v) for e, v in ((engine, rate), (engine, rate**2), (engines.ENGINES["highs"](stated, 60.0), rate**2))
    )
    assert first.multipliers.shape == again.multipliers.shape == stated.row_lower.shape
    assert rate**2 @ again.z == pytest.approx(rate**2 @ fresh.z, rel=1e-9)
    bounds = [stated.dual(rate**2, found.multipliers)[0] for found in (again, fresh)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-7)
