"""The round mechanism against round logs of Gavel's own scheduler: every round, pair, GPU id and completion.

A log holds the shares that the original's policies returned; our mechanism must make the same rounds of them.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import numpy as np
import pytest

from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from formulations import Pairs
from tests.reference.gavel_replays import cluster_of, run_with
from tests.reference.tiers import tiered

PACKED = ("finish_time_fairness", "max_min_fairness", "max_min_fairness_water_filling", "min_total_duration", "fifo")
BLIND = ("fifo", "finish_time_fairness", "max_min_fairness", "max_min_fairness_water_filling", "min_total_duration")
ALONE = (*BLIND, *(f"{name}_perf" for name in (*BLIND, "max_sum_throughput")), "isolated")
LOGS = [
    *(("n40s", name) for name in (*ALONE, "allox", *(f"{name}_packed" for name in PACKED), "gandiva")),
    *(("n40m", name) for name in (*ALONE, "fifo_packed", "gandiva")),
]


def jobs_of(row: str) -> tuple[int, ...]:
    """Jobs of a row of the log: "3" or "(2, 3)"."""
    return tuple(int(number) for number in re.findall(r"\d+", row))


class Recorded(SharePolicy):
    """Returns the shares of a log, alone and in pairs, and checks that it is asked when the original was."""

    preemptive = True

    def __init__(self, log: dict[str, Any]) -> None:
        self.name = log["meta"]["policy"]
        self.heterogeneity_aware = not self.name.startswith("isolated") and self.name not in BLIND
        self.fills_idle_gpus = not self.name.startswith("fifo")
        self.types = log["worker_type_order"]
        self.recorded = iter(log["allocations"])

    def allocate(self, state: ClusterState) -> Allocation:
        clock, rows = next(self.recorded)
        assert state.clock == clock
        columns = [self.types.index(name) for name in state.cluster.accelerators]
        position = {job: i for i, job in enumerate(state.throughputs.jobs)}
        shares = {jobs_of(row): np.array(share)[columns] for row, share in rows.items()}
        assert sorted(jobs[0] for jobs in shares if len(jobs) == 1) == list(position)
        alone = np.array([shares[job,] for job in position]).reshape(len(position), len(columns))
        together = [
            (position[jobs[0]], position[jobs[1]], j, value)
            for jobs, share in sorted(shares.items(), key=lambda entry: entry[0])
            for j, value in enumerate(share)
            if len(jobs) == 2 and value
        ]
        if not together:
            return Allocation(self.name, state.throughputs, alone, status="feasible")
        first, second, pool = (np.array([pair[c] for pair in together], dtype=np.int64) for c in range(3))
        pairs = Pairs(first, second, pool, np.array([pair[3] for pair in together], dtype=np.float64))
        return Allocation(self.name, state.throughputs, alone, status="feasible", pairs=pairs)


class RecordedPairs(Recorded):
    """The same for a policy that shares GPUs."""

    needs = Need.COLOCATION | Need.ISOLATED_TIME


@pytest.mark.parametrize(
    ("workload", "policy"),
    tiered(
        LOGS,
        daily=[("n40s", "allox"), ("n40m", "max_min_fairness_perf"), ("n40s", "max_min_fairness_packed")],
        gate=[
            *(("n40s", name) for name in ("fifo_perf", "gandiva", "finish_time_fairness")),
            *(
                ("n40m", name)
                for name in ("fifo", "fifo_perf", "isolated", "fifo_packed", "gandiva", "max_min_fairness")
            ),
        ],
    ),
)
def test_recorded_shares_give_the_recorded_rounds(
    workload, policy, gavel_inputs, public_data, reference_data, gavel_runs
):
    with gzip.open(reference_data(f"gavel/round_logs/rounds_{workload}_{policy}.json.gz"), "rt") as file:
        log = json.load(file)
    meta, paired = log["meta"], policy.endswith("packed") or policy == "gandiva"
    asked = (RecordedPairs if paired else Recorded)(log)
    trace = meta["trace"].removesuffix(".trace")
    result = run_with(asked, trace, cluster_of(meta), public_data if paired else gavel_inputs, seed=meta["seed"])
    names = result.cluster.accelerators
    # the log closes with a round without jobs
    assert log["rounds"][-1][1] == []
    assert sum(outcome.rounds for outcome in result.record.outcomes) == len(log["rounds"]) - 1
    for outcome in result.record.outcomes:
        rows = outcome.assignment
        columns = (rows.jobs.tolist(), rows.pool.tolist(), outcome.gpus, rows.partner.tolist())
        ours = {
            tuple(sorted({job, partner} - {-1})): (names[j], sorted(gpus))
            for job, j, gpus, partner in zip(*columns, strict=True)
        }
        logged = log["rounds"][outcome.index : outcome.index + outcome.rounds]
        assert outcome.start_time == logged[0][0]
        for _, theirs in logged:
            assert {jobs_of(row): (name, sorted(gpus)) for row, name, gpus in theirs} == ours, outcome.index
    original = gavel_runs[trace, policy]
    assert result.makespan == original["makespan_s"]
    assert dict(enumerate(result.jobs["jct"])) == {int(job): jct for job, jct in original["jct_s"].items()}
    assert result.utilization == pytest.approx(original["utilization"], rel=1e-12)
    assert result.record.leases == (original["lease_ext"], original["lease_opp"])
