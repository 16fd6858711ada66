"""Whole simulations under the preset "gavel" against recorded runs of the original (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from allocator import Cluster, get_policy, read_table, read_trace, simulate

# Which policies the original was run with on which trace.
RECORDED = {
    "n100_lam0_multi1_prio0_seed0": """
        fifo_perf max_min_fairness_perf min_total_duration min_total_duration_perf
    """,
    "n100_lam1200_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n100_lam1200_multi1_prio1_seed0": """
        isolated max_min_fairness max_min_fairness_perf
    """,
    "n120_lam600_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n150_lam600_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf
    """,
    "n200_lam300_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf
    """,
    "n40_lam1800_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n40_lam900_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
}
EXACT = ("isolated", "fifo_perf")
MAKESPAN = ("min_total_duration", "min_total_duration_perf")

SAME_INSTANT = 1e-6
"""Seconds: largest difference of a time called equal, some last digits of clocks of a million seconds."""


def runs_of(wanted):
    """(trace, policy) of the recorded runs of some policies."""
    return [(trace, policy) for trace, names in RECORDED.items() for policy in names.split() if wanted(policy)]


@pytest.fixture(scope="module")
def recorded(reference_data):
    with gzip.open(reference_data("gavel/sim_results.jsonl.gz"), "rt") as lines:
        runs = [json.loads(line) for line in lines]
    usual = {"gen": None, "window": None, "interval": 360, "per_server": "1:1:1", "status": "ok", "ideal": False}
    return {
        (run["trace"].removesuffix(".trace"), run["policy"]): run
        for run in runs
        if run["trace"] and all(run[key] == value for key, value in usual.items())
    }


@pytest.fixture(scope="module")
def table(public_data):
    return read_table(public_data("gavel/simulation_throughputs.json.gz"))


def replay(run, table, public_data, **settings):
    v100, p100, k80 = (int(count) for count in run["cluster"].split(":"))
    trace = read_trace(public_data(f"gavel/traces/{run['trace']}"))
    cluster = Cluster({"v100": v100, "p100": p100, "k80": k80})
    policy = get_policy(run["policy"], **settings)
    return simulate(trace, cluster, policy, table, preset="gavel", seed=run["seed"])


def assert_the_very_same(result, run):
    """Every job completes at the recorded instant, and so does the run; GPUs are as busy."""
    assert (result.jobs["status"] == "completed").all()
    jct = np.array([run["jct_s"][str(job)] for job in range(len(result.jobs))])
    np.testing.assert_allclose(result.jobs["jct"], jct, atol=SAME_INSTANT, rtol=0)
    assert result.makespan == pytest.approx(run["makespan_s"], abs=SAME_INSTANT)
    assert result.utilization == pytest.approx(run["utilization"], rel=1e-9)


@pytest.mark.parametrize(("trace", "policy"), runs_of(lambda policy: policy in EXACT))
def test_unique_allocations_give_the_very_same_run(recorded, table, public_data, trace, policy):
    """Where shares are unique every job completes at the recorded time."""
    run = recorded[trace, policy]
    assert_the_very_same(replay(run, table, public_data), run)


def assert_within_two_percent(summary, run):
    assert summary["completed_jobs"] == run["num_completed"]
    assert summary["average_jct"] == pytest.approx(run["avg_jct_s"], rel=0.02)
    assert summary["makespan"] == pytest.approx(run["makespan_s"], rel=0.02)
    assert summary["utilization"] == pytest.approx(run["utilization"], abs=0.01)


@pytest.mark.parametrize(("trace", "policy"), runs_of(lambda policy: policy.endswith("_perf") and policy not in EXACT))
def test_by_default(recorded, table, public_data, trace, policy):
    """The preset as it comes: averages within 2 % for every policy that distinguishes accelerator types."""
    run = recorded[trace, policy]
    assert_within_two_percent(replay(run, table, public_data, choice="published").summary(), run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(lambda policy: policy.startswith(("max_min", "min_total"))))
def test_on_the_path_of_the_original_solver(recorded, table, public_data, trace, policy):
    """With the homogeneous backend: within 2 %, the blind baselines and their random types included."""
    run = recorded[trace, policy]
    summary = replay(run, table, public_data, choice="published", solver="homogeneous").summary()
    assert_within_two_percent(summary, run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(lambda policy: policy not in EXACT))
def test_with_the_original_solver(recorded, table, public_data, trace, policy):
    """With ECOS itself, asked as the original asks it: the very same run, whether optima are unique or not."""
    pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    run = recorded[trace, policy]
    assert_the_very_same(replay(run, table, public_data, choice="published", solver="ecos"), run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(lambda policy: policy in MAKESPAN))
def test_makespan_gives_the_very_same_run(recorded, table, public_data, trace, policy):
    """The centre of what is feasible is unique: every job completes at its recorded time, without ECOS."""
    run = recorded[trace, policy]
    assert_the_very_same(replay(run, table, public_data, choice="published"), run)
