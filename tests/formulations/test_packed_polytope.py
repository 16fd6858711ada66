"""The polytope with pairs: its rows, what is left out of it exactly, bounds, and the way back to pairs of jobs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import Makespan, MaxMin
from formulations.packed import PackedPolytope, Pairs, solve_packed
from formulations.packed.certificate import dual_bound
from formulations.packed.program import useful_pairs
from formulations.packed.reduction import reduce
from tests.formulations.packed_reference import check_feasible, draw_packed, explicit
from throughputs import InputError
from throughputs.packed import PackedColumns


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


def test_a_job_is_not_its_own_partner():
    """One long job and two short ones of a group: the long one cannot fill more than half of the time in pairs."""
    columns = PackedColumns([0, 0, 0], [[1.0]], [[[0.9]]])
    steps = np.array([10.0, 1.0, 1.5])
    for solver in ("class_pairs", "highs"):
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


def test_polytope_says_what_is_wrong():
    columns = PackedColumns([0], [[1.0, 2.0]], np.zeros((1, 1, 2)))
    with pytest.raises(InputError, match=r"capacity.*shape \(2,\)"):
        PackedPolytope(columns, [1])
    with pytest.raises(InputError, match=r"capacity.*-1"):
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
