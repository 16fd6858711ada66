"""Why a job waited: a small closed set of reasons, and which of them held when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from allocator.explanations.occupancy import FreeTimes, free_times
from allocator.explanations.redecide import EventReplay
from allocator.explanations.replay import Standing
from allocator.explanations.run import LEAST_SHARE, FinishedRun
from throughputs.arrays import Floats, Ints

Reason = tuple[str, str]
"""One of `REASONS`, and what else there is to say."""

REASONS: Final = {
    "next_round": "jobs come and go at the ends of rounds only",
    "undecided": "the policy had not been asked since it arrived",
    "excluded": "no type of the cluster can run its gang",
    "rejected": "it was not admitted",
    "no_share": "the decision in force gave it no share of time",
    "share_met": "it had received its share of time",
    "ranked_behind": "others came before it",
    "queue_blocked": "a gang before it did not fit, and it may not pass",
    "quota": "its entity may not use more",
    "gang_does_not_fit": "fewer GPUs were free than its gang needs",
    "no_gpus_free": "no GPU that it can use was free",
    "capacity_lost": "nodes were down or drained",
    "left_out": "GPUs were free, and the policy did not give them to it",
}
"""Every reason, and what it means."""

# Seconds; what sums of time leave.
_ROUNDING = 1e-6

_ASKED = 500
"""In so many stretches at most a policy that decides at events is asked what it had against the job."""


@dataclass(frozen=True)
class Stretch:
    """Part of a wait in which one reason held.

    Attributes
    ----------
    reason : one of `REASONS`.
    start, end : seconds.
    least_free, most_free : GPUs that were free of the type of which most were, of those that the job can use; in rounds
        in which it had a share, those that were left when its turn came.
    text : what else there is to say, in words.
    """

    reason: str
    start: float
    end: float
    least_free: float = 0.0
    most_free: float = 0.0
    text: str = ""

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.start


def stretches_of(
    run: FinishedRun,
    job: int,
    start: float,
    end: float,
    standings: list[Standing] | None,
    events: EventReplay | None,
) -> list[Stretch]:
    """A wait from `start` to `end` (seconds), by reasons, without gaps.

    Parameters
    ----------
    standings : of the job in the rounds of that time; None where they are not known.
    events : asks a policy that decides at events; None: there is none to ask.
    """
    usable = np.flatnonzero(run.jobs.rates[job] > 0)
    if run.jobs.status[job] == "rejected":
        return [Stretch("rejected", start, end)]
    if not len(usable):
        return [Stretch("excluded", start, end)]
    times = free_times(run, start, end)
    free = times.free[:, usable].max(axis=1)
    reasons: list[Reason] = [(reason, "") for reason in _by_free_gpus(run, job, times, usable)]
    if run.in_rounds:
        _refine_rounds(run, job, times, standings, reasons, free)
    elif run.ideal:
        for k, time in enumerate(times.start.tolist()):
            reasons[k] = _by_shares(run, job, time, reasons[k][0])
    elif events is not None:
        _refine_events(job, times, events, reasons)
    found: list[Stretch] = []
    for (reason, text), alike in groupby(range(len(reasons)), key=reasons.__getitem__):
        at = list(alike)
        span = float(times.start[at[0]]), float(times.end[at[-1]])
        found.append(Stretch(reason, *span, float(free[at].min()), float(free[at].max()), run.jobs.named(text)))
    return found


def _by_free_gpus(run: FinishedRun, job: int, times: FreeTimes, usable: Ints) -> list[str]:
    """(K,) why it waited in each of the times, as far as the GPUs that were free tell."""
    gang, free = run.jobs.gpus_taken(job) - _ROUNDING, times.free[:, usable]
    missing = run.cluster.capacity[usable] - times.in_use[:, usable]
    told = {
        "left_out": (free >= gang).any(axis=1),
        "capacity_lost": (free + missing >= gang).any(axis=1),
        "gang_does_not_fit": (free >= 1).any(axis=1),
    }
    reasons: list[str] = np.select(list(told.values()), list(told), "no_gpus_free").tolist()
    return reasons


def _refine_rounds(
    run: FinishedRun,
    job: int,
    times: FreeTimes,
    standings: list[Standing] | None,
    reasons: list[Reason],
    free: Floats,
) -> None:
    """What the round mechanism knew, in the rounds in which the job waited from the start."""
    rounds = run.rounds
    ran = np.isin(rounds.round, run.rows.round[run.rows.job_id == job])
    by_clock = {standing.clock: standing for standing in standings or ()}
    position = rounds.start_time.searchsorted(times.start, "right") - 1
    for k, at in enumerate(position.tolist()):
        if at < 0 or rounds.end_time[at] <= times.start[k]:
            continue
        clock = float(rounds.start_time[at])
        if run.jobs.arrival_time[job] > clock or ran[at]:
            reasons[k] = ("next_round", "")
        elif standings is None:
            reasons[k] = _by_shares(run, job, clock, reasons[k][0])
        elif (standing := by_clock.get(clock)) is not None:
            reasons[k] = _by_standing(run, job, standing, reasons[k][0])
            if (standing.shares > LEAST_SHARE).any():
                free[k] = standing.left_at_turn[standing.shares > LEAST_SHARE].max()


def _by_shares(run: FinishedRun, job: int, time: float, by_free: str) -> Reason:
    """What the decision in force at `time` says, where nothing else is known of it."""
    decisions = run.decisions
    number = decisions.last_before(time)
    if number < 0 or decisions.status[number] == "order":
        return by_free, ""
    if decisions.time[number] < run.jobs.arrival_time[job]:
        return "undecided", ""
    return (by_free if (decisions.shares_of(number, job) > LEAST_SHARE).any() else "no_share"), ""


def _by_standing(run: FinishedRun, job: int, standing: Standing, by_free: str) -> Reason:
    decisions, policy = run.decisions, run.policy
    assert policy is not None
    if not standing.decided:
        return "undecided", ""
    shared = standing.shares > LEAST_SHARE
    if not shared.any():
        if decisions.status[decisions.last_before(standing.clock)] != "order":
            return "no_share", ""
        if not policy.in_order_of_rows:
            return ("no_share" if by_free == "left_out" else by_free), ""
        before = _first_waiting_before(run, job, standing.clock)
        if before is None:
            return by_free, ""
        if by_free == "left_out":
            return "queue_blocked", f"job {before} needs {run.jobs.gpus_taken(before):g}"
        return "ranked_behind", ""
    if np.isnan(standing.priority[shared]).all():
        return "share_met", ""  # its time is not due yet
    if (standing.left_at_turn[shared] > 0).any():
        return "gang_does_not_fit", ""
    return ("share_met" if standing.owed < -_ROUNDING else "ranked_behind"), ""


def _first_waiting_before(run: FinishedRun, job: int, clock: float) -> int | None:
    """The first of the jobs that arrived before, waited in the round from `clock`, and could run somewhere.

    Rows are in the order of rounds, as where standings are known.
    """
    jobs, rows, number = run.jobs, run.rows, run.rounds.round[run.rounds.start_time.searchsorted(clock)]
    waited = jobs.served[:job] & (jobs.gone[:job] > clock)
    ran = rows.job_id[slice(*rows.round.searchsorted([number, number + 1]))]
    waited[ran[ran < job]] = False
    return int(waited.argmax()) if waited.any() else None


def _refine_events(job: int, times: FreeTimes, events: EventReplay, reasons: list[Reason]) -> None:
    """What the policy itself had against the job, where its decision can be made once more as it was."""
    asked = [k for k, (reason, _) in enumerate(reasons[:_ASKED]) if reason in ("left_out", "no_gpus_free")]
    for k in asked:
        hindrance = events.hindrance(events.instant(float(times.start[k])), job)
        if hindrance is not None:
            # a place in line changes all the time
            reasons[k] = hindrance.reason, "" if hindrance.reason == "ranked_behind" else hindrance.text
