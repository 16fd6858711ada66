"""Why did a job of a finished run wait, who ran instead, and what would have let it run?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from allocator.explanations.explanation import Explanation, Moment, Overview, Wait, WaitingJob, seconds_by_reason
from allocator.explanations.life import Interval, life_of
from allocator.explanations.occupancy import free_at, free_times, holders, time_before
from allocator.explanations.reasons import Stretch, stretches_of
from allocator.explanations.redecide import EventReplay, can_redecide, changes_that_help, comes_out_the_same
from allocator.explanations.replay import Instant, RoundReplay, Standing
from allocator.explanations.run import LEAST_SHARE, FinishedRun
from allocator.results.outcomes import RECORDED
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Values
from throughputs.errors import expect
from throughputs.files import StrPath
from throughputs.trace import date_texts, dates_after

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

_LONGEST = 5
"""Jobs in an overview."""


Time = float | None


@overload
def explain(
    run: SimulationResult | StrPath,
    job: None = None,
    *,
    since: Time = None,
    until: Time = None,
    at: Time = None,
) -> Overview: ...


@overload
def explain(
    run: SimulationResult | StrPath,
    job: int | str,
    *,
    since: Time = None,
    until: Time = None,
    at: Time = None,
) -> Explanation: ...


def explain(
    run: SimulationResult | StrPath,
    job: int | str | None = None,
    *,
    since: Time = None,
    until: Time = None,
    at: Time = None,
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
        expect(
            (since, until, at) == (None, None, None), "explain", "job", None, "the id of a job, where a time is given"
        )
        return _overview(finished)
    number = finished.job_number(job)
    if finished.policy_name == RECORDED and not finished.jobs.served[number]:
        expected = (
            "a job of which the log says on which GPU type of this cluster it ran (the import renames with --map)"
        )
        raise InputError(finished.source, field="job", found=finished.jobs.name(number), expected=expected)
    return _explanation(finished, number, *_window(finished, number, since, until, at), at)


def _window(
    run: FinishedRun, job: int, since: float | None, until: float | None, at: float | None
) -> tuple[float, float]:
    life = life_of(run, job)
    begin = float(run.jobs.arrival_time[job])
    end = life[-1].end if life else begin
    span = " to ".join(_time_in_words(run, job, seconds) for seconds in (begin, end))
    there = f"a time at which job {run.jobs.name(job)} was there, {span}"
    if at is not None:
        inside = next((part for part in life if part.start <= at < part.end), None)
        if (since, until) != (None, None) or inside is None:
            found = _time_in_words(run, job, at)
            raise InputError("explain", field="at", found=found, expected=f"{there}, without `since` and `until`")
        return inside.start, inside.end
    if since is None and until is None:
        longest = max(_waits(life), key=lambda part: part.seconds, default=None)
        return (begin, end) if longest is None else (longest.start, longest.end)
    first, last = begin if since is None else float(since), end if until is None else float(until)
    expect(first <= end, "explain", "since", _time_in_words(run, job, first), there)
    late = f"{there}, at least `since`, {_time_in_words(run, job, first)}"
    expect(last >= max(begin, first), "explain", "until", _time_in_words(run, job, last), late)
    return first, last


def _time_in_words(run: FinishedRun, job: int, seconds: float) -> str:
    """Seconds on the clock of the run, and the date where there are some."""
    after = np.array([seconds - run.jobs.arrival_time[job]])
    date = date_texts(dates_after(run.jobs.arrival_date[[job]], after))[0]
    return f"{date} ({seconds:,.0f} s)" if date else f"{seconds:g} s"


def _waits(life: list[Interval]) -> list[Interval]:
    return [part for part in life if part.kind == "waiting"]


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
        run, decided = self.run, self.run.decisions.time
        times = np.union1d(decided, run.rounds.start_time)
        if not run.in_rounds:
            times = free_times(run, wait.start, wait.end).start
        elif at is None and len(_inside(decided, wait)):
            times = decided
        times = _inside(times, wait)
        if at is not None:
            times = times[: max(int(times.searchsorted(at, "right")), 1)][-1:]
        return float(times[0]) if len(times) else None

    def instant(self, time: float) -> Instant | None:
        """What the policy knew at a moment."""
        if self.events is not None:
            return self.events.instant(time)
        return self.instants.get(time)

    def stretches(self, job: int, wait: Interval) -> tuple[Stretch, ...]:
        """A wait by reasons."""
        return tuple(stretches_of(self.run, job, wait.start, wait.end, self.standings.get(job), self.events))


def _inside(times: Floats, wait: Interval) -> Floats:
    return times[(times >= wait.start) & (times < wait.end)]


def _explanation(run: FinishedRun, job: int, since: float, until: float, at: float | None) -> Explanation:
    life = life_of(run, job)
    inside = [clipped for part in life if (clipped := part.within(since, until)).seconds > 0]
    waits = _waits(inside)
    asker = _Asker(run)
    moments = [asker.moment_of(wait, at) for wait in waits]
    asker.look({job: (since, until)}, [moment for moment in moments if moment is not None])
    jobs = run.jobs
    mine: Any = jobs.take(job)
    waited, started, ran = (
        sum((part.seconds for part in life if part.kind == kind), start=0.0)
        for kind in ("waiting", "starting", "running")
    )
    arrival, fastest = float(mine.arrival_time), float(mine.rates.max())
    return Explanation(
        run=run.source,
        policy=run.policy_name,
        cluster=str(run.cluster),
        job=job,
        job_type=mine.job_type,
        entity=mine.entity,
        gpus=jobs.gpus_taken(job),
        weight=float(mine.priority_weight),
        status=mine.status,
        arrival=arrival,
        completion=_number(mine.completion_time),
        deadline=_number(mine.deadline),
        alone=float(mine.total_steps) / fastest if fastest else None,
        types=_by_type(run, mine.rates, mine.rates > 0),
        since=since,
        until=until,
        waited=waited,
        ran=ran,
        started=started,
        intervals=tuple(inside),
        waits=tuple(_wait(asker, job, wait, moment) for wait, moment in zip(waits, moments, strict=True)),
        trace_id=mine.trace_id,
        arrival_date=jobs.date(job, arrival),
    )


def _number(cell: float) -> float | None:
    return None if np.isnan(cell) else float(cell)


def _wait(asker: _Asker, job: int, wait: Interval, moment: float | None) -> Wait:
    run, usable = asker.run, asker.run.jobs.rates[job] > 0
    times = free_times(run, wait.start, wait.end)
    hours = (times.end - times.start) / 3600.0
    return Wait(
        start=wait.start,
        end=wait.end,
        stretches=asker.stretches(job, wait),
        holders=tuple(holders(run, job, wait.start, wait.end)),
        time_before=float(time_before(run, wait.start)[job]),
        usable_gpu_hours=float((times.in_use[:, usable].sum(axis=1) * hours).sum()),
        free_gpu_hours=float((times.free[:, usable].sum(axis=1) * hours).sum()),
        moment=None if moment is None else _moment(asker, job, moment),
    )


def _by_type(run: FinishedRun, values: Sequence[Any] | Values, shown: Flags) -> dict[str, Any]:
    """Values of the types of which they are shown."""
    cells = zip(run.cluster.accelerators, np.asarray(values).tolist(), shown.tolist(), strict=True)
    return {name: value for name, value, there in cells if there}


def _moment(asker: _Asker, job: int, time: float) -> Moment:
    run = asker.run
    jobs, decisions = run.jobs, run.decisions
    there = np.flatnonzero((jobs.arrival_time <= time) & (jobs.gone > time))
    number = decisions.last_before(time)
    decided = number >= 0
    shares = decisions.shares_of(number, job) if decided else np.zeros(len(run.cluster.accelerators))
    standing = next((s for s in asker.standings.get(job, ()) if s.clock == time), None)
    instant = asker.instant(time) if can_redecide(run) and jobs.served[job] else None
    same = None if instant is None else comes_out_the_same(run, instant)
    says = None if instant is None or asker.events is None else asker.events.hindrance(instant, job)
    mine = run.rows.before(time, job)
    priorities: dict[str, dict[str, Any]] = {"priority": {}, "last_priority": {}, "ahead": {}}
    if standing is not None:
        known = {"priority": standing.priority, "last_priority": standing.last_priority, "ahead": standing.priority}
        priorities = {name: _by_type(run, getattr(standing, name), ~np.isnan(shown)) for name, shown in known.items()}
    return Moment(
        time=time,
        decision=number if decided else None,
        status=str(decisions.status[number]) if decided else "",
        free=free_at(run, time),
        active=len(there),
        waiting=len(np.setdiff1d(there, run.rows.there_at(time).job_id)),
        shares=_by_type(run, shares, shares > LEAST_SHARE),
        prices=_by_type(run, decisions.prices[number], ~np.isnan(decisions.prices[number])) if decided else {},
        row_prices={
            name: float(price[number]) for name, price in decisions.row_prices.items() if np.isfinite(price[number])
        }
        if decided
        else {},
        unit=str(decisions.objective_unit[number]) if decided else "",
        promised=_promised(run, job, time),
        received=float(((np.minimum(mine.end_time, time) - mine.start_time) * mine.share).sum()),
        owed=None if standing is None else standing.owed,
        **priorities,
        priority_unit=_priority_unit(run),
        policy_says="" if says is None else jobs.named(says.text),
        asked=instant is not None and instant.asked,
        redecided=same,
        changes=tuple(changes_that_help(run, instant, job)) if same and instant is not None else (),
    )


def _promised(run: FinishedRun, job: int, time: float) -> float | None:
    """Seconds on GPUs that the decisions up to `time` promised; None where shares are an order, or there are none."""
    decisions, arrival = run.decisions, run.jobs.arrival_time[job]
    if not len(decisions) or "order" in decisions.status:
        return None
    count = decisions.last_before(time) + 1
    mine = decisions.rows.job_id == job
    share = np.bincount(decisions.rows.decision[mine], decisions.rows.share[mine], len(decisions))[:count]
    begin = np.maximum(decisions.time[:count], arrival)
    return float((share * (np.append(begin, max(time, arrival))[1:] - begin)).sum()) if count else 0.0


def _overview(run: FinishedRun) -> Overview:
    jobs, rows = run.jobs, run.rows
    if run.ideal:
        # with any share of any type a job does not wait; that it has several at once counts once
        rows = rows.take(np.unique(np.stack([rows.job_id, rows.round]), axis=1, return_index=True)[1])
    end = np.where(np.isfinite(jobs.gone), jobs.gone, np.maximum(run.end, jobs.arrival_time))
    seconds = np.minimum(rows.end_time, end[rows.job_id]) - rows.start_time
    had = np.bincount(rows.job_id, np.maximum(seconds, 0.0), len(jobs))
    waited = np.where(jobs.served, np.maximum(end - jobs.arrival_time - had, 0.0), 0.0)
    first = np.lexsort((np.arange(len(jobs)), -waited))[:_LONGEST].tolist()
    waits = {
        job: max(_waits(life_of(run, job)), key=lambda part: part.seconds) for job in first if waited[job] > _ROUNDING
    }
    asker = _Asker(run)
    asker.look({job: (wait.start, wait.end) for job, wait in waits.items()}, [])
    return Overview(
        run=run.source,
        policy=run.policy_name,
        cluster=str(run.cluster),
        jobs=int(jobs.served.sum()),
        waited=float(waited.sum()),
        unserved=int((~jobs.served).sum()),
        longest=tuple(
            WaitingJob(
                job=job,
                gpus=jobs.gpus_taken(job),
                entity=jobs.entity[job],
                waited=float(waited[job]),
                start=wait.start,
                end=wait.end,
                reason=next(iter(seconds_by_reason(asker.stretches(job, wait)))),
                trace_id=jobs.trace_id[job],
                start_date=jobs.date(job, wait.start),
            )
            for job, wait in waits.items()
        ),
    )


def _priority_unit(run: FinishedRun) -> str:
    if run.settings.get("discipline") != "deficit":
        return ""
    return "GPU-seconds owed" + ", hysteresis included" * bool(run.settings.get("hysteresis_rounds"))
