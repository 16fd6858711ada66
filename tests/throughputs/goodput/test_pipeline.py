"""Pipelines with copies side by side."""

from __future__ import annotations

import pytest

from throughputs.goodput.profiles import Profile
from throughputs.goodput.trainings.profiled import PipelinedTraining

PARAMETERS = (0.2, 0.1, 0.5, 0.05, 0.25, 0.02, 1.5)


def pipeline(stages):
    """A copy takes 48 micro-batches of one sample in a step, 0.3 s each on a stage."""
    return PipelinedTraining(
        "net", Profile(48, 384, 48, False, 100.0, (2.0,), {"a": 48}, {"a": PARAMETERS}, {"a": stages}, 48)
    )


@pytest.mark.parametrize(
    ("shape", "sync"), [((2,), 1e-8), ((4,), 0.25), ((8,), 0.25 + 0.04), ((8, 8), 0.5 + 0.3), ((1, 1), 1e-8)]
)
def test_a_pipeline_fills_and_its_copies_synchronise(shape, sync):
    """Two stages: 49 micro-batches forward, and three times that in all. A copy that spans nodes waits for nobody."""
    step, own = pipeline(2).step_time("a", shape, 48)
    assert own == pytest.approx(sync, rel=1e-9)
    assert step == pytest.approx(3 * 49 * 0.3 + sync, rel=1e-9)


def test_more_micro_batches_take_longer():
    step, sync = pipeline(8).step_time("a", (8, 8), 96)
    assert step - sync == pytest.approx(3 * (7 + 96) * 0.3, rel=1e-12)
    assert pipeline(8).worth_in(96, 0) == pytest.approx((1 + 2 / 48) / (2 / 48 / 2 + 1))
