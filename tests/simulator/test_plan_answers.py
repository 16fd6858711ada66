"""What becomes of the answers of policies that plan: the good, the odd and the impossible."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.presets import Preset, preset
from allocator.protocol import Assignment, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.simulator import SimulationStalledError, simulate
from tests.simulator.cases import with_settings
from tests.simulator.event_policies import Planning, first_fit, in_turn, pairing, until_next_event
from tests.simulator.worlds import make_trace
from throughputs import Configurations, InputError, PackedColumns, Trace

ONE, FOUR = Cluster({"v100": 1}), Cluster({"v100": 4})
DEFAULT = Preset()
NOBODY = Assignment.none()


def alone(state):
    """The first job runs."""
    return until_next_event([0], [0], state.scale_factors[:1])


def pairs_of(n):
    """N jobs of one kind, which go at half their speed beside each other."""
    return PackedColumns([0] * n, [[1.0]], [[[0.5]]], accelerators=["v100"])


def elastic(n):
    """N jobs at 1, 1.5 and 2 steps/s on 1, 2 and 4 GPUs."""
    job, gpus = np.repeat(np.arange(n), 3), np.tile([1, 2, 4], n)
    return Configurations(job, np.zeros(3 * n, int), gpus, np.tile([1.0, 1.5, 2.0], n), pools=["v100"])


def run(decide, steps, cluster=ONE, rates=None, chosen=DEFAULT, arrivals=None, sizes=None, options=None, **data):
    known = np.ones((len(steps), len(cluster.accelerators))) if rates is None else rates
    policy = decide if isinstance(decide, Planning) else Planning(decide, **data)
    return simulate(make_trace(steps, sizes, arrivals), cluster, policy, known, preset=chosen, **(options or {}))


def steps_of(*seconds):
    """Steps of so many seconds in which the first job runs."""
    return lambda state: Plan(tuple(PlanStep(first_fit(state, [0]), s) for s in seconds))


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda _: None, "expected a Plan"),
        (lambda _: Assignment.of([0], [0], [1]), "expected a Plan"),
        (lambda _: Plan(()), "at least 1 step"),
        (lambda _: Plan((PlanStep(NOBODY, float("nan")),)), "a time above 0"),
        (lambda _: Plan((PlanStep(NOBODY, "5"),)), "a time above 0"),
        (steps_of(0.0), "seconds"),
        (steps_of(0.0, 0.0), "seconds"),
        (steps_of(-1.0, 5.0), "seconds"),
        (lambda _: Plan.until_next_event(NOBODY, np.array([0.5])), "whole positions"),
        (lambda _: Plan.until_next_event(NOBODY, np.array([7])), "whole positions below 2"),
        (lambda _: Plan.until_next_event(Assignment.of([0], [0], [1]), np.array([0])), "does not reject"),
        (lambda _: until_next_event([0], [0], [2]), "Need.CONFIGURATIONS"),
        (lambda _: until_next_event([0, 1], [0, 0], [1, 1], [1, 0]), "Need.COLOCATION"),
        (lambda _: until_next_event([0.5], [0], [1]), "whole numbers"),
    ],
)
def test_impossible_answers_are_refused(answer, named):
    with pytest.raises(InputError, match=named):
        run(answer, [100.0, 100.0], FOUR)


@pytest.mark.parametrize(
    ("decide", "more"),
    [
        (lambda _: Plan((PlanStep(NOBODY, 10.0),)), {}),
        (lambda _: Plan((PlanStep(NOBODY, 1e-18),)), {}),
        (lambda _: Plan.until_next_event(NOBODY), {"period_seconds": 10.0}),
    ],
)
def test_a_policy_that_runs_nobody_for_ever_is_stopped(decide, more):
    with pytest.raises(SimulationStalledError):
        run(decide, [100.0], **more)


@pytest.mark.parametrize(("in_rounds", "end"), [(False, 15.0), (True, 365.0)])
def test_trouble_is_told_where_nobody_makes_a_step(in_rounds, end):
    def other_pool_when_asked_again(state):
        return Plan((PlanStep(Assignment.of([0], [int(state.clock > 0)], [1]), 10.0),) * 99)

    asked = {"triggers": Trigger.ARRIVAL | Trigger.TROUBLE, "in_rounds": in_rounds}
    jobs = run(other_pool_when_asked_again, [5.0], Cluster({"slow": 1, "fast": 1}), [[0.0, 1.0]], **asked).jobs
    assert jobs["completion_time"].tolist() == [end]


def test_two_jobs_share_a_gpu_until_one_is_through():
    result = run(pairing(), [100.0, 50.0], rates=pairs_of(2))
    assert result.jobs["completion_time"].tolist() == [150.0, 100.0]
    # of leases that end together, those of jobs that are through come first
    assert result.rounds["job_id"].tolist() == [1, 0, 0]
    assert result.rounds["steps"].tolist() == [50.0, 50.0, 50.0]
    assert result.rounds["partner"].tolist()[:2] == [0, 1]
    assert result.rounds["partner"].isna().tolist() == [False, False, True]
    assert result.rounds["gpus"].tolist() == [(0,)] * 3
    # of GPUs that two share, each is put down for half; who goes on alone on them was not preempted
    assert result.jobs["gpu_seconds"].tolist() == [100.0, 50.0]
    assert result.jobs["preemptions"].tolist() == [0, 0]
    assert result.timeline[["running_jobs", "busy_gpus"]].to_numpy().tolist() == [[2, 1], [1, 1]]
    assert result.summary()["utilization"] == 1.0


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        # 10 s alone, then half speed; the guest has 10 steps left at 190 s
        ({}, [190.0, 200.0]),
        ({"guests_stay_slow": True}, [190.0, 210.0]),
        # 90 steps at 0.75; the guest, at 0.25, has 70 left at 130 s
        ({"pairs_of_one_type": (("job", 0.25, 0.75),)}, [130.0, 200.0]),
        ({"pairs_of_one_type": (("job", 0.25, 0.75),), "guests_stay_slow": True}, [130.0, 410.0]),
    ],
)
def test_who_joins_is_a_guest(settings, ends):
    chosen = with_settings(DEFAULT, **settings)
    result = run(pairing(), [100.0, 100.0], rates=pairs_of(2), chosen=chosen, arrivals=[0.0, 10.0])
    assert result.jobs["completion_time"].tolist() == ends


def test_the_rows_of_a_pair_may_come_in_any_order():
    def decide(state):
        scrambled = Assignment.of([0, 2, 1, 3], [0] * 4, [1] * 4, [1, 3, 0, 2])
        return Plan((PlanStep(scrambled if state.n_jobs == 4 else Assignment.of([0], [0], [1])),))

    data = {"needs": Need.COLOCATION, "in_rounds": True}
    result = run(decide, [100.0] * 4, Cluster({"v100": 2}), pairs_of(4), preset("gavel"), **data)
    assert result.jobs["completion_time"].tolist() == [200.0] * 4


def test_the_policy_sees_who_runs_with_whom_and_what_the_last_decision_cost():
    seen = []

    def looking(state):
        seen.append((state.running.pool.tolist(), state.running.gpus.tolist(), state.lost_seconds.tolist()))
        return Plan.until_next_event(first_fit(state, np.argsort(state.steps_remaining)))

    rates, chosen = [[1.0, 2.0], [1.0, 2.0]], DEFAULT.replace(restart_penalty_seconds=30.0)
    cluster = Cluster({"slow": 1, "fast": 2})
    run(looking, [400.0, 40.0], cluster, rates, chosen, arrivals=[0.0, 50.0], sizes=[1, 2])
    # job 0 has to move at 50 s, which costs nothing; who is through does not run any more
    assert seen == [([], [], [0.0]), ([1], [1], [30.0, 0.0]), ([0], [1], [0.0])]
    partners = []

    def both(state):
        partners.append(state.current_partner.tolist())
        rows = ([0, 1], [0, 0], [1, 1], [1, 0]) if state.n_jobs > 1 else ([0], [0], [1])
        return until_next_event(*rows)

    run(both, [100.0, 100.0, 10.0], rates=pairs_of(3), needs=Need.COLOCATION, arrivals=[0.0, 0.0, 50.0])
    assert partners[:2] == [[-1, -1], [1, 0, -1]]


def test_what_a_decision_cost_stays_until_the_next_one():
    """Starts take 30 s. The short job ends in between, and nobody is asked."""
    lost = []

    def looking(state):
        lost.append((state.clock, state.lost_seconds.tolist()))
        return Plan.until_next_event(first_fit(state, in_turn(state)))

    chosen = DEFAULT.replace(restart_penalty_seconds=30.0)
    run(looking, [200, 10, 10], Cluster({"v100": 2}), None, chosen, [0, 0, 60], triggers=Trigger.ARRIVAL)
    assert lost == [(0.0, [0.0, 0.0]), (60.0, [30.0, 0.0])]


@pytest.mark.parametrize(("moved", "end"), [(False, 2.0 + 8.0 + 92.0 / 1.5), (True, 2.0 + 8.0 + 2.0 + 92.0 / 1.5)])
def test_a_resized_job_starts_anew_on_request(moved, end):
    def widens(_):
        return Plan((PlanStep(Assignment.of([0], [0], [1]), 10.0), PlanStep(Assignment.of([0], [0], [2]))))

    chosen = DEFAULT.replace(restart_penalty_seconds=2.0, restart_when_moved=moved)
    jobs = run(widens, [100.0], FOUR, elastic(1), chosen, needs=Need.CONFIGURATIONS).jobs
    np.testing.assert_allclose(jobs["completion_time"], [end])


class LaterPolicy(PlanPolicy):
    """In the first round of a plan nobody runs."""

    name = "later"
    in_rounds = True

    def plan(self, state, memory):  # noqa: ARG002
        rows = Assignment.of([0], [0], state.scale_factors[:1])
        return Plan((PlanStep(Assignment.none()), PlanStep(rows), PlanStep(Assignment.none()), PlanStep(rows)))


def test_rounds_in_which_a_plan_lets_nobody_run_pass():
    world = Preset().replace(round_seconds=60.0)
    result = simulate(Trace(["a"], [1], [100.0], [0.0]), "v100:1", LaterPolicy(), [[1.0]], preset=world)
    assert result.rounds["start_time"].tolist() == [60.0, 180.0]
    assert (result.jobs["completion_time"].tolist(), result.policy_calls) == ([220.0], 1)
