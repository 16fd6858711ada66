"""Policies stated in cvxpy, and statuses that are nobody's but the policy's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from allocator import Allocation, Cluster, ClusterState, ConvexPolicy, SharePolicy, ThroughputMatrix, get_policy
from allocator.checkpoint.state_file import Part
from allocator.instance import allocation_to_json
from throughputs import InputError


@dataclass(frozen=True)
class Total(ConvexPolicy):
    """Total throughput, as max_sum_throughput_perf."""

    unit = "steps/s"

    def statement(self, cp: Any, shares: Any, state: ClusterState) -> Any:
        return cp.Maximize(cp.sum(cp.multiply(state.rates, shares))), []


def test_a_statement_of_what_is_no_number_is_refused() -> None:
    class Unknown(Total):
        def statement(self, cp: Any, shares: Any, state: ClusterState) -> Any:
            return cp.Maximize(cp.sum(cp.multiply(state.rates * np.nan, shares))), []

    with pytest.raises(InputError, match=r"policy unknown: field 'statement'.*finite"):
        Unknown().allocate(state_of())


@dataclass(frozen=True)
class Welfare(ConvexPolicy):
    """Proportional fairness, as nash_welfare."""

    def statement(self, cp: Any, shares: Any, state: ClusterState) -> Any:
        throughput = cp.sum(cp.multiply(state.rates, shares), axis=1)
        return cp.Maximize(state.priority_weights @ cp.log(throughput)), []


def state_of(seed: int = 0, n_jobs: int = 9) -> ClusterState:
    rng = np.random.default_rng(seed)
    cluster = Cluster.parse("v100:3,p100:2,k80:0")
    matrix = ThroughputMatrix(
        rng.uniform(1.0, 9.0, (n_jobs, 3)), range(n_jobs), cluster.accelerators, rng.choice([1, 1, 2, 8], n_jobs)
    )
    return ClusterState(cluster, matrix, priority_weights=rng.choice([1.0, 4.0], n_jobs))


@pytest.mark.parametrize(("policy", "name"), [(Total(), "max_sum_throughput_perf"), (Welfare(), "nash_welfare")])
def test_agrees_with_the_registered_policy(policy: ConvexPolicy, name: str) -> None:
    state = state_of()
    mine, theirs = policy.allocate(state), get_policy(name).allocate(state)
    assert mine.status == theirs.status == "optimal"
    assert mine.objective == pytest.approx(theirs.objective, rel=1e-6)
    assert mine.unserved == theirs.unserved
    if name == "nash_welfare":
        np.testing.assert_allclose(mine.effective_throughput, theirs.effective_throughput, rtol=1e-3, atol=1e-6)
        assert mine.prices is not None
        assert theirs.prices is not None
        np.testing.assert_allclose(mine.prices[:2], theirs.prices[:2], rtol=1e-3)


@dataclass(frozen=True)
class ByHand(SharePolicy):
    """Shares of a solver of one's own."""

    word: str = "optimal"

    def allocate(self, state: ClusterState) -> Allocation:
        return Allocation("by_hand", state.throughputs, np.zeros(state.rates.shape), self.word, 1.0, gap=0.0)


@pytest.mark.parametrize("word", ["optimal", "feasible", "solved", "proven"])
def test_a_status_of_ones_own_is_a_claim_everywhere(word: str) -> None:
    allocation = ByHand(word).allocate(state_of())
    claim = f"claimed: {word}"
    assert allocation.status == claim
    assert replace(allocation, seconds=2.0).status == claim
    assert allocation_to_json(allocation)["status"] == claim
    kept = Part.of(allocation).tree()
    assert kept.status == claim
    assert ByHand("closed form").allocate(state_of()).status == "closed form"
