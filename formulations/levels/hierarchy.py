"""How a common water level becomes the throughput of every job: flat, or through a hierarchy of entities.

Time is a currency. A job that has been given time tau has throughput ``unit * tau`` until it runs on its fastest type
all the time and is full. Entities hand the time they are given on to their members:

- ``fairness``: members that are not full get time in proportion to their weights;
- ``fifo``: the first member that is not full gets all of it.

At the top every entity, and every job outside entities, is given ``weight * t`` at level t. So the top is an entity
that serves in proportion as well, and of all of them the same is true: there is a *progress* at which member i, and
each of the n_i jobs that it stands for, has

    clip(rate_i (progress - start_i), 0, room_i)        room_i: the time that it can be given until it is full

with weights as rates and no start where time is handed on in proportion, and where members are served in turn with
``rate_i = 1 / n_i`` and the time of those before as start. An entity's room is the sum of its members', and what each
job has at level t is a piecewise linear, increasing function of t in closed form.

Source: Narayanan et al., OSDI 2020, section 4.3 (hierarchical policies).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
        E, N = np.size(self.parent), np.size(self.of_job)
        numbers: dict[str, tuple[Any, int, str]] = {
            "parent": (np.intp, E, "numbers"),
            "weights": (float, E, "numbers above 0"),
            "fifo": (bool, E, "numbers"),
            "of_job": (np.intp, N, "numbers"),
            "rank": (float, N, "numbers"),
        }
        for name, (kind, length, which) in numbers.items():
            vars(self)[name] = figures("hierarchy", name, getattr(self, name), (length,), which).astype(kind)
        for name, before, expected in (("parent", np.arange(E), "parents listed first"), ("of_job", E, "its entities")):
            values = getattr(self, name)
            if not ((values >= TOP) & (values < before)).all():
                raise InputError("hierarchy", field=name, found=values.tolist(), expected=expected)

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
        ordered = np.append(self.fifo, False)[self.of_job]
        return np.column_stack([self.of_job, np.where(ordered, self.rank, 0.0)])

    @cached_property
    def top(self) -> Positions:
        """(N,) member of the top that each job belongs to: an entity, or E and its own number for itself."""
        entities, jobs = np.arange(len(self.parent)), np.arange(len(self.of_job))
        for entity in np.flatnonzero(self.parent != TOP):
            entities[entity] = entities[self.parent[entity]]
        return np.where(self.of_job == TOP, len(entities) + jobs, np.append(entities, TOP)[self.of_job])

    @cached_property
    def members(self) -> tuple[tuple[int, Positions, Positions], ...]:
        """The top, and each entity in order, with its jobs, by rank, and its sub-entities."""
        order = np.argsort(self.rank, kind="stable")
        return tuple(
            (entity, order[self.of_job[order] == entity], np.flatnonzero(self.parent == entity))
            for entity in range(TOP, len(self.parent))
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
        self.hierarchy, self.room = hierarchy, room
        # jobs, then entities, as members
        N, E = len(room), len(hierarchy.parent)
        rooms = np.append(room, np.zeros(E))
        all_weights, all_counts = np.append(weights, hierarchy.weights), np.append(counts, np.ones(E))
        self._shared: list[_Shared] = []
        for entity, jobs, entities in reversed(hierarchy.members):
            member = np.append(jobs, N + entities)
            fifo = entity != TOP and bool(hierarchy.fifo[entity])
            self._shared.append(_Shared(member, rooms[member], all_weights[member], all_counts[member], fifo=fifo))
            if entity != TOP:
                rooms[N + entity] = dot(all_counts[member], rooms[member])
        self._shared.reverse()
        self.full_level = self._shared[0].full

    def times(self, level: float) -> tuple[Floats, Floats]:
        """(N,) time of each job at a level, and its growth."""
        N = len(self.room)
        given, growth = np.zeros((2, N + len(self.hierarchy.parent)))
        top, *entities = self._shared
        given[top.member], growth[top.member] = top.at(level)
        for entity, shared in enumerate(entities, start=N):
            given[shared.member], growth[shared.member] = shared.hand_on(given[entity], growth[entity])
        return given[:N], growth[:N]

    def levels(self, given: Floats) -> Floats:
        """(N,) level at which each job is given that much time; the level at which all are full for full ones."""
        N = len(self.room)
        # progress of its own entity at which each member has what its jobs have, from the jobs upwards
        levels = np.empty(N)
        for shared in self._shared:
            jobs = shared.member < N
            levels[shared.member[jobs]] = shared.reached(given[shared.member[jobs]], jobs)
        above = self.hierarchy.of_job.copy()
        for entity in reversed(range(len(self.hierarchy.parent))):
            inside = above == entity
            parent = int(self.hierarchy.parent[entity])
            time = self._shared[entity + 1].spent(levels[inside])
            levels[inside] = self._shared[parent + 1].reached(time, self._shared[parent + 1].member == N + entity)
            above[inside] = parent
        return np.where(given >= self.room, self.full_level, np.minimum(levels, self.full_level))


class _Shared:
    """How one entity's time is handed on to its members (m,), by their `room`, `weights` and the jobs they count."""

    def __init__(self, member: Positions, room: Floats, weights: Floats, counts: Floats, *, fifo: bool) -> None:
        self.member, self.room, self.counts, self.fifo = member, room, counts, fifo
        self.rates = 1.0 / counts if fifo else weights
        self.starts = np.append(0.0, np.cumsum(room * counts))[:-1] if fifo else np.zeros(len(room))
        self.ends = self.starts + room / self.rates
        self.full = float(self.ends.max(initial=0.0))

    @cached_property
    def _path(self) -> tuple[Floats, Floats]:
        """Progress at which members become full, in order, and the entity's time then."""
        order = np.argsort(self.ends, kind="stable")
        progress = np.append(0.0, self.ends[order])
        if self.fifo:
            return progress, progress
        rising = np.append((self.rates * self.counts)[order][::-1].cumsum()[::-1], 0.0)
        return progress, np.append(0.0, np.cumsum(np.diff(progress) * rising[:-1]))

    def at(self, progress: float) -> tuple[Floats, Floats]:
        """(m,) time of each member at a progress, and its growth with that."""
        given = np.clip(self.rates * (progress - self.starts), 0.0, self.room)
        rising = (given < self.room) & (self.starts <= progress)
        return given, np.where(rising, self.rates, 0.0)

    def hand_on(self, time: float, growth: float) -> tuple[Floats, Floats]:
        """(m,) time of each member, and its growth, at a time of the entity and its growth."""
        progress, spent = self._path
        given, rates = self.at(float(np.interp(time, spent, progress)))
        together = dot(rates, self.counts)
        # at the very end all are full
        return given, rates * (growth / together if together > 0 and time < spent[-1] else 0.0)

    def spent(self, progress: Floats) -> Floats:
        """Time of the entity at each progress."""
        return np.interp(progress, *self._path)

    def reached(self, given: Floats, which: Flags) -> Floats:
        """Progress at which the members that are meant are given this much."""
        return np.asarray(self.starts[which] + given / self.rates[which])
