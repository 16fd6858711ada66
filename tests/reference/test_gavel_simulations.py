"""Whole simulations under the preset "gavel" against recorded runs of the original (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import read_table, read_trace
from tests.reference.gavel_replays import (
    FILLING,
    ORDERS,
    PATHS,
    RECORDED,
    SEED,
    agreement,
    printed_cells,
    recorded_jct,
    recorded_runs,
    replay,
    runs_of,
)
from tests.tables import printed_rows

MAKESPAN = ("min_total_duration", "min_total_duration_perf")
LEVELS = ("max_min_fairness", "max_min_fairness_perf")
PROGRAMS = (*LEVELS, *MAKESPAN, "max_sum_throughput_perf", "finish_time_fairness", "finish_time_fairness_perf")
AWARE = tuple(policy for policy in PROGRAMS if policy.endswith("_perf"))

SAME_INSTANT = 1e-6
"""Seconds: largest difference of a time called equal, some last digits of clocks of a million seconds."""


@pytest.fixture(scope="module")
def public_data(gavel_inputs):
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


@pytest.fixture(scope="module")
def recorded(reference_data):
    return recorded_runs(reference_data("gavel/sim_results.jsonl.gz"))


@pytest.fixture(scope="module")
def printed():
    """Cells of the table in docs/fidelity.md by trace, policy and column."""
    return printed_cells(printed_rows("gavel"))


@pytest.fixture(scope="module")
def table(public_data):
    return read_table(public_data("gavel/simulation_throughputs.json.gz"))


@pytest.fixture(scope="module")
def again(recorded, table, public_data):
    """A recorded run of the original, and the same here."""

    def run_again(trace, policy, **settings):
        run = recorded[trace, policy]
        return replay(run, read_trace(public_data(f"gavel/traces/{run['trace']}")), table, **settings), run

    return run_again


def assert_the_very_same(result, run):
    """Every job completes at the recorded instant, and so does the run; GPUs are as busy."""
    assert (result.jobs["status"] == "completed").all()
    np.testing.assert_allclose(result.jobs["jct"], recorded_jct(run), atol=SAME_INSTANT, rtol=0)
    assert result.makespan == pytest.approx(run["makespan_s"], abs=SAME_INSTANT)
    assert result.utilization == pytest.approx(run["utilization"], rel=1e-9)


def assert_within_two_percent(result, run):
    summary = result.summary()
    assert summary["completed_jobs"] == run["num_completed"]
    assert summary["average_jct"] == pytest.approx(run["avg_jct_s"], rel=0.02)
    assert summary["makespan"] == pytest.approx(run["makespan_s"], rel=0.02)
    assert summary["utilization"] == pytest.approx(run["utilization"], abs=0.01)


def test_all_runs_are_in_the_table(printed, recorded):
    listed = {(trace, policy) for trace, policy, _ in printed}
    assert listed == set(runs_of())
    assert {policy for _, policy in listed} == {*PROGRAMS, *ORDERS}
    assert listed <= set(recorded)
    assert set(RECORDED) == {trace for trace, _ in listed}


@pytest.mark.parametrize(("trace", "policy"), runs_of(*ORDERS))
def test_unique_allocations_give_the_very_same_run(again, printed, trace, policy):
    """Where shares are unique every job completes at the recorded time."""
    result, run = again(trace, policy)
    assert_the_very_same(result, run)
    assert printed[trace, policy, "auto"] == agreement(result, run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(*PROGRAMS))
def test_by_default(again, printed, trace, policy):
    """The preset as it comes: averages within 2 % for every policy that distinguishes accelerator types."""
    result, run = again(trace, policy, **PATHS["auto"])
    if policy in AWARE:
        assert_within_two_percent(result, run)
    assert printed[trace, policy, "auto"] == agreement(result, run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(*LEVELS, *MAKESPAN, "max_sum_throughput_perf"))
def test_on_the_path_of_the_original_solver(again, printed, trace, policy):
    """With the homogeneous backend: within 2 %, the blind baselines and their random types included."""
    result, run = again(trace, policy, **PATHS["homogeneous"])
    assert_within_two_percent(result, run)
    assert printed[trace, policy, "homogeneous"] == agreement(result, run)


@pytest.mark.parametrize(("trace", "policy"), runs_of(*PROGRAMS))
def test_with_the_original_solver(again, printed, trace, policy):
    """With ECOS itself, asked as the original asks it: the very same run, whether optima are unique or not."""
    pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    result, run = again(trace, policy, **PATHS["ecos"])
    assert_the_very_same(result, run)
    assert printed[trace, policy, "ecos"] == agreement(result, run)


@pytest.mark.parametrize(("trace", "policy"), FILLING)
def test_water_filling(again, trace, policy):
    """Averages within half a per cent; what the table prints."""
    result, run = again(trace, policy, **PATHS["auto"])
    assert result.summary()["completed_jobs"] == run["num_completed"]
    assert result.summary()["average_jct"] == pytest.approx(run["avg_jct_s"], rel=0.005)
    assert result.makespan == pytest.approx(run["makespan_s"], rel=0.005)
    assert [policy, trace.removesuffix(SEED), agreement(result, run)] in printed_rows("gavel-filling")


@pytest.mark.parametrize(("trace", "policy"), runs_of(*MAKESPAN))
def test_makespan_gives_the_very_same_run(again, trace, policy):
    """The centre of what is feasible is unique: every job completes at its recorded time, without ECOS."""
    assert_the_very_same(*again(trace, policy, **PATHS["auto"]))
