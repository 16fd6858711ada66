"""How often jobs keep their GPUs from round to round."""

from __future__ import annotations

import gzip
import json

import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import simulate
from throughputs import read_table, read_trace


@pytest.fixture(scope="module")
def public_data(gavel_inputs):
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


def leases(result):
    summary = result.summary()
    return summary["lease_extensions"], summary["lease_opportunities"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["isolated", "fifo_perf"])
def test_counts_of_the_original(policy, public_data, reference_data):
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
