"""The cluster: accelerator types, how many GPUs of each, and how they sit in servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from throughputs import InputError
from throughputs.arrays import Ints, Positions, read_only

MOST_GPUS = 1_000_000
"""GPUs of a cluster, at most: each has an id, and the placement of jobs holds a few numbers for each."""

MOST_TYPES_NAMED = 4
"""Accelerator types that a title names."""

_MOST_DIGITS = 16

_MARKS = (",", ":")
"""What stands between types and GPUs in text."""


@dataclass(frozen=True)
class Cluster:
    """GPUs by accelerator type, in the order in which the types were given.

    Parameters
    ----------
    gpus : number of GPUs of each accelerator type.
    gpus_per_server : GPUs in one server of each type, 1 where not said. The last server of a type may be smaller.

    Raises
    ------
    InputError
        No type, a name of one with a comma or a colon, a number of GPUs that is not whole, more than `MOST_GPUS` in
        all, or servers of another type.

    >>> Cluster.parse("v100:4,k80:8").capacity
    array([4, 8])

    >>> Cluster({"v100": 4, "k80": 8}) == Cluster.parse("v100:4,k80:8")
    True
    >>> Cluster.parse("v100:4,k80:8").total_gpus
    12
    """

    gpus: Mapping[str, int]
    gpus_per_server: Mapping[str, int]

    def __init__(self, gpus: Mapping[str, int], gpus_per_server: Mapping[str, int] | None = None) -> None:
        object.__setattr__(self, "gpus", dict(gpus))
        servers = dict.fromkeys(gpus, 1) | dict(gpus_per_server or {})
        object.__setattr__(self, "gpus_per_server", servers)
        if not self.gpus:
            raise InputError("cluster", found="no accelerator type", expected="at least one, as in v100:4")
        for name, count in self.gpus.items():
            if not name or any(mark in str(name) for mark in _MARKS):
                raise InputError("cluster", found=name, expected="the name of a type without comma and colon")
            if not _is_whole(count) or count < 0:
                raise InputError("cluster", field=name, found=count, expected="a whole number of GPUs, at least 0")
        if sum(self.gpus.values()) > MOST_GPUS:
            name, count = max(self.gpus.items(), key=lambda item: item[1])
            raise InputError("cluster", field=name, found=count, expected=f"at most {MOST_GPUS:,} GPUs in all")
        for name, size in servers.items():
            if name not in self.gpus:
                raise InputError(
                    "cluster", field="gpus_per_server", found=name, expected=f"one of {', '.join(self.gpus)}"
                )
            if not _is_whole(size) or not 1 <= size <= MOST_GPUS:
                expected = f"a whole number of GPUs from 1 to {MOST_GPUS:,}"
                raise InputError("cluster", field=f"gpus_per_server of {name}", found=size, expected=expected)

    @classmethod
    def parse(cls, text: str, gpus_per_server: str | None = None) -> Cluster:
        """Cluster from text such as ``v100:36,p100:36,k80:36``; `gpus_per_server` in the same form."""
        return cls(
            _parse_counts(text, "cluster"),
            _parse_counts(gpus_per_server, "gpus_per_server") if gpus_per_server else None,
        )

    @classmethod
    def of(cls, cluster: Cluster | str | Mapping[str, int]) -> Cluster:
        """A cluster however it is given: as it is, as text like ``v100:4,k80:8``, or as GPUs by type.

        Raises
        ------
        InputError
            It is something else, or not a cluster.

        >>> Cluster.of({"v100": 4}) == Cluster.of("v100:4")
        True
        """
        given: object = cluster
        if isinstance(given, Cluster):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        if isinstance(given, Mapping):
            return cls(given)
        expected = "a Cluster, GPUs by type as in {'v100': 4}, or text as in 'v100:4,k80:8'"
        raise InputError("cluster", found=type(given).__name__, expected=expected)

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The M accelerator types."""
        return tuple(self.gpus)

    @cached_property
    def capacity(self) -> Ints:
        """(M,) GPUs of each type; like all arrays of a cluster not to be written into, as others read it, too."""
        return read_only(np.array(list(self.gpus.values()), dtype=np.int64))

    @cached_property
    def by_name(self) -> Positions:
        """(M,) positions of the accelerator types in the order of their names."""
        names = self.accelerators
        return read_only(np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.intp))

    @cached_property
    def first_gpu(self) -> Ints:
        """(M,) id of the first GPU of each type: GPUs are numbered from 0, type by type."""
        return read_only(np.concatenate([[0], np.cumsum(self.capacity)[:-1]]))

    @cached_property
    def servers(self) -> tuple[int, ...]:
        """The server of each GPU, both numbered from 0, type by type."""
        found: list[int] = []
        for name, gpus in self.gpus.items():
            first, size = (found[-1] + 1 if found else 0), int(self.gpus_per_server[name])
            found += [first + gpu // size for gpu in range(gpus)]
        return tuple(found)

    @cached_property
    def total_gpus(self) -> int:
        """All GPUs of the cluster."""
        return int(self.capacity.sum())

    @property
    def in_words(self) -> str:
        """The GPUs of each type, in a line that may be broken between types.

        >>> Cluster.parse("v100:4,k80:8").in_words
        'v100:4, k80:8'
        """
        return str(self).replace(",", ", ")

    @property
    def title(self) -> str:
        """The same for a title: where there are many types, how many.

        >>> Cluster.parse("vc1:40,vc2:8,vc3:16,vc4:8,vc5:2000").title
        '2,072 GPUs of 5 types'
        """
        types = len(self.accelerators)
        return self.in_words if types <= MOST_TYPES_NAMED else f"{self.total_gpus:,} GPUs of {types} types"

    def __str__(self) -> str:
        return ",".join(f"{name}:{count}" for name, count in self.gpus.items())


def cluster_texts(cluster: Cluster) -> tuple[str, str | None]:
    """A cluster as `Cluster.parse` takes it: GPUs, and GPUs per server where a server has several."""
    servers = cluster.gpus_per_server
    some = any(size > 1 for size in servers.values())
    return str(cluster), ",".join(f"{name}:{size}" for name, size in servers.items()) if some else None


def _parse_counts(text: str, source: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, colon, number = part.strip().partition(":")
        if not (name and colon and number.strip().isdecimal()):
            raise InputError(source, found=part, expected="TYPE:COUNT pairs, as in v100:36,p100:36,k80:36")
        if name in counts:
            raise InputError(source, field=name, found="the type twice", expected="each type once")
        if len(number.strip()) > _MOST_DIGITS:
            raise InputError(source, field=name, found=number, expected=f"at most {MOST_GPUS:,} GPUs in all")
        counts[name] = int(number)
    return counts


def _is_whole(count: Any) -> bool:
    """Whether it is a number without a fraction."""
    if isinstance(count, bool):
        return False
    return isinstance(count, Integral) or (isinstance(count, Real) and float(count).is_integer())
