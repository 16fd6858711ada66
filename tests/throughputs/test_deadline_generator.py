"""Jobs with deadlines, drawn by the rules of ElasticFlow's generator."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import InputError, ThroughputTable, Trace, deadline_trace, default_table, with_deadlines


def draw(n=2000, seed=0, **settings):
    return deadline_trace(n, 900.0, rng=np.random.default_rng(seed), **settings)


def test_the_published_distributions():
    trace = draw(20_000)
    sizes, counts = np.unique(trace.scale_factor, return_counts=True)
    # the embedded table ends at 8 GPUs, which then stand for 16 as well
    assert dict(zip(sizes.tolist(), (counts / 20_000).round(2).tolist(), strict=True)) == {
        1: 0.83,
        2: 0.03,
        4: 0.03,
        8: 0.11,
    }
    minutes = trace.duration / 60
    assert minutes.min() >= 10
    assert minutes.max() <= 10_000
    assert (minutes > 10**2.5).mean() == pytest.approx(0.2, abs=0.01)
    assert np.diff(trace.arrival_time).mean() == pytest.approx(900, rel=0.03)
    factor = (trace.deadline - trace.arrival_time) / trace.duration
    assert factor.min() >= 0.49
    assert factor.max() <= 1.5
    assert factor.mean() == pytest.approx(1.0, abs=0.01)
    rates = default_table().rates(trace.job_type, trace.scale_factor, ["v100"])[:, 0]
    np.testing.assert_allclose(trace.total_steps, trace.duration * rates, atol=1)


def test_a_longer_trace_begins_with_the_shorter():
    short, longer = draw(50, best_effort=0.3), draw(80, best_effort=0.3)
    for name in Trace.column_names():
        np.testing.assert_array_equal(getattr(longer, name)[:50], getattr(short, name))


def test_deadlines_drawn_anew():
    trace = draw(400)
    twice = with_deadlines(trace, np.random.default_rng(1), (2.0, 2.0), 0.25)
    some = ~np.isnan(twice.deadline)
    assert some.mean() == pytest.approx(0.75, abs=0.06)
    np.testing.assert_array_equal(twice.deadline[some], (trace.arrival_time + np.floor(2 * trace.duration))[some])
    kept = with_deadlines(trace, np.random.default_rng(1), None, 0.25)
    np.testing.assert_array_equal(kept.deadline, np.where(some, trace.deadline, np.nan))
    np.testing.assert_array_equal(with_deadlines(trace, np.random.default_rng(1), None).deadline, trace.deadline)


def test_soft_deadlines_leave_with_the_others():
    options = [((100.0, 2.0), (200.0, 1.0))] * 40
    trace = Trace(["a"] * 40, [1] * 40, [1.0] * 40, [0.0] * 40, deadline_options=options)
    none = with_deadlines(trace, np.random.default_rng(0), None, 0.5)
    assert {len(row) for row in none.deadline_options} == {0, 2}
    np.testing.assert_array_equal(np.isnan(none.deadline), [not row for row in none.deadline_options])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"factors": (1.0, 0.5)}, "factors"),
        ({"best_effort": 1.5}, "best_effort"),
        ({"scale_factors": {1: 0.5}}, "scale_factors"),
        ({"reference_accelerator": "a100"}, "accelerator"),
    ],
)
def test_what_cannot_be_drawn(settings, field):
    with pytest.raises(InputError) as error:
        draw(3, **settings)
    assert error.value.field == field


def test_a_deadline_needs_a_duration():
    trace = Trace(["a"], [1], [1.0], [0.0])
    with pytest.raises(InputError, match="duration"):
        with_deadlines(trace, np.random.default_rng(0))


def test_new_deadlines_take_the_place_of_slos_and_soft_ones():
    """Twice the 100 s that each job lasts after its arrival."""
    columns = {"slo": [3.0, np.nan], "deadline_options": [(), ((900.0, 5.0),)], "duration": [100.0, 100.0]}
    trace = Trace(["a", "b"], [1, 1], [1.0, 1.0], [0.0, 50.0], **columns)
    drawn = with_deadlines(trace, np.random.default_rng(0), (2.0, 2.0))
    assert drawn.deadline.tolist() == [200.0, 250.0]
    assert np.isnan(drawn.slo).all()
    assert drawn.deadline_options.tolist() == [(), ()]


def test_a_job_has_a_step_to_do_however_slow_it_is():
    table = ThroughputTable([("crawling", 1)], ["v100"], [[1e-6]])
    assert draw(20, table=table).total_steps.tolist() == [1.0] * 20


def test_who_asks_for_fewer_gpus_than_any_figures_are_of_has_the_fewest():
    table = ThroughputTable([("wide", 2), ("wide", 8)], ["v100"], [[1.0], [3.0]])
    assert set(draw(20, table=table, scale_factors={1: 1.0}).scale_factor.tolist()) == {2}
    assert set(draw(20, table=table, scale_factors={4: 0.5, 16: 0.5}).scale_factor.tolist()) == {2, 8}
