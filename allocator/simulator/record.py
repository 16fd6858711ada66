"""The record of a run as flat arrays, and the tables made of it when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.simulator.cost import busy_cost
from allocator.simulator.fairness import isolated_jct, round_contention, static_contention
from allocator.simulator.observers import RoundOutcome

if TYPE_CHECKING:
    import pandas as pd

    from throughputs.prices import PriceTable

__all__ = ["RunRecord"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


class RunRecord:
    """What happened to N jobs in R rounds, L (job, round) rows in all.

    Parameters
    ----------
    jobs : the job table at the end of the run.
    cluster : the cluster.
    outcomes : the rounds in order.
    dropped : ids of jobs that were given up.
    window : (first, end) ids of the jobs that are measured; None: all.
    prices : dollars per GPU hour, see `cost`; None: costs are not reckoned.
    fluid : whether the run had no rounds; outcomes are then intervals between events, and their rows have shares.
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        outcomes: Sequence[RoundOutcome],
        dropped: frozenset[int],
        window: tuple[int, int] | None = None,
        prices: PriceTable | None = None,
        fluid: bool = False,
    ) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self.outcomes = outcomes
        self.dropped = dropped
        self.window = window
        self.prices = prices
        self.fluid = fluid

    @cached_property
    def round_start(self) -> _Floats:
        """(R,) seconds."""
        return np.array([o.start_time for o in self.outcomes], dtype=np.float64)

    @cached_property
    def round_end(self) -> _Floats:
        """(R,) seconds."""
        return np.array([o.end_time for o in self.outcomes], dtype=np.float64)

    @cached_property
    def rows_per_round(self) -> _Ints:
        """(R,) jobs that ran."""
        return np.array([len(o.steps) for o in self.outcomes], dtype=np.int64)

    @cached_property
    def row_round(self) -> _Ints:
        """(L,) round of each row."""
        return np.repeat(np.arange(len(self.outcomes)), self.rows_per_round)

    @cached_property
    def row_job(self) -> _Ints:
        """(L,) job of each row."""
        return _joined([o.decision.jobs for o in self.outcomes], np.int64)

    @cached_property
    def row_accelerator(self) -> _Ints:
        """(L,) position of the accelerator type of each row."""
        return _joined([o.decision.accelerator for o in self.outcomes], np.int64)

    @cached_property
    def packed(self) -> bool:
        """Whether jobs could share GPUs."""
        return any(o.decision.partner is not None for o in self.outcomes)

    @cached_property
    def row_partner(self) -> _Ints:
        """(L,) job with which each row shared its GPUs, -1 for none."""
        alone = np.full(int(self.rows_per_round.max(initial=0)), -1, dtype=np.int64)
        partners = [o.decision.partner for o in self.outcomes]
        rows = [alone[: len(o.steps)] if p is None else p for o, p in zip(self.outcomes, partners, strict=True)]
        return _joined(rows, np.int64)

    @cached_property
    def row_busy_until(self) -> _Floats:
        """(L,) when the GPUs of the row were free again in the round, seconds: with two jobs, after the later one."""
        if not self.packed:
            return self.row_finish
        until = self.row_finish.copy()
        # The two follow each other.
        first = np.flatnonzero(self.row_partner >= 0)[::2]
        until[first] = until[first + 1] = np.maximum(until[first], until[first + 1])
        return until

    @cached_property
    def row_finish(self) -> _Floats:
        """(L,) when the job had done its steps of the round, seconds."""
        return _joined([o.finish_time for o in self.outcomes], np.float64)

    @cached_property
    def row_steps(self) -> _Floats:
        """(L,) steps done in the round."""
        return _joined([o.steps for o in self.outcomes], np.float64)

    @cached_property
    def row_gpus(self) -> _Floats:
        """(L,) GPUs that the row kept busy: those of the gang, times its share in a world without rounds.

        Of GPUs that two jobs share, each is put down for half.
        """
        gpus = self.jobs.scale_factor[self.row_job].astype(np.float64)
        if self.packed:
            gpus[self.row_partner >= 0] *= 0.5
        return gpus * self.row_share if self.fluid else gpus

    @cached_property
    def row_share(self) -> _Floats:
        """(L,) share of the time of its type that each row had; 1 in rounds."""
        shares = [np.ones(len(o.steps)) if o.shares is None else o.shares for o in self.outcomes]
        share: _Floats = _joined(shares, np.float64)
        return share

    @cached_property
    def row_gpu_seconds(self) -> _Floats:
        """(L,) GPUs kept busy times seconds."""
        busy: _Floats = self.row_busy_until - self.round_start[self.row_round]
        return busy * self.row_gpus

    @cached_property
    def row_cost(self) -> _Floats:
        """(L,) dollars; zeros without prices."""
        if self.prices is None:
            return np.zeros(len(self.row_job))
        start, names = self.round_start[self.row_round], self.cluster.accelerators
        return busy_cost(self.prices, names, self.row_accelerator, start, self.row_busy_until, self.row_gpus)

    @cached_property
    def makespan(self) -> float:
        """Clock when the last job completed, seconds; 0 if none did."""
        done = self.jobs.completion_time[~np.isnan(self.jobs.completion_time)]
        return float(done.max()) if done.size else 0.0

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """(N,) whether the job is in the window."""
        ids = np.arange(len(self.jobs))
        return (
            np.ones(len(ids), dtype=np.bool_)
            if self.window is None
            else (ids >= self.window[0]) & (ids < self.window[1])
        )

    @cached_property
    def unfinished(self) -> NDArray[np.bool_]:
        """(N,) jobs that could have run on when the run ended."""
        left: NDArray[np.bool_] = np.isnan(self.jobs.completion_time) & self.jobs.runnable
        left[list(self.dropped)] = False
        return left

    @cached_property
    def utilization(self) -> float:
        """Busy GPU time divided by GPU time up to the makespan (the end, if jobs are left over); 0 for an empty run."""
        end = self.makespan
        if len(self.row_finish) and self.unfinished.any():
            end = max(end, float(self.row_finish.max()))
        total = self.cluster.total_gpus * end
        return float(self.row_gpu_seconds.sum()) / total if total > 0 else 0.0

    def utilization_between(self, start: float, end: float) -> float:
        """Busy GPU time divided by GPU time from `start` to `end` (seconds)."""
        total = self.cluster.total_gpus * (end - start)
        busy = np.minimum(self.row_busy_until, end) - np.maximum(self.round_start[self.row_round], start)
        return float((np.maximum(busy, 0.0) * self.row_gpus).sum()) / total if total > 0 else 0.0

    @cached_property
    def _successions(self) -> tuple[_Ints, NDArray[np.bool_]]:
        """Pairs of rows that follow each other in the life of a job: (P,) the job, and whether it kept its GPUs.

        GPUs are kept when the second row is of the very next round and on the same set of GPUs, or where placement is
        off on the same type.
        """
        if not len(self.row_job):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
        order = np.lexsort((self.row_round, self.row_job))
        job, rnd, where = self.row_job[order], self.row_round[order], self._place_codes()[order]
        same_job = job[1:] == job[:-1]
        kept = (rnd[1:] == rnd[:-1] + 1) & (where[1:] == where[:-1])
        return job[1:][same_job], kept[same_job]

    @cached_property
    def preemptions(self) -> _Ints:
        """(N,) how often a job that ran in a round and had not completed was not given the same GPUs for the next."""
        if self.fluid:
            return np.zeros(len(self.jobs), dtype=np.int64)
        job, kept = self._successions
        return np.bincount(job[~kept], minlength=len(self.jobs))

    @cached_property
    def leases(self) -> tuple[int, int]:
        """How often a lease was extended, and how often it could have been.

        It could be when a job ran in a round, another round came and the job was still active; it was when the job had
        the same GPUs in that round (Gavel, OSDI'20, sec. 5: lease extensions). Two jobs that share have one
        lease; it could be extended when one of them was still active, and was when they stayed together.
        """
        if self.fluid or not len(self.row_job):
            return 0, 0
        if self.packed:
            return self._shared_leases()
        job, kept = self._successions
        last_round = np.full(len(self.jobs), -1, dtype=np.int64)
        last_round[self.row_job] = self.row_round
        stopped = self.unfinished & (last_round >= 0) & (last_round < len(self.outcomes) - 1)
        return int(kept.sum()), len(job) + int(stopped.sum())

    def _shared_leases(self) -> tuple[int, int]:
        """`leases` of jobs alone and of pairs."""
        order = np.lexsort((self.row_round, self.row_job))
        job, rnd, where = self.row_job[order], self.row_round[order], self._place_codes()[order]
        beside = self.row_partner[order]
        same_job = np.append(job[1:] == job[:-1], False)
        goes_on, kept = np.zeros(len(order), dtype=np.bool_), np.zeros(len(order), dtype=np.bool_)
        stopped = self.unfinished[job] & (rnd < len(self.outcomes) - 1)
        goes_on[order] = same_job | stopped
        same = (rnd[1:] == rnd[:-1] + 1) & (where[1:] == where[:-1]) & (beside[1:] == beside[:-1])
        kept[order] = same_job & np.append(same, False)
        first = np.flatnonzero((self.row_partner < 0) | (self.row_job < self.row_partner))
        second = np.where(self.row_partner[first] >= 0, first + 1, first)
        return int(kept[first].sum()), int((goes_on[first] | goes_on[second]).sum())

    def _place_codes(self) -> _Ints:
        """(L,) a number for each row's set of GPUs, or for its type where placement is off."""
        gpus = self.row_gpu_ids()
        if not gpus:
            return self.row_accelerator
        codes: dict[tuple[int, ...], int] = {}
        return np.array([codes.setdefault(ids, len(codes)) for ids in gpus], dtype=np.int64)

    def row_gpu_ids(self) -> list[tuple[int, ...]]:
        """(L,) GPU ids of each row; empty where placement is off."""
        return list(chain.from_iterable(o.decision.gpus for o in self.outcomes))

    def isolated_jct(self) -> _Floats:
        """(N,) seconds each job would have needed on isolated shares, see `fairness.isolated_jct`.

        nan where the job cannot run, or had not arrived when the run was cut short.
        """
        jobs = self.jobs
        shown = jobs.runnable
        if self.unfinished.any():
            # A run that was cut short knows nothing of the jobs that would have come after its end.
            shown = shown & (jobs.arrival_time <= self.round_end.max(initial=0.0))
        gone = np.where(np.isnan(jobs.completion_time), np.inf, jobs.completion_time)
        result = np.full(len(jobs), np.nan)
        result[shown] = isolated_jct(
            jobs.arrival_time[shown],
            gone[shown],
            self._work()[shown],
            jobs.scale_factor[shown],
            jobs.rates[shown],
            self.cluster.capacity,
        )
        return result

    def _work(self) -> _Floats:
        """(N,) steps of each job; where batch sizes change, as many as its profile would take at the present rate."""
        jobs = self.jobs
        if jobs.course is None or jobs.training is None:
            return jobs.total_steps
        steps: _Floats = jobs.training.profiles.total_seconds * jobs.training.profiled_rate(jobs.rates)
        return steps

    def contended_jct(self) -> dict[str, _Floats]:
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
        active = np.array([o.active_jobs for o in self.outcomes], dtype=np.int64)
        by_round = np.where(completed, round_contention(active, first, np.where(completed, last + 1, 0), gpus), np.nan)
        return {"static": alone * static_contention(n, gpus), "themis": alone * by_round}

    def rounds_present(self) -> _Ints:
        """(N,) rounds from the first to the last of each job, those in which it waited included; 0 if it never ran."""
        jobs, n = self.jobs, len(self.jobs)
        end = np.zeros(n, dtype=np.int64)
        end[self.row_job] = self.row_round + 1
        start = np.searchsorted(self.round_start, jobs.arrival_time)
        return np.where(end > 0, end - np.minimum(start, np.maximum(end - 1, 0)), 0)

    def status(self) -> list[str]:
        """(N,) "completed", "dropped" (given up), "unserved" (no type can run it) or "unfinished"."""
        names = np.where(np.isnan(self.jobs.completion_time), "unfinished", "completed")
        names = np.where(self.jobs.runnable, names, "unserved").tolist()
        return ["dropped" if job in self.dropped else name for job, name in enumerate(names)]

    def jobs_table(self) -> pd.DataFrame:
        """One row per job; columns as in `SimulationResult`."""
        from allocator.simulator.tables import jobs_table

        return jobs_table(self)

    def rounds_table(self) -> pd.DataFrame:
        """One row per job and round in which it ran; columns as in `SimulationResult`."""
        from allocator.simulator.tables import rounds_table

        return rounds_table(self)

    def timeline_table(self) -> pd.DataFrame:
        """One row per round; columns as in `SimulationResult`."""
        from allocator.simulator.tables import timeline_table

        return timeline_table(self)


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
