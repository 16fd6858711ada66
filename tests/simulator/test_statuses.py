"""How jobs end: with their last step, cut off by a rule, given up, turned away, or never served."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy
from throughputs import Trace, default_table
from throughputs.training import profile_trace

LM, ROUNDS = "LM (batch size 10)", 120.0


def slow_only(state):
    """All on the k80, whatever the policy ought to do."""
    shares = np.zeros(state.rates.shape)
    shares[:, state.cluster.accelerators.index("k80")] = 1.0
    return shares


@pytest.mark.parametrize("name", ["shockwave", "shockwave_published"])
def test_a_job_that_runs_on_slower_gpus_than_it_was_profiled_on_is_cut_off(name):
    """Profiled where most GPUs are, allowed 1.5 times as long: on the k80 not half of the steps are done by then."""
    table, cluster = default_table(), Cluster({"v100": 3, "k80": 1})
    fast, slow = table.rates([LM], [1], ["v100", "k80"])[0]
    trace = Trace([LM], [1], [float(np.floor(fast * 5_000))], [0.0])
    policy = SharesPolicy(slow_only, fills_idle_gpus=False)
    result = simulate(trace, cluster, policy, table, preset=name)
    job = result.jobs.iloc[0]
    assert job["status"] == "cut_off"
    # At the end of the first round in which it is beyond 1.5 times its profile, which has whole epochs.
    limit = 1.5 * np.floor(profile_trace(trace, table, accelerator="v100").total_seconds[0])
    assert 7_500 < limit < job["completion_time"] <= limit + ROUNDS
    assert job["steps_done"] == pytest.approx(slow * job["completion_time"], rel=0.02)
    assert job["steps_done"] == result.rounds["steps"].sum()
    assert job["steps_done"] < job["total_steps"] / 2
    summary = result.summary()
    # It is through all the same, as far as numbers and times of completed jobs are concerned.
    assert (summary["cut_off_jobs"], summary["completed_jobs"], summary["unfinished_jobs"]) == (1, 1, 0)
    assert job["jct"] == job["completion_time"]
    assert result.makespan == job["completion_time"]


def test_a_job_that_is_through_in_time_has_done_all_its_steps():
    table = default_table()
    trace = Trace(
        [LM] * 6, [1, 2, 1, 4, 1, 2], [3e5] * 6, [60.0 * i for i in range(6)], mode=["gns", "static", "accordion"] * 2
    )
    result = simulate(trace, Cluster({"v100": 8}), get_policy("max_min_fairness"), table, preset="shockwave")
    jobs = result.jobs
    assert "steps_done" in jobs
    done = jobs["status"] == "completed"
    assert done.any()
    np.testing.assert_allclose(jobs["steps_done"][done], jobs["total_steps"][done])
    assert (jobs["steps_done"][jobs["status"] == "cut_off"] < jobs["total_steps"][jobs["status"] == "cut_off"]).all()
    # Without the rule there is no such column, and nobody is cut off.
    free = simulate(
        trace, Cluster({"v100": 8}), get_policy("max_min_fairness"), table,
        preset=preset("shockwave").replace(overtime_factor=None),
    )  # fmt: skip
    assert "steps_done" not in free.jobs
    assert (free.jobs["status"] == "completed").all()
