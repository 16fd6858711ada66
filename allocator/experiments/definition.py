"""The definition of a sweep: what is varied, and what stays.

The runs of a sweep are all combinations of policies, clusters, cases, varied settings, loads and seeds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from allocator.cluster import Cluster
from allocator.conversion import (
    AtLeastOne,
    Positive,
    Reads,
    convert,
    convert_text,
    declared_kinds,
    is_number,
    kinds_of,
    read_field,
)
from allocator.experiments.run import OF_WORKLOAD, POLICY_PREFIX, Kind, Run
from allocator.experiments.workloads import Recorded, kinds_of_workload, workload, workloads
from allocator.plugins import rule_of_text
from allocator.presets import Preset, kinds_of_presets, preset, preset_names
from allocator.protocol.policy import Need
from allocator.registry import made
from allocator.simulator.rules.base import Rule
from allocator.variants import Variant
from throughputs import InputError
from throughputs.errors import one_of
from throughputs.files import read_toml
from throughputs.limits import LARGEST_WHOLE_NUMBER, MOST_JOBS, Range

T = TypeVar("T")
Settings = Mapping[str, Any]
Clusters = tuple[tuple[str, str | None, int | None], ...]

MOST_VALUES = 1_000_000
"""Loads or seeds of a sweep, and runs in all, at most."""

NOTHING = "none"
"""What stands for Python's None, which TOML does not have."""

LOAD_KEYS: Mapping[Kind, str] = {"continuous": "rates", "static": "jobs", "trace": "loads", "decision": "jobs"}
"""Key of the loads of a sweep."""

_KEYS: Mapping[str, Any] = {
    **dict.fromkeys(("kind", "policies", "cases", "vary", "workload", "settings", "clusters", "seeds"), Any),
    **dict.fromkeys(("name", "description", "gpus_per_server"), str),
    **dict.fromkeys(("keep_jobs", "skip_saturated"), bool),
}
_OF_KIND: Mapping[str, Mapping[str, Any]] = {
    "continuous": {"window": tuple[int, int], "world": Any},
    **{kind: {"world": Any} for kind in ("static", "trace")},
    "decision": {"repetitions": AtLeastOne, "max_decision_seconds": Positive | None},
}
"""Keys of a sweep, and those of one kind of sweep alone, with their types; `Any`: what is in it is read on its own."""

# Settings: one flat mapping from names to values. Names are "preset", fields of `MechanismSettings` and of rules,
# "policy.<name>" and "workload.<name>".


def _generator(value: Any, place: str, source: object, _folder: Path) -> Any:
    if value not in workloads():
        raise InputError(source, field=place, found=value, expected=one_of(value, workloads()))
    return value


def kinds_under_workload() -> dict[str, Any]:
    """Declared types of what definitions have under ``workload``."""
    of_run = declared_kinds(Run)
    return {"generator": Annotated[str, Reads(_generator)], **kinds_of_workload()} | {n: of_run[n] for n in OF_WORKLOAD}


def setting_of_text(name: str, text: str, policies: Sequence[Mapping[str, Any]], option: str) -> Any:
    """The value that `text` of a command line stands for, by the declared type of the setting; `policies`: of theirs.

    Settings that nobody has stay text, or what it is as JSON; `assignment` says what is wrong with them.

    Raises
    ------
    InputError
        The text stands for nothing of that type, or there is no such policy.
    """
    group, _, rest = name.partition(".")
    kinds: list[Any] = [kinds_of_presets().get(name, Any)]
    if group == "workload":
        kinds = [kinds_under_workload().get(rest, Any)]
    elif group == "policy":
        kinds = [known[rest] for known in policies if rest in known]
    return convert_text(text, (kinds or [Any])[0], source=option, field=name)


def settings_under(settings: Settings, group: str) -> dict[str, Any]:
    """Those of a group ("policy", "workload"), without its name."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}


def setting_value(value: Any) -> Any:
    """A setting's value as settings take it: "none" is None, lists are tuples."""
    if isinstance(value, list | tuple):
        return tuple(setting_value(item) for item in value)
    return None if value == NOTHING else value


@dataclass(frozen=True)
class Case:
    """Settings that go together, one set of those of which each run has one.

    Attributes
    ----------
    label : what it is called; may be empty.
    settings : by name, as those of the sweep.
    clusters : GPUs by accelerator type, GPUs per server, as text, and the number of jobs that such a cluster is for: it
        grows with them; None: it does not.
    loads : jobs per hour (continuous), numbers of jobs (static, decision) or multiples of the arrival rate (trace),
        ascending.
    seeds : ascending.
    """

    label: str
    settings: Settings
    clusters: Clusters
    loads: tuple[float, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """What to simulate. Made by `from_toml` or `from_dict`, which check it; docs/sweeps.md describes the keys.

    Attributes
    ----------
    kind : "continuous", "static", "trace" or "decision".
    policies : names, each with its own settings.
    cases : sets of settings, one of which each run has on top, with clusters, loads and seeds.
    settings : of every run, by name: "preset", settings of mechanism and simulator, "policy.<name>" for policies
        that have it, "workload.<name>".
    vary : values of settings, all combinations of which are taken.
    window : ids of the jobs that are measured (continuous).
    world : rules of one's own, of every run.
    keep_jobs : whether the table of jobs of each run is kept.
    repetitions, max_decision_seconds : how often a decision is measured, and how long it may take (decision).
    skip_saturated : whether runs are skipped once a smaller load has saturated.
    name, description : of the sweep.
    """

    kind: Kind
    policies: tuple[tuple[str, Settings], ...]
    cases: tuple[Case, ...]
    settings: Settings = field(default_factory=dict)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    window: tuple[int, int] | None = None
    world: tuple[Rule, ...] = ()
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
        kind: Kind = convert(data.get("kind"), Kind, source=source, field="kind")
        reader = _Reader(source, Path(folder), kind)
        top = reader.table(data, {**_KEYS, LOAD_KEYS[kind]: Any, **_OF_KIND.get(kind, {})})
        base = reader.settings({"workload": top.pop("workload", {})}, "")
        base |= reader.settings(top.pop("settings", {}), "settings")
        if kind == "trace":
            base = {"workload.generator": Recorded.generator} | base
        window = top.get("window")
        if kind == "continuous" and (window is None or not 0 <= window[0] < window[1] <= MOST_JOBS):
            expected = f"ids of jobs [first, end], as in [4000, 5000], of at most {MOST_JOBS:,} jobs in a run"
            raise reader.error("window", window, expected)
        sweep = cls(
            policies=reader.policies(top.pop("policies", None), _preset(base)),
            cases=reader.cases(top),
            settings=base,
            vary=reader.varied(top.pop("vary", {})),
            world=reader.rules(top.pop("world")) if "world" in top else (),
            **{key: value for key, value in top.items() if key in kinds_of(cls)},
        )
        reader.check(sweep)
        return sweep

    def points(self) -> tuple[Run, ...]:
        """Every run once, series by series (policy, cluster, settings), loads and seeds ascending within each."""
        found: dict[str, Run] = {}
        for run in self.combinations():
            found.setdefault(run.key, run)
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
        """Runs, counting those that are equal as often as they come."""
        of_cases = (len(case.clusters) * len(case.loads) * len(case.seeds) for case in self.cases)
        return len(self.policies) * math.prod(map(len, self.vary.values())) * sum(of_cases)

    def combinations(self) -> Iterator[Run]:
        """Runs by policy, case, varied settings, cluster, load and seed; equal ones as often as they come."""
        varied = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for (policy, own), case, change in product(self.policies, self.cases, varied):
            made_of = self._parts(policy, own, {**self.settings, **case.settings, **change})
            for (gpus, servers, per_jobs), load, seed in product(case.clusters, case.loads, case.seeds):
                yield Run(
                    self.kind,
                    policy,
                    gpus if per_jobs is None else _grown(gpus, load / per_jobs),
                    load,
                    seed,
                    gpus_per_server=servers,
                    window=self.window,
                    world=self.world,
                    case=case.label,
                    repetitions=self.repetitions,
                    max_decision_seconds=self.max_decision_seconds,
                    growing_cluster="" if per_jobs is None else f"{gpus} for {per_jobs} jobs",
                    **made_of,
                )

    def _parts(self, policy: str, own: Settings, settings: Settings) -> dict[str, Any]:
        """What settings make of a run of a policy."""
        chosen = _preset(settings)
        known, jobs = chosen.kinds_of_policy(policy), settings_under(settings, "workload")
        if self.kind == "trace" and jobs["generator"] != Recorded.generator:
            expected = f"{Recorded.generator}: the jobs of a trace sweep are in a file"
            raise InputError("workload", field="workload.generator", found=jobs["generator"], expected=expected)
        of_run = {name: jobs.pop(name) for name in OF_WORKLOAD if name in jobs}
        if Need.COLOCATION not in chosen.class_of_policy(policy).needs:
            # Estimates are of pairs; a policy that makes none is the same run with and without.
            of_run = {name: of_run[name] for name in of_run.keys() & {"throughputs", "prices"}}
        shared = {name: value for name, value in settings_under(settings, "policy").items() if name in known}
        return {
            "policy_settings": {**shared, **own},
            "workload": workload(jobs),
            "preset": settings.get("preset", "default"),
            "settings": {name: value for name, value in settings.items() if name in kinds_of_presets()},
            **of_run,
        }


def definition_of_policies(variants: Sequence[Variant], source: object, chosen: Preset) -> list[Any]:
    """Policies with settings of their own as a definition has them."""
    return [
        {"name": variant.name, **own} if (own := variant.typed_settings(source, chosen)) else variant.name
        for variant in variants
    ]


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: tables are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key, value)
        # {first, last, count} is one value
        tables = all(isinstance(each, Mapping) and "count" not in each for each in (old, value))
        result[key] = merged(old, value) if tables else value
    return result


def _preset(settings: Settings) -> Preset:
    """The one of these settings; the usual one where they name none that there is, which is told elsewhere."""
    named = settings.get("preset")
    return preset(named if named in preset_names() else "default")


def _grown(gpus: str, factor: float) -> str:
    """The cluster with so many times the GPUs of each type, rounded down, at least one where there are any."""
    cluster = Cluster.parse(gpus)
    return str(Cluster({name: max(int(count * factor), min(count, 1)) for name, count in cluster.gpus.items()}))


@dataclass(frozen=True)
class _Reader:
    """Reads parts of a definition; errors name their places in `source`, files are relative to `folder`."""

    source: object
    folder: Path
    kind: Kind

    def error(self, place: str | None, found: object, expected: str) -> InputError:
        """An error about a place."""
        return InputError(self.source, field=place or None, found=found, expected=expected)

    def told(self, place: str, found: object, make: Callable[[], T]) -> T:
        """What `make` returns; its errors are told as errors of this place."""
        try:
            return make()
        except InputError as error:
            detail = f"{error.field}: " if error.field else ""
            raise self.error(
                place, found if error.found is None else error.found, f"{detail}{error.expected}"
            ) from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.error(place, found, f"another value ({error})") from error

    def table(self, data: Any, kinds: Mapping[str, Any] | None, place: str = "") -> dict[str, Any]:
        """A table with values of these types, and no other keys; None: as it is."""
        if not isinstance(data, Mapping):
            raise self.error(place, data, "a table")
        if kinds is None:
            return dict(data)
        typed = {}
        for key, value in data.items():
            where = f"{place}.{key}" if place else key
            if key not in kinds:
                raise self.error(where, value, one_of(key, sorted(kinds)))
            known = value if kinds[key] is Any else setting_value(value)
            typed[key] = convert(known, kinds[key], source=self.source, field=where)
        return typed

    def each(self, value: Any, place: str) -> list[tuple[str, Any]]:
        """A list that is not empty, with the place of each item; one value stands for a list of it."""
        listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if not listed:
            raise self.error(place, value, "a list with at least one value")
        return [(f"{place}[{i}]", item) for i, item in enumerate(listed)]

    def numbers(self, value: Any, place: str, allowed: Range, *, whole: bool) -> tuple[float, ...]:
        """Distinct numbers in ascending order: a list, or {first, last, count} for evenly spaced ones."""
        if isinstance(value, Mapping):
            found = self._spaced(value, place)
        else:
            found = list(value) if isinstance(value, list | tuple) else [value]
        if not found or len(found) > MOST_VALUES:
            raise self.error(place, f"{len(found):,} values", f"at least one number, and at most {MOST_VALUES:,}")
        for number in found:
            if not is_number(number) or number not in allowed or (whole and number != int(number)):
                raise self.error(place, number, f"{'whole numbers' if whole else 'numbers'} {allowed}")
        if len(set(found)) < len(found):
            raise self.error(place, value, "each number once")
        return tuple(sorted(map(float, found)))

    def _spaced(self, value: Mapping[str, Any], place: str) -> list[float]:
        kinds = {"first": float, "last": float, "count": Annotated[int, Range(2, MOST_VALUES)]}
        known = self.table(value, kinds, place)
        if len(known) < len(kinds):
            raise self.error(place, dict(value), "a list of numbers, or first, last and a count of at least 2")
        low, high, count = known["first"], known["last"], known["count"]
        # Twelve digits, so that 0.4 + 0.4 * 2 is 1.2 and has one identity.
        return [float(f"{low + (high - low) * i / (count - 1):.12g}") for i in range(count)]

    def loads(self, value: Any, place: str) -> tuple[float, ...]:
        """Loads of a sweep of this kind."""
        if LOAD_KEYS[self.kind] != "jobs":
            return self.numbers(value, place, Range(above=True), whole=False)
        loads = self.numbers(value, place, Range(1, LARGEST_WHOLE_NUMBER), whole=True)
        if loads[-1] > MOST_JOBS:
            raise self.error(place, int(loads[-1]), f"at most {MOST_JOBS:,} jobs in a run")
        return loads

    def rules(self, value: Any) -> tuple[Rule, ...]:
        """Rules, or texts of them as behind ``--world``."""

        def rule(item: Any) -> Rule:
            if isinstance(item, Rule):
                return item
            return rule_of_text(os.path.join(self.folder, item) if ".py:" in item else item)

        return tuple(self.told(where, item, partial(rule, item)) for where, item in self.each(value, "world"))

    def seeds(self, value: Any, place: str) -> tuple[int, ...]:
        """Whole numbers."""
        return tuple(map(int, self.numbers(value, place, Range(0, LARGEST_WHOLE_NUMBER), whole=True)))

    def clusters(self, value: Any, place: str, shared: str | None) -> Clusters:
        """Each a text, or a table with what it may say; `shared` are GPUs per server where it says none."""
        found: list[tuple[str, str | None, int | None]] = []
        for where, item in self.each(value, place):
            kinds = {"gpus": str, "gpus_per_server": str, "per_jobs": AtLeastOne | None}
            entry = self.table({"gpus": item} if isinstance(item, str) else item, kinds, where)
            gpus, per_jobs = entry.get("gpus", ""), entry.get("per_jobs")
            servers = entry.get("gpus_per_server", shared)
            if per_jobs is not None and (LOAD_KEYS[self.kind] != "jobs" or servers is not None):
                expected = "nothing: only a number of jobs makes a cluster grow, and only one without gpus_per_server"
                raise self.error(f"{where}.per_jobs", per_jobs, expected)
            cluster = self.told(where, gpus, partial(Cluster.parse, gpus, servers))
            if cluster.total_gpus == 0:
                raise self.error(where, gpus, "at least one GPU")
            found.append((str(cluster), servers, per_jobs))
        if len(set(found)) < len(found):
            raise self.error(place, [gpus for gpus, *_ in found], "each cluster once")
        return tuple(found)

    def cases(self, top: dict[str, Any]) -> tuple[Case, ...]:
        """The cases of a definition: what a case does not say is that of the sweep."""
        key = LOAD_KEYS[self.kind]
        of_sweep = partial(self.clusters, shared=top.pop("gpus_per_server", None))
        read: dict[str, Callable[[Any, str], Any]] = {"clusters": of_sweep, key: self.loads, "seeds": self.seeds}
        shared = {name: make(top.pop(name), name) for name, make in read.items() if name in top}
        if self.kind == "trace":
            shared.setdefault(key, (1.0,))
        found = []
        for place, item in self.each(top.pop("cases"), "cases") if "cases" in top else [("", {})]:
            entry = self.table(item, None, place)
            label = convert(entry.pop("name", ""), str, source=self.source, field=f"{place}.name")
            own = {name: make(entry.pop(name), f"{place}.{name}") for name, make in read.items() if name in entry}
            for name in read:
                if name not in shared | own:
                    self.each(None, name)
            found.append(Case(label, self.settings(entry, place), *((shared | own)[name] for name in read)))
        return tuple(found)

    def policies(self, value: Any, chosen: Preset) -> tuple[tuple[str, Settings], ...]:
        """Each a name, or a table with settings of its own."""
        found: list[tuple[str, Settings]] = []
        for place, item in self.each(value, "policies"):
            given = {"name": item} if isinstance(item, str) else item
            name = self.table(given, None, place).get("name", "")
            policy = self.told(place, name, partial(chosen.class_of_policy, name))
            kinds = chosen.kinds_of_policy(name)
            own = self.table(given, dict.fromkeys((*kinds, "name"), Any), place)
            del own["name"]
            for key, each in own.items():
                # "none" is a word like others where nothing but text, or that very word, is taken
                if not (kinds[key] is str or NOTHING in get_args(kinds[key])):
                    own[key] = setting_value(each)
            self.told(place, own, partial(made, policy, name, own))
            if (name, own) in found:
                raise self.error(place, name, "each policy once")
            found.append((name, own))
        return tuple(found)

    def settings(self, data: Any, place: str) -> dict[str, Any]:
        """The settings that a table names; raises InputError for an unknown name, or a value that no run could take."""
        named = self.named(data, place)
        return {name: self.setting(name, value, f"{place}.{name}" if place else name) for name, value in named.items()}

    def named(self, data: Any, place: str) -> dict[str, Any]:
        """Settings by name, those of the tables "policy" and "workload" with a dot."""
        named: dict[str, Any] = {}
        for name, value in self.table(data, None, place).items():
            if name in ("policy", "workload") and isinstance(value, Mapping):
                named |= {f"{name}.{inner}": item for inner, item in value.items()}
            else:
                named[name] = value
        return named

    def setting(self, name: str, value: Any, place: str) -> Any:
        """The value of one setting; whether mechanism and simulator take it is seen when runs are made."""
        group, _, rest = name.partition(".")
        kinds, known = kinds_of_presets(), name
        if group == "workload" and rest:
            kinds, known = kinds_under_workload(), rest
            if rest not in kinds:
                raise self.error(place, value, one_of(rest, kinds))
        elif name == "preset":
            self.told(place, value, partial(preset, value))
            return value
        elif name not in kinds and not (group == "policy" and rest):
            listed = ("preset", *kinds, "policy.<name>", "workload.<name>")
            raise self.error(place, value, f"a setting: {one_of(name, listed)}")
        if isinstance(value, float) and not is_number(value):
            raise self.error(place, value, 'a finite number, or "none"')
        # settings of policies are checked with the policies that have them
        kind = Any if group == "policy" else kinds[known]
        return read_field(setting_value(value), kind, source=self.source, field=place, folder=self.folder)

    def varied(self, data: Any) -> dict[str, tuple[Any, ...]]:
        """Values of the settings that vary."""
        varied: dict[str, tuple[Any, ...]] = {}
        for name, values in self.named(data, "vary").items():
            place = f"vary.{name}"
            if not isinstance(values, list | tuple) or not values:
                raise self.error(place, values, "a list with at least one value")
            varied[name] = tuple(self.setting(name, value, place) for value in values)
            # by what they look like: values may be lists
            if len(set(map(repr, varied[name]))) < len(varied[name]):
                raise self.error(place, values, "each value once")
        return varied

    def check(self, sweep: Sweep) -> None:
        """Make one run of each series: what settings refuse is found now, not after hours."""
        if sweep.n_combinations > MOST_VALUES:
            expected = f"at most {MOST_VALUES:,}: fewer policies, clusters, cases, values, loads or seeds"
            raise self.error(None, f"{sweep.n_combinations:,} points", expected)
        every = (sweep.settings, sweep.vary, *(case.settings for case in sweep.cases))
        chosen = _preset(sweep.settings)
        for name in sorted({name for settings in every for name in settings_under(settings, "policy")}):
            if not any(name in chosen.kinds_of_policy(policy) for policy, _ in sweep.policies):
                raise self.error(f"policy.{name}", name, "a setting of at least one of the policies")
        for settings in every if sweep.kind == "decision" else ():
            for name in settings:
                if name in kinds_of_presets():
                    expected = "no setting of rounds: a decision sweep simulates nothing"
                    raise self.error(name, settings[name], expected)
        cases = tuple(replace(case, loads=case.loads[:1], seeds=case.seeds[:1]) for case in sweep.cases)
        try:
            for run in replace(sweep, cases=cases).combinations():
                self._check_run(run)
        except InputError as error:
            # of a workload, which knows nothing of the file
            raise (
                self.error(error.field, error.found, error.expected) if error.source == "workload" else error
            ) from None

    def _check_run(self, run: Run) -> None:
        """Refuse what no run could be made of, and what a sweep of this kind has no use for."""
        recorded, gap = run.recorded, getattr(run.workload, "mean_interarrival_seconds", None)
        if gap is not None and run.kind != "static":
            expected = f"nothing: only the jobs of a static sweep arrive with it, not those of a {run.kind} one"
            raise self.error("workload.mean_interarrival_seconds", gap, expected)
        if recorded is not None and recorded.trace is None:
            raise self.error("workload.trace", None, "the file of a trace")
        if recorded is not None and recorded.entities_by is not None and recorded.entities is not None:
            raise self.error("workload.entities_by", recorded.entities_by, "nothing in the place of entities")
        where = f"settings of {run.policy}" + (f", case {run.case}" if run.case else "")
        self.told(where, dict(run.settings), partial(getattr, run, "chosen"))
        self.told(where, dict(run.policy_settings), run.make_policy)
