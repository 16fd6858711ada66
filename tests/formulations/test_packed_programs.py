"""Programs with space sharing against the program over all pairs of jobs, and what must hold of any optimum."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    SolverError,
    isolated_throughput,
    proportional_throughput,
    solve,
)
from formulations.core.polytope import Polytope
from formulations.packed import PackedPolytope, solve_packed
from formulations.packed.engines import ENGINES
from tests.formulations.packed_reference import KINDS, check_feasible, draw_packed, explicit
from throughputs import InputError
from throughputs.packed import PackedColumns


@pytest.mark.parametrize("solver", ["auto", "class_pairs", "highs"])
def test_max_min_is_the_optimum_over_all_pairs(solver):
    """At least 500 programs, each against simplex on every pair of jobs; feasible, proven, and efficient."""
    for seed in range(520 if solver == "auto" else 150):
        polytope, objectives = draw_packed(seed)
        objective = objectives["max_min"]
        solution = solve_packed(polytope, objective, solver=solver)
        if solution.status == "empty":
            continue
        check_feasible(polytope, solution)
        best = explicit(polytope, solution.served, weights=objective.weights)
        assert solution.status == "optimal", f"seed {seed}"
        assert solution.objective == pytest.approx(best, rel=1e-8), f"seed {seed}"
        served = np.flatnonzero(solution.served)
        u = polytope.throughput(solution.shares, solution.pairs)
        assert objective.take(served).value(u[served]) == pytest.approx(solution.objective, rel=1e-12)


@pytest.mark.parametrize("solver", ["class_pairs", "highs"])
@pytest.mark.parametrize("kind", ["makespan", "finish_time", "max_sum"])
def test_other_objectives_are_the_optimum_over_all_pairs(kind, solver):
    for seed in range(1000, 1120):
        polytope, objectives = draw_packed(seed)
        objective = objectives[kind]
        solution = solve_packed(polytope, objective, solver=solver)
        if solution.status == "empty":
            continue
        check_feasible(polytope, solution)
        assert solution.status == "optimal", f"seed {seed}"
        value, served = solution.objective, solution.served
        if kind == "max_sum":
            assert value == pytest.approx(explicit(polytope, served, gains=objective.gains), rel=1e-8), f"seed {seed}"
        elif kind == "makespan":
            best = explicit(polytope, served, weights=objective.weights)
            assert 1 / value == pytest.approx(best, rel=1e-8), f"seed {seed}"
        else:
            # all demands can be met and more just above the level, and not all of them just below it
            jobs = np.flatnonzero(served)
            demand = np.ones(len(served))
            for level, feasible in ((value * (1 - 1e-8), False), (value * (1 + 1e-8), True)):
                demand[jobs] = objective.take(jobs).demand(level)
                assert (explicit(polytope, served, weights=demand) >= 1) == feasible, f"seed {seed}"


@pytest.mark.parametrize("solver", ["class_pairs", "highs"])
def test_nobody_can_gain_unless_another_loses(solver):
    for seed in range(2000, 2080):
        polytope, objectives = draw_packed(seed)
        for kind in ("max_min", "makespan"):
            solution = solve_packed(polytope, objectives[kind], solver=solver)
            if solution.status == "empty":
                continue
            u = polytope.throughput(solution.shares, solution.pairs)
            fastest = polytope.columns.general.rate.max(axis=1).toarray().ravel()
            gains = np.divide(1.0, fastest, out=np.zeros_like(u), where=solution.served)
            best = explicit(polytope, solution.served, gains=gains, floors=u * (1 - 1e-9))
            assert best - gains @ u <= 2e-6 * max(best, 1.0), f"{kind}, seed {seed}"
            assert solution.efficiency_gap <= 1e-6, f"{kind}, seed {seed}"


@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_engine_agrees(engine):
    for seed in range(3000, 3040):
        polytope, objectives = draw_packed(seed, largest=14)
        for kind in KINDS:
            reference = solve_packed(polytope, objectives[kind])
            try:
                other = solve_packed(polytope, objectives[kind], solver=engine)
            except SolverError:
                assert engine == "highs"  # may stop short, and says so
                continue
            accuracy = 2e-8 if engine == "class_pairs" else max(1e-7, 3 * other.gap)
            assert other.objective == pytest.approx(reference.objective, rel=accuracy, nan_ok=True), f"seed {seed}"
            check_feasible(polytope, other)


def test_without_pairs_it_is_the_plain_program():
    for seed in range(8000, 8020):
        polytope, objectives = draw_packed(seed)
        columns = polytope.columns
        lonely = PackedColumns(
            columns.group, columns.alone, np.zeros_like(columns.together), columns.group_scale_factors
        )
        packed = solve_packed(PackedPolytope(lonely, polytope.capacity), objectives["max_min"])
        plain = solve(Polytope(columns.plain, polytope.capacity), objectives["max_min"])
        assert packed.objective == pytest.approx(plain.objective, rel=1e-8, nan_ok=True)
        assert len(packed.pairs) == 0


def test_prices_are_the_value_of_one_more_gpu():
    rng = np.random.default_rng(4)
    alone = rng.uniform(1, 5, (5, 2))
    together = alone[:, None, :] * rng.uniform(0.5, 0.8, (5, 5, 2))
    columns, capacity = PackedColumns(np.arange(5), alone, together), np.array([1.2, 0.9])
    objective = MaxMin(rng.uniform(1, 2, 5))
    at = solve_packed(PackedPolytope(columns, capacity), objective)
    for j in range(2):
        more = capacity + 1e-4 * (np.arange(2) == j)
        gained = solve_packed(PackedPolytope(columns, more), objective).objective - at.objective
        assert at.prices[j] == pytest.approx(gained / 1e-4, rel=1e-2)
        assert at.prices[j] > 0


def test_many_distinct_jobs():
    """Sixty jobs with steps of their own: both forms of the program find the same makespan and finish-time fairness."""
    rng = np.random.default_rng(8)
    G, N = 4, 60
    alone = rng.uniform(1, 5, (G, 3))
    together = alone[:, None, :] * rng.uniform(0.4, 0.9, (G, G, 3))
    columns = PackedColumns(rng.integers(0, G, N), alone, together)
    polytope = PackedPolytope(columns, [9, 7, 8])
    steps = 10 ** rng.uniform(3, 4, N)
    for objective in (Makespan(steps), FinishTimeFairness(rng.uniform(0, 1e3, N), steps, steps / 2)):
        one = solve_packed(polytope, objective, solver="class_pairs")
        other = solve_packed(polytope, objective, solver="highs")
        assert one.status == other.status == "optimal"
        assert one.objective == pytest.approx(other.objective, rel=1e-8)
        check_feasible(polytope, other)


def test_hundreds_of_distinct_jobs():
    """The expansion stays of the size of N."""
    rng = np.random.default_rng(9)
    G, N = 3, 900
    alone = rng.uniform(1, 5, (G, 2))
    together = alone[:, None, :] * rng.uniform(0.55, 0.9, (G, G, 2))
    polytope = PackedPolytope(PackedColumns(rng.integers(0, G, N), alone, together), [200, 150])
    solution = solve_packed(polytope, Makespan(10 ** rng.uniform(3, 3.5, N)))
    assert solution.status == "optimal"
    assert solution.efficiency_gap <= 1e-6
    assert 0 < len(solution.pairs) <= 4 * N
    check_feasible(polytope, solution)


def test_types_with_next_to_no_gpus():
    """Programs in which the price of such a type matters to the bound, or its few GPUs to the choice."""
    for seed, largest in ((200357, 60), (200642, 60), (200116, 60), (100637, 9), (100434, 9)):
        polytope, objectives = draw_packed(seed, largest)
        for kind in KINDS:
            solution = solve_packed(polytope, objectives[kind])
            assert solution.status == "optimal", f"{kind}, seed {seed}"
            assert solution.efficiency_gap <= 1e-6, f"{kind}, seed {seed}"
            check_feasible(polytope, solution)


def test_next_engine_is_tried_and_counted(monkeypatch):
    from formulations.packed import class_pairs

    def fail(_self, _goal):
        raise RuntimeError("out of order")

    monkeypatch.setattr(class_pairs.ClassPairs, "__call__", fail)
    polytope, objectives = draw_packed(3)
    solution = solve_packed(polytope, objectives["max_min"])
    assert [attempt.solver for attempt in solution.attempts] == ["class_pairs", "highs"]
    assert solution.attempts[0].note == "out of order"
    assert solution.status == "optimal"


def test_unknown_solver_names_the_nearest():
    polytope, objectives = draw_packed(1)
    with pytest.raises(InputError, match="did you mean 'highs'"):
        solve_packed(polytope, objectives["max_min"], solver="high")


REFERENCES = [
    "i01_n3_single",
    "i02_n4_multi_prio",
    "i03_n8_single_prio",
    "i05_n12_single",
    "i06_n16_single_prio",
    "i08_n20_multi_prio",
    "i16_n10_single_gpu_same_sf_pairs",
]


def polytope_of_instance(instance):
    """Polytope, jobs and columns of a recorded instance, its pairs as tables of each job."""
    accelerators = list(instance["cluster"])
    jobs = instance["jobs"]
    position = {job["job_id"]: i for i, job in enumerate(jobs)}
    N, M = len(jobs), len(accelerators)
    alone = np.array([[job["throughputs"][name] for name in accelerators] for job in jobs])
    together = np.zeros((N, N, M))
    for pair in instance["pairs"]:
        i, k = (position[job] for job in pair["pair"])
        if jobs[i]["scale_factor"] == jobs[k]["scale_factor"]:
            for j, name in enumerate(accelerators):
                together[i, k, j], together[k, i, j] = pair["throughputs"][name]
    sizes = [job["scale_factor"] for job in jobs]
    columns = PackedColumns(np.arange(N), alone, together, sizes, accelerators=accelerators)
    return PackedPolytope(columns, [instance["cluster"][name] for name in accelerators])


@pytest.mark.parametrize("name", REFERENCES)
def test_recorded_optima(reference_data, name):
    """The optima that an independent formulation found for the published packed policies."""
    with gzip.open(reference_data("gavel/policy_reference.json.gz")) as file:
        record = next(record for record in json.load(file) if record["instance"]["name"] == name)
    jobs = record["instance"]["jobs"]
    polytope = polytope_of_instance(record["instance"])
    columns = polytope.columns
    priority = np.array([job["priority_weight"] for job in jobs])
    steps = np.array([job["num_steps_remaining"] for job in jobs], dtype=float)
    yardstick = proportional_throughput(columns.rates, polytope.capacity)
    max_min = solve_packed(polytope, MaxMin(priority * yardstick / columns.scale_factors))
    assert max_min.objective == pytest.approx(record["exact_highs"]["max_min_fairness_packed"], rel=1e-6)
    makespan = solve_packed(polytope, Makespan(steps))
    recorded = record["exact_highs"]["min_total_duration_packed"]["T_optimal_s"]
    assert makespan.objective == pytest.approx(float(recorded), rel=1e-6)
    # the published rho of packed jobs divides their throughput by the priority weight
    elapsed = np.array([job["time_since_start"] for job in jobs], dtype=float)
    alone = steps / isolated_throughput(columns.rates, columns.scale_factors, polytope.capacity)
    fairness = solve_packed(polytope, FinishTimeFairness(elapsed, steps * priority, alone))
    recorded = record["exact_highs"]["finish_time_fairness_packed"]["max_rho"]
    assert fairness.objective == pytest.approx(float(recorded), rel=1e-6)
