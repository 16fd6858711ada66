"""Figures of GPUs and jobs from a run that is written down by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster
from allocator.explanations.columns import Jobs, Rows
from allocator.explanations.occupancy import free_at, holders
from allocator.explanations.run import FinishedRun

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


def run_of(rows: Rows, arrivals: list[float]) -> FinishedRun:
    n = len(arrivals)
    ones, nothing = np.ones(n), np.full(n, np.nan)
    texts = np.full(n, "", dtype=object)
    jobs = Jobs(
        texts, texts, texts, np.ones(n, np.int64), ones, ones, nothing, np.array(arrivals), nothing,
        np.full(n, np.inf), nothing, np.ones((n, 2)), ones, texts, np.full(n, np.datetime64("NaT", "us")),
    )  # fmt: skip
    bounds = np.unique(rows.start)
    return FinishedRun(
        "by hand", "fifo", {}, CLUSTER, jobs, rows, bounds.astype(np.int64), bounds, np.append(bounds[1:], 2000.0),
        np.ones(len(bounds), np.int64), np.array([-np.inf]), CLUSTER.capacity[None, :], None,
    )  # fmt: skip


@pytest.fixture
def run() -> FinishedRun:
    """The first job was through its steps 100 s before its round was over."""
    rows = rows_of(
        (0, 0, 2, 0.0, 900.0, 1000.0, "0 1"), (0, 0, 2, 1000.0, 2000.0, 2000.0, "0 1"),
        (1, 1, 1, 1000.0, 1500.0, 2000.0, "4"),
    )  # fmt: skip
    return run_of(rows, [0.0, 0.0, 1000.0])


def test_who_held_gpus_and_what_they_had_had(run: FinishedRun) -> None:
    first, second = holders(run, 2, 1000.0, 2000.0)
    assert (first.job, first.gpus, second.job, second.gpus) == (0, 2, 1, 1)
    assert (first.gpu_hours, second.gpu_hours) == ({"v100": 2000 / 3600}, {"k80": 1000 / 3600})
    # GPUs are held up to the end of the round, and the job had them until it was through
    assert (first.gpu_hours_before, second.gpu_hours_before) == (2000 / 3600, 0.0)
    assert (first.time_before, second.time_before) == (0.9, 0.0)
    # of two that came together neither came later
    assert [holder.came_later for holder in holders(run, 1, 1000.0, 2000.0)] == [False, False]
    assert [holder.came_later for holder in holders(run_of(run.rows, [0.0, 5.0, 1.0]), 2, 1000.0, 2000.0)] == [
        False, True,
    ]  # fmt: skip


def test_free_gpus_by_server(run: FinishedRun) -> None:
    """GPUs are numbered through the types, servers in each of them: one of v100, and 1 + 2 of k80 are free."""
    free = free_at(run, 1500.0)
    assert (free["v100"].gpus, free["v100"].servers, free["v100"].largest) == (1.0, 1, 1)
    assert (free["k80"].gpus, free["k80"].servers, free["k80"].largest) == (3.0, 2, 2)


def test_two_jobs_on_the_same_gpus_keep_half_of_them_busy_each() -> None:
    rows = rows_of(
        (0, 0, 2, 0.0, 9.0, 9.0, ""), (1, 0, 2, 0.0, 9.0, 9.0, ""), (2, 1, 4, 0.0, 9.0, 9.0, ""),
        partner=np.array([1, 0, -1]), share=np.array([1.0, 1.0, 0.25]),
    )  # fmt: skip
    assert rows.weighted_gpus.tolist() == [1.0, 1.0, 1.0]
