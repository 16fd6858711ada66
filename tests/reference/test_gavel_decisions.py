"""Single decisions against those recorded of the original system (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import get_policy
from allocator.policies.gavel.packed import FinishTimeFairnessPacked
from formulations import (
    FinishTimeFairness,
    PackedPolytope,
    solve,
)
from tests.reference.gavel_records import INSTANCES, WITH_PAIRS, recorded_throughput, state_of

COST = "max_sum_throughput_normalized_by_cost_perf"
STRATEGY_PROOF = "max_min_fairness_strategy_proof_perf"
PROGRAMS = (
    *("max_min_fairness", "max_min_fairness_perf", "finish_time_fairness", "finish_time_fairness_perf"),
    *("min_total_duration", "min_total_duration_perf", "max_sum_throughput_perf", COST, f"{COST}_SLOs"),
)


def instances(names: tuple[str, ...] = INSTANCES, small: int = 5) -> Any:
    """Parameters: the first few, and the others in the gate."""
    rest = [pytest.param(name, marks=pytest.mark.exhaustive) for name in names[small:]]
    return pytest.mark.parametrize("name", [*names[:small], *rest])


@instances()
def test_objectives_are_the_exact_optima(decisions, name):
    """Those of an independent formulation, and never worse than what the original's allocation attains."""
    record = decisions[name]
    state, exact = state_of(record), record["exact_highs"]
    for policy in PROGRAMS:
        optimum, recorded = exact[policy], record["results"][policy].get("last_lp_value")
        if isinstance(optimum, dict):
            assert optimum.get("feasible", True)
            optimum = next(optimum[key] for key in ("T_optimal_s", "max_rho", "objective") if key in optimum)
        if policy.startswith("min_total"):
            recorded = exact[policy]["T_returned_by_bisection_s"]
        sign = -1 if policy.startswith(("finish_time", "min_total")) else 1
        for choice in ("balanced", "published") if policy.startswith(COST) else ("balanced",):
            allocation = get_policy(policy, choice=choice).allocate(state)
            assert (allocation.status, allocation.dropped_slos) == ("optimal", ()), policy
            assert allocation.objective == pytest.approx(optimum, rel=1e-7 if policy.startswith(COST) else 1e-6), policy
            if policy.startswith(COST):
                assert allocation.bound >= optimum * (1 - 1e-9)
            if recorded is not None and np.isfinite(recorded):
                assert sign * allocation.objective >= sign * recorded - 1e-6 * abs(recorded), policy


@instances(small=3)
def test_published_point_with_the_original_solver(decisions, name):
    """With ECOS and the published choice every job's throughput is the recorded one, degenerate as optima may be."""
    pytest.importorskip("ecos", reason="ECOS is an extra: pip install cluster-allocator[ecos]")
    state = state_of(decisions[name])
    for policy in ("max_min_fairness_perf", "min_total_duration_perf", "max_sum_throughput_perf"):
        throughput = get_policy(policy, choice="published", solver="ecos").allocate(state).effective_throughput
        recorded = recorded_throughput(decisions[name]["results"][policy], state)
        np.testing.assert_allclose(throughput, recorded, rtol=1e-5, atol=1e-8, err_msg=policy)


@instances(WITH_PAIRS, small=3)
def test_discounts_and_throughputs_without_incentive_to_lie(decisions, name):
    """The two solvers of the original differ in the discounts by up to 2e-5; the products agree."""
    state, recorded = state_of(decisions[name]), decisions[name]["results"][STRATEGY_PROOF]
    policy = get_policy(STRATEGY_PROOF)
    np.testing.assert_allclose(policy.discounts(state).factors, recorded["discount_factors"], atol=2e-5)
    throughput = policy.allocate(state).effective_throughput
    np.testing.assert_allclose(throughput, recorded_throughput(recorded, state), rtol=1e-6)


@instances(WITH_PAIRS, small=3)
def test_programs_with_pairs_reach_the_recorded_optima(decisions, name):
    """As far as the original computes, in single precision, its constraints corrected; its bisection stops at 5 %."""
    record, costly = decisions[name], "max_sum_throughput_normalized_by_cost_packed_SLOs"
    state, results = state_of(record, pairs=True), record["results_packed_with_fixed_constraints"]
    found = {name: get_policy(name).allocate(state) for name in ("max_min_fairness_packed", costly)}
    for policy, allocation in found.items():
        assert (allocation.status, allocation.dropped_slos) == ("optimal", ())
        assert allocation.objective == pytest.approx(results[policy]["last_lp_value"], rel=1e-6)
    exact = record["exact_highs"][costly]["objective"]
    assert found[costly].objective == pytest.approx(exact, rel=1e-7)
    assert found[costly].bound >= exact * (1 - 1e-7)
    # the published policy divides throughput by the weight; with the steps left multiplied it is the same
    plain = FinishTimeFairnessPacked().objective(state)
    weighted = FinishTimeFairness(plain.elapsed, plain.remaining * state.priority_weights, plain.isolated)
    fairest = solve(PackedPolytope(state.packed, state.capacity), weighted).objective
    assert fairest == pytest.approx(results["finish_time_fairness_packed"]["last_lp_value"], rel=1e-6)
    if (state.priority_weights == 1).all():
        ours = get_policy("finish_time_fairness_packed").allocate(state).objective
        assert ours == pytest.approx(fairest, rel=1e-9)
    theirs = max(state.steps_remaining / recorded_throughput(results["min_total_duration_packed"], state))
    assert theirs / 1.05 <= get_policy("min_total_duration_packed").allocate(state).objective <= theirs * (1 + 1e-6)
