"""The round mechanism against round logs of Gavel's own scheduler: every round, every GPU id, every completion.

Each log holds the shares that the original's policies returned; fed to our mechanism under the preset "gavel" they must
give the same rounds.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Policy, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import get_policy
from allocator.simulator import SimulationResult, simulate
from throughputs import read_table, read_trace

Data = Callable[[str], Path]

read_once = functools.cache(read_table)

# The logs' policies without pairs of jobs; Gandiva's and the packed ones' rows are pairs.
SINGLE_GPU = (
    "allox",
    "fifo",
    "fifo_perf",
    "finish_time_fairness",
    "finish_time_fairness_perf",
    "isolated",
    "max_min_fairness",
    "max_min_fairness_perf",
    "max_min_fairness_water_filling",
    "max_min_fairness_water_filling_perf",
    "max_sum_throughput_perf",
    "min_total_duration",
    "min_total_duration_perf",
)
MULTI_GPU = tuple(name for name in SINGLE_GPU if name != "allox")
ALWAYS = (
    ("n40s", "allox"),
    ("n40s", "fifo_perf"),
    ("n40m", "fifo_perf"),
    ("n40m", "isolated"),
    ("n40m", "max_min_fairness_perf"),
)
LOGS = [
    log if log in ALWAYS else pytest.param(*log, marks=pytest.mark.exhaustive)
    for log in [("n40s", name) for name in SINGLE_GPU] + [("n40m", name) for name in MULTI_GPU]
]


class RecordedPolicy(SharePolicy):
    """Returns the shares of a log, and checks that it is asked at the times at which the original was."""

    preemptive = True

    def __init__(self, log: dict[str, Any]) -> None:
        self.name = log["meta"]["policy"]
        self.heterogeneity_aware = self.name.endswith("_perf") or self.name == "allox"
        self.fills_idle_gpus = not self.name.startswith("fifo")
        self.types = log["worker_type_order"]
        self.recorded = iter(log["allocations"])

    def allocate(self, state: ClusterState) -> Allocation:
        clock, shares = next(self.recorded)
        assert state.clock == clock
        assert [str(job) for job in state.throughputs.jobs] == sorted(shares, key=int)
        columns = [self.types.index(name) for name in state.cluster.accelerators]
        matrix = np.array([shares[str(job)] for job in state.throughputs.jobs])[:, columns]
        return Allocation(self.name, state.throughputs, matrix, status="feasible")


@pytest.fixture(scope="module")
def public_data(gavel_inputs: Data) -> Data:
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


def read_log(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def run(public_data: Data, trace: str, counts: str, policy: Policy, seed: int) -> SimulationResult:
    # The original numbers the GPUs of its types in alphabetical order.
    by_type = zip(("v100", "p100", "k80"), map(int, counts.split(":")), strict=True)
    table = read_once(public_data("gavel/simulation_throughputs.json.gz"))
    jobs = read_trace(public_data(f"gavel/traces/{trace}"))
    return simulate(jobs, Cluster(dict(sorted(by_type))), policy, table, preset="gavel", seed=seed)


@pytest.fixture(scope="module")
def original_runs(reference_data: Data) -> dict[tuple[str, str, str], dict[str, Any]]:
    with gzip.open(reference_data("gavel/sim_results.jsonl.gz"), "rt") as file:
        runs = [json.loads(line) for line in file]
    plain = (r for r in runs if r["status"] == "ok" and r["per_server"] == "1:1:1" and r["interval"] == 360)
    return {(r["trace"], r["policy"], r["cluster"]): r for r in plain if r["seed"] == 0 and not r["ideal"]}


@pytest.mark.parametrize(("workload", "policy"), LOGS)
def test_rounds_and_completions_are_identical(
    workload: str,
    policy: str,
    public_data: Data,
    reference_data: Data,
    original_runs: dict[tuple[str, str, str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One by one, so that every round can be compared; many equal ones as one step are compared below.
    monkeypatch.setattr("allocator.simulator.rounds.LEAST_ROUNDS", float("inf"))
    log = read_log(reference_data(f"gavel/round_logs/rounds_{workload}_{policy}.json.gz"))
    meta = log["meta"]
    result = run(public_data, meta["trace"], meta["cluster"], RecordedPolicy(log), meta["seed"])
    record = result.record
    assert record is not None
    names = result.cluster.accelerators
    # The log closes with an entry without jobs, when the last one has completed.
    assert log["rounds"][-1][1] == []
    assert len(record.outcomes) == len(log["rounds"]) - 1
    for outcome, (start, rows) in zip(record.outcomes, log["rounds"], strict=False):
        assert outcome.start_time == start
        ours = zip(outcome.jobs.tolist(), outcome.assignment.pool.tolist(), outcome.gpus, strict=True)
        assert {job: (names[j], sorted(gpus)) for job, j, gpus in ours} == {
            int(job): (name, sorted(gpus)) for job, name, gpus in rows
        }
    original = original_runs[meta["trace"], policy, meta["cluster"]]
    assert_same_figures(result, original)


def test_many_equal_rounds_as_one_step_end_where_the_log_ends(
    public_data: Data, reference_data: Data, original_runs: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    """Two jobs of the log of FIFO run alone for thousands of rounds."""
    log = read_log(reference_data("gavel/round_logs/rounds_n40m_fifo.json.gz"))
    meta = log["meta"]
    result = run(public_data, meta["trace"], meta["cluster"], RecordedPolicy(log), meta["seed"])
    record = result.record
    assert record is not None
    assert sum(outcome.rounds for outcome in record.outcomes) == len(log["rounds"]) - 1
    assert len(record.outcomes) < len(log["rounds"]) / 2
    names = result.cluster.accelerators
    for outcome in record.outcomes:
        logged = log["rounds"][outcome.index : outcome.index + outcome.rounds]
        assert outcome.start_time == logged[0][0]
        ours = zip(outcome.jobs.tolist(), outcome.assignment.pool.tolist(), outcome.gpus, strict=True)
        rows = {job: (names[j], sorted(gpus)) for job, j, gpus in ours}
        assert all({int(job): (name, sorted(gpus)) for job, name, gpus in each} == rows for _, each in logged)
    assert_same_figures(result, original_runs[meta["trace"], "fifo", meta["cluster"]])


WHOLE_RUNS = (
    ("fifo_perf", "n100_lam0_multi1_prio0_seed0.trace", "12:12:12"),
    ("fifo_perf", "n100_lam1200_multi1_prio0_seed0.trace", "12:12:12"),
    ("isolated", "n100_lam1200_multi1_prio0_seed0.trace", "12:12:12"),
    ("isolated", "n100_lam1200_multi1_prio1_seed0.trace", "12:12:12"),
    ("fifo_perf", "n120_lam600_multi0_prio0_seed0.trace", "12:12:12"),
    ("isolated", "n120_lam600_multi0_prio0_seed0.trace", "12:12:12"),
    ("fifo_perf", "n150_lam600_multi1_prio0_seed0.trace", "36:36:36"),
    ("isolated", "n150_lam600_multi1_prio0_seed0.trace", "36:36:36"),
    ("fifo_perf", "n200_lam300_multi0_prio0_seed0.trace", "36:36:36"),
    ("isolated", "n200_lam300_multi0_prio0_seed0.trace", "36:36:36"),
    ("fifo_perf", "n40_lam1800_multi1_prio0_seed0.trace", "8:8:8"),
    ("isolated", "n40_lam1800_multi1_prio0_seed0.trace", "8:8:8"),
    ("fifo_perf", "n40_lam900_multi0_prio0_seed0.trace", "4:4:4"),
    ("isolated", "n40_lam900_multi0_prio0_seed0.trace", "4:4:4"),
)


@pytest.mark.parametrize(
    ("policy", "trace", "cluster"),
    [run if "n40_" in run[1] else pytest.param(*run, marks=pytest.mark.exhaustive) for run in WHOLE_RUNS],
)
def test_policies_without_a_program_give_the_original_runs(
    policy: str, trace: str, cluster: str, public_data: Data, original_runs: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    result = run(public_data, trace, cluster, get_policy(policy), seed=0)
    original = original_runs[trace, policy, cluster]
    # The original counts the moment after the last round as one more.
    assert len(result.timeline) == original["rounds"] - 1
    assert_same_figures(result, original)


def assert_same_figures(result: SimulationResult, original: dict[str, Any]) -> None:
    """Completion times bit for bit; means and sums may be added up in another order."""
    assert result.makespan == original["makespan_s"]
    assert dict(enumerate(result.jobs["jct"])) == {int(job): jct for job, jct in original["jct_s"].items()}
    assert result.utilization == pytest.approx(original["utilization"], rel=1e-12)
    assert result.summary()["average_jct"] == pytest.approx(original["avg_jct_s"], rel=1e-12)
