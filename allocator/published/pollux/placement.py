"""Placement on the emptiest servers. Source: Pollux (Qiao et al., OSDI 2021, artifact), of Optimus and Tiresias."""

from __future__ import annotations

from allocator.mechanism.placement.gangs import Consolidated, Gang
from allocator.mechanism.placement.rules import Gpus


class MostFree(Consolidated):
    """Gangs keep their GPUs; new ones go to the server with most free GPUs, in the order of their rows.

    A gang that needs more than are free there takes all of them, and the rest of it goes to the next such server. A job
    whose number of GPUs changes starts anew.
    """

    resizes_anew = True
    for_single_gpus = True

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        return self._place_in_order(gangs)

    def _take(self, size: int) -> Gpus:
        taken: list[int] = []
        while len(taken) < size:
            count = max(c for c, servers in enumerate(self._with_free) if servers)
            servers = self._with_free[count]
            taken += self._take_on((servers & -servers).bit_length() - 1, min(count, size - len(taken)))
        return tuple(sorted(taken))
