"""Actions: arrays from outside, as the answers of a policy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from allocator.protocol import Allocation, Assignment, ClusterState, Plan, PlanPolicy, SharePolicy, Trigger
from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.errors import expect, expect_one_of

# Relative to the capacity, and to a share of 1: what rounding leaves of shares that are feasible.
_ROUNDING = 1e-6


def into_polytope(shares: Floats, scale_factors: Ints, rates: Floats, capacity: Ints) -> Floats:
    """Feasible shares: those given, scaled down where they ask for more time or GPUs than there are.

    Shares are clipped to [0, 1], and 0 where a job cannot run. A job whose shares add up to more than 1 has all of them
    divided by their sum. Then each type that has fewer GPUs than are asked for divides the shares of all jobs on it by
    what is asked for over what it has. Feasible shares stay as they are, to the last digit.

    Parameters
    ----------
    shares : (N, M), any finite numbers.
    scale_factors : (N,) GPUs of each gang.
    rates : (N, M) steps/s, 0 where the gang cannot run.
    capacity : (M,) GPUs.
    """
    feasible = np.where(rates > 0, np.clip(shares, 0.0, 1.0), 0.0)
    time = feasible.sum(axis=1, keepdims=True)
    feasible = np.where(time > 1 + _ROUNDING, feasible / np.maximum(time, 1.0), feasible)
    usage = (scale_factors[:, None] * feasible).sum(axis=0)
    scarce = usage > capacity * (1 + _ROUNDING)
    return np.where(scarce, feasible * (capacity / np.where(scarce, usage, 1.0)), feasible)


def chosen_by_scores(scores: Floats, scale_factors: Ints, rates: Floats, capacity: Ints) -> Assignment:
    """Gang fill: (job, type) by falling score, each job once, where its whole gang still fits.

    A score of 0 or less keeps the job from the type. Of equal scores the earlier job goes first, and then the type that
    the cluster names first. Parameters as for `into_polytope`, with (N, M) scores.
    """
    wanted = np.where(rates > 0, scores, 0.0)
    order = np.argsort(-wanted, axis=None, kind="stable")[: np.count_nonzero(wanted > 0)]
    free, placed = capacity.tolist(), set()
    jobs, pools = [], []
    for job, pool in zip(*(places.tolist() for places in np.unravel_index(order, wanted.shape)), strict=True):
        gang = int(scale_factors[job])
        if job not in placed and gang <= free[pool]:
            free[pool] -= gang
            placed.add(job)
            jobs.append(job)
            pools.append(pool)
    return Assignment.of(jobs, pools, scale_factors[np.array(jobs, dtype=np.int64)])


class SharesPolicy(SharePolicy):
    """Answers with the shares of time of an action; the round mechanism carries them out.

    Attributes
    ----------
    action : (max_jobs, M) the answer to the next question; rows beyond the active jobs mean nothing.
    """

    name: ClassVar[str] = "environment"

    def __init__(self) -> None:
        self.action: Floats = np.zeros((0, 0))

    @staticmethod
    def carried_out(action: Floats, state: ClusterState) -> Floats:
        """(N, M) what is made of the action: shares, feasible, 0 for jobs that are not seen."""
        seen = min(len(action), state.n_jobs)
        shares = np.zeros(state.rates.shape)
        shares[:seen] = action[:seen]
        return into_polytope(shares, state.scale_factors, state.rates, state.capacity)

    @staticmethod
    def action_of(answer: Allocation | Plan, state: ClusterState) -> Floats:  # noqa: ARG004
        """(N, M) the action that says the same as the answer of a policy about `state`."""
        if not isinstance(answer, Allocation):
            raise InputError("action", found=type(answer).__name__, expected="an Allocation, as shares of time are")
        return answer.shares

    def allocate(self, state: ClusterState) -> Allocation:
        """The shares."""
        return Allocation(self.name, state.throughputs, self.carried_out(self.action, state), "closed form")


class ScoresPolicy(PlanPolicy):
    """Answers with an assignment made of the scores of an action, which lasts until something happens.

    Attributes
    ----------
    action : as in `SharesPolicy`, with scores.
    """

    name: ClassVar[str] = "environment"
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY

    def __init__(self) -> None:
        self.action: Floats = np.zeros((0, 0))

    @staticmethod
    def carried_out(action: Floats, state: ClusterState) -> Floats:
        """(N, M) what is made of the action: 1 where a job runs from now on."""
        rows = _assignment(action, state)
        runs = np.zeros(state.rates.shape)
        runs[rows.jobs, rows.pool] = 1.0
        return runs

    @staticmethod
    def action_of(answer: Allocation | Plan, state: ClusterState) -> Floats:
        """(N, M) scores that lead to the coming assignment of a policy asked about `state`."""
        rows = answer.assignment if isinstance(answer, Allocation) else answer.steps[0].assignment
        if rows is None:
            raise InputError("action", found="an Allocation without assignment", expected="the answer of a plan policy")
        scores = np.zeros(state.rates.shape)
        scores[rows.jobs, rows.pool] = 1.0 - np.arange(len(rows)) / (len(rows) + 1.0)
        return scores

    def plan(self, state: ClusterState, memory: Any) -> Plan:  # noqa: ARG002
        """Who runs from now on."""
        return Plan.until_next_event(_assignment(self.action, state))


AnsweredPolicy = SharesPolicy | ScoresPolicy


def _assignment(action: Floats, state: ClusterState) -> Assignment:
    seen = min(len(action), state.n_jobs)
    return chosen_by_scores(action[:seen], state.scale_factors[:seen], state.rates[:seen], state.capacity)


ACTIONS: dict[str, type[AnsweredPolicy]] = {"shares": SharesPolicy, "assignment": ScoresPolicy}


def answered(kind: str, decide_every: float) -> AnsweredPolicy:
    """The policy behind actions of that kind, asked at the latest after so many seconds.

    Raises
    ------
    InputError
        There are no such actions, or the time is not positive.
    """
    expect_one_of(kind, ACTIONS, "environment", "action")
    expect(decide_every > 0, "environment", "decide_every", decide_every, "seconds above 0")
    base = ACTIONS[kind]
    made: AnsweredPolicy = type(base.__name__, (base,), {"period_seconds": float(decide_every)})()
    return made
