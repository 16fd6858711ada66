"""How often jobs keep their GPUs from round to round."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import simulate
from tests.simulator.worlds import SharesPolicy, make_trace, worlds
from throughputs import read_table, read_trace


@pytest.fixture(scope="module")
def public_data(gavel_inputs):
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


def leases(result) -> tuple[int, int]:
    summary = result.summary()
    return summary["lease_extensions"], summary["lease_opportunities"]


def test_taking_turns_extends_nothing_and_staying_extends_all() -> None:
    turns = simulate(make_trace([720, 720]), Cluster({"v100": 1}), SharesPolicy(), np.ones((2, 1)))
    # The second job runs to the end in the last two of rounds 0 1 0 1: none of the three chances is taken.
    assert turns.rounds["job_id"].tolist() == [0, 1, 0, 1]
    assert leases(turns) == (0, 2)
    stays = simulate(make_trace([720, 1080]), Cluster({"v100": 2}), SharesPolicy(), np.ones((2, 1)))
    assert leases(stays) == (3, 3)
    assert stays.summary()["lease_extension_rate"] == 1.0
    none = simulate(make_trace([360]), Cluster({"v100": 1}), SharesPolicy(), [[1.0]])
    assert leases(none) == (0, 0)
    assert none.summary()["lease_extension_rate"] is None


def test_a_job_left_over_had_its_chance() -> None:
    # The first job runs alone in round 0, then gives way to the second, and the window ends with that.
    trace = make_trace([7200, 360], arrivals=[0.0, 100.0])
    latest_first = SharesPolicy(lambda state: np.eye(state.n_jobs)[:, -1:])
    result = simulate(trace, Cluster({"v100": 1}), latest_first, np.ones((2, 1)), window=(1, 2))
    assert result.rounds["job_id"].tolist() == [0, 1]
    assert result.jobs["status"].tolist() == ["unfinished", "completed"]
    assert leases(result) == (0, 1)


@settings(max_examples=60)
@given(world=worlds())
def test_counted_by_hand(world) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, SharesPolicy(), rates)
    held: dict[int, frozenset[str]] = {}
    extensions = opportunities = 0
    completed = dict(zip(result.jobs["job_id"], result.jobs["completion_time"], strict=True))
    for _, rows in result.rounds.groupby("round"):
        now = {job: frozenset(gpus.split()) for job, gpus in zip(rows["job_id"], rows["gpus"], strict=True)}
        for job, gpus in held.items():
            opportunities += 1
            extensions += now.get(job) == gpus
        # Whoever completed in this round is not active in the next.
        ends = dict(zip(rows["job_id"], rows["end_time"], strict=True))
        held = {job: gpus for job, gpus in now.items() if completed[job] != ends[job]}
    assert leases(result) == (extensions, opportunities)


EXACT = ("isolated", "fifo_perf")


@pytest.mark.parametrize("policy", EXACT)
def test_counts_of_the_original(policy, public_data, reference_data) -> None:
    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    with gzip.open(reference_data("gavel/sim_results.jsonl.gz"), "rt") as lines:
        runs = [json.loads(line) for line in lines]
    wanted = {"policy": policy, "gen": None, "window": None, "interval": 360, "per_server": "1:1:1", "status": "ok"}
    chosen = [run for run in runs if run["trace"] and all(run[key] == value for key, value in wanted.items())]
    assert chosen
    for run in chosen:
        # The original numbers the GPUs of its types in alphabetical order.
        names = zip(("v100", "p100", "k80"), map(int, run["cluster"].split(":")), strict=True)
        trace = read_trace(public_data(f"gavel/traces/{run['trace']}"))
        result = simulate(
            trace, Cluster(dict(sorted(names))), get_policy(policy), table, preset="gavel", seed=run["seed"]
        )
        assert leases(result) == (run["lease_ext"], run["lease_opp"]), run["trace"]
