"""What is said of a job that waited: data, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from allocator.explanations.life import Interval
from allocator.explanations.occupancy import FreeGpus, Holder
from allocator.explanations.reasons import REASONS, Stretch
from allocator.explanations.redecide import Change
from allocator.explanations.text import explanation_text, overview_text
from allocator.results.output import as_json
from allocator.results.shown import as_text
from throughputs.files import JsonObject


@dataclass(frozen=True)
class Moment:
    """An instant of a wait at which the policy decided, or a round was chosen by its decision of before.

    Attributes
    ----------
    time : seconds.
    asked : whether the policy was asked at this instant; only where the decision can be made once more.
    decision, status : number of the decision on shares of time and how it was proven; None and "" where there is none.
    free : GPUs by type.
    active, waiting : jobs in the cluster, and those of them without GPUs.
    shares, prices, unit : by type, share of time that the decision gave the job, and the price of one more GPU, in the
        unit of the objective; without prices empty.
    row_prices : the same of rows that the policy adds to its program, per unit of their limits.
    promised, received : seconds on GPUs that decisions had promised the job since its arrival, and that it had had.
    owed : the same as the round mechanism counts it, which forgets some of what is long past; None: not known.
    priority, last_priority, ahead : by type on which it has a share: its priority, the least with which another job ran
        there, and how many ran there that came before it.
    priority_unit : what priorities count, GPU-seconds owed or, as fractions of time do, nothing.
    policy_says : what the policy had against it, in words.
    redecided : whether the decision, made once more, came out as it did in the run; None: it cannot be made once more.
    changes : what would have let the job run, each tried by making the decision once more.
    """

    time: float
    decision: int | None
    status: str
    free: dict[str, FreeGpus]
    active: int
    waiting: int
    shares: dict[str, float]
    prices: dict[str, float]
    row_prices: dict[str, float]
    unit: str
    promised: float | None
    received: float
    owed: float | None
    priority: dict[str, float]
    last_priority: dict[str, float]
    ahead: dict[str, int]
    priority_unit: str
    policy_says: str
    asked: bool
    redecided: bool | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Wait:
    """One stretch of time in which the job had no GPUs.

    Attributes
    ----------
    start, end : seconds.
    stretches : the same time by reasons, in order.
    holders : who held GPUs of the types that the job can use, most GPU hours first.
    time_before : share of its time in the cluster in which the job had had GPUs before; 0 if it had just come.
    usable_gpu_hours, free_gpu_hours : of these types, in all and free.
    moment : the first decision in it, or the one asked for.
    """

    start: float
    end: float
    stretches: tuple[Stretch, ...]
    holders: tuple[Holder, ...]
    time_before: float
    usable_gpu_hours: float
    free_gpu_hours: float
    moment: Moment | None

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.start

    @property
    def reasons(self) -> dict[str, float]:
        """Seconds by reason, the longest first."""
        return seconds_by_reason(self.stretches)


def seconds_by_reason(stretches: Iterable[Stretch]) -> dict[str, float]:
    """Those of each reason, the longest first."""
    total: dict[str, float] = {}
    for stretch in stretches:
        total[stretch.reason] = total.get(stretch.reason, 0.0) + stretch.seconds
    return dict(sorted(total.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Explanation:
    """Why a job waited in some time.

    Attributes
    ----------
    run, policy, cluster : of which run.
    job, trace_id, job_type, entity, gpus, weight, status : the job; `trace_id` is its name where it was logged.
    arrival_date : when it arrived there (ISO 8601, UTC); empty where the trace has no dates.
    arrival, completion, deadline : seconds; None where it did not complete, or has no deadline.
    alone : seconds that it needs on the GPUs that it asks for, of its fastest type; None where no type can run it.
    types : accelerator types that can run it, with its rate, steps/s.
    since, until : the time that was asked about, seconds.
    waited, ran, started : seconds of its whole life that it waited, trained and was being started.
    intervals : its life within that time.
    waits : its waits within that time, in order.
    """

    run: str
    policy: str
    cluster: str
    job: int
    job_type: str
    entity: str
    gpus: float
    weight: float
    status: str
    arrival: float
    completion: float | None
    deadline: float | None
    alone: float | None
    types: dict[str, float]
    since: float
    until: float
    waited: float
    ran: float
    started: float
    intervals: tuple[Interval, ...]
    waits: tuple[Wait, ...]
    trace_id: str
    arrival_date: str

    def as_dict(self) -> JsonObject:
        """Ready for JSON."""
        told = as_json(self)
        for wait, of in zip(told["waits"], self.waits, strict=True):
            wait["reasons"] = [
                {"reason": reason, "meaning": REASONS[reason], "seconds": seconds}
                for reason, seconds in of.reasons.items()
            ]
        return dict(told)

    def __str__(self) -> str:
        return as_text(explanation_text(self))


@dataclass(frozen=True)
class WaitingJob:
    """A job that waited long.

    Attributes
    ----------
    job, gpus, entity, waited : who, its gang, whose it is, and for how many seconds it waited in all.
    start, end, reason : its longest wait, seconds, and what held for most of that.
    trace_id, start_date : what it is called where it was logged, and when that wait began as a date (ISO 8601, UTC);
        empty where the trace does not say.
    """

    job: int
    gpus: float
    entity: str
    waited: float
    start: float
    end: float
    reason: str
    trace_id: str
    start_date: str


@dataclass(frozen=True)
class Overview:
    """The jobs that waited longest.

    Attributes
    ----------
    run, policy, cluster : of which run.
    jobs, waited : how many jobs there were that could run, and for how many seconds they waited in all.
    unserved : how many more there were that no type of the cluster can run.
    longest : the jobs that waited longest, the first first.
    """

    run: str
    policy: str
    cluster: str
    jobs: int
    waited: float
    unserved: int
    longest: tuple[WaitingJob, ...]

    def as_dict(self) -> JsonObject:
        """Ready for JSON."""
        return dict(as_json(self))

    def __str__(self) -> str:
        return as_text(overview_text(self))
