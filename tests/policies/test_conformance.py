"""The conformance check: all registered policies and our examples pass it, and it finds what others lack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from allocator import Allocation, ClusterState, OrderPolicy, Plan, PlanPolicy, Policy, SharePolicy, list_policies
from allocator.protocol import Assignment
from allocator.testing import PolicyCheckError, check_policy

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "own_policies"


@pytest.mark.parametrize("name", [entry.name for entry in list_policies()])
def test_registered_policies_conform(name: str) -> None:
    check_policy(name)


@pytest.mark.parametrize(
    "name", ["equal_steps:EqualSteps", "envy_free:EnvyFree", "gang_quota:GangQuota", "least_gpu_time:LeastGpuTime"]
)
def test_the_examples_conform(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module, _, kind = name.partition(":")
    check_policy(getattr(__import__(f"own_policies.{module}", fromlist=[kind]), kind))


def test_the_elastic_example_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from own_policies.best_speedup import BestSpeedup

    check_policy(BestSpeedup())


@dataclass(frozen=True)
class Base(SharePolicy):
    """Equal shares of all types; what is wrong is in subclasses."""

    def shares(self, state: ClusterState) -> np.ndarray:
        per_gpu = state.capacity / max(int(state.scale_factors.sum()), int(state.capacity.sum()), 1)
        return np.tile(per_gpu, (state.n_jobs, 1)) * (state.runnable_rates > 0)

    def allocate(self, state: ClusterState) -> Any:
        return Allocation("mine", state.throughputs, self.shares(state), "closed form")


def lacking(policy: Policy | type[Policy]) -> tuple[list[str], str]:
    """Names of the properties that a policy lacks, and all that is said."""
    with pytest.raises(PolicyCheckError) as caught:
        check_policy(policy)
    return re.findall(r"^- (.*):$", str(caught.value), re.MULTILINE), str(caught.value)


def test_the_base_conforms() -> None:
    check_policy(Base)


class TooMuch(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return np.ones(state.rates.shape)


def test_shares_beyond_the_polytope() -> None:
    names, told = lacking(TooMuch)
    assert "answers with shares of time in the polytope" in names
    assert "copes with no GPUs" in names
    assert "job 0 has 3 of its time; at most 1" in told
    # the smallest example: one job, shown as it is
    assert "seen with 1 jobs (seed 0) on v100:4,p100:2,k80:2\n      job 0: " in told


class TooManyGpus(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        shares = np.zeros(state.rates.shape)
        shares[:, 0] = float(state.capacity[0] > 0)
        return shares


def test_more_gpus_than_there_are() -> None:
    names, told = lacking(TooManyGpus)
    assert "answers with shares of time in the polytope" in names
    assert "relative_shares = True" in told

    class AsPriorities(TooManyGpus):
        relative_shares: ClassVar[bool] = True

    check_policy(AsPriorities)


class FirstComeMost(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) / (1.0 + np.arange(state.n_jobs))[:, None]


def test_an_answer_that_depends_on_the_order_of_rows() -> None:
    names, told = lacking(FirstComeMost)
    assert names == ["minds no order of jobs"]
    assert "seen with 3 jobs" in told

    class OnPurpose(FirstComeMost):
        in_order_of_rows: ClassVar[bool] = True

    check_policy(OnPurpose)


class FasterGetMore(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        rates = state.rates.max(axis=1)
        return super().shares(state) * (rates / max(rates.max(initial=0.0), 1e-9))[:, None]


def test_an_answer_that_depends_on_the_unit_of_a_job() -> None:
    names, told = lacking(FasterGetMore)
    assert names == ["minds no unit of one job's throughput"]
    assert "unit_free = False" in told

    class OnPurpose(FasterGetMore):
        unit_free: ClassVar[bool] = False

    check_policy(OnPurpose)


class AboveAThousand(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) * np.where(state.steps_remaining > 1e6, 1.0, 0.5)[:, None]


def test_an_answer_that_depends_on_the_unit_of_all() -> None:
    assert "minds no common unit of throughput" in lacking(AboveAThousand)[0]


class Counts(Base):
    calls: ClassVar[list[int]] = []

    def shares(self, state: ClusterState) -> np.ndarray:
        self.calls.append(1)
        return super().shares(state) / (1.0 + len(self.calls) % 2)


def test_an_answer_that_depends_on_what_was_asked_before() -> None:
    assert "answers alike when asked twice" in lacking(Counts)[0]


class Writes(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        state.priority_weights = state.priority_weights * 2.0
        return super().shares(state)


def test_a_state_that_is_written_to() -> None:
    names, told = lacking(Writes)
    assert names == ["leaves the state as it is"]
    assert "state.priority_weights was changed by the policy" in told


class Boasts(Base):
    def allocate(self, state: ClusterState) -> Any:
        return Allocation("mine", state.throughputs, self.shares(state), "optimal", certified=True)


def test_an_optimum_without_a_bound() -> None:
    assert lacking(Boasts)[0] == ["proves what it calls optimal"]


class Fails(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) * (state.rates.max() > 0)


def test_an_error_is_told_with_its_place_and_once() -> None:
    names, told = lacking(Fails)
    assert "copes with no jobs" in names
    assert re.search(r"ValueError: zero-size array.*line \d+\)", told)


class Starves(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return np.zeros(state.rates.shape)


class StarvesForGood(Starves):
    fills_idle_gpus: ClassVar[bool] = False


def test_a_policy_that_serves_nobody() -> None:
    names, _ = lacking(StarvesForGood)
    assert names == ["runs a job that is alone", "carries a small simulation to its end"]


class Returns(Base):
    def allocate(self, state: ClusterState) -> Any:
        return self.shares(state)


def test_what_is_no_allocation() -> None:
    names, told = lacking(Returns)
    assert names[0] == "answers with shares of time in the polytope"
    assert "allocate returned ndarray" in told
    assert "the same as under" in told


class Notes:
    """A memory that forgets."""

    def __init__(self) -> None:
        self.seen = 0

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, data: dict[str, int]) -> None:
        pass


class Forgets(PlanPolicy):
    """Runs one more job every time it is asked."""

    def new_memory(self) -> Notes:
        return Notes()

    def plan(self, state: ClusterState, memory: Notes) -> Plan:
        memory.seen += 1
        alone = np.flatnonzero(state.scale_factors == 1)[: memory.seen]
        there = np.flatnonzero(state.capacity > 0)[:1]
        rows = alone if len(there) else alone[:0]
        return Plan.until_next_event(
            Assignment.of(rows[:4], np.full(len(rows[:4]), *there or [0]), [1] * len(rows[:4]))
        )


def test_a_memory_that_cannot_be_put_away() -> None:
    assert "plans alike with a memory that was put away" in lacking(Forgets)[0]


class LargestLast(OrderPolicy):
    """Smallest gangs first, largest id first among equals."""

    def key(self, state: ClusterState) -> np.ndarray:
        return state.scale_factors - 1e-3 * np.array(state.throughputs.jobs, dtype=float)


def test_an_order_conforms_without_a_name_and_without_a_decorator() -> None:
    check_policy(LargestLast)
