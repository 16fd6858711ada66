"""The conformance check: our examples pass it, and it finds what others lack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from allocator import Allocation, ClusterState, OrderPolicy, Plan, PlanPolicy, SharePolicy
from allocator.protocol import Assignment
from allocator.testing import PolicyCheckError, check_policy
from throughputs import InputError

UNIT = "minds no unit of one job's throughput"
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "own_policies"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["EqualSteps", "EnvyFree", "GangQuota", "LeastGpuTime", "FairShare", "Thrifty", "BestSpeedup"]
)
def test_the_examples_conform(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    policy = getattr(__import__(f"own_policies.{module}", fromlist=[name]), name)
    check_policy(policy, [UNIT] if name == "EqualSteps" else [])


@dataclass(frozen=True)
class Base(SharePolicy):
    """Equal shares of all types; what is wrong is in subclasses."""

    def shares(self, state: ClusterState) -> np.ndarray:
        per_gpu = state.capacity / max(int(state.scale_factors.sum()), int(state.capacity.sum()), 1)
        return np.tile(per_gpu, (state.n_jobs, 1)) * (state.runnable_rates > 0)

    def allocate(self, state: ClusterState) -> Any:
        return Allocation("mine", state.throughputs, self.shares(state), "closed form")


class TooMuch(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return np.ones(state.rates.shape)


class TooManyGpus(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        shares = np.zeros(state.rates.shape)
        shares[:, 0] = float(state.capacity[0] > 0)
        return shares


class FirstComeMost(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) / (1.0 + np.arange(state.n_jobs))[:, None]


class FasterGetMore(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        rates = state.rates.max(axis=1)
        return super().shares(state) * (rates / max(rates.max(initial=0.0), 1e-9))[:, None]


class AboveAThousand(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) * np.where(state.steps_remaining > 1e6, 1.0, 0.5)[:, None]


class Counts(Base):
    calls: ClassVar[list[int]] = []

    def shares(self, state: ClusterState) -> np.ndarray:
        self.calls.append(1)
        return super().shares(state) / (1.0 + len(self.calls) % 2)


class Writes(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        state.priority_weights = state.priority_weights * 2.0
        return super().shares(state)


class Boasts(Base):
    def allocate(self, state: ClusterState) -> Any:
        return Allocation("mine", state.throughputs, self.shares(state), "optimal", certified=True)


class Fails(Base):
    def shares(self, state: ClusterState) -> np.ndarray:
        return super().shares(state) * (state.rates.max() > 0)


class Starves(Base):
    fills_idle_gpus: ClassVar[bool] = False

    def shares(self, state: ClusterState) -> np.ndarray:
        return np.zeros(state.rates.shape)


class Returns(Base):
    def allocate(self, state: ClusterState) -> Any:
        return self.shares(state)


class Notes:
    """A memory that forgets."""

    seen = 0

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
        there = np.flatnonzero(state.capacity > 0)[:1]
        rows = np.flatnonzero(state.scale_factors == 1)[: min(memory.seen, 4) * len(there)]
        return Plan.until_next_event(Assignment.of(rows, np.full(len(rows), *there or [0]), [1] * len(rows)))


POLYTOPE = "answers with shares of time in the polytope"


@pytest.mark.parametrize(
    ("policy", "lacks", "alone", "told"),
    [
        # the smallest example: one job, shown as it is
        (TooMuch, POLYTOPE, False, ["job 0 has 3", "1 jobs (seed 0) on v100:4,p100:2,k80:2\n      job 0: ", "no GPUs"]),
        (TooManyGpus, POLYTOPE, False, ["relative_shares = True"]),
        (FirstComeMost, "minds no order of jobs", True, ["seen with 3 jobs", "in_order_of_rows = True"]),
        (FasterGetMore, UNIT, True, []),
        pytest.param(AboveAThousand, "minds no common unit of throughput", False, [], marks=pytest.mark.exhaustive),
        (Counts, "answers alike when asked twice", False, []),
        (Writes, "leaves the state as it is", True, ["state.priority_weights"]),
        (Boasts, "proves what it calls optimal", True, []),
        pytest.param(
            Fails, "copes with no jobs", False, ["ValueError: zero-size array", ", line "], marks=pytest.mark.exhaustive
        ),
        (Starves, "runs a job that is alone", False, ["carries a small simulation to its end"]),
        pytest.param(Returns, POLYTOPE, False, ["returned ndarray", "the same as under"], marks=pytest.mark.exhaustive),
        (Forgets, "plans alike with a memory that was saved", False, []),
    ],
)
def test_what_is_lacking_is_told(policy: type, lacks: str, alone: bool, told: list[str]) -> None:
    with pytest.raises(PolicyCheckError) as caught:
        check_policy(policy)
    found = re.findall(r"^- (.*):$", str(caught.value), re.MULTILINE)
    assert lacks in found
    assert not alone or found == [lacks]
    assert [words for words in told if words not in str(caught.value)] == []


class LargestLast(OrderPolicy):
    """Smallest gangs first, largest id first among equals; without a name and without a decorator."""

    def key(self, state: ClusterState) -> np.ndarray:
        return state.scale_factors - 1e-3 * np.array(state.throughputs.jobs, dtype=float)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (LargestLast, {}),
        pytest.param(TooManyGpus, {"relative_shares": True}, marks=pytest.mark.exhaustive),
        pytest.param(FirstComeMost, {"in_order_of_rows": True}, marks=pytest.mark.exhaustive),
    ],
)
def test_what_a_class_says_it_lacks_is_not_asked_for(policy: type, says: dict[str, bool]) -> None:
    check_policy(type("OnPurpose", (policy,), says))


def test_what_its_author_says_it_lacks_is_not_asked_for() -> None:
    check_policy(FasterGetMore, lacks=[UNIT])
    with pytest.raises(InputError, match=r"lacks.*'units'"):
        check_policy(FasterGetMore, lacks=["units"])
