"""The jobs of a point: a trace from its workload, load and seed, of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster
from allocator.results.deadlines import assign_slos
from allocator.simulator.arrivals import preload
from allocator.sweep.definition.point import Point, Workload
from throughputs import (
    FixedDuration,
    InputError,
    LogUniformDurations,
    Trace,
    TraceGenerator,
    deadline_trace,
    with_deadlines,
)
from throughputs.goodput.trainings import Trainings, training_trace
from throughputs.traces.deadline_generator import DEADLINE_FACTORS, DEADLINE_SCALE_FACTORS
from throughputs.traces.drawing import published_trace
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

if TYPE_CHECKING:
    from throughputs import ThroughputTable

BLOCK_JOBS = 1024
"""Jobs that the project's own generator draws at a time when a trace must be able to grow."""

_WEIGHT_STREAM, _SLO_STREAM, _DEADLINE_STREAM, _TRAINING_STREAM, _CATEGORY_STREAM = 5, 6, 7, 8, 9
_SECONDS_PER_HOUR = 3600.0


def trace_of(point: Point, table: ThroughputTable | Trainings, recorded: Trace | None = None) -> Callable[[int], Trace]:
    """A function from a number of jobs to the trace of that many; a longer one begins with the shorter ones.

    The trace of a static point or a decision is meant for its own number of jobs only; all are there at time 0, unless
    the workload has a mean time between arrivals. `recorded` is the trace of a workload that is not drawn; where the
    point is of such a trace as a whole, its load says how many times as often the jobs arrive.
    """
    cluster = Cluster.parse(point.cluster, point.gpus_per_server)
    draw: dict[str, Callable[[Point, Any, int], Trace]] = {
        "gavel": _gavel,
        "shockwave": _shockwave,
        "default": _own,
        "deadlines": _deadlines,
        "goodput": _training,
    }

    def jobs(n: int) -> Trace:
        drawn = _first(point, recorded, n) if recorded is not None else draw[point.workload.generator](point, table, n)
        trace = _dealt(_with_categories(drawn, point), point.workload)
        return preload(trace, cluster) if point.workload.preload else trace

    return jobs


def _dealt(trace: Trace, workload: Workload) -> Trace:
    """The jobs, handed to the entities of the workload in turn."""
    if workload.entities is None:
        return trace
    once = [entity["name"] for entity in workload.entities for _ in range(entity["jobs"])]
    return _with_column(trace, "entity", np.resize(np.array(once, dtype=object), len(trace)))


def _with_categories(trace: Trace, point: Point) -> Trace:
    """The jobs with drawn categories, where the workload has shares of them."""
    shares = point.workload.categories
    if shares is None:
        return trace
    names, parts = np.array(list(shares), dtype=object), np.array(list(shares.values()))
    drawn = np.random.default_rng([point.seed, _CATEGORY_STREAM]).random(len(trace)) * parts.sum()
    return _with_column(trace, "category", names[np.searchsorted(np.cumsum(parts), drawn, side="right")])


def _gap(point: Point) -> float:
    """Mean time between arrivals, seconds."""
    return (
        _SECONDS_PER_HOUR / point.load if point.kind == "continuous" else point.workload.mean_interarrival_seconds or 0
    )


def _gavel(point: Point, table: ThroughputTable, n: int) -> Trace:
    workload = point.workload
    return published_trace(
        "gavel",
        n,
        _gap(point),
        multi_gpu=workload.multi_gpu,
        priorities=workload.priorities,
        slos=workload.slos,
        seed=point.seed,
        fixed_duration=workload.fixed_duration_seconds,
        table=table,
        whole_steps=False,
    )


def _shockwave(point: Point, table: ThroughputTable, n: int) -> Trace:
    workload, duration = point.workload, point.workload.fixed_duration_seconds
    settings: dict[str, Any] = {}
    if duration is not None:
        settings["hours"] = (duration / _SECONDS_PER_HOUR,) * 2
    if workload.n_durations is not None:
        settings["n_durations"] = workload.n_durations
    if not workload.multi_gpu:
        settings["scale_factors"] = {1: 1.0}
    trace = published_trace("shockwave", n, _gap(point), seed=point.seed, table=table, **settings)
    if workload.priorities:
        weights, shares = np.array(list(PUBLISHED_PRIORITIES)), list(PUBLISHED_PRIORITIES.values())
        drawn = np.random.default_rng([point.seed, _WEIGHT_STREAM]).choice(weights, size=n, p=shares)
        trace = _with_column(trace, "priority_weight", drawn)
    return _with_slos(trace, point)


def _own(point: Point, table: ThroughputTable, n: int) -> Trace:
    workload, gap = point.workload, _gap(point)
    duration = workload.fixed_duration_seconds
    generator = TraceGenerator(
        n_jobs=BLOCK_JOBS if gap else n,
        arrivals="poisson" if gap else "static",
        mean_interarrival=gap,
        durations=LogUniformDurations() if duration is None else FixedDuration(duration),
        scale_factors=PUBLISHED_SCALE_FACTORS if workload.multi_gpu else {1: 1.0},
        priorities=PUBLISHED_PRIORITIES if workload.priorities else None,
        seed=point.seed,
        table=table,
    )
    return _with_slos(_blocks(generator, n) if gap else generator.generate(), point)


def _deadlines(point: Point, table: ThroughputTable, n: int) -> Trace:
    workload = point.workload
    trace = deadline_trace(
        n,
        _gap(point),
        rng=np.random.default_rng([point.seed, _DEADLINE_STREAM]),
        factors=workload.deadline_factors or DEADLINE_FACTORS,
        best_effort=workload.best_effort or 0.0,
        scale_factors=DEADLINE_SCALE_FACTORS if workload.multi_gpu else {1: 1.0},
        table=table,
        reference_accelerator=Cluster.parse(point.cluster).accelerators[0],
    )
    return _with_slos(trace, point)


def _training(point: Point, trainings: Trainings, n: int) -> Trace:
    cluster = Cluster.parse(point.cluster, point.gpus_per_server)
    rng = np.random.default_rng([point.seed, _TRAINING_STREAM])
    return _with_slos(trainings_for(cluster, n, _gap(point), rng, trainings, multi_gpu=point.workload.multi_gpu), point)


def trainings_for(
    cluster: Cluster,
    n_jobs: int,
    mean_interarrival: float,
    rng: np.random.Generator,
    trainings: Trainings,
    *,
    multi_gpu: bool = True,
) -> Trace:
    """Jobs of `training_trace` that ask for GPUs as on the nodes of the cluster's first type, and for no more of them.

    Raises
    ------
    InputError
        As `throughputs.goodput.trainings.training_trace`.
    """
    kind = cluster.accelerators[0]
    return training_trace(
        n_jobs,
        mean_interarrival,
        rng=rng,
        trainings=trainings,
        accelerator=kind,
        gpus_per_node=int(cluster.gpus_per_server[kind]),
        most_gpus=int(cluster.capacity[0]) if multi_gpu else 1,
    )


def _first(point: Point, recorded: Trace, n: int) -> Trace:
    workload = point.workload
    if n > len(recorded):
        raise InputError(recorded.source, found=f"{len(recorded)} jobs", expected=f"at least {n}")
    rng = np.random.default_rng([point.seed, _DEADLINE_STREAM])
    first = recorded.head(n).at_load(point.load) if point.kind == "trace" else recorded.head(n)
    if workload.whole_gpus:
        first = first.with_whole_gpus()
    if workload.entities_by is not None:
        first = first.owned_by(workload.entities_by)
    trace = with_deadlines(first, rng, workload.deadline_factors, workload.best_effort or 0.0)
    return _with_slos(trace, point)


def _with_slos(trace: Trace, point: Point) -> Trace:
    """The jobs with deadlines, where the workload has them."""
    return assign_slos(trace, np.random.default_rng([point.seed, _SLO_STREAM])) if point.workload.slos else trace


def _with_column(trace: Trace, name: str, values: Any) -> Trace:
    """The jobs with another column."""
    columns: dict[str, Any] = {column: getattr(trace, column) for column in Trace.column_names()}
    return Trace(**(columns | {name: values}), source=trace.source)


def _blocks(generator: TraceGenerator, n: int) -> Trace:
    """n jobs drawn block by block, each block with a stream of its own: more jobs leave the first ones as they are."""
    columns: dict[str, list[Any]] = {name: [] for name in Trace.column_names()}
    last = 0.0
    for block in range(-(-n // BLOCK_JOBS)):
        rng = np.random.default_rng([generator.seed, block])
        drawn = generator.generate(rng)
        start = last + rng.exponential(generator.mean_interarrival) if block else 0.0
        for name in columns:
            values = getattr(drawn, name)
            columns[name].append(values + start if name == "arrival_time" else values)
        last = start + float(drawn.arrival_time[-1])
    joined: dict[str, Any] = {name: np.concatenate(parts)[:n] if parts else [] for name, parts in columns.items()}
    return Trace(**joined, source=f"trace generator in blocks of {BLOCK_JOBS} (seed={generator.seed})")
