"""What pairs of jobs do is estimated until they have run: in decisions, in rounds and without rounds."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import make_trace
from throughputs import (
    InputError,
    PackedColumns,
    default_colocation,
    default_table,
    gavel_trace,
)
from throughputs.estimator.believed import BelievedColocation, Estimation

TABLE = default_table().with_colocation(default_colocation(), default_table().scale_factors)
CLUSTER = Cluster({"v100": 2, "p100": 2, "k80": 2})
WORLDS = [("default", False), pytest.param("gavel", False, marks=pytest.mark.exhaustive), ("default", True)]


def columns(seed, groups=6, sizes=2):
    """Groups of one or two gang sizes with random rates, a fifth of the pairs of which do not fit."""
    rng = np.random.default_rng(seed)
    size = 1 + np.arange(groups) % sizes
    alone = rng.uniform(1, 9, (groups, 2))
    kept = rng.uniform(0.2, 1.0, (groups, groups, 2)) * (rng.random((groups, groups, 2)) > 0.2)
    fits = (kept > 0) & (kept.swapaxes(0, 1) > 0) & (size[:, None] == size[None, :])[..., None]
    return PackedColumns(np.arange(groups), alone, np.where(fits, kept, 0.0) * alone[:, None], size)


def run(estimation=None, name="default", ideal=False, seed=3, **options):
    trace = gavel_trace(12, 1200.0, seed=seed, multi_gpu=True)
    settings = preset(name).replace(ideal=ideal)
    policy = get_policy("max_min_fairness_packed")
    return simulate(trace, CLUSTER, policy, TABLE, preset=settings, seed=seed, estimation=estimation, **options)


@pytest.mark.parametrize(
    ("name", "ideal"), [("default", True), pytest.param("default", False, marks=pytest.mark.exhaustive)]
)
def test_estimates_from_everything_are_the_truth(name, ideal):
    known, estimated = run(None, name, ideal), run(Estimation(1.0), name, ideal)
    assert estimated.record.jobs.believed.error == 0.0
    np.testing.assert_array_equal(estimated.jobs["jct"], known.jobs["jct"])


@pytest.mark.parametrize(("name", "ideal"), WORLDS)
def test_what_has_run_is_known_and_the_rest_is_not(name, ideal):
    result = run(Estimation(0.1, 3), name, ideal)
    believed, truth = result.record.jobs.believed, result.record.jobs.colocation
    before = BelievedColocation(truth, Estimation(0.1, 3), 3)
    rounds = result.rounds[result.rounds["partner"].notna()]
    ran = np.zeros(truth.together.shape, dtype=bool)
    types = {accelerator: j for j, accelerator in enumerate(CLUSTER.accelerators)}
    for job, partner, accelerator in zip(rounds["job_id"], rounds["partner"], rounds["accelerator"], strict=True):
        ran[truth.group[int(job)], truth.group[int(partner)], types[accelerator]] = True
    assert ran.any()
    assert (believed.together[ran] == truth.together[ran]).all()
    # Pairs that have run and did not fit leave no row without rounds, so there may be more than those.
    new = (believed.together != before.together) & ~ran
    assert not new.any() if not ideal else (believed.together[new] == truth.together[new]).all()
    assert before.error > 0.01
    assert believed.measured_pairs >= len(np.unique(np.argwhere(ran | ran.swapaxes(0, 1)), axis=0)) / 2
    assert set(result.jobs["status"]) <= {"completed", "unserved"}


@pytest.mark.parametrize(("name", "ideal"), WORLDS)
def test_two_jobs_wrongly_believed_to_fit_lose_a_round_at_most(name, ideal):
    # Beside one of its own kind each keeps 0.9, beside the other nothing; from one reference model nobody knows.
    kept = np.array([[0.9, 0.0], [0.0, 0.9]])[..., None]
    pairs = PackedColumns([0, 1], [[1.0], [1.0]], kept, accelerators=["v100"])
    trace = make_trace([3600.0, 3600.0])
    policy, cluster = get_policy("max_min_fairness_packed"), Cluster({"v100": 1})
    settings = preset(name).replace(ideal=ideal)
    result = simulate(trace, cluster, policy, pairs, preset=settings, estimation=Estimation(1.0, 1))
    assert result.record.jobs.believed.measured_pairs == 1
    assert not result.record.jobs.believed.together[0, 1, 0]
    lost = 0.0 if ideal else 360.0
    assert 7200.0 - 1e-6 <= result.makespan <= 7200.0 + lost + 1e-6
    assert set(result.jobs["status"]) == {"completed"}


@pytest.mark.parametrize("seed", range(6))
def test_measuring_puts_the_truth_in_the_place_of_the_estimate(seed):
    truth = columns(seed)
    believed = BelievedColocation(truth, Estimation(0.3, 2), seed)
    first = believed.together.copy()
    assert (first == 0)[truth.group_scale_factors[:, None] != truth.group_scale_factors[None, :]].all()
    rng = np.random.default_rng(seed)
    seen = set()
    for _ in range(8):
        one, other = rng.choice([0, 2, 4], 3), rng.choice([0, 2, 4], 3)
        j = rng.integers(0, 2, 3)
        keys = {(min(a, b), max(a, b), c) for a, b, c in zip(one, other, j, strict=True)}
        wrong = [
            (first[a, b, c], first[b, a, c]) != (truth.together[a, b, c], truth.together[b, a, c])
            for a, b, c in keys - seen
        ]
        assert believed.measure(one, other, j) == any(wrong)
        seen |= keys
        assert believed.measured_pairs == len(seen)
    measured = np.zeros(first.shape, dtype=bool)
    for a, b, c in seen:
        measured[a, b, c] = measured[b, a, c] = True
    np.testing.assert_array_equal(believed.together, np.where(measured, truth.together, first))


def test_gang_sizes_do_not_disturb_each_other():
    truth = columns(1)
    single = np.flatnonzero(truth.group_scale_factors == 1)
    square = np.ix_(single, single)
    alone = PackedColumns([0], truth.alone[single], truth.together[square])
    both = BelievedColocation(truth, Estimation(0.4, 2), 7).together[square]
    np.testing.assert_array_equal(both, BelievedColocation(alone, Estimation(0.4, 2), 7).together)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"profiling_percentage": 1.1}, "profiling_percentage"),
        ({"profiling_percentage": float("nan")}, "profiling_percentage"),
        ({"reference_models": 0}, "reference_models"),
    ],
)
def test_bad_settings(changes, field):
    with pytest.raises(InputError) as caught:
        Estimation(**changes)
    assert caught.value.field == field
