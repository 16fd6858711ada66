"""Profiles of traces: the published ones to the last bit, and every rule on jobs made by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.published.shockwave.generator import shockwave_trace
from throughputs import InputError, ThroughputTable, Trace, default_table, read_table, read_trace
from throughputs.training import MOST_STEADY_EPOCHS, STEADY_EPOCHS, Course, default_rules, profile_trace

PUBLISHED = [("120_0.2_5_100_40_25", "tacc")]
PUBLISHED += [pytest.param("900_0.2_5_1000_5_15", "wisr", marks=pytest.mark.exhaustive)]
MIX = "_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"


def unpacked(runs):
    values, lengths = np.array(runs).T
    return np.repeat(values, lengths.astype(int))


@pytest.mark.parametrize(("name", "measured"), PUBLISHED)
def test_published_profiles(name, measured, public_data):
    trace = read_trace(public_data(f"shockwave/traces/{name}{MIX}"))
    table = read_table(public_data(f"shockwave/{measured}_throughputs.json.gz"))
    jobs = json.loads(gzip.decompress(public_data(f"shockwave/profile_{name}_{measured}.json.gz").read_bytes()))
    profiles = profile_trace(trace, table, published=True)
    assert profiles.epochs.tolist() == [job["num_epochs"] for job in jobs]
    assert profiles.samples_per_epoch.tolist() == [job["samples_per_epoch"] for job in jobs]
    assert (profiles.batch_size == np.concatenate([unpacked(job["bs_rle"]) for job in jobs])).all()
    seconds = np.concatenate([unpacked(job["epoch_duration_rle"]) for job in jobs])
    np.testing.assert_array_equal(profiles.epoch_seconds, seconds)
    np.testing.assert_allclose(profiles.total_seconds, [job["duration_adapted"] for job in jobs], rtol=1e-12)
    # the oddity of the last epoch, and nothing else
    differs = profile_trace(trace, table).batch_size != profiles.batch_size
    assert set(np.flatnonzero(differs)) < set(profiles.offsets[1:] - 1)


def job(mode, model="ResNet-18", size=64, epochs=100, gpus=1):
    steps = epochs * -(-default_rules().models[model].samples_per_epoch // size)
    return Trace([f"{model} (batch size {size})"], [gpus], [steps], [0.0], mode=[mode])


def sizes(trace, **settings):
    """(first epoch, batch size) of each regime."""
    profile = profile_trace(trace, default_table(), **settings)
    starts = np.flatnonzero(np.diff(profile.batch_size, prepend=0))
    return [(int(start), int(profile.batch_size[start])) for start in starts]


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (job("gns"), [(0, 64), (11, 128), (31, 256)]),
        (job("gns", epochs=11), [(0, 64)]),
        (job("gns", epochs=12), [(0, 64), (11, 128)]),
        (job("gns", gpus=2), [(0, 64), (21, 128), (41, 256)]),
        (job("gns", gpus=8), [(0, 64)]),
        (job("gns", model="Transformer"), [(0, 64)]),
        (job("accordion"), [(0, 64), (31, 256)]),
        (job("accordion", epochs=20), [(0, 64), (10, 256)]),
        (job("accordion", epochs=300), [(0, 64), (91, 256), (150, 64), (160, 256), (250, 64), (260, 256)]),
        (job("accordion", model="ResNet-50", epochs=70), [(0, 64), (22, 128), (30, 64), (40, 128), (60, 64)]),
        (
            job("accordion", model="Recommendation", size=512, epochs=95),
            [(0, 512), (30, 8192), (60, 512), (70, 8192), (80, 512), (90, 8192)],
        ),
        (job("accordion", model="Transformer"), [(0, 64)]),
    ],
)
def test_regimes(trace, expected):
    assert sizes(trace) == expected


def test_the_course_has_other_windows():
    assert sizes(job("accordion"), view="course") == [(0, 64), (10, 256)]
    recommendation = job("accordion", model="Recommendation", size=512, epochs=95)
    assert sizes(recommendation, view="course") == [(0, 512), (30, 8192)]
    late = job("accordion", model="ResNet-50", epochs=640)
    assert [(600, 64) in sizes(late, **view) for view in ({"view": "course"}, {})] == [True, False]


def test_the_last_epoch_as_published():
    assert sizes(job("gns"), published=True) == [(0, 64), (11, 128), (31, 256), (99, 64)]
    assert sizes(job("gns", epochs=32), published=True) == [(0, 64), (11, 128), (31, 64)]
    assert sizes(job("gns", size=128), published=True) == [(0, 128), (11, 256)]  # doubled once


def test_the_profiled_accelerator():
    rates = {"ResNet-18 (batch size 64)": [3.0, 4.0, 0.0], "Other": [0.0, 2.0, 5.0]}
    table = ThroughputTable([(name, 1) for name in rates], ["v100", "p100", "k80"], list(rates.values()))
    trace = Trace(list(rates), [1, 1], [1000.0, 1000.0], [0.0, 0.0])
    steps = np.array([2 * 781.25, 1000.0])  # two epochs of 781.25 steps each; the other job has steps only

    def rates_seen(accelerator, of):
        return (steps / profile_trace(trace, of, accelerator).total_seconds).round(9).tolist()

    assert rates_seen(None, table) == [3.0, 5.0]
    assert rates_seen("k80", table) == [4.0, 5.0]
    renamed = ThroughputTable(table.keys, ["x", "y", "z"], table.isolated)
    assert rates_seen(None, renamed) == [4.0, 5.0]
    idle = ThroughputTable(table.keys, table.accelerators, [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    with pytest.raises(InputError, match="'Other' with 1 GPUs"):
        profile_trace(trace, idle)


def test_models_without_rules():
    table = ThroughputTable([("A (batch size 7)", 1), ("B", 2)], ["v100"], [[2.0], [4.0]])
    trace = Trace(
        ["A (batch size 7)", "B", "B"], [1, 2, 2], [1000.0, 5.0, 2.5], [0, 0, 0], mode=["gns", "accordion", "static"]
    )
    profile = profile_trace(trace, table)
    assert profile.epochs.tolist() == [STEADY_EPOCHS, 5, 3]
    np.testing.assert_allclose(profile.total_seconds, [500.0, 1.25, 0.625], rtol=1e-12)
    assert profile.batch_size[profile.offsets[:-1]].tolist() == [7, 1, 1]
    assert profile.samples_per_epoch.tolist() == [70, 1, 1]
    assert all(len(set(profile.epoch_seconds[profile.job == one])) == 1 for one in range(3))


def test_a_job_that_never_changes_has_a_bounded_number_of_equal_epochs():
    """As long as before; up to the bound epochs are passes over the 59,675 samples."""
    for epochs, found in ((7, 7), (7.001, 8), (1e7, MOST_STEADY_EPOCHS)):
        trace = Trace(["LM (batch size 10)"], [1], [epochs * 5968], [0.0])
        profile = profile_trace(trace, default_table())
        assert profile.epochs.tolist() == [found] == [len(profile.epoch_seconds)]
        course = Course(trace.job_type, [1], trace.mode, trace.total_steps, default_table(), ["v100"])
        assert course.epochs.tolist() == [found]
    rate = default_table().rates(trace.job_type, [1], ["v100"])[0, 0]
    assert profile.total_seconds[0] == pytest.approx(trace.total_steps[0] / rate, rel=1e-9)
    assert profile.samples_per_epoch[0] == pytest.approx(10 * trace.total_steps[0] / MOST_STEADY_EPOCHS)
    assert course.epochs_done(trace.total_steps * 0.25).tolist() == [MOST_STEADY_EPOCHS // 4]


def test_a_batch_size_without_throughput():
    table = ThroughputTable(
        [(f"ResNet-18 (batch size {size})", 1) for size in (64, 128, 256)],
        ["v100", "k80"],
        [[8.0, 2.0], [5.0, 0.0], [3.0, 1.0]],
    )
    gns, accordion = job("gns"), job("accordion")
    known = ThroughputTable(table.keys[:2], table.accelerators, table.isolated[:2])
    assert profile_trace(gns, known).batch_size.max() == 128
    assert profile_trace(accordion, known).batch_size.max() == 64
    # on a type that cannot run the next batch size
    on_k80 = profile_trace(gns, table, "k80")
    assert set(on_k80.batch_size) == {64}
    np.testing.assert_allclose(on_k80.epoch_seconds, 50_000 / 64 / 2.0)
    assert profile_trace(accordion, table, "k80").batch_size.max() == 256


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), jobs=st.integers(1, 30), published=st.booleans())
def test_jobs_do_not_depend_on_their_neighbours(seed, jobs, published):
    trace = shockwave_trace(jobs, 10.0, seed=seed)
    together = profile_trace(trace, default_table(), published=published)
    assert (together.epochs >= 1).all()
    pick = np.random.default_rng(seed).permutation(jobs)[:5]
    columns = {name: getattr(trace, name)[pick] for name in Trace.column_names() if name != "arrival_time"}
    alone = profile_trace(Trace(**columns, arrival_time=np.zeros(len(pick))), default_table(), published=published)
    expected = together.take(pick)
    for name in ("offsets", "batch_size", "epoch_seconds", "samples_per_epoch"):
        assert (getattr(alone, name) == getattr(expected, name)).all()
