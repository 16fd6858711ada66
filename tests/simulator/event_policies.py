"""Policies that decide at events, small enough to follow by hand."""

from __future__ import annotations

import numpy as np

from allocator.protocol import Assignment, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.published.chronus.policy import PublishedChronusMemory


class Planning(PlanPolicy):
    """Answers what `decide` says of the state; keeps the states, and the times at which it was asked."""

    name = "planning"

    def __init__(self, decide, **data):
        self.decide, self.asked, self.states = decide, [], []
        vars(self).update(data)

    def plan(self, state, memory):  # noqa: ARG002
        self.asked.append(state.clock)
        self.states.append(state)
        return self.decide(state)


def until_next_event(jobs, *more, **columns):
    """A plan of one step with no end, with the columns of its assignment."""
    return Plan.until_next_event(Assignment.of(jobs, *more), **columns)


def first_fit(state, order):
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


def in_turn(state):
    return list(range(state.n_jobs))


def by_remaining_time(state):
    """Shortest first; of equal ones the lower id."""
    return np.argsort(state.steps_remaining / state.rates.max(axis=1), kind="stable").tolist()


def order(key=by_remaining_time, **data):
    """Runs jobs in an order until something happens."""
    return Planning(lambda state: Plan.until_next_event(first_fit(state, key(state))), **data)


def turns(*words, triggers=Trigger.ARRIVAL | Trigger.TROUBLE):
    """A job (position) and its seconds, a job and its seconds, ..."""

    def decide(state):
        pairs = [(int(i), seconds) for i, seconds in zip(words[::2], words[1::2], strict=True) if i < state.n_jobs]
        return Plan(tuple(PlanStep(first_fit(state, [i]), seconds) for i, seconds in pairs))

    return Planning(decide, triggers=triggers)


def selective(most_seconds=np.inf, most_elapsed=np.inf, period_seconds=np.inf):
    """Turns away jobs that would take too long; a job that has begun may go on until it has had its time."""

    def decide(state):
        long = state.steps_remaining / state.rates.max(axis=1) > most_seconds
        rejected = np.flatnonzero(long | (state.elapsed_seconds >= most_elapsed))
        return Plan.until_next_event(first_fit(state, [i for i in in_turn(state) if i not in rejected]), rejected)

    return Planning(decide, period_seconds=period_seconds)


def pairing():
    """Jobs 2k and 2k + 1 (positions) share the GPUs of the first pool."""

    def decide(state):
        jobs = np.arange(min(state.n_jobs, 2 * int(state.capacity[0])))
        partner = np.where(jobs ^ 1 < state.n_jobs, jobs ^ 1, -1)
        return until_next_event(jobs, np.zeros(len(jobs)), np.ones(len(jobs)), partner)

    return Planning(decide, needs=Need.COLOCATION)


def ahead(seconds):
    """All jobs run from the first decision on; the first nine are remembered as running for so many seconds."""

    class Ahead(Planning):
        def new_memory(self):
            memory = PublishedChronusMemory(0)
            memory.head_starts = [(job, seconds) for job in range(9)]
            return memory

    return Ahead(lambda state: Plan.until_next_event(first_fit(state, in_turn(state))))


def interrupted(seconds):
    """After so long everybody stops and starts anew."""

    def decide(state):
        rows = first_fit(state, in_turn(state))
        return Plan((PlanStep(rows, seconds), PlanStep(Assignment.none(), 0.0), PlanStep(rows)))

    return Planning(decide)


EVENT_POLICIES = {
    "order": order,
    "line": lambda: order(in_turn),
    "line_at_arrivals": lambda: order(in_turn, triggers=Trigger.ARRIVAL),
    "line_in_trouble": lambda: order(in_turn, triggers=Trigger.ARRIVAL | Trigger.TROUBLE),
    "every": lambda seconds: order(triggers=Trigger.ARRIVAL, period_seconds=seconds),
    "turns": turns,
    "selective": selective,
    "ahead": ahead,
    "interrupted": interrupted,
}
"""By the names that rows of `tests.simulator.cases` have for them."""
