"""The record of a run as flat arrays, and the tables made of it when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.jobs import JobTable
from allocator.simulator.fairness import isolated_jct
from allocator.simulator.observers import RoundOutcome

if TYPE_CHECKING:
    import pandas as pd

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
    """

    def __init__(
        self, jobs: JobTable, cluster: Cluster, outcomes: Sequence[RoundOutcome], dropped: frozenset[int]
    ) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self.outcomes = outcomes
        self.dropped = dropped

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
    def row_finish(self) -> _Floats:
        """(L,) when the job had done its steps of the round, seconds."""
        return _joined([o.finish_time for o in self.outcomes], np.float64)

    @cached_property
    def row_steps(self) -> _Floats:
        """(L,) steps done in the round."""
        return _joined([o.steps for o in self.outcomes], np.float64)

    @cached_property
    def row_gpu_seconds(self) -> _Floats:
        """(L,) GPUs of the gang times seconds it was busy."""
        busy = self.row_finish - self.round_start[self.row_round]
        return busy * self.jobs.scale_factor[self.row_job]

    @cached_property
    def makespan(self) -> float:
        """Clock when the last job completed, seconds; 0 if none did."""
        done = self.jobs.completion_time[~np.isnan(self.jobs.completion_time)]
        return float(done.max()) if done.size else 0.0

    @cached_property
    def utilization(self) -> float:
        """Busy GPU time divided by GPU time up to the makespan; 0 for an empty run."""
        total = self.cluster.total_gpus * self.makespan
        return float(self.row_gpu_seconds.sum()) / total if total > 0 else 0.0

    @cached_property
    def preemptions(self) -> _Ints:
        """(N,) how often a job that ran in a round and had not completed was not given the same GPUs for the next."""
        n = len(self.jobs)
        if not len(self.row_job):
            return np.zeros(n, dtype=np.int64)
        order = np.lexsort((self.row_round, self.row_job))
        job, rnd, where = self.row_job[order], self.row_round[order], self._place_codes()[order]
        same_job = job[1:] == job[:-1]
        moved = same_job & ((rnd[1:] != rnd[:-1] + 1) | (where[1:] != where[:-1]))
        return np.bincount(job[1:][moved], minlength=n)

    def _place_codes(self) -> _Ints:
        """(L,) a number for each row's set of GPUs, or for its type where placement is off."""
        gpus = self._row_gpus()
        if not gpus:
            return self.row_accelerator
        codes: dict[tuple[int, ...], int] = {}
        return np.array([codes.setdefault(ids, len(codes)) for ids in gpus], dtype=np.int64)

    def _row_gpus(self) -> list[tuple[int, ...]]:
        return list(chain.from_iterable(o.decision.gpus for o in self.outcomes))

    def isolated_jct(self) -> _Floats:
        """(N,) seconds each job would have needed on isolated shares, see `fairness.isolated_jct`; nan: cannot run."""
        jobs = self.jobs
        shown = jobs.runnable
        gone = np.where(np.isnan(jobs.completion_time), np.inf, jobs.completion_time)
        result = np.full(len(jobs), np.nan)
        result[shown] = isolated_jct(
            jobs.arrival_time[shown],
            gone[shown],
            jobs.total_steps[shown],
            jobs.scale_factor[shown],
            jobs.rates[shown],
            self.cluster.capacity,
        )
        return result

    def status(self) -> list[str]:
        """(N,) "completed", "dropped" (given up), "unserved" (no type can run it) or "unfinished"."""
        names = np.where(np.isnan(self.jobs.completion_time), "unfinished", "completed")
        names = np.where(self.jobs.runnable, names, "unserved").tolist()
        return ["dropped" if job in self.dropped else name for job, name in enumerate(names)]

    def jobs_table(self) -> pd.DataFrame:
        """One row per job; columns as in `SimulationResult`."""
        import pandas as pd

        jobs, n = self.jobs, len(self.jobs)
        start = np.full(n, np.nan)
        # Written last to first, so that the first round stays.
        start[self.row_job[::-1]] = self.round_start[self.row_round[::-1]]
        jct = jobs.completion_time - jobs.arrival_time
        isolated = self.isolated_jct()
        columns: dict[str, Any] = {
            "job_id": np.arange(n),
            "job_type": jobs.job_type,
            "scale_factor": jobs.scale_factor,
            "priority_weight": jobs.priority_weight,
            "total_steps": jobs.total_steps,
            "arrival_time": jobs.arrival_time,
            "start_time": start,
            "completion_time": jobs.completion_time,
            "jct": jct,
            "isolated_jct": isolated,
            "rho": jct / isolated,
            "gpu_seconds": np.bincount(self.row_job, self.row_gpu_seconds, n),
            "rounds_run": np.bincount(self.row_job, minlength=n),
            "preemptions": self.preemptions,
            "status": pd.Categorical(self.status(), ["completed", "dropped", "unserved", "unfinished"]),
        }
        return pd.DataFrame(columns)

    def rounds_table(self) -> pd.DataFrame:
        """One row per job and round in which it ran; columns as in `SimulationResult`."""
        import pandas as pd

        texts: dict[tuple[int, ...], str] = {}
        gpus = [texts.get(ids) or texts.setdefault(ids, " ".join(map(str, ids))) for ids in self._row_gpus()]
        return pd.DataFrame(
            {
                "round": self.row_round,
                "start_time": self.round_start[self.row_round],
                "end_time": self.row_finish,
                "job_id": self.row_job,
                "accelerator": pd.Categorical.from_codes(self.row_accelerator, pd.Index(self.cluster.accelerators)),
                "gpus": pd.Series(gpus or [""] * len(self.row_job), dtype="str"),
                "steps": self.row_steps,
            }
        )

    def timeline_table(self) -> pd.DataFrame:
        """One row per round; columns as in `SimulationResult`."""
        import pandas as pd

        active = np.array([o.active_jobs for o in self.outcomes], dtype=np.int64)
        gpus = self.jobs.scale_factor[self.row_job]
        return pd.DataFrame(
            {
                "round": np.arange(len(self.outcomes)),
                "start_time": self.round_start,
                "end_time": self.round_end,
                "active_jobs": active,
                "running_jobs": self.rows_per_round,
                "queued_jobs": active - self.rows_per_round,
                "busy_gpus": np.bincount(self.row_round, gpus, len(self.outcomes)).astype(np.int64),
            }
        )


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
