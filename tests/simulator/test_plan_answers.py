"""What becomes of the answers of policies that plan: the good, the odd and the impossible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.placement.buddy import Buddy
from allocator.presets import Preset, preset
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.simulator import SimulationResult, SimulationStalledError, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import Configurations, InputError, PackedColumns

ONE = Cluster({"v100": 1})
FOUR = Cluster({"v100": 4})
DEFAULT = Preset()

Decide = Callable[[ClusterState], Plan]


class Planning(PlanPolicy):
    """Answers what `decide` says."""

    name = "planning"

    def __init__(self, decide: Decide, needs: Need = Need.NOTHING, **data: Any) -> None:
        self.decide = decide
        self.needs = needs  # type: ignore[misc]
        self.asked: list[float] = []
        for name, value in data.items():
            setattr(self, name, value)

    def plan(self, state: ClusterState, memory: None) -> Plan:  # noqa: ARG002
        self.asked.append(state.clock)
        return self.decide(state)


def alone(state: ClusterState) -> Plan:
    """The first job runs."""
    return Plan.until_next_event(Assignment.of([0], [0], state.scale_factors[:1]))


def elastic(n: int) -> Configurations:
    """N jobs at 1, 1.5 and 2 steps/s on 1, 2 and 4 GPUs."""
    job, gpus = np.repeat(np.arange(n), 3), np.tile([1, 2, 4], n)
    return Configurations(job, np.zeros(3 * n, int), gpus, np.tile([1.0, 1.5, 2.0], n), pools=["v100"])


def run(
    decide: Decide,
    steps: list[float],
    cluster: Cluster = ONE,
    rates: Any = None,
    needs: Need = Need.NOTHING,
    chosen: Preset = DEFAULT,
    **more: Any,
) -> SimulationResult:
    data = {name: more.pop(name) for name in ("triggers", "period_seconds", "in_rounds") if name in more}
    known = np.ones((len(steps), 1)) if rates is None else rates
    trace = make_trace(steps, arrivals=more.pop("arrivals", None))
    return simulate(trace, cluster, Planning(decide, needs, **data), known, preset=chosen, **more)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: None, "expected a Plan"),
        (lambda _: Assignment.of([0], [0], [1]), "expected a Plan"),
        (lambda _: Plan(()), "at least 1 step"),
        (lambda _: Plan((PlanStep(Assignment.none(), float("nan")),)), "a time above 0"),
        (lambda _: Plan((PlanStep(Assignment.none(), "5"),)), "a time above 0"),  # type: ignore[arg-type]
        (lambda _: Plan.until_next_event(Assignment.none(), np.array([0.5])), "whole positions"),
        (lambda _: Plan.until_next_event(Assignment.none(), np.array([7])), "whole positions below 2"),
        (lambda _: Plan.until_next_event(Assignment.of([0], [0], [1]), np.array([0])), "does not reject"),
        (lambda _: Plan.until_next_event(Assignment.of([0], [0], [2])), "Need.CONFIGURATIONS"),
        (lambda _: Plan.until_next_event(Assignment.of([0, 1], [0, 0], [1, 1], [1, 0])), "Need.COLOCATION"),
        (lambda _: Plan.until_next_event(Assignment.of([0.5], [0], [1])), "whole numbers"),
    ],
)
def test_impossible_answers_are_refused(answer: Decide, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(answer, [100.0, 100.0], FOUR)


def test_a_number_of_gpus_without_a_throughput_is_named() -> None:
    def three(_: ClusterState) -> Plan:
        return Plan.until_next_event(Assignment.of([0], [0], [3]))

    with pytest.raises(InputError, match="found 3, expected a number for which the job has a throughput"):
        run(three, [100.0], FOUR, elastic(1), Need.CONFIGURATIONS)


def test_a_share_policy_that_answers_something_else_is_told() -> None:
    class Wrong(SharesPolicy):
        def allocate(self, state: ClusterState) -> Any:
            return np.ones(state.rates.shape)

    with pytest.raises(InputError, match="expected an Allocation"):
        simulate(make_trace([5]), ONE, Wrong(), np.ones((1, 1)))


@pytest.mark.parametrize(
    ("decide", "more"),
    [
        (lambda _: Plan((PlanStep(Assignment.none(), 10.0),)), {}),
        (lambda _: Plan((PlanStep(Assignment.none(), 1e-18),)), {}),
        (lambda _: Plan.until_next_event(Assignment.none()), {"period_seconds": 10.0}),
    ],
)
def test_a_policy_that_runs_nobody_for_ever_is_stopped(decide: Decide, more: dict[str, Any]) -> None:
    with pytest.raises(SimulationStalledError):
        run(decide, [100.0], **more)


def test_a_policy_that_waits_for_an_arrival_is_not() -> None:
    def second_only(state: ClusterState) -> Plan:
        some = Assignment.of([0], [0], [1]) if state.clock >= 5000 else Assignment.none()
        return Plan((PlanStep(some, 10.0),))

    jobs = run(second_only, [100.0, 10.0], arrivals=[0.0, 5000.0]).jobs
    assert jobs["completion_time"].tolist() == [5100.0, 5110.0]


@pytest.mark.parametrize("in_rounds", [False, True])
def test_trouble_is_told_where_nobody_makes_a_step(in_rounds: bool) -> None:
    cluster, rates = Cluster({"slow": 1, "fast": 1}), [[0.0, 1.0]]

    def other_pool_when_asked_again(state: ClusterState) -> Plan:
        return Plan((PlanStep(Assignment.of([0], [int(state.clock > 0)], [1]), 10.0),) * 99)

    jobs = run(
        other_pool_when_asked_again, [5.0], cluster, rates, triggers=Trigger.ARRIVAL | Trigger.TROUBLE,
        in_rounds=in_rounds,
    ).jobs  # fmt: skip
    assert jobs["completion_time"].tolist() == [365.0 if in_rounds else 15.0]


def test_who_shared_with_a_job_that_is_through_goes_on_alone() -> None:
    pairs = PackedColumns([0, 0], [[1.0]], [[[0.5]]], accelerators=["v100"])

    def both(_: ClusterState) -> Plan:
        return Plan.until_next_event(Assignment.of([1, 0], [0, 0], [1, 1], [0, 1]))

    result = run(both, [100.0, 50.0], rates=pairs, needs=Need.COLOCATION, triggers=Trigger.ARRIVAL)
    assert result.jobs["completion_time"].tolist() == [150.0, 100.0]
    assert result.rounds["partner"].isna().tolist() == [False, False, True]


def test_the_rows_of_a_pair_may_come_in_any_order() -> None:
    pairs = PackedColumns([0] * 4, [[1.0]], [[[0.5]]], accelerators=["v100"])
    scrambled = Assignment.of([0, 2, 1, 3], [0] * 4, [1] * 4, [1, 3, 0, 2])

    def in_rounds(state: ClusterState) -> Plan:
        some = scrambled if state.n_jobs == 4 else Assignment.of([0], [0], [1])
        return Plan((PlanStep(some),))

    result = run(in_rounds, [100.0] * 4, Cluster({"v100": 2}), pairs, Need.COLOCATION, preset("gavel"), in_rounds=True)
    assert result.jobs["completion_time"].tolist() == [200.0] * 4


def test_the_policy_sees_whom_it_made_share() -> None:
    pairs = PackedColumns([0, 0, 0], [[1.0]], [[[0.5]]], accelerators=["v100"])
    seen = []

    def both(state: ClusterState) -> Plan:
        seen.append(state.current_partner.tolist())
        rows = ([0, 1], [0, 0], [1, 1], [1, 0]) if state.n_jobs > 1 else ([0], [0], [1])
        return Plan.until_next_event(Assignment.of(*rows))

    run(both, [100.0, 100.0, 10.0], rates=pairs, needs=Need.COLOCATION, arrivals=[0.0, 0.0, 50.0])
    assert seen[:2] == [[-1, -1], [1, 0, -1]]


@pytest.mark.parametrize(("hold", "kept"), [([0], "0"), ([], "2")])
def test_jobs_on_hold_keep_their_gpus(hold: list[int], kept: str) -> None:
    """Under placement in order a wider gang takes the first GPUs, unless who has them must not move."""

    def widen(state: ClusterState) -> Plan:
        if state.n_jobs == 1:
            return alone(state)
        step = PlanStep(Assignment.of([0, 1], [0, 0], [1, 2]))
        return Plan((step,), hold=np.array(hold, dtype=np.int64))

    trace = make_trace([100.0, 100.0], [1, 2], [0.0, 10.0])
    chosen = DEFAULT.replace(placement="in_order")
    rounds = simulate(trace, FOUR, Planning(widen), np.ones((2, 1)), preset=chosen).rounds
    assert rounds[rounds["job_id"] == 0]["gpus"].iloc[-1] == kept


def test_buddies_take_the_smallest_block_that_holds_a_gang() -> None:
    rule = Buddy(0, 8, 8)
    rule.hold(1, (4, 5))
    assert rule.place([(0, 2, 1, False)]) == {2: (6,)}


@pytest.mark.parametrize(
    ("penalty", "expected"), [(((4, 30.0),), [100.0]), (((1, 5.0), (4, 30.0)), [105.0]), (((2, 4.0),), [101.0])]
)
def test_gangs_below_the_first_number_of_gpus_pay_the_one_figure(penalty: Any, expected: list[float]) -> None:
    chosen = DEFAULT.replace(
        restart_penalty_by_gpus=penalty, restart_penalty_seconds=1.0 if penalty[0][0] == 2 else 0.0
    )
    assert run(alone, [100.0], chosen=chosen).jobs["completion_time"].tolist() == expected


def test_a_resized_job_starts_anew_on_request() -> None:
    def widens(_: ClusterState) -> Plan:
        return Plan((PlanStep(Assignment.of([0], [0], [1]), 10.0), PlanStep(Assignment.of([0], [0], [2]))))

    for moved, expected in ((False, 2.0 + 8.0 + 92.0 / 1.5), (True, 2.0 + 8.0 + 2.0 + 92.0 / 1.5)):
        chosen = DEFAULT.replace(restart_penalty_seconds=2.0, restart_when_moved=moved)
        jobs = run(widens, [100.0], FOUR, elastic(1), Need.CONFIGURATIONS, chosen).jobs
        np.testing.assert_allclose(jobs["completion_time"], [expected])


def test_jobs_that_were_rejected_are_no_longer_there_for_the_others() -> None:
    def first_only(state: ClusterState) -> Plan:
        return Plan.until_next_event(Assignment.of([0], [0], [1]), np.arange(1, state.n_jobs))

    crowded = run(first_only, [100.0, 100.0, 100.0]).jobs
    np.testing.assert_allclose(crowded["rho"].iloc[0], run(alone, [100.0]).jobs["rho"].iloc[0])
    assert crowded["status"].tolist() == ["completed", "rejected", "rejected"]


def test_a_window_ends_with_its_last_job_also_when_that_is_rejected_and_counts_each_once() -> None:
    def reject_second(state: ClusterState) -> Plan:
        twice = np.array([1, 1]) if state.n_jobs == 3 else np.empty(0, dtype=np.int64)
        return Plan.until_next_event(Assignment.of([0], [0], [1]), twice)

    jobs = run(reject_second, [10.0, 10.0, 20.0], window=(0, 3)).jobs
    assert jobs["status"].tolist() == ["completed", "rejected", "completed"]

    def reject_late(state: ClusterState) -> Plan:
        late = [i for i, job in enumerate(state.throughputs.jobs) if job == 1]
        return Plan.until_next_event(Assignment.of([0], [0], [1]), np.array(late, dtype=np.int64))

    result = run(reject_late, [1000.0, 10.0], arrivals=[0.0, 20.0], window=(1, 2))
    assert result.jobs["status"].tolist() == ["unfinished", "rejected"]
    assert result.rounds["end_time"].max() == 20.0


def test_a_job_that_was_cut_off_missed_its_deadline() -> None:
    trace = make_trace([36000.0])
    columns = {name: getattr(trace, name) for name in type(trace).column_names()} | {
        "slo": np.array([10.0]), "duration": np.array([36000.0])
    }  # fmt: skip
    chosen = DEFAULT.replace(overtime_factor=0.5)
    jobs = simulate(type(trace)(**columns), ONE, SharesPolicy(), np.ones((1, 1)), preset=chosen).jobs
    assert jobs["status"].tolist() == ["cut_off"]
    assert jobs["met"].tolist() == [False]
    assert 0 < jobs["steps_done"].iloc[0] < 36000


def test_a_period_is_kept_however_long_nothing_happens() -> None:
    class Hourly(SharesPolicy):
        period_seconds = 36000.0

    policy = Hourly()
    simulate(make_trace([3.6e6]), ONE, policy, np.ones((1, 1)))
    assert len(policy.states) == pytest.approx(100, abs=2)
    assert policy.states[-1].upcoming is not None
    assert policy.states[-1].upcoming.number == policy.states[-1].clock / 360.0


def test_keys_of_an_order_are_one_number_for_each_job() -> None:
    from allocator import OrderPolicy

    class Short(OrderPolicy):
        name = "short"

        def key(self, state: ClusterState) -> Any:  # noqa: ARG002
            return [1.0]

    with pytest.raises(InputError, match=r"shape \(2,\)"):
        simulate(make_trace([5, 5]), ONE, Short(), np.ones((2, 1)))


def test_prices_are_by_type() -> None:
    with pytest.raises(InputError, match="a price by accelerator type"):
        run(alone, [5.0], prices=[3.0])
