"""Puts a throughput table together figure by figure, in whatever order a file gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from throughputs.tables.table import Key

Figures: TypeAlias = "tuple[list[Key], list[str], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]"
"""Keys, accelerator types, isolated throughputs, pairs and their throughputs, shaped as in `ThroughputTable`."""


class TableBuilder:
    """Collects figures; the `add` methods answer with what is wrong with one, in words, or None."""

    def __init__(self) -> None:
        self._keys: dict[Key, int] = {}
        self._accelerators: dict[str, int] = {}
        self._isolated: dict[tuple[int, int], float] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._colocated: dict[tuple[int, int], tuple[float, float]] = {}
        self._ordered: set[tuple[int, int, int]] = set()

    def accelerator(self, name: str) -> int:
        """Position of the accelerator type, new or known."""
        return self._accelerators.setdefault(name, len(self._accelerators))

    def key(self, key: Key) -> int:
        """Position of the key, new or known."""
        return self._keys.setdefault(key, len(self._keys))

    def add_isolated(self, accelerator: str, key: Key, figure: float) -> str | None:
        """Throughput of a job alone, steps/s."""
        entry = (self.key(key), self.accelerator(accelerator))
        if entry in self._isolated:
            return f"one figure for {key} on {accelerator!r}, there is {self._isolated[entry]} already"
        self._isolated[entry] = figure
        return None

    def add_pair(self, accelerator: str, key: Key, other: Key, figures: tuple[float, float]) -> str | None:
        """Throughput of `key` and of `other` on shared GPUs, steps/s; both orders may come if they agree."""
        keys, m = (self.key(key), self.key(other)), self.accelerator(accelerator)
        if (*keys, m) in self._ordered:
            return f"one entry for {key} beside {other} on {accelerator!r}"
        self._ordered.add((*keys, m))
        if keys not in self._pairs and keys[::-1] in self._pairs:
            keys, figures = keys[::-1], figures[::-1]
        row = self._pairs.setdefault(keys, len(self._pairs))
        known = self._colocated.setdefault((row, m), figures)
        if known != figures:
            return f"the figures given for {other} beside {key}, {known[::-1]}"
        return None

    def figures(self) -> Figures:
        """All that was added, as `ThroughputTable` takes it; nan where nothing was."""
        isolated = np.full((len(self._keys), len(self._accelerators)), np.nan)
        colocated = np.full((len(self._pairs), len(self._accelerators), 2), np.nan)
        for (k, m), figure in self._isolated.items():
            isolated[k, m] = figure
        for (p, m), figures in self._colocated.items():
            colocated[p, m] = figures
        pairs = np.array(list(self._pairs), dtype=np.int64).reshape(-1, 2)
        return list(self._keys), list(self._accelerators), isolated, pairs, colocated
