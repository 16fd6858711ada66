"""Why did a job of a finished run wait, who ran instead, and what would have let it run?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from allocator.explanations.columns import LEAST_SHARE
from allocator.explanations.explanation import Explanation, Moment, Overview, Wait, WaitingJob
from allocator.explanations.life import Interval, life_of
from allocator.explanations.occupancy import free_at, free_times, holders
from allocator.explanations.reasons import stretches_of
from allocator.explanations.redecide import EventReplay, can_redecide, changes_that_help, comes_out_the_same
from allocator.explanations.replay import Instant, RoundReplay, Standing
from allocator.explanations.run import FinishedRun
from allocator.results.outcomes import RECORDED
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

_LONGEST = 5
"""Jobs in an overview."""


@overload
def explain(
    run: SimulationResult | str | os.PathLike[str],
    job: None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    at: float | None = None,
) -> Overview: ...


@overload
def explain(
    run: SimulationResult | str | os.PathLike[str],
    job: int | str,
    *,
    since: float | None = None,
    until: float | None = None,
    at: float | None = None,
) -> Explanation: ...


def explain(
    run: SimulationResult | str | os.PathLike[str],
    job: int | str | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    at: float | None = None,
) -> Explanation | Overview:
    """Why a job waited, who ran instead, and what would have let it run.

    >>> import allocator
    >>> trace = allocator.Trace(["job"] * 2, [1, 1], [3600.0] * 2, [0.0] * 2)
    >>> result = allocator.simulate(trace, {"v100": 1}, allocator.get_policy("fifo"), [[1.0], [1.0]])
    >>> [wait.reasons for wait in explain(result, job=1).waits]  # seconds
    [{'no_gpus_free': 3960.0}]

    All of it is read from what the run wrote down. Where the policy can be asked once more as things stood at a
    decision, and answers as it did, it is asked with one thing changed: GPUs more, a job less, a smaller gang, another
    type; what then lets the job run is told.

    Parameters
    ----------
    run : what `simulate` returned, or the folder that `allocator simulate`, `compare` or `record` wrote.
    job : its id, or as text what it is called where it was logged; None: the jobs that waited longest.
    since, until : the time that is asked about, seconds; of the one that is not given, from the arrival on, or to the
        end. Neither: the longest wait of the job.
    at : an instant in place of them: the wait that it is in, with the decision in force then.

    Raises
    ------
    InputError
        No such job, a folder that is no run or is one of an older version, or a time at which the job was not there.
    """
    finished = FinishedRun.of(run)
    if job is None:
        if (since, until, at) != (None, None, None):
            raise InputError("explain", field="job", found=None, expected="the id of a job, where a time is given")
        return _overview(finished)
    number = finished.job_number(job)
    if finished.policy_name == RECORDED and not finished.jobs.served[number]:
        expected = "a job of which the log says on which GPU type of this cluster it ran (trace import --map NAME=TYPE)"
        raise InputError(finished.source, field="job", found=finished.jobs.name(number), expected=expected)
    return _explanation(finished, number, *_window(finished, number, since, until, at), at)


def _window(
    run: FinishedRun, job: int, since: float | None, until: float | None, at: float | None
) -> tuple[float, float]:
    life = life_of(run, job)
    begin = float(run.jobs.arrival[job])
    end = life[-1].end if life else begin
    there = f"a time at which job {run.jobs.name(job)} was there, {begin:g} to {end:g} s"
    if at is not None:
        if (since, until) != (None, None):
            raise InputError("explain", field="at", found=at, expected="no `since` and `until` beside it")
        inside = next((part for part in life if part.start <= at < part.end), None)
        if inside is None:
            raise InputError("explain", field="at", found=at, expected=there)
        return inside.start, inside.end
    if since is None and until is None:
        longest = max(_waits(life), key=lambda part: part.seconds, default=None)
        return (begin, end) if longest is None else (longest.start, longest.end)
    first = begin if since is None else float(since)
    last = end if until is None else float(until)
    if first > end:
        raise InputError("explain", field="since", found=since, expected=there)
    if last < begin:
        raise InputError("explain", field="until", found=until, expected=there)
    if last < first:
        raise InputError("explain", field="until", found=until, expected=f"at least `since`, {first:g} s")
    return first, last


def _waits(life: list[Interval]) -> list[Interval]:
    return [part for part in life if part.kind == "waiting"]


def _within(life: list[Interval], since: float, until: float) -> list[Interval]:
    clipped = (
        Interval(part.kind, max(part.start, since), min(part.end, until), part.accelerator, part.gpus) for part in life
    )
    return [part for part in clipped if part.end > part.start]


# Seconds; what sums of time leave.
_ROUNDING = 1e-6


class _Asker:
    """What is known beyond who ran, by the way in which the policy of the run decides."""

    def __init__(self, run: FinishedRun) -> None:
        self.run = run
        self.rounds = RoundReplay(run) if RoundReplay.can_replay(run) else None
        self.events = EventReplay(run) if EventReplay.can_replay(run) else None
        self.standings: dict[int, list[Standing]] = {}
        self.instants: dict[float, Instant] = {}

    def look(self, windows: dict[int, tuple[float, float]], moments: list[float]) -> None:
        """Lead the run through these times once."""
        if self.rounds is not None:
            self.standings, found = self.rounds.follow(windows, moments)
            self.instants = {instant.clock: instant for instant in found}

    def moment_of(self, wait: Interval, at: float | None) -> float | None:
        """The last decision or round up to `at`, else the first decision in the wait, or its first round; None: it has
        none.
        """
        if not self.run.in_rounds:
            times = free_times(self.run, wait.start, wait.end).start
        elif at is None and len(inside := _inside(self._decided, wait)):
            times = inside
        else:
            times = _inside(np.union1d(self._decided, self.run.round_start), wait)
        if at is not None:
            times = times[: max(int(times.searchsorted(at, "right")), 1)][-1:]
        return float(times[0]) if len(times) else None

    @property
    def _decided(self) -> NDArray[np.float64]:
        return np.empty(0) if self.run.decisions is None else self.run.decisions.time

    def instant(self, time: float) -> Instant | None:
        """What the policy knew at a moment."""
        if self.events is not None:
            return self.events.instant(time)
        return self.instants.get(time)


def _inside(times: NDArray[np.float64], wait: Interval) -> NDArray[np.float64]:
    return times[(times >= wait.start) & (times < wait.end)]


def _explanation(run: FinishedRun, job: int, since: float, until: float, at: float | None) -> Explanation:
    life = life_of(run, job)
    inside = _within(life, since, until)
    waits = _waits(inside)
    asker = _Asker(run)
    moments = [asker.moment_of(wait, at) for wait in waits]
    asker.look({job: (since, until)}, [moment for moment in moments if moment is not None])
    jobs, names = run.jobs, run.cluster.accelerators
    total = dict.fromkeys(("waiting", "starting", "running"), 0.0)
    for part in life:
        total[part.kind] += part.seconds
    completion = float(jobs.completion[job])
    return Explanation(
        run=run.source,
        policy=run.policy_name,
        cluster=str(run.cluster),
        job=job,
        job_type=str(jobs.kind[job]),
        entity=str(jobs.entity[job]),
        gpus=jobs.gpus_taken(job),
        weight=float(jobs.weight[job]),
        status=str(jobs.status[job]),
        arrival=float(jobs.arrival[job]),
        completion=None if np.isnan(completion) else completion,
        types={name: float(rate) for name, rate in zip(names, jobs.rates[job], strict=True) if rate > 0},
        since=since,
        until=until,
        waited=total["waiting"],
        ran=total["running"],
        started=total["starting"],
        intervals=tuple(inside),
        waits=tuple(_wait(run, job, wait, asker, moment) for wait, moment in zip(waits, moments, strict=True)),
        trace_id=str(jobs.trace_id[job]),
        arrival_date=jobs.date(job, float(jobs.arrival[job])),
    )


def _wait(run: FinishedRun, job: int, wait: Interval, asker: _Asker, moment: float | None) -> Wait:
    usable = run.jobs.rates[job] > 0
    times = free_times(run, wait.start, wait.end)
    hours = (times.end - times.start) / 3600.0
    standings = None if asker.rounds is None else asker.standings[job]
    return Wait(
        start=wait.start,
        end=wait.end,
        stretches=tuple(stretches_of(run, job, wait.start, wait.end, standings, asker.events)),
        holders=tuple(holders(run, job, wait.start, wait.end)),
        time_before=_time_before(run, job, wait.start),
        usable_gpu_hours=float((times.in_use[:, usable].sum(axis=1) * hours).sum()),
        free_gpu_hours=float((times.free[:, usable].sum(axis=1) * hours).sum()),
        moment=None if moment is None else _moment(run, job, moment, asker),
    )


def _time_before(run: FinishedRun, job: int, time: float) -> float:
    present = time - float(run.jobs.arrival[job])
    mine = np.flatnonzero((run.rows.job == job) & (run.rows.start < time))
    had = float((np.minimum(run.rows.finish[mine], time) - run.rows.start[mine]).sum())
    return min(had / present, 1.0) if present > 0 else 0.0


def _moment(run: FinishedRun, job: int, time: float, asker: _Asker) -> Moment:
    jobs, names, decisions = run.jobs, run.cluster.accelerators, run.decisions
    there = np.flatnonzero((jobs.arrival <= time) & (jobs.gone > time))
    running = np.unique(run.rows.job[(run.rows.start <= time) & (run.rows.until > time)])
    number = -1 if decisions is None else decisions.last_before(time)
    shares = np.zeros(len(names)) if decisions is None or number < 0 else decisions.shares_of(number, job, len(names))
    prices = np.full(len(names), np.nan) if decisions is None or number < 0 else decisions.prices[number]
    standing = next((s for s in asker.standings.get(job, ()) if s.clock == time), None)
    instant = asker.instant(time) if can_redecide(run) and (jobs.rates[job] > 0).any() else None
    same = None if instant is None else comes_out_the_same(run, instant)
    says = None if instant is None or asker.events is None or not same else asker.events.hindrance(instant, job)
    mine = run.rows.take(np.flatnonzero((run.rows.job == job) & (run.rows.start < time)))

    def by_type(values: NDArray[np.float64]) -> dict[str, float]:
        return {name: float(v) for name, v in zip(names, values, strict=True) if v == v}

    return Moment(
        time=time,
        decision=number if number >= 0 else None,
        status="" if decisions is None or number < 0 else str(decisions.status[number]),
        free=free_at(run, time),
        active=len(there),
        waiting=len(np.setdiff1d(there, running)),
        shares={name: float(share) for name, share in zip(names, shares, strict=True) if share > LEAST_SHARE},
        prices=by_type(prices),
        unit="" if decisions is None or number < 0 else str(decisions.unit[number]),
        promised=_promised(run, job, time),
        received=float(((np.minimum(mine.finish, time) - mine.start) * mine.share).sum()),
        owed=None if standing is None else standing.owed,
        priority={} if standing is None else by_type(standing.priority),
        last_priority={} if standing is None else by_type(standing.last_priority),
        ahead={}
        if standing is None
        else {name: int(k) for name, k, p in zip(names, standing.ahead, standing.priority, strict=True) if p == p},
        priority_unit=_priority_unit(run),
        policy_says="" if says is None else jobs.named(says.text),
        asked=instant is not None and instant.asked,
        redecided=same,
        changes=tuple(changes_that_help(run, instant, job)) if same and instant is not None else (),
    )


def _promised(run: FinishedRun, job: int, time: float) -> float | None:
    """Seconds on GPUs that the decisions up to `time` promised; None where shares are an order, or there are none."""
    decisions = run.decisions
    if decisions is None or "order" in decisions.status:
        return None
    count = decisions.last_before(time) + 1
    mine = np.flatnonzero(decisions.job == job)
    of = decisions.first.searchsorted(mine, "right") - 1
    share = np.bincount(of, decisions.share[mine], len(decisions.time))[:count]
    begin = np.maximum(decisions.time[:count], run.jobs.arrival[job])
    return float((share * (np.append(begin, max(time, run.jobs.arrival[job]))[1:] - begin)).sum()) if count else 0.0


def _overview(run: FinishedRun) -> Overview:
    jobs, rows = run.jobs, run.rows
    if run.ideal:
        # with any share of any type a job does not wait; that it has several at once counts once
        rows = rows.take(np.unique(np.stack([rows.job, rows.round]), axis=1, return_index=True)[1])
    end = np.where(np.isfinite(jobs.gone), jobs.gone, np.maximum(run.end, jobs.arrival))
    seconds = np.minimum(rows.finish, end[rows.job]) - rows.start
    had = np.bincount(rows.job, np.maximum(seconds, 0.0), len(jobs))
    served = jobs.served
    waited = np.where(served, np.maximum(end - jobs.arrival - had, 0.0), 0.0)
    longest = [
        job for job in np.lexsort((np.arange(len(jobs)), -waited))[:_LONGEST].tolist() if waited[job] > _ROUNDING
    ]
    waits = {job: max(_waits(life_of(run, job)), key=lambda part: part.seconds) for job in longest}
    asker = _Asker(run)
    asker.look({job: (wait.start, wait.end) for job, wait in waits.items()}, [])
    found = []
    for job, wait in waits.items():
        standings = None if asker.rounds is None else asker.standings[job]
        stretches = tuple(stretches_of(run, job, wait.start, wait.end, standings, asker.events))
        reasons = Wait(wait.start, wait.end, stretches, (), 0.0, 0.0, 0.0, None).reasons
        found.append(
            WaitingJob(
                job=job,
                gpus=jobs.gpus_taken(job),
                entity=str(jobs.entity[job]),
                waited=float(waited[job]),
                start=wait.start,
                end=wait.end,
                reason=next(iter(reasons)),
                trace_id=str(jobs.trace_id[job]),
                start_date=jobs.date(job, wait.start),
            )
        )
    return Overview(
        run=run.source,
        policy=run.policy_name,
        cluster=str(run.cluster),
        jobs=int(served.sum()),
        waited=float(waited.sum()),
        unserved=int((~served).sum()),
        longest=tuple(found),
    )


def _priority_unit(run: FinishedRun) -> str:
    if run.settings.get("discipline") != "deficit":
        return ""
    return "GPU-seconds owed" + ", hysteresis included" * bool(run.settings.get("hysteresis_rounds"))
