"""ElasticFlow's question answered by a program: in which order it is asked, what is proven, and who is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import get_policy
from formulations import SolverError
from formulations.deadlines.patterns import plans_by_patterns
from tests.policies.test_elasticflow import asked, state_of
from throughputs.configurations import Configurations

NAME = "elasticflow_mip"
OPTIMUM = "allocator.policies.deadlines.optimum"


def answer_of(state: Any, **options: Any) -> Any:
    return get_policy(NAME, **{"margin_seconds": 0.0, "time_limit_seconds": 60.0} | options).allocate(state)


def wide_and_pairs(n: int) -> Any:
    """50 s on three GPUs, and then jobs of 60 s on two of them; all until 100 s on three GPUs."""
    ways = Configurations(range(n), [0] * n, [3] + [2] * (n - 1), [1.0] * n, jobs=range(n), pools=["a100"])
    return state_of("50<100" + " 60<100" * (n - 1), gpus=3, configurations=ways)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_program_admits_the_most_value(solver, monkeypatch) -> None:
    """On four GPUs until 100 s: the last job alone is worth more than those that come before it together."""
    told = set()

    def patterns(*args: Any, **options: Any) -> Any:
        told.add(options["solver"])
        return plans_by_patterns(*args, **options)

    monkeypatch.setattr(f"{OPTIMUM}.plans_by_patterns", patterns)
    weights = np.array([1.0, 1.0, 2.5])
    state = state_of("100<100 150<100 330<100", gpus=4, priority_weights=weights)
    answer = answer_of(state, solver=solver)
    assert (answer.rejected, answer.objective, answer.status, answer.solver) == ((0, 1), 2.5, "optimal", solver)
    assert (answer.bound, answer.gap) == pytest.approx((2.5, 0.0), abs=1e-7)
    assert told == {solver}
    assert get_policy("elasticflow", margin_seconds=0.0).allocate(state).rejected == (2,)


@pytest.mark.parametrize(
    ("said", "weights", "rejected", "met", "bound"),
    [
        # a job that other orders do not let in: without time for the programs, nobody knows whether it could be
        ("150<100 330<100", [1.0, 1.0], (1,), 1.0, 2.0),
        # of those that do not fit beside each other, the one that is worth most is asked first
        ("330<100 330<100 330<100", [1.0, 3.0, 2.0], (0, 2), 3.0, 6.0),
        # who is due already is not asked about, and no part of the bound
        ("50<0 50<100", [1.0, 1.0], (0,), 1.0, 1.0),
    ],
)
def test_without_time_for_programs(said, weights, rejected, met, bound) -> None:
    state = state_of(said, gpus=4, clock=100.0, priority_weights=np.array(weights))
    answer = answer_of(state, time_limit_seconds=1e-9)
    assert (answer.rejected, answer.objective, answer.bound) == (rejected, met, bound)
    assert (answer.gap, answer.status) == ((bound - met) / bound, "optimal" if met == bound else "feasible")


def test_a_promise_comes_before_more_value() -> None:
    more = state_of("150<100 330<100", gpus=4, priority_weights=np.array([1.0, 9.0]))
    _, plan, _ = asked(NAME, state_of("150<100", gpus=4), more, margin_seconds=0.0)
    assert plan.rejected.tolist() == [1]


def test_a_solver_that_fails_is_named(monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SolverError("highs: out of order")

    monkeypatch.setattr(f"{OPTIMUM}.plans_by_patterns", fails)
    with pytest.warns(UserWarning, match="elasticflow_mip.*out of order"):
        answer = answer_of(state_of("100<100 150<100", gpus=4))
    assert (answer.rejected, answer.objective, answer.fallbacks) == ((), 2.0, ("auto",))


def test_the_program_proves_that_a_single_newcomer_cannot_be_let_in() -> None:
    """Shares would do, whole GPUs not; of two newcomers, nothing is proven of the best there is."""
    for n, bound, status in ((1, 1.0, "optimal"), (2, 2.0, "feasible")):
        _, plan, _ = asked(NAME, wide_and_pairs(1), wide_and_pairs(1 + n), margin_seconds=0.0)
        assert plan.rejected.tolist() == list(range(1, 1 + n))
        assert (plan.allocation.objective, plan.allocation.bound) == (1.0, pytest.approx(bound))
        assert plan.allocation.status == status
