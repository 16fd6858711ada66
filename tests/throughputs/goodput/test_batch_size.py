"""Throughput, efficiency and the best batch size: the published figures, and what must hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
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

SAME = {"rtol": 1e-9, "atol": 0}


@pytest.mark.parametrize("case", cases.with_goodput(), ids=cases.name)
def test_published_goodput(case):
    """What the published code chose and what it was worth, for 1 to 64 GPUs."""
    jobs = cases.models([case])
    nodes, gpus = np.array(case["configs"]).T
    best = best_batch_sizes(jobs, nodes, gpus)
    assert best.atomic_batch_size[0].tolist() == case["atomic_bsz"]
    assert best.accumulation_steps[0].tolist() == case["accum_steps"]
    np.testing.assert_allclose(best.goodput[0], case["goodput"], **SAME)
    np.testing.assert_allclose(best.throughput[0], case["throughput"], **SAME)
    np.testing.assert_allclose(best.efficiency[0], case["efficiency"], **SAME)
    rate = jobs.throughput.throughput(nodes, gpus, case["atomic_bsz"], case["accum_steps"])
    np.testing.assert_allclose(rate[0], case["throughput"], **SAME)
    scale = best.batch_size / case["init_batch_size"]
    np.testing.assert_allclose(jobs.statistics.efficiency(scale)[0], case["efficiency"], **SAME)


@pytest.mark.parametrize("case", cases.with_goodput(), ids=cases.name)
def test_bisection_finds_the_best_of_all_whole_batch_sizes(case):
    jobs = cases.models([case])
    limits = jobs.limits
    for nodes, gpus in ((1, 1), (1, 2), (2, 8)):
        best = best_batch_sizes(jobs, [nodes], [gpus], grid="fine")
        least = max(limits.initial[0], limits.least_local[0] * gpus)
        top = 0.0
        fewest = int(np.ceil(limits.largest[0] / gpus / limits.largest_local[0])) - 1
        for steps in range(max(fewest, int(gpus == 1)) + 1):
            sizes = np.arange(limits.least_local[0], limits.largest_local[0] + 1)
            batch = sizes * gpus * (steps + 1)
            parts = gpus * (steps + 1)
            kept = (sizes >= np.ceil(least / parts)) & (sizes <= np.ceil(limits.largest[0] / parts))
            if gpus == 1 and steps == 0:
                kept &= batch <= limits.initial[0]
            if kept.any():
                rates = jobs.throughput.throughput(nodes, gpus, sizes[kept], steps)
                top = max(top, float((rates * jobs.statistics.efficiency((batch[kept] / limits.initial)[None])).max()))
        np.testing.assert_allclose(best.goodput[0, 0], top, rtol=1e-14)


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


@given(jobs_and_gpus())
def test_goodput_of_any_job(drawn):
    jobs, nodes, gpus = drawn
    published, fine = (best_batch_sizes(jobs, [nodes], [gpus], grid=grid) for grid in ("published", "fine"))
    assert fine.goodput[0, 0] >= published.goodput[0, 0] * (1 - 1e-12)
    for best in (published, fine):
        size, steps = best.atomic_batch_size[0, 0], best.accumulation_steps[0, 0]
        if best.goodput[0, 0] == 0:
            assert best.batch_size[0, 0] == size == steps == best.throughput[0, 0] == best.efficiency[0, 0] == 0
            continue
        assert 0 < best.efficiency[0, 0] <= 1 + 1e-12
        assert best.goodput[0, 0] <= best.throughput[0, 0] * (1 + 1e-15)
        assert best.batch_size[0, 0] == gpus * size * (steps + 1) >= jobs.limits.initial[0]
        assert jobs.limits.least_local[0] <= size <= jobs.limits.largest_local[0]
        assert best.batch_size[0, 0] < jobs.limits.largest[0] + gpus * (steps + 1)
        assert jobs.limits.accumulation[0] or steps == 0
        if gpus == 1 and jobs.limits.accumulation[0] and size > jobs.limits.initial[0]:
            assert steps >= 1


@given(jobs_and_gpus(), st.integers(1, 500))
def test_throughput_grows_with_the_batch_and_falls_with_synchronisation(drawn, size):
    jobs, nodes, gpus = drawn
    model = jobs.throughput
    rates = model.throughput(nodes, gpus, np.arange(size, size + 5))[0]
    assert (np.diff(rates) >= -1e-12 * rates[1:]).all()
    more = np.arange(max(gpus, 2), max(gpus, 2) + 5)
    times = model.step_time(nodes, more, size)[0]
    assert (np.diff(times) >= -1e-12 * times[1:]).all()
    slower = model.parameters.copy()
    slower[0, 6] = 1.0
    assert ThroughputModels(slower).step_time(nodes, gpus, size) >= model.step_time(nodes, gpus, size) * (1 - 1e-12)


@given(jobs_and_gpus(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_units_of_time_and_of_gradients_do_not_matter(drawn, unit):
    jobs, nodes, gpus = drawn
    scaled = GoodputModels(
        jobs.throughput,
        GradientStatistics(jobs.statistics.square_norm * unit, jobs.statistics.variance * unit),
        jobs.limits,
    )
    one, other = (best_batch_sizes(j, [nodes], [gpus]) for j in (jobs, scaled))
    assert (one.goodput == other.goodput).all()
    if gpus > 1:
        slower = jobs.throughput.parameters.copy()
        slower[:, :6] *= unit
        rates = [ThroughputModels(p).throughput(nodes, gpus, 10) for p in (jobs.throughput.parameters, slower)]
        np.testing.assert_allclose(rates[0], rates[1] * unit, rtol=1e-12)


def test_each_job_may_have_configurations_of_its_own():
    jobs = cases.models(cases.with_goodput()[:2])
    own = best_batch_sizes(jobs, [[1, 2], [1, 1]], [[4, 8], [1, 2]])
    assert own.goodput[0, 1] == best_batch_sizes(jobs.take(slice(1)), [2], [8]).goodput[0, 0]
    assert own.goodput[1, 0] == best_batch_sizes(jobs.take(slice(1, 2)), [1], [1]).goodput[0, 0]


def test_jobs_that_are_alike_are_computed_once_and_answered_each():
    jobs = cases.models([case for case in cases.with_goodput()[:3] for _ in range(2)])
    several = best_batch_sizes(jobs.take(np.array([4, 0, 2, 1, 5, 0])), [1, 2], [1, 8])
    for row, case in enumerate([2, 0, 1, 0, 2, 0]):
        alone = best_batch_sizes(jobs.take(np.array([2 * case])), [1, 2], [1, 8])
        assert (several.goodput[row] == alone.goodput[0]).all()
        assert (several.batch_size[row] == alone.batch_size[0]).all()


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
    assert best_batch_sizes(jobs, [1, 1], [16, 17], grid="fine").batch_size.tolist() == [[64, 0]]


def test_gradients_of_which_nothing_is_known():
    """As many samples make as much progress as one: an initial step a step, whatever the batch."""
    statistics = GradientStatistics(0.0, 0.0)
    assert statistics.efficiency([[1.0, 4.0]]).tolist() == [[1.0, 0.25]]
    assert GradientStatistics([1.0, 0.0], [2.0, 1.0]).noise_scale([10, 10]).tolist() == [20, np.inf]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ThroughputModels([1.0] * 6), "found (1, 6), expected 7 parameters a job"),
        (lambda: ThroughputModels([[1.0] * 7, [1, 1, -1, 1, 1, 1, 1]]), "throughput model:2: field 'alpha_node'"),
        (lambda: ThroughputModels([1.0] * 6 + [0.5]), "field 'gamma': found 0.5, expected a number of at least 1"),
        (lambda: ThroughputModels([0.0] * 6 + [1.0]), "field 'alpha_grad, beta_grad': found 0.0"),
        (lambda: ThroughputModels.of(alpha=1.0), "found 'alpha'"),
        (lambda: GradientStatistics([1.0], [-1.0]), "field 'variance': found -1.0"),
        (lambda: GradientStatistics([1.0], [1.0, 2.0]), "found 2, expected 1 variances"),
        (lambda: BatchSizeLimits([8, 8], [8, 4]), "batch sizes:2: field 'largest': found 4.0, expected at least 8"),
        (lambda: BatchSizeLimits(8, 64, 16, 8), "field 'largest_local': found 8.0, expected at least 16 samples"),
        (lambda: BatchSizeLimits([8, 8], [8, 8, 8]), "expected 2 of each"),
        (lambda: best_batch_sizes(cases.models(cases.with_goodput()[:1]), [2], [1]), "found (2, 1), expected 1 <="),
        (
            lambda: best_batch_sizes(cases.models(cases.with_goodput()[:1]), [1], [1], grid="find"),
            "found 'find', expected one of published, fine (did you mean 'fine'?)",
        ),
    ],
)
def test_what_is_said_of_bad_input(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)
