"""Workloads of jobs that train."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.goodput_worlds import profile, trainings
from throughputs import InputError
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace, trainings_of
from throughputs.goodput.trainings.generator import SHARES_OF_MODELS

MODELS = trainings_of(default_profiles())


def drawn(n, **settings):
    return training_trace(n, 60.0, rng=np.random.default_rng(3), trainings=MODELS, **settings)


def test_a_longer_trace_begins_with_the_shorter_one():
    short, long = drawn(20), drawn(50)
    for name in ("job_type", "scale_factor", "arrival_time", "total_steps"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:20])


def test_shares_gaps_and_sizes_are_those_that_are_wanted():
    trace = drawn(4000)
    models = np.array([name.partition(" (")[0] for name in trace.job_type.tolist()])
    for name, share in SHARES_OF_MODELS.items():
        assert (models == name).mean() == pytest.approx(share, abs=0.03)
    assert np.diff(trace.arrival_time).mean() == pytest.approx(60.0, rel=0.06)
    assert trace.scale_factor.max() <= 64
    assert drawn(300, most_gpus=4).scale_factor.max() <= 4
    assert set(drawn(50, shares={"bert": 1.0}).total_steps) == {MODELS.models["bert"].total_progress}


def test_gangs_are_used_to_half_and_to_four_fifths():
    """With a synchronisation as long as the gradients of 16 samples on several GPUs, and no noise to gain from."""
    models = trainings(net=profile(noise=(1e-9,), sync=0.04))
    trace = training_trace(200, 0.0, rng=np.random.default_rng(0), trainings=models, gpus_per_node=8)
    used = {k: 0.16 / (0.16 / k + (0.04 if k > 1 else 0.0)) / k for k in range(1, 65)}
    assert set(trace.scale_factor.tolist()) <= {k for k, share in used.items() if 0.49 < share < 0.8}
    assert set(trace.job_type) == {"net (batch size 16)"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mean_interarrival": -1.0}, "mean_interarrival"),
        ({"accelerator": "v100"}, "accelerator type"),
        ({"shares": {"cat": 1.0}}, "model"),
        ({"shares": {"bert": -1.0}}, "shares"),
    ],
)
def test_bad_settings_are_named(settings, told):
    with pytest.raises(InputError, match=told):
        training_trace(5, **({"mean_interarrival": 1.0} | settings), rng=np.random.default_rng(0), trainings=MODELS)
