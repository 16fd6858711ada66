"""One run: everything that it depends on, and an identity made of it.

>>> from throughputs import TraceGenerator
>>> trace = TraceGenerator(n_jobs=5, mean_interarrival=600, seed=1).generate()
>>> Run("trace", "fifo", "v100:8", workload=trace).result().summary()["completed_jobs"]
5
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from allocator.api import load_speeds
from allocator.cluster import Cluster
from allocator.conversion import AtLeastOne, NotNegativeWhole, Part, Reads
from allocator.experiments.workloads import (
    Draw,
    Recorded,
    Workload,
    file_of,
    prices_of,
    speeds_of,
    usual_values,
    without_turns,
    workload,
)
from allocator.presets import Preset, preset
from allocator.protocol import Policy
from allocator.protocol.elastic import gang_rates
from allocator.protocol.entities import Entities
from allocator.protocol.policy import Need
from allocator.registry import sources_of
from allocator.results.measures.cost import Prices, price_table
from allocator.results.result import SimulationResult
from allocator.simulator.engine import simulate
from allocator.simulator.rules.already import RunsAlready
from allocator.simulator.rules.base import Rule, rule_of
from allocator.simulator.rules.general import GangRates
from throughputs import InputError, Trace, read_trace
from throughputs.errors import expect
from throughputs.estimator.believed import Estimation
from throughputs.goodput.trainings import Trainings
from throughputs.goodput.trainings.jobs import training_jobs
from throughputs.goodput.trainings.profiled import EMBEDDED
from throughputs.prices import read_prices

if TYPE_CHECKING:
    from throughputs import ThroughputTable

Kind = Literal["continuous", "static", "trace", "decision"]

FORMAT = 1
"""Part of every identity: to be raised when the same specification comes to mean another run."""

POLICY_PREFIX = "policy_"
"""Before the name of a policy's setting, where it is the name of a column."""

WAITING_JOBS_PER_GPU = 10
"""A continuous run counts as saturated when more jobs wait, unless a limit is named."""

CLOCK_FACTOR, CLOCK_HOURS = 4.0, 5000.0
"""Or when the clock passes so many times the mean arrival time of the window's end, and so many hours on top."""

LOADS: Mapping[Kind, tuple[str, str]] = {
    "continuous": ("jobs_per_hour", "{:g} jobs/h"),
    "static": ("submitted_jobs", "{:g} jobs"),
    "trace": ("load", "load {:g}"),
    "decision": ("submitted_jobs", "{:g} jobs"),
}
"""What the load of a run is called as a column of results, and how it is said of one run."""

OF_WORKLOAD = ("throughputs", "prices", "profiling_percentage", "reference_models")
"""Fields of a run that definitions, identities and columns have beside those of its workload."""

_ALWAYS = ("generator", "multi_gpu", "priorities", "slos", "preload", "fixed_duration_seconds", "throughputs", "prices")
"""Parts of a workload that count for the identity whether or not they are set."""

_NO_COLUMN = ("time_unit_seconds", "predictions", "default_limit_hours")
"""Parts of a workload that have a column only where they are set."""

_KEY_DIGITS = 16

_SHA = "sha256:"
"""Before what stands for the contents of a file."""


_GIVEN: Mapping[str, tuple[Any, str]] = {
    "policy": (str, "the name of a policy; `allocator.register` gives one of yours a name"),
    "throughputs": (str | None, "the name of a file or folder; `write_table` makes one of a `ThroughputTable`"),
    "world": (tuple | list, "rules, as in (Slow(by=0.5),)"),
}
"""What these fields take, which runs keep and others are handed to in other forms."""


@dataclass(frozen=True)
class Run:
    """One run.

    >>> Run("static", "fifo", "v100:8", load=3).result().summary()["completed_jobs"]
    3

    Attributes
    ----------
    kind : "continuous", jobs arrive at a rate; "static", a number of jobs, all there at time 0 unless the workload says
        otherwise; "trace", all jobs of a recorded trace, as they arrive there; "decision", nothing is run: the policy
        decides once about jobs that have just arrived.
    policy : its name; `policy_settings` are the settings it is made with.
    cluster : GPUs by accelerator type, as text; `gpus_per_server` in the same form, None for 1.
    load : jobs per hour (continuous), number of jobs (static, decision), or how many times as often as in the trace
        jobs arrive (trace; None: as they are recorded, times of starts and ends included).
    seed : of jobs, arrivals and everything else that is drawn.
    workload : which jobs: a workload, or a trace.
    window : ids (first, end) of the jobs that are measured; None: all.
    throughputs : file or folder of the throughput table; None: the embedded one. For jobs that choose their batch size
        profiles or a folder of measured models; None: the embedded profiles.
    accelerator : type of a folder of throughputs that does not name it.
    prices : dollars per GPU hour: a file of histories, or one number per accelerator type; None: no prices.
    entities : file of the entities that jobs name; None: those of the workload.
    profiling_percentage, reference_models : what is known of jobs that share GPUs is estimated
        (`throughputs.ThroughputEstimator`) from so many reference models, beside which this part of the entries of
        every job type is profiled, 0 to 1; both None: it is known.
    start : file of the jobs that run when the run begins (`allocator.simulator.rules.already`); None: nobody does.
    preset : name of the set of settings, or the set; `settings` are those of mechanism and simulator that were named.
    world : rules of one's own besides those of the preset.
    case : label of the set of settings that the run belongs to, "" for none. Not part of the identity.
    repetitions : times that a decision is measured.
    max_decision_seconds : a decision that takes longer counts as saturated; None: no limit.
    growing_cluster : how the cluster grows with the number of jobs, as text; "" where it does not. It tells series
        apart in the place of `cluster`.
    name : what the run is called where the name of its policy does not say it. Not part of the identity.

    Options
    -------
    cluster : TYPE:COUNT,...|FILE[@DAY]
        GPUs by accelerator type, or a CSV file that describes the cluster, of Helios with @DAY behind its name;
        if omitted the preset's, usually v100:36,p100:36,k80:36.
    seed
        Seed of everything that is drawn at random; if omitted 0, and for jobs that are drawn the preset's.
    window : FIRST:END
        Measure the jobs FIRST to END-1 only and stop when they have completed; later ones load the cluster.
    prices : FILE|TYPE:PRICE,...
        Dollars per GPU hour: a file of price histories (CSV, Parquet), or constants.
    entities : FILE
        Entities that the jobs of the trace name in a column entity (TOML, JSON, CSV, Parquet).
    profiling_percentage : PART
        Policies that pack estimate what jobs do in pairs, from this part of the profile of each, 0 to 1.
    reference_models : COUNT
        They estimate from so many job types profiled in full.
    start : FILE
        Jobs that run when the run begins, and keep GPUs and progress: columns job_id, gpus (ids, as in 0 1 4),
        steps_done.
    preset
        Settings of a published system, or the default.
    """

    kind: Kind
    policy: str
    cluster: str
    load: float | None = None
    seed: NotNegativeWhole = 0
    policy_settings: Mapping[str, Any] = field(default_factory=dict)
    gpus_per_server: str | None = None
    workload: Workload | Trace = field(default_factory=lambda: workload({}))
    window: tuple[int, int] | None = None
    throughputs: Annotated[str | None, Reads(speeds_of)] = None
    accelerator: str | None = None
    prices: Annotated[str | Mapping[str, float] | None, Reads(prices_of)] = None
    entities: str | None = None
    profiling_percentage: Part | None = None
    reference_models: AtLeastOne | None = None
    start: Annotated[str | None, Reads(file_of)] = None
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    world: tuple[Rule, ...] = ()
    case: str = ""
    repetitions: int = 1
    max_decision_seconds: float | None = None
    growing_cluster: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        for name, (kinds, expected) in _GIVEN.items():
            expect(isinstance(getattr(self, name), kinds), "run", name, getattr(self, name), expected)

    # What it is run with

    @cached_property
    def chosen(self) -> Preset:
        """The preset with the limits of a continuous run and the run's own settings and rules."""
        changes = {**self._usual_limits, **self.settings}
        own = self.world if self.start is None else (*self.world, RunsAlready.read(self.start))
        chosen = preset(self.preset).with_rules(*own) if own else preset(self.preset)
        return chosen.replace(**changes) if changes else chosen

    @cached_property
    def all_settings(self) -> dict[str, Any]:
        """Every setting of mechanism and simulator by name, ready for JSON."""
        return self.chosen.as_dict()

    @property
    def gpus(self) -> Cluster:
        """The cluster."""
        return Cluster.parse(self.cluster, self.gpus_per_server)

    @property
    def recorded(self) -> Recorded | None:
        """The workload, where it is of a file."""
        return self.workload if isinstance(self.workload, Recorded) else None

    @property
    def speeds(self) -> str | None:
        """What says how fast jobs are: a file or folder, the embedded profiles by their name, or None, the table."""
        trains = isinstance(self.workload, Workload) and self.workload.trains
        return EMBEDDED if self.throughputs is None and trains else self.throughputs

    @cached_property
    def _usual_limits(self) -> dict[str, Any]:
        """Limits of a continuous run, by which it counts as saturated unless others are named."""
        if self.window is None or self.kind == "trace" or self.load is None:
            return {}
        hours = CLOCK_FACTOR * self.window[1] / self.load + CLOCK_HOURS
        return {
            "max_waiting_jobs": WAITING_JOBS_PER_GPU * Cluster.parse(self.cluster).total_gpus,
            "max_clock_seconds": float(round(3600.0 * hours)),
        }

    def owners(self, trace: Trace) -> Entities | None:
        """The entities of the jobs.

        Raises
        ------
        InputError
            There are some, and no job names one.
        """
        found = None
        if self.entities is not None:
            found = Entities.parse(self.entities)
        elif isinstance(self.workload, Workload) and self.workload.entities is not None:
            found = Entities.parse(without_turns(self.workload.entities))
        elif self.recorded is not None and self.recorded.entities_by is not None:
            found = Entities.named(trace.entity, trace.source)
        if found is not None and not any(trace.entity):
            expected = "jobs that name their entities, in a column entity"
            raise InputError(trace.source, field="entity", found="none", expected=expected)
        return found

    @property
    def estimation(self) -> Estimation | None:
        """How what jobs do in pairs is estimated; None: it is known."""
        part, models = self.profiling_percentage, self.reference_models
        return None if part is None and models is None else Estimation(1.0 if part is None else part, models)

    @property
    def policy_class(self) -> type[Policy]:
        """The class of the policy under the preset."""
        return self.chosen.class_of_policy(self._policy_name)

    @property
    def _policy_name(self) -> str:
        return self.chosen.policy_names.get(self.policy, self.policy)

    def make_policy(self) -> Policy:
        """The policy with its settings, and those of the preset where it has none; so with which optima it takes."""
        return self.chosen.make_policy(self._policy_name, Cluster.parse(self.cluster), **self.policy_settings)

    def result(self, **more: Any) -> SimulationResult:
        """The run, made now; `more` are further arguments of `allocator.simulate`, such as `progress`."""
        return Materials.of([self]).simulate(self, **more)

    # What it is called

    def specification(self) -> dict[str, Any]:
        """All that the run depends on, ready for JSON. Settings that are as in the preset are left out."""
        return deepcopy(self._specification)

    @cached_property
    def _specification(self) -> dict[str, Any]:
        # Kept, so that a run can travel to a machine that does not have the files.
        usual = preset(self.preset).as_dict()
        measured = {"repetitions": self.repetitions, "max_decision_seconds": self.max_decision_seconds}
        kinds = (self.policy_class, *map(type, (*self.chosen.world, self.workload)))
        only_where_set = {
            "accelerator": self.accelerator,
            "entities": None if self.entities is None else _digest(Path(self.entities)),
            # a policy, a rule or a workload of somebody's own is another run when what it is written in changes
            "sources": sorted({_digest(file) for kind in kinds for file in sources_of(kind)}) or None,
        }
        return {
            "format": FORMAT,
            "kind": self.kind,
            "policy": {"name": self.policy, **self.policy_settings},
            "cluster": self.cluster,
            "gpus_per_server": self.gpus_per_server,
            "load": self.load,
            "seed": self.seed,
            "workload": self._of_workload(),
            "window": None if self.window is None else list(self.window),
            "preset": preset(self.preset).name,
            "settings": {name: value for name, value in self.all_settings.items() if value != usual.get(name)},
            **(measured if self.kind == "decision" else {}),
            **{name: value for name, value in only_where_set.items() if value is not None},
        }

    def _of_workload(self) -> dict[str, Any]:
        """Ready for JSON, files by their contents: a file that moves is the same, one that changes is not."""
        values = self.fields_of_workload()
        if isinstance(jobs := self.workload, Trace):
            columns = [getattr(jobs, name).tolist() for name in Trace.column_names()]
            values["trace"] = _SHA + hashlib.sha256(repr(columns).encode()).hexdigest()
        for name in ("throughputs", "prices", "trace", "predictions"):
            # the embedded profiles have no file; a file of that name has a folder
            if isinstance(values.get(name), str) and values[name] != EMBEDDED and not values[name].startswith(_SHA):
                values[name] = _digest(Path(values[name]))
        return {name: value for name, value in values.items() if value is not None or name in _ALWAYS}

    def fields_of_workload(self) -> dict[str, Any]:
        """What definitions have under ``workload``; the usual value of what this workload has not."""
        jobs = self.workload
        own = asdict(jobs) if isinstance(jobs, Workload) else {"trace": jobs.source}
        generator = jobs.generator if isinstance(jobs, Workload) else Recorded.generator
        return usual_values() | {"generator": generator, **own, **{name: getattr(self, name) for name in OF_WORKLOAD}}

    @cached_property
    def key(self) -> str:
        """Identity: equal for equal specifications, on any machine."""
        return _hash(self._specification)

    @cached_property
    def series(self) -> str:
        """Identity of all runs that differ from this one in load and seed at most."""
        specification = self.specification()
        del specification["load"], specification["seed"]
        specification["cluster"] = self.growing_cluster or self.cluster
        # The usual limits go with the load; only those that were named tell series apart.
        for name in self._usual_limits.keys() - self.settings.keys():
            specification["settings"].pop(name, None)
        return _hash(specification)

    @property
    def place(self) -> tuple[float, int]:
        """Where the run stands in its series."""
        return self.load or 1.0, self.seed

    @property
    def title(self) -> str:
        """What the run is called beside others: its name, or that of its policy."""
        return self.name or self.policy

    @property
    def load_text(self) -> str:
        """The load in words."""
        return LOADS[self.kind][1].format(1.0 if self.load is None else self.load)

    @property
    def label(self) -> str:
        """What a person calls the run; not unique."""
        named = [f"{name}={value}" for name, value in (*self.policy_settings.items(), *self.settings.items())]
        parts = [self.policy, self.case, self.load_text, f"seed {self.seed}", "" if self.case else ", ".join(named)]
        return ", ".join(part for part in parts if part)

    @property
    def log_name(self) -> str:
        """Name of the log of the run."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.policy)
        return f"{plain}-{1.0 if self.load is None else self.load:g}-seed{self.seed}-{self.key}.log"

    def columns(self, named: Sequence[str]) -> dict[str, Any]:
        """The cells of the table of results that say what was run; `named` settings have a column each."""
        column = LOADS[self.kind][0]
        load = self.load or 1.0
        first, end = self.window or (None, None)
        values = self.fields_of_workload().items()
        workload = {n: _cell(v) for n, v in values if v is not None or n not in _NO_COLUMN}
        return {
            "kind": self.kind,
            "policy": self.policy,
            "case": self.case or None,
            "cluster": self.cluster,
            "gpus_per_server": self.gpus_per_server,
            column: int(load) if column == "submitted_jobs" else load,
            "seed": self.seed,
            **workload,
            "first_job": first,
            "end_job": end,
            "preset": self.preset,
            **{name: self._setting(name) for name in named},
        }

    def _setting(self, name: str) -> Any:
        if name.startswith(POLICY_PREFIX):
            return self.policy_settings.get(name.removeprefix(POLICY_PREFIX))
        return self.all_settings.get(name)


def _cell(value: Any) -> Any:
    """A part of a workload as a cell of a table."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{figure:g}" for key, figure in value.items())
    if isinstance(value, tuple) and value and isinstance(value[0], Mapping):
        return ",".join(f"{entity['name']}:{entity['weight']:g}:{entity['policy']}" for entity in value)
    return "-".join(f"{part:g}" for part in value) if isinstance(value, tuple) else value


def sweep(runs: Run | Iterable[Run], **axes: Iterable[Any]) -> list[Run]:
    """Every combination of the changes, each named as a field of a run, the last of them varying fastest.

    >>> len(sweep(Run("static", "fifo", "v100:4", 10), seed=[0, 1, 2], policy=["fifo", "srtf"]))
    6
    """
    listed = [runs] if isinstance(runs, Run) else list(runs)
    changes = [dict(zip(axes, values, strict=True)) for values in product(*map(list, axes.values()))]
    return [replace(run, **change) for run in listed for change in changes]


@dataclass(frozen=True)
class Materials:
    """What runs read from files, by the name of the file; None is the embedded table.

    It travels to the processes that make the runs, which then need none of the files.
    """

    tables: dict[tuple[str | None, str | None], ThroughputTable | Trainings]
    prices: dict[str, Prices]
    traces: dict[str, Trace] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[Run], traces: Mapping[str, Any] | None = None, *, check: bool = True) -> Materials:
        """Everything that these runs read; `traces` have been read before, or are put there later.

        Raises
        ------
        InputError
            A file cannot be used, or, where it is checked, a trace to be run as a whole has no jobs, or a table lacks
            an accelerator type of a cluster or a job type of a trace.
        """
        runs = list(runs)
        packs = any(Need.COLOCATION in run.policy_class.needs for run in runs)
        made = cls({}, {}, dict(traces or {}))
        for run in runs:
            if (place := (run.speeds, run.accelerator)) not in made.tables:
                made.tables[place] = load_speeds(run.speeds, colocated=packs, accelerator=run.accelerator)
            if isinstance(run.prices, str) and run.prices not in made.prices:
                made.prices[run.prices] = read_prices(run.prices)
            jobs = run.recorded
            if jobs is not None and jobs.trace is not None and jobs.trace not in made.traces:
                unit, predictions = jobs.time_unit_seconds, jobs.predictions
                made.traces[jobs.trace] = read_trace(jobs.trace, time_unit_seconds=unit, predictions=predictions)
        for run in _once(runs) if check else ():
            made._check(run)
        return made

    def _check(self, run: Run) -> None:
        """Refuse a cluster on which nobody knows how fast the jobs are, or what GPUs cost."""
        table, prices, cluster, jobs = self.speeds_of(run), self.prices_of(run), run.gpus, self._file_of(run)
        trains, needs = isinstance(table, Trainings), isinstance(run.workload, Workload) and run.workload.trains
        if trains and ((jobs is None and not needs) or run.kind == "decision"):
            expected = "a throughput table, or simulations with the generator goodput or a trace"
            raise InputError("workload.throughputs", found=run.throughputs, expected=expected)
        if needs and not trains:
            expected = "goodput, a file of profiles or a folder of measured models, for the generator goodput"
            raise InputError("workload.throughputs", found=run.throughputs, expected=expected)
        if jobs is not None:
            if run.kind == "trace" and not len(jobs):
                raise InputError(jobs.source, found="no jobs", expected="at least one")
            some = jobs.head(self.n_jobs(run))
            if isinstance(table, Trainings):
                training_jobs(some, table)
            elif rule_of(run.chosen.world, GangRates).gang_rates != "duration":
                gang_rates(some, table, cluster)
            if run.recorded is not None and run.recorded.entities_by is not None:
                jobs.owned_by(run.recorded.entities_by)
        else:
            for accelerator in cluster.accelerators:
                if accelerator not in table.accelerators:
                    expected = f"types of the {table.source}: {', '.join(table.accelerators)}"
                    raise InputError("clusters", found=accelerator, expected=expected)
        if prices is not None:
            price_table(prices, cluster.accelerators)

    def _file_of(self, run: Run) -> Trace | None:
        """The jobs as they are recorded; None where they are drawn."""
        jobs = run.workload
        return jobs if isinstance(jobs, Trace) else self.traces[str(jobs.trace)] if isinstance(jobs, Recorded) else None

    def speeds_of(self, run: Run) -> ThroughputTable | Trainings:
        """How fast the jobs of a run are."""
        return self.tables[run.speeds, run.accelerator]

    def prices_of(self, run: Run) -> Prices | None:
        """Dollars per GPU hour for a run."""
        return self.prices[run.prices] if isinstance(run.prices, str) else run.prices

    def n_jobs(self, run: Run) -> int:
        """Jobs that a simulation begins with; those of a window may be followed by more."""
        recorded = self._file_of(run)
        if recorded is not None and (run.kind == "trace" or run.load is None):
            return len(recorded)
        return run.window[1] if run.window else int(run.load or 0)

    def jobs_of(self, run: Run) -> Callable[[int], Trace]:
        """A function from a number of jobs to the trace of that many; a longer one begins with the shorter ones.

        The trace of a static run or a decision is meant for its own number of jobs only.
        """
        jobs, recorded, gap = run.workload, self._file_of(run), 0.0
        if isinstance(jobs, Trace):
            jobs = Recorded()
        if run.kind == "continuous":
            gap = 3600.0 / (run.load or 1.0)
        elif run.kind != "trace":
            gap = jobs.mean_interarrival_seconds or 0.0
        load = run.load if run.kind == "trace" else None
        draw = Draw(0, gap, run.seed, self.speeds_of(run), run.gpus, load, recorded)
        return lambda n: jobs.jobs(replace(draw, jobs=n))

    def simulate(
        self, run: Run, trace: Trace | None = None, cluster: Cluster | None = None, **more: Any
    ) -> SimulationResult:
        """The run; `trace` and `cluster` take the place of its own, `more` are arguments of `allocator.simulate`."""
        jobs, policy = self.jobs_of(run), run.make_policy()
        trace = jobs(self.n_jobs(run)) if trace is None else trace
        return simulate(
            trace,
            run.gpus if cluster is None else cluster,
            policy,
            self.speeds_of(run),
            preset=run.chosen,
            seed=run.seed,
            window=run.window,
            extend=jobs if run.window and run.kind != "trace" else None,
            prices=self.prices_of(run),
            entities=run.owners(trace),
            estimation=run.estimation if Need.COLOCATION in policy.needs else None,
            label=run.name or None,
            **more,
        )


def _once(runs: Iterable[Run]) -> list[Run]:
    """One run for each cluster and what its jobs and prices are read from."""
    found: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        jobs = run.recorded
        whose = id(run.workload) if isinstance(run.workload, Trace) else jobs and (jobs.trace, jobs.entities_by)
        rates = rule_of(run.chosen.world, GangRates).gang_rates
        found.setdefault((whose, run.kind, run.speeds, run.accelerator, str(run.prices), run.cluster, rates), run)
    return list(found.values())


def _hash(specification: dict[str, Any]) -> str:
    text = json.dumps(_plain(specification), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def _plain(value: Any) -> Any:
    """The value with all numbers as floats, so that 4 and 4.0 are one."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return _hash({str(file.relative_to(path)): _digest(file) for file in files})
    status = path.stat()
    return _digest_at(path, status.st_mtime_ns, status.st_size)


@cache
def _digest_at(path: Path, _changed: int, _size: int) -> str:
    return _SHA + hashlib.sha256(path.read_bytes()).hexdigest()
