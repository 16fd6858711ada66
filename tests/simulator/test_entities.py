"""Entities in a simulation: who is served when, the table of results, traces, checkpoints, longer traces."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocator import Cluster, InputError, get_policy, simulate
from allocator.presets import preset
from allocator.protocol.entities import Entities
from tests.simulator.worlds import SharesPolicy
from throughputs import Trace

POLICY = "max_min_fairness_water_filling_perf"
QUEUE = {"queue": {"policy": "fifo"}, "team": 2, "inner": {"parent": "team"}}


def trace_of(entity, steps=None, arrivals=None):
    n = len(entity)
    return Trace(
        ["job"] * n, [1] * n, steps or [3600.0] * n, arrivals or [0.0] * n, entity=entity, source="jobs for teams"
    )


def ideal(trace, gpus, entities=None, policy=POLICY, **options):
    rates = np.ones((len(trace), 1))
    world = preset("default").replace(ideal=True)
    return simulate(
        trace, Cluster({"v100": gpus}), get_policy(policy), rates, preset=world, entities=entities, **options
    )


def test_the_table_counts_what_is_inside():
    result = ideal(trace_of(["queue", "inner", "team", "", "inner"]), 3, QUEUE)
    table = pd.DataFrame(result.summary().by_entity)
    assert table["entity"].tolist() == ["queue", "team", "inner", ""]
    assert table["parent"].tolist() == ["", "", "team", ""]
    assert table["jobs"].tolist() == [1, 3, 2, 1]
    assert table["policy"].tolist() == ["fifo", "fairness", "fairness", ""]
    jobs = result.jobs
    of_team = jobs[jobs["entity"].isin(["team", "inner"])]
    row = table.set_index("entity").loc["team"]
    assert row["average_jct"] == pytest.approx(of_team["jct"].mean())
    assert row["gpu_share"] == pytest.approx(of_team["gpu_seconds"].sum() / jobs["gpu_seconds"].sum())
    at_top = table["parent"] == ""
    assert table[at_top & (table["entity"] != "inner")]["throughput_share"].sum() == pytest.approx(1.0)
    assert result.settings["entities"]["inner"] == {"weight": 1.0, "policy": "fairness", "parent": "team"}


def test_an_unknown_entity_is_refused():
    with pytest.raises(InputError, match=r"jobs for teams:2: field 'entity': found 'quue'.*did you mean 'queue'"):
        ideal(trace_of(["queue", "quue"]), 1, QUEUE)


def test_rounds_see_the_active_jobs_only():
    """What the policy is told in rounds: entity and rank of the jobs that are there, in the order of their ids."""
    told = []
    policy = SharesPolicy()
    trace = trace_of(["queue", "", "inner", "team"], steps=[300.0, 4000.0, 4000.0, 4000.0], arrivals=[0, 0, 0, 3000])
    simulate(trace, Cluster({"v100": 4}), policy, np.ones((4, 1)), entities=QUEUE)
    known = Entities.parse(QUEUE)
    for state in policy.states:
        assert state.membership.arrival_rank.tolist() == list(state.throughputs.jobs)
        names = ["" if i < 0 else known.names[i] for i in state.membership.of_job]
        told.append(names)
        assert names == [trace.entity[job] for job in state.throughputs.jobs]
    assert told[0] == ["queue", "", "inner"]
    assert ["", "inner", "team"] in told
