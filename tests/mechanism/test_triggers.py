"""What a policy did not ask for costs nothing: triggers and needs, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import (
    Allocation,
    Assignment,
    JobTable,
    Need,
    Plan,
    PlanPolicy,
    SharePolicy,
    Trigger,
)
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns
from throughputs.prices import PriceTable

CLUSTER = Cluster({"v100": 4})
SINGLE = [t for t in Trigger if t in Trigger.USUAL or t is Trigger.PRICES]
PRICES = PriceTable({"v100": ([0.0, 600.0], [1.0, 2.0])})


def shares_policy(chosen, wanted=Need.NOTHING):
    class Shares(SharePolicy):
        name = "shares"
        triggers = chosen
        needs = wanted

        def allocate(self, state):
            STATES.append(state)
            return Allocation(self.name, state.throughputs, np.full(state.rates.shape, 0.5), "closed form")

    return Shares()


def plan_policy(chosen, wanted=Need.NOTHING):
    class Everybody(PlanPolicy):
        name = "everybody"
        triggers = chosen
        needs = wanted

        def plan(self, state, memory):  # noqa: ARG002
            STATES.append(state)
            jobs = np.arange(state.n_jobs)
            return Plan.until_next_event(Assignment.of(jobs, 0 * jobs, 1 + 0 * jobs))

    return Everybody()


STATES = []


def core_of(policy, **settings):
    """Three jobs have arrived and the policy was asked about them."""
    columns = PackedColumns([0] * 4, [[1.0]], [[[0.6]]], accelerators=["v100"])
    jobs = JobTable.from_trace(make_trace([1e6] * 4), columns, CLUSTER, needs=policy.needs)
    STATES.clear()
    core = DecisionCore(policy, CLUSTER, jobs, MechanismSettings(**settings), prices=PRICES)
    core.arrive([0, 1, 2])
    core.next(0.0)
    if not core.policy_calls:  # shares that nobody wanted to give at the first arrival
        core.tell(policy.triggers)
        core.next(0.0)
    return core


HAPPENS = {
    Trigger.ARRIVAL: lambda core: core.arrive([3]),
    Trigger.COMPLETION: lambda core: core.complete([1]),
    Trigger.RATES: lambda core: core.rates_changed(np.array([1])),
    Trigger.PRICES: lambda core: core.next(700.0),
    Trigger.CAPACITY: lambda core: core.tell(Trigger.CAPACITY),
    Trigger.TROUBLE: lambda core: core.tell(Trigger.TROUBLE),
}


@pytest.mark.parametrize("kind", [shares_policy, plan_policy])
@pytest.mark.parametrize("happens", SINGLE)
@pytest.mark.parametrize("chosen", [*SINGLE, Trigger(0)])
def test_a_policy_is_asked_about_what_it_chose_and_nothing_else(kind, happens, chosen):
    core = core_of(kind(chosen))
    core.next(100.0)
    asked = core.policy_calls
    HAPPENS[happens](core)
    decision = core.next(800.0 if happens is Trigger.PRICES else 200.0)
    assert core.policy_calls - asked == (1 if happens is chosen else 0)
    if happens is not Trigger.PRICES:  # there the policy was asked on the way
        assert decision.recomputed == (happens is chosen)
    core.next(900.0 if happens is Trigger.PRICES else 300.0)
    assert core.policy_calls - asked == (1 if happens is chosen else 0)


def test_changed_rates_are_told_only_where_they_are_news():
    for news in (True, False):
        core = core_of(shares_policy(Trigger.USUAL))
        asked = core.policy_calls
        core.rates_changed(np.array([1]), news=news)
        core.next(360.0)
        assert core.policy_calls - asked == news


def test_a_period_is_a_reason_to_ask_of_its_own():
    policy = plan_policy(Trigger.ARRIVAL)
    type(policy).period_seconds = 50.0
    core = core_of(policy)
    assert core.next(10.0).seconds == 40.0
    for clock, asked in ((49.0, 1), (50.0, 2), (99.0, 2), (130.0, 3), (179.0, 3), (180.0, 4)):
        core.next(clock)
        assert core.policy_calls == asked


@pytest.mark.parametrize("kind", [shares_policy, plan_policy])
def test_what_a_policy_does_not_need_is_not_made_ready(kind):
    core = core_of(kind(Trigger.USUAL, Need.NOTHING))
    assert core.jobs.training is None
    assert core.jobs.colocation is None
    # Nor can it be read where the world keeps it for a purpose of its own.
    both = core_of(kind(Trigger.USUAL, Need.COLOCATION | Need.TRAINING)).jobs
    for jobs in (core.jobs, both):
        state = jobs.snapshot(np.arange(3), 0.0, CLUSTER, needs=Need.NOTHING)
        for name in ("training", "colocation"):
            assert state.known(name) is None
            with pytest.raises(AttributeError, match=rf"{name}.*Need\.{name.upper()}"):
                getattr(state, name)


@pytest.mark.parametrize("kind", [plan_policy, shares_policy])
def test_nothing_more_of_a_state_can_be_read_when_the_decision_is_made(kind):
    """A policy that keeps its state cannot learn from it what happened later."""
    core_of(kind(Trigger.USUAL))
    with pytest.raises(AttributeError, match="steps_remaining"):
        _ = STATES[-1].steps_remaining
