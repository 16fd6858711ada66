"""How a common water level becomes the throughput of every job: flat, or through a hierarchy of entities.

Time is a currency. A job that has been given time tau has throughput ``unit * tau`` until it runs on its fastest type
all the time and is full. Entities hand the time they are given on to their members:

- ``fairness``: members that are not full get time in proportion to their weights;
- ``fifo``: the first member that is not full gets all of it.

At the top every entity, and every job outside entities, is given ``weight * t`` at level t. So a member is full once
its members are, an entity can be given the sum of what its members can, and what each job has at level t is a piecewise
linear, increasing function of t in closed form.

Source: Narayanan et al., OSDI 2020, section 4.3 (hierarchical policies).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.arguments import figures
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import dot

TOP = -1
"""Where a job or an entity is that belongs to no entity."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A forest of E entities over N jobs.

    Parameters
    ----------
    parent : (E,) entity that each entity belongs to, or -1; parents come before their members.
    weights : (E,) positive.
    fifo : (E,) whether members are served one after the other; otherwise in proportion to their weights.
    of_job : (N,) entity of each job, or -1.
    rank : (N,) order of the jobs in entities that serve one after the other; sub-entities come after jobs, in the
        order of their numbers.

    Raises
    ------
    InputError
        Shapes that do not fit, a parent that does not come first, or a weight that is not positive.
    """

    parent: Positions
    weights: Floats
    fifo: Flags
    of_job: Positions
    rank: Floats

    def __post_init__(self) -> None:
        for name, kind in (
            ("parent", np.intp),
            ("weights", float),
            ("fifo", bool),
            ("of_job", np.intp),
            ("rank", float),
        ):
            values = getattr(self, name)
            if not isinstance(values, np.ndarray):
                values = figures("hierarchy", name, values, (None,), "numbers").astype(kind)
                object.__setattr__(self, name, values)
        E = len(self.parent)
        if len(self.weights) != E or len(self.fifo) != E or len(self.rank) != len(self.of_job):
            raise InputError("hierarchy", found="arrays of different lengths", expected="one figure per entity and job")
        if not ((self.parent >= TOP) & (self.parent < np.arange(E))).all():
            raise InputError("hierarchy", field="parent", found=self.parent.tolist(), expected="parents listed first")
        if not ((self.of_job >= TOP) & (self.of_job < E)).all():
            raise InputError("hierarchy", field="of_job", found=self.of_job.tolist(), expected=f"entities below {E}")
        if not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
            raise InputError("hierarchy", field="weights", found=self.weights.tolist(), expected="positive weights")

    @classmethod
    def flat(cls, n_jobs: int) -> Hierarchy:
        """No entities."""
        none, jobs = np.zeros(0, dtype=np.intp), np.full(n_jobs, TOP, dtype=np.intp)
        return cls(none, np.zeros(0), np.zeros(0, dtype=bool), jobs, np.zeros(n_jobs))

    def take(self, jobs: Positions) -> Hierarchy:
        """The same entities with some of their jobs only."""
        return Hierarchy(self.parent, self.weights, self.fifo, self.of_job[jobs], self.rank[jobs])

    def key(self) -> Floats:
        """(N, 2) what jobs must share to be interchangeable: the entity, and the place in it where that matters."""
        inside = self.of_job != TOP
        ordered = np.zeros(len(self.of_job), dtype=bool)
        ordered[inside] = self.fifo[self.of_job[inside]]
        return np.column_stack([self.of_job, np.where(ordered, self.rank, 0.0)])

    @cached_property
    def top(self) -> Positions:
        """(N,) member of the top that each job belongs to: an entity, or E and its own number for itself."""
        entities, jobs = np.arange(len(self.parent)), np.arange(len(self.of_job))
        for entity in np.flatnonzero(self.parent != TOP):
            entities[entity] = entities[self.parent[entity]]
        return np.where(self.of_job == TOP, len(entities) + jobs, np.append(entities, TOP)[self.of_job])

    @cached_property
    def members(self) -> tuple[tuple[Positions, Positions], ...]:
        """For each entity its jobs, by rank, and its sub-entities."""
        order = np.argsort(self.rank, kind="stable")
        return tuple(
            (order[self.of_job[order] == entity], np.flatnonzero(self.parent == entity))
            for entity in range(len(self.parent))
        )


class Filling:
    """Time of every job as a function of the level, for jobs that can still be given `room` (N,).

    Parameters
    ----------
    hierarchy : who hands time on to whom.
    weights : (N,) of the jobs within their entity, or at the top.
    counts : (N,) identical jobs that each row stands for.
    room : (N,) time that each job can be given before it is full.
    """

    def __init__(self, hierarchy: Hierarchy, weights: Floats, counts: Floats, room: Floats) -> None:
        self.hierarchy, self.weights, self.counts, self.room = hierarchy, weights, counts, room
        E = len(hierarchy.parent)
        self.entity_room = np.zeros(E)
        for entity in reversed(range(E)):
            jobs, entities = hierarchy.members[entity]
            self.entity_room[entity] = dot(counts[jobs], room[jobs]) + float(self.entity_room[entities].sum())
        self.loose = hierarchy.of_job == TOP
        tops = np.flatnonzero(hierarchy.parent == TOP)
        ends = [room[self.loose] / weights[self.loose], self.entity_room[tops] / hierarchy.weights[tops]]
        self.full_level = float(np.concatenate(ends).max(initial=0.0))

    def times(self, level: float) -> tuple[Floats, Floats]:
        """(N,) time of each job at a level, and its growth."""
        hierarchy, weights = self.hierarchy, self.weights
        given, growth = np.zeros(len(weights)), np.zeros(len(weights))
        given[self.loose] = np.minimum(weights[self.loose] * level, self.room[self.loose])
        growth[self.loose] = np.where(given < self.room, weights, 0.0)[self.loose]
        E = len(hierarchy.parent)
        of_entity, entity_growth = np.zeros(E), np.zeros(E)
        tops = hierarchy.parent == TOP
        of_entity[tops] = np.minimum(hierarchy.weights[tops] * level, self.entity_room[tops])
        entity_growth[tops] = np.where(of_entity < self.entity_room, hierarchy.weights, 0.0)[tops]
        for entity, shared in self._shared():
            time, rate = shared.hand_on(of_entity[entity], entity_growth[entity])
            jobs, entities = hierarchy.members[entity]
            given[jobs], growth[jobs] = time[: len(jobs)], rate[: len(jobs)]
            of_entity[entities], entity_growth[entities] = time[len(jobs) :], rate[len(jobs) :]
        return given, growth

    def levels(self, given: Floats) -> Floats:
        """(N,) level at which each job is given that much time; the level at which all are full for full ones."""
        hierarchy = self.hierarchy
        if not len(hierarchy.parent):
            levels = given / self.weights
        else:
            levels = given.copy()
            levels[self.loose] /= self.weights[self.loose]
            shares = dict(self._shared())
            for entity in range(len(hierarchy.parent)):
                jobs, _ = hierarchy.members[entity]
                inside, at = given[jobs], entity
                place = np.arange(len(jobs))
                while True:
                    inside = shares[at].needed(inside, place)
                    above = int(hierarchy.parent[at])
                    if above == TOP:
                        break
                    place = np.full(len(jobs), shares[above].place_of(at))
                    at = above
                levels[jobs] = inside / hierarchy.weights[at]
        return np.where(given >= self.room, self.full_level, np.minimum(levels, self.full_level))

    def _shared(self) -> Iterator[tuple[int, _Shared]]:
        for entity, (jobs, entities) in enumerate(self.hierarchy.members):
            room = np.concatenate([self.room[jobs], self.entity_room[entities]])
            weights = np.concatenate([self.weights[jobs], self.hierarchy.weights[entities]])
            counts = np.concatenate([self.counts[jobs], np.ones(len(entities))])
            kind = _OneByOne if self.hierarchy.fifo[entity] else _InProportion
            yield entity, kind(room, weights, counts, entities, len(jobs))


class _Shared(ABC):
    """How one entity's time is handed on to its members (m,): jobs first, then entities."""

    def __init__(self, room: Floats, weights: Floats, counts: Floats, entities: Positions, n_jobs: int) -> None:
        self.room, self.weights, self.counts, self.entities, self.n_jobs = room, weights, counts, entities, n_jobs

    def place_of(self, entity: int) -> int:
        """Where a member entity stands among the members."""
        return self.n_jobs + int(np.flatnonzero(self.entities == entity)[0])

    @abstractmethod
    def hand_on(self, time: float, growth: float) -> tuple[Floats, Floats]:
        """(m,) time of each member, and its growth."""

    @abstractmethod
    def needed(self, given: Floats, place: Positions) -> Floats:
        """Time of the entity at which its members at `place` are given this much."""


class _InProportion(_Shared):
    """All members that are not full rise together: member i has ``w_i * progress``."""

    @cached_property
    def _path(self) -> tuple[Floats, Floats]:
        """Progress at which members become full, in order, and the entity's time then."""
        ends = self.room / self.weights
        order = np.argsort(ends, kind="stable")
        progress = np.append(0.0, ends[order])
        rising = np.append((self.weights * self.counts)[order][::-1].cumsum()[::-1], 0.0)
        return progress, np.append(0.0, np.cumsum(np.diff(progress) * rising[:-1]))

    def hand_on(self, time: float, growth: float) -> tuple[Floats, Floats]:
        progress, spent = self._path
        at = float(np.interp(time, spent, progress)) if time < spent[-1] else float(progress[-1])
        given = np.minimum(self.weights * at, self.room)
        # at the very end all are full
        rising = (given < self.room) & (time < spent[-1])
        together = float((self.weights * self.counts)[rising].sum())
        rates = np.where(rising, self.weights * (growth / together if together > 0 else 0.0), 0.0)
        return given, rates

    def needed(self, given: Floats, place: Positions) -> Floats:
        progress, spent = self._path
        return np.interp(given / self.weights[place], progress, spent)


class _OneByOne(_Shared):
    """Members are filled in their order."""

    @cached_property
    def _starts(self) -> Floats:
        return np.append(0.0, np.cumsum(self.room * self.counts))[:-1]

    def hand_on(self, time: float, growth: float) -> tuple[Floats, Floats]:
        given = np.clip((time - self._starts) / self.counts, 0.0, self.room)
        current = (time >= self._starts) & (given < self.room)
        rates = np.zeros(len(self.room))
        if current.any():
            first = int(np.flatnonzero(current)[0])
            rates[first] = growth / self.counts[first]
        return given, rates

    def needed(self, given: Floats, place: Positions) -> Floats:
        return np.asarray(self._starts[place] + np.maximum(given, 0.0) * self.counts[place])
