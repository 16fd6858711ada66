"""Policies that decide at events, small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger


def first_fit(state: ClusterState, order: Sequence[int]) -> Assignment:
    """Jobs (positions) one after the other, each whole gang on the fastest pool that has room."""
    free = state.capacity.copy()
    jobs, pools = [], []
    for i in order:
        for j in np.argsort(-state.rates[i], kind="stable"):
            if state.rates[i, j] > 0 and state.scale_factors[i] <= free[j]:
                free[j] -= state.scale_factors[i]
                jobs.append(i)
                pools.append(j)
                break
    return Assignment.of(jobs, pools, state.scale_factors[jobs] if jobs else [])


def in_turn(state: ClusterState) -> list[int]:
    return list(range(state.n_jobs))


def by_remaining_time(state: ClusterState) -> list[int]:
    """Shortest first; of equal ones the lower id."""
    return np.argsort(state.steps_remaining / state.rates.max(axis=1), kind="stable").tolist()


class OrderPolicy(PlanPolicy):
    """Runs jobs in an order until something happens; keeps the times at which it was asked."""

    name = "order"

    def __init__(self, order: Callable[[ClusterState], list[int]] = by_remaining_time) -> None:
        self.order = order
        self.asked: list[float] = []
        self.states: list[ClusterState] = []

    def plan(self, state: ClusterState, memory: None) -> Plan:  # noqa: ARG002
        self.asked.append(state.clock)
        self.states.append(state)
        return self.decide(state)

    def decide(self, state: ClusterState) -> Plan:
        return Plan.until_next_event(first_fit(state, self.order(state)))


class AtArrivalsOnly(OrderPolicy):
    triggers = Trigger.ARRIVAL


class AtArrivalsAndTrouble(OrderPolicy):
    triggers = Trigger.ARRIVAL | Trigger.TROUBLE


class EveryThirtySeconds(OrderPolicy):
    triggers = Trigger.ARRIVAL
    period_seconds = 30.0


class Timetable(OrderPolicy):
    """Steps of given lengths, one job (position) each."""

    triggers = Trigger.ARRIVAL | Trigger.TROUBLE

    def __init__(self, steps: Sequence[tuple[int, float]]) -> None:
        super().__init__()
        self.steps = steps

    def decide(self, state: ClusterState) -> Plan:
        turns = [(i, seconds) for i, seconds in self.steps if i < state.n_jobs]
        return Plan(tuple(PlanStep(first_fit(state, [i]), seconds) for i, seconds in turns))


class Selective(OrderPolicy):
    """Turns away jobs that would take too long; a job that has begun may go on until it has had its time."""

    def __init__(self, most_seconds: float = np.inf, most_elapsed: float = np.inf) -> None:
        super().__init__(in_turn)
        self.most_seconds, self.most_elapsed = most_seconds, most_elapsed

    def decide(self, state: ClusterState) -> Plan:
        long = state.steps_remaining / state.rates.max(axis=1) > self.most_seconds
        rejected = np.flatnonzero(long | (state.elapsed_seconds >= self.most_elapsed))
        order = [i for i in self.order(state) if i not in rejected]
        return Plan.until_next_event(first_fit(state, order), rejected)


class Pairing(OrderPolicy):
    """Jobs 2k and 2k + 1 (positions) share the GPUs of the first pool."""

    needs = Need.COLOCATION

    def decide(self, state: ClusterState) -> Plan:
        jobs = np.arange(min(state.n_jobs, 2 * int(state.capacity[0])))
        partner = np.where(jobs ^ 1 < state.n_jobs, jobs ^ 1, -1)
        return Plan.until_next_event(Assignment.of(jobs, np.zeros(len(jobs)), np.ones(len(jobs)), partner))
