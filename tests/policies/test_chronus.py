"""Chronus: who is promised what, on examples worked by hand; and what happens when a solver gives up."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, get_policy, simulate
from allocator.checkpoint.state_file import Part
from allocator.policies.chronus import policy as planner
from allocator.policies.chronus.memory import ACCEPTED, BEST_EFFORT, UNACCEPTED, ChronusMemory
from allocator.policies.chronus.policy import Chronus
from allocator.presets import preset
from allocator.protocol import ClusterState, Plan
from allocator.published.chronus.policy import PublishedChronus
from allocator.results.result import SimulationResult
from formulations.leases import LeaseProgram, LeaseSolution, solve_leases
from throughputs import ThroughputMatrix, Trace
from throughputs.deadlines import DeadlineOptions, OptionRow

MINUTE = 60.0
LEASE = 20 * MINUTE
VALUES = (10.0, 8.0, 5.0, 2.0)


def state_of(
    durations: list[float],
    options: list[OptionRow],
    gpus: list[int] | None = None,
    capacity: int = 8,
    clock: float = 0.0,
    waited: float = 0.0,
    done: float = 0.0,
) -> ClusterState:
    """Jobs that arrived so many minutes ago; durations, deadlines and what is done in minutes; clock in seconds."""
    n = len(durations)
    due = DeadlineOptions.of_rows([tuple((at * MINUTE, value) for at, value in row) for row in options])
    return ClusterState(
        Cluster({"v100": capacity}),
        ThroughputMatrix(np.ones((n, 1)), range(n), ["v100"], gpus or [1] * n),
        clock=clock,
        elapsed_seconds=np.full(n, waited * MINUTE),
        steps_remaining=(np.array(durations) - done) * MINUTE,
        deadlines=np.array([row[0][0] * MINUTE if row else np.inf for row in options]),
        deadline_options=due,
    )


def looked_at(state: ClusterState, published: bool = False, **settings: Any) -> tuple[Plan, ChronusMemory]:
    policy = PublishedChronus(**settings) if published else Chronus(**settings)
    memory = policy.new_memory()
    return policy.plan(state, memory), memory


# A job of 85 minutes needs five leases of 20: (85 + 2.1) * 1.1 = 95.8. The first of them begins at 20 minutes.
DURATION = 85.0


def soft(*slots: int) -> OptionRow:
    """Deadlines that leave so many leases after the one at the arrival."""
    return tuple((20.0 * (1 + count), value) for count, value in zip(slots, VALUES, strict=False))


@pytest.mark.parametrize(
    ("options", "settings", "kind", "granted", "due"),
    [
        # as published the first deadline alone counts
        (soft(4, 6, 8, 10), {"published": True}, UNACCEPTED, -1, None),
        (soft(5, 6, 8, 10), {"published": True}, ACCEPTED, 3, 220.0),
        (soft(4, 6, 8, 10), {}, ACCEPTED, 1, 140.0),
        # one that is too short is not promised unless it may be put off
        (((110.0, 10.0),), {}, UNACCEPTED, -1, None),
        (((110.0, 10.0),), {"tolerate_ratio": 1.1}, ACCEPTED, 0, 120.0),
    ],
)
def test_which_deadline_is_promised(options, settings, kind, granted, due) -> None:
    _, memory = looked_at(state_of([DURATION], [options]), **settings)
    assert (memory.needed.tolist(), memory.kind.tolist(), memory.granted.tolist()) == ([5], [kind], [granted])
    assert due is None or memory.due.tolist() == [due]


def test_what_is_tolerated_counts_from_submission() -> None:
    """A tenth of the 110 minutes from 20 to 130 makes 141: the lease that ends at 140, the fifth from 40 on."""
    later = state_of([DURATION, 100.0], [((130.0, 10.0),), ((130.0, 10.0),)], clock=LEASE)
    _, memory = looked_at(later, tolerate_ratio=1.1)
    assert memory.needed.tolist() == [5, 6]
    assert memory.kind.tolist() == [ACCEPTED, UNACCEPTED]
    assert memory.due[0] == memory.options[0][0][0] == 140.0
    # 138.8, and not 140.8
    _, memory = looked_at(state_of([DURATION], [((128.0, 10.0),)], clock=LEASE), tolerate_ratio=1.1)
    assert memory.kind.tolist() == [UNACCEPTED]


def test_a_rejected_job_is_in_the_way_of_others_only_as_published() -> None:
    """The first needs eight leases on all GPUs and has five; the second needs thirteen of fourteen on one."""
    state = state_of([120.0, 220.0], [((120.0, 10.0),), ((300.0, 10.0),)], gpus=[8, 1])
    assert looked_at(state)[1].kind.tolist() == [UNACCEPTED, ACCEPTED]
    assert looked_at(state, published=True)[1].kind.tolist() == [UNACCEPTED, UNACCEPTED]


def test_a_deadline_without_room_is_in_nobodys_way() -> None:
    """One GPU: the first two take ten leases, and who needs five more of these hinders nobody."""
    options = [((120.0, 10.0),), soft(5, 10, 11, 12), ((220.0, 10.0),), ((320.0, 10.0),)]
    _, memory = looked_at(state_of([DURATION] * 4, options, capacity=1))
    assert memory.kind.tolist() == [ACCEPTED, ACCEPTED, UNACCEPTED, ACCEPTED]
    assert memory.granted.tolist() == [0, 1, -1, 0]
    assert memory.due[[0, 1, 3]].tolist() == [120.0, 220.0, 320.0]


def test_jobs_without_deadline_run_at_once_and_come_behind_short_ones() -> None:
    """Least GPU time first: 30, 80 (two GPUs), 200; the job of two does not fit beside the first."""
    plan, memory = looked_at(state_of([30.0, 200.0, 40.0], [(), (), ()], gpus=[1, 1, 2], capacity=2))
    assert memory.kind.tolist() == [BEST_EFFORT] * 3
    assert sorted(plan.steps[-1].assignment.jobs.tolist()) == [0, 1]
    assert plan.steps[-1].seconds == 5 * MINUTE


@pytest.mark.parametrize(("submitted", "kind"), [(0.0, UNACCEPTED), (20.0, ACCEPTED), (24.0, ACCEPTED)])
def test_who_is_guaranteed_gpus_in_the_lease_of_its_submission_counts_as_promised(submitted: float, kind: int) -> None:
    """Ten minutes that end within the lease and before the deadline, which comes before another lease would end."""
    _, memory = looked_at(state_of([10.0], [((39.0, 10.0),)], clock=25 * MINUTE, waited=25.0 - submitted))
    assert (memory.forced.tolist(), memory.kind.tolist()) == ([True], [kind])


def test_the_greedy_rule_goes_back_to_the_order_of_admission_where_it_loses_a_promise() -> None:
    """By value two narrow jobs come first, each in a lease of its own, and leave two of three leases to two gangs."""
    promised = ((3, 10.0), (2, 10.0), (3, 5.0), (2, 5.0))
    options: list[OptionRow] = [((20.0 * (1 + slots), value),) for slots, value in promised]
    policy = Chronus(solver="none", accepted_run_early=False)
    memory = policy.new_memory()
    for clock in (0.0, LEASE):
        policy.plan(state_of([15.0] * 4, options, [1, 1, 2, 2], capacity=2, clock=clock), memory)
        assert memory.kind.tolist() == [ACCEPTED] * 4
    assert all(leases is not None for leases in memory.leases)


def test_noise_is_drawn_from_its_seed() -> None:
    """A draw beyond half and twice, of which there is one in three here, is drawn again."""
    state = state_of([100.0] * 30, [()] * 30)
    durations = [looked_at(state, noise=1.0, noise_seed=seed)[1].duration.tolist() for seed in (1, 1, 2)]
    assert durations[0] == durations[1] != durations[2]
    assert all(50 <= each < 200 for each in durations[0])
    assert looked_at(state)[1].duration.tolist() == [100.0] * 30
    policy = Chronus(noise=1.0)
    memory, again = policy.new_memory(), policy.new_memory()
    policy.plan(state, memory)
    again.restore(Part.of(memory.state()).tree())
    for each in (memory, again):
        policy.plan(state_of([100.0] * 40, [()] * 40, clock=LEASE), each)
    assert memory.duration.tolist() == again.duration.tolist()


def test_what_was_missed_at_a_slot_is_done_once() -> None:
    policy = Chronus(solver="none")
    memory = policy.new_memory()
    for minute, runs, looked in ((4, [], -1), (7, [0], 7), (8, [0], 7), (10, [0], 10)):
        state = state_of([DURATION], [()], clock=minute * MINUTE + 1.0, waited=minute - 3 + 1 / 60)
        assert policy.plan(state, memory).steps[0].assignment.jobs.tolist() == runs
        assert memory.looked_at == looked
    assert (memory.seen.tolist(), memory.ran.tolist()) == ([10.0], [3.0])


def workload(n: int = 40, seed: int = 3) -> Trace:
    """Strict, soft and best-effort jobs over two hours."""
    rng = np.random.default_rng(seed)
    minutes = rng.integers(20, 120, n)
    arrival = np.sort(rng.integers(0, 120, n)) * MINUTE
    options: list[OptionRow] = []
    for i in range(n):
        due = arrival[i] + minutes[i] * MINUTE * rng.uniform(1.5, 4.0)
        later = [(due + 40 * MINUTE * k, value) for k, value in enumerate(VALUES)]
        options.append(tuple(later[: (1, 4, 0)[i % 3]]))
    return Trace(["job"] * n, rng.choice([1, 1, 2, 4], n), minutes * MINUTE, arrival, deadline_options=options)


def simulated(trace: Trace, policy: Any, **world: Any) -> SimulationResult:
    chosen = preset("default").replace(**world)
    cluster, rates = Cluster({"v100": 8}, {"v100": 4}), np.ones((len(trace), 1))
    result = simulate(trace, cluster, policy, rates, preset=chosen)
    assert set(result.jobs.status) == {"completed"}
    return result


class Promises(Chronus):
    """Keeps who was promised what, by label."""

    seen: dict[int, float]

    def plan(self, state: ClusterState, memory: ChronusMemory) -> Plan:
        plan = super().plan(state, memory)
        for label, kind, due in zip(memory.jobs, memory.kind.tolist(), memory.due.tolist(), strict=True):
            if kind == ACCEPTED and isinstance(label, int):
                self.seen.setdefault(label, due * MINUTE)
        return plan


@pytest.mark.parametrize(
    "settings",
    [{"solver": "highs"}, {"solver": "none"}],
    ids=str,
)
def test_promises_are_kept_and_lease_programs_proven(settings: dict[str, Any]) -> None:
    policy = Promises(**settings, forced_guarantee=False)
    object.__setattr__(policy, "seen", {})
    costs = {"restart_penalty_seconds": 30.0, "restart_penalty_per_doubling_seconds": 30.0}
    result = simulated(workload(), policy, **costs)
    completion = result.jobs.completion_time.to_numpy()
    assert len(policy.seen) >= 10
    assert [job for job, due in policy.seen.items() if completion[job] > due] == []
    expected = "greedy" if settings["solver"] == "none" else "optimal"
    assert {allocation.status for _, _, allocation in result.decisions} == {expected}


def test_a_solver_that_fails_is_told_of_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(program: LeaseProgram, method: str = "highs", **options: Any) -> LeaseSolution:
        found = solve_leases(program, "greedy", **options)
        return found if method == "greedy" else dataclasses.replace(found, status="failed", note="out of time")

    monkeypatch.setattr(planner, "solve_leases", failing)
    with pytest.warns(RuntimeWarning, match=r"chronus: highs .*out of time"):
        result = simulated(workload(12), get_policy("chronus"))
    greedy = simulated(workload(12), get_policy("chronus", solver="none"))
    for found, fallbacks in ((result, ("highs",)), (greedy, ())):
        marks = {(allocation.status, allocation.fallbacks) for _, _, allocation in found.decisions}
        assert marks == {("greedy", fallbacks)}
        assert found.summary()["fallback_decisions"] == len(found.decisions) * len(fallbacks)
    assert result.jobs.completion_time.tolist() == greedy.jobs.completion_time.tolist()
