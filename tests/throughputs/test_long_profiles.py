"""Profiles of jobs with more epochs than anybody needs to hear of."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import Trace, default_table
from throughputs.training import MOST_STEADY_EPOCHS, Course, profile_trace

TABLE = default_table()
LM = "LM (batch size 10)"
STEPS_OF_AN_EPOCH = 5_968


def lm(epochs, mode="static"):
    return Trace([LM], [1], [epochs * STEPS_OF_AN_EPOCH], [0.0], mode=[mode])


def test_the_example_is_what_it_says():
    assert profile_trace(lm(7), TABLE).epochs.tolist() == [7]
    assert profile_trace(lm(7.001), TABLE).epochs.tolist() == [8]


def test_a_job_that_never_changes_has_a_bounded_number_of_equal_epochs():
    """As long as before; and the course of the job counts the same epochs."""
    trace = lm(1e7)
    profiles = profile_trace(trace, TABLE)
    rate = TABLE.rates([LM], [1], ["v100"])[0, 0]
    assert profiles.epochs.tolist() == [MOST_STEADY_EPOCHS]
    assert len(profiles.epoch_seconds) == MOST_STEADY_EPOCHS
    assert profiles.total_seconds[0] == pytest.approx(trace.total_steps[0] / rate, rel=1e-9)
    assert len(np.unique(profiles.epoch_seconds)) == 1
    assert (profiles.batch_size == 10).all()
    assert profiles.samples_per_epoch[0] == pytest.approx(10 * trace.total_steps[0] / MOST_STEADY_EPOCHS)
    course = Course(trace.job_type, trace.scale_factor, trace.mode, trace.total_steps, TABLE, ["v100"])
    assert course.epochs.tolist() == [MOST_STEADY_EPOCHS]
    assert course.epochs_done(trace.total_steps * 0.25).tolist() == [MOST_STEADY_EPOCHS // 4]


def test_up_to_the_bound_epochs_are_passes_over_the_samples():
    profiles = profile_trace(lm(MOST_STEADY_EPOCHS - 1), TABLE)
    assert profiles.epochs.tolist() == [MOST_STEADY_EPOCHS - 1]
    assert profiles.samples_per_epoch.tolist() == profile_trace(lm(3), TABLE).samples_per_epoch.tolist()
