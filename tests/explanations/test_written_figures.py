"""Figures of GPUs and jobs from a run that is written down by hand."""

from __future__ import annotations

import numpy as np

from allocator.explanations.run import Rows


def test_two_jobs_on_the_same_gpus_keep_half_of_them_busy_each() -> None:
    """Two gangs of two on two GPUs, and one of four with a quarter of the time."""
    none, end = np.zeros(3), np.full(3, 9.0)
    rows = Rows(
        round=none.astype(int), start_time=none, end_time=end, until=end, job_id=np.arange(3), pool=np.array([0, 0, 1]),
        gpu_count=np.array([2, 2, 4]), steps=end, gpus=np.full(3, "", object), partner=np.array([1, 0, -1]),
        share=np.array([1.0, 1.0, 0.25]), gpu_fraction=np.ones(3),
    )  # fmt: skip
    assert rows.weighted_gpus.tolist() == [1.0, 1.0, 1.0]
