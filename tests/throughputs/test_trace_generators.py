"""Generators and the description of a trace, and what importing the room costs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs import (
    JOB_TYPES,
    FixedDuration,
    InputError,
    LogUniformDurations,
    ThroughputTable,
    Trace,
    TraceGenerator,
    default_table,
    describe_trace,
    gavel_trace,
    job_type,
    read_trace,
    write_trace,
)
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

GAVEL_SETTINGS = [
    (100, 0, True, False),
    (100, 1200, True, False),
    (100, 1200, True, True),
    (120, 600, False, False),
    (120, 600, False, True),
    (150, 600, True, False),
    (200, 300, False, False),
    (40, 1800, True, False),
    (40, 900, False, False),
]


GAVEL_DIGESTS = (
    "e79b8c0cc9ea65ea",
    "775eba42f4cf1e07",
    "b85605a04417e6cd",
    "096f53d252746310",
    "03412657f3fe1074",
    "41d00bd26a226ac9",
    "9e11096765496d9e",
    "e61c490bd96df2a8",
    "6a718d9ab604d4ff",
)
"""Beginnings of the SHA-256 of the published files."""


@pytest.mark.parametrize(("settings", "digest"), list(zip(GAVEL_SETTINGS, GAVEL_DIGESTS, strict=True)))
def test_published_traces_byte_for_byte(settings, digest, tmp_path):
    n, mean, multi, priorities = settings
    trace = gavel_trace(n, mean, multi_gpu=multi, priorities=priorities, seed=0)
    write_trace(trace, tmp_path / "mine.trace")
    assert read_trace(tmp_path / "mine.trace").scale_factor.tolist() == trace.scale_factor.tolist()
    assert hashlib.sha256((tmp_path / "mine.trace").read_bytes()).hexdigest().startswith(digest)


def test_gavel_trace_options():
    plain = gavel_trace(200, 600.0, seed=3)
    exact = gavel_trace(200, 600.0, seed=3, whole_steps=False)
    assert (np.floor(exact.total_steps) == plain.total_steps).all()
    assert (exact.total_steps != plain.total_steps).any()
    with_slos = gavel_trace(200, 600.0, seed=3, slos=True)
    assert set(with_slos.slo) == {1.2, 2.0, 10.0}
    assert (with_slos.total_steps == plain.total_steps).all()  # SLOs have a stream of their own
    fixed = gavel_trace(10, 600.0, fixed_duration=3600.0)
    assert (fixed.duration == 3600).all()
    longer = gavel_trace(300, 600.0, seed=3)
    assert longer.head(200).to_frame().equals(plain.to_frame())


@pytest.mark.parametrize(("n", "mean"), [(-1, 1.0), (1, -1.0), (1, float("nan"))])
def test_gavel_trace_refuses_nonsense(n, mean):
    with pytest.raises(InputError, match="gavel_trace"):
        gavel_trace(n, mean)


def test_job_types_fit_the_default_table():
    table = default_table()
    assert {job.name for job in JOB_TYPES} == set(table.job_types)
    for job in JOB_TYPES:
        assert job.distributed == (len(table.scale_factors_of(job.name)) == 4)
        assert job.needs_data_dir == ("%s" in job.command)
    assert job_type("A3C").num_steps_arg == "--max-steps"
    with pytest.raises(InputError, match="did you mean 'CycleGAN'"):
        job_type("CycleGan")


@given(
    n_jobs=st.integers(0, 30),
    arrivals=st.sampled_from(["poisson", "static"]),
    scale_factors=st.sampled_from([PUBLISHED_SCALE_FACTORS, {1: 1.0}, {2: 0.5, 8: 0.5}]),
    priorities=st.sampled_from([None, PUBLISHED_PRIORITIES]),
    accelerator=st.sampled_from(["v100", "p100", "k80"]),
    seed=st.integers(0, 2**32),
)
def test_generated_traces_keep_their_settings(n_jobs, arrivals, scale_factors, priorities, accelerator, seed):
    generator = TraceGenerator(
        n_jobs=n_jobs,
        arrivals=arrivals,
        scale_factors=scale_factors,
        priorities=priorities,
        reference_accelerator=accelerator,
        seed=seed,
    )
    trace = generator.generate()
    assert trace.to_frame().equals(generator.generate().to_frame())
    assert len(trace) == n_jobs
    assert set(trace.scale_factor) <= set(scale_factors)
    assert set(trace.priority_weight) <= set(priorities or {1.0: 1.0})
    assert (trace.total_steps == np.rint(trace.total_steps)).all()
    rates = default_table().rates(trace.job_type, trace.scale_factor, [accelerator])[:, 0]
    np.testing.assert_allclose(trace.total_steps, trace.duration * rates, atol=0.5)
    assert (np.diff(trace.arrival_time) > 0).all() if arrivals == "poisson" else not trace.arrival_time.any()
    if n_jobs:
        assert trace.arrival_time[0] == 0


def test_generated_distributions():
    trace = TraceGenerator(n_jobs=20000, mean_interarrival=50.0, priorities=PUBLISHED_PRIORITIES).generate()
    assert np.diff(trace.arrival_time).mean() == pytest.approx(50, rel=0.03)
    for size, share in PUBLISHED_SCALE_FACTORS.items():
        assert (trace.scale_factor == size).mean() == pytest.approx(share, abs=0.012)
    assert (trace.priority_weight == 5).mean() == pytest.approx(0.2, abs=0.012)
    exponent = np.log10(trace.duration / 60)
    assert exponent.min() >= 1.5
    assert exponent.max() <= 4
    assert (exponent > 3).mean() == pytest.approx(0.2, abs=0.012)
    assert exponent[exponent <= 3].mean() == pytest.approx(2.25, abs=0.02)
    singles = trace.job_type[trace.scale_factor == 1]
    shares = np.unique(singles, return_counts=True)[1] / len(singles)
    np.testing.assert_allclose(shares, 1 / 26, atol=0.008)


def test_own_table_and_tiny_durations():
    table = ThroughputTable([("mine", 1), ("slow", 1)], ["a100"], [[0.001], [0.0]])
    generator = TraceGenerator(
        n_jobs=4,
        durations=FixedDuration(10.0),
        scale_factors={1: 1.0},
        reference_accelerator="a100",
        table=table,
    )
    trace = generator.generate()
    assert trace.job_type.tolist() == ["mine"] * 4  # "slow" cannot run
    assert trace.total_steps.tolist() == [1.0] * 4
    assert trace.command.tolist() == [""] * 4


def test_only_the_wanted_job_types():
    trace = TraceGenerator(n_jobs=50, job_types=("A3C", "LM (batch size 5)")).generate()
    assert set(trace.job_type) == {"A3C", "LM (batch size 5)"}
    assert set(trace.job_type[trace.scale_factor > 1]) == {"LM (batch size 5)"}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"n_jobs": -1}, "n_jobs"),
        ({"arrivals": "bursty"}, "arrivals"),
        ({"mean_interarrival": -1.0}, "mean_interarrival"),
        ({"mean_interarrival": float("nan")}, "mean_interarrival"),
        ({"scale_factors": {1: 0.5}}, "scale_factors"),
        ({"scale_factors": {}}, "scale_factors"),
        ({"scale_factors": {0: 1.0}}, "scale_factors"),
        ({"priorities": {1.0: 1.5, 2.0: -0.5}}, "priorities"),
        ({"scale_factors": {16: 1.0}}, "scale_factors"),
        ({"job_types": ("A3C",), "scale_factors": {2: 1.0}}, "scale_factors"),
        ({"job_types": ("A4C",)}, "job type"),
        ({"reference_accelerator": "h100"}, "accelerator"),
    ],
)
def test_bad_settings_are_refused(settings, field):
    with pytest.raises(InputError) as caught:
        TraceGenerator(**{"n_jobs": 3, **settings}).generate()
    assert caught.value.field == field


@pytest.mark.parametrize("parts", [((0.5, 1, 2),), ((1.0, 2, 1),), ()])
def test_bad_duration_parts_are_refused(parts):
    with pytest.raises(InputError):
        LogUniformDurations(parts)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_bad_fixed_durations_are_refused(seconds):
    with pytest.raises(InputError):
        FixedDuration(seconds)


def test_description_in_figures():
    trace = Trace(
        ["ResNet-50 (batch size 128)", "A3C", "A3C"],
        [2, 1, 1],
        [100.0, 72.0, 144.0],
        [0.0, 1800.0, 7200.0],
        priority_weight=[5, 1, 1],
        slo=[2, np.nan, np.nan],
    )
    table = ThroughputTable(
        [("ResNet-50 (batch size 128)", 2), ("A3C", 1)], ["v100", "k80"], [[0.01, 0.0], [0.02, 0.01]]
    )
    on_v100 = describe_trace(trace, table)
    assert on_v100["n_jobs"] == 3
    assert on_v100["arrivals_per_hour"] == 1.0
    assert on_v100["job_types"] == {"A3C": 2, "ResNet-50 (batch size 128)": 1}
    assert on_v100["scale_factors"] == {1: 2, 2: 1}
    assert on_v100["priority_weights"] == {1.0: 2, 5.0: 1}
    assert on_v100["n_jobs_with_slo"] == 1
    assert on_v100["gpu_hours"] == pytest.approx((2 * 10000 + 3600 + 7200) / 3600)
    assert on_v100["duration_quantiles_s"][0.5] == 7200
    on_k80 = describe_trace(trace, table, "k80")
    assert on_k80["n_jobs_not_runnable"] == 1
    assert on_k80["gpu_hours"] == pytest.approx(6.0)
    bare = describe_trace(trace)
    assert (bare["gpu_hours"], bare["duration_quantiles_s"]) == (None, None)
    json.dumps(on_v100)


def test_description_of_nothing_and_of_all_at_once():
    empty = describe_trace(Trace([], [], [], []), default_table())
    assert (empty["n_jobs"], empty["first_arrival_s"], empty["gpu_hours"]) == (0, None, None)
    at_once = describe_trace(gavel_trace(5, 0.0))
    assert at_once["arrivals_per_hour"] is None
    assert at_once["gpu_hours"] == pytest.approx(gavel_trace(5, 0.0).duration.sum() / 3600)


def test_importing_needs_neither_pandas_nor_scipy():
    code = "import sys; from throughputs import gavel_trace; gavel_trace(3, 1.0); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"pandas", "scipy", "pyarrow"}.isdisjoint(loaded.split())
    assert {"formulations", "allocator"}.isdisjoint(loaded.split())
