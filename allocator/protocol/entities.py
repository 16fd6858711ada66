"""Entities: teams, projects, users that share a cluster, in a hierarchy of any depth.

>>> from allocator.protocol.entities import Entities
>>> entities = Entities.parse({"research": {"weight": 2}, "vision": {"parent": "research", "policy": "fifo"}})
>>> entities.names, entities.parent.tolist()
(('research', 'vision'), [-1, 0])

A job names the entity that it belongs to. Policies with water filling share GPU time among entities by their weights,
and inside each entity by its policy; all other policies ignore entities. docs/entities.md says more.

Source: Narayanan et al., OSDI 2020, section 4.3 (hierarchical policies).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.conversion import check_fields
from formulations import Hierarchy
from throughputs.arrays import Floats, Positions, Texts
from throughputs.errors import InputError, did_you_mean, one_of
from throughputs.files import TABLE_KINDS, file_kind, read_frame, read_json, read_toml
from throughputs.frames import Column, FrameReader
from throughputs.limits import AMOUNT
from throughputs.numerics import tie_order

if TYPE_CHECKING:
    import pandas as pd

TOP = -1
"""Where entities and jobs are that belong to no entity."""


@dataclass(frozen=True)
class Entity:
    """Somebody who owns jobs, or other entities.

    Parameters
    ----------
    name : distinct text.
    weight : positive; share of the entity among the members of its parent, or at the top.
    policy : "fairness" (members that can use more get time in proportion to their weights) or "fifo" (the job that
        arrived first gets all it can use, then the next; entities inside come after the jobs, as they are listed).
    parent : name of the entity that this one belongs to; None: at the top.

    Raises
    ------
    InputError
        A name that is no text, a weight that is not positive, or an unknown policy.

    >>> Entity("vision", weight=2.0, policy="fifo").weight
    2.0
    """

    name: str
    weight: Annotated[float, AMOUNT] = 1.0
    policy: Literal["fairness", "fifo"] = "fairness"
    parent: str | None = None

    def __post_init__(self) -> None:
        source = f"entity {self.name!r}"
        check_fields(self, source)
        for field in ("name", "parent"):
            if getattr(self, field) == "":
                raise InputError(source, field=field, found="", expected="the name of an entity")
        object.__setattr__(self, "weight", float(self.weight))


_COLUMNS = {
    "name": Column("text"),
    "weight": Column("number", 1.0),
    "policy": Column("text", "fairness"),
    "parent": Column("text", ""),
}
_FIELDS = tuple(field.name for field in fields(Entity))


class Entities:
    """E entities, parents before their members, otherwise as listed.

    Parameters
    ----------
    entities : in any order.
    source : where they came from, for messages.

    Attributes
    ----------
    names : (E,) str. parent : (E,) position of the parent, or -1. weights : (E,). fifo : (E,) bool.

    Raises
    ------
    InputError
        A name that stands twice, a parent that does not exist, or entities that belong to each other in a circle.

    >>> teams = Entities([Entity("vision", weight=2.0), Entity("language")])
    >>> teams.names, teams.weights.tolist()
    (('vision', 'language'), [2.0, 1.0])
    """

    def __init__(self, entities: Iterable[Entity] = (), *, source: str = "entities") -> None:
        listed = list(entities)
        known = {entity.name: entity for entity in listed}
        if len(known) < len(listed):
            names = [entity.name for entity in listed]
            repeated = next(name for name in names if names.count(name) > 1)
            raise InputError(source, field="name", found=repeated, expected="distinct names")
        depth = {entity.name: _depth(entity, known, source) for entity in listed}
        self._entities = tuple(sorted(listed, key=lambda entity: depth[entity.name]))
        self.source = source
        self.names = tuple(entity.name for entity in self._entities)
        self._position = {name: i for i, name in enumerate(self.names)}
        above = [TOP if entity.parent is None else self._position[entity.parent] for entity in self._entities]
        self.parent = np.array(above, dtype=np.intp)
        self.weights = np.array([entity.weight for entity in self._entities], dtype=np.float64)
        self.fifo = np.array([entity.policy == "fifo" for entity in self._entities], dtype=np.bool_)

    @classmethod
    def parse(cls, given: EntitiesLike) -> Entities:
        """Entities from whatever says what they are.

        Parameters
        ----------
        given : entities; a list of them, or of dicts with their fields; a dict from names to such dicts (without
            name) or to weights; a table with the columns name, weight, policy and parent, of which only the first is
            required; or a file: ``.toml`` or ``.json`` with such a list or dict, alone or under the key ``entities``,
            or ``.csv`` or ``.parquet`` with such a table.

        Raises
        ------
        InputError
            Something is missing, unknown or not what it should be; says where.
        OSError
            The file cannot be opened.
        """
        if isinstance(given, Entities):
            return given
        if isinstance(given, str | os.PathLike):
            return cls._read(Path(given))
        if hasattr(given, "columns"):
            return cls.from_frame(cast("pd.DataFrame", given))
        return cls._from_data(given, "entities")

    @classmethod
    def named(cls, names: Iterable[str], source: str = "entities") -> Entities:
        """Entities of equal weight, one for each distinct name but the empty one, in the order of their names."""
        return cls([Entity(name) for name in sorted(set(names) - {""})], source=source)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "entities", first_line: int = 1) -> Entities:
        """Entities from a table with one row each; `first_line` is the line of `source` that holds the first row."""
        columns = FrameReader(frame, source, first_line).read(_COLUMNS)
        rows = (
            dict(zip(columns, cells, strict=True))
            for cells in zip(*map(np.ndarray.tolist, columns.values()), strict=True)
        )
        return cls(
            [
                _entity(row | {"parent": row["parent"] or None}, _field_of_line(line), source)
                for line, row in enumerate(rows, start=first_line)
            ],
            source=source,
        )

    @classmethod
    def _read(cls, path: Path) -> Entities:
        kind = file_kind(path)
        if kind in TABLE_KINDS:
            frame, first_line = read_frame(path)
            return cls.from_frame(frame, str(path), first_line)
        if kind not in ("toml", "json"):
            raise InputError(path, found=path.name, expected="a name ending in .toml, .json, .csv or .parquet")
        data = read_json(path, unique_keys=True) if kind == "json" else read_toml(path)
        if isinstance(data, dict) and list(data) == ["entities"]:
            data = data["entities"]
        return cls._from_data(data, str(path))

    @classmethod
    def _from_data(cls, data: Any, source: str) -> Entities:
        if isinstance(data, Mapping):
            rows = []
            for name, value in data.items():
                if isinstance(value, Mapping) and "name" in value:
                    raise InputError(
                        source, field=f"{name}.name", found=value["name"], expected="no name beside the key"
                    )
                row = {"name": name} | (dict(value) if isinstance(value, Mapping) else {"weight": value})
                rows.append(_entity(row, _path_in(str(name)), source))
            return cls(rows, source=source)
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise InputError(source, found=type(data).__name__, expected="a list or a dict of entities")
        listed = []
        for i, row in enumerate(data):
            if not isinstance(row, Entity | Mapping):
                raise InputError(source, field=f"[{i}]", found=row, expected="an entity, or a dict with its fields")
            listed.append(row if isinstance(row, Entity) else _entity(dict(row), _path_in(f"[{i}]"), source))
        return cls(listed, source=source)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """By name, ready for JSON; `parse` reads it."""
        return {e.name: {"weight": e.weight, "policy": e.policy, "parent": e.parent} for e in self._entities}

    def to_frame(self) -> pd.DataFrame:
        """Table with the columns name, weight, policy and parent (None at the top); `parse` reads it."""
        import pandas as pd

        rows = [[getattr(entity, name) for name in _FIELDS] for entity in self._entities]
        return pd.DataFrame(rows, columns=list(_FIELDS)).astype({"weight": float, "parent": object})

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._entities)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entities) and self._entities == other._entities

    def __hash__(self) -> int:
        return hash(self._entities)

    def __repr__(self) -> str:
        return f"Entities({list(self._entities)!r})"

    def inside(self, position: int) -> Positions:
        """Positions of an entity and of all entities in it, at any depth."""
        found = {position}
        for i in range(position + 1, len(self)):
            if int(self.parent[i]) in found:
                found.add(i)
        return np.array(sorted(found), dtype=np.intp)

    def positions(self, names: Sequence[object] | Texts, source: str = "jobs") -> Positions:
        """(N,) position of each job's entity; -1 for None, nan and empty text.

        Raises
        ------
        InputError
            An entity that does not exist; the line is the job's position, counted from 1.
        """
        found = np.full(len(names), TOP, dtype=np.intp)
        for i, name in enumerate(names):
            if name is None or name == "" or name != name:
                continue
            position = self._position.get(name) if isinstance(name, str) else None
            if position is None:
                hint = did_you_mean(name, self.names) or f" (one of {', '.join(self.names) or 'none'})"
                raise InputError(source, line=i + 1, field="entity", found=name, expected=f"a known entity{hint}")
            found[i] = position
        return found


EntitiesLike: TypeAlias = (
    "Entities | Iterable[Entity | Mapping[str, Any]] | Mapping[str, Any] | pd.DataFrame | str | os.PathLike[str]"
)


@dataclass(frozen=True, eq=False)
class Membership:
    """Which entity each of N jobs belongs to.

    Attributes
    ----------
    entities : the entities.
    of_job : (N,) position of each job's entity, -1 at the top.
    arrival_rank : (N,) order of the jobs in entities that serve first come, first served; lower first.
    """

    entities: Entities
    of_job: Positions
    arrival_rank: Floats

    def __init__(self, entities: Entities, of_job: ArrayLike, arrival_rank: ArrayLike | None = None) -> None:
        of = np.asarray(of_job, dtype=np.intp)
        rank = np.arange(len(of), dtype=np.float64) if arrival_rank is None else np.asarray(arrival_rank, np.float64)
        object.__setattr__(self, "entities", entities)
        object.__setattr__(self, "of_job", of)
        object.__setattr__(self, "arrival_rank", rank)
        if of.ndim != 1 or ((of < TOP) | (of >= len(entities))).any():
            raise InputError("membership", field="of_job", found=of, expected=f"positions of {len(entities)} entities")
        if rank.shape != of.shape or np.isnan(rank).any():
            raise InputError("membership", field="arrival_rank", found=rank, expected=f"{len(of)} numbers")

    def __len__(self) -> int:
        return len(self.of_job)

    def take(self, jobs: NDArray[np.integer[Any]]) -> Membership:
        """Of some of the jobs (positions)."""
        return Membership(self.entities, self.of_job[jobs], self.arrival_rank[jobs])

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The same as the programs have it."""
        entities = self.entities
        return Hierarchy(entities.parent, entities.weights, entities.fifo, self.of_job, self.arrival_rank)


def arrival_ranks(elapsed_seconds: ArrayLike, labels: Sequence[Hashable]) -> Floats:
    """(N,) rank of each job: the longest in the cluster first; among equals by label, whatever their order."""
    by_label = np.empty(len(labels), dtype=np.intp)
    by_label[tie_order(labels)] = np.arange(len(labels))
    rank = np.empty(len(labels))
    rank[np.lexsort((by_label, -np.asarray(elapsed_seconds)))] = np.arange(len(labels))
    return rank


def _depth(entity: Entity, known: dict[str, Entity], source: str) -> int:
    """How many entities are above this one."""
    path = [entity.name]
    while entity.parent is not None:
        if entity.parent not in known:
            expected = f"the name of an entity{did_you_mean(entity.parent, known)}"
            raise InputError(source, field=f"parent of {entity.name!r}", found=entity.parent, expected=expected)
        if entity.parent in path:
            circle = " -> ".join([*path[path.index(entity.parent) :], entity.parent])
            raise InputError(source, field="parent", found=circle, expected="no entity above itself")
        entity = known[entity.parent]
        path.append(entity.name)
    return len(path) - 1


def _entity(row: dict[Any, Any], where: Callable[[str], dict[str, Any]], source: str) -> Entity:
    """From its fields; errors say `where` in `source`."""
    for name in row:
        if name not in _FIELDS:
            raise InputError(source, **where(str(name)), found=row[name], expected=one_of(name, _FIELDS))
    if "name" not in row:
        raise InputError(source, **where("name"), expected="the name of the entity")
    try:
        return Entity(**row)
    except InputError as error:
        raise InputError(source, **where(error.field or ""), found=error.found, expected=error.expected) from None


def _field_of_line(line: int) -> Callable[[str], dict[str, Any]]:
    return lambda field: {"line": line, "field": field}


def _path_in(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda field: {"field": f"{key}.{field}"}
