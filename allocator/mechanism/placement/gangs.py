"""Placement, and that within one pool: in the order of the GPUs, or consolidated on servers (Gavel, OSDI'20, sec. 5).

Sets of GPUs are bit masks: Python integers in which bit i is the i-th GPU of the pool. Union, difference and the lowest
free GPU then cost about the same for any number of GPUs.

Rules of placement go by names. Those of other packages are entry points in the group ``allocator.placements``, whose
value is a subclass of `Consolidated`, of which every pool has one, or one of `Places` that is made of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from allocator.protocol.assignment import Assignment
from throughputs.entry_points import entries_of

ENTRY_POINT_GROUP: Final = "allocator.placements"

OURS: Final = ("in_order", "consolidated", "buddy", "best_fit", "first_fit")

Gpus = tuple[int, ...]


class Places(ABC):
    """Which GPUs the rows of one assignment after the other get; remembers who has which."""

    @abstractmethod
    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """GPU ids, ascending, for every row of `assignment`; two jobs that share have the same tuple."""

    @abstractmethod
    def gpus_of(self, job: int) -> Gpus:
        """GPU ids, ascending, of a job of the last assignment; KeyError for others."""

    @abstractmethod
    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """The rows `running` hold these `gpus` (ids, ascending) already; nobody else holds any."""

    def leave(self, jobs: Sequence[int]) -> Assignment | None:  # noqa: ARG002
        """Jobs give back their GPUs before the next assignment comes; the rows of the others.

        None: they have them up to then.
        """
        return None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the rows of the last assignment and their GPUs."""
        return {}

    def restore(self, running: Assignment, gpus: Sequence[Gpus], state: dict[str, Any]) -> None:  # noqa: ARG002
        """Go on from the `running` rows, their `gpus` and the `state`."""
        self.adopt(running, gpus)


def rule_names() -> tuple[str, ...]:
    """All rules, and "off" for none."""
    return ("off", *OURS, *entries_of(ENTRY_POINT_GROUP))


def rule_of_others(name: str) -> Any:
    """The class of a rule that is not ours; None for ours."""
    return None if name in OURS else entries_of(ENTRY_POINT_GROUP)[name].load()


# What needs GPUs: its row in the assignment, its job (of two that share: the lower id), its number of GPUs, and whether
# it grows: the job then holds some already, fewer than it needs now.
Gang = tuple[int, int, int, bool]


class PoolRule(Protocol):
    """Which GPUs of one pool are held by whom, and which ones a new gang gets. Two jobs that share are one gang.

    Attributes
    ----------
    resizes_anew : whether a job whose number of GPUs changes keeps none of those that it has.
    """

    resizes_anew: bool

    def release(self, jobs: list[int]) -> None:
        """The gangs of `jobs` give back all of their GPUs."""

    def hold(self, job: int, gpus: Gpus) -> None:
        """The gang of `job` holds `gpus`, which are free."""

    def subset(self, gpus: Gpus, size: int) -> Gpus:
        """The `size` of its `gpus` that a shrinking gang keeps."""

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """GPUs by job, of the gangs (given in the order of their rows) and of those that have to move for them.

        There are enough free GPUs for all of them.
        """


def positions(mask: int) -> list[int]:
    """The bits that are set, ascending."""
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found


def mask_of(gpus: Gpus, first: int) -> int:
    """Ids of GPUs as bits; `first` is bit 0."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << (gpu - first)
    return mask


def lowest(mask: int, count: int) -> int:
    """The lowest `count` of the bits that are set."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


class FirstFit:
    """Gangs take free GPUs in the order of their ids, larger ones first; among equal ones, in the order of their rows.

    With `row_of`, the row of a job that holds GPUs, a gang may take GPUs from smaller ones, which then move. Without,
    all gangs keep what they have; one that grows gets more, and one that shrinks keeps the first ones.
    """

    def __init__(self, first: int, capacity: int, row_of: Callable[[int], int] | None) -> None:
        self._first = first
        self._row_of = row_of
        self.resizes_anew = row_of is not None
        self._all = (1 << capacity) - 1
        self._held: dict[int, Gpus] = {}
        self._by_size: dict[int, int] = {}
        self._owner = [-1] * capacity

    def release(self, jobs: list[int]) -> None:
        """See PoolRule."""
        held, by_size, first = self._held, self._by_size, self._first
        for job in jobs:
            gpus = held.pop(job)
            by_size[len(gpus)] ^= 1 << gpus[0] - first if len(gpus) == 1 else mask_of(gpus, first)

    def hold(self, job: int, gpus: Gpus) -> None:
        """See PoolRule."""
        self._held[job] = gpus
        self._by_size[len(gpus)] = self._by_size.get(len(gpus), 0) | mask_of(gpus, self._first)
        for gpu in gpus:
            self._owner[gpu - self._first] = job

    def subset(self, gpus: Gpus, size: int) -> Gpus:
        """See PoolRule."""
        return gpus[:size]

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        placed: dict[int, Gpus] = {}
        waiting: dict[int, list[Gang]] = {}
        for gang in gangs:
            waiting.setdefault(gang[2], []).append(gang)
        while waiting:
            size = max(waiting)
            for job in self._place_equal(size, waiting.pop(size), placed):
                assert self._row_of is not None
                smaller = len(self._held[job])
                alike = waiting.setdefault(smaller, [])
                alike.append((self._row_of(job), job, smaller, False))
                alike.sort()
                self.release([job])
        return placed

    def _place_equal(self, size: int, gangs: list[Gang], placed: dict[int, Gpus]) -> set[int]:
        """Place gangs of one size; answers the jobs of smaller gangs that lose GPUs to them."""
        kept = smaller = 0
        for other, mask in self._by_size.items():
            if other >= size or self._row_of is None:
                kept |= mask
            else:
                smaller |= mask
        available = rest = self._all ^ kept
        first, held, new = self._first, self._held, []
        for _, job, _, grows in gangs:
            gpus = list(held[job]) if grows else []
            if grows:
                self.release([job])
            for _ in range(size - len(gpus)):
                bit = rest & -rest
                rest ^= bit
                gpus.append(first + bit.bit_length() - 1)
            new.append(tuple(sorted(gpus) if grows else gpus))
        losers = {self._owner[at] for at in positions((available ^ rest) & smaller)}
        added, owner = 0, self._owner
        for (_, job, _, _), ids in zip(gangs, new, strict=True):
            placed[job] = held[job] = ids
            for gpu in ids:
                owner[gpu - first] = job
                added |= 1 << gpu - first
        self._by_size[size] = self._by_size.get(size, 0) | added
        return losers


class Consolidated:
    """Gangs keep their GPUs; new ones, larger ones first, get as few servers as possible.

    A gang goes to the server with the fewest free GPUs that has room for it; one for which no server has room takes
    all that is free on the server with most free GPUs, and so on with what is left of it. The lowest number breaks
    ties, of servers and of GPUs.

    A shrinking gang keeps the GPUs on the servers where it has most. A growing gang keeps its GPUs and gets others,
    first on the servers where it is; if it would stand on fewer servers by giving up its GPUs, it gives them up.
    """

    resizes_anew = False
    for_single_gpus = False
    """Whether a rule of another package is for servers with one GPU too, where it hardly matters who stands where."""

    def __init__(self, first: int, capacity: int, per_server: int) -> None:
        self._first = first
        self._per_server = per_server
        self._held: dict[int, Gpus] = {}
        # The free GPUs of each server, as bits within the server, and by number of free GPUs the servers that have it.
        self._free = [0] * -(-capacity // per_server)
        self._with_free = [0] * (per_server + 1)
        self._with_free[0] = (1 << len(self._free)) - 1
        self._give_back(tuple(range(first, first + capacity)))

    def release(self, jobs: list[int]) -> None:
        """See PoolRule."""
        for job in jobs:
            self._give_back(self._held.pop(job))

    def hold(self, job: int, gpus: Gpus) -> None:
        """See PoolRule."""
        self._held[job] = gpus
        for server, bits in self._by_server(gpus).items():
            self._set_free(server, self._free[server] & ~bits)

    def subset(self, gpus: Gpus, size: int) -> Gpus:
        """See PoolRule."""
        kept: list[int] = []
        parts = self._by_server(gpus)
        for server in sorted(parts, key=lambda s: (-parts[s].bit_count(), s)):
            part = parts[server]
            kept += self._ids(server, lowest(part, min(size - len(kept), part.bit_count())))
        return tuple(sorted(kept))

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        return self._place_in_order(sorted(gangs, key=lambda gang: -gang[2]))

    def _place_in_order(self, gangs: list[Gang]) -> dict[int, Gpus]:
        placed = {}
        for _, job, size, grows in gangs:
            placed[job] = self._held[job] = self._grow(self._held[job], size) if grows else self._take(size)
        return placed

    def _grow(self, kept: Gpus, size: int) -> Gpus:
        """Of the two ways to give a gang that has `kept` its `size` GPUs, that on fewer servers; equal: keep."""
        keeping = self._add(kept, size - len(kept))
        spread = self._servers(keeping)
        if spread == -(-size // self._per_server):
            return keeping
        self._give_back(keeping)
        anew = self._take(size)
        if self._servers(anew) < spread:
            return anew
        self._give_back(anew)
        for server, bits in self._by_server(keeping).items():
            self._set_free(server, self._free[server] & ~bits)
        return keeping

    def _add(self, kept: Gpus, more: int) -> Gpus:
        """The GPUs `kept` and `more` free ones, first those on the same servers, most free ones first."""
        added: list[int] = []
        for server in sorted(self._by_server(kept), key=lambda s: (-self._free[s].bit_count(), s)):
            added += self._take_on(server, min(more - len(added), self._free[server].bit_count()))
        return tuple(sorted((*kept, *added, *self._take(more - len(added)))))

    def _take(self, size: int) -> Gpus:
        """Take `size` free GPUs: best fit on one server, else from the emptiest servers."""
        taken: list[int] = []
        while len(taken) < size:
            need = size - len(taken)
            count = next((c for c in range(need, self._per_server + 1) if self._with_free[c]), 0)
            if not count:
                need = count = max(c for c, servers in enumerate(self._with_free) if servers)
            servers = self._with_free[count]
            taken += self._take_on((servers & -servers).bit_length() - 1, need)
        return tuple(sorted(taken))

    def _take_on(self, server: int, count: int) -> list[int]:
        free = self._free[server]
        taken = lowest(free, count)
        self._set_free(server, free ^ taken)
        return self._ids(server, taken)

    def _give_back(self, gpus: Gpus) -> None:
        if len(gpus) == 1:
            server, at = divmod(gpus[0] - self._first, self._per_server)
            self._set_free(server, self._free[server] | 1 << at)
            return
        for server, bits in self._by_server(gpus).items():
            self._set_free(server, self._free[server] | bits)

    def _set_free(self, server: int, free: int) -> None:
        self._with_free[self._free[server].bit_count()] ^= 1 << server
        self._with_free[free.bit_count()] ^= 1 << server
        self._free[server] = free

    def _by_server(self, gpus: Gpus) -> dict[int, int]:
        """By server the bits of its GPUs among `gpus`."""
        if not gpus:
            return {}
        per, first, size = self._per_server, gpus[0] - self._first, len(gpus)
        server, at = divmod(first, per)
        mask = (1 << size) - 1 if gpus[-1] - gpus[0] == size - 1 else mask_of(gpus, gpus[0])
        mask <<= at
        parts: dict[int, int] = {}
        while mask:
            if bits := mask & (1 << per) - 1:
                parts[server] = bits
            mask, server = mask >> per, server + 1
        return parts

    def _servers(self, gpus: Gpus) -> int:
        return len(self._by_server(gpus))

    def _ids(self, server: int, bits: int) -> list[int]:
        start = self._first + server * self._per_server
        return [start + at for at in positions(bits)]
