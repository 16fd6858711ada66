"""Policies against the original system's recorded decisions (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from allocator import get_policy
from allocator.instance import allocation_to_json
from formulations import MaxMin, isolated_throughput, proportional_throughput
from tests.reference.gavel_records import INSTANCES, recorded_throughput, state_of

PROGRAMS = [
    "max_min_fairness",
    "max_min_fairness_perf",
    "finish_time_fairness",
    "finish_time_fairness_perf",
    "min_total_duration",
    "min_total_duration_perf",
    "max_sum_throughput_perf",
]
MINIMISED = ("finish_time", "min_total")


def exact_optimum(record, policy):
    """The optimum that an independent formulation found."""
    exact = record["exact_highs"][policy]
    return exact if not isinstance(exact, dict) else exact.get("T_optimal_s", exact.get("max_rho"))


def recorded_value(record, policy):
    """What the original's allocation attains; None where it recorded none."""
    recorded = record["results"][policy]
    if policy.startswith("min_total"):
        return record["exact_highs"][policy]["T_returned_by_bisection_s"]
    return recorded.get("last_lp_value")


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("policy", PROGRAMS)
def test_objective_is_the_exact_optimum(decisions, name, policy):
    record = decisions[name]
    allocation = get_policy(policy).allocate(state_of(record))
    assert allocation.status == "optimal"
    assert allocation.objective == pytest.approx(exact_optimum(record, policy), rel=1e-6)
    recorded = recorded_value(record, policy)
    if recorded is not None and np.isfinite(recorded):
        sign = -1 if policy.startswith(MINIMISED) else 1
        assert sign * allocation.objective >= sign * recorded - 1e-6 * abs(recorded)


@pytest.mark.parametrize("name", INSTANCES)
def test_yardsticks_are_equal(decisions, name):
    record = decisions[name]
    state = state_of(record)
    jobs = [str(job) for job in state.throughputs.jobs]
    isolated = [record["results"]["_isolated_throughputs"][job] for job in jobs]
    proportional = [record["results"]["_proportional_throughputs"][job] for job in jobs]
    ours = isolated_throughput(state.rates, state.scale_factors, state.capacity)
    np.testing.assert_allclose(ours, isolated, rtol=1e-9)
    np.testing.assert_allclose(proportional_throughput(state.rates, state.capacity), proportional, rtol=1e-9)
    np.testing.assert_allclose(get_policy("isolated").allocate(state).effective_throughput, isolated, rtol=1e-9)
    np.testing.assert_allclose(get_policy("proportional").allocate(state).effective_throughput, proportional, rtol=1e-9)


@pytest.mark.parametrize("name", INSTANCES)
def test_order_policy_places_alike(decisions, name):
    """fifo_perf is deterministic: the same jobs at the same speed, so on the same types."""
    record = decisions[name]
    state = state_of(record)
    throughput = get_policy("fifo_perf").allocate(state).effective_throughput
    np.testing.assert_array_equal(throughput, recorded_throughput(record["results"]["fifo_perf"], state))


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "min_total_duration_perf", "max_sum_throughput_perf"])
def test_published_point_with_the_original_solver(decisions, name, policy):
    """With ECOS and the published choice every job's throughput is the recorded one, degenerate as optima may be."""
    pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    record = decisions[name]
    recorded = record["results"][policy]
    state = state_of(record)
    throughput = get_policy(policy, choice="published", solver="ecos").allocate(state).effective_throughput
    np.testing.assert_allclose(throughput, recorded_throughput(recorded, state), rtol=1e-5, atol=1e-8)


def test_answer_in_json(decisions):
    """The answer holds what scripts read, and its numbers add up."""
    record = decisions["i09_n32_multi"]
    state = state_of(record)
    answer = json.loads(json.dumps(allocation_to_json(get_policy("max_min_fairness_perf").allocate(state))))
    throughput = dict.fromkeys(answer["effective_throughput"], 0.0)
    rates = {str(job["job_id"]): job["throughputs"] for job in record["instance"]["jobs"]}
    for entry in answer["allocation"]:
        (job,) = entry["jobs"]
        throughput[str(job)] += entry["share"] * rates[str(job)][entry["accelerator"]]
    assert throughput == pytest.approx(answer["effective_throughput"])
    assert set(answer["prices"]) == {"v100", "p100", "k80"}
    yardstick = proportional_throughput(state.rates, state.capacity)
    objective = MaxMin(state.priority_weights * yardstick / state.scale_factors)
    assert objective.value(np.array(list(throughput.values()))) == pytest.approx(answer["objective"])
