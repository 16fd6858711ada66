"""Programs over configurations: against brute force, cvxpy and CBC; order, proof, and what cannot be solved."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from formulations.columns import (
    ColumnProgram,
    InfeasibleError,
    Least,
    MostFloors,
    Ratio,
    Rows,
    Total,
    solve_columns,
)
from formulations.columns.order import undominated
from formulations.columns.written import write_out
from tests.formulations.column_programs import allowed, best_choices, programs, stated
from throughputs import Configurations, InputError, default_table

SEEDS = st.integers(0, 2**32 - 1)


def values_for(program: ColumnProgram, seed: int, number: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 6, program.columns.n_columns).astype(float) for _ in range(number)]


@settings(max_examples=80, deadline=None)
@given(programs(whole=True), SEEDS)
def test_choices_are_those_of_brute_force(program, seed):
    values = values_for(program, seed, 2)
    optimum = best_choices(program, values)
    goals = [Total(v) for v in values]
    if optimum is None:
        with pytest.raises(InfeasibleError):
            solve_columns(program, goals)
        return
    found = solve_columns(program, goals)
    assert found.status == "optimal"
    assert set(found.x.tolist()) <= {0.0, 1.0}
    assert allowed(program, found.x)
    np.testing.assert_allclose([stage.objective for stage in found.stages], optimum, atol=1e-9)
    for stage in found.stages:
        assert stage.bound >= stage.objective - 1e-9


@settings(max_examples=60, deadline=None)
@given(programs(whole=False), SEEDS)
def test_shares_are_those_of_another_statement(program, seed):
    (values,) = values_for(program, seed)
    x, constraints = stated(program)
    problem = cp.Problem(cp.Maximize(values @ x), constraints)
    problem.solve(solver=cp.HIGHS)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        with pytest.raises(InfeasibleError, match="no shares keep all rows"):
            solve_columns(program, Total(values))
        return
    found = solve_columns(program, Total(values))
    assert found.status == "optimal"
    assert allowed(program, found.x)
    assert found.objective == pytest.approx(problem.value, abs=1e-7)
    # weak duality, from multipliers alone
    assert found.bound >= problem.value - 1e-9
    assert found.bound == pytest.approx(problem.value, abs=1e-6)
    np.testing.assert_allclose(found.throughput, program.columns.rates.toarray() @ found.x, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(programs(whole=False, rows=False), SEEDS)
def test_the_least_throughput_is_that_of_another_statement(program, seed):
    weights = np.random.default_rng(seed).integers(0, 3, program.columns.n_jobs).astype(float)
    assume((weights > 0).any())
    x, constraints = stated(program)
    u = program.columns.rates.toarray() @ x
    held = np.flatnonzero(weights)
    problem = cp.Problem(cp.Maximize(cp.min(cp.multiply(weights, u)[held])), constraints)
    problem.solve(solver=cp.HIGHS)
    goal = Least.of_throughput(program.columns, weights)
    if problem.status == "infeasible":
        with pytest.raises(InfeasibleError):
            solve_columns(program, goal)
        return
    found = solve_columns(program, goal)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(problem.value, abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(programs(whole=True) | programs(whole=False), SEEDS)
def test_the_second_solver_agrees(program, seed):
    goals = [Total(v) for v in values_for(program, seed, 2)]
    try:
        one = solve_columns(program, goals, solver="highs")
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve_columns(program, goals, solver="cbc")
        return
    other = solve_columns(program, goals, solver="cbc")
    assert (one.solver, other.solver) == ("highs", "cbc")
    assert one.status == "optimal"
    # CBC prints eight digits of shares and multipliers
    assert other.status == "optimal" or not program.whole.any()
    assert max(stage.gap for stage in other.stages) <= 1e-5
    for a, b in zip(one.stages, other.stages, strict=True):
        assert a.objective == pytest.approx(b.objective, abs=1e-5)
        assert b.bound >= a.objective - 1e-5


@settings(max_examples=60, deadline=None)
@given(programs(whole=True) | programs(whole=False), SEEDS)
def test_the_order_of_jobs_columns_pools_and_rows_does_not_matter(program, seed):
    """Bit for bit: the same program listed in another order has the same answer."""
    rng = np.random.default_rng(seed)
    (values,) = values_for(program, seed)
    columns, C = program.columns, program.columns.n_columns
    jobs, pools = rng.permutation(columns.n_jobs), rng.permutation(len(columns.pools))
    at, on, listed = np.argsort(jobs), np.argsort(pools), rng.permutation(C)
    partner = np.where(columns.partner < 0, -1, at[columns.partner])
    other = Configurations(
        at[columns.job][listed],
        on[columns.pool][listed],
        columns.gpus[listed],
        columns.rate[listed],
        partner=partner[listed],
        partner_rate=columns.partner_rate[listed],
        jobs=[columns.jobs[i] for i in jobs],
        pools=[columns.pools[j] for j in pools],
    )
    key = {}
    for c in range(C):
        pair = frozenset(
            (columns.jobs[columns.job[c]], *([columns.jobs[columns.partner[c]]] if columns.partner[c] >= 0 else []))
        )
        key[pair, columns.pools[columns.pool[c]], int(columns.gpus[c])] = c
    same = np.array(
        [
            key[
                frozenset(
                    (other.jobs[other.job[c]], *([other.jobs[other.partner[c]]] if other.partner[c] >= 0 else []))
                ),
                other.pools[other.pool[c]],
                int(other.gpus[c]),
            ]
            for c in range(C)
        ]
    )
    rows = program.rows
    if rows is not None:
        turned = rng.permutation(len(rows.lower))
        rows = Rows(rows.matrix.toarray()[turned][:, same], rows.lower[turned], rows.upper[turned])
    changed = ColumnProgram(
        other, program.capacity[pools], floors=program.floors[jobs], rows=rows, whole=program.whole[same]
    )
    try:
        expected = solve_columns(program, Total(values)).x
    except InfeasibleError:
        return
    np.testing.assert_array_equal(solve_columns(changed, Total(values[same])).x, expected[same])


@settings(max_examples=60, deadline=None)
@given(programs(whole=True) | programs(whole=False), SEEDS)
def test_dominated_columns_change_no_optimum(program, seed):
    goals = [Total(np.abs(v)) for v in values_for(program, seed)]
    try:
        whole = solve_columns(program, goals, reduce=False)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve_columns(program, goals)
        return
    reduced = solve_columns(program, goals)
    assert reduced.objective == pytest.approx(whole.objective, abs=1e-7)
    assert not reduced.x[~undominated(program, goals)].any()
    assert reduced.dropped == (~undominated(program, goals)).sum()


def test_a_column_is_dropped_only_where_another_is_as_good_in_everything():
    ways = Configurations([0, 0, 0], [0, 0, 0], [1, 2, 4], [1.0, 2.0, 2.0], jobs="a", pools=["v100"])
    program = ColumnProgram(ways, [4])
    assert undominated(program, [Total([1, 2, 2])]).tolist() == [True, True, False]
    assert undominated(program, [Total([3, 2, 2])]).tolist() == [True, False, False]
    # throughput counts where there is a floor, and every objective does
    assert undominated(ColumnProgram(ways, [4], floors=[1.5]), [Total([3, 2, 2])]).tolist() == [True, True, False]
    assert undominated(program, [Total([3, 2, 2]), Total(ways.rate)]).tolist() == [True, True, False]
    assert undominated(program, [Total([3, 2, 2]), Total([1, 1, 0], maximise=False)]).tolist() == [True, False, True]
    # a column in a coupling row is left alone, and so is one that cannot have all of the time
    rows = Rows([[0.0, 0.0, 1.0]], upper=0.5)
    assert undominated(ColumnProgram(ways, [4], rows=rows), [Total([1, 2, 2])]).tolist() == [True, True, True]
    assert undominated(ColumnProgram(ways, [4], most=[1, 0.5, 1]), [Total([1, 2, 2])]).tolist() == [True, True, True]


def test_a_bound_holds_for_any_multipliers():
    rng = np.random.default_rng(0)
    ways = Configurations([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 2, 1], [3.0, 1.0, 2.0, 2.0])
    program = ColumnProgram(ways, [1, 2], floors=[0.5, 1.0])
    goal = Total([3.0, 1.0, 2.0, 2.0])
    optimum = solve_columns(program, goal).objective
    written = write_out(program, [goal])
    for _ in range(200):
        assert written.dual_bound(written.costs[0], rng.normal(0, 2, len(written.lower))) >= optimum - 1e-9


def test_prices_are_what_a_gpu_more_is_worth():
    ways = Configurations([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [4.0, 1.0, 2.0, 1.0])
    here, there = (solve_columns(ColumnProgram(ways, [gpus, 1]), Total(ways.rate)) for gpus in (0.5, 0.6))
    assert (there.objective - here.objective) / 0.1 == pytest.approx(here.prices[0])
    held = solve_columns(ColumnProgram(ways, [1, 1], floors=[0, 1.5]), Total(ways.rate))
    less = solve_columns(ColumnProgram(ways, [1, 1], floors=[0, 1.4]), Total(ways.rate))
    assert (less.objective - held.objective) / 0.1 == pytest.approx(held.stages[0].multipliers[1])


def test_a_later_objective_keeps_the_earlier_ones():
    ways = Configurations.from_table(default_table(), ["LM (batch size 20)"] * 6, ["v100", "p100"], jobs=range(6))
    program = ColumnProgram(ways, [6, 8], whole=True)
    value = np.minimum(ways.rate, 100.0)
    alone = solve_columns(program, Total(value))
    both = solve_columns(program, [Total(value), Total(ways.gpus, maximise=False)])
    assert both.objective == pytest.approx(alone.objective, rel=1e-8)
    assert float(ways.gpus @ both.x) <= float(ways.gpus @ alone.x)
    assert both.stages[1].objective == pytest.approx(float(ways.gpus @ both.x))
    assert both.status == "optimal"


def test_most_floors_are_kept_and_then_the_most_throughput():
    ways = Configurations([0, 1, 2], [0, 0, 0], [1, 1, 1], [1.0, 2.0, 4.0])
    floors = np.array([0.9, 1.0, 3.0])
    program = ColumnProgram(ways, [1.5])
    goal = MostFloors(floors)
    found = solve_columns(program, [goal, Total(ways.rate)])
    assert found.objective == 2
    assert goal.kept(program, found.x).sum() == 2
    assert found.stages[1].objective == pytest.approx(5.0, rel=1e-6)
    assert solve_columns(program, goal, solver="cbc").objective == 2


@settings(max_examples=40, deadline=None)
@given(programs(whole=False, floors=False, rows=False), SEEDS)
def test_no_more_floors_can_be_kept(program, seed):
    """All sets of jobs, largest first, each by a linear program."""
    most = program.columns.rates.toarray().max(axis=1)
    floors = most * np.random.default_rng(seed).choice([0.0, 0.4, 0.7], program.columns.n_jobs)
    assume((floors > 0).any())
    found = solve_columns(program, MostFloors(floors))
    assert found.status == "optimal"
    best = 0
    for chosen in product((0, 1), repeat=len(floors)):
        asked = ColumnProgram(program.columns, program.capacity, floors=floors * chosen * (1 - 1e-9))
        try:
            solve_columns(asked, Total(np.zeros(program.columns.n_columns)))
        except InfeasibleError:
            continue
        best = max(best, int(((floors > 0) * np.array(chosen)).sum()))
    assert found.objective == best
    assert found.bound == best


def test_jobs_that_must_run_do():
    ways = Configurations([0, 0, 1], [0, 0, 0], [1, 2, 2], [1.0, 3.0, 1.0])
    value = [1.0, 3.0, -1.0]
    free = solve_columns(ColumnProgram(ways, [3], whole=True), Total(value))
    assert free.x.tolist() == [0, 1, 0]
    forced = solve_columns(ColumnProgram(ways, [3], whole=True, exactly=True), Total(value))
    assert forced.x.tolist() == [1, 0, 1]
    with pytest.raises(InfeasibleError, match="2 jobs that must run"):
        solve_columns(ColumnProgram(ways, [2], whole=True, exactly=True), Total(value))


def test_slots_have_a_capacity_and_a_life_each():
    """One GPU in the first slot, three in the second; a floor over both."""
    ways = Configurations([0, 0, 1], [0, 0, 0], [1, 2, 1], [1.0, 2.0, 1.0], jobs="ab", pools=["v100"])
    program = ColumnProgram(ways, [[1, 3]], floors=[3.0, 0.0], whole=True)
    found = solve_columns(program, Total(np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 5.0]])))
    np.testing.assert_array_equal(found.x, [[1, 0], [0, 1], [0, 1]])
    assert found.throughput.tolist() == [3.0, 1.0]
    assert found.prices.shape == (1, 2)
    assert found.to_frame()[["share 0", "share 1"]].to_numpy().sum() == 3


def test_counts_stand_for_identical_jobs():
    one = Configurations([0, 0, 1], [0, 1, 0], [1, 1, 2], [4.0, 1.0, 3.0])
    merged = solve_columns(ColumnProgram(one, [4, 1], counts=[3, 1]), Total([12.0, 3.0, 3.0]))
    many = Configurations([0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 1, 0, 1, 0], [1] * 6 + [2], [4.0, 1.0] * 3 + [3.0])
    assert merged.objective == pytest.approx(solve_columns(ColumnProgram(many, [4, 1]), Total(many.rate)).objective)
    with pytest.raises(InputError, match="counts"):
        ColumnProgram(Configurations([0], [0], [1], [1.0], partner=[1]), [1], counts=[2, 1])


def test_rows_may_be_generated_when_they_are_violated():
    ways = Configurations(np.arange(6), np.zeros(6, int), np.ones(6, int), np.arange(1.0, 7.0))
    asked = []

    def no_job_more_than_twice_the_next(x):
        worst = np.flatnonzero(x[1:] > 2 * x[:-1] + 1e-6)
        asked.append(x.shape)
        if not len(worst):
            return None
        r = np.arange(len(worst))
        entries = np.concatenate([np.ones(len(worst)), np.full(len(worst), -2.0)])
        matrix = csr_array(
            (entries, (np.concatenate([r, r]), np.concatenate([worst + 1, worst]))), shape=(len(worst), 6)
        )
        return Rows(matrix, upper=0.0)

    every = Rows(np.eye(6)[1:] - 2 * np.eye(6)[:-1], upper=0.0)
    stated_at_once = solve_columns(ColumnProgram(ways, [2], rows=every), Total(ways.rate))
    for solver in ("highs", "cbc"):
        asked.clear()
        found = solve_columns(
            ColumnProgram(ways, [2]), Total(ways.rate), solver=solver, generate=no_job_more_than_twice_the_next
        )
        assert len(asked) > 1
        assert found.generated > 0
        assert found.status == "optimal"
        assert found.objective == pytest.approx(stated_at_once.objective, rel=1e-8)
        assert found.bound == pytest.approx(stated_at_once.objective, rel=1e-7)


def test_what_was_not_proven_is_not_called_optimal(monkeypatch):
    """An engine that stops short of the optimum, and says that it did not."""
    from formulations.columns import engines

    class Short(engines.Highs):
        def optimise(self, cost):
            found = super().optimise(cost)
            return engines.Found(found.z * 0.5, found.multipliers, found.bound)

    monkeypatch.setitem(engines.ENGINES, "highs", Short)
    ways = Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0])
    short = solve_columns(ColumnProgram(ways, [1]), Total(ways.rate), solver="highs")
    assert short.status == "feasible"
    assert short.gap == pytest.approx(0.5)
    second = solve_columns(ColumnProgram(ways, [1]), Total(ways.rate))
    assert (second.status, second.solver) == ("optimal", "cbc")
    assert [attempt.solver for attempt in second.attempts] == ["highs", "cbc"]


def test_a_search_that_is_cut_short_says_how_far_it_came():
    rng = np.random.default_rng(0)
    N, gpus = 400, np.tile([1, 3, 5, 7], 800)
    rates = rng.uniform(1, 2, 8 * N) * gpus ** rng.uniform(0.5, 1, 8 * N)
    ways = Configurations(np.repeat(np.arange(N), 8), np.tile([0] * 4 + [1] * 4, N), gpus, rates)
    rows = Rows(rng.uniform(0, 1, (6, 8 * N)), upper=40.0)
    program = ColumnProgram(ways, [150, 170], whole=True, rows=rows)
    found = solve_columns(program, Total(rates), solver="highs", seconds=1.5)
    assert found.status == "feasible"
    assert 1e-7 < found.gap < 1.0
    assert found.bound > found.objective == pytest.approx(float(np.sum(rates * found.x)))
    assert allowed(program, found.x)


def test_points_that_break_a_row_are_not_taken(monkeypatch):
    from formulations.columns import engines
    from formulations.core.solution import SolverError

    class Over(engines.Highs):
        def optimise(self, cost):
            found = super().optimise(cost)
            return engines.Found(np.ones_like(found.z), found.multipliers, found.bound)

    monkeypatch.setitem(engines.ENGINES, "highs", Over)
    ways = Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0])
    with pytest.raises(SolverError, match="rows violated by"):
        solve_columns(ColumnProgram(ways, [1]), Total(ways.rate), solver="highs")


def test_nothing_to_choose_from():
    nothing = Configurations([], [], [], [], jobs="ab", pools=["v100"])
    found = solve_columns(ColumnProgram(nothing, [4]), Total([]))
    assert (found.status, found.objective, found.x.shape) == ("optimal", 0.0, (0,))
    with pytest.raises(InfeasibleError):
        solve_columns(ColumnProgram(nothing, [4], floors=[1, 0]), Total([]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": [1]}, r"capacity.*shape \(2,\)"),
        ({"capacity": [1, -1]}, "capacity.*-1.0.*at least 0"),
        ({"floors": [1.0]}, r"floors.*shape \(2,\)"),
        ({"floors": [1.0, np.nan]}, "floors.*nan"),
        ({"most": 1.5}, "most.*1.5.*between 0 and 1"),
        ({"counts": [-1, 1]}, "counts"),
        ({"whole": [True]}, "whole"),
        ({"rows": Rows(np.ones((1, 2)))}, "rows.*3 columns"),
        ({"exactly": None}, "exactly.*true or false"),
        ({"whole": [0.5, 1.0, 1.0]}, "whole.*true or false"),
    ],
)
def test_bad_programs_are_named(changes, message):
    ways = Configurations([0, 0, 1], [0, 1, 0], [1, 1, 1], [1.0, 2.0, 3.0], pools=["v100", "k80"])
    with pytest.raises(InputError, match=message):
        ColumnProgram(ways, **{"capacity": [1, 1], **changes})


def test_bad_rows_objectives_and_solvers_are_named():
    ways = Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0])
    program = ColumnProgram(ways, [1])
    with pytest.raises(InputError, match="lower <= upper"):
        Rows(np.ones((1, 2)), 2.0, 1.0)
    with pytest.raises(InputError, match="not finite"):
        Rows([[np.nan, 1.0]])
    for goal in (
        Total([1.0]),
        Total([1.0, np.inf]),
        Least(np.zeros((0, 2))),
        Least(-np.ones((1, 2))),
        MostFloors(np.ones(3)),
    ):
        with pytest.raises(InputError):
            solve_columns(program, goal)
    with pytest.raises(InputError, match="weights"):
        Least.of_throughput(ways, [1.0])
    with pytest.raises(InputError, match="objectives"):
        solve_columns(program, [])
    with pytest.raises(InputError, match=r"gurobi.*auto, highs, cbc"):
        solve_columns(program, Total(ways.rate), solver="gurobi")


@settings(max_examples=40, deadline=None)
@given(programs(whole=False, rows=False), SEEDS)
def test_the_largest_ratio_is_that_of_the_transformed_program(program, seed):
    """Against the linear program of Charnes and Cooper (Naval Research Logistics Quarterly 9, 1962)."""
    rng = np.random.default_rng(seed)
    C = program.columns.n_columns
    values, costs = rng.uniform(-1, 5, C), rng.uniform(0.5, 2, C)
    scaled, size = cp.Variable(C, nonneg=True), cp.Variable(nonneg=True)
    x, constraints = stated(program)
    if cp.Problem(cp.Minimize(costs @ x), constraints).solve(solver=cp.HIGHS) == np.inf:
        with pytest.raises(InfeasibleError):
            solve_columns(program, Ratio(values, costs))
        return
    if not (program.floors > 0).any():
        with pytest.raises(InputError, match="shares that cost nothing"):
            solve_columns(program, Ratio(values, costs))
        return
    columns = program.columns
    every = [columns.time @ scaled <= size, scaled <= program.most * size, costs @ scaled == 1]
    every += [columns.usage @ scaled <= program.capacity * size, columns.rates @ scaled >= program.floors * size]
    best = cp.Problem(cp.Maximize(values @ scaled), every).solve(solver=cp.HIGHS)
    found = solve_columns(program, Ratio(values, costs))
    assert found.status == "optimal"
    assert allowed(program, found.x)
    assert found.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert found.bound >= best - 1e-6
    assert found.objective == pytest.approx((values @ found.x) / (costs @ found.x), rel=1e-12)
    # held: the least cost among the shares of that ratio
    cheapest = solve_columns(program, [Ratio(values, costs), Total(costs, maximise=False)])
    assert cheapest.stages[0].objective == pytest.approx(found.objective, rel=1e-6, abs=1e-6)
    assert cheapest.stages[1].objective <= costs @ found.x + 1e-6
