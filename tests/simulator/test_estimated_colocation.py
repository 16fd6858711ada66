"""What pairs of jobs do is estimated until they have run: in decisions, in rounds and without rounds."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import make_trace
from throughputs import (
    PackedColumns,
)
from throughputs.estimator.believed import BelievedColocation, Estimation

WORLDS = [("default", False), pytest.param("gavel", False, marks=pytest.mark.exhaustive), ("default", True)]


def columns(seed, groups=6, sizes=2):
    """Groups of one or two gang sizes with random rates, a fifth of the pairs of which do not fit."""
    rng = np.random.default_rng(seed)
    size = 1 + np.arange(groups) % sizes
    alone = rng.uniform(1, 9, (groups, 2))
    kept = rng.uniform(0.2, 1.0, (groups, groups, 2)) * (rng.random((groups, groups, 2)) > 0.2)
    fits = (kept > 0) & (kept.swapaxes(0, 1) > 0) & (size[:, None] == size[None, :])[..., None]
    return PackedColumns(np.arange(groups), alone, np.where(fits, kept, 0.0) * alone[:, None], size)


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
