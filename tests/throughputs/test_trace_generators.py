"""Generators of traces: published files byte for byte, their distributions, and what they refuse."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.published.shockwave.generator import shockwave_trace
from tests.simulator.goodput_worlds import profile, trainings
from throughputs import (
    FixedDuration,
    InputError,
    LogUniformDurations,
    ThroughputTable,
    Trace,
    TraceGenerator,
    deadline_trace,
    default_table,
    gavel_trace,
    read_table,
    read_trace,
    with_deadlines,
    write_trace,
)
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace, trainings_of
from throughputs.goodput.trainings.generator import SHARES_OF_MODELS
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

MODELS = trainings_of(default_profiles())
GAVEL = """\
100 0 1 0 e79b8c0cc9ea65ea
100 1200 1 0 775eba42f4cf1e07
100 1200 1 1 b85605a04417e6cd
120 600 0 0 096f53d252746310
120 600 0 1 03412657f3fe1074
150 600 1 0 41d00bd26a226ac9
200 300 0 0 9e11096765496d9e
40 1800 1 0 e61c490bd96df2a8
40 900 0 0 6a718d9ab604d4ff
"""
"""Jobs, mean gap, several GPUs, priorities, and the beginning of the SHA-256 of the published file."""
SHOCKWAVE = """\
120 100 40 25 tacc
220 100 25 4 wisr
"""
"""Jobs, durations, mean gap, seed, and the table that was measured."""


@pytest.mark.parametrize("line", GAVEL.splitlines())
def test_published_traces_byte_for_byte(line, tmp_path):
    *settings, digest = line.split()
    n, mean, multi, priorities = map(int, settings)
    trace = gavel_trace(n, mean, multi_gpu=bool(multi), priorities=bool(priorities), seed=0)
    write_trace(trace, tmp_path / "mine.trace")
    written = (tmp_path / "mine.trace").read_bytes()
    assert hashlib.sha256(written).hexdigest().startswith(digest)
    write_trace(read_trace(tmp_path / "mine.trace"), tmp_path / "again.trace")
    assert (tmp_path / "again.trace").read_bytes() == written


@pytest.mark.parametrize("line", SHOCKWAVE.splitlines())
def test_shipped_traces_byte_for_byte(line, public_data, tmp_path):
    *settings, measured = line.split()
    n, durations, mean, seed = map(int, settings)
    name = f"{n}_0.2_5_{durations}_{mean}_{seed}_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
    original = public_data(f"shockwave/traces/{name}")
    table = read_table(public_data(f"shockwave/{measured}_throughputs.json.gz"))
    write_trace(shockwave_trace(n, mean, seed=seed, n_durations=durations, table=table), tmp_path / "mine.trace")
    write_trace(read_trace(original), tmp_path / "read.trace")
    assert (tmp_path / "mine.trace").read_bytes() == original.read_bytes() == (tmp_path / "read.trace").read_bytes()


def deadlines(n, seed=0, **settings):
    return deadline_trace(n, 900.0, rng=np.random.default_rng(seed), **settings)


def of_trainings(n, **settings):
    return training_trace(
        n, **{"mean_interarrival": 60.0, "trainings": MODELS} | settings, rng=np.random.default_rng(3)
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: gavel_trace(n, 600.0, seed=3),
        lambda n: shockwave_trace(n, 30.0, seed=3),
        lambda n: deadlines(n, best_effort=0.3),
        pytest.param(of_trainings, marks=pytest.mark.exhaustive),
    ],
)
def test_a_longer_trace_begins_with_the_shorter(draw):
    assert draw(30).head(20).to_frame().equals(draw(20).to_frame())


def test_settings_have_streams_of_their_own():
    plain = gavel_trace(200, 600.0, seed=3)
    assert (np.floor(gavel_trace(200, 600.0, seed=3, whole_steps=False).total_steps) == plain.total_steps).all()
    with_slos = gavel_trace(200, 600.0, seed=3, slos=True)
    assert set(with_slos.slo) == {1.2, 2.0, 10.0}
    assert (with_slos.total_steps == plain.total_steps).all()
    assert (gavel_trace(10, 600.0, fixed_duration=3600.0).duration == 3600).all()
    plain = shockwave_trace(200, 30.0, seed=3)
    still = shockwave_trace(200, 30.0, seed=3, modes={"static": 1.0}, scale_factors={1: 1.0})
    assert (set(still.scale_factor), set(still.mode)) == ({1}, {"static"})
    for column in ("job_type", "duration", "arrival_time"):
        assert (getattr(still, column) == getattr(plain, column)).all()


@settings(max_examples=20)
@given(
    n_jobs=st.integers(0, 30),
    arrivals=st.sampled_from(["poisson", "static"]),
    scale_factors=st.sampled_from([PUBLISHED_SCALE_FACTORS, {1: 1.0}, {2: 0.5, 8: 0.5}]),
    priorities=st.sampled_from([None, PUBLISHED_PRIORITIES]),
    accelerator=st.sampled_from(["v100", "p100", "k80"]),
    seed=st.integers(0, 2**32),
)
def test_generated_traces_keep_their_settings(n_jobs, arrivals, scale_factors, priorities, accelerator, seed):
    given = {"n_jobs": n_jobs, "arrivals": arrivals, "scale_factors": scale_factors, "priorities": priorities}
    generator = TraceGenerator(**given, reference_accelerator=accelerator, seed=seed)
    trace = generator.generate()
    assert trace.to_frame().equals(generator.generate().to_frame())
    assert len(trace) == n_jobs
    assert set(trace.scale_factor) <= set(scale_factors)
    assert set(trace.priority_weight) <= set(priorities or {1.0: 1.0})
    rates = default_table().rates(trace.job_type, trace.scale_factor, [accelerator])[:, 0]
    np.testing.assert_array_equal(trace.total_steps, np.maximum(np.rint(trace.duration * rates), 1))
    assert (np.diff(trace.arrival_time) > 0).all() if arrivals == "poisson" else not trace.arrival_time.any()
    assert trace.arrival_time[:1].tolist() in ([], [0])


def near(values, share, within=0.012):
    assert np.mean(values) == pytest.approx(share, abs=within)


def test_generated_distributions():
    trace = TraceGenerator(n_jobs=20_000, mean_interarrival=50.0, priorities=PUBLISHED_PRIORITIES).generate()
    due = with_deadlines(trace, np.random.default_rng(0))
    factor = (due.deadline - trace.arrival_time) / trace.duration
    assert 0.49 <= factor.min() <= factor.max() <= 1.5
    near(factor, 1.0, 0.01)
    assert np.diff(trace.arrival_time).mean() == pytest.approx(50, rel=0.03)
    for size, share in PUBLISHED_SCALE_FACTORS.items():
        near(trace.scale_factor == size, share)
    near(trace.priority_weight == 5, 0.2)
    exponent = np.log10(trace.duration / 60)
    near(exponent > 3, 0.2)
    near(exponent[exponent <= 3], 2.25, 0.02)
    singles = trace.job_type[trace.scale_factor == 1]
    np.testing.assert_allclose(np.unique(singles, return_counts=True)[1] / len(singles), 1 / 26, atol=0.008)


def test_deadline_traces_keep_their_settings():
    trace = deadlines(400)
    # the embedded table ends at 8 GPUs, which then stand for 16 as well
    assert set(trace.scale_factor) == {1, 2, 4, 8}
    assert 600 <= trace.duration.min() <= trace.duration.max() <= 600_000
    near(trace.duration > 60 * 10**2.5, 0.2, 0.06)
    rates = default_table().rates(trace.job_type, trace.scale_factor, ["v100"])[:, 0]
    np.testing.assert_allclose(trace.total_steps, trace.duration * rates, atol=1)


def test_deadlines_drawn_anew():
    trace = deadlines(400)
    twice = with_deadlines(trace, np.random.default_rng(1), (2.0, 2.0), 0.25)
    some = ~np.isnan(twice.deadline)
    near(some, 0.75, 0.06)
    np.testing.assert_array_equal(twice.deadline[some], (trace.arrival_time + np.floor(2 * trace.duration))[some])
    kept = with_deadlines(trace, np.random.default_rng(1), None, 0.25)
    np.testing.assert_array_equal(kept.deadline, np.where(some, trace.deadline, np.nan))
    # they take the place of SLOs and of soft ones: twice the 100 s that each job lasts after its arrival
    columns = {"slo": [3.0, np.nan], "deadline_options": [(), ((900.0, 5.0),)], "duration": [100.0, 100.0]}
    drawn = with_deadlines(
        Trace(["a", "b"], [1, 1], [1.0, 1.0], [0.0, 50.0], **columns), np.random.default_rng(0), (2.0, 2.0)
    )
    assert drawn.deadline.tolist() == [200.0, 250.0]
    assert np.isnan(drawn.slo).all()
    assert drawn.deadline_options.tolist() == [(), ()]


@pytest.mark.exhaustive
def test_distributions_of_trainings():
    trace = of_trainings(500)
    models = np.array([name.partition(" (")[0] for name in trace.job_type.tolist()])
    near(models == "bert", SHARES_OF_MODELS["bert"], 0.06)
    assert np.diff(trace.arrival_time).mean() == pytest.approx(60.0, rel=0.1)
    assert of_trainings(100, most_gpus=4).scale_factor.max() <= 4
    assert set(of_trainings(50, shares={"bert": 1.0}).total_steps) == {MODELS.models["bert"].total_progress}
    # gangs are used to half and to four fifths: synchronisation as long as the gradients of 16 samples, and no noise
    net = trainings(net=profile(noise=(1e-9,), sync=0.04))
    trace = of_trainings(200, mean_interarrival=0.0, trainings=net, gpus_per_node=8)
    used = {k: 0.16 / (0.16 / k + (0.04 if k > 1 else 0.0)) / k for k in range(1, 65)}
    assert set(trace.scale_factor.tolist()) <= {k for k, share in used.items() if 0.49 < share < 0.8}
    assert set(trace.job_type) == {"net (batch size 16)"}


def test_own_tables_and_job_types():
    table = ThroughputTable([("mine", 1), ("slow", 1)], ["v100"], [[0.001], [0.0]])
    trace = TraceGenerator(n_jobs=4, durations=FixedDuration(10.0), scale_factors={1: 1.0}, table=table).generate()
    assert trace.job_type.tolist() == ["mine"] * 4  # "slow" cannot run
    assert (trace.total_steps.tolist(), trace.command.tolist()) == ([1.0] * 4, [""] * 4)
    wide = ThroughputTable([("wide", 2), ("wide", 8)], ["v100"], [[1.0], [3.0]])
    for sizes, drawn in (({1: 1.0}, {2}), ({4: 0.5, 16: 0.5}, {2, 8})):
        assert set(deadlines(20, table=wide, scale_factors=sizes).scale_factor.tolist()) == drawn
    some = TraceGenerator(n_jobs=50, job_types=("A3C", "LM (batch size 5)")).generate()
    assert set(some.job_type) == {"A3C", "LM (batch size 5)"} > set(some.job_type[some.scale_factor > 1])


def generated(**settings):
    return TraceGenerator(**{"n_jobs": 3} | settings).generate()


def shockwave(**settings):
    return shockwave_trace(**{"n_jobs": 3, "mean_interarrival": 10.0} | settings)


@pytest.mark.parametrize(
    ("draw", "name", "values", "field"),
    [
        (generated, "n_jobs", [-1], "n_jobs"),
        (LogUniformDurations, "parts", [((0.5, 1, 2),), ((1.0, 2, 1),), ()], None),
        (FixedDuration, "seconds", [0.0, -1.0, np.nan], None),
        (generated, "mean_interarrival", [-1.0, np.nan], "mean_interarrival"),
        (generated, "scale_factors", [{1: 0.5}, {}, {0: 1.0}, {16: 1.0}], "scale_factors"),
        (generated, "priorities", [{1.0: 1.5, 2.0: -0.5}], "priorities"),
        (generated, "job_types", [("A4C",)], "job type"),
        (shockwave, "hours", [(0.0, 1.0), (2.0, 1.0)], "hours"),
        (shockwave, "n_durations", [4], "n_durations"),
        (shockwave, "modes", [{"dynamic": 1.0}, {}], "modes"),
        (deadlines, "factors", [(1.0, 0.5)], "factors"),
        (deadlines, "best_effort", [1.5], "best_effort"),
        (of_trainings, "shares", [{"cat": 1.0}, {"bert": -1.0}], None),
    ],
)
def test_bad_settings_are_refused(draw, name, values, field):
    for value in values:
        with pytest.raises(InputError) as caught:
            draw(**{name: value} | ({"n": 3} if draw in (deadlines, of_trainings) else {}))
        assert field in (None, caught.value.field)
        assert name in str(caught.value) or field != name


def test_durations_are_meant_on_a_type_that_the_table_has():
    table = ThroughputTable([("LM", 1)], ["t4"], [[2.0]])
    made = TraceGenerator(3, scale_factors={1: 1.0}, table=table).generate()
    np.testing.assert_array_equal(made.total_steps, np.rint(2.0 * made.duration))
    made = deadline_trace(3, 60.0, rng=np.random.default_rng(0), table=table)
    np.testing.assert_array_equal(made.total_steps, np.floor(2.0 * made.duration))
