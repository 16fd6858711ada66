"""The jobs of a point: a longer trace begins with the shorter one, for every workload."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.sweep import Point, Workload
from allocator.sweep.jobs import BLOCK_JOBS, trace_of
from tests.sweep.sweep_definitions import TINY
from throughputs import Trace, TraceGenerator, default_table, gavel_trace


def make(kind="continuous", load=2.0, seed=0, **workload):
    return Point(kind, "fifo_perf", TINY, load, seed, workload=Workload(**workload), window=(0, 5))


@given(
    generator=st.sampled_from(["gavel", "shockwave", "default"]),
    seed=st.integers(0, 50),
    flags=st.fixed_dictionaries({name: st.booleans() for name in ("multi_gpu", "priorities", "slos", "preload")}),
    short=st.integers(40, 80),
    longer=st.sampled_from([1, 30, BLOCK_JOBS, 2 * BLOCK_JOBS]),
)
@settings(max_examples=25)
def test_a_longer_trace_begins_with_the_shorter(generator, seed, flags, short, longer):
    jobs = trace_of(make(seed=seed, generator=generator, **flags), default_table())
    first, second = jobs(short), jobs(short + longer)
    assert (len(first), len(second)) == (short, short + longer)
    for name in Trace.column_names():
        np.testing.assert_array_equal(getattr(second, name)[:short], getattr(first, name))
    assert (np.diff(second.arrival_time) >= 0).all()
    assert np.isnan(second.slo).all() != flags["slos"]
    assert (second.scale_factor > 1).any() == flags["multi_gpu"]


def test_the_published_generator_draw_for_draw():
    ours = trace_of(make(load=4.0, seed=3, multi_gpu=True, priorities=True), default_table())(60)
    theirs = gavel_trace(60, 900.0, multi_gpu=True, priorities=True, seed=3, whole_steps=False)
    for name in ("job_type", "scale_factor", "total_steps", "arrival_time", "priority_weight"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_static_jobs_of_the_own_generator_are_those_of_its_command():
    ours = trace_of(make("static", 30, seed=4, generator="default"), default_table())(30)
    theirs = TraceGenerator(n_jobs=30, arrivals="static", scale_factors={1: 1.0}, seed=4).generate()
    np.testing.assert_array_equal(ours.total_steps, theirs.total_steps)
    assert not ours.arrival_time.any()


@pytest.mark.parametrize("generator", ["gavel", "default"])
def test_the_rate_is_kept_over_blocks(generator):
    n = 4 * BLOCK_JOBS
    trace = trace_of(make(load=5.0, generator=generator), default_table())(n)
    mean = float(np.diff(trace.arrival_time).mean())
    assert abs(mean / 720.0 - 1) < 4 / np.sqrt(n)  # four standard errors of an exponential's mean


def test_blocks_and_seeds_differ():
    def first_steps(seed):
        return trace_of(make(seed=seed, generator="default"), default_table())(2 * BLOCK_JOBS).total_steps

    steps = first_steps(0)
    assert not np.array_equal(steps[:BLOCK_JOBS], steps[BLOCK_JOBS:])
    assert not np.array_equal(steps, first_steps(1))


def test_fixed_durations():
    trace = trace_of(make(fixed_duration_seconds=1800.0), default_table())(20)
    assert set(trace.duration) == {1800.0}
