"""Placement by local search: the best of several orders of the gangs. Source: Chronus, SoCC'21, public artifact."""

from __future__ import annotations

from allocator.mechanism.placement.gangs import Consolidated, Gang
from allocator.mechanism.placement.rules import Gpus


class LocalSearch(Consolidated):
    """Gangs keep their GPUs; new ones are placed as by `Consolidated`, larger first or smaller first.

    Of the two orders that one is taken under which gangs have the most reward, a GPU on its own server or servers
    counting 1 over the number of servers that its gang stands on; larger first where both have as much. The public code
    tries two more orders, by the least and the most that a gang can gain; these follow its size where, as there, all
    jobs are taken for the same model. What it calls the reward is speed by profile, which placement does not know.
    """

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        if len({size for _, _, size, _ in gangs}) < 2:
            return super().place(gangs)
        begin = self._free.copy(), self._with_free.copy(), self._held.copy()
        placed = super().place(gangs)
        best = self._reward(placed)
        if best == sum(len(gpus) for gpus in placed.values()):
            return placed
        end = self._free, self._with_free, self._held
        self._free, self._with_free, self._held = begin
        other = self._place_in_order(sorted(gangs, key=lambda gang: gang[2]))
        if self._reward(other) > best:
            return other
        self._free, self._with_free, self._held = end
        return placed

    def _reward(self, placed: dict[int, Gpus]) -> float:
        return sum(len(gpus) / self._servers(gpus) for gpus in placed.values())
