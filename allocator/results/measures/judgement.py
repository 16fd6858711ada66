"""Finished and unfinished jobs of a recorded run, judged by their deadlines after the fact.

Of a job the time from submission to completion is compared with the time from submission to its deadline: the clocks
of a run and of a trace need not begin alike. Two satisfactory ratios are in use. That of ElasticFlow's paper (Gu et
al., ASPLOS 2023, sec. 6) is over all jobs with a deadline, wherever they are at the end. The simulator that its
artifact has for Pollux tells another one while it runs: over the jobs that have finished so far, those without a
deadline, which are never in time, among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

JUDGEMENTS = ("met", "late", "missed", "open", "declined", "best_effort", "not_submitted")
"""Completed in time; completed late; not completed, and the deadline has passed at the end of the record; has not
passed yet; turned away; no deadline; with a deadline in the trace, and not in the run."""


@dataclass(frozen=True, eq=False)
class RecordedJobs:
    """N jobs of a run.

    Attributes
    ----------
    name : (N,) str.
    submitted, completed, deadline : (N,) seconds on one clock; nan for a job that has not completed, or without one.
    declined : (N,) bool, whether the scheduler turned the job away.
    absent : (N,) bool, whether the job is in the trace alone.
    end : up to when the run is recorded, seconds.
    """

    name: NDArray[np.object_]
    submitted: NDArray[np.float64]
    completed: NDArray[np.float64]
    deadline: NDArray[np.float64]
    declined: NDArray[np.bool_]
    absent: NDArray[np.bool_]
    end: float


def judged(jobs: RecordedJobs) -> NDArray[np.object_]:
    """(N,) one of `JUDGEMENTS` for each job."""
    due, done = ~np.isnan(jobs.deadline), ~np.isnan(jobs.completed)
    allowed = jobs.deadline - jobs.submitted
    in_time = done & (jobs.completed - jobs.submitted <= allowed)
    passed = jobs.end - jobs.submitted > allowed
    found = np.select(
        [~due, jobs.absent, jobs.declined, in_time, done, passed],
        ["best_effort", "not_submitted", "declined", "met", "late", "missed"],
        "open",
    )
    return found.astype(object)


def deadline_judgement(jobs: RecordedJobs) -> dict[str, Any]:
    """Figures of a run, ready for JSON.

    jobs, deadline_jobs, completed_jobs; accepted (jobs with a deadline that were submitted and not declined); the
    number of each of `JUDGEMENTS`; satisfactory_ratio (met over deadline_jobs) and satisfactory_ratio_of_finished (met
    over completed_jobs), None where there is nothing to divide by.
    """
    verdicts = judged(jobs)
    counts = {name: int((verdicts == name).sum()) for name in JUDGEMENTS}
    due, done = int((~np.isnan(jobs.deadline)).sum()), int((~np.isnan(jobs.completed)).sum())
    return {
        "jobs": len(verdicts),
        "deadline_jobs": due,
        "completed_jobs": done,
        "accepted": due - counts["declined"] - counts["not_submitted"],
        **counts,
        "satisfactory_ratio": counts["met"] / due if due else None,
        "satisfactory_ratio_of_finished": counts["met"] / done if done else None,
    }
