"""The throughput estimator: completion, matching, measured figures, sweeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import JOB_TYPES, InputError, PackedColumns, ThroughputTable, default_colocation
from throughputs.estimator import ThroughputEstimator, low_rank_completion, sample_profile
from throughputs.estimator.believed import BelievedColocation, Estimation

NAMES = [job.name for job in JOB_TYPES]
TYPES = ["v100", "p100", "k80"]


@pytest.fixture(scope="module")
def truth():
    """(26, 26, 3), all different."""
    return default_colocation().retained(NAMES, TYPES)


def random_truth(rng, G, M=2):
    return rng.uniform(0.05, 1.0, (G, G, M))


def test_completion_of_a_full_matrix_is_soft_thresholding():
    """With everything known the optimum is in closed form: singular values less mu, the first k of them."""
    X = np.random.default_rng(1).normal(size=(9, 7))
    completed = low_rank_completion(X, rank=4, ridge=0.3, iterations=5000, tolerance=1e-12)
    means = X.mean(axis=0)
    left, sizes, right = np.linalg.svd(X - means, full_matrices=False)
    sizes = np.maximum(sizes - 0.3, 0) * (np.arange(7) < 4)
    np.testing.assert_allclose(completed, means + (left * sizes) @ right, atol=1e-6)


def test_rows_and_columns_nobody_knows():
    X = np.random.default_rng(2).random((5, 4))
    X[3] = np.nan
    X[:, 1] = np.nan
    completed = low_rank_completion(X, rank=2)
    np.testing.assert_allclose(np.delete(completed[3], 1), np.nanmean(np.delete(X, 1, 1), axis=0), atol=1e-9)
    np.testing.assert_allclose(completed[:, 1], 0, atol=1e-9)
    assert low_rank_completion(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("estimate", ["match", "fingerprint"])
def test_reference_models_profiled_in_full_are_themselves(truth, estimate):
    truth = truth[:8, :8]
    estimator = ThroughputEstimator(truth, estimate=estimate)
    for row in truth:
        estimator.add(row)
    assert estimator.matches.tolist() == list(range(8))
    np.testing.assert_array_equal(estimator.retained(), truth)


def test_pairs_follow_their_definition(truth):
    rng = np.random.default_rng(4)
    references = np.sort(rng.permutation(26)[:9])
    Q = truth[np.ix_(references, references)]
    for estimate in ("match", "fingerprint"):
        estimator = ThroughputEstimator(Q, estimate=estimate)
        for row in truth[:, references]:
            estimator.add(sample_profile(row, 0.4, rng))
        match, prints, retained = estimator.matches, estimator.fingerprints, estimator.retained()
        for a, b, j in zip(*(rng.integers(0, n, 200) for n in (26, 26, 3)), strict=True):
            one = Q[match[a], match[b], j] if estimate == "match" else prints[a, match[b], j]
            other = Q[match[b], match[a], j] if estimate == "match" else prints[b, match[a], j]
            assert retained[a, b, j] == (one if other > 0 else 0.0)


def test_jobs_without_any_profile_or_that_share_with_nobody():
    Q = random_truth(np.random.default_rng(8), 5)
    Q[2] = Q[:, 2] = 0.0
    estimator = ThroughputEstimator(Q)
    estimator.add(np.full((5, 2), np.nan))
    np.testing.assert_allclose(estimator.fingerprints[0], Q.mean(axis=0), atol=1e-9)
    estimator.add(np.zeros((5, 2)))
    assert estimator.matches[1] == 2
    assert (estimator.retained()[1] == 0).all()


@pytest.mark.exhaustive
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_jobs_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, 6)
    profiles = [sample_profile(row[:4], 0.5, rng) for row in truth]
    order = rng.permutation(6)
    answers = []
    for jobs in (np.arange(6), order):
        estimator = ThroughputEstimator(truth[:4, :4])
        for job in jobs:
            estimator.add(profiles[job])
        answers.append(estimator.retained())
    np.testing.assert_array_equal(answers[0][np.ix_(order, order)], answers[1])


def test_what_has_run_together_is_known():
    truth = PackedColumns([0, 1], [[4.0], [2.0]], [[[2.0], [3.0]], [[1.0], [1.2]]])
    believed, again = (BelievedColocation(truth, Estimation(reference_models=1), seed=0) for _ in range(2))
    one, other, v100 = np.array([[0], [1], [0]])
    assert believed.together[0, 1, 0] != 3.0
    assert believed.measure(one, other, v100)
    assert believed.together[[0, 1], [1, 0], 0].tolist() == [3.0, 1.0]
    again.restore(believed.state())
    assert not again.measure(other, one, v100)
    assert again.measured_pairs == 1


def test_bad_calls_are_refused(truth):
    estimator = ThroughputEstimator(truth[:3, :3])
    estimator.add(truth[4, :3])
    for call, field in (
        (lambda: estimator.add(truth[4, :4]), "profile"),
        (lambda: estimator.add(truth[4, :3] + 1), "profile[0, 0]"),
        (lambda: ThroughputEstimator(truth * 2), "references[0, 0, 0]"),
        (lambda: ThroughputEstimator(truth, estimate="mean"), "estimate"),
        (lambda: sample_profile(truth[0], 1.5, np.random.default_rng(0)), "percentage"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.field == field
    assert len(estimator.matches) == 1


def test_from_table():
    table = ThroughputTable(
        [("a", 2), ("b", 2)],
        ["v100", "k80"],
        [[10, 5], [4, 2]],
        pairs=[[0, 0], [0, 1], [1, 1]],
        colocated=[[[5, 5], [1, 1]], [[8, 5], [1, 1]], [[2, 2], [0, 0]]],
    )
    estimator = ThroughputEstimator.from_table(table, ["b", "a"], ["v100"], scale_factor=2)
    assert estimator.references[..., 0].tolist() == [[0.5, 1.0], [0.8, 0.5]], "above 1 counts as 1"
    bare = ThroughputTable([("a", 1), ("b", 1)], ["v100"], [[1], [1]], pairs=[[0, 0]], colocated=[[[1, 1]]])
    with pytest.raises(InputError, match=r"a beside b on 'v100'"):
        ThroughputEstimator.from_table(bare, ["a", "b"], ["v100"])


def test_profiles_grow_with_the_percentage():
    row = np.ones((100, 100))
    known = [~np.isnan(sample_profile(row, p, np.random.default_rng(5))) for p in (0.0, 0.3, 1.0)]
    assert [part.mean() for part in known] == pytest.approx([0.0, 0.3, 1.0], abs=0.02)
    assert (known[0].any(), known[2].all()) == (False, True)
