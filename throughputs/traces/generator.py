"""A workload generator whose every setting has a name.

>>> trace = TraceGenerator(n_jobs=3, mean_interarrival=600.0, seed=7).generate()
>>> len(trace), float(trace.arrival_time[0])
(3, 0.0)

For the published workload draw for draw see `throughputs.gavel_trace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np

from throughputs.arrays import Floats, Ints, Texts
from throughputs.errors import InputError, expect
from throughputs.numerics import power_of_ten
from throughputs.tables.files import default_table
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace
from throughputs.traces.drawing import check_arrivals, probabilities, types_by_size
from throughputs.traces.job_types import JOB_TYPES, JobType, launch_columns

PUBLISHED_SCALE_FACTORS: Mapping[int, float] = MappingProxyType({1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05})
"""Share of jobs by GPUs per gang in the multi-GPU workload of Narayanan et al., OSDI 2020."""

PUBLISHED_PRIORITIES: Mapping[float, float] = MappingProxyType({5.0: 0.2, 1.0: 0.8})
"""Share of jobs by priority weight in the workload with priorities of Narayanan et al., OSDI 2020."""

_SOURCE = "trace generator"
_UNKNOWN = JobType("", "", "", "", needs_data_dir=False)
"""How a job of a type that is none of the published ones is started: nobody knows."""


class Durations(Protocol):
    """A distribution of job durations on the reference accelerator."""

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) seconds."""


@dataclass(frozen=True)
class LogUniformDurations:
    """Mixture of durations that are uniform in the logarithm, by default that of Narayanan et al., OSDI 2020.

    Parameters
    ----------
    parts : (probability, low, high) of each part, which gives ``unit * 10**U(low, high)`` seconds.
    unit : seconds.
    """

    parts: tuple[tuple[float, float, float], ...] = ((0.8, 1.5, 3.0), (0.2, 3.0, 4.0))
    unit: float = 60.0

    def __post_init__(self) -> None:
        probabilities = [part[0] for part in self.parts]
        proper = all(p >= 0 and low <= high for p, low, high in self.parts)
        expect(
            proper and abs(sum(probabilities) - 1) < 1e-9 and self.unit > 0,
            _SOURCE,
            "durations",
            self,
            "probabilities that add up to 1, each with low <= high, and a positive unit",
        )

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) seconds."""
        probabilities, low, high = np.array(self.parts, dtype=float).T
        part = rng.choice(len(self.parts), size=n, p=probabilities)
        seconds: Floats = self.unit * power_of_ten(rng.uniform(low[part], high[part]))
        return seconds


@dataclass(frozen=True)
class FixedDuration:
    """Every job takes the same `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        expect(0 < self.seconds < np.inf, _SOURCE, "durations", self.seconds, "positive seconds")

    def sample(self, rng: np.random.Generator, n: int) -> Floats:  # noqa: ARG002
        """(n,) seconds."""
        return np.full(n, float(self.seconds))


@dataclass(frozen=True)
class TraceGenerator:
    """Settings of a random workload.

    Job types are drawn evenly from those that the table can run at the drawn scale factor on the reference
    accelerator. A job trains for duration x throughput steps, rounded, at least 1.

    Parameters
    ----------
    n_jobs : number of jobs.
    arrivals : "poisson", the first job at 0, or "static", all at 0.
    mean_interarrival : mean time between Poisson arrivals, seconds.
    durations : distribution of durations on the reference accelerator.
    scale_factors : probability of each gang size in GPUs; ``{1: 1.0}`` for single-GPU jobs.
    priorities : probability of each priority weight; every job has weight 1 when omitted.
    job_types : names to draw from; all of the table's when omitted.
    reference_accelerator : accelerator type on which durations are meant; that of the table when omitted.
    table : throughputs; the embedded table when omitted.
    seed : of the random numbers, unless `generate` is given a generator.

    Raises
    ------
    InputError
        A setting is out of range; from `generate`: the table cannot run any job type at some scale factor.
    """

    n_jobs: int
    arrivals: Literal["poisson", "static"] = "poisson"
    mean_interarrival: float = 3600.0
    durations: Durations = LogUniformDurations()
    scale_factors: Mapping[int, float] = field(default_factory=lambda: PUBLISHED_SCALE_FACTORS)
    priorities: Mapping[float, float] | None = None
    job_types: tuple[str, ...] | None = None
    reference_accelerator: str | None = None
    table: ThroughputTable | None = field(default=None, repr=False)
    seed: int = 0

    def __post_init__(self) -> None:
        check_arrivals(self.n_jobs, self.mean_interarrival, _SOURCE)
        expect(self.seed >= 0, _SOURCE, "seed", self.seed, "a whole number of at least 0")
        expect(self.arrivals in ("poisson", "static"), _SOURCE, "arrivals", self.arrivals, "'poisson' or 'static'")
        _check_mix("scale_factors", self.scale_factors)
        if self.priorities is not None:
            _check_mix("priorities", self.priorities)

    def generate(self, rng: np.random.Generator | None = None) -> Trace:
        """A trace drawn from these settings with `rng`, or with a generator of its own from `seed`."""
        source = _SOURCE if rng is not None else f"{_SOURCE} (seed={self.seed})"
        rng = np.random.default_rng(self.seed) if rng is None else rng
        table = default_table() if self.table is None else self.table
        sizes = _draw(rng, self.scale_factors, self.n_jobs).astype(np.int64)
        accelerator = self.reference_accelerator or table.reference_accelerator
        names = self._draw_job_types(rng, table, sizes, accelerator)
        durations = self.durations.sample(rng, self.n_jobs)
        rates = table.rates(names, sizes, [accelerator])[:, 0]
        launch = {job.name: job for job in JOB_TYPES}
        return Trace(
            names,
            sizes,
            np.maximum(np.rint(durations * rates), 1.0),
            self._draw_arrivals(rng),
            priority_weight=None if self.priorities is None else _draw(rng, self.priorities, self.n_jobs),
            duration=durations,
            **launch_columns([launch.get(name, _UNKNOWN) for name in names.tolist()]),
            source=source,
        )

    def _draw_job_types(self, rng: np.random.Generator, table: ThroughputTable, sizes: Ints, accelerator: str) -> Texts:
        names = np.empty(len(sizes), dtype=object)
        by_size = types_by_size(table, accelerator, self.job_types)
        for size in np.unique(sizes).tolist():
            expect(
                size in by_size,
                _SOURCE,
                "scale_factors",
                size,
                f"a job type that runs with {size} GPUs on {accelerator!r}",
            )
            wanted = sizes == size
            names[wanted] = rng.choice(np.array(by_size[size], dtype=object), size=int(wanted.sum()))
        return names

    def _draw_arrivals(self, rng: np.random.Generator) -> Floats:
        times = np.zeros(self.n_jobs)
        if self.arrivals == "poisson":
            times[1:] = np.cumsum(rng.exponential(self.mean_interarrival, max(self.n_jobs - 1, 0)))
        return times


def _check_mix(name: str, mix: Mapping[int, float] | Mapping[float, float]) -> None:
    probabilities(mix, _SOURCE, name)
    if min(mix) <= 0:
        raise InputError(_SOURCE, field=name, found=min(mix), expected="values above 0")


def _draw(rng: np.random.Generator, mix: Mapping[int, float] | Mapping[float, float], n: int) -> Floats:
    shares = np.array(list(mix.values()), dtype=float)
    return rng.choice(np.array(list(mix), dtype=float), size=n, p=shares / shares.sum())
