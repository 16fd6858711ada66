"""The workload generator of Shockwave, draw for draw.

>>> trace = shockwave_trace(3, mean_interarrival=40.0, seed=25)
>>> trace.mode.tolist(), trace.arrival_time.tolist()
(['gns', 'accordion', 'gns'], [0.0, 55.0, 64.0])

Source: P. Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning",
NSDI 2023, and its public artifact uw-mad-dash/shockwave (MIT).
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from throughputs.arrays import Floats
from throughputs.errors import InputError
from throughputs.tables.files import default_table
from throughputs.tables.table import ThroughputTable
from throughputs.trace import MODES, Trace
from throughputs.traces.drawing import check_arrivals, probabilities, published_arrivals
from throughputs.traces.job_types import JOB_TYPES, JobType, launch_columns

SHOCKWAVE_SCALE_FACTORS: Mapping[int, float] = MappingProxyType({1: 0.6, 2: 0.3, 4: 0.09, 8: 0.01})
"""Share of jobs by GPUs per gang in the workloads of Zheng et al., NSDI 2023, for types that train distributed."""

SHOCKWAVE_MODES: Mapping[str, float] = MappingProxyType({"static": 0.0, "accordion": 0.5, "gns": 0.5})
"""Share of jobs by mode in the same workloads."""

_SOURCE = "shockwave_trace"
_SEEDS = 2**32

# Offsets of the published generator from its seed, one for each random stream.
_JOB_STREAM, _ARRIVAL_STREAM, _DURATION_STREAM, _SCALE_STREAM, _MODE_STREAM = range(5)

# Probability that a duration comes from the shares up to here of all durations, in ascending order.
_DURATION_CLASSES = ((0.72, 0.2), (0.92, 0.5), (0.97, 0.9), (1.0, 1.0))

# Shorter accordion jobs do not live to see a change.
_SHORTEST_ACCORDION_SECONDS = 1000.0

_LEFT_OUT = ("ResNet-18 (batch size 16)", "ResNet-50 (batch size 128)", "Transformer (batch size 256)")

_Choice = TypeVar("_Choice", bound=Hashable)


def shockwave_trace(
    n_jobs: int,
    mean_interarrival: float,
    *,
    seed: int = 0,
    hours: tuple[float, float] = (0.2, 5.0),
    n_durations: int = 100,
    scale_factors: Mapping[int, float] = SHOCKWAVE_SCALE_FACTORS,
    modes: Mapping[str, float] = SHOCKWAVE_MODES,
    table: ThroughputTable | None = None,
    reference_accelerator: str = "v100",
) -> Trace:
    """Trace with the same jobs, steps and arrivals as the published generator for the same seed.

    Parameters
    ----------
    n_jobs : number of jobs.
    mean_interarrival : mean time between arrivals in seconds, Poisson; arrivals are cut to whole seconds.
    seed : of the published generator, which derives one stream for each purpose from it.
    hours : shortest and longest duration on the reference accelerator.
    n_durations : evenly spaced durations to choose from, at least 5. 72 % of the jobs have one of the shortest fifth,
        20 % one of the next three tenths, 5 % one of the next four, 3 % one of the longest tenth.
    scale_factors : probability of each gang size in GPUs, for job types that train distributed.
    modes : probability of "static", "accordion" and "gns"; accordion jobs below 1000 s become static.
    table : throughputs that turn durations into steps; the embedded table when omitted.
    reference_accelerator : accelerator type on which the durations are meant.

    Raises
    ------
    InputError
        A setting is out of range, or the table does not know the published job types.
    """
    _check(n_jobs, mean_interarrival, hours, n_durations, seed)
    _check_mix("scale_factors", scale_factors)
    _check_mix("modes", modes)
    draws = _Draws(seed, hours, n_durations, scale_factors, modes)
    jobs = [draws.job() for _ in range(n_jobs)]
    names = [job.template.name for job in jobs]
    sizes = [job.scale_factor for job in jobs]
    durations = np.array([job.duration for job in jobs], dtype=np.float64)
    rates = (table or default_table()).rates(names, sizes, [reference_accelerator])[:, 0]
    return Trace(
        names,
        sizes,
        np.floor(durations * rates),
        np.floor(published_arrivals(random.Random(seed + _ARRIVAL_STREAM), n_jobs, mean_interarrival)),
        duration=durations,
        mode=[job.mode for job in jobs],
        **launch_columns([job.template for job in jobs]),
        source=f"{_SOURCE}(seed={seed})",
    )


@dataclass(frozen=True)
class _DrawnJob:
    template: JobType
    scale_factor: int
    duration: int
    mode: str


class _Draws:
    """The random streams; the order of the draws is that of the published generator and must stay."""

    def __init__(
        self,
        seed: int,
        hours: tuple[float, float],
        n_durations: int,
        scale_factors: Mapping[int, float],
        modes: Mapping[str, float],
    ) -> None:
        self.templates, self.durations, self.scales, self.modes = (
            random.Random(seed + stream) for stream in (_JOB_STREAM, _DURATION_STREAM, _SCALE_STREAM, _MODE_STREAM)
        )
        self.choices = np.random.RandomState(seed)  # a legacy stream, as published
        self.grid = _duration_classes(np.linspace(*hours, n_durations))
        self.scale_mix = dict(sorted(scale_factors.items()))
        self.mode_mix = {mode: modes.get(mode, 0.0) for mode in MODES}

    def job(self) -> _DrawnJob:
        template = self.templates.choice(_TEMPLATES)
        scale_factor = _pick(self.scales.random(), self.scale_mix) if template.distributed else 1
        u = self.durations.random()
        part = next(i for i, (probability, _) in enumerate(_DURATION_CLASSES) if u < probability)
        duration = round(float(self.choices.choice(self.grid[part])) * 3600)
        mode = _pick(self.modes.random(), self.mode_mix)
        if mode == "accordion" and duration < _SHORTEST_ACCORDION_SECONDS:
            mode = "static"
        return _DrawnJob(template, scale_factor, duration, mode)


def _templates() -> tuple[JobType, ...]:
    """The job types of this workload: as published for Gavel, apart from two commands and the largest models."""
    kept = (job for job in JOB_TYPES if "batch size" in job.name and job.name not in _LEFT_OUT)
    changes = (("-j 8 ", "-j 4 "), ("python main.py", "python3 main.py"))
    templates = []
    for job in kept:
        command = job.command
        for old, new in changes:
            command = command.replace(old, new)
        templates.append(replace(job, command=command))
    return tuple(templates)


_TEMPLATES = _templates()


def _duration_classes(hours: Floats) -> list[Floats]:
    ends = [int(share * len(hours)) for _, share in _DURATION_CLASSES]
    return [hours[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _pick(u: float, mix: Mapping[_Choice, float]) -> _Choice:
    """The value whose share of [0, 1) holds u, the last one above all."""
    bound = 0.0
    *others, last = mix
    for value in others:
        bound += mix[value]
        if u < bound:
            return value
    return last


def _check(n_jobs: int, mean_interarrival: float, hours: tuple[float, float], n_durations: int, seed: int) -> None:
    check_arrivals(n_jobs, mean_interarrival, _SOURCE)
    if not 0 < hours[0] <= hours[1] < math.inf:
        raise InputError(_SOURCE, field="hours", found=hours, expected="the shortest above 0, then the longest")
    if not 0 <= seed < _SEEDS:
        expected = f"a whole number from 0 to {_SEEDS - 1}, as the published generator takes"
        raise InputError(_SOURCE, field="seed", found=seed, expected=expected)
    if n_durations < 5:
        raise InputError(_SOURCE, field="n_durations", found=n_durations, expected="at least 5, one for each class")


def _check_mix(name: str, mix: Mapping[int, float] | Mapping[str, float]) -> None:
    probabilities(mix, _SOURCE, name)
    for value in mix:
        good = value in MODES if name == "modes" else isinstance(value, int) and value >= 1
        if not good:
            expected = f"modes among {', '.join(MODES)}" if name == "modes" else "whole numbers of GPUs"
            raise InputError(_SOURCE, field=name, found=value, expected=expected)
