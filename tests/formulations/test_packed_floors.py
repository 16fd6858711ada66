"""Worth and worth per cost with space sharing while jobs keep a throughput, against linear programs over all pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from formulations import (
    PackedPolytope,
    Polytope,
    SolverError,
    keep_most_floors,
    keep_most_packed_floors,
    maximise_packed_ratio,
    maximise_packed_worth,
    maximise_ratio,
    maximise_worth,
)
from tests.formulations.packed_reference import check_feasible, draw_packed
from throughputs import InputError, PackedColumns

ENOUGH = 1 - 1e-6


def draw_floors(seed, largest=8, ambition=0.9):
    """Polytope, gains by type, cost of GPUs, floors of some jobs that cannot always be kept together."""
    polytope, _ = draw_packed(seed, largest)
    rng = np.random.default_rng([seed, 7])
    N, M = polytope.columns.rates.shape
    fastest = polytope.columns.general.rate.max(axis=1).toarray().ravel()
    floors = fastest * np.where(rng.random(N) < 0.6, rng.uniform(0.05, ambition, N), 0.0)
    return polytope, rng.uniform(0.2, 2.0, (N, M)), rng.uniform(0.2, 2.0, M), floors


def rows_of(polytope, floors):
    """``A x <= b`` over all pairs of jobs."""
    general = polytope.columns.general
    rows = vstack([general.time, general.usage, -general.rate])
    return rows, np.concatenate([np.ones(polytope.n_jobs), polytope.capacity, -floors])


def attainable(polytope, floors):
    rows, limits = rows_of(polytope, floors * ENOUGH)
    return linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=limits).status == 0


def keeps(polytope, solution, floors):
    return (polytope.throughput(solution.shares, solution.pairs) >= floors * (1 - 2e-7)).all()


@pytest.mark.parametrize("solver", ["auto", "class_pairs", "highs"])
def test_largest_worth_is_that_of_the_program_over_all_pairs(solver):
    for seed in range(60):
        polytope, gains, _, floors = draw_floors(seed)
        kept = keep_most_packed_floors(polytope, floors).floors * (1 - 1e-7)
        general = polytope.columns.general
        worth = general.rate.multiply(gains[:, general.accelerator]).sum(axis=0)
        rows, limits = rows_of(polytope, kept)
        best = -linprog(-np.asarray(worth).ravel(), A_ub=rows, b_ub=limits).fun
        solution = maximise_packed_worth(polytope, gains, kept, solver=solver)
        if solution.status == "empty":
            assert best == pytest.approx(0.0, abs=1e-9), f"seed {seed}"
            continue
        assert solution.status == "optimal", f"seed {seed}"
        assert solution.objective == pytest.approx(best, rel=1e-7), f"seed {seed}"
        assert solution.bound >= best * (1 - 1e-8), f"seed {seed}"
        assert keeps(polytope, solution, kept), f"seed {seed}"
        check_feasible(polytope, solution)


def test_most_per_cost_is_that_of_the_transformed_program_over_all_pairs():
    """Charnes and Cooper's linear program, written out."""
    bound_by_floors = 0
    for seed in range(60):
        polytope, _, cost, floors = draw_floors(seed)
        kept = keep_most_packed_floors(polytope, floors * (seed % 4 > 0)).floors * (1 - 1e-7)
        general = polytope.columns.general
        steps, paid = general.rate.sum(axis=0), cost @ general.usage
        rows, limits = rows_of(polytope, kept)
        best = linprog(
            -np.append(steps, 0.0),
            A_ub=hstack([rows, csr_array(-limits[:, None])]),
            b_ub=np.zeros(len(limits)),
            A_eq=np.append(paid, 0.0)[None],
            b_eq=[1.0],
        )
        solution = maximise_packed_ratio(polytope, cost, kept)
        if solution.status == "empty":
            continue
        assert solution.status == "optimal", f"seed {seed}"
        assert solution.objective == pytest.approx(-best.fun, rel=1e-7), f"seed {seed}"
        assert solution.bound >= -best.fun * (1 - 1e-8), f"seed {seed}"
        assert keeps(polytope, solution, kept), f"seed {seed}"
        check_feasible(polytope, solution)
        bound_by_floors += solution.objective < maximise_packed_ratio(polytope, cost).objective * (1 - 1e-6)
    assert bound_by_floors > 10


def test_fewest_floors_are_given_up():
    """Against every subset."""
    given_up = 0
    for seed in range(40):
        polytope, _, _, floors = draw_floors(seed, largest=7, ambition=1.2)
        kept = keep_most_packed_floors(polytope, floors)
        wanted = np.flatnonzero(floors > 0)

        def keepable(jobs, floors=floors, polytope=polytope):
            return attainable(polytope, np.where(np.isin(np.arange(len(floors)), jobs), floors, 0.0))

        largest = next(k for k in range(len(wanted), -1, -1) if any(map(keepable, combinations(wanted, k))))
        assert kept.kept.sum() == largest, f"seed {seed}"
        assert keepable(np.flatnonzero(kept.kept)), f"seed {seed}"
        np.testing.assert_array_equal(kept.kept | kept.dropped, floors > 0)
        np.testing.assert_allclose(kept.floors, np.where(kept.kept, floors, 0.0), rtol=2e-6)
        given_up += largest < len(wanted)
    assert given_up > 10


def test_sharing_keeps_floors_that_taking_turns_cannot():
    columns = PackedColumns([0, 0], [[1.0]], [[[0.8]]])
    floors = np.array([0.7, 0.7])
    assert keep_most_packed_floors(PackedPolytope(columns, [1.0]), floors).kept.all()
    assert keep_most_floors(Polytope(columns.plain, np.array([1.0])), floors).kept.sum() == 1


def test_without_pairs_it_is_the_plain_program():
    for seed in range(20):
        polytope, gains, cost, floors = draw_floors(seed)
        columns = polytope.columns
        lonely = PackedColumns(columns.group, columns.alone, 0 * columns.together, columns.group_scale_factors)
        packed, plain = PackedPolytope(lonely, polytope.capacity), Polytope(columns.plain, polytope.capacity)
        kept = keep_most_floors(plain, floors)
        assert keep_most_packed_floors(packed, floors).kept.sum() == kept.kept.sum(), f"seed {seed}"
        asked = kept.floors * (1 - 1e-7)
        one = maximise_packed_worth(packed, gains, asked)
        other = maximise_worth(plain, gains * plain.rates, asked)
        assert one.objective == pytest.approx(other.objective, rel=1e-7, nan_ok=True), f"seed {seed}"
        dollars = columns.scale_factors[:, None] * cost
        one, other = (
            maximise_packed_ratio(packed, cost, asked),
            maximise_ratio(plain, np.ones(len(asked)), dollars, asked),
        )
        assert one.objective == pytest.approx(other.objective, rel=1e-7, nan_ok=True), f"seed {seed}"


def test_order_of_jobs_does_not_matter():
    """The same floors are given up when their order is told, and the same worth is found."""
    rng = np.random.default_rng(3)
    for seed in range(30):
        polytope, gains, cost, floors = draw_floors(seed, largest=12, ambition=1.2)
        columns, order = polytope.columns, rng.permutation(polytope.n_jobs)
        shuffled = PackedPolytope(
            PackedColumns(columns.group[order], columns.alone, columns.together, columns.group_scale_factors),
            polytope.capacity,
        )
        kept = keep_most_packed_floors(polytope, floors)
        again = keep_most_packed_floors(shuffled, floors[order], np.argsort(order))
        np.testing.assert_array_equal(kept.kept[order], again.kept, err_msg=f"seed {seed}")
        for one, other in (
            (
                maximise_packed_worth(polytope, gains, kept.floors),
                maximise_packed_worth(shuffled, gains[order], again.floors),
            ),
            (maximise_packed_ratio(polytope, cost, kept.floors), maximise_packed_ratio(shuffled, cost, again.floors)),
        ):
            np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")
            assert one.objective == pytest.approx(other.objective, rel=1e-12, nan_ok=True)


def test_prices_are_what_one_more_gpu_improves():
    rng = np.random.default_rng(11)
    alone = rng.uniform(1, 5, (6, 2))
    together = alone[:, None, :] * rng.uniform(0.5, 0.8, (6, 6, 2))
    columns, capacity = PackedColumns(np.arange(6), alone, together), np.array([1.2, 0.9])
    floors, cost = 0.2 * alone.max(axis=1), np.array([0.7, 0.2])
    gains = np.repeat(1 / cost[None], 6, axis=0)
    for solve in (
        lambda capacity: maximise_packed_worth(PackedPolytope(columns, capacity), gains, floors),
        lambda capacity: maximise_packed_ratio(PackedPolytope(columns, capacity), cost, floors),
    ):
        at = solve(capacity)
        for j in range(2):
            more = solve(capacity + 1e-4 * (np.arange(2) == j))
            assert (more.objective - at.objective) / 1e-4 == pytest.approx(at.prices[j], rel=1e-2, abs=1e-3)


def test_many_jobs_with_floors_of_their_own():
    """Every job is a class of its own; the pairs that pay are found, and both forms of the program agree."""
    rng = np.random.default_rng(12)
    G, N = 4, 900
    alone = rng.uniform(1, 5, (G, 2))
    together = alone[:, None, :] * rng.uniform(0.55, 0.9, (G, G, 2))
    group = rng.integers(0, G, N)
    polytope = PackedPolytope(PackedColumns(group, alone, together), [200, 150])
    floors = alone[group].min(axis=1) * rng.uniform(0.05, 0.15, N)
    assert keep_most_packed_floors(polytope, floors).kept.all()
    cost = np.array([0.7, 0.2])
    solution = maximise_packed_worth(polytope, np.repeat(1 / cost[None], N, axis=0), floors)
    written_out = maximise_packed_worth(polytope, np.repeat(1 / cost[None], N, axis=0), floors, solver="highs")
    assert solution.solver == "class_pairs"
    assert solution.status == written_out.status == "optimal"
    assert solution.objective == pytest.approx(written_out.objective, rel=1e-8)
    assert keeps(polytope, solution, floors)
    check_feasible(polytope, solution)


def test_an_engine_that_fails_is_on_record(monkeypatch):
    from formulations.packed import class_pairs

    def fail(_self, _goal):
        raise RuntimeError("out of order")

    monkeypatch.setattr(class_pairs.ClassPairs, "__call__", fail)
    polytope, gains, _, _ = draw_floors(3)
    solution = maximise_packed_worth(polytope, gains)
    assert [attempt.solver for attempt in solution.attempts] == ["class_pairs", "highs"]
    assert solution.attempts[0].note == "out of order"
    assert solution.status == "optimal"
    with pytest.raises(SolverError, match="out of order"):
        maximise_packed_worth(polytope, gains, solver="class_pairs")


def test_nobody_to_serve():
    idle = PackedPolytope(PackedColumns([0, 0], [[0.0]], [[[0.0]]]), [1])
    for solution in (maximise_packed_worth(idle, np.ones(2)), maximise_packed_ratio(idle, [1.0])):
        assert solution.status == "empty"
        assert not solution.served.any()
    kept = keep_most_packed_floors(idle, np.array([1.0, 0.0]))
    assert kept.dropped.tolist() == [True, False]


def test_bad_input_says_so():
    polytope = PackedPolytope(PackedColumns([0, 1], [[1.0], [0.0]], np.zeros((2, 2, 1))), [1])
    with pytest.raises(InputError, match="'gains'"):
        maximise_packed_worth(polytope, [1.0])
    with pytest.raises(InputError, match="'gains'"):
        maximise_packed_worth(polytope, [1.0, -1.0])
    with pytest.raises(InputError, match="'floors'"):
        maximise_packed_worth(polytope, np.ones(2), [-1.0, 0.0])
    with pytest.raises(InputError, match="floor of job 1"):
        maximise_packed_worth(polytope, np.ones(2), [0.0, 0.1])
    with pytest.raises(InputError, match="'gpu_cost'"):
        maximise_packed_ratio(polytope, [0.0])
    with pytest.raises(InputError, match="did you mean 'highs'"):
        maximise_packed_worth(polytope, np.ones(2), solver="high")
