"""Who may use how many GPUs: nominal quotas, what is lent and borrowed, and the cohorts in which it is.

An entity e has a nominal quota q_ej of each accelerator type j. Of it l_ej may be lent, so that q_ej - l_ej is its own
under all circumstances. With y_ej the GPUs that it uses, three things hold::

    y_ej                                      <= q_ej + b_ej                  for every entity  (borrowing limit)
    sum_{e in k} max(y_ej - (q_ej - l_ej), 0) <= sum_{e in k} l_ej + r_kj     for every cohort k
    sum_e y_ej                                <= c_j                          for every type

r: what nobody has a quota of, where there is one cohort for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocator.protocol import ClusterState
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Positions
from throughputs.errors import did_you_mean


@dataclass(frozen=True, eq=False)
class Limits:
    """Quotas of E entities, the last of which is that of jobs without one, on M types.

    Attributes
    ----------
    weights : (E,) by which what is borrowed is shared.
    nominal, lent, borrowed : (E, M) GPUs: quota, most that is lent of it, most that is borrowed beyond it.
    cohort : (E,) number of each entity's cohort.
    pooled : (K, M) GPUs that the members of each cohort have in common: what they lend, and what nobody has.
    capacity : (M,) GPUs.
    """

    weights: Floats
    nominal: Ints
    lent: Ints
    borrowed: Floats
    cohort: Positions
    pooled: Ints
    capacity: Ints

    @classmethod
    def of(
        cls,
        state: ClusterState,
        quotas: Mapping[str, int] | None,
        lending: Mapping[str, int],
        borrowing: Mapping[str, int],
        cohorts: str,
    ) -> Limits:
        """From settings whose keys are ``ENTITY.TYPE``; `quotas` None: capacity in proportion to weights."""
        entities = None if state.membership is None else state.membership.entities
        names = () if entities is None else entities.names
        parent = np.append(np.empty(0, dtype=np.intp) if entities is None else entities.parent, -1)
        weights = np.append(np.empty(0) if entities is None else entities.weights, 1.0)
        types, capacity = state.cluster.accelerators, state.capacity
        if quotas is None:
            nominal = np.array([_apportioned(int(c), _parts(parent, weights)) for c in capacity]).T
        else:
            nominal = _table("quotas", quotas, names, types, np.zeros((len(weights), len(types)))).astype(np.int64)
        lent = np.minimum(_table("lending", lending, names, types, nominal.astype(np.float64)), nominal)
        most = _table("borrowing", borrowing, names, types, np.full(nominal.shape, np.inf))
        if cohorts == "all":
            cohort = np.zeros(len(weights), dtype=np.intp)
        else:
            cohort = parent + 1 if cohorts == "siblings" else np.arange(len(weights))
        pooled = np.zeros((int(cohort.max()) + 1, len(types)), dtype=np.int64)
        np.add.at(pooled, cohort, lent.astype(np.int64))
        if cohorts == "all":
            pooled[0] += np.maximum(capacity - nominal.sum(axis=0), 0)
        return cls(weights, nominal, lent.astype(np.int64), most, cohort, pooled, capacity)


class Usage:
    """GPUs in use (E, M), as jobs are let in one by one."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.gpus = np.zeros_like(limits.nominal)
        self._from_pool = np.zeros_like(limits.pooled)
        self._used = np.zeros_like(limits.capacity)

    def fits(self, entity: int, pool: int, gpus: int, within: Ints | None = None) -> bool:
        """Whether so many GPUs more are within all limits, and where they are told `within` (E, M) others."""
        limits, used = self.limits, int(self.gpus[entity, pool]) + gpus
        quota = int(limits.nominal[entity, pool])
        if self._used[pool] + gpus > limits.capacity[pool] or used > quota + limits.borrowed[entity, pool]:
            return False
        cohort = limits.cohort[entity]
        pooled = self._from_pool[cohort, pool] + self._beyond_own(entity, pool, gpus)
        return bool(pooled <= limits.pooled[cohort, pool] and (within is None or used <= within[entity, pool]))

    def take(self, entity: int, pool: int, gpus: int) -> None:
        """So many GPUs more are in use."""
        self._from_pool[self.limits.cohort[entity], pool] += self._beyond_own(entity, pool, gpus)
        self.gpus[entity, pool] += gpus
        self._used[pool] += gpus

    def borrowed_share(self, entity: int, pool: int, gpus: int, *, dominant: bool) -> float:
        """What the entity would have borrowed with so many GPUs more, as a part of the pool, over its weight.

        Of the type alone, or with `dominant` of the type of which that is the largest part.
        """
        limits = self.limits
        used = self.gpus[entity].copy()
        used[pool] += gpus
        beyond = np.maximum(used - limits.nominal[entity], 0)
        part = beyond / np.maximum(limits.pooled[limits.cohort[entity]], 1)
        return float(part.max() if dominant else part[pool]) / float(limits.weights[entity])

    def _beyond_own(self, entity: int, pool: int, gpus: int) -> int:
        """How many of `gpus` more the entity would take from the pool of its cohort."""
        own = int(self.limits.nominal[entity, pool] - self.limits.lent[entity, pool])
        used = int(self.gpus[entity, pool])
        return max(used + gpus - own, 0) - max(used - own, 0)


def _parts(parent: Positions, weights: Floats) -> Floats:
    """(E,) part of each entity by the weights on the way from the top; 0 where it has entities of its own.

    Jobs without an entity have a part where nobody else is, and only then.
    """
    parts = np.ones(len(weights))
    if len(weights) == 1:
        return parts
    parts[-1] = 0.0
    for e in range(len(weights) - 1):
        beside = parent[:-1] == parent[e]
        above = 1.0 if parent[e] < 0 else parts[parent[e]]
        parts[e] = above * weights[e] / weights[:-1][beside].sum()
    return np.where(np.isin(np.arange(len(parent)), parent[:-1]), 0.0, parts)


def _apportioned(gpus: int, parts: Floats) -> Ints:
    """(E,) whole GPUs in proportion to parts that sum to 1, by largest remainders; of equal ones the first."""
    exact = gpus * parts
    whole = np.floor(exact + 1e-9).astype(np.int64)
    left = gpus - int(whole.sum())
    whole[np.argsort(-(exact - whole), kind="stable")[:left]] += 1
    return whole


def _table(
    setting: str, given: Mapping[str, int], names: tuple[str, ...], types: tuple[str, ...], default: Floats
) -> Floats:
    """(E, M) figures of a setting, and the default where it says nothing."""
    table = default.copy()
    for key, value in given.items():
        entity, _, accelerator = key.rpartition(".")
        for found, known in ((entity, names), (accelerator, types)):
            if found not in known:
                expected = f"ENTITY.TYPE{did_you_mean(found, known)}: one of {', '.join(known) or 'no entities'}"
                raise InputError("policy quotas", field=setting, found=key, expected=expected)
        if value < 0:
            raise InputError("policy quotas", field=f"{setting}.{key}", found=value, expected="at least 0")
        table[names.index(entity), types.index(accelerator)] = value
    return table
