"""The jobs of a point: drawn, drawn further, and those of a trace at another load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.experiments.workloads import BLOCK_JOBS, workload
from allocator.published.shockwave.generator import shockwave_trace
from allocator.sweep import Point, Sweep
from tests.sweep.sweep_definitions import DYNAMIC, ENTITIES, TINY, static, trace_of
from throughputs import Trace, TraceGenerator, default_table, gavel_trace

OWNERS = Sweep.from_dict(static(workload={"entities": ENTITIES})).points()[0].workload.entities


def jobs_of(kind="continuous", load=2.0, seed=0, table=None, cluster=TINY, **settings):
    point = Point(kind, "fifo_perf", cluster, load, seed, workload=workload(settings), window=(0, 5))
    return trace_of(point, default_table() if table is None else table)


def assert_same(one: Trace, other: Trace, *names: str, jobs: slice = slice(None)) -> None:
    for name in names or Trace.column_names():
        np.testing.assert_array_equal(getattr(one, name)[jobs], getattr(other, name), err_msg=name)


@given(
    generator=st.sampled_from(["gavel", "shockwave", "default"]),
    seed=st.integers(0, 50),
    flags=st.fixed_dictionaries({name: st.booleans() for name in ("multi_gpu", "priorities", "slos", "preload")}),
    entities=st.booleans(),
    short=st.integers(40, 60),
    longer=st.sampled_from([1, 30, BLOCK_JOBS, 2 * BLOCK_JOBS]),
)
@settings(max_examples=12)
def test_a_longer_trace_begins_with_the_shorter(generator, seed, flags, entities, short, longer):
    owners = {"entities": OWNERS} if entities else {}
    jobs = jobs_of(seed=seed, generator=generator, **flags, **owners)
    first, second = jobs(short), jobs(short + longer)
    assert (len(first), len(second)) == (short, short + longer)
    assert_same(second, first, jobs=slice(short))
    assert (np.diff(second.arrival_time) >= 0).all()
    assert np.isnan(second.slo).all() != flags["slos"]
    assert (second.scale_factor > 1).any() == flags["multi_gpu"]
    if entities:
        assert second.entity.tolist()[:4] == ["first", "first", "second", "first"]
        assert "above" not in second.entity


def test_published_generators_draw_for_draw():
    ours = jobs_of(load=4.0, seed=3, multi_gpu=True, priorities=True)(60)
    theirs = gavel_trace(60, 900.0, multi_gpu=True, priorities=True, seed=3, whole_steps=False)
    assert_same(ours, theirs, "job_type", "scale_factor", "total_steps", "arrival_time", "priority_weight")
    own = jobs_of("static", 30, seed=4, generator="default")(30)
    generated = TraceGenerator(n_jobs=30, arrivals="static", scale_factors={1: 1.0}, seed=4).generate()
    assert_same(own, generated, "total_steps", "arrival_time")
    for more in ({}, {"n_durations": 1000}):
        dynamic = jobs_of("static", 30, seed=25, **DYNAMIC, **more)(30)
        assert_same(dynamic, shockwave_trace(30, 40.0, seed=25, **more))
    assert set(jobs_of("static", 30, **DYNAMIC | {"multi_gpu": False})(30).scale_factor) == {1}


@pytest.mark.parametrize("generator", ["gavel", "default", "shockwave"])
def test_gaps_are_exponential_with_the_mean_that_is_asked_for(generator):
    """Within four standard errors, over blocks as well; jobs of a static sweep come together unless asked."""
    n = 4 * BLOCK_JOBS
    steps = []
    for kind, load, mean, more in (
        ("continuous", 5.0, 720.0, {}), ("static", n, 50.0, {"mean_interarrival_seconds": 50})
    ):  # fmt: skip
        trace = jobs_of(kind, load, generator=generator, **more)(n)
        assert abs(np.diff(trace.arrival_time).mean() / mean - 1) < 4 / np.sqrt(n)
        steps.append(trace.total_steps)
    assert not jobs_of("static", n, generator=generator)(n).arrival_time.any()
    blocks = steps[0].reshape(4, -1)
    assert not (blocks[0] == blocks[1]).all()
    assert not (jobs_of(load=5.0, seed=1, generator=generator)(BLOCK_JOBS).total_steps == blocks[0]).all()


LOG = Trace(
    ["unet", "vit", "unet", "llama", "vit"],
    [1, 4, 2, 1, 4],
    [7200.0, 3600.0, 5400.0, 9000.0, 1800.0],
    [0.0, 600.0, 660.0, 4000.0, 4000.0],
    duration=[7200.0, 3600.0, 5400.0, 9000.0, 1800.0],
    deadline=[np.nan, 9000.0, 660.0, 30000.0, np.nan],
    deadline_options=[(), (), (), (), ((12000.0, 2.0), (15000.0, 1.0))],
)


@given(st.floats(0.01, 100.0))
def test_a_load_divides_times_of_submission_and_keeps_the_time_to_a_deadline(factor):
    moved = LOG.at_load(factor)
    np.testing.assert_array_equal(moved.arrival_time, LOG.arrival_time / factor)
    np.testing.assert_allclose(moved.deadline - moved.arrival_time, LOG.deadline - LOG.arrival_time, atol=1e-6)
    assert [value for _, value in moved.deadline_options[4]] == [2.0, 1.0]
    assert_same(moved, LOG, "job_type", "scale_factor", "total_steps", "duration", "slo")
