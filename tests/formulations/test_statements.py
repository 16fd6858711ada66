"""Every program as solved here beside its readable statement in two solvers (`formulations.statements`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.reductions.solution import Solution
from scipy.sparse import csr_array

from formulations import (
    Makespan,
    MaxMin,
    PackedPolytope,
    assign_to_lines,
    keep_most_floors,
    maximise_ratio,
    maximise_worth,
    solve,
    solve_plan,
)
from formulations.columns import ColumnProgram, Rows, Total, solve_columns
from formulations.core.solution import InfeasibleError
from formulations.deadlines.program import DeadlineProgram, least_gpu_seconds, most_value
from formulations.goodput import PowerMean, SiaProgram, fittest_selection, least_remaining_time, relative_goodput
from formulations.leases import LeaseProgram, solve_leases
from formulations.packing import best_pairs, pair_savings
from formulations.reference.mixed_integer import MODELS, TIGHT, MixedProgram
from formulations.statements import planning, selections, shares
from tests.formulations.planning_programs import draw_program
from tests.formulations.programs import (
    KINDS,
    PACKED,
    objectives_of,
    polytope_of,
    size_of,
    with_capacity,
)
from tests.formulations.test_deadline_programs import A100, BENT, offered
from tests.formulations.test_goodput_selections import draw as draw_ways
from tests.formulations.test_invariance import counted_in
from tests.formulations.test_packing import Case as PackingCase
from throughputs import PackedColumns


@dataclass(frozen=True)
class Case:
    """A program: how it is stated, the value that was found, and a bound; in units of the statement.

    Attributes
    ----------
    size : what differences are relative to.
    point : the variables that were found, by name, where they are those of the statement.
    prices : (M,) of types with `capacity`; `more` states the program with another one.
    """

    stated: Any
    value: float
    bound: float
    size: float
    point: dict[str, Any] = field(default_factory=dict)
    prices: Any = None
    capacity: Any = None
    more: Any = None


def proven(stated: Any, found: Any, **others: Any) -> Case:
    """What a solution says of itself."""
    return Case(stated, found.objective, found.bound, max(abs(found.objective), 1e-9), **others)


def draw(seed: int) -> tuple[Any, Any]:
    """Up to eight jobs on up to three types, now and then thirty: types without GPUs, jobs for one type, equal jobs."""
    rng = np.random.default_rng([seed, 41])
    N, M = (30, 3) if seed % 25 == 24 else (int(rng.integers(2, 9)), int(rng.integers(1, 4)))
    rates, sizes = rng.uniform(0.1, 1, (N, M)) * 10.0 ** rng.uniform(-1, 1, (N, 1)), rng.choice([1, 1, 2, 4], N)
    if rng.random() < 0.3:
        rates[(rng.random(N) < 0.5)[:, None] & (np.arange(M) != rng.integers(0, M, (N, 1)))] = 0.0
    alike = rng.random() < 0.3
    if alike:
        same = rng.integers(0, N, N // 2)
        rates[same], sizes[same] = rates[0], sizes[0]
    capacity = rng.integers(1, N + 2, M).astype(float)
    capacity[1:][rng.random(M - 1) < 0.2] = 0.0
    served = (rates[:, capacity > 0] > 0).any(axis=1)
    rates, sizes = rates[served], sizes[served]
    weights = rng.choice([1.0, 2.0, 5.0], len(rates))
    goals = objectives_of(rng, rates, sizes, capacity, weights, alike=alike, decades=(2, 4))
    return polytope_of(rates, sizes, capacity), goals


def draw_pairs(seed: int) -> tuple[PackedPolytope, Any]:
    """Up to six of these jobs; any two of one size may share GPUs, at a part of their speed."""
    polytope, goals = draw(seed)
    while polytope.n_jobs == 30:
        seed += 1000
        polytope, goals = draw(seed)
    jobs, rng = np.arange(min(polytope.n_jobs, 6)), np.random.default_rng([seed, 42])
    rates, sizes, N = polytope.rates[jobs], polytope.scale_factors[jobs], len(jobs)
    together = rates[:, None] * rng.choice([0.0, 0.4, 0.6, 0.9], (N, N, rates.shape[1]))
    together[sizes[:, None] != sizes] = 0.0
    packed = PackedPolytope(PackedColumns(jobs, rates, together, sizes), polytope.capacity)
    return packed, {kind: goal.take(jobs) for kind, goal in goals.items()}


def in_units(polytope: Any, units: Any) -> Any:
    """The same with each job's throughput counted in `units` (N,)."""
    of = polytope.columns
    if not isinstance(polytope, PackedPolytope):
        return polytope_of(of.rates / units[:, None], of.scale_factors, polytope.capacity)
    each = (of.alone / units[:, None], of.together / units[:, None, None])
    return PackedPolytope(PackedColumns(of.group, *each, of.group_scale_factors), polytope.capacity)


def of_shares(kind: str, seed: int, *, paired: bool = False, part: float = 1.0) -> Case:
    """By an objective, with a `part` of the GPUs."""
    polytope, goals = (draw_pairs if paired else draw)(seed)
    polytope = with_capacity(polytope, part * polytope.capacity)
    goal = goals[kind]
    found = solve(polytope, goal)
    assert found.status == "optimal"
    # steps are stated in seconds on the fastest type, and a makespan in parts of the one found: in such units general
    # solvers are accurate
    fastest = polytope.columns.rates[:, polytope.capacity > 0].max(axis=1)
    easy, same = in_units(polytope, fastest), counted_in(goal, 1 / fastest)
    value, bound, size, prices = found.objective, found.bound, size_of(goal, found.objective), found.prices
    if isinstance(goal, Makespan):
        same, prices = Makespan(same.weights / value), prices * value / bound**2
        value, bound, size = 1.0, value / bound, 1.0
    if kind == "nash_welfare":
        value, bound = (v - float(goal.budgets @ np.log(fastest)) for v in (value, bound))

    def stated(capacity: Any) -> Any:
        return shares.best(with_capacity(easy, capacity), same)

    point = {} if paired or kind == "water_filling" else {"x": found.shares}
    return Case(stated(polytope.capacity), value, bound, size, point, prices, polytope.capacity, stated)


def floors_of(polytope: Any, part: float) -> tuple[Any, Any]:
    """(N,) a part of what all can have in equal parts of their fastest; gains (N, M)."""
    rates, rng = polytope.columns.rates, np.random.default_rng(polytope.n_jobs)
    return part * solve(polytope, MaxMin(rates.max(axis=1))).objective * rates.max(axis=1), rng.uniform(
        0.5, 2, rates.shape
    )


def of_worth(seed: int, paired: bool = False) -> Case:
    polytope = (draw_pairs if paired else draw)(seed)[0]
    floors, gains = floors_of(polytope, 0.8)
    found = maximise_worth(polytope, gains, floors)
    point = {} if paired else {"x": found.shares}
    return proven(shares.most_worth(polytope, gains, floors), found, point=point)


def of_ratio(seed: int, paired: bool = False) -> Case:
    polytope = (draw_pairs if paired else draw)(seed)[0]
    floors, ones = floors_of(polytope, 0.8 * (seed % 4 > 0))[0], np.ones(polytope.n_jobs)
    cost = np.linspace(1.0, 2.0, len(polytope.capacity))
    found = maximise_ratio(polytope, cost, floors)
    return proven(shares.most_per_cost(polytope, ones, cost, floors), found)


def of_floors(seed: int) -> Case:
    polytope = draw(seed)[0]
    floors = floors_of(polytope, 1.0)[0] * np.random.default_rng(seed).uniform(0.5, 2.0, polytope.n_jobs)
    floors = np.minimum(floors, 0.99 * polytope.fastest)
    kept = float(keep_most_floors(polytope, floors).kept.sum())
    return Case(shares.most_floors(polytope, floors), kept, kept, 1.0)


def of_rounds(seed: int) -> Case:
    program = draw_program(seed, jobs=5, rounds=4)
    found = solve_plan(program, relative_gap=1e-9)
    size = max(abs(found.objective), 1e-3)
    return Case(planning.rounds(program, found.stage), found.objective, found.bound, size)


def of_leases(seed: int) -> Case:
    rng = np.random.default_rng([seed, 43])
    J, T = int(rng.integers(2, 6)), int(rng.integers(2, 6))
    dues = [np.sort(rng.choice(T + 1, int(rng.integers(1, 3)), replace=False)) for _ in range(J)]
    value = np.concatenate([[10.0, 7.0][: len(due)] for due in dues])
    job, deadline = np.repeat(np.arange(J), [len(due) for due in dues]), np.concatenate(dues)
    gpus, needed, capacity = rng.choice([1, 2, 3], J), rng.integers(1, 3, J), rng.integers(2, 7, T)
    sign = str(rng.choice(["minimize", "maximize"]))
    program = LeaseProgram(gpus, needed, job, deadline, value, capacity, sign)
    found = solve_leases(program)
    keep = program.keep_bonus * (len(found.dropped) > 0)
    kept = keep * (J - len(found.dropped))
    # the search may stop within half a GPU of slot 0
    point = {"S": np.isin(np.arange(len(job)), found.option).astype(float), "x": found.schedule.astype(float)}
    return Case(planning.leases(program, keep=keep), found.objective + kept, found.objective + kept, 1.0 + kept, point)


def deadline_jobs(seed: int) -> Any:
    return offered(seed, 4, 4, BENT if seed % 2 else A100)


def of_deadlines(seed: int) -> Case:
    values = np.random.default_rng(seed).integers(1, 5, 4).astype(float)
    program = DeadlineProgram(deadline_jobs(seed), 4, 0.0, values=values)
    return proven(planning.deadlines(program), most_value(program))


def of_gpu_time(seed: int) -> Case:
    """Jobs one after the other are let in while all can be met."""
    jobs = deadline_jobs(seed)
    while np.isinf(seconds := least_gpu_seconds(jobs, 4, 0.0)):
        jobs = jobs[:-1]
    return Case(planning.deadlines(DeadlineProgram(jobs, 4, 0.0), all_met=True), seconds, seconds, seconds)


def of_sia(seed: int) -> Case:
    rng, ways, capacity = draw_ways(seed, 5)
    held = np.where(rng.random(5) < 0.5, ways.offsets[:-1], -1)
    pinned = (np.arange(5) == rng.integers(0, 5)) & (held >= 0)
    power, restart, weights = rng.choice([-1.0, -0.5, 0.5]), rng.uniform(0.3, 1, 5), rng.uniform(1, 2, 5)
    program = SiaProgram(
        ways, relative_goodput(ways), capacity + 2, float(power), 1.1, restart, held, pinned=pinned, weights=weights
    )
    x = program.solve().x
    return Case(selections.sia(program), program.objective(x), program.objective(x), 1.0, {"x": x})


def of_optimus(seed: int) -> Case:
    rng, ways, capacity = draw_ways(seed, 5)
    seconds = rng.uniform(1, 9, ways.n_columns)
    found = least_remaining_time(ways, seconds, capacity)
    served = round(found.x.sum())
    stated = selections.optimus(ways, seconds, capacity, served)
    assert found.stages[0].bound < served + 1
    return Case(stated, found.stages[1].objective, found.stages[1].bound, 1.0, {"x": found.x})


def of_pollux(seed: int) -> Case:
    rng, ways, capacity = draw_ways(seed, 5)
    mean, speedup = (
        PowerMean(float(rng.choice([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0])), 0.1),
        rng.uniform(0, 2, ways.n_columns),
    )
    found = fittest_selection(ways, speedup, capacity, mean)
    # the mean of the terms that sum to the stated value
    terms = mean.terms(np.bincount(ways.job, speedup * found.solution.x, minlength=5)).sum()
    assert found.fitness == pytest.approx(mean.of_sum(terms, 5), rel=1e-9)
    return Case(
        selections.pollux(ways, speedup, capacity, mean), terms, terms, 1.0 + abs(terms), {"x": found.solution.x}
    )


def of_columns(seed: int, *, whole: bool) -> Case:
    """With coupling rows and, of shares, floors that do not exclude each other."""
    rng, ways, capacity = draw_ways(seed, 5)
    values, coupled = rng.integers(-2, 6, ways.n_columns).astype(float), rng.integers(-1, 2, (2, ways.n_columns))
    rows = Rows(coupled, [-np.inf, -1.0], [1.0, 1.0])
    floors = None if whole else np.where(rng.random(5) < 0.3, 0.05, 0.0)
    program = ColumnProgram(ways, capacity + 1, rows=rows, floors=floors, whole=whole)
    try:
        found = solve_columns(program, Total(values))
    except InfeasibleError:
        program = replace_floors(program)
        found = solve_columns(program, Total(values))
    return proven(selections.columns(program, values), found, point={"x": found.x})


def replace_floors(program: ColumnProgram) -> ColumnProgram:
    return ColumnProgram(program.columns, program.capacity, rows=program.rows, whole=bool(program.whole.all()))


def of_lines(seed: int) -> Case:
    rng = np.random.default_rng([seed, 44])
    m, gpus = int(rng.integers(2, 6)), rng.integers(1, 4, 2)
    seconds, sizes = rng.uniform(1, 9, (m, 2)), rng.choice([1, 1, 2], m) if seed % 2 else np.ones(m, dtype=int)
    seconds[rng.random((m, 2)) < 0.1] = np.inf
    seconds[0, 0], sizes[0] = 5.0, 1  # somebody can run
    runs = (np.isfinite(seconds) & (sizes[:, None] <= gpus)).any(axis=1)
    found = assign_to_lines(seconds[runs], gpus, sizes[runs])
    return Case(selections.lines(seconds[runs], gpus, sizes[runs]), found.seconds, found.bound, max(found.seconds, 1.0))


def of_partners(seed: int) -> Case:
    case = PackingCase(seed, 6, 6, 2)
    savings = pair_savings(case.guests, case.hosts, case.retained, case.limits, **case.times)
    host = best_pairs(savings)
    saved = float(savings[np.flatnonzero(host >= 0), host[host >= 0]].sum())
    return Case(selections.pairs(savings), saved, saved, max(saved, 1.0))


LINEAR, CONES, WHOLE = ("clarabel", "highs"), ("clarabel", "ecos" if find_spec("ecos") else "scs"), ("highs", "cbc")

FAMILIES: dict[str, tuple[Callable[[int], Case], tuple[str, str]]] = {
    **{
        kind: (lambda seed, k=kind: of_shares(k, seed), CONES if kind in ("finish_time", "nash_welfare") else LINEAR)
        for kind in KINDS
    },
    **{
        f"{kind} in pairs": (
            lambda seed, k=kind: of_shares(k, seed, paired=True),
            CONES if kind == "finish_time" else LINEAR,
        )
        for kind in PACKED
    },
    "worth": (of_worth, LINEAR),
    "ratio": (of_ratio, LINEAR),
    "worth in pairs": (partial(of_worth, paired=True), LINEAR),
    "ratio in pairs": (partial(of_ratio, paired=True), LINEAR),
    "floors": (of_floors, WHOLE),
    "rounds": (of_rounds, WHOLE),
    "leases": (of_leases, WHOLE),
    "deadlines": (of_deadlines, WHOLE),
    "gpu time": (of_gpu_time, LINEAR),
    "sia": (of_sia, WHOLE),
    "optimus": (of_optimus, WHOLE),
    "pollux": (of_pollux, WHOLE),
    "columns": (lambda seed: of_columns(seed, whole=False), LINEAR),
    "whole columns": (lambda seed: of_columns(seed, whole=True), WHOLE),
    "lines": (of_lines, WHOLE),
    "partners": (of_partners, WHOLE),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "clarabel": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "ecos": {"abstol": 1e-9, "reltol": 1e-9, "feastol": 1e-9},
    "scs": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000},
    "highs": {"mip_rel_gap": 0.0, **TIGHT},
    "cbc": {},
}
# CBC tells eight digits of a point
ACCURACY = {"scs": 1e-4, "cbc": 3e-6}


def optima(problems: list[Any], sizes: list[float], solvers: tuple[str, str]) -> Iterator[list[float]]:
    """By each solver, of programs that share nothing, as one: to make the matrices costs more than to solve them."""
    signs = [1.0 if isinstance(problem.objective, cp.Maximize) else -1.0 for problem in problems]
    total = sum(s / size * p.objective.args[0] for s, size, p in zip(signs, sizes, problems, strict=True))
    whole = cp.Problem(cp.Maximize(total), [row for problem in problems for row in problem.constraints])
    data, chain, inverse = whole.get_problem_data(solvers[0].upper(), solver_opts=OPTIONS[solvers[0]])
    for solver in solvers:
        with warnings.catch_warnings():
            # accuracy is what is compared
            warnings.simplefilter("ignore")
            if solver == "clarabel":
                whole.unpack_results(chain.solve_via_data(whole, data, solver_opts=OPTIONS[solver]), chain, inverse)
            elif solver in MODELS:
                columns = MODELS[solver](as_mixed(data), OPTIONS[solver]).solve().columns
                answer = Solution("optimal", 0.0, {inverse[-1][chain.solver.VAR_ID]: columns}, {}, {})
                for reduction, step in zip(chain.reductions[-2::-1], inverse[-2::-1], strict=True):
                    answer = reduction.invert(answer, step)
                whole.unpack(answer)
            else:
                whole.solve(solver=solver.upper(), **OPTIONS[solver])
        yield [float(problem.objective.value) for problem in problems]


_FAR = 1e6
"""A bound where there is none: PuLP has no free columns."""


def as_mixed(data: dict[str, Any]) -> MixedProgram:
    """What cvxpy makes of a linear program, as rows and columns."""
    n, right, whole = len(data["c"]), data["b"], np.zeros(len(data["c"]), dtype=bool)
    whole[data.get("bool_vars_idx", [])] = True
    given = ((data.get("lower_bounds"), -_FAR), (data.get("upper_bounds"), _FAR))
    least, most = (np.clip(np.full(n, far) if limit is None else limit, -_FAR, _FAR) for limit, far in given)
    least, most = np.where(whole, np.maximum(least, 0.0), least), np.where(whole, np.minimum(most, 1.0), most)
    lower = np.where(np.arange(len(right)) < data["dims"].zero, right, -np.inf)
    return MixedProgram.of(csr_array(data["A"]), data["c"], (lower, right), lower=least, upper=most, whole=whole)


def check(case: Case, stated: float, solver: str, name: str) -> None:
    off, sign = ACCURACY.get(solver, 1e-6), 1 if isinstance(case.stated.objective, cp.Maximize) else -1
    assert sign * (stated - case.value) >= -off * case.size, f"{name}: {solver} finds {stated} beside {case.value}"
    assert sign * (case.bound - stated) >= -off * case.size, f"{name}: {solver} finds {stated} above {case.bound}"
    assert abs(case.bound - case.value) <= 1e-6 * case.size, f"{name}: {case.value}, at most {case.bound}"


def at_the_point_found(case: Case, name: str) -> None:
    """The variables that were found keep the rows of the statement, and have the value there that was told."""
    if not case.point:
        return
    for variable, value in case.point.items():
        case.stated.var_dict[variable].value = value
    assert float(case.stated.objective.value) == pytest.approx(case.value, rel=1e-6, abs=1e-6 * case.size), name
    for row in case.stated.constraints:
        scale = max(float(np.abs(part.value).max(initial=1.0)) for part in row.args)
        assert np.max(row.violation(), initial=0.0) <= 1e-7 * scale, f"{name}: {row}"


def beside(family: str, seeds: range) -> None:
    make, solvers = FAMILIES[family]
    at_once = 4 if solvers == CONES else 10
    for first in range(seeds.start, seeds.stop, at_once):
        part = range(first, min(first + at_once, seeds.stop))
        cases = [make(seed) for seed in part]
        for seed, case in zip(part, cases, strict=True):
            at_the_point_found(case, f"{family} {seed}")
        found_by = optima([case.stated for case in cases], [case.size for case in cases], solvers)
        for solver, found in zip(solvers, found_by, strict=True):
            for seed, case, value in zip(part, cases, found, strict=True):
                if solver in CONES and abs(value - case.value) > 1e-6 * case.size:
                    # programs that are solved as one share a scale, in which one of them may be left inexact
                    value = case.stated.solve(solver=solver.upper(), **OPTIONS[solver])
                check(case, value, solver, f"{family} {seed}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_programs_of_each_family_beside_their_statement(family: str) -> None:
    beside(family, range(1000, 1008))


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_each_family_beside_their_statement(family: str) -> None:
    """Programs in whole variables cost three times as much CPU time."""
    beside(family, range(20 if FAMILIES[family][1] == WHOLE else 100))


@pytest.mark.deep
@pytest.mark.parametrize("family", FAMILIES)
def test_many_programs_of_each_family_beside_their_statement(family: str) -> None:
    beside(family, range(2000, 2300))


STEP = 1e-3
"""GPUs by which a statement has more of a type."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "paired"), [*((k, False) for k in KINDS), *((k, True) for k in PACKED)])
def test_prices_are_what_more_gpus_bring_in_the_statement(kind: str, paired: bool) -> None:
    """By differences, with parts of GPUs: at whole ones the value bends, and a difference is less than a price."""
    solver = FAMILIES[kind][1][0]
    exact = asked = 0
    for seed in range(6):
        case = of_shares(kind, seed, paired=paired, part=0.83)
        types, capacity = np.flatnonzero(np.isfinite(case.prices)), case.capacity
        more = [case.more(capacity + d * (np.arange(len(capacity)) == j)) for j in types for d in (0, STEP, 2 * STEP)]
        values = np.reshape(next(optima(more, [case.size] * len(more), (solver, solver))), (len(types), 3))
        sign, noise = 1 if isinstance(case.stated.objective, cp.Maximize) else -1, 1e-7 * case.size / STEP
        gains = sign * np.diff(values) / STEP
        assert (gains[:, 0] <= case.prices[types] * (1 + 1e-3) + noise).all(), f"{kind} {seed}"
        # what no difference at all would say
        straight = 1.5 * gains[:, 0] - 0.5 * gains[:, 1]
        exact += int((abs(straight - case.prices[types]) <= 1e-2 * case.prices[types] + noise).sum())
        asked += len(types)
    assert exact >= 0.9 * asked
