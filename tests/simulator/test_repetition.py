"""Many equal rounds as one step: quick, and to the last digit what running them one by one gives."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from allocator.simulator import rounds as rounds_module
from allocator.simulator.rounds import advance, equal_increments, rounds_ahead
from tests.simulator.worlds import SharesPolicy, equal_shares, make_trace
from throughputs import Trace, default_table

ONE_GPU = Cluster({"v100": 1})
LM = "LM (batch size 10)"
MANY = 1e9
FEW_OUTCOMES = 1_000
PRESETS = ["default", "gavel", "shockwave", "shockwave_published"]


def lm_of(rounds, name):
    """One job of so many rounds under a preset."""
    rate = default_table().rates([LM], [1], ["v100"])[0, 0]
    steps = np.floor(rate * preset(name).mechanism.round_seconds) * rounds
    return Trace([LM], [1], [float(steps)], [0.0])


@pytest.mark.parametrize(
    ("policy", "name"), [("max_min_fairness", "default"), ("fifo", "gavel"), ("isolated", "shockwave_published")]
)
def test_a_job_of_a_billion_rounds_ends(policy, name):
    started = time.process_time()
    result = simulate(lm_of(MANY, name), ONE_GPU, get_policy(policy), default_table(), preset=name)
    job, record = result.jobs.iloc[0], result.record
    assert time.process_time() - started < 5.0
    assert len(record.outcomes) < FEW_OUTCOMES
    assert len(result.timeline) == len(result.rounds) == len(record.outcomes)
    assert job["status"] == "completed"
    # A round in which nothing is cut to whole steps does a little more.
    assert sum(outcome.rounds for outcome in record.outcomes) == pytest.approx(MANY, rel=1e-4)
    assert job["rounds_run"] == sum(outcome.rounds for outcome in record.outcomes)
    rate = default_table().rates([LM], [1], ["v100"])[0, 0]
    assert job["jct"] == pytest.approx(job["total_steps"] / rate, rel=1e-6)
    # Adding so many small numbers to a large one rounds each of them, as it does one by one.
    assert sum(outcome.steps.sum() for outcome in record.outcomes) == pytest.approx(job["total_steps"], rel=1e-7)
    summary = result.summary()
    assert summary["rounds"] == job["rounds_run"]
    assert summary["lease_extensions"] == summary["lease_opportunities"] == job["rounds_run"] - 1
    assert summary["utilization"] == pytest.approx(1.0)


def both_ways(run):
    """The run with rounds taken at once as soon as there are a few, and one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds_module, "LEAST_ROUNDS", 8)
        patch.setattr(rounds_module, "_TRY_AFTER", 2)
        at_once = run()
        patch.setattr(rounds_module, "LEAST_ROUNDS", float("inf"))
        one_by_one = run()
    return at_once, one_by_one


def who_runs_where(outcome):
    rows = outcome.assignment
    places = zip(rows.pool.tolist(), rows.partner.tolist(), outcome.gpus, strict=True)
    return dict(zip(rows.jobs.tolist(), places, strict=True))


def assert_identical(at_once, one_by_one):
    """Every column of every job, and the rounds where several are one.

    Only sums over rows of the record, which are added up in the end, may differ in their last digits.
    """
    summed = at_once.jobs.columns.intersection(["gpu_seconds", "running_time", "queueing_time", "cost"])
    mine, its = at_once.jobs, one_by_one.jobs
    pd.testing.assert_frame_equal(mine.drop(columns=summed), its.drop(columns=summed), check_exact=True)
    scale = np.nan_to_num(mine["jct"].max())
    np.testing.assert_allclose(
        mine[summed].to_numpy(float), its[summed].to_numpy(float), rtol=1e-11, atol=1e-11 * scale
    )
    few, many = at_once.record, one_by_one.record
    assert all(outcome.rounds == 1 for outcome in many.outcomes)
    for outcome in few.outcomes:
        last = many.outcomes[outcome.index + outcome.rounds - 1]
        first = many.outcomes[outcome.index]
        assert (outcome.start_time, outcome.end_time) == (first.start_time, last.end_time)
        for each in many.outcomes[outcome.index : outcome.index + outcome.rounds]:
            # Who was chosen first may change from round to round, where all run anyway.
            assert who_runs_where(each) == who_runs_where(outcome)


@st.composite
def long_worlds(draw):
    """Jobs of up to some hundred rounds on a cluster that is seldom full; rates without short binary fractions."""
    m = draw(st.integers(1, 2))
    gpus = {f"type{j}": draw(st.integers(1, 4)) for j in range(m)}
    n = draw(st.integers(1, 4))
    gaps = st.sampled_from([0.0, 0.0, 777.7, 9_000.0, 123_456.7])
    arrivals = np.cumsum([draw(gaps) for _ in range(n)])
    steps = [draw(st.sampled_from([1e2, 1e4, 1e5])) * draw(st.floats(0.5, 1.0)) for _ in range(n)]
    sizes = [draw(st.sampled_from([1, 1, 2])) for _ in range(n)]
    rates = np.array([[draw(st.floats(0.1, 9.0)) for _ in range(m)] for _ in range(n)])
    return make_trace(steps, sizes, arrivals.tolist()), Cluster(gpus), rates


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(world=long_worlds(), name=st.sampled_from(PRESETS), aware=st.booleans())
def test_random_worlds(world, name, aware):
    trace, cluster, rates = world

    def run():
        policy = SharesPolicy(equal_shares, heterogeneity_aware=aware)
        return simulate(trace, cluster, policy, rates, preset=name, prices=dict.fromkeys(cluster.accelerators, 1.3))

    assert_identical(*both_ways(run))


@given(x=st.floats(1.0, 1e12), d=st.floats(1e-3, 1e6))
def test_sums_taken_at_once_are_sums_added_one_by_one(x, d):
    seen = [[np.array([x, 1.0])]]
    d = np.array([d, 0.7])
    for _ in range(3):
        seen.append([seen[-1][0] + d])
    sums, added = seen[-1], equal_increments(*seen[-3:])
    rounds = min(rounds_ahead(sums, added), 1000)
    plain = sums[0].copy()
    for _ in range(rounds):
        plain = plain + d
    advance(sums, added, rounds)
    assert sums[0].tolist() == plain.tolist()
