"""Space sharing against Gavel's own scheduler: round logs, recorded simulations, decisions of single instances."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.policies.gavel.packed import FinishTimeFairnessPacked
from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import get_policy
from allocator.simulator import simulate
from formulations import FinishTimeFairness, PackedPolytope, Pairs, solve_packed
from tests.reference.gavel_records import WITH_PAIRS, state_of
from throughputs import read_table, read_trace

Data = Callable[[str], Path]

LOGS = [
    pytest.param("n40s", "finish_time_fairness_packed", marks=pytest.mark.exhaustive),
    ("n40s", "max_min_fairness_packed"),
    pytest.param("n40s", "max_min_fairness_water_filling_packed", marks=pytest.mark.exhaustive),
    pytest.param("n40s", "min_total_duration_packed", marks=pytest.mark.exhaustive),
    ("n40s", "fifo_packed"),
    pytest.param("n40s", "gandiva", marks=pytest.mark.exhaustive),
    pytest.param("n40m", "fifo_packed", marks=pytest.mark.exhaustive),
    ("n40m", "gandiva"),
]


def read_log(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        return json.load(file)


def jobs_of(text: str) -> tuple[int, ...]:
    """Jobs of a row of the log: "3" or "(2, 3)"."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


class RecordedPolicy(SharePolicy):
    """Returns the shares of a log, alone and in pairs, and checks that it is asked when the original was."""

    preemptive = True
    needs = Need.COLOCATION | Need.ISOLATED_TIME
    heterogeneity_aware = True

    def __init__(self, log: dict[str, Any]) -> None:
        self.name = log["meta"]["policy"]
        self.fills_idle_gpus = not self.name.startswith("fifo")
        self.types = log["worker_type_order"]
        self.recorded = iter(log["allocations"])

    def allocate(self, state: ClusterState) -> Allocation:
        clock, rows = next(self.recorded)
        assert state.clock == clock
        columns = [self.types.index(name) for name in state.cluster.accelerators]
        position = {job: i for i, job in enumerate(state.throughputs.jobs)}
        members = {jobs_of(row): np.array(shares)[columns] for row, shares in rows.items()}
        alone = {jobs[0]: shares for jobs, shares in members.items() if len(jobs) == 1}
        assert sorted(alone) == list(position)
        together = sorted((jobs, shares) for jobs, shares in members.items() if len(jobs) == 2 and shares.any())
        pairs = [
            (position[one], position[other], j, share)
            for (one, other), shares in together
            for j, share in enumerate(shares)
            if share
        ]
        first, second, accelerator = (np.array([p[c] for p in pairs], dtype=np.int64) for c in range(3))
        return Allocation(
            self.name,
            state.throughputs,
            np.array([alone[job] for job in position]).reshape(len(position), len(columns)),
            status="feasible",
            pairs=Pairs(first, second, accelerator, np.array([p[3] for p in pairs], dtype=np.float64)),
        )


@pytest.fixture(scope="module")
def table(public_data: Data):
    return read_table(public_data("gavel/simulation_throughputs.json.gz"))


@pytest.fixture(scope="module")
def recorded(reference_data: Data) -> dict[tuple[str, str], dict[str, Any]]:
    with gzip.open(reference_data("gavel/sim_results.jsonl.gz"), "rt") as file:
        runs = [json.loads(line) for line in file]
    usual = {"gen": None, "window": None, "interval": 360, "per_server": "1:1:1", "status": "ok", "ideal": False}
    return {
        (run["trace"], run["policy"]): run
        for run in runs
        if run["trace"] and run["seed"] == 0 and all(run[key] == value for key, value in usual.items())
    }


def run(public_data: Data, table, trace: str, counts: str, policy, seed: int = 0):
    by_type = zip(("v100", "p100", "k80"), map(int, counts.split(":")), strict=True)
    jobs = read_trace(public_data(f"gavel/traces/{trace}"))
    return simulate(jobs, Cluster(dict(sorted(by_type))), policy, table, preset="gavel", seed=seed)


@pytest.mark.parametrize(("workload", "policy"), LOGS)
def test_recorded_shares_give_the_recorded_rounds(
    workload: str, policy: str, table, public_data: Data, reference_data: Data, recorded
) -> None:
    """Every round, every pair, every GPU id, every completion."""
    log = read_log(reference_data(f"gavel/round_logs/rounds_{workload}_{policy}.json.gz"))
    meta = log["meta"]
    result = run(public_data, table, meta["trace"], meta["cluster"], RecordedPolicy(log), meta["seed"])
    names = result.cluster.accelerators
    assert log["rounds"][-1][1] == []
    for outcome, (start, logged) in zip(result.record.outcomes, log["rounds"], strict=False):
        rows = outcome.assignment
        ours = {}
        for job, j, gpus, partner in zip(
            rows.jobs.tolist(), rows.pool.tolist(), outcome.gpus, rows.partner.tolist(), strict=True
        ):
            ours[tuple(sorted({job, partner} - {-1}))] = (names[j], sorted(gpus))
        theirs = {jobs_of(row): (name, sorted(gpus)) for row, name, gpus in logged}
        assert ours == theirs, f"round {outcome.index}"
        assert outcome.start_time == start
    assert len(result.record.outcomes) == len(log["rounds"]) - 1
    original = recorded[meta["trace"], policy]
    assert result.makespan == original["makespan_s"]
    assert dict(enumerate(result.jobs["jct"])) == {int(job): jct for job, jct in original["jct_s"].items()}
    assert result.utilization == pytest.approx(original["utilization"], rel=1e-12)
    assert result.record.leases == (original["lease_ext"], original["lease_opp"])


@pytest.mark.parametrize(
    ("policy", "tolerance"), [("max_min_fairness_packed", 0.04), ("finish_time_fairness_packed", 0.02)]
)
def test_whole_simulations_come_close(policy: str, tolerance: float, table, public_data: Data, recorded) -> None:
    """Optima are not unique, and the original returns an interior one: averages agree within a few percent."""
    trace = "n40_lam900_multi0_prio0_seed0.trace"
    original = recorded[trace, policy]
    summary = run(public_data, table, trace, original["cluster"], get_policy(policy)).summary()
    assert summary["completed_jobs"] == original["num_completed"]
    assert summary["average_jct"] == pytest.approx(original["avg_jct_s"], rel=tolerance)
    assert summary["makespan"] == pytest.approx(original["makespan_s"], rel=0.03)


def test_makespan_is_at_most_the_recorded_one(table, public_data: Data, recorded) -> None:
    """The original stops within 5 % of the least makespan of each decision, at a point that favours long jobs."""
    trace, policy = "n40_lam900_multi0_prio0_seed0.trace", "min_total_duration_packed"
    original = recorded[trace, policy]
    summary = run(public_data, table, trace, original["cluster"], get_policy(policy)).summary()
    assert summary["completed_jobs"] == original["num_completed"]
    assert summary["makespan"] <= original["makespan_s"]
    assert summary["average_jct"] <= original["avg_jct_s"]


@pytest.fixture
def instance(name: str, decisions: dict[str, Any]) -> tuple[ClusterState, dict[str, Any]]:
    """State of an instance with pairs, and what was recorded with the constraints corrected."""
    record = decisions[name]
    return state_of(record, pairs=True), record["results_packed_with_fixed_constraints"]


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_max_min_reaches_the_recorded_optimum(instance: tuple[ClusterState, dict[str, Any]]) -> None:
    state, results = instance
    allocation = get_policy("max_min_fairness_packed").allocate(state)
    assert allocation.status == "optimal"
    # The original computes in single precision.
    assert allocation.objective == pytest.approx(results["max_min_fairness_packed"]["last_lp_value"], rel=1e-6)


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_finish_time_fairness_reaches_the_recorded_optimum(instance: tuple[ClusterState, dict[str, Any]]) -> None:
    """The published packed policy divides throughput by the weight; with the steps left multiplied it is the same."""
    state, results = instance
    plain = FinishTimeFairnessPacked().objective(state)
    weighted = FinishTimeFairness(plain.elapsed, plain.remaining * state.priority_weights, plain.isolated)
    solution = solve_packed(PackedPolytope(state.packed, state.capacity), weighted)
    assert solution.objective == pytest.approx(results["finish_time_fairness_packed"]["last_lp_value"], rel=1e-6)
    if (state.priority_weights == 1).all():
        ours = get_policy("finish_time_fairness_packed").allocate(state)
        assert ours.objective == pytest.approx(solution.objective, rel=1e-9)


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_makespan_is_as_short_as_the_recorded_one_or_up_to_5_percent_shorter(
    instance: tuple[ClusterState, dict[str, Any]],
) -> None:
    state, results = instance
    rates = results["min_total_duration_packed"]["effective_throughput"]
    theirs = max(state.steps_remaining / np.array([rates[str(job)] for job in state.throughputs.jobs]))
    ours = get_policy("min_total_duration_packed").allocate(state).objective
    assert theirs / 1.05 <= ours <= theirs * (1 + 1e-6)
