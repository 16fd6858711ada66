"""Recorded completion times of the original (OSDI 2020) that need no public data: its generator draws the jobs.

`gavel_completion_times.csv` has one row per run: measured by running the original with ECOS, seed 0, rounds of 360 s.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocator import Cluster, default_table, get_policy, simulate
from tests.reference.gavel_replays import ORDERS, PATHS
from throughputs import gavel_trace

SAME_INSTANT = 1e-6
"""Seconds: largest difference of a time called equal."""

TRACE_DIGITS = 6
"""Decimals of arrival times in the recorded traces."""

JOBS = {
    "n40_lam900_multi0_prio0_seed0": {"mean_interarrival": 900.0},
    "n40_lam1800_multi1_prio0_seed0": {"mean_interarrival": 1800.0, "multi_gpu": True},
}
SOLVER_FREE = (*ORDERS, "min_total_duration", "min_total_duration_perf")

with open(Path(__file__).with_name("gavel_completion_times.csv"), newline="") as file:
    RUNS = {(row["trace"], row["policy"]): row for row in csv.DictReader(file)}


def replay(trace, policy, **settings):
    jobs = gavel_trace(40, seed=0, **JOBS[trace])
    jobs = replace(jobs, arrival_time=np.round(jobs.arrival_time, TRACE_DIGITS))
    gpus = map(int, RUNS[trace, policy]["cluster"].split(":"))
    cluster = Cluster(dict(zip(("v100", "p100", "k80"), gpus, strict=True)))
    return simulate(jobs, cluster, get_policy(policy, **settings), default_table(), preset="gavel", seed=0)


def assert_as_recorded(result, row):
    recorded = [float(row[f"job_{job}"]) for job in range(40)]
    np.testing.assert_allclose(result.jobs["jct"], recorded, atol=SAME_INSTANT, rtol=0)
    assert result.makespan == pytest.approx(float(row["makespan_s"]), abs=SAME_INSTANT)


def test_both_traces_have_every_policy():
    assert len(RUNS) == 2 * 9
    assert {trace for trace, _ in RUNS} == set(JOBS)


@pytest.mark.parametrize(("trace", "policy"), [run for run in RUNS if run[1] in SOLVER_FREE])
def test_without_the_original_solver(trace, policy):
    settings = {} if policy in ORDERS else PATHS["auto"]
    assert_as_recorded(replay(trace, policy, **settings), RUNS[trace, policy])


@pytest.mark.parametrize(("trace", "policy"), [run for run in RUNS if run[1] not in ORDERS])
def test_with_the_original_solver(trace, policy):
    pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    assert_as_recorded(replay(trace, policy, **PATHS["ecos"]), RUNS[trace, policy])
