"""Space sharing: pairs of jobs, what is left out exactly, floors, recorded optima and the published point."""

from __future__ import annotations

import gzip
import json
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    PackedPolytope,
    Pairs,
    Polytope,
    isolated_throughput,
    keep_most_floors,
    maximise_ratio,
    maximise_worth,
    proportional_throughput,
    solve,
)
from tests.formulations.programs import (
    draw_packed,
    given,
    most,
    polytope_of,
    verify,
    with_jobs,
    written_out,
)
from throughputs import PackedColumns


def test_a_pair_by_hand():
    """A rate together where that alone is 0; a job is not its own partner; one that gains nothing is set aside."""
    together = np.zeros((2, 2, 1))
    together[0, 1, 0], together[1, 0, 0] = 0.3, 0.1
    found = solve(PackedPolytope(PackedColumns([0, 1], [[0.0], [1.0]], together), [1.0]), MaxMin([1, 1]))
    assert (found.served.all(), found.objective) == (True, pytest.approx(0.25, rel=1e-9))
    # the long job cannot fill more than half of the time beside the short ones: 0.45 t + 0.45 t + t = 12.5 steps
    long = PackedPolytope(PackedColumns([0, 0, 0], [[1.0]], [[[0.9]]]), [1.0])
    found = solve(long, Makespan([10.0, 1.0, 1.5]))
    # 2.5 / 0.9 s beside both others, and the rest of the 10 steps alone
    assert found.objective == pytest.approx(2.5 / 0.9 + 7.5, rel=1e-8)
    aside = PackedColumns([0, 1, 0], [[1.0], [0.0]], np.full((2, 2, 1), 0.6) * np.array([1, 0])[:, None, None])
    found = solve(PackedPolytope(aside, [1]), MaxMin(np.ones(3)))
    assert (found.served.tolist(), found.objective) == ([True, False, True], pytest.approx(0.6))
    assert found.shares[1].sum() == 0


def test_expansion_has_few_pairs():
    """Two groups of n_a and n_b jobs need n_a + n_b - gcd pairs of jobs, one group of n jobs at most n."""
    for sizes in ((7, 5), (2, 2), (9, 1), (12, 8)):
        together = 0.9 * (1 - np.eye(2))[:, :, None]
        polytope = PackedPolytope(PackedColumns(np.repeat([0, 1], sizes), np.ones((2, 1)), together), [1.0])
        found = solve(polytope, MaxMin(np.repeat([1 / sizes[0], 1 / sizes[1]], sizes)))
        assert found.objective == pytest.approx(0.9)
        assert len(found.pairs) == sum(sizes) - np.gcd(*sizes)
    for n in (2, 3, 6, 7):
        found = solve(PackedPolytope(PackedColumns(np.zeros(n, int), [[1.0]], [[[0.9]]]), [1.0]), MaxMin(np.ones(n)))
        assert found.objective == pytest.approx(1.8 / n)
        assert len(found.pairs) == (n // 2 if n % 2 == 0 else n)


def test_violation_sees_every_row():
    columns = PackedColumns([0, 0, 1], [[1.0], [1.0]], np.full((2, 2, 1), 0.6) * np.eye(2)[:, :, None], [1, 2])
    polytope = PackedPolytope(columns, [1.0])
    for alone, pair, expected in (
        ([0.5, 0, 0], (0, 1, 0.5), 0.0),
        ([0.5, 0, 0], (0, 1, 0.6), 0.1),
        ([0, 0, 0.7], None, 0.4),
        ([0, 0, 0], (0, 2, 0.1), 0.1),  # gangs of different size
        ([-0.2, 0, 0], None, 0.2),
    ):
        pairs = Pairs.none() if pair is None else Pairs(*map(np.array, ([pair[0]], [pair[1]], [0], [pair[2]])))
        assert polytope.violation(np.array(alone)[:, None], pairs) == pytest.approx(expected, abs=1e-15)


def draw_floors(seed, largest=8, ambition=0.9):
    """Polytope, gains by type, cost of GPUs, floors of some jobs that cannot always be kept together."""
    polytope, _ = draw_packed(seed, largest)
    rng, (N, M) = np.random.default_rng([seed, 7]), polytope.columns.rates.shape
    fastest = written_out(polytope.columns).rate.max(axis=1).toarray().ravel()
    floors = fastest * np.where(rng.random(N) < 0.6, rng.uniform(0.05, ambition, N), 0.0)
    return polytope, rng.uniform(0.2, 2.0, (N, M)), rng.uniform(0.2, 2.0, M), floors


def test_fewest_floors_are_given_up():
    """Against every subset, with pairs and without; the same ones in any order of the jobs."""
    given_up = 0
    for seed in range(10):
        polytope, gains, cost, floors = draw_floors(seed, largest=7, ambition=1.2)
        plain, wanted = Polytope(polytope.columns.plain, polytope.capacity), np.flatnonzero(floors > 0)
        order = np.random.default_rng(seed).permutation(len(floors))
        for p in (polytope, plain):
            kept, C = keep_most_floors(p, floors), written_out(p.columns).rate.shape[1]

            def keepable(jobs, p=p, floors=floors, C=C):
                asked = np.where(np.isin(np.arange(len(floors)), jobs), floors, 0.0)
                return most(p, np.zeros(C), asked * (1 - 1e-6)) is not None

            largest = next(k for k in range(len(wanted), -1, -1) if any(map(keepable, combinations(wanted, k))))
            assert kept.kept.sum() == largest, f"seed {seed}"
            assert keepable(np.flatnonzero(kept.kept)), f"seed {seed}"
            np.testing.assert_array_equal(kept.kept | kept.dropped, floors > 0)
            np.testing.assert_allclose(kept.floors, np.where(kept.kept, floors, 0.0), rtol=2e-6)
            given_up += largest < len(wanted)
            shuffled = with_jobs(p, order)
            again = keep_most_floors(shuffled, floors[order], np.argsort(order))
            np.testing.assert_array_equal(kept.kept[order], again.kept, err_msg=f"seed {seed}")
        kept = keep_most_floors(polytope, floors).floors
        shuffled = with_jobs(polytope, order)
        for one, other in (
            (maximise_worth(polytope, gains, kept), maximise_worth(shuffled, gains[order], kept[order])),
            (maximise_ratio(polytope, cost, kept), maximise_ratio(shuffled, cost, kept[order])),
        ):
            np.testing.assert_array_equal(one.shares[order], other.shares, err_msg=f"seed {seed}")
    assert given_up > 5


def test_a_floor_that_no_gpus_could_keep_changes_nothing_for_others():
    for seed in (4, 23, 24, 25):
        rng = np.random.default_rng(seed)
        polytope = polytope_of(rng.uniform(1, 2, (10, 2)), rng.choice([1, 2], 10), [2.0, 2.0])
        floors, far = polytope.fastest * rng.uniform(0.5, 0.9, 10), rng.random(10) < 0.4
        one, other = (keep_most_floors(polytope, np.where(far, it, floors)) for it in (1.05 * polytope.fastest, 0.0))
        np.testing.assert_array_equal(one.kept, other.kept, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(one.floors, other.floors, err_msg=f"seed {seed}")


def test_sharing_keeps_floors_that_taking_turns_cannot_and_nobody_none():
    columns, floors = PackedColumns([0, 0], [[1.0]], [[[0.8]]]), np.array([0.7, 0.7])
    assert keep_most_floors(PackedPolytope(columns, [1.0]), floors).kept.all()
    assert keep_most_floors(Polytope(columns.plain, [1.0]), floors).kept.sum() == 1
    idle = PackedPolytope(PackedColumns([0, 0], [[0.0]], [[[0.0]]]), [1])
    for found in (
        maximise_worth(idle, np.ones(2)),
        maximise_ratio(idle, [1.0]),
        solve(idle, MaxMin([1, 1])),
    ):
        assert (found.status, found.served.any()) == ("empty", False)
    assert keep_most_floors(idle, np.array([1.0, 0.0])).dropped.tolist() == [True, False]
    for nowhere in (PackedPolytope(columns, [0.0]), Polytope(columns.plain, [0.0])):
        assert keep_most_floors(nowhere, floors).dropped.all()
    none = PackedColumns([], np.zeros((0, 1)), np.zeros((0, 0, 1)), accelerators=["v100"])
    assert solve(PackedPolytope(none, [1]), MaxMin(np.zeros(0))).status == "empty"


def test_recorded_optima(reference_data):
    """The optima that an independent formulation found for the published packed policies."""
    with gzip.open(reference_data("gavel/policy_reference.json.gz")) as file:
        records = {record["instance"]["name"]: record for record in json.load(file)}
    for name in ("i02_n4_multi_prio", "i05_n12_single", "i16_n10_single_gpu_same_sf_pairs"):
        instance, exact = records[name]["instance"], records[name]["exact_highs"]
        types, jobs = list(instance["cluster"]), instance["jobs"]
        position, N = {job["job_id"]: i for i, job in enumerate(jobs)}, len(jobs)
        alone, together = (
            np.array([[job["throughputs"][t] for t in types] for job in jobs]),
            np.zeros((N, N, len(types))),
        )
        sizes = np.array([job["scale_factor"] for job in jobs])
        for pair in instance["pairs"]:
            i, k = (position[job] for job in pair["pair"])
            if sizes[i] == sizes[k]:
                together[i, k], together[k, i] = np.array([pair["throughputs"][t] for t in types]).T
        polytope = PackedPolytope(
            PackedColumns(np.arange(N), alone, together, sizes), [instance["cluster"][t] for t in types]
        )
        priority, steps, elapsed = (
            np.array([job[key] for job in jobs], dtype=float)
            for key in ("priority_weight", "num_steps_remaining", "time_since_start")
        )
        yardstick = proportional_throughput(alone, polytope.capacity)
        isolated = steps / isolated_throughput(alone, sizes, polytope.capacity)
        # the published rho of packed jobs divides their throughput by the priority weight
        for goal, recorded in (
            (MaxMin(priority * yardstick / sizes), exact["max_min_fairness_packed"]),
            (Makespan(steps), exact["min_total_duration_packed"]["T_optimal_s"]),
            (FinishTimeFairness(elapsed, steps * priority, isolated), exact["finish_time_fairness_packed"]["max_rho"]),
        ):
            found = solve(polytope, goal)
            verify(polytope, goal, found, name)
            assert found.objective == pytest.approx(float(recorded), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_published_makespan_is_the_point_of_ecos(seed):
    """On the program as the paper writes it out: within 5 % of the optimum, at the last time of the bisection."""
    from allocator.published.gavel.packed import published_makespan
    from allocator.published.gavel.points import bisected_makespan

    ecos = pytest.importorskip("ecos")
    rng, n = np.random.default_rng(seed), 4 + 3 * seed
    size, alone = rng.choice((1, 2) if seed % 2 else (1,), 6), rng.uniform(1, 20, (6, 3))
    alone[:, 1:] *= rng.random((6, 2)) > 0.1
    kept = rng.uniform(0.3, 0.9, (6, 6, 3)) * (size[:, None] == size)[..., None]
    kept *= 1.0 - np.triu(rng.random((6, 6)) > 0.7, 1)[..., None]  # some gain nothing beside another
    together = kept * np.maximum(alone, 0.1)[:, None]
    polytope = PackedPolytope(PackedColumns(rng.integers(0, 6, n), alone, together, size), [3.0, 2.0, 2.0])
    goal, general = Makespan(rng.uniform(1e3, 1e5, n)), written_out(polytope.columns)
    best = solve(polytope, goal)
    ours, time = published_makespan(polytope, goal, best), bisected_makespan(best.objective)
    C = general.rate.shape[1]
    rows = scipy.sparse.vstack([-scipy.sparse.identity(C), general.usage, general.time, -general.rate])
    limits = np.concatenate([np.zeros(C), polytope.capacity, np.ones(n), -goal.demand(1 / time)])
    answer = ecos.solve(np.zeros(C), scipy.sparse.csc_matrix(rows), limits, {"l": len(limits), "q": []}, verbose=False)
    assert answer["info"]["exitFlag"] == 0
    p = ours.pairs
    shared = {(i, k, j): x for i, k, j, x in zip(p.first, p.second, p.accelerator, p.share, strict=True)}
    pairs = zip(general.members[3 * n :], general.accelerator[3 * n :], strict=True)
    found = [*ours.shares.ravel(), *(shared.pop((i, k, j), 0.0) for (i, k), j in pairs)]
    assert not shared
    np.testing.assert_allclose(found, np.clip(answer["x"], 0, 1), atol=2e-7)
    assert best.objective * (1 - 1e-7) <= ours.objective <= time * (1 + 1e-6)
    assert ours.bound == best.bound
    u, busy, used = given(polytope, ours)
    assert ours.objective == pytest.approx(goal.value(u))
    assert busy.max() <= 1 + 1e-12
    assert (used <= polytope.capacity * (1 + 1e-7)).all()
