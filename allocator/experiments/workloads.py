"""Workloads: jobs that are drawn, or those of a file. Each generator is a class with fields of its own.

A workload of another package is an entry point in the group ``allocator.workloads`` whose value is its class, under the
name by which sweeps and ``--generator`` call it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from allocator.cluster import Cluster
from allocator.conversion import NotNegative, Part, Positive, PositiveSeconds, Reads, convert, declared_kinds, is_number
from allocator.protocol.entities import Entities
from allocator.results.deadlines import assign_slos
from allocator.simulator.arrivals import preload
from throughputs import (
    FixedDuration,
    InputError,
    LogUniformDurations,
    Trace,
    TraceGenerator,
    deadline_trace,
    with_deadlines,
)
from throughputs.entry_points import entries_of
from throughputs.errors import one_of
from throughputs.goodput.trainings import Trainings, training_trace
from throughputs.goodput.trainings.profiled import EMBEDDED
from throughputs.trace import CATEGORIES
from throughputs.traces.deadline_generator import DEADLINE_FACTORS, DEADLINE_SCALE_FACTORS
from throughputs.traces.generator import PUBLISHED_PRIORITIES, PUBLISHED_SCALE_FACTORS

if TYPE_CHECKING:
    from throughputs import ThroughputTable

BLOCK_JOBS = 1024
"""Jobs that the project's own generator draws at a time when a trace must be able to grow."""

_WEIGHT_STREAM, _SLO_STREAM, _DEADLINE_STREAM, _TRAINING_STREAM, _CATEGORY_STREAM = 5, 6, 7, 8, 9

ONE_GPU: Mapping[int, float] = {1: 1.0}


@dataclass(frozen=True)
class Draw:
    """What is asked of a workload.

    Attributes
    ----------
    jobs : how many.
    gap_seconds : mean time between their arrivals; 0: all are there at time 0.
    seed : of everything that is drawn.
    speeds : throughputs or trainings of the jobs.
    cluster : where they are to run; None where nobody has said.
    load : how many times as often as recorded they arrive; None: as they are recorded.
    recorded : the jobs of the file, where they are read from one.
    grows : whether a longer trace has to begin with this one.
    """

    jobs: int
    gap_seconds: float
    seed: int
    speeds: ThroughputTable | Trainings
    cluster: Cluster | None = None
    load: float | None = None
    recorded: Trace | None = None
    grows: bool = True

    def stream(self, number: int) -> np.random.Generator:
        """Random numbers for one purpose; a trace that is drawn once has those of its seed."""
        return np.random.default_rng([self.seed, number] if self.grows else self.seed)


def _told(place: str, found: object, expected: str, source: object) -> InputError:
    return InputError(source, field=place, found=found, expected=expected)


def file_of(value: Any, place: str, source: object, folder: Path, *, or_folder: bool = False) -> str:
    """The file of that name, relative to the folder of a definition."""
    path = folder / value if isinstance(value, str) else None
    if path is None or not (path.is_file() or (or_folder and path.is_dir())):
        raise _told(place, value, "the name of a file that exists", source)
    return str(path.resolve())


def speeds_of(value: Any, place: str, source: object, folder: Path) -> str:
    """The same of throughputs, which may be a folder, or the embedded profiles by their name."""
    if value == EMBEDDED and not (folder / EMBEDDED).exists():
        return EMBEDDED
    return file_of(value, place, source, folder, or_folder=True)


def prices_of(value: Any, place: str, source: object, folder: Path) -> str | dict[str, float]:
    """A file of price histories, or dollars by type."""
    if not isinstance(value, Mapping):
        return file_of(value, place, source, folder)
    if not value or not all(is_number(price) and price >= 0 for price in value.values()):
        raise _told(place, value, "dollars per GPU hour by accelerator type", source)
    return {str(accelerator): float(price) for accelerator, price in value.items()}


def _shares(value: Any, place: str, source: object, _folder: Path) -> dict[str, float]:
    """Shares by category, in the order of all categories, so that other shares change as few jobs as they can."""
    if not isinstance(value, Mapping) or not value:
        raise _told(place, value, f"shares of the jobs by category: {', '.join(CATEGORIES)}", source)
    for name, share in value.items():
        if name not in CATEGORIES:
            raise _told(place, name, one_of(name, CATEGORIES), source)
        if not is_number(share) or share < 0:
            raise _told(f"{place}.{name}", share, "a share of at least 0", source)
    if not any(value.values()):
        raise _told(place, dict(value), "a share above 0", source)
    return {name: float(value[name]) for name in CATEGORIES if name in value}


def _turns(value: Any, place: str, source: object, _folder: Path) -> tuple[dict[str, Any], ...]:
    """Entities with the number of jobs that each gets in its turn: 1 where it is not said, 0 for parents."""
    listed = value if isinstance(value, list | tuple) else [value]
    for i, entity in enumerate(listed):
        if not isinstance(entity, Mapping):
            raise _told(f"{place}[{i}]", entity, "a table with name, and weight, policy, parent or jobs", source)
        jobs = entity.get("jobs", 0)
        if type(jobs) is not int or jobs < 0:
            raise _told(f"{place}[{i}].jobs", jobs, "a whole number of at least 0", source)
    try:
        parsed = Entities.parse(without_turns(listed))
    except InputError as error:
        detail = f"{error.field}: " if error.field else ""
        raise _told(place, error.found, f"{detail}{error.expected}", source) from error
    parents = {entity.parent for entity in parsed}
    turns = {entity["name"]: entity.get("jobs", int(entity["name"] not in parents)) for entity in listed}
    if not any(turns.values()):
        raise _told(place, list(turns), "at least one entity with jobs", source)
    found = {entity.name: dataclasses.asdict(entity) for entity in parsed}
    return tuple({**found[name], "jobs": jobs} for name, jobs in turns.items())


def without_turns(entities: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entities as `allocator.protocol.entities.Entities.parse` takes them."""
    return [{name: value for name, value in entity.items() if name != "jobs"} for entity in entities]


def _factors(value: Any, place: str, source: object, _folder: Path) -> tuple[float, float]:
    low, high = convert(value, tuple[NotNegative, NotNegative], source=source, field=place)
    if low > high:
        raise _told(place, value, "the least multiple of the duration, then the largest", source)
    return low, high


Factors = Annotated[tuple[float, float] | None, Reads(_factors)]


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """Which jobs a run gets.

    Attributes
    ----------
    slos : a deadline for every job without one, 1.2, 2 or 10 durations after its arrival.
    preload : the first jobs are there from the start, enough to fill the cluster.
    entities : who owns the jobs: tables with name, weight, policy, parent and ``jobs``, how many jobs in a row an
        entity gets before it is the turn of the next one, in the order in which they are listed; None: nobody.
    mean_interarrival_seconds : the jobs of a static run arrive one after the other, with this mean time between them;
        None: all are there at time 0.

    Options
    -------
    slos
        Draw a deadline for jobs without one: 1.2, 2 or 10 times the duration.
    preload
        Start with a full cluster: the first jobs of the trace arrive at once.
    """

    declared_in: ClassVar[str] = "allocator.workloads"
    generator: ClassVar[str] = ""
    trains: ClassVar[bool] = False
    """Whether jobs choose their batch size, so that they need trainings instead of throughputs."""

    slos: bool = False
    preload: bool = False
    entities: Annotated[tuple[Mapping[str, Any], ...] | None, Reads(_turns)] = None
    mean_interarrival_seconds: PositiveSeconds | None = None

    @abstractmethod
    def drawn(self, draw: Draw) -> Trace:
        """As many jobs as are asked for."""

    def jobs(self, draw: Draw) -> Trace:
        """The same with deadlines, owners and arrivals as the workload has them."""
        trace = self.drawn(draw)
        if self.slos:
            # A stream of its own, so that nothing else changes with the draw.
            trace = assign_slos(trace, np.random.default_rng([draw.seed, _SLO_STREAM]))
        if self.entities is not None:
            once = [entity["name"] for entity in self.entities for _ in range(entity["jobs"])]
            trace = replace(trace, entity=np.resize(np.array(once, dtype=object), len(trace)))
        if self.preload:
            assert draw.cluster is not None
            return preload(trace, draw.cluster)
        return trace


@dataclass(frozen=True, kw_only=True)
class Gangs(Workload):
    """Jobs that are drawn.

    Attributes
    ----------
    multi_gpu : gangs as published; else jobs of one GPU.

    Options
    -------
    multi_gpu
        Gangs of 1, 2, 4 and 8 GPUs, as published.
    """

    multi_gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class Lengths(Gangs):
    """Jobs whose durations are drawn.

    Attributes
    ----------
    priorities : weight 5 for a fifth of the jobs.
    fixed_duration_seconds : the same duration for every job; None: the published distribution.

    Options
    -------
    priorities
        Weight 5 for a fifth of the jobs.
    fixed_duration_seconds : --duration SECONDS
        The same duration for every job, alone.
    """

    priorities: bool = False
    fixed_duration_seconds: PositiveSeconds | None = None


@dataclass(frozen=True, kw_only=True)
class OwnWorkload(Lengths):
    """Jobs of `throughputs.TraceGenerator`."""

    generator = "default"

    def drawn(self, draw: Draw) -> Trace:
        """In blocks where the trace may have to grow."""
        duration, gap, speeds = self.fixed_duration_seconds, draw.gap_seconds, only_table(draw.speeds)
        blocks = draw.grows and gap > 0
        generator = TraceGenerator(
            n_jobs=BLOCK_JOBS if blocks else draw.jobs,
            arrivals="poisson" if gap else "static",
            mean_interarrival=gap,
            durations=LogUniformDurations() if duration is None else FixedDuration(duration),
            scale_factors=PUBLISHED_SCALE_FACTORS if self.multi_gpu else ONE_GPU,
            priorities=PUBLISHED_PRIORITIES if self.priorities else None,
            seed=draw.seed,
            table=speeds,
            reference_accelerator=speeds.reference_accelerator,
        )
        return _blocks(generator, draw.jobs) if blocks else generator.generate()


@dataclass(frozen=True, kw_only=True)
class DeadlineWorkload(Gangs):
    """Jobs of `throughputs.deadline_trace`.

    Attributes
    ----------
    deadline_factors : every job has a deadline, drawn between these multiples of its duration after its arrival.
    best_effort : probability with which a job has no deadline; None: 0.
    """

    generator = "deadlines"
    deadline_factors: Factors = None
    best_effort: Part | None = None

    def drawn(self, draw: Draw) -> Trace:
        """Durations are meant on the first type of the cluster, where there is one."""
        speeds = only_table(draw.speeds)
        return deadline_trace(
            draw.jobs,
            draw.gap_seconds,
            rng=draw.stream(_DEADLINE_STREAM),
            factors=self.deadline_factors or DEADLINE_FACTORS,
            best_effort=self.best_effort or 0.0,
            scale_factors=DEADLINE_SCALE_FACTORS if self.multi_gpu else ONE_GPU,
            table=speeds,
            reference_accelerator=draw.cluster.accelerators[0] if draw.cluster else speeds.reference_accelerator,
        )


Categories = Annotated[Mapping[str, float] | None, Reads(_shares)]


@dataclass(frozen=True, kw_only=True)
class TrainingWorkload(Gangs):
    """Trainings of `throughputs.goodput.trainings.training_trace`, which may choose their batch size.

    Attributes
    ----------
    categories : what a scheduler may choose of the jobs: shares by category ("adaptive", "scale-gpus", "rigid";
        `throughputs.Trace.category`), by which each job's is drawn; None: as the generator or the trace has it.
    """

    generator = "goodput"
    trains = True
    categories: Categories = None

    def drawn(self, draw: Draw) -> Trace:
        """Jobs ask for GPUs as on the nodes of the cluster's first type, and for no more of them."""
        cluster, asked = draw.cluster, dict[str, Any]({} if self.multi_gpu else {"most_gpus": 1})
        if cluster is not None:
            kind = cluster.accelerators[0]
            most = int(cluster.capacity[0]) if self.multi_gpu else 1
            asked = {"accelerator": kind, "gpus_per_node": int(cluster.gpus_per_server[kind]), "most_gpus": most}
        assert isinstance(draw.speeds, Trainings)
        rng: Any = draw.stream(_TRAINING_STREAM)
        trace = training_trace(draw.jobs, draw.gap_seconds, rng=rng, trainings=draw.speeds, **asked)
        return _with_categories(trace, self.categories, draw.seed)


@dataclass(frozen=True, kw_only=True)
class Recorded(Workload):
    """The first jobs of a trace that is there; nothing is drawn but what is asked for.

    Attributes
    ----------
    trace : file of the trace.
    whole_gpus : whether jobs that ask for a fraction of a GPU have it whole; None: they do not.
    entities_by : "user", "partition" or "account", whose names in the trace are entities of equal weight; None: none
        are.
    deadline_factors, best_effort, categories : drawn anew, as for the workloads that draw jobs; None: as the trace has
        them.
    time_unit_seconds : one unit of the times in a trace of ElasticFlow or Chronus; None: inferred from the trace.
    predictions : file with predicted lengths of the jobs.
    default_limit_hours : predicted length, or time limit, of jobs that have none; None: their true length.

    Options
    -------
    whole_gpus
        Jobs that ask for a fraction of a GPU have it whole, under any policy.
    entities_by : user|partition|account
        Users, partitions or accounts of the trace become entities, of equal weight, or as the file of
        --entities says.
    predictions : FILE
        Predicted lengths of the jobs (columns job_id and predicted_seconds, or priority), where the trace has
        none of its own.
    default_limit_hours : --default-limit HOURS
        Time limit of jobs that have none; if omitted, their true length counts.
    """

    generator = "recorded"
    trace: Annotated[str | None, Reads(file_of)] = None
    whole_gpus: bool | None = None
    entities_by: Literal["user", "partition", "account"] | None = None
    deadline_factors: Factors = None
    best_effort: Part | None = None
    categories: Categories = None
    time_unit_seconds: NotNegative | None = None
    predictions: Annotated[str | None, Reads(file_of)] = None

    default_limit_hours: Positive | None = None

    def drawn(self, draw: Draw) -> Trace:
        """The first of them."""
        recorded = draw.recorded
        assert recorded is not None
        if draw.jobs > len(recorded):
            raise InputError(recorded.source, found=f"{len(recorded)} jobs", expected=f"at least {draw.jobs}")
        first = recorded.head(draw.jobs) if draw.jobs < len(recorded) else recorded
        first = first if draw.load is None else first.at_load(draw.load)
        if self.whole_gpus:
            first = first.with_whole_gpus()
        if self.default_limit_hours is not None:
            limits = first.predicted_seconds
            usual = np.where(np.isnan(limits), 3600.0 * self.default_limit_hours, limits)
            first = replace(first, predicted_seconds=usual)
        if self.entities_by is not None:
            first = first.owned_by(self.entities_by)
        if self.deadline_factors is not None or self.best_effort:
            rng = np.random.default_rng([draw.seed, _DEADLINE_STREAM])
            first = with_deadlines(first, rng, self.deadline_factors, self.best_effort or 0.0)
        return _with_categories(first, self.categories, draw.seed)


def only_table(
    speeds: ThroughputTable | Trainings, source: object = "throughputs", found: object = "trainings"
) -> ThroughputTable:
    """The table, where nothing else will do; raises InputError for trainings."""
    if isinstance(speeds, Trainings):
        raise InputError(source, found=found, expected="a throughput table: no job chooses its batch here")
    return speeds


def _with_categories(trace: Trace, shares: Mapping[str, float] | None, seed: int) -> Trace:
    """The jobs with drawn categories, where there are shares of them."""
    if shares is None:
        return trace
    names, parts = np.array(list(shares), dtype=object), np.array(list(shares.values()))
    drawn = np.random.default_rng([seed, _CATEGORY_STREAM]).random(len(trace)) * parts.sum()
    return replace(trace, category=names[np.searchsorted(np.cumsum(parts), drawn, side="right")])


def with_weights(trace: Trace, seed: int) -> Trace:
    """The jobs with the published weights, drawn in a stream of their own."""
    weights, shares = np.array(list(PUBLISHED_PRIORITIES)), list(PUBLISHED_PRIORITIES.values())
    drawn = np.random.default_rng([seed, _WEIGHT_STREAM]).choice(weights, size=len(trace), p=shares)
    return replace(trace, priority_weight=drawn)


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


# By name

_OWN: tuple[type[Workload], ...] = (OwnWorkload, DeadlineWorkload, TrainingWorkload, Recorded)

USUAL = "gavel"
"""The generator where none is named, if it is installed."""


def workloads() -> dict[str, type[Workload]]:
    """Every workload by the name of its generator."""
    others = {name: entry.load() for name, entry in entries_of("allocator.workloads").items()}
    return others | {kind.generator: kind for kind in _OWN}


def kinds_of_workload() -> dict[str, Any]:
    """Declared types of the fields of all workloads, by name."""
    return {name: kind for each in workloads().values() for name, kind in declared_kinds(each).items()}


def usual_values() -> dict[str, Any]:
    """What a workload that has not the field would have in it: what those have that do, where nothing is said."""
    return {field.name: field.default for each in workloads().values() for field in dataclasses.fields(each)}


def workload(settings: Mapping[str, Any]) -> Workload:
    """The workload of a generator with these settings, already of their types.

    Raises
    ------
    InputError
        No such generator, or a setting that it does not have.
    """
    known, given = workloads(), dict(settings)
    name = given.pop("generator", USUAL if USUAL in known else OwnWorkload.generator)
    if name not in known:
        raise InputError("workload", field="workload.generator", found=name, expected=one_of(name, known))
    usual, owned = usual_values(), {field.name for field in dataclasses.fields(known[name])}
    for setting, value in list(given.items()):
        if setting not in owned:
            if value != usual[setting]:
                having = [n for n, kind in known.items() if setting in declared_kinds(kind)]
                several = f"generator{'s' * (len(having) > 1)} {' and '.join(having)}"
                expected = f"nothing: a setting of the {several}, not of {name}"
                raise InputError("workload", field=f"workload.{setting}", found=value, expected=expected)
            del given[setting]
    return known[name](**given)
