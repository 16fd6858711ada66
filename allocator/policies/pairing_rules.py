"""Two jobs on the same GPUs by rule, not by program: Gandiva's random pairs, and first in, first out with pairs.

Each is a function of what jobs can do alone and in pairs (`throughputs.PackedColumns`), and the policy around it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.conversion import NotNegative, NotNegativeWhole
from allocator.policies.base.packed import pair_rates
from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import Pairs, isolated_shares
from throughputs import InputError, PackedColumns
from throughputs.numerics import dot
from throughputs.tie_order import tie_order

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Packing:
    """Shares of jobs alone and in pairs.

    Attributes
    ----------
    shares : (N, M) share of time of each job alone on each type.
    pairs : the pairs with their shares of time on each type.
    partners : the pairs by label, each once, the job that comes first in `PackedColumns.jobs` first.
    """

    shares: Array
    pairs: Pairs
    partners: tuple[tuple[Hashable, Hashable], ...]


def pair_gain(columns: PackedColumns, one: ArrayLike, other: ArrayLike) -> Array:
    """(P, M) what P pairs of jobs (positions) do together, in units of what each does alone::

        T'_{i|k,j} / T_ij + T'_{k|i,j} / T_kj

    2 says that they do not disturb each other, 1 that they might as well take turns; 0 where they cannot share.
    """
    a, b = columns.group[np.asarray(one)], columns.group[np.asarray(other)]
    mine, theirs = columns.together[a, b], columns.together[b, a]
    able = (mine > 0) & (theirs > 0) & (columns.alone[a] > 0) & (columns.alone[b] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(able, mine / columns.alone[a] + theirs / columns.alone[b], 0.0)


def gandiva(
    columns: PackedColumns,
    capacity: ArrayLike,
    rng: np.random.Generator,
    previous: Collection[tuple[Hashable, Hashable]] = (),
    *,
    least_gain: float = 1.0,
) -> Packing:
    """Random pairs that are kept as long as they prove their worth.

    With a GPU for everybody nobody shares and shares are isolated ones. Otherwise a pair of the last decision stays
    together while both jobs are there and do at least `least_gain` together (`pair_gain`, the mean over types by their
    GPUs); the other jobs are drawn two at a time, N times, and paired when they can share any type. The C pairs
    and single jobs then share equally::

        x_cj = (c_j / C) / s_c,   each row scaled to sum to at most 1,   0 where one of them cannot run

    Parameters
    ----------
    columns : what N jobs do alone and in pairs.
    capacity : (M,) GPUs of each type.
    rng : draws the pairs; the draw does not depend on the order of the jobs.
    previous : pairs of labels of the last decision; those with a job that has left are dropped.
    least_gain : what a pair must do together to stay.

    Source: Xiao et al., OSDI 2018; as a baseline in Narayanan et al., OSDI 2020. The published baseline adds the gain
    up over types and so keeps pairs that would be better off taking turns.
    """
    gpus = _checked_capacity(columns, capacity)
    sizes, n = columns.scale_factors, columns.n_jobs
    runs: NDArray[np.bool_] = np.where(sizes[:, None] <= gpus, columns.rates, 0.0) > 0
    able = np.asarray(runs.any(axis=1))
    shares = np.zeros(runs.shape)
    if int(sizes[able].sum()) <= int(gpus.sum()):
        fitting = np.where(sizes[able, None] <= gpus, gpus, 0)
        shares[able] = np.where(runs[able], isolated_shares(sizes[able], fitting), 0.0)
        return Packing(shares, Pairs.none(), ())
    pairs = _kept(columns, gpus, previous, least_gain)
    taken = {job for pair in pairs for job in pair}
    single = [int(i) for i in tie_order(columns.jobs) if able[i] and int(i) not in taken]
    for _ in range(n):
        if len(single) < 2:
            break
        first, second = (single[k] for k in rng.choice(len(single), 2, replace=False))
        if (pair_gain(columns, [first], [second]) * (sizes[first] <= gpus) > 0).any():
            pairs.append((min(first, second), max(first, second)))
            single = [job for job in single if job not in (first, second)]
    count = len(pairs) + len(single)
    shares[single] = np.where(runs[single], _equal(gpus, count, sizes[single]), 0.0)
    if not pairs:
        return Packing(shares, Pairs.none(), ())
    members = np.array(sorted(pairs), dtype=np.int64)
    fits = sizes[members[:, :1]] <= gpus
    together = (pair_gain(columns, *members.T) > 0) & fits
    return _packing(columns, shares, members, np.where(together, _equal(gpus, count, sizes[members[:, 0]]), 0.0))


def fifo_packed(columns: PackedColumns, capacity: ArrayLike, *, least_gain: float = 1.5) -> Packing:
    """First in, first out; jobs that find no free GPUs join a running one.

    Jobs take, in the order of `columns`, the fastest type with room for their gang, up to the first that fits nowhere.
    From that one on each joins a placed job with a gang of its size and no partner yet: the one with which it does
    most (`pair_gain` on that job's type), if that is more than `least_gain`; the first that finds none ends it.

    Parameters
    ----------
    columns : what N jobs do alone and in pairs, in order of arrival.
    capacity : (M,) GPUs of each type.
    least_gain : what a pair must do together, above.

    Returns shares of 1. Ties go to the type first in the alphabet, and to the job placed first.

    Source: Narayanan et al., OSDI 2020, section 6 (baseline), public artifact.
    """
    free = _checked_capacity(columns, capacity)
    by_name = np.array(sorted(range(len(free)), key=lambda j: columns.accelerators[j]), dtype=np.intp)
    rates, sizes = columns.rates, columns.scale_factors
    fits_ever = (rates > 0) & (sizes[:, None] <= free)
    type_of: dict[int, int] = {}
    queue = [int(i) for i in np.flatnonzero(fits_ever.any(axis=1))]
    waiting: list[int] = []
    for at, job in enumerate(queue):
        room = by_name[free[by_name] >= sizes[job]]
        if not len(room):
            waiting = queue[at:]
            break
        best = int(room[np.argmax(rates[job, room])])
        if rates[job, best] > 0:
            type_of[job] = best
            free[best] -= sizes[job]
    members = _join(columns, type_of, waiting, least_gain)
    paired = {job for pair in members for job in pair}
    shares = np.zeros(rates.shape)
    for job, j in type_of.items():
        shares[job, j] = float(job not in paired)
    if not members:
        return Packing(shares, Pairs.none(), ())
    together = np.zeros((len(members), len(free)))
    together[np.arange(len(members)), [type_of[partner] for partner, _ in members]] = 1.0
    return _packing(columns, shares, np.array(members, dtype=np.int64), together)


def _join(
    columns: PackedColumns, type_of: dict[int, int], waiting: list[int], least_gain: float
) -> list[tuple[int, int]]:
    """Pairs (placed job, job that joins it)."""
    members: list[tuple[int, int]] = []
    single = np.array(list(type_of), dtype=np.int64)
    for job in waiting:
        single = single[~np.isin(single, [partner for partner, _ in members])]
        mates = single[columns.scale_factors[single] == columns.scale_factors[job]]
        if not len(mates):
            break
        gains = pair_gain(columns, np.full(len(mates), job), mates)
        gains = gains[np.arange(len(mates)), [type_of[mate] for mate in mates.tolist()]]
        best = int(np.argmax(gains))
        if not gains[best] > least_gain:
            break
        members.append((int(mates[best]), job))
    return members


def _checked_capacity(columns: PackedColumns, capacity: ArrayLike) -> Whole:
    gpus = np.asarray(capacity)
    if gpus.shape != (columns.n_accelerators,) or not (np.isfinite(gpus) & (gpus >= 0)).all():
        expected = f"GPUs of {columns.n_accelerators} types"
        raise InputError("packing", field="capacity", found=gpus.tolist(), expected=expected)
    return gpus.astype(np.int64)


def _kept(
    columns: PackedColumns, gpus: Whole, previous: Collection[tuple[Hashable, Hashable]], least_gain: float
) -> list[tuple[int, int]]:
    """Pairs of the last decision, as positions, that stay together."""
    position = {label: i for i, label in enumerate(columns.jobs)}
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for one, other in previous:
        a, b = position.get(one), position.get(other)
        if a is None or b is None or columns.scale_factors[a] != columns.scale_factors[b]:
            continue
        if a == b or a in taken or b in taken:
            raise InputError("packing", field="previous", found=(one, other), expected="pairs without a job in common")
        taken |= {a, b}
        gain = pair_gain(columns, [a], [b])[0]
        if dot(gain, gpus) >= least_gain * float(gpus.sum()):
            pairs.append((min(a, b), max(a, b)))
    return pairs


def _equal(gpus: Whole, count: int, sizes: Whole) -> Array:
    """(K, M) an equal part of every type for gangs of `sizes` (K,)."""
    shares = gpus[None, :] / count / sizes[:, None]
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def _packing(columns: PackedColumns, shares: Array, members: Whole, together: Array) -> Packing:
    """From pairs (P, 2) and their shares (P, M)."""
    low, high = members.min(axis=1), members.max(axis=1)
    order = np.lexsort((high, low))
    low, high, together = low[order], high[order], together[order]
    row, j = np.nonzero(together)
    pairs = Pairs(low[row], high[row], j.astype(np.int64), together[row, j])
    labels = tuple((columns.jobs[a], columns.jobs[b]) for a, b in zip(low.tolist(), high.tolist(), strict=True))
    return Packing(shares, pairs, labels)


@register(
    "gandiva",
    paper="Xiao et al., OSDI 2018; Narayanan et al., OSDI 2020, sec. 6 (baseline)",
    program="random pairs, kept while T'_i|k / T_i + T'_k|i / T_k >= 1; x_cj = (c_j / C) / s_c for C pairs and jobs",
)
@dataclass(frozen=True)
class Gandiva(SharePolicy):
    """Share GPUs in random pairs that are kept as long as they prove their worth.

    The rule is `pairing_rules.gandiva`. Where nothing is known of jobs in pairs no two of them share.

    Parameters
    ----------
    seed : of the draws, which depend on it and on the time of the decision alone.
    least_gain : what two jobs must do together to stay together (`pairing_rules.pair_gain`); 1: as much as in turns.
    """

    seed: NotNegativeWhole = 0
    least_gain: NotNegative = 1.0

    needs = Need.COLOCATION | Need.ISOLATED_TIME

    def allocate(self, state: ClusterState) -> Allocation:
        """Equal shares for pairs and single jobs."""
        started = perf_counter()
        labels, partner = state.throughputs.jobs, state.current_partner
        previous = [(labels[i], labels[k]) for i, k in enumerate(partner.tolist()) if i < k]
        rng = np.random.default_rng([self.seed, round(state.clock * 1e6)])
        packing = gandiva(state.packed, state.capacity, rng, previous, least_gain=self.least_gain)
        return _allocation(self, state, packing, started)


@register(
    "fifo_packed",
    paper="Narayanan et al., OSDI 2020, sec. 6 (baseline)",
    program="fifo_perf; then in order, share with the placed job of most T'_i|k / T_i + T'_k|i / T_k, if above 1.5",
)
@dataclass(frozen=True)
class FifoPacked(SharePolicy):
    """First in, first out; jobs that find no free GPUs share those of a running job.

    The rule is `pairing_rules.fifo_packed`. Where nothing is known of jobs in pairs it is fifo_perf.

    Parameters
    ----------
    least_gain : what two jobs must do together, above (`pairing_rules.pair_gain`).
    """

    least_gain: NotNegative = 1.5

    needs = Need.COLOCATION | Need.ISOLATED_TIME
    fills_idle_gpus: ClassVar[bool] = False
    in_order_of_rows: ClassVar[bool] = True

    def allocate(self, state: ClusterState) -> Allocation:
        """Share 1 for the jobs and pairs that run."""
        started = perf_counter()
        packing = fifo_packed(state.packed, state.capacity, least_gain=self.least_gain)
        return _allocation(self, state, packing, started)


def _allocation(policy: Gandiva | FifoPacked, state: ClusterState, packing: Packing, started: float) -> Allocation:
    return Allocation(
        policy=policy.name,
        throughputs=state.throughputs,
        shares=packing.shares,
        status="order",
        pairs=packing.pairs,
        pair_rates=pair_rates(state.packed, packing.pairs),
        seconds=perf_counter() - started,
    )
