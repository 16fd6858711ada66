"""Earliest deadline first: who gets what, by hand, and where late jobs stand when others ask to be let in."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import get_policy
from tests.policies.test_deadline_policies import gpus_of, state_of


def test_earliest_deadline_first_gives_each_all_it_can_use() -> None:
    """Eleven GPUs: eight for the job that is due first, two of the three that are left for the next, then one."""
    for name, options in (("edf", {}), ("edf_admission", {}), ("edf_admission", {"late_block": True})):
        policy = get_policy(name, **options)
        plan = policy.plan(state_of([300.0] * 3, [900.0, 70.0, 800.0], gpus=11), policy.new_memory())
        assert gpus_of(plan) == {1: 8, 2: 2, 0: 1}, name
        assert not len(plan.rejected)


def test_earliest_deadline_first_begins_with_those_who_are_late() -> None:
    policy = get_policy("edf")
    state = state_of([50.0] * 3, [60.0, -10.0, -5.0], gpus=1, clock=100.0)
    assert gpus_of(policy.plan(state, policy.new_memory())) == {1: 1}


@pytest.mark.parametrize(("late_block", "runs", "rejected"), [(False, 1, []), (True, 0, [2])])
def test_a_late_job_comes_last_under_admission_or_keeps_newcomers_out(late_block, runs, rejected) -> None:
    """One GPU: the first job is past its deadline, the second needs 50 s of the next 100, a newcomer 50 s of 250."""
    policy = get_policy("edf_admission", margin_seconds=0.0, late_block=late_block)
    memory = policy.new_memory()
    memory.unpromised = {0, 1}
    state = state_of([50.0] * 3, [-5.0, 100.0, 250.0], gpus=1, clock=100.0)
    plan = policy.plan(state, memory)
    assert gpus_of(plan) == {runs: 1}
    assert plan.rejected.tolist() == rejected
    assert memory.unpromised == {0, 1, 2} - set(rejected)


def test_of_several_late_jobs_under_admission_the_one_due_first_is_first() -> None:
    policy = get_policy("edf_admission")
    memory = policy.new_memory()
    memory.unpromised = {0, 1, 2}
    # best effort comes behind all of them
    plan = policy.plan(state_of([50.0] * 3, [-5.0, -10.0, np.inf], gpus=1, clock=100.0), memory)
    assert gpus_of(plan) == {1: 1}


def test_best_effort_is_in_nobodys_way_where_late_jobs_block() -> None:
    """The one GPU is for who has a deadline: 50 s of work until 60 s, though a job without one runs already."""
    policy = get_policy("edf_admission", margin_seconds=0.0, late_block=True)
    memory = policy.new_memory()
    memory.unpromised = {0}
    plan = policy.plan(state_of([500.0, 50.0], [np.inf, 60.0], gpus=1), memory)
    assert gpus_of(plan) == {1: 1}
    assert not len(plan.rejected)


def test_best_effort_is_served_once_where_late_jobs_block() -> None:
    """Eleven GPUs: eight for the newcomer, who has a deadline, and two of three for the job that has none."""
    policy = get_policy("edf_admission", late_block=True)
    memory = policy.new_memory()
    memory.unpromised = {0}
    plan = policy.plan(state_of([500.0, 50.0], [np.inf, 60.0], gpus=11), memory)
    assert gpus_of(plan) == {1: 8, 0: 2}
    assert sorted(plan.steps[0].assignment.jobs.tolist()) == [0, 1]
