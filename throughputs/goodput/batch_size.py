"""The batch size with the greatest goodput, for every job on every configuration of nodes and GPUs.

Goodput is throughput times statistical efficiency: samples/s, counted as in batches of the initial size. On a
configuration a job may choose its batch size B = K m (s + 1): K GPUs, m samples on each in a micro-batch, s further
micro-batches whose gradients are accumulated. Candidates are 50 global batch sizes between the least,
max(B0, least_local K), and the largest, in geometric progression; for each the fewest accumulation steps whose
micro-batches are not above largest_local, and the atomic batch size that results, rounded up. Published allocations
rest on these, down to their rounding: B may exceed the largest by it.

On one GPU the noise of gradients can only be measured with at least two micro-batches, so a batch above the initial one
is accumulated there. Source: A. Qiao et al., "Pollux", OSDI 2021, section 4.1, and its public artifact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Flags, Floats, Ints, Positions, Rowed
from throughputs.errors import InputError
from throughputs.frames import column, columns_of, keep_columns
from throughputs.goodput.efficiency import GradientStatistics, gain
from throughputs.goodput.model import ThroughputModels, overlapped
from throughputs.limits import Range, require
from throughputs.numerics import exp, log

_SAMPLES = Range(1)
_CANDIDATES = 50
"""Batch sizes that are tried between the least and the largest, evenly in the logarithm, as published."""
_ROUNDED = 1e-8
"""What a number may exceed a whole one by and still count as that: the published rounding up."""
_CHUNK = 1 << 17
"""Candidates that are looked at together, for the sake of the caches."""
_REMEMBERED = 1 << 16
"""Answers that are kept, of some 400 bytes."""


@dataclass(frozen=True, eq=False)
class BatchSizeLimits(Rowed):
    """What J jobs allow for their batch sizes, in samples.

    Parameters
    ----------
    initial : (J,) the batch size B0 that a job was submitted with; a batch is never smaller.
    largest : (J,) the largest global batch size; `initial` when omitted.
    least_local : (J,) the fewest samples of a micro-batch on a GPU; 1 when omitted.
    largest_local : (J,) the most, as memory allows; `largest` when omitted.
    accumulation : (J,) whether gradients may be accumulated; not when omitted.

    Raises
    ------
    InputError
        Arrays of different length, sizes below 1, or bounds in the wrong order.
    """

    initial: Floats = column("number", within=_SAMPLES, expected="at least 1 sample")
    largest: Floats = column("number", within=_SAMPLES, expected="at least 1 sample")
    least_local: Floats = column("number", within=_SAMPLES, expected="at least 1 sample")
    largest_local: Floats = column("number", within=_SAMPLES, expected="at least 1 sample")
    accumulation: Flags = column("flag")

    def __init__(
        self,
        initial: ArrayLike,
        largest: ArrayLike | None = None,
        least_local: ArrayLike = 1.0,
        largest_local: ArrayLike | None = None,
        accumulation: ArrayLike = False,
    ) -> None:
        top = initial if largest is None else largest
        local = top if largest_local is None else largest_local
        first, *others = map(np.atleast_1d, (initial, top, least_local, local, accumulation))
        full = [first, *(np.repeat(one, len(first)) if len(one) == 1 else one for one in others)]
        keep_columns(self, dict(zip(columns_of(BatchSizeLimits), full, strict=True)), "batch sizes")
        for name, least in (("largest", self.initial), ("largest_local", self.least_local)):
            good = getattr(self, name) >= least
            expected = f"at least {least[np.argmin(good)] if len(good) else 1.0:g} samples"
            require(good, getattr(self, name), "batch sizes", name, expected)


@dataclass(frozen=True, eq=False)
class GoodputModels(Rowed):
    """What the goodput of J jobs, or of J pairs of a job and an accelerator type, follows from.

    Raises
    ------
    InputError
        Parts of different length.
    """

    throughput: ThroughputModels
    statistics: GradientStatistics
    limits: BatchSizeLimits

    def __post_init__(self) -> None:
        sizes = (len(self.throughput), len(self.statistics), len(self.limits))
        if len(set(sizes)) > 1:
            raise InputError("goodput models", found=sizes, expected="as many models as statistics and limits")

    @property
    def figures(self) -> Floats:
        """(J, 14) all that goodput depends on."""
        statistics, limits = self.statistics, self.limits
        columns = (statistics.square_norm, statistics.variance, *(getattr(limits, f.name) for f in fields(limits)))
        return np.concatenate([self.throughput.parameters, np.stack(columns, axis=1)], axis=1)


@dataclass(frozen=True, eq=False)
class BestBatchSizes:
    """The best batch size of J jobs on C configurations; all 0 where a job cannot run.

    Attributes
    ----------
    goodput : (J, C) samples/s, counted as in batches of the initial size.
    throughput : (J, C) samples/s.
    atomic_batch_size : (J, C) samples of a micro-batch on one GPU.
    accumulation_steps : (J, C) micro-batches of a step beyond the one after which gradients are added up.
    batch_size : (J, C) samples of a step on all GPUs.
    """

    goodput: Floats
    throughput: Floats
    atomic_batch_size: Ints
    accumulation_steps: Ints
    batch_size: Ints

    @property
    def efficiency(self) -> Floats:
        """(J, C) statistical efficiency, in (0, 1]; 0 where a job cannot run."""
        runs = self.throughput > 0
        return np.where(runs, self.goodput / np.where(runs, self.throughput, 1.0), 0.0)


def best_batch_sizes(jobs: GoodputModels, nodes: ArrayLike, gpus: ArrayLike, *, tune: bool = True) -> BestBatchSizes:
    """The best batch size of J jobs on C configurations.

    Parameters
    ----------
    jobs : J models.
    nodes, gpus : (C,) whole numbers, or (J, C) where each job has configurations of its own; no more nodes than GPUs.
    tune : False: every batch has the largest size, as of jobs whose users fix it.

    Raises
    ------
    InputError
        A configuration that is none.
    """
    J = len(jobs)
    N, K = np.broadcast_arrays(np.atleast_2d(nodes), np.atleast_2d(gpus))
    N, K = (np.broadcast_to(x, (J, x.shape[1])) for x in (N, K))
    row = np.repeat(np.arange(J), K.shape[1])
    told = np.column_stack([jobs.figures[row], N.ravel(), K.ravel(), np.full(len(row), tune)])
    content, size = told.tobytes(), told.itemsize * told.shape[1]
    keys = [content[k : k + size] for k in range(0, len(content), size)]
    new = {key: at for at, key in enumerate(keys) if key not in _remembered}
    if new:
        at = np.fromiter(new.values(), dtype=np.intp)
        _remembered.update(zip(new, _best(jobs.take(row[at]), N.ravel()[at], K.ravel()[at], tune), strict=True))
    best = np.array([_remembered[key] for key in keys]).reshape(*K.shape, len(fields(BestBatchSizes)))
    while len(_remembered) > _REMEMBERED:
        del _remembered[next(iter(_remembered))]
    return BestBatchSizes(best[..., 0], best[..., 1], *(best[..., k].astype(np.int64) for k in (2, 3, 4)))


_remembered: dict[bytes, tuple[float, ...]] = {}
"""What was best for jobs with such figures, on such nodes and GPUs: jobs of one model go the same ways."""


def _best(jobs: GoodputModels, nodes: Ints, gpus: Ints, tune: bool) -> Iterator[tuple[float, ...]]:
    """The fields of `BestBatchSizes` of each job on a configuration of its own; `nodes` and `gpus` are (J,)."""
    sync = jobs.throughput.synchronisation_time(nodes[:, None], gpus[:, None])[:, 0]
    entries = _Entries(jobs, gpus.astype(float), sync, tune)
    size, steps = _chosen(entries)
    goodput, throughput = entries.goodput(slice(None), size, steps)
    figures = (goodput, throughput, size, steps, entries.gpus * size * (steps + 1.0))
    return zip(*(np.where(goodput > 0, x, 0.0).tolist() for x in figures), strict=True)


class _Entries:
    """E pairs of a job and a configuration, with what the choice of a batch size follows from."""

    def __init__(self, jobs: GoodputModels, gpus: Floats, sync: Floats, tune: bool) -> None:
        self.alpha, self.beta, *_, self.gamma = jobs.throughput.parameters.T
        self.statistics, self.limits, self.gpus, self.sync = jobs.statistics, jobs.limits, gpus, sync
        largest = self.limits.largest
        self.least = np.maximum(self.limits.initial, self.limits.least_local * gpus)
        if not tune:
            self.least = np.where(self.least <= largest, largest, self.least)

    def allowed(self, at: Any, size: Floats, batch: Floats) -> Flags:
        """Whether micro-batches and batches of these sizes are possible in the entries `at` (shapes broadcast)."""
        limits = self.limits
        fits = (self.least[at] <= limits.largest[at]) & (batch >= limits.initial[at] * (1.0 - _ROUNDED))
        possible: Flags = fits & (size >= limits.least_local[at]) & (size <= limits.largest_local[at])
        return possible

    def efficiency(self, at: Any, batch: Floats) -> Floats:
        scale = batch / self.limits.initial[at]
        return np.asarray(gain(scale, self.statistics.square_norm[at], self.statistics.variance[at]) / scale)

    def bounds(self, at: Any, size: Floats, steps: Floats) -> tuple[Floats, Floats]:
        """Goodput if computing and synchronising did not overlap, and if they did wholly; 0 where not allowed."""
        batch = self.gpus[at] * size * (steps + 1.0)
        gradient = self.alpha[at] + self.beta[at] * size
        worth = np.where(self.allowed(at, size, batch), batch * self.efficiency(at, batch), 0.0)
        sync = self.sync[at]
        return worth / (steps * gradient + gradient + sync), worth / (steps * gradient + np.maximum(gradient, sync))

    def goodput(self, at: Any, size: Floats, steps: Floats) -> tuple[Floats, Floats]:
        """Goodput, 0 where a micro-batch is not allowed, and throughput."""
        batch = self.gpus[at] * size * (steps + 1.0)
        gradient = self.alpha[at] + self.beta[at] * size
        throughput = batch / (steps * gradient + overlapped(gradient, self.sync[at], self.gamma[at]))
        return np.where(self.allowed(at, size, batch), throughput * self.efficiency(at, batch), 0.0), throughput


def _chosen(entries: _Entries) -> tuple[Floats, Floats]:
    """(E,) atomic batch sizes and accumulation steps."""
    count = len(entries.gpus)
    size, steps = np.ones(count), np.zeros(count)
    grids, which = _geometric(entries.least, np.maximum(entries.limits.largest, entries.least))
    for start in range(0, count, _CHUNK // _CANDIDATES):
        at = np.arange(start, min(start + _CHUNK // _CANDIDATES, count))
        local = grids[which[at]] / entries.gpus[at][:, None]
        more = _fewest_steps(entries, at[:, None], local)
        atomic = np.ceil(local / (more + 1.0) - _ROUNDED)
        best = _best_candidate(entries, at, atomic, more)
        here = np.arange(len(at))
        size[at], steps[at] = atomic[here, best], more[here, best]
    return size, steps


def _geometric(least: Floats, largest: Floats) -> tuple[Floats, Positions]:
    """(G, 50) geometric progressions, and which of them belongs to each pair of ends."""
    ends, which = np.unique(least + 1j * largest, return_inverse=True)
    first, last = ends.real[:, None], ends.imag[:, None]
    grids = first * exp(np.arange(_CANDIDATES) / (_CANDIDATES - 1.0) * log(last / first))
    grids[:, 0], grids[:, -1] = first[:, 0], last[:, 0]
    return grids, which.ravel()


def _fewest_steps(entries: _Entries, at: Positions, local: Floats) -> Floats:
    """The fewest accumulation steps with which so many samples fit on a GPU."""
    limits = entries.limits
    fewest = np.ceil(local / limits.largest_local[at] - _ROUNDED) - 1.0
    noise_unknown = (entries.gpus[at] == 1) & (local > limits.initial[at] + _ROUNDED)
    return np.where(limits.accumulation[at], np.maximum(fewest, noise_unknown), 0)


def _best_candidate(entries: _Entries, at: Positions, size: Floats, steps: Floats) -> Positions:
    """(E,) the first candidate of each row that has the greatest goodput.

    Overlap costs a logarithm and an exponential, so it is only worked out for candidates that may win: those that beat,
    if all overlapped, the best of those that would not overlap at all.
    """
    lower, upper = entries.bounds(at[:, None], size, steps)
    row, column = np.nonzero(upper >= lower.max(axis=1, keepdims=True) * (1.0 - _ROUNDED))
    found = np.full(size.shape, -1.0)
    found[row, column] = entries.goodput(at[row], size[row, column], steps[row, column])[0]
    return np.asarray(np.argmax(found, axis=1))
