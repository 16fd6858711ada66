"""Planners behind the decision core: when they are asked, what they are told, and what becomes of their plans."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from allocator.checkpoint.state_file import Part
from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.plans import PlanBook
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import Memory, Plan, PlanStep
from allocator.protocol.policy import Need, PlanPolicy, Trigger
from allocator.simulator import preset, simulate
from throughputs import InputError, Trace

SETTINGS = MechanismSettings(round_seconds=100.0)


class TurnsPolicy(PlanPolicy):
    """Plans that the active jobs run in turns, one in each round."""

    name = "turns"
    needs = Need.TRAINING
    triggers = Trigger.ARRIVAL | Trigger.COMPLETION
    in_rounds = True

    def __init__(self, rounds=4, replan_steps=8):
        self.n_rounds, self.replan_steps = rounds, replan_steps
        self.asked = []

    def equal_shares(self, state):
        return Allocation(self.name, state.throughputs, np.full(state.rates.shape, 1 / state.n_jobs), "order")

    def plan(self, state, memory):  # noqa: ARG002
        self.asked.append((state.upcoming.number, state.throughputs.jobs))
        steps = []
        for i in range(self.n_rounds):
            job = i % state.n_jobs
            steps.append(PlanStep(Assignment.of([job], [0], state.scale_factors[[job]])))
        return Plan(tuple(steps), allocation=self.equal_shares(state))


def table(n, cluster, size=1):
    trace = Trace(["job"] * n, [size] * n, [1e6] * n, [0.0] * n)
    return JobTable.from_trace(trace, np.ones((n, 1)), cluster, needs=Need.TRAINING)


def core_of(policy, n=2, gpus=1):
    cluster = Cluster({"v100": gpus})
    return DecisionCore(policy, cluster, table(n, cluster), SETTINGS)


def run(core, rounds, start=0):
    chosen = []
    for number in range(start, start + rounds):
        decision = core.next(100.0 * number)
        core.record(decision, np.full(len(decision.jobs), 100.0))
        chosen.append(decision.jobs.tolist())
    return chosen


def test_what_a_policy_answers_is_known_by_its_class():
    assert TurnsPolicy().answers == "plan"

    class Stranger:
        name = "stranger"

        def plan(self, state, memory): ...

    with pytest.raises(InputError, match=r"a subclass of allocator\.SharePolicy or allocator\.PlanPolicy"):
        simulate(Trace(["job"], [1], [1.0], [0.0]), Cluster({"v100": 1}), Stranger(), [[1.0]])


def test_a_plan_is_renewed_every_so_many_rounds_whatever_else_happens():
    policy = TurnsPolicy(rounds=20, replan_steps=4)
    core = core_of(policy, n=3)
    core.arrive([0, 1])
    run(core, 3)
    core.arrive([2])
    run(core, 6, start=3)
    assert [number for number, _ in policy.asked] == [0, 3, 4, 8]


def test_a_simulation_under_a_planner_ends_and_tells_how_jobs_train():
    seen = []

    class Watching(TurnsPolicy):
        def plan(self, state, memory):
            seen.append(copy.deepcopy(state.training))
            return super().plan(state, memory)

    trace = Trace(["job"] * 2, [1, 1], [500.0, 300.0], [0.0, 250.0])
    rounds = preset("default").replace(round_seconds=100.0, restart_penalty_seconds=0.0)
    result = simulate(trace, Cluster({"v100": 1}), Watching(), np.ones((2, 1)), preset=rounds)
    assert result.jobs["completion_time"].tolist() == [600.0, 800.0]
    first, second = seen[0], seen[1]
    assert first.admitted_seconds.tolist() == [0.0]
    assert second.admitted_seconds.tolist() == [0.0, 300.0]
    # 300 of 500 steps are 60 of 100 epochs; three rounds of 100 s were measured at 1 step/s.
    assert second.epochs_done.tolist() == [60, 0]
    assert second.measured_seconds.tolist() == [300.0, 0.0]
    assert second.measured_samples.tolist() == [300.0, 0.0]


class Waiting(PlanPolicy):
    """Runs all jobs alone until the clock has passed 100 seconds."""

    name = "waiting"
    in_rounds = False

    def plan(self, state, memory):  # noqa: ARG002
        n = state.n_jobs
        step = PlanStep(Assignment.of(range(n), [0] * n, state.scale_factors), 100.0)
        return Plan((step,))


def test_a_step_goes_on_after_an_interruption():
    cluster = Cluster({"v100": 4})
    policy = Waiting()
    core = DecisionCore(policy, cluster, table(3, cluster), SETTINGS)
    core.arrive([0, 1, 2])
    core.next(0.0)
    book = core._executor
    rest = book.next(40.0, core._running)
    assert rest.seconds == 60.0

    again = PlanBook(policy, core.jobs, 100.0)
    again.restore(copy.deepcopy(book.state()))
    resumed = again.next(40.0, core._running)
    assert resumed.seconds == 60.0
    assert resumed.assignment.jobs.tolist() == [0, 1, 2]


class Turn(NamedTuple):
    """Whose turn it was, and until when."""

    jobs: tuple[int, ...]
    until: float


@dataclass(eq=False)
class TurnsSoFar(Memory):
    """All turns."""

    holds = (Turn,)
    turns: dict[int, Turn] = field(default_factory=dict)


def test_named_tuples_are_remembered_as_they_were():
    memory = TurnsSoFar({3: Turn((1, 2), 5.0)})
    again = TurnsSoFar()
    again.restore(Part.of(memory.state()).tree())
    assert again.turns[3].until == memory.turns[3].until == 5.0
