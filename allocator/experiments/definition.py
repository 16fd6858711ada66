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
    read_field,
)
from allocator.experiments.run import OF_WORKLOAD, POLICY_PREFIX, Kind, Run
from allocator.experiments.workloads import Recorded, kinds_of_workload, workload, workloads
from allocator.presets import Preset, kinds_of_presets, preset, preset_names
from allocator.protocol.policy import Need
from allocator.registry import made
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

_OF_KIND: Mapping[str, Kind] = {
    "window": "continuous", "repetitions": "decision", "max_decision_seconds": "decision",
}  # fmt: skip
"""Keys of one kind of sweep alone."""

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


class Table:
    """A table of a definition, from which every key is taken once, so that every error can name its place.

    Parameters
    ----------
    data : the table.
    source : file, for errors.
    folder : that names of files are relative to.
    place : keys that lead to the table, "" for the whole file.
    """

    def __init__(self, data: object, source: object, folder: Path, place: str = "") -> None:
        self.source, self.folder, self.place = source, folder, place
        if not isinstance(data, Mapping):
            raise self.error(None, data, "a table")
        self._left = {str(key): value for key, value in data.items()}
        self._known: list[str] = []

    def at(self, key: str | None) -> str:
        """The place of a key."""
        return ".".join(part for part in (self.place, key) if part)

    def error(self, key: str | None, found: object, expected: str) -> InputError:
        """An error about a key of this table."""
        return InputError(self.source, field=self.at(key) or None, found=found, expected=expected)

    def inner(self, data: object, place: str) -> Table:
        """A table inside this one, whose errors name the place of both."""
        return Table(data, self.source, self.folder, self.at(place))

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, as it stands."""
        self._known.append(key)
        return self._left.pop(key, default)

    def typed(self, key: str, kind: Any, default: Any = None) -> Any:
        """The value of a key as its type has it."""
        value = setting_value(self.take(key, default))
        return value if value is default else convert(value, kind, source=self.source, field=self.at(key))

    def items(self, key: str) -> list[Any]:
        """A list that is not empty; one value stands for a list of it."""
        value = self.take(key)
        listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if not listed:
            raise self.error(key, value, "a list with at least one value")
        return list(listed)

    def numbers(self, key: str, *, whole: bool, least: float, above: bool = False) -> tuple[float, ...]:
        """Distinct numbers in ascending order: a list, or {first, last, count} for evenly spaced ones."""
        value = self.take(key)
        if isinstance(value, Mapping):
            found = self._spaced(key, value)
        else:
            found = list(value) if isinstance(value, list | tuple) else [value]
        if not found or len(found) > MOST_VALUES:
            raise self.error(key, f"{len(found):,} values", f"at least one number, and at most {MOST_VALUES:,}")
        allowed = Range(least, LARGEST_WHOLE_NUMBER if whole else math.inf, above)
        for number in found:
            if not is_number(number) or number not in allowed or (whole and number != int(number)):
                raise self.error(key, number, f"{'whole numbers' if whole else 'numbers'} {allowed}")
        if len(set(found)) < len(found):
            raise self.error(key, value, "each number once")
        return tuple(sorted(map(float, found)))

    def _spaced(self, key: str, value: Mapping[str, Any]) -> list[float]:
        first, last, count = (value.get(name) for name in ("first", "last", "count"))
        if set(value) != {"first", "last", "count"} or not (is_number(first) and is_number(last)):
            raise self.error(key, dict(value), "a list of numbers, or first, last and a count of at least 2")
        if not isinstance(count, int) or isinstance(count, bool) or not 2 <= count <= MOST_VALUES:
            raise self.error(key, count, f"a count of at least 2 and at most {MOST_VALUES:,} values")
        low, high = float(first or 0), float(last or 0)
        # Twelve digits, so that 0.4 + 0.4 * 2 is 1.2 and has one identity.
        return [float(f"{low + (high - low) * i / (count - 1):.12g}") for i in range(count)]

    def finish(self) -> None:
        """Refuse what nobody has asked for."""
        for key, value in self._left.items():
            raise self.error(key, value, one_of(key, sorted(self._known)))

    def checked(self, key: str | None, found: object, make: Callable[[], T]) -> T:
        """What `make` returns; its errors are told as errors of this key."""
        try:
            return make()
        except InputError as error:
            detail = f"{error.field}: " if error.field else ""
            shown = found if error.found is None else error.found
            raise self.error(key, shown, f"{detail}{error.expected}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.error(key, found, f"another value ({error})") from error

    def assignments(self, data: object, place: str) -> dict[str, Any]:
        """The settings that a table names; raises InputError for an unknown name, or a value that no run could take."""
        return {
            name: self.assignment(name, value, f"{place}.{name}" if place else name)
            for name, value in self.flat(data, place).items()
        }

    def flat(self, data: object, place: str) -> dict[str, Any]:
        """Settings by name, those of the tables "policy" and "workload" with a dot."""
        if not isinstance(data, Mapping):
            raise self.error(place, data, "a table")
        named: dict[str, Any] = {}
        for name, value in data.items():
            if name in ("policy", "workload") and isinstance(value, Mapping):
                named |= {f"{name}.{inner}": item for inner, item in value.items()}
            else:
                named[name] = value
        return named

    def assignment(self, name: str, value: Any, place: str) -> Any:
        """The value of one setting; whether mechanism and simulator take it is seen when runs are made."""
        group, _, rest = name.partition(".")
        kinds, known = kinds_of_presets(), rest
        if group == "workload" and rest:
            kinds = kinds_under_workload()
            if rest not in kinds:
                raise self.error(place, value, one_of(rest, kinds))
        elif name == "preset":
            self.checked(place, value, partial(preset, value))
            return value
        elif name not in kinds and not (group == "policy" and rest):
            listed = ("preset", *kinds, "policy.<name>", "workload.<name>")
            raise self.error(place, value, f"a setting: {one_of(name, listed)}")
        else:
            known = name
        if isinstance(value, float) and not is_number(value):
            raise self.error(place, value, 'a finite number, or "none"')
        # settings of policies are checked with the policies that have them
        kind = kinds.get(known, Any)
        return read_field(setting_value(value), kind, source=self.source, field=place, folder=self.folder)


@dataclass(frozen=True)
class Case:
    """Settings that go together, one set of those of which each run has one.

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

    def of(self, sweep: Sweep) -> tuple[Clusters, tuple[float, ...], tuple[int, ...]]:
        """Its clusters, loads and seeds, or those of the sweep."""
        return (
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
    settings : of every run, by name: "preset", settings of mechanism and simulator, "policy.<name>" for policies
        that have it, "workload.<name>".
    cases : sets of settings, one of which each run has on top; `clusters`, `loads` and `seeds` are empty where every
        case has its own.
    vary : values of settings, all combinations of which are taken.
    window : ids of the jobs that are measured (continuous).
    keep_jobs : whether the table of jobs of each run is kept.
    repetitions, max_decision_seconds : how often a decision is measured, and how long it may take (decision).
    skip_saturated : whether runs are skipped once a smaller load has saturated.
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
        top = Table(data, source, Path(folder))
        kind: Kind = convert(top.take("kind"), Kind, source=source, field="kind")
        base = top.assignments({"workload": top.take("workload", {})}, "")
        base |= top.assignments(top.take("settings", {}), "settings")
        if kind == "trace":
            base = {"workload.generator": Recorded.generator} | base
        servers = top.typed("gpus_per_server", str)
        cases = _cases(top, kind, servers)

        def shared(key: str, name: str) -> bool:
            """Whether the sweep has the key: cases without one of their own have that of the sweep."""
            return any(getattr(case, name) is None for case in cases) or key in top

        sweep = cls(
            kind=kind,
            policies=_policies(top, _preset(base)),
            clusters=_clusters(top, kind, servers) if shared("clusters", "clusters") else (),
            loads=_loads(top, kind) if shared(LOAD_KEYS[kind], "loads") else (),
            seeds=_seeds(top) if shared("seeds", "seeds") else (),
            settings=base,
            cases=cases,
            vary=_vary(top),
            window=_window(top, kind),
            keep_jobs=top.typed("keep_jobs", bool, False),
            repetitions=_of_kind(top, "repetitions", AtLeastOne, kind, 1),
            max_decision_seconds=_of_kind(top, "max_decision_seconds", Positive | None, kind),
            skip_saturated=top.typed("skip_saturated", bool, True),
            name=top.typed("name", str, "sweep"),
            description=top.typed("description", str, ""),
        )
        top.finish()
        _check(sweep, top)
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
        of_cases = (math.prod(map(len, case.of(self))) for case in self.cases)
        return len(self.policies) * math.prod(map(len, self.vary.values())) * sum(of_cases)

    def combinations(self) -> Iterator[Run]:
        """Runs by policy, case, varied settings, cluster, load and seed; equal ones as often as they come."""
        varied = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for (policy, own), case, change in product(self.policies, self.cases, varied):
            made_of = self._parts(policy, own, {**self.settings, **case.settings, **change})
            for (gpus, servers, per_jobs), load, seed in product(*case.of(self)):
                yield Run(
                    self.kind,
                    policy,
                    gpus if per_jobs is None else _grown(gpus, load / per_jobs),
                    load,
                    seed,
                    gpus_per_server=servers,
                    window=self.window,
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


def _of_kind(top: Table, key: str, type_: Any, kind: Kind, default: Any = None) -> Any:
    """The value of a key that sweeps of one kind have."""
    if key in top and kind != _OF_KIND[key]:
        raise top.error(key, top.take(key), f"nothing: only a {_OF_KIND[key]} sweep has it, not a {kind} one")
    return top.typed(key, type_, default)


def _loads(top: Table, kind: Kind) -> tuple[float, ...]:
    key = LOAD_KEYS[kind]
    if kind == "trace" and key not in top:
        return (top.take(key, 1.0),)
    if kind in ("continuous", "trace"):
        return top.numbers(key, whole=False, least=0, above=True)
    loads = top.numbers(key, whole=True, least=1)
    if loads[-1] > MOST_JOBS:
        raise top.error(key, int(loads[-1]), f"at most {MOST_JOBS:,} jobs in a run")
    return loads


def _seeds(top: Table) -> tuple[int, ...]:
    return tuple(int(seed) for seed in top.numbers("seeds", whole=True, least=0))


def _window(top: Table, kind: Kind) -> tuple[int, int] | None:
    value = _of_kind(top, "window", tuple[int, int], kind)
    if kind == "continuous" and (value is None or not 0 <= value[0] < value[1] <= MOST_JOBS):
        expected = f"ids of jobs [first, end], as in [4000, 5000], of at most {MOST_JOBS:,} jobs in a run"
        raise top.error("window", value, expected)
    return None if value is None else (value[0], value[1])


def _preset(settings: Settings) -> Preset:
    """The one of these settings; the usual one where they name none that there is, which is told elsewhere."""
    named = settings.get("preset")
    return preset(named if named in preset_names() else "default")


def _policies(top: Table, chosen: Preset) -> tuple[tuple[str, Settings], ...]:
    found: list[tuple[str, Settings]] = []
    for i, item in enumerate(top.items("policies")):
        place = f"policies[{i}]"
        entry = top.inner({"name": item} if isinstance(item, str) else item, place)
        name = entry.typed("name", str, "")
        top.checked(place, name, partial(chosen.class_of_policy, name))
        kinds = chosen.kinds_of_policy(name)
        given = {key: entry.take(key) for key in kinds if key in entry}
        # "none" is a word like others where nothing but text, or that very word, is taken.
        words = {key for key, kind in kinds.items() if kind is str or NOTHING in get_args(kind)}
        own = {key: value if key in words else setting_value(value) for key, value in given.items()}
        for key in kinds:
            entry.take(key)
        entry.finish()
        top.checked(place, own, partial(made, chosen.class_of_policy(name), name, own))
        if (name, own) in found:
            raise top.error(place, name, "each policy once")
        found.append((name, own))
    return tuple(found)


def _grown(gpus: str, factor: float) -> str:
    """The cluster with so many times the GPUs of each type, rounded down, at least one where there are any."""
    cluster = Cluster.parse(gpus)
    return str(Cluster({name: max(int(count * factor), min(count, 1)) for name, count in cluster.gpus.items()}))


def _clusters(top: Table, kind: Kind, shared: str | None) -> Clusters:
    found: list[tuple[str, str | None, int | None]] = []
    for i, item in enumerate(top.items("clusters")):
        place = f"clusters[{i}]"
        entry = top.inner({"gpus": item} if isinstance(item, str) else item, place)
        gpus, servers = entry.typed("gpus", str, ""), entry.typed("gpus_per_server", str, shared)
        per_jobs = entry.typed("per_jobs", AtLeastOne | None)
        if per_jobs is not None and (LOAD_KEYS[kind] != "jobs" or servers is not None):
            expected = "nothing: only a number of jobs makes a cluster grow, and only one without gpus_per_server"
            raise entry.error("per_jobs", per_jobs, expected)
        entry.finish()
        cluster = top.checked(place, gpus, partial(Cluster.parse, gpus, servers))
        if cluster.total_gpus == 0:
            raise top.error(place, gpus, "at least one GPU")
        found.append((str(cluster), servers, per_jobs))
    if len(set(found)) < len(found):
        raise top.error("clusters", [gpus for gpus, *_ in found], "each cluster once")
    return tuple(found)


def _cases(top: Table, kind: Kind, servers: str | None) -> tuple[Case, ...]:
    if "cases" not in top:
        top.take("cases")
        return (Case(),)
    own, found = ("name", "clusters", LOAD_KEYS[kind], "seeds"), []
    for i, item in enumerate(top.items("cases")):
        entry = top.inner(item, f"cases[{i}]")
        found.append(
            Case(
                entry.typed("name", str, ""),
                top.assignments({k: v for k, v in item.items() if k not in own}, f"cases[{i}]"),
                _clusters(entry, kind, servers) if "clusters" in entry else None,
                _loads(entry, kind) if LOAD_KEYS[kind] in entry else None,
                _seeds(entry) if "seeds" in entry else None,
            )
        )
    return tuple(found)


def _vary(top: Table) -> dict[str, tuple[Any, ...]]:
    varied: dict[str, tuple[Any, ...]] = {}
    for name, values in top.flat(top.take("vary", {}), "vary").items():
        if not isinstance(values, list | tuple) or not values:
            raise top.error(f"vary.{name}", values, "a list with at least one value")
        varied[name] = tuple(top.assignment(name, value, f"vary.{name}") for value in values)
        # by what they look like: values may be lists
        if len(set(map(repr, varied[name]))) < len(varied[name]):
            raise top.error(f"vary.{name}", values, "each value once")
    return varied


def _check(sweep: Sweep, top: Table) -> None:
    """Make one run of each series: what settings refuse is found now, not after hours."""
    if sweep.n_combinations > MOST_VALUES:
        expected = f"at most {MOST_VALUES:,}: fewer policies, clusters, cases, values, loads or seeds"
        raise top.error(None, f"{sweep.n_combinations:,} points", expected)
    every = (sweep.settings, sweep.vary, *(case.settings for case in sweep.cases))
    chosen = _preset(sweep.settings)
    for name in sorted({name for settings in every for name in settings_under(settings, "policy")}):
        if not any(name in chosen.kinds_of_policy(policy) for policy, _ in sweep.policies):
            raise top.error(f"policy.{name}", name, "a setting of at least one of the policies")
    for settings in every if sweep.kind == "decision" else ():
        for name in settings:
            if name in kinds_of_presets():
                raise top.error(name, settings[name], "no setting of rounds: a decision sweep simulates nothing")
    one = replace(
        sweep,
        loads=sweep.loads[:1],
        seeds=sweep.seeds[:1],
        cases=tuple(replace(c, loads=c.loads and c.loads[:1], seeds=c.seeds and c.seeds[:1]) for c in sweep.cases),
    )
    try:
        for run in one.combinations():
            _check_run(run, top)
    except InputError as error:
        # of a workload, which knows nothing of the file
        raise top.error(error.field, error.found, error.expected) if error.source == "workload" else error from None


def _check_run(run: Run, top: Table) -> None:
    """Refuse what no run could be made of, and what a sweep of this kind has no use for."""
    jobs, recorded = run.workload, run.recorded
    gap = getattr(jobs, "mean_interarrival_seconds", None)
    if gap is not None and run.kind != "static":
        expected = f"nothing: only the jobs of a static sweep arrive with it, not those of a {run.kind} one"
        raise top.error("workload.mean_interarrival_seconds", gap, expected)
    if recorded is not None and recorded.trace is None:
        raise top.error("workload.trace", None, "the file of a trace")
    if recorded is not None and recorded.entities_by is not None and recorded.entities is not None:
        raise top.error("workload.entities_by", recorded.entities_by, "nothing in the place of entities")
    where = f"settings of {run.policy}" + (f", case {run.case}" if run.case else "")
    top.checked(where, dict(run.settings), partial(getattr, run, "chosen"))
    top.checked(where, dict(run.policy_settings), run.make_policy)
