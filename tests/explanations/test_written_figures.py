"""Figures of GPUs and jobs from a run that is written down by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator import Cluster
from allocator.explanations.columns import Rows

CLUSTER = Cluster({"v100": 3, "k80": 4}, {"v100": 2, "k80": 2})


def rows_of(*rows: tuple[int, int, int, float, float, float, str], **columns: Any) -> Rows:
    """Each job, pool, GPUs, start, finish and until in seconds, and ids of GPUs."""
    job, pool, gpus, start, finish, until, places = (np.array(values) for values in zip(*rows, strict=True))
    n = len(job)
    usual = {"partner": np.full(n, -1), "share": np.ones(n), "fraction": np.ones(n)}
    return Rows(
        round=start.astype(np.int64), start=start, finish=finish, until=until, job=job, pool=pool, gpus=gpus,
        steps=finish - start, places=places.astype(object), **usual | columns,
    )  # fmt: skip


def test_two_jobs_on_the_same_gpus_keep_half_of_them_busy_each() -> None:
    rows = rows_of(
        (0, 0, 2, 0.0, 9.0, 9.0, ""), (1, 0, 2, 0.0, 9.0, 9.0, ""), (2, 1, 4, 0.0, 9.0, 9.0, ""),
        partner=np.array([1, 0, -1]), share=np.array([1.0, 1.0, 0.25]),
    )  # fmt: skip
    assert rows.weighted_gpus.tolist() == [1.0, 1.0, 1.0]
