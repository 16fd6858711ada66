"""Programs with space sharing against the program over all pairs of jobs, and what must hold of any optimum."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    SolverError,
    isolated_throughput,
    proportional_throughput,
    solve,
)
from formulations.packed import PackedPolytope, Pairs, solve_packed
from formulations.packed.certificate import dual_bound
from formulations.packed.engines import ENGINES
from formulations.packed.program import useful_pairs
from formulations.packed.reduction import reduce
from formulations.polytope import Polytope
from throughputs import InputError
from throughputs.packed import PackedColumns

KINDS = ("max_min", "makespan", "finish_time", "max_sum")


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
    group = rng.integers(0, G, N)
    columns = PackedColumns(group, alone, together, sizes)
    polytope = PackedPolytope(columns, capacity)
    yardstick = proportional_throughput(columns.rates, capacity)
    yardstick = np.where(yardstick > 0, yardstick, 1.0)
    weights = 10.0 ** rng.uniform(-3, 3, N) if rng.random() < 0.3 else rng.choice([1.0, 1.0, 5.0], N)
    steps = 10.0 ** rng.uniform(2, 5, N) if rng.random() < 0.7 else np.full(N, 100.0)
    elapsed = rng.uniform(0, 1e4, N) * (rng.random() < 0.7)
    objectives = {
        "max_min": MaxMin(weights * yardstick / columns.scale_factors),
        "makespan": Makespan(steps),
        "finish_time": FinishTimeFairness(elapsed, steps, steps / yardstick + rng.uniform(0, 1e4, N)),
        "max_sum": MaxSum(rng.choice([0.5, 1.0, 2.0], N)),
    }
    return polytope, objectives


def explicit(polytope, served, weights=None, gains=None, floors=None):
    """Optimum of the program over all pairs of served jobs, by simplex: of the level, or of the sum with floors."""
    general = polytope.columns.general
    capacity = polytope.capacity
    kept = np.array([all(served[i] for i in members) for members in general.members])
    kept &= capacity[general.accelerator] > 0
    time, rate, usage = general.time[:, kept], general.rate[:, kept], general.usage[:, kept]
    N, C = rate.shape
    # rows in units of their limits, and time in units of what there is: tolerances of the solver are absolute
    unit = min(1.0, float(capacity.max()))
    usage = usage.multiply(unit / np.where(capacity > 0, capacity, 1.0)[:, None])
    rows, limits = [time, usage], [np.full(N, 1 / unit), np.ones(len(capacity))]
    cost = np.zeros(C) if gains is None else -(gains @ rate)
    jobs = np.flatnonzero(served)
    if floors is not None:
        rows.append(-rate[jobs])
        limits.append(-floors[jobs] / unit)
    matrix = vstack(rows)
    if weights is not None:
        fastest = rate.max(axis=1).toarray().ravel()[jobs]
        slopes = weights[jobs] / fastest
        top = slopes.max()
        demand = hstack([-rate[jobs].multiply(1 / fastest[:, None]), csr_array((slopes / top)[:, None])])
        matrix = vstack([hstack([matrix, csr_array((matrix.shape[0], 1))]), demand])
        limits.append(np.zeros(len(jobs)))
        cost = np.append(cost, -1.0)
        unit = unit / top
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = linprog(cost, A_ub=matrix, b_ub=np.concatenate(limits), bounds=(0, None), method="highs", options=options)
    assert result.status == 0, result.message
    return -unit * float(result.fun)


def check_feasible(polytope, solution):
    assert polytope.violation(solution.shares, solution.pairs) <= 1e-12
    pairs = solution.pairs
    assert (pairs.first < pairs.second).all()
    assert (pairs.share > 0).all()
    assert len(set(zip(pairs.first, pairs.second, pairs.accelerator, strict=True))) == len(pairs)


@pytest.mark.parametrize("solver", ["auto", "class_pairs", "partners"])
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


@pytest.mark.parametrize("solver", ["class_pairs", "partners"])
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


@pytest.mark.parametrize("solver", ["class_pairs", "partners"])
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
                assert engine in ("clarabel", "highs")  # may stop short, and says so
                continue
            accuracy = 2e-8 if engine in ("class_pairs", "partners") else max(1e-7, 3 * other.gap)
            assert other.objective == pytest.approx(reference.objective, rel=accuracy, nan_ok=True), f"seed {seed}"
            check_feasible(polytope, other)


@pytest.mark.parametrize("kind", KINDS)
def test_job_order_does_not_matter(kind):
    """The same jobs in another order get the same times alone and the same throughput."""
    rng = np.random.default_rng(5)
    for seed in range(4000, 4060):
        polytope, objectives = draw_packed(seed, largest=12)
        order = rng.permutation(polytope.n_jobs)
        columns = polytope.columns
        shuffled = PackedPolytope(
            PackedColumns(columns.group[order], columns.alone, columns.together, columns.group_scale_factors),
            polytope.capacity,
        )
        one = solve_packed(polytope, objectives[kind])
        other = solve_packed(shuffled, objectives[kind].take(order))
        np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")
        assert one.objective == pytest.approx(other.objective, rel=1e-12, nan_ok=True)
        np.testing.assert_allclose(
            polytope.throughput(one.shares, one.pairs)[order],
            shuffled.throughput(other.shares, other.pairs),
            rtol=1e-10,
            atol=1e-12,
        )


def test_distinct_jobs_in_another_order_get_the_same_pairs_to_the_last_bit():
    rng = np.random.default_rng(6)
    for seed in range(20):
        N, M = 9, 2
        alone = rng.uniform(1, 5, (N, M))
        together = alone[:, None, :] * rng.uniform(0.4, 0.9, (N, N, M))
        order = rng.permutation(N)
        position = np.argsort(order)
        weights = rng.choice([1.0, 2.0], N)
        one = solve_packed(PackedPolytope(PackedColumns(np.arange(N), alone, together), [2, 2]), MaxMin(weights))
        shuffled = PackedColumns(np.arange(N), alone[order], together[np.ix_(order, order)])
        other = solve_packed(PackedPolytope(shuffled, [2, 2]), MaxMin(weights[order]))
        found = {}
        for i, k, j, share in zip(
            one.pairs.first, one.pairs.second, one.pairs.accelerator, one.pairs.share, strict=True
        ):
            found[frozenset((int(position[i]), int(position[k]))), int(j)] = share
        expected = {
            (frozenset((int(i), int(k))), int(j)): share
            for i, k, j, share in zip(
                other.pairs.first, other.pairs.second, other.pairs.accelerator, other.pairs.share, strict=True
            )
        }
        assert found == expected, f"seed {seed}"
        np.testing.assert_array_equal(one.shares[order], other.shares)


@pytest.mark.parametrize("solver", ["class_pairs", "partners"])
def test_identical_jobs_get_identical_shares(solver):
    """Equal times alone, equal times beside each group of jobs, equal throughput."""
    for seed in range(5000, 5040):
        polytope, objectives = draw_packed(seed)
        columns = polytope.columns
        G = len(columns.alone)
        thrice = np.repeat(np.arange(polytope.n_jobs), 3)
        tripled = PackedPolytope(
            PackedColumns(columns.group[thrice], columns.alone, columns.together, columns.group_scale_factors),
            polytope.capacity,
        )
        solution = solve_packed(tripled, objectives["max_min"].take(thrice), solver=solver)
        assert (np.ptp(solution.shares.reshape(-1, 3, solution.shares.shape[1]), axis=1) == 0).all()
        beside = np.zeros((len(thrice), G))
        group = tripled.columns.group
        pairs = solution.pairs
        np.add.at(beside, (pairs.first, group[pairs.second]), pairs.share)
        np.add.at(beside, (pairs.second, group[pairs.first]), pairs.share)
        assert np.ptp(beside.reshape(-1, 3, G), axis=1).max(initial=0) <= 1e-10
        u = tripled.throughput(solution.shares, pairs).reshape(-1, 3)
        np.testing.assert_allclose(u, u[:, :1].repeat(3, axis=1), rtol=1e-9, atol=1e-12)


def test_expansion_has_few_pairs():
    """Two groups of n_a and n_b jobs need n_a + n_b - 1 pairs of jobs, one group of n jobs at most n."""
    for sizes in ((7, 5), (2, 2), (9, 1), (12, 8)):
        together = np.zeros((2, 2, 1))
        together[0, 1] = together[1, 0] = 0.9
        columns = PackedColumns(np.repeat([0, 1], sizes), np.ones((2, 1)), together)
        polytope = PackedPolytope(columns, [1.0])
        solution = solve_packed(polytope, MaxMin(np.repeat([1 / sizes[0], 1 / sizes[1]], sizes)))
        assert solution.objective == pytest.approx(0.9)
        assert len(solution.pairs) == sum(sizes) - np.gcd(*sizes)
        check_feasible(polytope, solution)
    for n in (2, 3, 6, 7):
        columns = PackedColumns(np.zeros(n, dtype=int), np.ones((1, 1)), np.full((1, 1, 1), 0.9))
        solution = solve_packed(PackedPolytope(columns, [1.0]), MaxMin(np.ones(n)))
        assert solution.objective == pytest.approx(1.8 / n)
        assert len(solution.pairs) == (n // 2 if n % 2 == 0 else n)


def test_pruning_never_changes_the_objective():
    """The explicit program has the same optimum with and without the pairs that are dropped."""
    dropped = 0
    for seed in range(6000, 6080):
        polytope, objectives = draw_packed(seed)
        columns = polytope.columns
        jobs = np.bincount(columns.group, minlength=len(columns.alone)).astype(float)
        useful = useful_pairs(columns.alone, columns.together, columns.group_scale_factors.astype(float), jobs)
        dropped += int(((columns.together > 0) & ~useful).sum())
        pruned = PackedColumns(
            columns.group, columns.alone, np.where(useful, columns.together, 0.0), columns.group_scale_factors
        )
        served = solve_packed(polytope, objectives["max_min"]).served
        if not served.any():
            continue
        weights = objectives["max_min"].weights
        full = explicit(polytope, served, weights=weights)
        few = explicit(PackedPolytope(pruned, polytope.capacity), served, weights=weights)
        assert few == pytest.approx(full, rel=1e-8), f"seed {seed}"
    assert dropped > 100


def test_a_pair_may_be_the_only_way_to_run_on_a_type():
    """A rate together where the rate alone is 0 is never pruned."""
    together = np.zeros((2, 2, 1))
    together[0, 1, 0], together[1, 0, 0] = 0.3, 0.1
    columns = PackedColumns([0, 1], [[0.0], [1.0]], together)
    solution = solve_packed(PackedPolytope(columns, [1.0]), MaxMin(np.ones(2)))
    assert solution.served.all()
    assert solution.objective == pytest.approx(0.25, rel=1e-9)


def test_any_multipliers_bound_the_optimum():
    """Weak duality: no prices and multipliers, however wrong, give a bound that is passed."""
    rng = np.random.default_rng(0)
    for seed in range(7000, 7060):
        polytope, objectives = draw_packed(seed)
        objective = objectives["max_min"]
        best = solve_packed(polytope, objective)
        if best.status == "empty":
            continue
        program = reduce(polytope, objective.key()).program
        few = objective.take(reduce(polytope, objective.key()).first)
        K, M = program.rates.shape
        for scale in (0.1, 1.0, 10.0):
            weights = rng.exponential(size=K) / program.fastest
            dual = dual_bound(program, weights, scale * rng.exponential(size=K), scale * rng.exponential(size=M))
            assert few.bound(program.counts * weights, dual.supply) >= best.objective * (1 - 1e-9), f"seed {seed}"


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
        other = solve_packed(polytope, objective, solver="partners")
        assert one.status == other.status == "optimal"
        assert one.objective == pytest.approx(other.objective, rel=1e-8)
        check_feasible(polytope, other)


def test_more_distinct_jobs_than_a_simplex_method_likes():
    """Above some hundreds of classes the prices of partners are tried first; the expansion stays of the size of N."""
    rng = np.random.default_rng(9)
    G, N = 3, 900
    alone = rng.uniform(1, 5, (G, 2))
    together = alone[:, None, :] * rng.uniform(0.55, 0.9, (G, G, 2))
    polytope = PackedPolytope(PackedColumns(rng.integers(0, G, N), alone, together), [200, 150])
    solution = solve_packed(polytope, Makespan(10 ** rng.uniform(3, 3.5, N)))
    assert solution.solver == "partners"
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


def test_a_job_is_not_its_own_partner():
    """One long job and two short ones of a group: the long one cannot fill more than half of the time in pairs."""
    columns = PackedColumns([0, 0, 0], [[1.0]], [[[0.9]]])
    steps = np.array([10.0, 1.0, 1.5])
    for solver in ("class_pairs", "partners", "highs"):
        polytope = PackedPolytope(columns, [1.0])
        solution = solve_packed(polytope, Makespan(steps), solver=solver)
        assert 1 / solution.objective == pytest.approx(explicit(polytope, np.ones(3, bool), weights=steps), rel=1e-8)
        check_feasible(polytope, solution)


def test_nothing_to_serve():
    none = PackedColumns([], np.zeros((0, 1)), np.zeros((0, 0, 1)), accelerators=["v100"])
    assert solve_packed(PackedPolytope(none, [1]), MaxMin(np.zeros(0))).status == "empty"
    idle = PackedColumns([0, 0], [[0.0]], [[[0.0]]])
    solution = solve_packed(PackedPolytope(idle, [1]), MaxMin(np.ones(2)))
    assert solution.status == "empty"
    assert not solution.served.any()
    busy = PackedColumns([0, 0], [[1.0]], [[[0.6]]])
    assert solve_packed(PackedPolytope(busy, [0]), MaxMin(np.ones(2))).status == "empty"


def test_a_job_that_gains_nothing_is_set_aside():
    columns = PackedColumns([0, 1, 0], [[1.0], [0.0]], np.full((2, 2, 1), 0.6) * np.array([1, 0])[:, None, None])
    solution = solve_packed(PackedPolytope(columns, [1]), MaxMin(np.ones(3)))
    assert solution.served.tolist() == [True, False, True]
    assert solution.objective == pytest.approx(0.6)
    assert solution.shares[1].sum() == 0


def test_next_engine_is_tried_and_counted(monkeypatch):
    from formulations.packed import class_pairs

    def fail(_self, _goal, _precision):
        raise RuntimeError("out of order")

    monkeypatch.setattr(class_pairs.ColumnGeneration, "__call__", fail)
    polytope, objectives = draw_packed(3)
    solution = solve_packed(polytope, objectives["max_min"])
    assert [attempt.solver for attempt in solution.attempts] == ["class_pairs", "partners"]
    assert solution.attempts[0].note == "out of order"
    assert solution.status == "optimal"


def test_unknown_solver_names_the_nearest():
    polytope, objectives = draw_packed(1)
    with pytest.raises(InputError, match="did you mean 'partners'"):
        solve_packed(polytope, objectives["max_min"], solver="partner")


def test_polytope_says_what_is_wrong():
    columns = PackedColumns([0], [[1.0, 2.0]], np.zeros((1, 1, 2)))
    with pytest.raises(InputError, match=r"capacity.*shape \(2,\)"):
        PackedPolytope(columns, [1])
    with pytest.raises(InputError, match="finite, at least 0"):
        PackedPolytope(columns, [1, -1])


def test_violation_sees_every_row():
    columns = PackedColumns([0, 0, 1], [[1.0], [1.0]], np.full((2, 2, 1), 0.6) * np.eye(2)[:, :, None], [1, 2])
    polytope = PackedPolytope(columns, [1.0])

    def pairs(first, second, share):
        return Pairs(np.array([first]), np.array([second]), np.array([0]), np.array([share]))

    assert polytope.violation(np.array([[0.5], [0.0], [0.0]]), pairs(0, 1, 0.5)) == 0
    assert polytope.violation(np.array([[0.5], [0.0], [0.0]]), pairs(0, 1, 0.6)) == pytest.approx(0.1)
    assert polytope.violation(np.array([[0.0], [0.0], [0.7]]), Pairs.none()) == pytest.approx(0.4)
    assert polytope.violation(np.zeros((3, 1)), pairs(0, 2, 0.1)) == pytest.approx(0.1)
    assert polytope.violation(np.array([[-0.2], [0.0], [0.0]]), Pairs.none()) == pytest.approx(0.2)


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
