"""Pipelines with copies side by side."""

from __future__ import annotations

import numpy as np

from throughputs.goodput import GradientStatistics, ThroughputModels
from throughputs.goodput.pipeline import PipelineModels

MODEL = ThroughputModels([0.2, 0.1, 0.5, 0.05, 0.25, 0.02, 1.5])


def test_throughput_of_copies():
    """Two stages, 48 micro-batches of one sample: 49 micro-batches of 0.3 s forward, and three times that in all."""
    jobs = PipelineModels(MODEL, 2, 48, 384)
    rates = jobs.samples_per_second([1, 1, 1, 2, 2], [2, 4, 8, 16, 32])[0]
    once = 3 * 49 * 0.3
    expected = [48 / (once + 1e-8), 96 / (once + 0.25), 192 / (once + 0.25 + 0.04), 384 / (once + 0.5 + 0.3), 0.0]
    np.testing.assert_allclose(rates, expected, rtol=1e-9)
    assert jobs.batch_size([2, 3, 16, 18]).tolist() == [[48, 0, 384, 0]]
    assert jobs.samples_per_second([1], [3]).tolist() == [[0]]


def test_a_copy_that_spans_nodes_does_not_synchronise():
    jobs = PipelineModels(MODEL, 8, 48, 384)
    np.testing.assert_allclose(jobs.samples_per_second([2], [8]), 48 / (3 * 55 * 0.3), rtol=1e-9)


def test_goodput_of_pipelines():
    jobs = PipelineModels(ThroughputModels(np.tile(MODEL.parameters, (2, 1))), [1, 2], 4, [64, 64], [1, 2])
    statistics = GradientStatistics([1.0, 1.0], [2.0, 0.0])
    goodput = jobs.goodput(statistics, [4, 8], [1, 1], [2, 4])
    rates = jobs.samples_per_second([1, 1], [2, 4])
    np.testing.assert_allclose(goodput[0], rates[0] * [3 / 4, 3 / 6], rtol=1e-12)
    np.testing.assert_allclose(goodput[1], rates[1] * [1.0, 0.5], rtol=1e-12)
