"""Two jobs on the same GPUs by rule, not by program: Gandiva's random pairs, and first in, first out with pairs.

Each is a function of what jobs can do alone and in pairs (`throughputs.PackedColumns`), and the policy around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from allocator.conversion import NotNegative, NotNegativeWhole
from allocator.policies.orders.fifo import first_in_line
from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import Pairs, isolated_shares
from throughputs import PackedColumns
from throughputs.arrays import Floats, Ints
from throughputs.numerics import dot, tie_order


def pair_gain(columns: PackedColumns, one: ArrayLike, other: ArrayLike) -> Floats:
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
    capacity: Ints,
    rng: np.random.Generator,
    previous: Iterable[tuple[int, int]] = (),
    *,
    least_gain: float = 1.0,
) -> tuple[Floats, Pairs]:
    """Random pairs that are kept as long as they prove their worth; shares of the others alone.

    With a GPU for everybody nobody shares and shares are isolated ones. Otherwise a pair of the last decision stays
    together while the two do at least `least_gain` together (`pair_gain`, the mean over types by their GPUs); the other
    jobs are drawn two at a time, N times, and paired when they can share any type. The C pairs and single jobs then
    share equally::

        x_cj = (c_j / C) / s_c,   each row scaled to sum to at most 1,   0 where one of them cannot run

    Parameters
    ----------
    columns : what N jobs do alone and in pairs.
    capacity : (M,) GPUs of each type.
    rng : draws the pairs; the draw does not depend on the order of the jobs.
    previous : pairs (positions) of the last decision, without a job in common, the one that comes first first.
    least_gain : what a pair must do together to stay.

    Source: Xiao et al., OSDI 2018; as a baseline in Narayanan et al., OSDI 2020. The published baseline adds the gain
    up over types and so keeps pairs that would be better off taking turns.
    """
    sizes = columns.scale_factors
    fits = sizes[:, None] <= capacity
    runs = fits & (columns.rates > 0)
    able, shares = np.asarray(runs.any(axis=1)), np.zeros(runs.shape)
    if int(sizes[able].sum()) <= int(capacity.sum()):
        fitting = np.where(fits[able], capacity, 0)
        shares[able] = np.where(runs[able], isolated_shares(sizes[able], fitting), 0.0)
        return shares, Pairs.none()
    least = least_gain * float(capacity.sum())
    pairs = [pair for pair in previous if dot(pair_gain(columns, *pair), capacity) >= least]
    taken = {job for pair in pairs for job in pair}
    single = [job for job in tie_order(columns.jobs).tolist() if able[job] and job not in taken]
    for _ in range(columns.n_jobs):
        if len(single) < 2:
            break
        first, second = (single[k] for k in rng.choice(len(single), 2, replace=False))
        if (pair_gain(columns, first, second) * fits[first] > 0).any():
            pairs.append((min(first, second), max(first, second)))
            single = [job for job in single if job not in (first, second)]
    equal = capacity / (len(pairs) + len(single)) / sizes[:, None]
    equal /= np.maximum(equal.sum(axis=1, keepdims=True), 1.0)
    shares[single] = np.where(runs[single], equal[single], 0.0)
    one, other = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    row, j = np.nonzero((pair_gain(columns, one, other) > 0) & fits[one])
    return shares, Pairs(one[row], other[row], j, equal[one[row], j])


def fifo_packed(columns: PackedColumns, capacity: Ints, *, least_gain: float = 1.5) -> tuple[Floats, Pairs]:
    """First in, first out; jobs that find no free GPUs join a running one.

    Jobs take, in the order of `columns`, the fastest type with room for their gang, up to the first that fits nowhere.
    From that one on each joins a placed job with a gang of its size and no partner yet: the one with which it does
    most (`pair_gain` on that job's type), if that is more than `least_gain`; the first that finds none ends it.

    Parameters
    ----------
    columns : what N jobs do alone and in pairs, in order of arrival.
    capacity : (M,) GPUs of each type.
    least_gain : what a pair must do together, above.

    Returns shares of 1, alone and in pairs. Ties go to the type first in the alphabet, and to the job placed first.

    Source: Narayanan et al., OSDI 2020, section 6 (baseline), public artifact.
    """
    sizes = columns.scale_factors
    rates = np.where(sizes[:, None] <= capacity, columns.rates, 0.0)
    type_of, line = first_in_line(rates, sizes, capacity, columns.accelerators)
    alone, pairs = list(type_of), []
    for job in line:
        mates = [mate for mate in alone if sizes[mate] == sizes[job]]
        if not mates:
            break
        on = [type_of[mate] for mate in mates]
        gains = pair_gain(columns, np.full(len(mates), job), mates)[np.arange(len(mates)), on]
        best = int(np.argmax(gains))
        if not gains[best] > least_gain:
            break
        alone.remove(mates[best])
        pairs.append((min(mates[best], job), max(mates[best], job), on[best]))
    shares = np.zeros(rates.shape)
    shares[alone, [type_of[job] for job in alone]] = 1.0
    one, other, j = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 3).T
    return shares, Pairs(one, other, j, np.ones(len(pairs)))


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
        previous = [(i, k) for i, k in enumerate(state.current_partner.tolist()) if i < k]
        rng = np.random.default_rng([self.seed, round(state.clock * 1e6)])
        packing = gandiva(state.packed, state.capacity, rng, previous, least_gain=self.least_gain)
        return _allocation(self, state, *packing, started)


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
        return _allocation(self, state, *packing, started)


def _allocation(policy: SharePolicy, state: ClusterState, shares: Floats, pairs: Pairs, started: float) -> Allocation:
    return Allocation(
        policy=policy.name,
        throughputs=state.throughputs,
        shares=shares,
        status="order",
        pairs=pairs,
        pair_rates=pairs.rates(state.packed),
        seconds=perf_counter() - started,
    )
