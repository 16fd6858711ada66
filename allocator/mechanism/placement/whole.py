"""Placement that waits for servers: a gang stands on as few servers as its size allows, or it does not start.

Source: Hu et al. (Helios), SC 2021, and Hu et al. (Lucid), ASPLOS 2023: "consolidated" placement of their simulators.
"""

from __future__ import annotations

from typing import Literal

from allocator.mechanism.placement.gangs import Consolidated, Gang, Gpus
from allocator.room import Held

Fit = Literal["best_fit", "first_fit"]


def _lowest(servers: int) -> int:
    """Of servers as bits the one with the lowest number, as a bit."""
    return servers & -servers


def servers_for(size: int, with_free: list[int], fit: Fit) -> list[tuple[int, int, int]] | None:
    """The servers that a gang gets, as (server as a bit, its free GPUs, GPUs of the gang); None where it finds no room.

    Parameters
    ----------
    size : GPUs of the gang.
    with_free : by number of free GPUs the servers that have so many, as bits; the last entry are those that idle.
    fit : "best_fit": what does not fill servers goes to the one with fewest free GPUs that has room, and beside whole
        servers to the one with most; "first_fit": to the first one with room.
    """
    per_server = len(with_free) - 1
    whole, rest = divmod(size, per_server)
    if not whole:
        server, free = _with_room(rest, with_free, fit)
        return [(server, free, rest)] if server else None
    idle = with_free[per_server]
    if idle.bit_count() < whole:
        return None
    taken = []
    for _ in range(whole):
        taken.append((_lowest(idle), per_server, per_server))
        idle &= idle - 1
    if rest:
        left = [*with_free[:-1], idle]
        if fit == "best_fit":
            free = max((free for free in range(per_server + 1) if left[free]), default=0)
            server = _lowest(left[free]) if free >= rest else 0
        else:
            server, free = _with_room(rest, left, fit)
        if not server:
            return None
        taken.append((server, free, rest))
    return taken


def _with_room(size: int, with_free: list[int], fit: Fit) -> tuple[int, int]:
    """A server, as a bit, with room for all of a gang, and its free GPUs; 0, 0: none has."""
    able = [(_lowest(with_free[free]), free) for free in range(size, len(with_free)) if with_free[free]]
    if not able:
        return 0, 0
    return able[0] if fit == "best_fit" else min(able)


class FreeServers:
    """What is free in a pool, server by server; a copy on which a policy may try (`allocator.room`)."""

    def __init__(self, with_free: list[int], first: int, fit: Fit) -> None:
        self._with_free = with_free.copy()
        self._first, self._per_server, self._fit = first, len(with_free) - 1, fit

    @property
    def count(self) -> int:
        """GPUs that are free."""
        return sum(free * servers.bit_count() for free, servers in enumerate(self._with_free))

    def take(self, gpus: float) -> bool:
        """Take GPUs for a gang as placement does; False where it finds no room."""
        with_free = self._with_free
        taken = servers_for(int(gpus), with_free, self._fit)
        if taken is None:
            return False
        for server, free, count in taken:
            self._with_free[free] ^= server
            self._with_free[free - count] ^= server
        return True

    def give_back(self, held: Held) -> None:
        """See FreeGpus."""
        servers = [(gpu - self._first) // self._per_server for gpu in held.gpus]
        for server in set(servers):
            free = next(free for free, some in enumerate(self._with_free) if some >> server & 1)
            self._with_free[free] ^= 1 << server
            self._with_free[free + servers.count(server)] ^= 1 << server


class WholeServers(Consolidated):
    """Gangs keep their GPUs; new ones, in the order of their rows, get the fewest servers that can hold them.

    Who finds no room is not to be placed (`room`). A gang that is resized where no server has room for it all is
    spread as by `Consolidated`: it runs already.
    """

    def __init__(self, first: int, capacity: int, per_server: int, fit: Fit) -> None:
        super().__init__(first, capacity, per_server)
        self._fit = fit

    def room(self) -> FreeServers:
        """What is free now."""
        return FreeServers(self._with_free, self._first, self._fit)

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        return self._place_in_order(gangs)

    def _take(self, size: int) -> Gpus:
        """Take `size` free GPUs on whole servers, else as they are."""
        servers = servers_for(size, self._with_free, self._fit) if size else []
        if servers is None:
            return super()._take(size)
        taken: list[int] = []
        for server, _, count in servers:
            taken += self._take_on(server.bit_length() - 1, count)
        return tuple(sorted(taken))
