"""Steps of no time, and rows that count as running before they start."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol import Assignment, ClusterState, Plan, PlanStep
from allocator.simulator import SimulationResult, preset, simulate
from tests.simulator.event_policies import OrderPolicy, first_fit
from tests.simulator.worlds import make_trace
from throughputs import InputError


@dataclasses.dataclass
class Ahead(OrderPolicy):
    """Runs all jobs from the first decision on; they count as running for so many seconds."""

    seconds: float

    def __post_init__(self) -> None:
        super().__init__()

    def decide(self, state: ClusterState) -> Plan:
        rows = first_fit(state, range(state.n_jobs))
        return Plan((PlanStep(rows, head_start=np.full(len(rows), self.seconds)),))


class Interrupted(OrderPolicy):
    """After 10 seconds everybody stops and starts anew."""

    def decide(self, state: ClusterState) -> Plan:
        rows = first_fit(state, range(state.n_jobs))
        return Plan((PlanStep(rows, 10.0), PlanStep(Assignment.none(), 0.0), PlanStep(rows)))


def run(policy: OrderPolicy, steps: list[float], rates: float = 1.0, **changes: float) -> SimulationResult:
    chosen = preset("default").replace(**changes)
    return simulate(make_trace(steps), Cluster({"v100": 2}), policy, np.full((len(steps), 1), rates), preset=chosen)


def test_a_head_start_is_training_time() -> None:
    assert run(Ahead(5.0), [100.0], 2.0).jobs["completion_time"].tolist() == [45.0]


def test_a_head_start_is_used_up_by_the_cost_of_the_start_first() -> None:
    assert run(Ahead(5.0), [100.0], restart_penalty_seconds=3.0).jobs["completion_time"].tolist() == [98.0]
    assert run(Ahead(5.0), [100.0], restart_penalty_seconds=8.0).jobs["completion_time"].tolist() == [103.0]


def test_a_job_that_goes_on_has_had_its_head_start() -> None:
    # asked again when the shorter one completes at 15 s
    assert run(Ahead(5.0), [100.0, 20.0]).jobs["completion_time"].tolist() == [95.0, 15.0]


def test_a_head_start_longer_than_a_job_ends_it_before_it_starts() -> None:
    assert run(Ahead(30.0), [100.0, 20.0]).jobs["completion_time"].tolist() == [70.0, -10.0]


def test_a_step_of_no_time_stops_jobs_that_start_anew() -> None:
    result = run(Interrupted(), [100.0], restart_penalty_seconds=3.0)
    assert result.jobs["completion_time"].tolist() == [106.0]
    assert result.rounds["start_time"].tolist() == [0.0, 10.0]


def test_the_cost_of_a_start_by_doublings() -> None:
    trace = make_trace([100.0, 100.0, 100.0], [1, 2, 3])
    chosen = preset("default").replace(restart_penalty_seconds=4.0, restart_penalty_per_doubling_seconds=2.0)
    result = simulate(trace, Cluster({"v100": 6}), OrderPolicy(), np.ones((3, 1)), preset=chosen)
    expected = [104.0, 106.0, 104.0 + 2.0 * np.log2(3.0)]
    assert result.jobs["completion_time"].tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("seconds", "field"), [([0.0], "seconds"), ([0.0, 0.0], "seconds"), ([-1.0, 5.0], "seconds")])
def test_the_last_step_lasts(seconds: list[float], field: str) -> None:
    class Timeless(OrderPolicy):
        def decide(self, state: ClusterState) -> Plan:
            return Plan(tuple(PlanStep(first_fit(state, [0]), each) for each in seconds))

    with pytest.raises(InputError, match=field):
        run(Timeless(), [10.0])


@pytest.mark.parametrize("ahead", [[1.0, 2.0], [-1.0], [np.inf]])
def test_impossible_head_starts_are_refused(ahead: list[float]) -> None:
    class Wrong(OrderPolicy):
        def decide(self, state: ClusterState) -> Plan:
            return Plan((PlanStep(first_fit(state, [0]), head_start=np.array(ahead)),))

    with pytest.raises(InputError, match="head_start"):
        run(Wrong(), [10.0])
