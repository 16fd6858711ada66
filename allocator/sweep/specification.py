"""The definition of a sweep: what is varied, and what stays.

The points of a sweep are all combinations of policies, clusters, cases, varied settings, loads and seeds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from allocator.cluster import Cluster
from allocator.registry import get_policy, settings_of
from allocator.sweep.point import POLICY_PREFIX, Point, Workload
from allocator.sweep.reading import Definition, merged, read_toml, setting_value
from allocator.sweep.settings import SETTINGS, Settings, assignment, assignments, flat, settings_under
from throughputs import InputError

__all__ = ["Sweep"]

Kind = Literal["continuous", "static"]


@dataclass(frozen=True)
class Sweep:
    """What to simulate. Made by `from_toml` or `from_dict`, which check it; docs/sweeps.md describes the keys.

    Attributes
    ----------
    kind : "continuous" or "static".
    policies : names, each with its own settings.
    clusters : GPUs by accelerator type and GPUs per server, as text.
    loads : jobs per hour (continuous) or numbers of jobs (static), ascending.
    seeds : ascending.
    settings : of every point, by name: "preset", settings of mechanism and simulator, "policy.<name>" for policies
        that have it, "workload.<name>".
    cases : (label, settings) sets of settings, one of which each point has on top.
    vary : values of settings, all combinations of which are taken.
    window : ids of the jobs that are measured (continuous).
    keep_jobs : whether the table of jobs of each run is kept.
    skip_saturated : whether points are skipped once a smaller load has saturated.
    name, description : of the sweep.
    """

    kind: Kind
    policies: tuple[tuple[str, Settings], ...]
    clusters: tuple[tuple[str, str | None], ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    settings: Settings = field(default_factory=dict)
    cases: tuple[tuple[str, Settings], ...] = (("", {}),)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    window: tuple[int, int] | None = None
    keep_jobs: bool = False
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
        kind: Kind = "static" if top.text("kind", choices=("continuous", "static")) == "static" else "continuous"
        if "kind" not in data:
            raise top.error("kind", None, "continuous or static")
        base = assignments({"workload": top.take("workload", {})}, top, "", Path(folder))
        base |= assignments(top.take("settings", {}), top, "settings", Path(folder))
        sweep = cls(
            kind=kind,
            policies=_policies(top),
            clusters=_clusters(top),
            loads=_loads(top, kind),
            seeds=tuple(int(seed) for seed in top.numbers("seeds", whole=True, least=0)),
            settings=base,
            cases=_cases(top, Path(folder)),
            vary=_vary(top, Path(folder)),
            window=_window(top, kind),
            keep_jobs=top.flag("keep_jobs", False),
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
        for point in self._combinations():
            found.setdefault(point.key, point)
        return tuple(found.values())

    @property
    def named(self) -> tuple[str, ...]:
        """Columns of the settings that the sweep names: those that are varied or set anywhere."""
        names: dict[str, None] = {"round_seconds": None, "ideal": None}
        for settings in (self.settings, *(case for _, case in self.cases), self.vary):
            for name in settings:
                first, _, rest = name.partition(".")
                if first == "policy":
                    names[POLICY_PREFIX + rest] = None
                elif first in SETTINGS:
                    names[first] = None
        for _, own in self.policies:
            names.update(dict.fromkeys(POLICY_PREFIX + name for name in own))
        if self.kind == "continuous":
            names.update(dict.fromkeys(("max_waiting_jobs", "max_clock_seconds")))
        return tuple(names)

    def _combinations(self) -> Iterator[Point]:
        varied = [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]
        for (policy, own), cluster, (label, case), change in product(self.policies, self.clusters, self.cases, varied):
            settings = {**self.settings, **case, **change}
            for load, seed in product(self.loads, self.seeds):
                yield self._point(policy, own, cluster, label, settings, load, seed)

    def _point(
        self,
        policy: str,
        own: Settings,
        cluster: tuple[str, str | None],
        label: str,
        settings: Settings,
        load: float,
        seed: int,
    ) -> Point:
        known = settings_of(policy)
        shared = {name: value for name, value in settings_under(settings, "policy").items() if name in known}
        simulated = {name: value for name, value in settings.items() if name in SETTINGS}
        return Point(
            self.kind,
            policy,
            cluster[0],
            load,
            seed,
            policy_settings={**shared, **own},
            gpus_per_server=cluster[1],
            workload=Workload(**settings_under(settings, "workload")),
            window=self.window,
            preset=settings.get("preset", "default"),
            settings=simulated,
            case=label,
        )


def _loads(top: Definition, kind: Kind) -> tuple[float, ...]:
    if kind == "continuous":
        return top.numbers("rates", whole=False, least=0, above=True)
    return top.numbers("jobs", whole=True, least=1)


def _window(top: Definition, kind: Kind) -> tuple[int, int] | None:
    value = top.take("window")
    if kind == "static":
        if value is not None:
            raise top.error("window", value, "no window: all jobs of a static sweep are measured")
        return None
    proper = isinstance(value, list | tuple) and len(value) == 2 and all(type(end) is int for end in value)
    if not proper or not 0 <= value[0] < value[1]:
        raise top.error("window", value, "ids of jobs [first, end], as in [4000, 5000]")
    return value[0], value[1]


def _policies(top: Definition) -> tuple[tuple[str, Settings], ...]:
    found: list[tuple[str, Settings]] = []
    for i, item in enumerate(top.items("policies")):
        place = f"policies[{i}]"
        entry = Definition({"name": item} if isinstance(item, str) else item, top.source, place)
        name = entry.text("name") or ""
        top.checked(place, name, partial(get_policy, name))
        own = {key: setting_value(entry.take(key)) for key in settings_of(name) if key in entry}
        for key in settings_of(name):
            entry.take(key)
        entry.finish()
        top.checked(place, own, partial(get_policy, name, **own))
        if (name, own) in found:
            raise top.error(place, name, "each policy once")
        found.append((name, own))
    return tuple(found)


def _clusters(top: Definition) -> tuple[tuple[str, str | None], ...]:
    shared = top.text("gpus_per_server")
    found: list[tuple[str, str | None]] = []
    for i, item in enumerate(top.items("clusters")):
        place = f"clusters[{i}]"
        entry = Definition({"gpus": item} if isinstance(item, str) else item, top.source, place)
        gpus, servers = entry.text("gpus") or "", entry.text("gpus_per_server", shared)
        entry.finish()
        cluster = top.checked(place, gpus, partial(Cluster.parse, gpus, servers))
        if cluster.total_gpus == 0:
            raise top.error(place, gpus, "at least one GPU")
        found.append((str(cluster), servers))
    if len(set(found)) < len(found):
        raise top.error("clusters", [gpus for gpus, _ in found], "each cluster once")
    return tuple(found)


def _cases(top: Definition, folder: Path) -> tuple[tuple[str, Settings], ...]:
    if "cases" not in top:
        top.take("cases")
        return (("", {}),)
    found = []
    for i, item in enumerate(top.items("cases")):
        entry = Definition(item, top.source, f"cases[{i}]")
        label = entry.text("name", "") or ""
        found.append((label, assignments({k: v for k, v in item.items() if k != "name"}, top, f"cases[{i}]", folder)))
    return tuple(found)


def _vary(top: Definition, folder: Path) -> dict[str, tuple[Any, ...]]:
    varied: dict[str, tuple[Any, ...]] = {}
    for name, values in flat(top.take("vary", {}), top, "vary").items():
        if not isinstance(values, list | tuple) or not values:
            raise top.error(f"vary.{name}", values, "a list with at least one value")
        varied[name] = tuple(assignment(name, value, top, f"vary.{name}", folder) for value in values)
    return varied


def _check(sweep: Sweep, top: Definition) -> None:
    """Make one point of each series: what settings refuse is found now, not after hours."""
    shared = {name for settings in (sweep.settings, sweep.vary, *(case for _, case in sweep.cases))
              for name in settings_under(settings, "policy")}  # fmt: skip
    for name in sorted(shared):
        if not any(name in settings_of(policy) for policy, _ in sweep.policies):
            raise top.error(f"policy.{name}", name, "a setting of at least one of the policies")
    one = dataclasses.replace(sweep, loads=sweep.loads[:1], seeds=sweep.seeds[:1])
    for point in one._combinations():
        where = f"settings of {point.policy}" + (f", case {point.case}" if point.case else "")
        top.checked(where, dict(point.settings), partial(getattr, point, "chosen"))
        top.checked(where, dict(point.policy_settings), partial(get_policy, point.policy, **point.policy_settings))
