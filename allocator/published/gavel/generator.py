"""The workload generator of Gavel, draw for draw.

>>> trace = gavel_trace(3, mean_interarrival=600.0)
>>> [float(round(t)) for t in trace.arrival_time]
[0.0, 163.0, 635.0]

Source: D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
OSDI 2020, and its public artifact stanford-futuredata/gavel (MIT).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from throughputs.tables.files import default_table
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace
from throughputs.traces.drawing import check_arrivals, published_arrivals
from throughputs.traces.job_types import JOB_TYPES, JobType, launch_columns

# Offsets of the published simulator from its seed, one for each random stream.
_JOB_STREAM, _ARRIVAL_STREAM, _SLO_STREAM = 2, 3, 6


def gavel_trace(
    n_jobs: int,
    mean_interarrival: float,
    *,
    multi_gpu: bool = False,
    priorities: bool = False,
    slos: bool = False,
    seed: int = 0,
    fixed_duration: float | None = None,
    table: ThroughputTable | None = None,
    reference_accelerator: str = "v100",
    whole_steps: bool = True,
) -> Trace:
    """Trace with the same jobs, steps and arrivals as the published generator for the same seed.

    Parameters
    ----------
    n_jobs : number of jobs.
    mean_interarrival : mean time between arrivals in seconds, Poisson; 0 for all at once.
    multi_gpu : gangs of 1, 2, 4 and 8 GPUs with probabilities 0.70, 0.10, 0.15 and 0.05; else all of 1.
    priorities : weight 5 with probability 0.2, else 1.
    slos : allowed completion time of 1.2, 2 or 10 durations, with probabilities 0.33, 0.34 and 0.33.
    seed : of the published simulator, which derives one stream for each purpose from it.
    fixed_duration : seconds on the reference accelerator; published distribution when omitted.
    table : throughputs that turn durations into steps; the embedded table when omitted.
    reference_accelerator : accelerator type on which the durations are meant.
    whole_steps : steps cut to whole numbers, as a trace file holds them; else as the published simulator
        keeps them when it generates jobs on the fly.

    Raises
    ------
    InputError
        Fewer than 0 jobs, a negative inter-arrival time, or a table without the published job types.
    """
    check_arrivals(n_jobs, mean_interarrival, "gavel_trace")
    jobs = random.Random(seed + _JOB_STREAM)
    drawn = [_draw_job(jobs, multi_gpu, priorities, fixed_duration) for _ in range(n_jobs)]
    names = [job.template.name for job in drawn]
    sizes = [job.scale_factor for job in drawn]
    durations = np.array([job.duration for job in drawn])
    rates = (table or default_table()).rates(names, sizes, [reference_accelerator])[:, 0]
    steps = durations * rates
    return Trace(
        names,
        sizes,
        np.floor(steps) if whole_steps else steps,
        published_arrivals(random.Random(seed + _ARRIVAL_STREAM), n_jobs, mean_interarrival),
        priority_weight=[job.priority_weight for job in drawn],
        slo=_slos(random.Random(seed + _SLO_STREAM), n_jobs) if slos else None,
        duration=durations,
        **launch_columns([job.template for job in drawn]),
        source=f"gavel_trace(seed={seed})",
    )


@dataclass(frozen=True)
class _DrawnJob:
    template: JobType
    scale_factor: int
    duration: float
    priority_weight: float


def _draw_job(rng: random.Random, multi_gpu: bool, priorities: bool, fixed_duration: float | None) -> _DrawnJob:
    """One job; the order of the draws is that of the published generator and must stay."""
    scale_factor = _draw_scale_factor(rng)  # drawn for single-GPU traces too, to keep the stream
    if not multi_gpu:
        scale_factor = 1
    duration = _draw_duration(rng) if fixed_duration is None else fixed_duration
    template = rng.choice(JOB_TYPES)
    while scale_factor > 1 and not template.distributed:
        template = rng.choice(JOB_TYPES)
    weight = 5.0 if priorities and rng.uniform(0, 1) <= 0.2 else 1.0
    return _DrawnJob(template, scale_factor, duration, weight)


def _draw_scale_factor(rng: random.Random) -> int:
    u = rng.uniform(0, 1)
    if u < 0.7:
        return 1
    if u <= 0.8:
        return 2
    return 4 if u <= 0.95 else 8


def _draw_duration(rng: random.Random) -> float:
    """Seconds: mostly 30 minutes to 17 hours, sometimes 17 hours to 7 days, uniform in the logarithm."""
    exponent = rng.uniform(3, 4) if rng.random() >= 0.8 else rng.uniform(1.5, 3)
    return float(60 * 10**exponent)


def _slos(rng: random.Random, n_jobs: int) -> list[float]:
    draws = (rng.uniform(0, 1) for _ in range(n_jobs))
    return [1.2 if u < 0.33 else 2.0 if u < 0.67 else 10.0 for u in draws]
