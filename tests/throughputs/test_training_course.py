"""The true course: every rule on jobs made by hand, a plain restatement job by job, and what never happens."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.published.shockwave.generator import shockwave_trace
from throughputs import ThroughputTable, default_table
from throughputs.training import (
    AdaptationRules,
    Course,
    CriticalWindow,
    ModelRules,
    default_rules,
    profile_trace,
)

SIZES = (10, 20, 40)
# 100 samples: 10, 5 and 3 steps for an epoch with batch sizes of 10, 20 and 40
NET = ModelRules(
    100,
    40,
    {"course": {10: (CriticalWindow(0, 3), CriticalWindow(6, 8)), 20: (CriticalWindow(0, 1),)}},
    {(10, 1): (3, 5), (20, 1): (4,)},
)
RULES = AdaptationRules({"Net": NET})
TABLE = ThroughputTable([(f"Net (batch size {b})", 1) for b in SIZES], ["a", "b"], [[8.0, 4.0], [6.0, 3.0], [4.0, 0.0]])


def course(mode, epochs=10, size=10, table=TABLE, **settings):
    steps = epochs * -(-100 // size)
    return Course([f"Net (batch size {size})"], [1], [mode], [steps], table, ["b", "a"], RULES, **settings)


def told(course, steps, ran=True):
    """One round of a single job; empty, or its new total, steps done and rates."""
    done = np.array([steps])
    active = np.array([0])
    change = course.book(active if ran else active[:0], done)
    done[change.jobs] = change.steps_done
    course.observe(active, done)
    return [*change.total_steps, *change.steps_done, *change.rates.ravel()]


def test_the_start():
    start = course("gns", epochs=9.5, size=40)
    assert (start.batch_size[0], start.iterations_per_epoch[0], start.epochs[0]) == (40, 3, 10)
    assert start.total_steps.tolist() == [28.5]
    adaptive = [made.adaptive[0] for made in (start, course("gns"), course("accordion", size=20), course("static"))]
    assert adaptive == [False, True, True, False]


def test_mended_gns_follows_the_epochs():
    job = course("gns")
    assert told(job, 29.9) == []
    assert told(job, 30) == [50, 15, 3.0, 6.0]  # at once, and not a step more
    assert told(job, 20) == []
    assert told(job, 24.9) == []
    assert told(job, 26) == pytest.approx([30, 15.6, 0.0, 4.0])


@pytest.mark.parametrize("published", [False, True])
def test_a_finished_job_is_left_alone(published):
    job = course("gns", published=published)
    told(job, 50)
    assert told(job, 100) == []


def test_a_batch_size_without_throughput_is_not_taken():
    small = ThroughputTable(TABLE.keys[:2], TABLE.accelerators, TABLE.isolated[:2])
    for published in (False, True):
        job = course("gns", table=small, published=published)
        for steps in (50, 60, 40, 45):
            told(job, steps)
        assert job.batch_size[0] == 20
        assert not course("accordion", table=small, published=published).adaptive[0]


class PlainJob:
    """One job of the published simulator, in words of its rules rather than arrays."""

    def __init__(self, trace, job):
        found = default_rules().find(trace.job_type[job])
        assert found is not None
        self.model, self.initial = found
        self.name = trace.job_type[job].split(" (")[0]
        self.gpus, self.mode = int(trace.scale_factor[job]), trace.mode[job]
        self.size, self.total, self.done = self.initial, float(trace.total_steps[job]), 0.0
        self.epochs = math.ceil(self.total / self.iterations())
        self.flag = ""

    def iterations(self):
        return math.ceil(self.model.samples_per_epoch / self.size)

    def schedule(self, epoch):
        doublings = self.model.doublings.get((self.initial, self.gpus), ())
        return min(self.initial * 2 ** sum(at <= epoch for at in doublings), self.model.largest_batch_size)

    def critical(self, epoch):
        if self.name == "ResNet-50":
            return epoch % 30 < 10
        if self.name == "ResNet-18":
            return epoch < 10 or 150 <= epoch < 160 or 250 <= epoch < 260
        return epoch < (30 if self.initial in (512, 1024) else 40 if self.initial == 2048 else 10)

    def complete_round(self):
        if not self.flag or self.done >= self.total or self.initial == self.model.largest_batch_size:
            return
        before, old = self.iterations(), self.size
        largest = self.model.largest_batch_size
        self.size = (2 * old if self.mode == "gns" else largest) if self.flag == "big" else self.initial
        self.total = math.ceil(self.total * old / self.size)
        if math.ceil(self.total / self.iterations()) != self.epochs:
            self.total = self.epochs * self.iterations()
        self.done = math.ceil(self.done / before) * self.iterations()
        self.flag = ""

    def after_round(self):
        epoch = math.ceil(self.done / self.iterations())
        largest = self.model.largest_batch_size
        if self.mode == "gns" and self.size < largest and self.schedule(epoch + 1) > self.size:
            self.flag = "big"
        if self.mode == "accordion" and self.name != "Transformer":
            if self.size == self.initial and not self.critical(epoch) and self.size < largest:
                self.flag = "big"
            elif self.size > self.initial and self.critical(epoch):
                self.flag = "small"


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), pace=st.floats(0.002, 0.2))
def test_published_equals_the_plain_statement(seed, pace):
    trace = shockwave_trace(25, 5.0, seed=seed)
    whole = Course(trace.job_type, trace.scale_factor, trace.mode, trace.total_steps, default_table(), ["v100"],
                   published=True, past_the_end=True)  # fmt: skip
    plain = [PlainJob(trace, job) for job in range(len(trace))]
    done, total = np.zeros(len(trace)), trace.total_steps.copy()
    rng = np.random.default_rng(seed)
    active = np.ones(len(trace), dtype=bool)
    for _ in range(60):
        ran = np.flatnonzero(active & (done < total) & (rng.random(len(trace)) < 0.6))
        for job in ran.tolist():
            step = min(math.ceil(trace.total_steps[job] * pace), total[job] - done[job])
            done[job] += step
            plain[job].done += step
        active[ran] &= done[ran] < total[ran]
        change = whole.book(ran, done)
        done[change.jobs], total[change.jobs] = change.steps_done, change.total_steps
        whole.observe(np.flatnonzero(active), done)
        for job in ran.tolist():
            plain[job].complete_round()
        for job in np.flatnonzero(active).tolist():
            plain[job].after_round()
        assert whole.batch_size.tolist() == [job.size for job in plain]
        assert total.tolist() == [job.total for job in plain] == whole.total_steps.tolist()
        assert done.tolist() == [job.done for job in plain]
        assert whole.epochs_done(done).tolist() == [job.done // job.iterations() for job in plain]
    assert (whole.batch_size != [job.initial for job in plain]).any()


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), pace=st.floats(0.001, 0.1))
def test_a_mended_course_follows_its_profile_and_keeps_progress(seed, pace):
    trace = shockwave_trace(25, 5.0, seed=seed, modes={"static": 0.1, "accordion": 0.45, "gns": 0.45})
    table, types = default_table(), ["v100", "k80"]
    jobs = Course(trace.job_type, trace.scale_factor, trace.mode, trace.total_steps, table, types)
    profile = profile_trace(trace, table, view="course")
    epochs, rng = jobs.epochs.copy(), np.random.default_rng(seed)
    done, total = np.zeros(len(trace)), trace.total_steps.copy()
    for _ in range(40):
        ran = np.flatnonzero((done < total) & (rng.random(len(trace)) < 0.7))
        done[ran] += np.minimum(total[ran] * pace * rng.uniform(0.2, 2, len(ran)), total[ran] - done[ran])
        before, size = done / total, jobs.batch_size.copy()
        change = jobs.book(ran, done)
        done[change.jobs], total[change.jobs] = change.steps_done, change.total_steps
        jobs.observe(np.flatnonzero(done < total), done)
        assert change.jobs.tolist() == np.flatnonzero(jobs.batch_size != size).tolist()
        np.testing.assert_allclose(done / total, before, rtol=1e-12)
        assert (np.ceil(total / jobs.iterations_per_epoch) == epochs).all()
        going = ran[done[ran] < total[ran]]
        at = profile.offsets[going] + jobs.epochs_done(done)[going]
        assert (jobs.batch_size[going] == profile.batch_size[at]).all()
        parts = zip(trace.job_type, jobs.batch_size, strict=True)
        names = [f"{name.split(' (')[0]} (batch size {b})" for name, b in parts]
        assert (change.rates == table.rates(names, trace.scale_factor, types)[change.jobs]).all()


@pytest.mark.parametrize("published", [False, True])
def test_courses_joined_and_packed_away(published):
    trace = shockwave_trace(40, 5.0, seed=6)

    def of(rows):
        columns = (trace.job_type, trace.scale_factor, trace.mode, trace.total_steps)
        return Course(*(column[rows] for column in columns), default_table(), ["v100"], published=published)

    whole, parts = of(slice(None)), of(slice(0, 7))
    for rows in (slice(7, 8), slice(8, 8), slice(8, 40)):
        parts.append(of(rows))
    rng, done = np.random.default_rng(0), np.zeros(len(trace))
    for _ in range(40):
        ran = np.flatnonzero(rng.random(len(trace)) < 0.5)
        done[ran] += whole.total_steps[ran] * 0.04
        changes = [one.book(ran, done.copy()) for one in (whole, parts)]
        for name in ("jobs", "total_steps", "steps_done", "rates"):
            np.testing.assert_array_equal(*(getattr(change, name) for change in changes))
        done[changes[0].jobs] = changes[0].steps_done
        for one in (whole, parts):
            one.observe(np.flatnonzero(done < one.total_steps), done)
        parts = pickle.loads(pickle.dumps(parts))
    assert (whole.batch_size == parts.batch_size).all()
    assert (whole.batch_size != of(slice(None)).batch_size).any()
