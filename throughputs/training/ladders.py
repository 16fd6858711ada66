"""Ladders of batch sizes: which sizes a job may train with, how fast it is with each, and which one holds when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from throughputs.arrays import Flags, Floats, Ints, Names, Rowed, Sizes, Values
from throughputs.tables.table import ThroughputTable
from throughputs.training.rules import NEVER, AdaptationRules, CriticalWindow, ModelRules, View, with_batch_size


@dataclass(frozen=True, eq=False)
class Ladders(Rowed):
    """The ladders of K kinds of job; jobs of one type, gang size and mode are of one kind.

    A ladder begins with the initial batch size, rung 0. That of an accordion job has the largest one above it, that
    of a gns job a rung for each doubling. A ladder ends below the first batch size without a throughput.

    Attributes
    ----------
    batch_size : (K, L) samples; above the top of a ladder its top is repeated.
    rates : (K, L, M) steps/s on M accelerator types, 0 where it cannot run.
    top : (K,) highest rung; 0 for jobs that never change.
    samples_per_epoch : (K,) size of the data set.
    doubles : (K,) bool, a gns job.
    switches : (K, L - 1) epoch from which a gns job is above each rung.
    windows : (K, W, 4) first, end, every and before of the critical windows of an accordion job.
    """

    batch_size: Ints
    rates: Floats
    top: Ints
    samples_per_epoch: Ints
    doubles: Flags
    switches: Ints
    windows: Ints

    @classmethod
    def of_jobs(
        cls,
        job_type: Names,
        scale_factor: Sizes,
        mode: Names,
        table: ThroughputTable,
        accelerators: Sequence[str],
        rules: AdaptationRules,
        view: View,
    ) -> tuple[Ladders, Ints]:
        """Ladders, and the kind of each of N jobs (-1 where the rules do not know the model).

        Raises
        ------
        InputError
            The table does not know a job type, scale factor or accelerator type.
        """
        sizes = np.asarray(scale_factor, dtype=np.int64).tolist()
        keys = list(zip(job_type, sizes, mode, strict=True))
        found = {key: rule for key in dict.fromkeys(keys) if (rule := rules.find(key[0])) is not None}
        ladders = [_ladder(*key, *rule, table, accelerators, view) for key, rule in found.items()]
        kinds = {key: kind for kind, key in enumerate(found)}
        of_job = np.array([kinds.get(key, -1) for key in keys], dtype=np.int64)
        none, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        nothing = np.zeros((0, 1), dtype=np.int64), np.zeros((0, 1, len(accelerators)))
        empty = cls(*nothing, none, none, no, np.zeros((0, 0), np.int64), np.zeros((0, 0, 4), np.int64))
        return cls._together([empty, *ladders]), of_job

    @classmethod
    def _together(cls, parts: Sequence[Ladders]) -> Ladders:
        """The kinds of all parts, one behind the other."""
        L = max(part.batch_size.shape[1] for part in parts)
        W = max(part.windows.shape[1] for part in parts)
        columns = zip(*(part._widened(L, W) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def doublings(self, kind: Ints, epoch: Ints) -> Ints:
        """(n,) rung that gns jobs of some kinds are on in some epochs, each of shape (n,)."""
        return np.asarray((self.switches[kind] <= epoch[:, None]).sum(axis=1), dtype=np.int64)

    def critical(self, kind: Ints, epoch: Ints) -> Flags:
        """(n,) whether accordion jobs of some kinds are in a critical window in some epochs, each of shape (n,)."""
        first, end, every, before = np.moveaxis(self.windows[kind], 2, 0)
        at = np.broadcast_to(epoch[:, None], first.shape)
        phase = np.where(every > 0, at % np.maximum(every, 1), at)
        inside: Flags = ((first <= phase) & (phase < end) & (at < before)).any(axis=1)
        return inside

    def rung(self, kind: Ints, epoch: Ints) -> Ints:
        """(n,) rung that jobs of some kinds are to be on in some epochs, each of shape (n,)."""
        doubled = self.doublings(kind, epoch)
        return np.where(self.doubles[kind], doubled, np.where(self.critical(kind, epoch), 0, self.top[kind]))

    def joined(self, later: Ladders) -> Ladders:
        """These kinds, and behind them those of `later`."""
        return self._together([self, later])

    def _widened(self, L: int, W: int) -> tuple[Values, ...]:
        """The fields with L rungs and W windows."""
        K, rungs = self.batch_size.shape
        extra = L - rungs
        return (
            np.concatenate([self.batch_size, np.repeat(self.batch_size[:, -1:], extra, axis=1)], axis=1),
            np.concatenate([self.rates, np.repeat(self.rates[:, -1:], extra, axis=1)], axis=1),
            self.top,
            self.samples_per_epoch,
            self.doubles,
            np.concatenate([self.switches, np.full((K, extra), NEVER)], axis=1),
            np.concatenate([self.windows, np.zeros((K, W - self.windows.shape[1], 4), np.int64)], axis=1),
        )


def _ladder(
    job_type: str,
    gpus: int,
    mode: str,
    model: ModelRules,
    initial: int,
    table: ThroughputTable,
    accelerators: Sequence[str],
    view: View,
) -> Ladders:
    """The ladder of one kind."""
    sizes, switches, windows = _rungs(mode, model, initial, gpus, view)
    rates = table.rates([job_type], [gpus], accelerators)
    for size in sizes[1:]:
        name = with_batch_size(job_type, size)
        if not table.has([name], [gpus]).all() or not (faster := table.rates([name], [gpus], accelerators)).any():
            break
        rates = np.concatenate([rates, faster])
    top = len(rates) - 1
    return Ladders(
        np.array([sizes[: top + 1]]),
        rates[None],
        np.array([top]),
        np.array([model.samples_per_epoch]),
        np.array([mode == "gns"]),
        np.array(switches[:top] + [NEVER] * (top - len(switches)), dtype=np.int64)[None],
        np.array([window.packed for window in windows if top], dtype=np.int64).reshape(1, -1, 4),
    )


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
