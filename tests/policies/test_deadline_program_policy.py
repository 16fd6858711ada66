"""ElasticFlow's question answered by a program: in which order it is asked, what is proven, and who is asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from formulations.columns import InfeasibleError
from formulations.deadlines.patterns import plans_by_patterns
from formulations.deadlines.program import most_value
from tests.policies.test_deadline_policies import state_of
from throughputs.configurations import Configurations


def test_the_program_asks_those_of_more_value_first() -> None:
    """Without time for programs: of two that do not fit beside each other, the one that is worth more."""
    weights = np.array([1.0, 3.0, 2.0])
    state = state_of([60.0] * 3, [100.0] * 3, gpus=1, priority_weights=weights)
    policy = get_policy("elasticflow_mip", margin_seconds=0.0, time_limit_seconds=1e-9)
    answer = policy.allocate(state)
    assert answer.rejected == (0, 2)
    assert (answer.objective, answer.bound, answer.status) == (3.0, 6.0, "feasible")


def test_the_program_turns_away_who_is_due_already() -> None:
    """Not asked about, and no part of the bound: the other job is all there is to promise, without any program."""
    state = state_of([50.0, 50.0], [0.0, 100.0], gpus=4, clock=100.0)
    answer = get_policy("elasticflow_mip", margin_seconds=0.0, time_limit_seconds=1e-9).allocate(state)
    assert answer.rejected == (0,)
    assert (answer.objective, answer.bound, answer.status) == (1.0, 1.0, "optimal")


def test_the_program_proves_that_a_single_newcomer_cannot_be_let_in() -> None:
    """Shares would do, whole GPUs not: two jobs that need all three GPUs, or two of them, for more than half the time.

    With a second newcomer out of the two, nothing is proven of the best there is.
    """
    policy = get_policy("elasticflow_mip", margin_seconds=0.0)
    for n, bound, status in ((1, 1.0, "optimal"), (2, 2.0, "feasible")):
        memory = policy.new_memory()
        assert not len(policy.plan(wide_and_pairs(1), memory).rejected)
        plan = policy.plan(wide_and_pairs(1 + n), memory)
        assert plan.rejected.tolist() == list(range(1, 1 + n))
        assert plan.allocation is not None
        assert (plan.allocation.objective, plan.allocation.bound) == (1.0, pytest.approx(bound))
        assert plan.allocation.status == status


def wide_and_pairs(n: int) -> ClusterState:
    """50 s on three GPUs, and then jobs of 60 s on two of them; all until 100 s on three GPUs."""
    return ClusterState(
        Cluster({"a100": 3}),
        ThroughputMatrix(np.ones((n, 1)), range(n), ["a100"]),
        configurations=Configurations(range(n), [0] * n, [3] + [2] * (n - 1), [1.0] * n, jobs=range(n), pools=["a100"]),
        steps_remaining=np.array([50.0] + [60.0] * (n - 1)),
        slo_seconds=np.full(n, 100.0),
    )


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_program_asks_the_solver_that_it_was_told_to(solver, monkeypatch) -> None:
    asked = []

    def patterns(*args: Any, **options: Any) -> Any:
        asked.append(options["solver"])
        return plans_by_patterns(*args, **options)

    monkeypatch.setattr("allocator.policies.deadlines.optimum.plans_by_patterns", patterns)
    get_policy("elasticflow_mip", solver=solver).allocate(state_of([100.0, 150.0], [100.0, 100.0], gpus=4))
    assert set(asked) == {solver}


@pytest.mark.parametrize(("said", "bound", "gap"), [(1e9, 2.0, 0.5), (0.0, 1.0, 0.0), (None, np.inf, np.inf)])
def test_the_bound_is_no_more_than_all_and_no_less_than_what_is_met(said, bound, gap, monkeypatch) -> None:
    """Of two jobs that other orders do not let in beside each other; None: no schedule keeps the promises there are."""

    def most(*_: Any, **__: Any) -> Any:
        if said is None:
            raise InfeasibleError("promises rest on rounding")
        found = most_value(*_, **__)
        stage = dataclasses.replace(found.stages[0], bound=said)
        return dataclasses.replace(found, stages=(stage, *found.stages[1:]))

    monkeypatch.setattr("allocator.policies.deadlines.optimum.most_value", most)
    answer = get_policy("elasticflow_mip", margin_seconds=0.0).allocate(wide_and_pairs(2))
    assert (answer.objective, answer.bound, answer.gap) == (1.0, bound, gap)
    assert answer.status == ("optimal" if gap == 0.0 else "feasible")


def test_plans_that_take_no_less_gpu_time_are_not_taken_over(monkeypatch) -> None:
    """600 steps until 101 s: eight GPUs until 100 s by least shares, and 0.6 % less GPU time by patterns."""
    state = state_of([600.0, 500.0], [101.0, 400.0])
    for more, seconds in ((0.0, 98.6), (1e9, 100.0)):

        def patterns(*args: Any, more: float = more, **options: Any) -> Any:
            found = plans_by_patterns(*args, **options)
            return dataclasses.replace(found, gpu_seconds=found.gpu_seconds + more)

        monkeypatch.setattr("allocator.policies.deadlines.optimum.plans_by_patterns", patterns)
        policy = get_policy("elasticflow_mip", margin_seconds=0.0)
        assert policy.plan(state, policy.new_memory()).steps[0].seconds == pytest.approx(seconds, rel=1e-5)
