"""Throughput, efficiency and the best batch size: the published figures, and what must hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import goodput_cases as cases
from throughputs import InputError
from throughputs.goodput import (
    BatchSizeLimits,
    GoodputModels,
    GradientStatistics,
    ThroughputModels,
    best_batch_sizes,
)


@pytest.mark.parametrize("case", cases.with_goodput(), ids=cases.name)
def test_published_goodput(case):
    """What the published code chose and what it was worth, for 1 to 64 GPUs."""
    jobs = cases.models([case])
    nodes, gpus = np.array(case["configs"]).T
    best = best_batch_sizes(jobs, nodes, gpus)
    assert best.atomic_batch_size[0].tolist() == case["atomic_bsz"]
    assert best.accumulation_steps[0].tolist() == case["accum_steps"]
    for name in ("goodput", "throughput", "efficiency"):
        np.testing.assert_allclose(getattr(best, name)[0], case[name], rtol=1e-9, atol=0)


seconds = st.floats(1e-3, 2.0)


@st.composite
def jobs_and_gpus(draw):
    times = [draw(seconds) for _ in range(6)]
    model = ThroughputModels([*times, draw(st.floats(1.0, 10.0))])
    # subnormal numbers have fewer digits, and others in other units
    norm, variance = (draw(st.floats(0.0, most).filter(lambda x: x == 0.0 or x > 1e-300)) for most in (10.0, 1000.0))
    statistics = GradientStatistics(norm, variance)
    initial = draw(st.integers(1, 300))
    largest = initial * draw(st.integers(1, 40))
    least_local = draw(st.integers(1, max(initial // 4, 1)))
    largest_local = least_local + draw(st.integers(0, 300))
    limits = BatchSizeLimits(initial, largest, least_local, largest_local, draw(st.booleans()))
    nodes = draw(st.integers(1, 8))
    return GoodputModels(model, statistics, limits), nodes, nodes * draw(st.integers(1, 8))


@settings(max_examples=30)
@given(jobs_and_gpus())
def test_goodput_of_any_job(drawn):
    jobs, nodes, gpus = drawn
    best = best_batch_sizes(jobs, [nodes], [gpus])
    size, steps = best.atomic_batch_size[0, 0], best.accumulation_steps[0, 0]
    if best.goodput[0, 0] == 0:
        assert best.batch_size[0, 0] == size == steps == best.throughput[0, 0] == best.efficiency[0, 0] == 0
        return
    assert 0 < best.efficiency[0, 0] <= 1 + 1e-12
    assert best.batch_size[0, 0] == gpus * size * (steps + 1) >= jobs.limits.initial[0]
    assert jobs.limits.least_local[0] <= size <= jobs.limits.largest_local[0]
    assert best.batch_size[0, 0] < jobs.limits.largest[0] + gpus * (steps + 1)
    assert jobs.limits.accumulation[0] or steps == 0
    if gpus == 1 and jobs.limits.accumulation[0] and size > jobs.limits.initial[0]:
        assert steps >= 1


def test_jobs_that_are_alike_are_computed_once_and_answered_each():
    jobs = cases.models([case for case in cases.with_goodput()[:3] for _ in range(2)])
    several = best_batch_sizes(jobs.take(np.array([4, 0, 2, 1, 5, 0])), [1, 2], [1, 8])
    for row, case in enumerate([2, 0, 1, 0, 2, 0]):
        alone = best_batch_sizes(jobs.take(np.array([2 * case])), [1, 2], [1, 8])
        assert (several.goodput[row] == alone.goodput[0]).all()
    own = best_batch_sizes(jobs.take(np.array([0, 2])), [[1, 2], [1, 1]], [[4, 8], [1, 2]])
    assert (own.goodput[0, 1], own.goodput[1, 0]) == (several.goodput[1, 1], several.goodput[2, 0])


def test_a_batch_size_that_users_fix_is_kept():
    case = next(case for case in cases.with_goodput() if case["app"] == "imagenet")
    jobs = cases.models([case])
    limits = BatchSizeLimits(jobs.limits.initial, 800, jobs.limits.least_local, jobs.limits.largest_local, True)
    fixed = best_batch_sizes(GoodputModels(jobs.throughput, jobs.statistics, limits), [1, 1, 1], [1, 4, 41], tune=False)
    assert fixed.batch_size[0].tolist() == [800, 800, 0]
    assert fixed.accumulation_steps[0].tolist() == [3, 0, 0]


def test_too_many_gpus_for_the_largest_batch():
    jobs = GoodputModels(ThroughputModels([1.0] * 7), GradientStatistics(1.0, 1.0), BatchSizeLimits(8, 64, 4))
    assert best_batch_sizes(jobs, [1, 1], [16, 17]).batch_size.tolist() == [[64, 0]]


def test_gradients_of_which_nothing_is_known():
    """As many samples make as much progress as one: an initial step a step, whatever the batch."""
    statistics = GradientStatistics(0.0, 0.0)
    assert statistics.efficiency([1.0, 4.0]).tolist() == [1.0, 0.25]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ThroughputModels([[1.0] * 7, [1, 1, -1, 1, 1, 1, 1]]), "throughput model:2: field 'alpha_node'"),
        (lambda: ThroughputModels([1.0] * 6 + [0.5]), "field 'gamma': found 0.5"),
        (lambda: ThroughputModels([0.0] * 6 + [1.0]), "field 'alpha_grad, beta_grad': found 0.0"),
        (lambda: GradientStatistics([1.0], [-1.0]), "field 'variance': found -1.0"),
        (lambda: BatchSizeLimits([8, 8], [8, 4]), "batch sizes:2: field 'largest': found 4.0"),
        (lambda: best_batch_sizes(cases.models(cases.with_goodput()[:1]), [2], [1]), "found (2, 1)"),
    ],
)
def test_what_is_said_of_bad_input(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)
