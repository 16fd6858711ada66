"""Chronus: runs of the published simulator, job by job without a solver, in the whole with one.

The reference runs are those of the public code (ChronusArtifact, and its copy in ElasticFlow's artifact). Without a
solver it is deterministic. With one, only the first slot of each lease program is carried out and optima abound, so
that runs with other seeds differ; the recorded range is over seeds and over Gurobi and HiGHS.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, read_trace, simulate
from allocator.presets import preset
from allocator.results.result import SimulationResult
from tests.reference.tiers import tiered
from throughputs import Trace

HERE = Path(__file__).resolve().parent / "chronus"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress((HERE / "runs.json.gz").read_bytes()))
ELASTICFLOW = "100jobs_1500lam.chronus.csv"
"""Of the copy in ElasticFlow's artifact, whose second is the unit."""
BEST = 10.0
"""Value of a first deadline."""


def cases(kind: str, *gate: str) -> list[Any]:
    """Recorded runs, one of 60 jobs always."""
    of_trace = {run["trace"]: run for run in RECORDED[kind]}
    found = tiered(of_trace, daily=["MIX2_first60.csv"], gate=gate)
    return [pytest.param(of_trace[case.values[0]], id=case.values[0], marks=case.marks) for case in found]


def replay(trace: Trace, run: dict[str, Any], **settings: Any) -> SimulationResult:
    """The run under the preset of its simulator."""
    system = preset(run.get("preset", "chronus"))
    per_server = run.get("gpus_per_server", 8)
    cluster = Cluster({"v100": run["servers"] * per_server}, {"v100": per_server})
    policy = system.make_policy("chronus", cluster, **{**run.get("settings", {}), **settings})
    return simulate(trace, cluster, policy, (trace.total_steps / trace.duration)[:, None], preset=system)


@pytest.mark.parametrize("run", cases("without_solver", "SLO_first60.csv", "MIX1_first150.csv", ELASTICFLOW))
def test_completion_times_without_a_solver(run: dict[str, Any], public_data: Any) -> None:
    trace = read_trace(public_data(f"chronus/traces/{run['trace']}"))
    unit = 60.0 if run["preset"] == "chronus" else 1.0
    result = replay(trace, run, solver="none")
    np.testing.assert_allclose(result.jobs.completion_time / unit, run["end"], rtol=0, atol=1e-4)


def missed(trace: Trace, completion: np.ndarray) -> np.ndarray:
    """(n,) published miss of jobs with a deadline: 1 - value / 10 of the first one that was met, 1 where none was."""
    rows = zip(trace.deadline_options, completion.tolist(), strict=True)
    return np.array(
        [1.0 - next((value for due, value in row if done <= due + 1e-6), 0.0) / BEST for row, done in rows if row]
    )


@pytest.mark.parametrize("run", cases("with_solver", "SLO_first60.csv", "MIX1_first150.csv"))
def test_runs_with_a_solver_are_within_the_range_of_seeds(run: dict[str, Any], public_data: Any) -> None:
    trace = read_trace(public_data(f"chronus/traces/{run['trace']}"))
    result = replay(trace, run)
    completion = result.jobs.completion_time.to_numpy()
    low, high = run["slo_orig_miss_ddl_mean"]
    assert low - 1e-9 <= missed(trace, completion).mean() <= high + 1e-9
    # one or two recorded runs are no range: within 2 % of them
    strict = np.array([bool(row) for row in trace.deadline_options])
    low, high = run["avg_jct_slo"]
    waited = (completion - trace.arrival_time)[strict].mean() / 60.0
    assert 0.98 * low <= waited <= 1.02 * high
