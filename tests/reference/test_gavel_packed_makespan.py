"""Makespan with space sharing under the published choice: the recorded run, job by job."""

from __future__ import annotations

import gzip
import json

import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import simulate
from throughputs import read_table, read_trace

TRACE, POLICY = "n40_lam900_multi0_prio0_seed0.trace", "min_total_duration_packed"


@pytest.fixture(scope="module")
def recorded(reference_data):
    with gzip.open(reference_data("gavel/sim_results.jsonl.gz"), "rt") as file:
        runs = (json.loads(line) for line in file)
        return next(run for run in runs if run["trace"] == TRACE and run["policy"] == POLICY and run["seed"] == 0)


@pytest.mark.exhaustive
def test_every_job_completes_when_it_was_recorded_to(recorded, public_data):
    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    trace = read_trace(public_data(f"gavel/traces/{TRACE}"))
    cluster = Cluster(dict.fromkeys(("k80", "p100", "v100"), 4))
    assert recorded["cluster"] == "4:4:4"
    result = simulate(trace, cluster, get_policy(POLICY, choice="published"), table, preset="gavel")
    for job, jct in recorded["jct_s"].items():
        assert result.jobs["jct"][int(job)] == pytest.approx(jct, abs=1e-6)
    assert result.makespan == pytest.approx(recorded["makespan_s"], abs=1e-6)
