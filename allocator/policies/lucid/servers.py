"""Free GPUs server by server: a gang that fits into one server is not split, a larger one takes whole servers."""

from __future__ import annotations

from dataclasses import dataclass, field

Span = tuple[tuple[int, int], ...]
"""GPUs of one gang: pairs of server and number."""


@dataclass(eq=False)
class Servers:
    """Servers of one size, and how many of their GPUs are free.

    Attributes
    ----------
    per_server : GPUs of a server.
    free : free GPUs of each server.

    >>> servers = Servers.of(24, 8)
    >>> servers.take(3), servers.take(16), servers.take(6), servers.free
    (((0, 3),), ((1, 8), (2, 8)), None, [5, 0, 0])

    Source of the rule: Hu et al. (Lucid), ASPLOS 2023, public artifact.
    """

    per_server: int
    free: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, gpus: int, per_server: int) -> Servers:
        """Idle servers; what is left over makes a last, smaller one."""
        whole, rest = divmod(gpus, per_server)
        return cls(per_server, [per_server] * whole + ([rest] if rest else []))

    def take(self, gpus: int) -> Span | None:
        """GPUs for a gang, which are not free any more; None where there is no room for it.

        A gang of up to a server's GPUs goes where it leaves the fewest free. A larger one takes whole idle servers, and
        what is left of it goes to the emptiest of the others.
        """
        span = self._smallest(gpus) if gpus <= self.per_server else self._whole(gpus)
        for server, count in span or ():
            self.free[server] -= count
        return span

    def _smallest(self, gpus: int) -> Span | None:
        fitting = [(free, server) for server, free in enumerate(self.free) if free >= gpus]
        return ((min(fitting)[1], gpus),) if fitting else None

    def _whole(self, gpus: int) -> Span | None:
        count, rest = divmod(gpus, self.per_server)
        idle = [server for server, free in enumerate(self.free) if free == self.per_server]
        if len(idle) < count:
            return None
        span = tuple((server, self.per_server) for server in idle[:count])
        if not rest:
            return span
        others = [(-free, server) for server, free in enumerate(self.free) if server not in idle[:count]]
        if not others or -min(others)[0] < rest:
            return None
        return (*span, (min(others)[1], rest))

    def give(self, span: Span) -> None:
        """The GPUs of a gang are free again."""
        for server, count in span:
            self.free[server] += count

    @property
    def idle(self) -> list[int]:
        """Servers nobody is on."""
        return [server for server, free in enumerate(self.free) if free == self.per_server]

    def add(self) -> None:
        """One more idle server."""
        self.free.append(self.per_server)

    def remove(self) -> bool:
        """Take an idle server out of use; answers whether there was one."""
        idle = self.idle
        if idle:
            # Positions of the others stay what they are.
            self.free[idle[-1]] = 0
        return bool(idle)
