"""One point of a sweep: everything that a run depends on, and an identity made of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from allocator.cluster import Cluster
from allocator.presets import Preset, preset
from allocator.protocol import Policy
from allocator.registry import source_of
from throughputs.estimator.believed import Estimation
from throughputs.goodput.trainings.finding import EMBEDDED

Kind = Literal["continuous", "static", "trace", "decision"]

FORMAT = 1
"""Part of every identity: to be raised when the same specification comes to mean another run."""

POLICY_PREFIX = "policy_"
"""Before the name of a policy's setting, where it is the name of a column."""

WAITING_JOBS_PER_GPU = 10
"""A continuous run counts as saturated when more jobs wait, unless a limit is named."""

CLOCK_FACTOR, CLOCK_HOURS = 4.0, 5000.0
"""Or when the clock passes so many times the mean arrival time of the window's end, and so many hours on top."""

LOAD_COLUMNS: Mapping[Kind, str] = {
    "continuous": "jobs_per_hour",
    "static": "submitted_jobs",
    "trace": "load",
    "decision": "submitted_jobs",
}
"""What the load of a point is called as a column of results."""

LOAD_TEXTS: Mapping[Kind, str] = {
    "continuous": "{:g} jobs/h",
    "static": "{:g} jobs",
    "trace": "load {:g}",
    "decision": "{:g} jobs",
}
"""And how it is said of one point."""

_KEY_DIGITS = 16

_ONLY_WHERE_SET = (
    "entities",
    "profiling_percentage",
    "reference_models",
    "mean_interarrival_seconds",
    "n_durations",
    "trace",
    "deadline_factors",
    "best_effort",
    "entities_by",
    "whole_gpus",
    "categories",
)
"""Parts of a workload that count for the identity only where they are set."""


@dataclass(frozen=True)
class Workload:
    """Which jobs a run gets.

    Attributes
    ----------
    generator : "gavel" or "shockwave", the published generators draw for draw; "default",
        `throughputs.TraceGenerator`; "deadlines", `throughputs.deadline_trace`; "goodput",
        `throughputs.goodput.trainings.training_trace`; "recorded": jobs are the first of a
        trace that is there, and nothing is drawn but what is asked for.
    multi_gpu : gangs of 1, 2, 4 and 8 GPUs as published; else jobs of one GPU.
    priorities : weight 5 for a fifth of the jobs.
    slos : a deadline for every job, 1.2, 2 or 10 durations after its arrival.
    preload : the first jobs are there from the start, enough to fill the cluster.
    fixed_duration_seconds : the same duration for every job; None: the published distribution.
    mean_interarrival_seconds : the jobs of a static run arrive one after the other, with this mean time between them;
        None: all are there at time 0.
    n_durations : of the generator "shockwave", durations to choose from; None: as many as it has by default.
    throughputs : file or folder of the throughput table; None: the embedded one. For the generator "goodput" profiles
        or a folder of measured models; None: the embedded profiles.
    trace : of the generator "recorded", file of the trace.
    deadline_factors : every job has a deadline, drawn between these multiples of its duration after its arrival; None:
        as the generator or the trace has it. Of the generators "deadlines" and "recorded".
    best_effort : of the same, probability with which a job has no deadline; None: 0.
    entities : who owns the jobs: tables with name, weight, policy, parent and ``jobs``, how many jobs in a row an
        entity gets before it is the turn of the next one, in the order in which they are listed; None: nobody.
    entities_by : of the generator "recorded": "user" or "partition", whose names in the trace are entities of equal
        weight; None: they are not.
    whole_gpus : of the same, whether jobs that ask for a fraction of a GPU have it whole; None: they do not.
    profiling_percentage, reference_models : what is known of jobs that share GPUs is estimated
        (`throughputs.ThroughputEstimator`) from so many reference models, beside which this part of the entries of
        every job type is profiled, 0 to 1; both None: it is known.
    categories : of the generators "goodput" and "recorded", what a scheduler may choose of the jobs: shares by category
        ("adaptive", "scale-gpus", "rigid"; `throughputs.Trace.category`), by which each job's is drawn; None: as the
        generator or the trace has it.
    prices : dollars per GPU hour: a file of histories, or one number per accelerator type; None: no prices.
    """

    generator: Literal["gavel", "shockwave", "default", "deadlines", "goodput", "recorded"] = "gavel"
    multi_gpu: bool = False
    priorities: bool = False
    slos: bool = False
    preload: bool = False
    fixed_duration_seconds: float | None = None
    throughputs: str | None = None
    prices: str | Mapping[str, float] | None = None
    entities: tuple[Mapping[str, Any], ...] | None = None
    profiling_percentage: float | None = None
    reference_models: int | None = None
    categories: Mapping[str, float] | None = None
    mean_interarrival_seconds: float | None = None
    n_durations: int | None = None
    trace: str | None = None
    deadline_factors: tuple[float, float] | None = None
    best_effort: float | None = None
    entities_by: str | None = None
    whole_gpus: bool | None = None

    @property
    def speeds(self) -> str | None:
        """What says how fast jobs are: a file or folder, the embedded profiles by their name, or None, the table."""
        return EMBEDDED if self.throughputs is None and self.generator == "goodput" else self.throughputs

    @property
    def estimated(self) -> bool:
        """Whether what jobs do in pairs is estimated."""
        return self.profiling_percentage is not None or self.reference_models is not None

    def specification(self) -> dict[str, Any]:
        """The same ready for JSON, files by their contents: a file that moves is the same, one that changes is not."""
        values = asdict(self)
        for name in _ONLY_WHERE_SET:
            if values[name] is None:
                del values[name]
        for name in ("throughputs", "prices", "trace"):
            # the embedded profiles have no file; a file of that name has a folder
            if isinstance(values.get(name), str) and values[name] != EMBEDDED:
                values[name] = _digest(Path(values[name]))
        return values


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes
    ----------
    kind : "continuous", jobs arrive at a rate; "static", a number of jobs, all there at time 0 unless the workload says
        otherwise; "trace", all jobs of a recorded trace, as they arrive there; "decision", nothing is run: the policy
        decides once about jobs that have just arrived.
    policy : its name; `policy_settings` are the settings it is made with.
    cluster : GPUs by accelerator type, as text; `gpus_per_server` in the same form, None for 1.
    load : jobs per hour (continuous), number of jobs (static, decision), or how many times as often as in the trace
        jobs arrive (trace).
    seed : of jobs, arrivals and everything else that is drawn.
    workload : which jobs.
    window : ids (first, end) of the jobs that are measured; None: all (static).
    preset : name of the set of settings, and `settings` those of mechanism and simulator that were named.
    case : label of the set of settings that the point belongs to, "" for none. Not part of the identity.
    repetitions : times that a decision is measured.
    max_decision_seconds : a decision that takes longer counts as saturated; None: no limit.
    growing_cluster : how the cluster grows with the number of jobs, as text; "" where it does not. It tells series
        apart in the place of `cluster`.
    """

    kind: Kind
    policy: str
    cluster: str
    load: float
    seed: int
    policy_settings: Mapping[str, Any] = field(default_factory=dict)
    gpus_per_server: str | None = None
    workload: Workload = Workload()
    window: tuple[int, int] | None = None
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    case: str = ""
    repetitions: int = 1
    max_decision_seconds: float | None = None
    growing_cluster: str = ""

    @cached_property
    def chosen(self) -> Preset:
        """The preset with the limits of a continuous run and the point's own settings."""
        return preset(self.preset).replace(**{**self._usual_limits, **self.settings})

    @cached_property
    def all_settings(self) -> dict[str, Any]:
        """Every setting of mechanism and simulator by name, ready for JSON."""
        return self.chosen.as_dict()

    def specification(self) -> dict[str, Any]:
        """All that the run depends on, ready for JSON. Settings that are as in the preset are left out."""
        return deepcopy(self._specification)

    @cached_property
    def _specification(self) -> dict[str, Any]:
        # Kept, so that a point can travel to a machine that does not have the files.
        usual = preset(self.preset).as_dict()
        measured = {"repetitions": self.repetitions, "max_decision_seconds": self.max_decision_seconds}
        return {
            "format": FORMAT,
            "kind": self.kind,
            "policy": {"name": self.policy, **self.policy_settings},
            **self._written,
            "cluster": self.cluster,
            "gpus_per_server": self.gpus_per_server,
            "load": self.load,
            "seed": self.seed,
            "workload": self.workload.specification(),
            "window": None if self.window is None else list(self.window),
            "preset": self.preset,
            "settings": {name: value for name, value in self.all_settings.items() if value != usual[name]},
            **(measured if self.kind == "decision" else {}),
        }

    @property
    def _written(self) -> dict[str, Any]:
        """What a policy of somebody's own is written in: another run when that changes."""
        source = source_of(self.policy_class)
        return {} if source is None else {"policy_source": _digest(source)}

    @cached_property
    def key(self) -> str:
        """Identity: equal for equal specifications, on any machine."""
        return _hash(self._specification)

    @cached_property
    def series(self) -> str:
        """Identity of all points that differ from this one in load and seed at most."""
        specification = self.specification()
        del specification["load"], specification["seed"]
        specification["cluster"] = self.growing_cluster or self.cluster
        # The usual limits go with the load; only those that were named tell series apart.
        for name in self._usual_limits.keys() - self.settings.keys():
            specification["settings"].pop(name, None)
        return _hash(specification)

    @cached_property
    def _usual_limits(self) -> dict[str, Any]:
        """Limits of a run with a window, by which it counts as saturated unless others are named."""
        if self.window is None:
            return {}
        hours = CLOCK_FACTOR * self.window[1] / self.load + CLOCK_HOURS
        return {
            "max_waiting_jobs": WAITING_JOBS_PER_GPU * Cluster.parse(self.cluster).total_gpus,
            "max_clock_seconds": float(round(3600.0 * hours)),
        }

    @property
    def entities(self) -> list[dict[str, Any]] | None:
        """The entities of the workload as `allocator.protocol.entities.Entities.parse` takes them."""
        if self.workload.entities is None:
            return None
        return [{name: value for name, value in entity.items() if name != "jobs"} for entity in self.workload.entities]

    @property
    def estimation(self) -> Estimation | None:
        """How what jobs do in pairs is estimated; None: it is known."""
        workload = self.workload
        if not workload.estimated:
            return None
        percentage = workload.profiling_percentage
        return Estimation(1.0 if percentage is None else percentage, workload.reference_models)

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

    @property
    def load_text(self) -> str:
        """The load in words."""
        return LOAD_TEXTS[self.kind].format(self.load)

    @property
    def label(self) -> str:
        """What a person calls the point; not unique."""
        named = [f"{name}={value}" for name, value in (*self.policy_settings.items(), *self.settings.items())]
        parts = [self.policy, self.case, self.load_text, f"seed {self.seed}", "" if self.case else ", ".join(named)]
        return ", ".join(part for part in parts if part)

    @property
    def log_name(self) -> str:
        """Name of the log of the run."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.policy)
        return f"{plain}-{self.load:g}-seed{self.seed}-{self.key}.log"

    def columns(self, named: Sequence[str]) -> dict[str, Any]:
        """The cells of the table of results that say what was run; `named` settings have a column each."""
        column = LOAD_COLUMNS[self.kind]
        load = {column: int(self.load) if column == "submitted_jobs" else self.load}
        first, end = self.window or (None, None)
        workload = asdict(self.workload)
        if workload["entities"] is not None:
            workload["entities"] = ",".join(f"{e['name']}:{e['weight']:g}:{e['policy']}" for e in workload["entities"])
        for name in ("prices", "categories"):
            if isinstance(workload[name], Mapping):
                workload[name] = ",".join(f"{key}:{figure:g}" for key, figure in workload[name].items())
        if workload["deadline_factors"] is not None:
            workload["deadline_factors"] = "-".join(f"{factor:g}" for factor in workload["deadline_factors"])
        return {
            "kind": self.kind,
            "policy": self.policy,
            "case": self.case or None,
            "cluster": self.cluster,
            "gpus_per_server": self.gpus_per_server,
            **load,
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
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
