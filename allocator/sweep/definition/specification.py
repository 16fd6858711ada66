"""The definition of a sweep: what is varied, and what stays.

The points of a sweep are all combinations of policies, clusters, cases, varied settings, loads and seeds.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from allocator.cluster import Cluster
from allocator.presets import Preset, kinds_of_presets, preset, preset_names
from allocator.protocol.policy import Need
from allocator.registry import made
from allocator.sweep.definition.point import POLICY_PREFIX, Kind, Point, Workload
from allocator.sweep.definition.reading import MOST_VALUES, Definition, is_number, merged, setting_value
from allocator.sweep.definition.settings import Settings, assignment, assignments, flat, settings_under
from throughputs import InputError
from throughputs.files import read_toml
from throughputs.limits import MOST_JOBS

KINDS: tuple[Kind, ...] = ("continuous", "static", "trace", "decision")

LOAD_KEYS: Mapping[Kind, str] = {"continuous": "rates", "static": "jobs", "trace": "loads", "decision": "jobs"}
"""Key of the loads of a sweep."""

Clusters = tuple[tuple[str, str | None, int | None], ...]


@dataclass(frozen=True)
class Case:
    """Settings that go together, one set of those of which each point has one.

    Attributes
    ----------
    label : what it is called; may be empty.
    settings : by name, as those of the sweep.
    clusters, loads, seeds : in the place of the sweep's own; None: those of the sweep.
    """

    label: str = ""
    settings: Settings = field(default_factory=dict)
    clusters: Clusters | None = None
    loads: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def points_of(self, sweep: Sweep) -> Iterator[tuple[tuple[str, str | None, int | None], float, int]]:
        """Every cluster, load and seed, the first ones first."""
        return product(
            sweep.clusters if self.clusters is None else self.clusters,
            sweep.loads if self.loads is None else self.loads,
            sweep.seeds if self.seeds is None else self.seeds,
        )


@dataclass(frozen=True)
class Sweep:
    """What to simulate. Made by `from_toml` or `from_dict`, which check it; docs/sweeps.md describes the keys.

    Attributes
    ----------
    kind : "continuous", "static", "trace" or "decision".
    policies : names, each with its own settings.
    clusters : GPUs by accelerator type, GPUs per server, as text, and the number of jobs that such a cluster is for: it
        grows with them; None: it does not.
    loads : jobs per hour (continuous), numbers of jobs (static, decision) or multiples of the arrival rate (trace),
        ascending.
    seeds : ascending.
    settings : of every point, by name: "preset", settings of mechanism and simulator, "policy.<name>" for policies
        that have it, "workload.<name>".
    cases : sets of settings, one of which each point has on top; `clusters`, `loads` and `seeds` are empty where every
        case has its own.
    vary : values of settings, all combinations of which are taken.
    window : ids of the jobs that are measured (continuous).
    keep_jobs : whether the table of jobs of each run is kept.
    repetitions, max_decision_seconds : how often a decision is measured, and how long it may take (decision).
    skip_saturated : whether points are skipped once a smaller load has saturated.
    name, description : of the sweep.
    """

    kind: Kind
    policies: tuple[tuple[str, Settings], ...]
    clusters: Clusters
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    settings: Settings = field(default_factory=dict)
    cases: tuple[Case, ...] = (Case(),)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    window: tuple[int, int] | None = None
    keep_jobs: bool = False
    repetitions: int = 1
    max_decision_seconds: float | None = None
    skip_saturated: bool = True
    name: str = "sweep"
    description: str = ""

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], *, small: bool = False) -> Sweep:
        """Sweep defined in a TOML file; with `small`, as its table ``[small]`` changes it.

        Raises
        ------
        InputError
            File, key, what was found and what was expected.
        """
        path = Path(path)
        data = read_toml(path)
        changes = data.pop("small", None)
        if small:
            if not isinstance(changes, dict):
                raise InputError(path, field="small", found=changes, expected="a table, to run the small variant")
            data = merged(data, changes)
        return cls.from_dict({"name": path.stem, **data}, source=path, folder=path.parent)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, source: object = "sweep", folder: str | os.PathLike[str] = "."
    ) -> Sweep:
        """Sweep defined by a mapping with the keys of a TOML file; names of files are relative to `folder`.

        Raises
        ------
        InputError
            `source`, key, what was found and what was expected.
        """
        top = Definition(data, source)
        named = top.text("kind", choices=KINDS)
        if named is None:
            raise top.error("kind", None, " or ".join(KINDS))
        kind = next(known for known in KINDS if known == named)
        base = assignments({"workload": top.take("workload", {})}, top, "", Path(folder))
        base |= assignments(top.take("settings", {}), top, "settings", Path(folder))
        if kind == "trace":
            base = {"workload.generator": "recorded"} | base
        servers = top.text("gpus_per_server")
        cases = _cases(top, kind, servers, Path(folder))
        # Cases without clusters, loads or seeds of their own have those of the sweep.
        shared = any(case.clusters is None for case in cases) or "clusters" in top
        loaded = any(case.loads is None for case in cases) or LOAD_KEYS[kind] in top
        seeded = any(case.seeds is None for case in cases) or "seeds" in top
        sweep = cls(
            kind=kind,
            policies=_policies(top, _preset(base)),
            clusters=_clusters(top, kind, servers) if shared else (),
            loads=_loads(top, kind) if loaded else (),
            seeds=_seeds(top) if seeded else (),
            settings=base,
            cases=cases,
            vary=_vary(top, Path(folder)),
            window=_window(top, kind),
            keep_jobs=top.flag("keep_jobs", False),
            repetitions=_repetitions(top, kind),
            max_decision_seconds=_limit(top, kind),
            skip_saturated=top.flag("skip_saturated", True),
            name=top.text("name", "sweep") or "sweep",
            description=top.text("description", "") or "",
        )
        top.finish()
        _check(sweep, top)
        return sweep

    def points(self) -> tuple[Point, ...]:
        """Every point once, series by series (policy, cluster, settings), loads and seeds ascending within each."""
        found: dict[str, Point] = {}
        for point in self.combinations():
            found.setdefault(point.key, point)
        return tuple(found.values())

    @property
    def named(self) -> tuple[str, ...]:
        """Columns of the settings that the sweep names: those that are varied or set anywhere."""
        names: dict[str, None] = {} if self.kind == "decision" else {"round_seconds": None, "ideal": None}
        for settings in (self.settings, *(case.settings for case in self.cases), self.vary):
            for name in settings:
                first, _, rest = name.partition(".")
                if first == "policy":
                    names[POLICY_PREFIX + rest] = None
                elif first in kinds_of_presets():
                    names[first] = None
        for _, own in self.policies:
            names.update(dict.fromkeys(POLICY_PREFIX + name for name in own))
        if self.kind == "continuous":
            names.update(dict.fromkeys(("max_waiting_jobs", "max_clock_seconds")))
        return tuple(names)

    @property
    def n_combinations(self) -> int:
        """Points, counting those that are equal as often as they come."""
        shared = len(self.clusters), len(self.loads), len(self.seeds)
        of_cases = (
            math.prod(
                n if own is None else len(own)
                for n, own in zip(shared, (case.clusters, case.loads, case.seeds), strict=True)
            )
            for case in self.cases
        )
        return len(self.policies) * math.prod(map(len, self.vary.values())) * sum(of_cases)

    def combinations(self) -> Iterator[Point]:
        """Points by policy, case, varied settings, cluster, load and seed; equal ones as often as they come."""
        varied = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for (policy, own), case, change in product(self.policies, self.cases, varied):
            settings = {**self.settings, **case.settings, **change}
            for cluster, load, seed in case.points_of(self):
                yield self._point(policy, own, cluster, case.label, settings, load, seed)

    def _point(
        self,
        policy: str,
        own: Settings,
        cluster: tuple[str, str | None, int | None],
        label: str,
        settings: Settings,
        load: float,
        seed: int,
    ) -> Point:
        known = _preset(settings).kinds_of_policy(policy)
        shared = {name: value for name, value in settings_under(settings, "policy").items() if name in known}
        simulated = {name: value for name, value in settings.items() if name in kinds_of_presets()}
        workload = Workload(**settings_under(settings, "workload"))
        if workload.estimated and Need.COLOCATION not in _preset(settings).class_of_policy(policy).needs:
            # Estimates are of pairs; a policy that makes none is the same run with and without.
            workload = dataclasses.replace(workload, profiling_percentage=None, reference_models=None)
        gpus, servers, per_jobs = cluster
        return Point(
            self.kind,
            policy,
            gpus if per_jobs is None else _grown(gpus, load / per_jobs),
            load,
            seed,
            policy_settings={**shared, **own},
            gpus_per_server=servers,
            workload=workload,
            window=self.window,
            preset=settings.get("preset", "default"),
            settings=simulated,
            case=label,
            repetitions=self.repetitions,
            max_decision_seconds=self.max_decision_seconds,
            growing_cluster="" if per_jobs is None else f"{gpus} for {per_jobs} jobs",
        )


def _loads(top: Definition, kind: Kind) -> tuple[float, ...]:
    if kind == "continuous":
        return top.numbers("rates", whole=False, least=0, above=True)
    if kind == "trace":
        stated = "loads" in top
        return top.numbers("loads", whole=False, least=0, above=True) if stated else (top.take("loads", 1.0),)
    loads = top.numbers("jobs", whole=True, least=1)
    if loads[-1] > MOST_JOBS:
        raise top.error("jobs", int(loads[-1]), f"at most {MOST_JOBS:,} jobs in a run")
    return loads


def _seeds(top: Definition) -> tuple[int, ...]:
    return tuple(int(seed) for seed in top.numbers("seeds", whole=True, least=0))


def _window(top: Definition, kind: Kind) -> tuple[int, int] | None:
    value = top.take("window")
    if kind != "continuous":
        if value is not None:
            raise top.error("window", value, f"no window: a {kind} sweep has none, all jobs count")
        return None
    proper = isinstance(value, list | tuple) and len(value) == 2 and all(type(end) is int for end in value)
    if not proper or not 0 <= value[0] < value[1]:
        raise top.error("window", value, "ids of jobs [first, end], as in [4000, 5000]")
    if value[1] > MOST_JOBS:
        raise top.error("window", value, f"at most {MOST_JOBS:,} jobs in a run")
    return value[0], value[1]


def _preset(settings: Settings) -> Preset:
    """The one of these settings; the usual one where they name none that there is, which is told elsewhere."""
    named = settings.get("preset")
    return preset(named if named in preset_names() else "default")


def _policies(top: Definition, chosen: Preset) -> tuple[tuple[str, Settings], ...]:
    found: list[tuple[str, Settings]] = []
    for i, item in enumerate(top.items("policies")):
        place = f"policies[{i}]"
        entry = Definition({"name": item} if isinstance(item, str) else item, top.source, place)
        name = entry.text("name") or ""
        top.checked(place, name, partial(chosen.class_of_policy, name))
        kinds = chosen.kinds_of_policy(name)
        # "none" is a word like others where nothing but text is taken.
        given = {key: entry.take(key) for key in kinds if key in entry}
        own = {key: value if kinds[key] is str else setting_value(value) for key, value in given.items()}
        for key in kinds:
            entry.take(key)
        entry.finish()
        top.checked(place, own, partial(made, chosen.class_of_policy(name), name, own))
        if (name, own) in found:
            raise top.error(place, name, "each policy once")
        found.append((name, own))
    return tuple(found)


def _repetitions(top: Definition, kind: Kind) -> int:
    value = top.take("repetitions")
    if value is None:
        return 1
    _only_of_decisions(top, "repetitions", value, kind)
    if type(value) is not int or value < 1:
        raise top.error("repetitions", value, "a whole number of at least 1")
    return value


def _limit(top: Definition, kind: Kind) -> float | None:
    value = setting_value(top.take("max_decision_seconds"))
    if value is None:
        return None
    _only_of_decisions(top, "max_decision_seconds", value, kind)
    if not is_number(value) or value <= 0:
        raise top.error("max_decision_seconds", value, 'seconds above 0, or "none"')
    return float(value)


def _only_of_decisions(top: Definition, key: str, value: object, kind: Kind) -> None:
    if kind != "decision":
        raise top.error(key, value, f"nothing: a {kind} sweep measures no single decisions")


def _grown(gpus: str, factor: float) -> str:
    """The cluster with so many times the GPUs of each type, rounded down, at least one where there are any."""
    cluster = Cluster.parse(gpus)
    return str(Cluster({name: max(int(count * factor), min(count, 1)) for name, count in cluster.gpus.items()}))


def _clusters(top: Definition, kind: Kind, shared: str | None) -> Clusters:
    found: list[tuple[str, str | None, int | None]] = []
    for i, item in enumerate(top.items("clusters")):
        place = f"clusters[{i}]"
        entry = top.inner({"gpus": item} if isinstance(item, str) else item, place)
        gpus, servers = entry.text("gpus") or "", entry.text("gpus_per_server", shared)
        per_jobs = _per_jobs(entry, servers, kind)
        entry.finish()
        cluster = top.checked(place, gpus, partial(Cluster.parse, gpus, servers))
        if cluster.total_gpus == 0:
            raise top.error(place, gpus, "at least one GPU")
        found.append((str(cluster), servers, per_jobs))
    if len(set(found)) < len(found):
        raise top.error("clusters", [gpus for gpus, *_ in found], "each cluster once")
    return tuple(found)


def _per_jobs(entry: Definition, servers: str | None, kind: Kind) -> int | None:
    """The number of jobs that the cluster of an entry is for; None: for any."""
    value = entry.take("per_jobs")
    if value is None:
        return None
    if LOAD_KEYS[kind] != "jobs":
        raise entry.error("per_jobs", value, "nothing: only a number of jobs makes a cluster grow")
    if servers is not None:
        raise entry.error("per_jobs", value, "a cluster without gpus_per_server")
    if type(value) is not int or value < 1:
        raise entry.error("per_jobs", value, "a whole number of at least 1")
    return value


def _cases(top: Definition, kind: Kind, servers: str | None, folder: Path) -> tuple[Case, ...]:
    if "cases" not in top:
        top.take("cases")
        return (Case(),)
    own = ("name", "clusters", LOAD_KEYS[kind], "seeds")
    found = []
    for i, item in enumerate(top.items("cases")):
        entry = top.inner(item, f"cases[{i}]")
        found.append(
            Case(
                entry.text("name", "") or "",
                assignments({k: v for k, v in item.items() if k not in own}, top, f"cases[{i}]", folder),
                _clusters(entry, kind, servers) if "clusters" in entry else None,
                _loads(entry, kind) if LOAD_KEYS[kind] in entry else None,
                _seeds(entry) if "seeds" in entry else None,
            )
        )
    return tuple(found)


def _vary(top: Definition, folder: Path) -> dict[str, tuple[Any, ...]]:
    varied: dict[str, tuple[Any, ...]] = {}
    for name, values in flat(top.take("vary", {}), top, "vary").items():
        if not isinstance(values, list | tuple) or not values:
            raise top.error(f"vary.{name}", values, "a list with at least one value")
        varied[name] = tuple(assignment(name, value, top, f"vary.{name}", folder) for value in values)
        # by what they look like: values may be lists
        if len(set(map(repr, varied[name]))) < len(varied[name]):
            raise top.error(f"vary.{name}", values, "each value once")
    return varied


def _check(sweep: Sweep, top: Definition) -> None:
    """Make one point of each series: what settings refuse is found now, not after hours."""
    if sweep.n_combinations > MOST_VALUES:
        expected = f"at most {MOST_VALUES:,}: fewer policies, clusters, cases, values, loads or seeds"
        raise top.error(None, f"{sweep.n_combinations:,} points", expected)
    every = (sweep.settings, sweep.vary, *(case.settings for case in sweep.cases))
    shared = {name for settings in every for name in settings_under(settings, "policy")}
    for name in sorted(shared):
        chosen = _preset(sweep.settings)
        if not any(name in chosen.kinds_of_policy(policy) for policy, _ in sweep.policies):
            raise top.error(f"policy.{name}", name, "a setting of at least one of the policies")
    for settings in every:
        for name in kinds_of_presets():
            if sweep.kind == "decision" and name in settings:
                raise top.error(name, settings[name], "no setting of rounds: a decision sweep simulates nothing")
    one = dataclasses.replace(
        sweep, loads=sweep.loads[:1], seeds=sweep.seeds[:1], cases=tuple(map(_shortened, sweep.cases))
    )
    for point in one.combinations():
        _check_workload(point, top)
        where = f"settings of {point.policy}" + (f", case {point.case}" if point.case else "")
        top.checked(where, dict(point.settings), partial(getattr, point, "chosen"))
        top.checked(where, dict(point.policy_settings), point.make_policy)


def _shortened(case: Case) -> Case:
    """The case with one load and one seed of its own at most."""
    return dataclasses.replace(case, loads=case.loads and case.loads[:1], seeds=case.seeds and case.seeds[:1])


def _check_workload(point: Point, top: Definition) -> None:
    """Refuse parts of a workload that its generator, or a sweep of this kind, has no use for."""
    workload = point.workload
    if workload.mean_interarrival_seconds is not None and point.kind != "static":
        expected = f"nothing: only the jobs of a static sweep arrive with it, not those of a {point.kind} one"
        raise top.error("workload.mean_interarrival_seconds", workload.mean_interarrival_seconds, expected)
    if workload.n_durations is not None and workload.generator != "shockwave":
        raise top.error("workload.n_durations", workload.n_durations, "nothing: a setting of the generator shockwave")
    if point.kind == "trace":
        _check_recorded(workload, top)
    if (workload.trace is None) == (workload.generator == "recorded"):
        expected = "a file for the generator recorded, and for no other"
        raise top.error("workload.trace", workload.trace, expected)
    if workload.entities_by is not None and (workload.generator != "recorded" or workload.entities is not None):
        expected = "nothing: for the jobs of a recorded trace, and in the place of entities"
        raise top.error("workload.entities_by", workload.entities_by, expected)
    if workload.whole_gpus is not None and workload.generator != "recorded":
        raise top.error("workload.whole_gpus", workload.whole_gpus, "nothing: for the jobs of a recorded trace")
    if workload.categories is not None and workload.generator not in ("goodput", "recorded"):
        expected = "nothing: a setting of the generators goodput and recorded"
        raise top.error("workload.categories", dict(workload.categories), expected)
    for name in ("deadline_factors", "best_effort"):
        if getattr(workload, name) is not None and workload.generator not in ("deadlines", "recorded"):
            expected = "nothing: a setting of the generators deadlines and recorded"
            raise top.error(f"workload.{name}", getattr(workload, name), expected)


def _check_recorded(workload: Workload, top: Definition) -> None:
    """Refuse what would draw jobs in a sweep whose jobs are those of a file."""
    if workload.generator != "recorded":
        raise top.error("workload.generator", workload.generator, "recorded: the jobs of a trace sweep are in a file")
    if workload.trace is None:
        raise top.error("workload.trace", None, "the file of a trace")
    for name in ("multi_gpu", "priorities", "fixed_duration_seconds"):
        if getattr(workload, name):
            raise top.error(f"workload.{name}", getattr(workload, name), "nothing: jobs are as the trace has them")
