"""Which runs are asked for: every combination of clusters, loads, restart penalties, settings and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from allocator.cluster import MOST_TYPES_NAMED, Cluster
from allocator.presets.default import DEFAULT
from allocator.simulator.rules.starts import constant_restart_penalty
from allocator.sweep import Point, Sweep
from allocator.variants import Variant
from throughputs import InputError

MOST_RUNS_UNASKED = 8
"""Runs on larger clusters that are made without being asked for."""

SOURCE = "whatif"


@dataclass(frozen=True)
class Planned:
    """One row to be: its place in every dimension, its run, and those with more GPUs of a type.

    Attributes
    ----------
    cluster, load, restart_penalty, varied, policy : where it stands; the penalty is None where the preset says it.
    point : the run.
    larger : the runs on the cluster with more GPUs, by accelerator type.
    """

    cluster: Cluster
    load: float
    restart_penalty: float | None
    varied: Mapping[str, Any]
    policy: Variant
    point: Point
    larger: Mapping[str, Point]


@dataclass(frozen=True)
class Scenarios:
    """What is simulated. The rows are the product of the dimensions, the last of them varying fastest.

    Attributes
    ----------
    trace : file of the jobs.
    clusters, loads, restart_penalties, vary, policies : the dimensions, in the order in which they vary. Loads multiply
        the arrival rate. Penalties are what every start costs, seconds; none: that of the preset. `vary` has values by
        name of a setting, as in a sweep.
    workload, settings : as in the definition of a sweep (docs/sweeps.md), for all rows.
    seed : of everything that is drawn.
    next_gpus : each row is also simulated with so many more GPUs of each type; 0: not; None: 1 where that takes at most
        `MOST_RUNS_UNASKED` further runs, else 0.

    Raises
    ------
    InputError
        Anything that no run could be made of, and a cluster, load, penalty or policy that is there twice.
    """

    trace: str
    clusters: tuple[Cluster, ...]
    policies: tuple[Variant, ...]
    loads: tuple[float, ...] = (1.0,)
    restart_penalties: tuple[float, ...] = ()
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    next_gpus: int | None = None

    def __post_init__(self) -> None:
        if not self.clusters:
            raise InputError(SOURCE, field="clusters", found="none", expected="at least one, as in a100:32")
        if self.next_gpus is not None and self.next_gpus < 0:
            raise InputError(SOURCE, field="next_gpus", found=self.next_gpus, expected="a number of GPUs, at least 0")
        for name, values in (("clusters", self.clusters), ("restart_penalties", self.restart_penalties)):
            texts = [str(value) for value in values]
            if len(set(texts)) < len(texts):
                raise InputError(SOURCE, field=name, found=", ".join(texts), expected="each once")
        # The definition of the sweep checks all else.
        _ = self.sweep

    @cached_property
    def more_gpus(self) -> int:
        """GPUs by which the clusters of further runs are larger; 0 where there are none."""
        if self.next_gpus is not None:
            return self.next_gpus
        larger = {_text(each) for cluster in self.clusters for each in _larger(cluster, 1).values()}
        new = larger - {_text(cluster) for cluster in self.clusters}
        of_each = len(self.policies) * len(self.loads) * max(len(self.restart_penalties), 1) * len(self._changes)
        return int(len(new) * of_each <= MOST_RUNS_UNASKED)

    @cached_property
    def sweep(self) -> Sweep:
        """All runs, those on larger clusters included, as one sweep."""
        clusters = [{"gpus": gpus} | ({"gpus_per_server": servers} if servers else {}) for gpus, servers in self._all]
        cases = [{"name": _of_penalty(p), **constant_restart_penalty(p)} for p in self.restart_penalties]
        definition = {
            "kind": "trace",
            "name": SOURCE,
            "policies": [
                {"name": policy.name, **own} if (own := policy.typed_settings(SOURCE, DEFAULT)) else policy.name
                for policy in self.policies
            ],
            "clusters": clusters,
            "loads": list(self.loads),
            "seeds": [self.seed],
            "workload": {**self.workload, "trace": self.trace},
            "settings": dict(self.settings),
            "vary": {name: list(values) for name, values in self.vary.items()},
            "keep_jobs": True,
            # Every row is wanted, whatever came of the others.
            "skip_saturated": False,
            **({"cases": cases} if cases else {}),
        }
        return Sweep.from_dict(definition, source=SOURCE)

    def rows(self) -> tuple[Planned, ...]:
        """The rows in their order."""
        points = dict(zip(self._places(), self.sweep.combinations(), strict=True))
        penalties: tuple[float | None, ...] = self.restart_penalties or (None,)
        rows = []
        for cluster, load, penalty, change, policy in product(
            self.clusters, self.loads, penalties, range(len(self._changes)), self.policies
        ):
            elsewhere = (float(load), penalty, change, policy.label)
            larger = _larger(cluster, self.more_gpus) if self.more_gpus else {}
            rows.append(
                Planned(
                    cluster,
                    float(load),
                    penalty,
                    self._changes[change],
                    policy,
                    points[(_text(cluster), *elsewhere)],
                    {name: points[(_text(each), *elsewhere)] for name, each in larger.items()},
                )
            )
        return tuple(rows)

    def _places(self) -> Iterator[tuple[Any, ...]]:
        """Where the points of the sweep stand, in the order of `Sweep.combinations`."""
        penalties: tuple[float | None, ...] = self.restart_penalties or (None,)
        of_series = product(self.policies, penalties, range(len(self._changes)))
        for (policy, penalty, change), cluster, load in product(of_series, self._all, sorted(map(float, self.loads))):
            yield cluster, load, penalty, change, policy.label

    @cached_property
    def _all(self) -> list[tuple[str, str]]:
        """The clusters of the rows and the larger ones, each once, as text."""
        more = self.more_gpus
        larger = [each for cluster in self.clusters for each in _larger(cluster, more).values()] if more else []
        return list(dict.fromkeys(map(_text, (*self.clusters, *larger))))

    @cached_property
    def _changes(self) -> list[dict[str, Any]]:
        """Every combination of the varied settings."""
        return [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]

    def labels(self) -> list[str]:
        """What each row is called: where it differs from others; its cluster where there is but one row."""
        rows = self.rows()
        return [_label(row, rows) for row in rows]


def _label(row: Planned, rows: Sequence[Planned]) -> str:
    parts = []
    clusters = [each.cluster for each in rows]
    if len(set(map(str, clusters))) > 1 or len(rows) == 1:
        parts.append(_cluster_label(row.cluster, clusters))
    if len({each.load for each in rows}) > 1:
        parts.append(f"load {row.load:g}")
    if len({each.restart_penalty for each in rows}) > 1:
        parts.append(_of_penalty(row.restart_penalty or 0.0))
    for name, value in row.varied.items():
        if any(each.varied[name] != value for each in rows):
            parts.append(f"{name}={value}")
    if len({each.policy.label for each in rows}) > 1:
        parts.append(row.policy.label)
    return ", ".join(parts)


def _cluster_label(cluster: Cluster, clusters: Sequence[Cluster]) -> str:
    """The GPUs of all types; where there are many types, of those in which the clusters differ, or how many in all."""
    names = cluster.accelerators
    if len(names) <= MOST_TYPES_NAMED or any(each.accelerators != names for each in clusters):
        return str(cluster)
    differ = [name for name in names if len({each.gpus[name] for each in clusters}) > 1]
    totals = {each.total_gpus for each in clusters}
    if not differ or (len(differ) > MOST_TYPES_NAMED and len(totals) == len(set(map(str, clusters)))):
        return f"{cluster.total_gpus} GPUs"
    return ",".join(f"{name}:{cluster.gpus[name]}" for name in differ)


def _of_penalty(seconds: float) -> str:
    return f"restart {seconds:g} s"


def _larger(cluster: Cluster, gpus: int) -> dict[str, Cluster]:
    """The cluster with so many more GPUs of a type, by type."""
    return {
        name: Cluster({**cluster.gpus, name: count + gpus}, cluster.gpus_per_server)
        for name, count in cluster.gpus.items()
    }


def _text(cluster: Cluster) -> tuple[str, str]:
    """A cluster as a sweep takes it: GPUs, and GPUs per server where a server has several."""
    servers = cluster.gpus_per_server
    some = any(size > 1 for size in servers.values())
    return str(cluster), ",".join(f"{name}:{size}" for name, size in servers.items()) if some else ""
