"""The record of a run as flat arrays, and the tables made of it when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.fractions import taken_of
from allocator.protocol.jobs import JobTable
from allocator.results.fairness import isolated_jct, round_contention, static_contention
from allocator.results.observers import StretchOutcome
from allocator.results.outcomes import COMPLETED, CUT_OFF, OPEN, STATUSES, UNSERVED
from throughputs.arrays import Flags, Floats, Ints
from throughputs.trace import allowed_types

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.policy import Policy
    from throughputs.configurations import Configurations
    from throughputs.prices import PriceTable


_ROUNDING = 1e-6
"""Part of a time by which sums of shares may exceed it."""


@dataclass(frozen=True, eq=False)
class Promises:
    """What a policy promised to the jobs of a run.

    Attributes
    ----------
    decisions : (round, clock in seconds, shares of time) in order.
    round_seconds : of the mechanism that carried them out.
    binding : whether nobody is meant to have more (`SharePolicy.fills_idle_gpus`).
    """

    decisions: Sequence[tuple[int, float, Allocation]]
    round_seconds: float
    binding: bool


Cell = TypeVar("Cell", bound=np.generic)


def _rounds(of: Callable[[StretchOutcome], float], dtype: type[Cell]) -> cached_property[NDArray[Cell]]:
    """A figure of each round, (R,)."""
    return cached_property(lambda record: np.array([of(outcome) for outcome in record.outcomes], dtype=dtype))


def _rows(of: Callable[[StretchOutcome], NDArray[Cell]], dtype: type[Cell]) -> cached_property[NDArray[Cell]]:
    """A figure of each row, (L,)."""
    return cached_property(
        lambda record: np.concatenate([*map(of, record.outcomes), np.empty(0, dtype=dtype)]).astype(dtype, copy=False)
    )


@dataclass(eq=False)
class RunRecord:
    """What happened to N jobs in R rounds, L (job, round) rows in all.

    Attributes
    ----------
    jobs : the job table at the end of the run.
    cluster : the cluster.
    outcomes : the rounds in order.
    window : (first, end) ids of the jobs that are measured; None: all.
    prices : dollars per GPU hour, see `cost`; None: costs are not computed.
    fluid : whether the run had no rounds; outcomes are then intervals between events, and their rows have shares.
    by_gpus : what the jobs do by number of GPUs, asked for when it is needed; None: not known.
    promises : the decisions on shares of time; None under a policy whose answers are none.
    policy : that decided; None: not at hand.
    work : (N,) steps that isolated completion times are of; None: all steps.
    capacity : (seconds, GPUs of each type from then on), the first from the begin on; empty where all were there.
    placed : (N,) jobs of which a log says where they ran, beside which this run is shown; no figure counts the others.
        None: all.
    round_start, round_end : (R,) seconds.
    round_index, round_length : (R,) number of each round, of many equal ones that of the first; and how many it stands
        for.
    rows_per_round, active_jobs : (R,) jobs that ran, and that were there.
    row_job, row_accelerator, row_gpu_count, row_partner : (L,) job of each row, position of its accelerator type, GPUs,
        and the job with which it shared them, -1 for none.
    row_start : (L,) when each row began: with its round, or where it is a lease, with that, seconds.
    row_finish, row_steps : (L,) when the job had done its steps of the round, seconds, and these.
    row_share : (L,) share of the time of its type that each row had; 1 in rounds.
    """

    jobs: JobTable
    cluster: Cluster
    outcomes: Sequence[StretchOutcome]
    window: tuple[int, int] | None = None
    prices: PriceTable | None = None
    fluid: bool = False
    by_gpus: Callable[[], Configurations] | None = None
    promises: Promises | None = None
    policy: Policy | None = None
    work: Floats | None = None
    capacity: Sequence[tuple[float, Sequence[int]]] = ()
    placed: Flags | None = None

    round_start = _rounds(lambda o: o.start_time, np.float64)
    round_end = _rounds(lambda o: o.end_time, np.float64)
    round_index = _rounds(lambda o: o.index, np.int64)
    round_length = _rounds(lambda o: o.rounds, np.int64)
    rows_per_round = _rounds(lambda o: len(o.steps), np.int64)
    active_jobs = _rounds(lambda o: o.active_jobs, np.int64)
    row_job = _rows(lambda o: o.assignment.jobs, np.int64)
    row_accelerator = _rows(lambda o: o.assignment.pool, np.int64)
    row_gpu_count = _rows(lambda o: o.assignment.gpus, np.int64)
    row_partner = _rows(lambda o: o.assignment.partner, np.int64)
    row_start = _rows(lambda o: np.full(len(o.steps), o.start_time) if o.started is None else o.started, np.float64)
    row_finish = _rows(lambda o: o.finish_time, np.float64)
    row_steps = _rows(lambda o: o.steps, np.float64)
    row_share = _rows(lambda o: np.ones(len(o.steps)) if o.shares is None else o.shares, np.float64)

    @cached_property
    def configurations(self) -> Configurations | None:
        """What the jobs do by number of GPUs; None where it is not known."""
        if self.jobs.configurations is not None:
            return self.jobs.configurations
        return None if self.by_gpus is None else self.by_gpus()

    @cached_property
    def judged_time(self) -> Floats:
        """(N,) what deadlines are compared with: when the job was through, as the world judges it, seconds.

        nan for a job that did not complete, or was cut off before its last step.
        """
        completed = np.where(self.jobs.columns["outcome"] == CUT_OFF, np.nan, self.jobs.completion_time)
        judged = self.jobs.columns.get("judged_time")
        return completed if judged is None else np.where(np.isnan(judged) | np.isnan(completed), completed, judged)

    @cached_property
    def row_round(self) -> Ints:
        """(L,) round of each row."""
        return np.repeat(np.arange(len(self.outcomes)), self.rows_per_round)

    @cached_property
    def packed(self) -> bool:
        """Whether jobs could share GPUs."""
        return self.jobs.colocation is not None or any(o.assignment.shares_gpus for o in self.outcomes)

    @cached_property
    def leased(self) -> bool:
        """Whether the rows are leases, as in a world that decides at events."""
        return any(o.started is not None for o in self.outcomes)

    @cached_property
    def row_busy_until(self) -> Floats:
        """(L,) when the GPUs of the row were free again in the round, seconds: with two jobs, after the later one."""
        if not self.packed or self.leased:
            return self.row_finish
        until = self.row_finish.copy()
        # The two follow each other.
        first = np.flatnonzero(self.row_partner >= 0)[::2]
        until[first] = until[first + 1] = np.maximum(until[first], until[first + 1])
        return until

    @cached_property
    def row_gpus(self) -> Floats:
        """(L,) GPUs that the row kept busy: those of the gang, times its share in a world without rounds.

        Of GPUs that two jobs share, each is put down for half, and for its fraction where it asked for one.
        """
        gpus = self.row_gpu_count.astype(float)
        if self.jobs.fractions is not None:
            gpus = taken_of(self.row_gpu_count, self.jobs.fractions.thousandths[self.row_job])
        if self.packed:
            gpus[self.row_partner >= 0] *= 0.5
        return gpus * self.row_share if self.fluid else gpus

    @cached_property
    def row_gpu_seconds(self) -> Floats:
        """(L,) GPUs kept busy times seconds."""
        busy: Floats = self.row_busy_until - self.row_start
        return busy * self.row_gpus

    @cached_property
    def row_seconds(self) -> Floats:
        """(L,) seconds in which its job had the GPUs of the row, times its share in a world without rounds."""
        through = self.jobs.completion_time[self.row_job]
        ran: Floats = np.fmin(self.row_busy_until, through) - self.row_start
        return ran * self.row_share if self.fluid else ran

    @cached_property
    def running_seconds(self) -> Floats:
        """(N,) seconds in which each job had GPUs."""
        return np.bincount(self.row_job, self.row_seconds, len(self.jobs)).astype(float)

    @cached_property
    def promised_seconds(self) -> Floats | None:
        """(N,) seconds on GPUs that the decisions promised each job while it was there; None without shares."""
        if self.promises is None or not self.promises.decisions:
            return None
        decisions = self.promises.decisions
        end = max(float(self.round_end[-1]), decisions[-1][1]) if len(self.outcomes) else decisions[-1][1]
        gone = np.fmin(self.jobs.completion_time, self.jobs.columns["leave_time"])
        gone = np.where(np.isnan(gone), end, np.minimum(gone, end))
        promised = np.zeros(len(self.jobs))
        until = [clock for _, clock, _ in decisions[1:]] + [end]
        for (_, clock, allocation), following in zip(decisions, until, strict=True):
            ids = np.array(allocation.throughputs.jobs, dtype=np.int64)
            promised[ids] += allocation.shares_of_time * np.maximum(np.minimum(gone[ids], following) - clock, 0.0)
        return promised

    @cached_property
    def ran_beyond_shares(self) -> Flags:
        """(N,) jobs that had more beyond their shares than a round on each type, which shares become rounds by."""
        if self.promises is None or self.promised_seconds is None:
            return np.zeros(len(self.jobs), dtype=bool)
        rounds = len(self.cluster.accelerators) * self.promises.round_seconds
        return self.running_seconds > (self.promised_seconds + rounds) * (1 + _ROUNDING)

    @cached_property
    def restart_gpu_seconds(self) -> Floats:
        """(N,) GPU-seconds that the starts of each job took; zeros where they are free."""
        return np.asarray(self.jobs.columns.get("restart_gpu_seconds", np.zeros(len(self.jobs))))

    @cached_property
    def row_cost(self) -> Floats:
        """(L,) dollars, changes of price within a row included; zeros without prices."""
        if self.prices is None:
            return np.zeros(len(self.row_job))
        types = [self.cluster.accelerators[j] for j in self.row_accelerator.tolist()]
        return self.prices.cost(self.row_start, self.row_busy_until, types) * self.row_gpus

    @cached_property
    def makespan(self) -> float:
        """Clock when the last job completed, seconds; 0 if none did."""
        times = self.jobs.completion_time if self.placed is None else self.jobs.completion_time[self.placed]
        done = times[~np.isnan(times)]
        return float(done.max()) if done.size else 0.0

    @property
    def measured(self) -> Flags:
        """(N,) whether the job is in the window, and placed."""
        ids = np.arange(len(self.jobs))
        first, end = (0, len(ids)) if self.window is None else self.window
        inside = (ids >= first) & (ids < end)
        return inside if self.placed is None else inside & self.placed

    @cached_property
    def logged(self) -> bool:
        """Whether the jobs are those of a log, which says when they were submitted or how they ended."""
        return bool((self.jobs.recorded_status != "").any() or not np.isnat(self.jobs.arrival_date).all())

    @cached_property
    def unfinished(self) -> Flags:
        """(N,) jobs that could have run on when the run ended."""
        left: Flags = (self.jobs.columns["outcome"] == OPEN) & self.jobs.runnable
        return left

    @cached_property
    def end(self) -> float:
        """The makespan, or when the last row ended if jobs are left over, seconds."""
        return max(self.makespan, float(self.row_finish.max(initial=0.0))) if self.unfinished.any() else self.makespan

    @cached_property
    def utilization(self) -> float:
        """Busy GPU time divided by GPU time, both up to the `end`; 0 for an empty run."""
        return self.utilization_between(0.0, self.end)

    def utilization_between(self, start: float, end: float) -> float:
        """Busy GPU time divided by GPU time from `start` to `end` (seconds)."""
        total = self.cluster.total_gpus * (end - start)
        return float(self.gpu_seconds_between(start, end).sum()) / total if total > 0 else 0.0

    def gpu_seconds_between(self, start: float, end: float) -> Floats:
        """(L,) GPU-seconds that each row kept busy from `start` to `end` (seconds); 0 for jobs that are not placed."""
        busy: Floats = np.minimum(self.row_busy_until, end) - np.maximum(self.row_start, start)
        taken: Floats = np.maximum(busy, 0.0) * self.row_gpus
        return taken if self.placed is None else taken * self.placed[self.row_job]

    @cached_property
    def _successions(self) -> tuple[Ints, Flags, Flags]:
        """(L,) the row of each job before each row, -1 for none; whether it went on at once; and on the same GPUs.

        At once: the row is of the very next round, or begins when the lease before it ends. Where placement is off, the
        same type and number stand for the same GPUs.
        """
        order = np.lexsort((self.row_round, self.row_job))
        before = np.full(len(order), -1, dtype=np.int64)
        follows = np.flatnonzero(np.diff(self.row_job[order]) == 0) + 1
        before[order[follows]] = order[follows - 1]
        where = self._place_codes()
        by_time = self.row_start == self.row_finish[before]
        at_once = by_time if self.leased else self.row_round == self.row_round[before] + 1
        some = before >= 0
        return before, some & at_once, some & (where == where[before])

    @cached_property
    def preemptions(self) -> Ints:
        """(N,) how often a job that ran and had not completed was not given the same GPUs at once."""
        if self.fluid:
            return np.zeros(len(self.jobs), dtype=np.int64)
        before, at_once, same_place = self._successions
        return np.bincount(self.row_job[(before >= 0) & ~(at_once & same_place)], minlength=len(self.jobs))

    @cached_property
    def migrations(self) -> int:
        """How often a job went on at once with other GPUs; part of the preemptions."""
        if self.fluid:
            return 0
        _, at_once, same_place = self._successions
        return int((at_once & ~same_place).sum())

    @cached_property
    def leases(self) -> tuple[int, int]:
        """How often a lease was extended, and how often it could have been.

        It could be when a job ran in a round, another round came and the job was still active; it was when the job had
        the same GPUs in that round (Gavel, OSDI'20, sec. 5: lease extensions). Two jobs that share have one
        lease; it could be extended when one of them was still active, and was when they stayed together.
        """
        if self.fluid or self.leased:
            return 0, 0
        before, at_once, same_place = self._successions
        stayed = at_once & same_place & (self.row_partner == self.row_partner[before])
        kept, goes_on = np.zeros(len(before), dtype=bool), np.zeros(len(before), dtype=bool)
        kept[before[stayed]] = goes_on[before[before >= 0]] = True
        goes_on |= self.unfinished[self.row_job] & (self.row_round < len(self.outcomes) - 1)
        first = np.flatnonzero((self.row_partner < 0) | (self.row_job < self.row_partner))
        second = np.where(self.row_partner[first] >= 0, first + 1, first)
        repeated = int((self.round_length - 1)[self.row_round[first]].sum())
        return int(kept[first].sum()) + repeated, int((goes_on[first] | goes_on[second]).sum()) + repeated

    def _place_codes(self) -> Ints:
        """(L,) a number for each row's set of GPUs, or for its type and their number where placement is off."""
        codes, places = self.row_places
        if places:
            return codes
        count = self.row_gpu_count
        return np.asarray(self.row_accelerator * (int(count.max(initial=0)) + 1) + count)

    @cached_property
    def row_places(self) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
        """(L,) position of each row's set of GPUs among the different ones, and these; none where placement is off."""
        codes: dict[tuple[int, ...], int] = {}
        held = chain.from_iterable(outcome.gpus for outcome in self.outcomes)
        rows = np.array([codes.setdefault(ids, len(codes)) for ids in held], dtype=np.int64)
        return rows, tuple(codes)

    def isolated_jct(self) -> Floats:
        """(N,) seconds each job would have needed on isolated shares, see `fairness.isolated_jct`.

        nan where the job cannot run, or had not arrived when the run was cut short.
        """
        jobs = self.jobs
        shown = jobs.runnable
        if self.unfinished.any():
            # A run that was cut short knows nothing of the jobs that would have come after its end.
            shown = shown & (jobs.arrival_time <= self.round_end.max(initial=0.0))
        gone = np.where(np.isnan(jobs.completion_time), jobs.columns["leave_time"], jobs.completion_time)
        result = np.full(len(jobs), np.nan)
        result[shown] = isolated_jct(
            jobs.arrival_time[shown],
            gone[shown],
            (jobs.total_steps if self.work is None else self.work)[shown],
            jobs.gpus_taken[shown],
            jobs.rates[shown],
            self.cluster.capacity,
            allowed_types(jobs.gpu_type[shown], jobs.partition[shown], self.cluster.accelerators),
        )
        return result

    def contended_jct(self) -> dict[str, Floats]:
        """(N,) seconds of the profile of each job, stretched by contention: static, and by rounds (Themis).

        Empty where profiles are not known, or the run had no rounds. nan where a job did not complete or had no round.
        """
        training = self.jobs.training
        if training is None or self.fluid or not len(self.outcomes):
            return {}
        n, gpus = len(self.jobs), float(self.cluster.total_gpus)
        alone = training.profiles.total_seconds
        completed = ~np.isnan(self.jobs.completion_time)
        last = np.zeros(n, dtype=np.int64)
        last[self.row_job] = self.row_round
        admitted = np.searchsorted(self.round_start, np.nan_to_num(training.admitted_seconds, nan=np.inf))
        first = np.where(completed, np.minimum(admitted, last), 0)
        end = np.where(completed, last + 1, 0)
        by_round = np.where(completed, round_contention(self.active_jobs, first, end, gpus, self.round_length), np.nan)
        return {"static": alone * static_contention(n, gpus), "themis": alone * by_round}

    def rounds_present(self) -> Ints:
        """(N,) rounds from the first to the last of each job, those in which it waited included; 0 if it never ran."""
        jobs, n = self.jobs, len(self.jobs)
        end = np.zeros(n, dtype=np.int64)
        end[self.row_job] = self.row_round + 1
        start = np.minimum(np.searchsorted(self.round_start, jobs.arrival_time), np.maximum(end - 1, 0))
        passed = np.concatenate([[0], np.cumsum(self.round_length)])
        return np.where(end > 0, passed[end] - passed[start], 0)

    def status(self) -> list[str]:
        """(N,) how each job ended: one of `STATUSES`, or "unserved" where no type can run it.

        A job that ended in another way where it was logged ends so here, when it has run for as long.
        """
        outcome, logged = self.jobs.columns["outcome"], self.jobs.recorded_status
        names = np.where((outcome == COMPLETED) & (logged != ""), logged, np.array(STATUSES, dtype=object)[outcome])
        shown: list[str] = np.where(self.unfinished | (names != STATUSES[OPEN]), names, UNSERVED).tolist()
        return shown
