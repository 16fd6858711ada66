"""Ladders of batch sizes: which sizes a job may train with, how fast it is with each, and which one holds when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughputs.tables.table import ThroughputTable
from throughputs.training.rules import NEVER, AdaptationRules, CriticalWindow, ModelRules, View, with_batch_size


@dataclass(frozen=True, eq=False)
class Ladder:
    """The batch sizes of one kind of job: of one type, gang size and mode.

    A ladder begins with the initial batch size, rung 0. That of an accordion job has the largest one above it, that
    of a gns job a rung for each doubling. A ladder ends below the first batch size without a throughput.

    Attributes
    ----------
    batch_size : L sizes, samples.
    rates : (L, M) steps/s on M accelerator types, 0 where it cannot run.
    samples_per_epoch : size of the data set.
    doubles : a gns job.
    switches : L - 1 epochs from which a gns job is above each rung.
    windows : the critical windows of an accordion job.
    """

    batch_size: Sequence[int]
    rates: NDArray[np.float64]
    samples_per_epoch: int
    doubles: bool
    switches: Sequence[int]
    windows: Sequence[CriticalWindow]

    @classmethod
    def of(
        cls,
        job_type: str,
        gpus: int,
        mode: str,
        table: ThroughputTable,
        accelerators: Sequence[str],
        rules: AdaptationRules,
        view: View,
    ) -> Ladder | None:
        """That of jobs of a type, gang size and mode; None where the rules do not know the model.

        Raises
        ------
        InputError
            The table does not know a job type, scale factor or accelerator type.
        """
        found = rules.find(job_type)
        if found is None:
            return None
        model, initial = found
        sizes, switches, windows = _rungs(mode, model, initial, gpus, view)
        rates = [table.rates([job_type], [gpus], accelerators)]
        for size in sizes[1:]:
            name = [with_batch_size(job_type, size)]
            if not (table.has(name, [gpus]).all() and table.rates(name, [gpus], accelerators).any()):
                break
            rates.append(table.rates(name, [gpus], accelerators))
        top = len(rates) - 1
        return cls(
            sizes[: top + 1],
            np.concatenate(rates),
            model.samples_per_epoch,
            mode == "gns",
            switches[:top],
            windows if top else (),
        )


class Ladders:
    """The ladders of K kinds of job side by side.

    Attributes
    ----------
    batch_size, rates : (K, L) and (K, L, M), see `Ladder`; 1 and 0 above the top of a ladder.
    top : (K,) highest rung; 0 for jobs that never change.
    samples_per_epoch, doubles : (K,).
    """

    def __init__(self, kinds: Sequence[Ladder], n_accelerators: int) -> None:
        self.kinds, self.n_accelerators = kinds, n_accelerators
        self.batch_size = _stacked([kind.batch_size for kind in kinds], 1)
        self.rates = _stacked([kind.rates for kind in kinds], 0.0, n_accelerators)
        self.top = np.array([len(kind.rates) - 1 for kind in kinds], dtype=np.int64)
        self.samples_per_epoch = np.array([kind.samples_per_epoch for kind in kinds], dtype=np.int64)
        self.doubles = np.array([kind.doubles for kind in kinds], dtype=np.bool_)
        self._switches = _stacked([kind.switches for kind in kinds], NEVER)
        self._windows = _stacked([kind.windows for kind in kinds], 0, 4)

    @classmethod
    def of_jobs(
        cls,
        job_type: Sequence[str] | NDArray[np.object_],
        scale_factor: Sequence[int] | NDArray[np.int64],
        mode: Sequence[str] | NDArray[np.object_],
        table: ThroughputTable,
        accelerators: Sequence[str],
        rules: AdaptationRules,
        view: View,
    ) -> tuple[Ladders, NDArray[np.int64]]:
        """Ladders, and the kind of each of N jobs (-1 where the rules do not know the model); raises as `Ladder.of`."""
        jobs = list(zip(job_type, np.asarray(scale_factor, dtype=np.int64).tolist(), mode, strict=True))
        ladders = {key: Ladder.of(*key, table, accelerators, rules, view) for key in dict.fromkeys(jobs)}
        known = [key for key, ladder in ladders.items() if ladder is not None]
        kind = {key: k for k, key in enumerate(known)}
        of_job = np.array([kind.get(key, -1) for key in jobs], dtype=np.int64)
        return cls([ladder for ladder in ladders.values() if ladder is not None], len(accelerators)), of_job

    def joined(self, later: Ladders) -> Ladders:
        """These kinds, and behind them those of `later`."""
        return Ladders([*self.kinds, *later.kinds], self.n_accelerators)

    def __len__(self) -> int:
        return len(self.kinds)

    def adapts(self, kind: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether jobs of some kinds may change their batch size at all; not those of none (-1)."""
        return np.append(self.top > 0, False)[kind]

    def doublings(self, kind: NDArray[np.int64], epoch: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) rung that gns jobs of some kinds are on in some epochs, each of shape (n,)."""
        return np.asarray((self._switches[kind] <= epoch[:, np.newaxis]).sum(axis=1), dtype=np.int64)

    def critical(self, kind: NDArray[np.int64], epoch: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether accordion jobs of some kinds are in a critical window in some epochs, each of shape (n,)."""
        first, end, every, before = np.moveaxis(self._windows[kind], 2, 0)
        at = np.broadcast_to(epoch[:, np.newaxis], first.shape)
        phase = np.where(every > 0, at % np.maximum(every, 1), at)
        inside: NDArray[np.bool_] = ((first <= phase) & (phase < end) & (at < before)).any(axis=1)
        return inside

    def rung(self, kind: NDArray[np.int64], epoch: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) rung that jobs of some kinds are to be on in some epochs, each of shape (n,)."""
        doubled = self.doublings(kind, epoch)
        return np.where(self.doubles[kind], doubled, np.where(self.critical(kind, epoch), 0, self.top[kind]))


def _stacked(lists: Sequence[Any], filler: float, *width: int) -> NDArray[Any]:
    """(K, most, ...) the lists of K kinds, of numbers or of rows of `width` numbers, filled up to the longest one."""
    stacked = np.full((len(lists), max(map(len, lists), default=1), *width), filler)
    for row, entries in zip(stacked, lists, strict=True):
        row[: len(entries)] = np.reshape(entries, (-1, *width))
    return stacked


def _rungs(
    mode: str, model: ModelRules, initial: int, gpus: int, view: View
) -> tuple[list[int], list[int], tuple[CriticalWindow, ...]]:
    """Batch sizes from the initial one, the epochs from which a gns job has each, the windows of an accordion job."""
    largest = model.largest_batch_size
    if initial < largest and mode == "gns":
        switches = list(model.doublings.get((initial, gpus), ()))
        sizes = [min(initial << rung, largest) for rung in range(len(switches) + 1)]
        rungs = 1 + sum(above > below for below, above in pairwise(sizes))
        return sizes[:rungs], switches[: rungs - 1], ()
    windows = model.windows(initial, view) if initial < largest and mode == "accordion" else None
    return ([initial], [], ()) if windows is None else ([initial, largest], [], windows)
