"""What policies that are an order have in common: a sort key over jobs, and gang fill, also by fractions of a GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from allocator.fractions import ROUNDING_OF_SUMS, FreeFractions, SharedGpus
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, Trigger
from allocator.protocol.plan import JobMemory, of_each_job
from allocator.protocol.policy import Hindrance
from allocator.protocol.views import Needs
from allocator.room import CountedGpus
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Values
from throughputs.numerics import tie_order


@dataclass(frozen=True)
class OrderPolicy(PlanPolicy):
    """Jobs in line by a key; each takes its gang on the fastest pool that has room, until something happens.

    Decides at arrivals and completions, not in rounds. A job that runs keeps its place in line only as far as its key
    says so: a new one with a smaller key preempts it.

    Attributes
    ----------
    strict_queue : whether a gang that does not fit lets nobody behind it pass.

    >>> class WidestFirst(OrderPolicy):
    ...     name = "widest_first"
    ...     def key(self, state):
    ...         return -state.scale_factors.astype(float)
    >>> import allocator
    >>> allocator.solve(WidestFirst(), {"v100": [1.0, 1.0], "scale_factor": [1, 2]}, "v100:2").shares.tolist()
    [[0.0], [1.0]]
    """

    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION | Trigger.RATES | Trigger.CAPACITY
    needs: ClassVar[Needs] = Need.FRACTIONS
    strict_queue: ClassVar[bool] = False

    @abstractmethod
    def key(self, state: ClusterState) -> Floats:
        """(N,) smallest first; equal ones in the order of their ids."""

    def plan(self, state: ClusterState, memory: Any) -> Plan:  # noqa: ARG002
        """Who runs from now on."""
        order = self._order(state)
        chosen, pool = fill_state(state, order, self.strict_queue)
        return Plan.until_next_event(Assignment.of(chosen, pool, state.scale_factors[chosen]))

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:
        """Its place in line, and whether a gang before it lets nobody pass."""
        order = self._order(state)
        chosen, pool = fill_state(state, order, self.strict_queue)
        place = int((order == job).argmax())
        if job in chosen or not place:
            return None
        gpus = state.gpus_taken
        behind = f"place {place + 1} of {state.n_jobs} in line"
        free = state.capacity - np.bincount(pool, gpus[chosen], len(state.capacity))
        able = state.runnable_rates > 0
        stuck = [i for i in order[:place].tolist() if i not in chosen and able[i].any()]
        held_up = self.strict_queue and ((free >= gpus[job]) & able[job]).any()
        return in_line(state, behind, stuck if held_up else [], "lets nobody pass")

    def _order(self, state: ClusterState) -> Ints:
        """(N,) positions, the first in line first."""
        key = np.asarray(self.key(state))
        if key.shape != (state.n_jobs,) or key.dtype.kind not in "biuf" or np.count_nonzero(key != key):
            expected = f"shape ({state.n_jobs},), one number for each job"
            raise InputError(f"policy {self.name}", field="key", found=key.tolist(), expected=expected)
        return np.asarray(key.argsort(kind="stable"))


def in_line(state: ClusterState, behind: str, stuck: Sequence[int], rule: str) -> Hindrance:
    """A job is `behind` others, of which those that are `stuck` (positions), as they find no room, hold it up."""
    if not len(stuck):
        return Hindrance("ranked_behind", behind)
    first, *others = stuck
    label, gpus, more = state.throughputs.jobs[first], state.gpus_taken[first], len(others)
    unit = "of a GPU" if gpus < 1 else "GPU" if gpus == 1 else "GPUs"
    rest = f"; {more} more before it find{'s' * (more == 1)} no room either" if more else ""
    return Hindrance("queue_blocked", f"{behind}; job {label} before it needs {gpus:g} {unit}, and {rule}{rest}")


def in_order_of_arrival(state: ClusterState, jobs: Ints) -> Ints:
    """The `jobs` (positions), the first to arrive first; of several at once the order of labels decides."""
    if len(jobs) < 2:
        return jobs
    labels = state.throughputs.jobs
    by_label = jobs[tie_order([labels[i] for i in jobs.tolist()])]
    return np.asarray(by_label[np.argsort(-state.elapsed_seconds[by_label], kind="stable")])


def fill_state(state: ClusterState, order: Ints, strict: bool = False) -> tuple[Ints, Ints]:
    """Gang fill of the jobs of a state, in this order of their positions; see `fill_in_order`."""
    fractions = state.known("gpu_thousandths") is not None
    own = None if fractions else state.own_pools
    if own is None:
        return fill_in_order(order, state.gpus_taken, state.rates, state.capacity, strict, fractions=fractions)
    pools = own.take(order)
    if np.count_nonzero(pools < 0):
        order, pools = order[pools >= 0], pools[pools >= 0]
    return _fill_own_pools(order, state.scale_factors.take(order), pools, state.capacity, strict)


def fill_in_order(
    order: Ints, gpus: Values, rates: Floats, capacity: Ints, strict: bool = False, *, fractions: bool = False
) -> tuple[Ints, Ints]:
    """Gang fill: who runs, and on which pool.

    Parameters
    ----------
    order : (K,) jobs, the first in line first; those that no pool can run are passed over.
    gpus : (N,) GPUs of each gang, or the fraction of a GPU that a job asks for.
    rates : (N, M) throughput, 0 where the gang cannot run; of equal ones the first pool is taken.
    capacity : (M,) free GPUs.
    strict : a gang that does not fit lets nobody behind it pass.
    fractions : jobs share GPUs, at most one in sum on each, best fit. GPUs are filled from empty ones; placement keeps
        those in place who go on, as long as all find room that way.

    Returns (R,) jobs and (R,) pools, in the order in which they were chosen.
    """
    usable, sizes = rates.take(order, axis=0), gpus.take(order)
    rows, own = (usable > 0).nonzero()
    if not fractions and not np.count_nonzero(rows[1:] == rows[:-1]):
        return _fill_own_pools(order.take(rows), sizes.take(rows), own, capacity, strict)
    counts = [CountedGpus(count) for count in capacity.tolist()]
    free = [FreeFractions(count, SharedGpus()) for count in counts] if fractions else counts
    left, smallest = float(capacity.sum()), min(sizes.tolist(), default=0)
    chosen: list[tuple[int, int]] = []
    by_rate, able = (-usable).argsort(axis=1, kind="stable").tolist(), np.bincount(rows, minlength=len(order)).tolist()
    for job, size, pools, count in zip(order.tolist(), sizes.tolist(), by_rate, able, strict=True):
        pool = next((pool for pool in pools[:count] if free[pool].take(size)), -1)
        if pool >= 0:
            chosen.append((job, pool))
            left -= size
        if left + ROUNDING_OF_SUMS < smallest or (strict and count and pool < 0):
            break
    jobs, on = np.array(chosen, dtype=np.int64).reshape(-1, 2).T
    return jobs, on


def _fill_own_pools(order: Ints, sizes: Ints, pools: Ints, free: Ints, strict: bool) -> tuple[Ints, Ints]:
    """Gang fill where no job can choose between pools, as on virtual clusters: of each in `order` its size and pool."""
    # In each pool they get it up to the first for whom those before it leave too little.
    by_pool = pools.argsort(kind="stable")
    wanted = np.bincount(pools, sizes, len(free))
    limit = free + (wanted.cumsum() - wanted)
    fits = np.empty(len(order), dtype=np.bool_)
    fits[by_pool] = sizes.take(by_pool).cumsum() <= limit.take(pools.take(by_pool))
    some_wait = np.count_nonzero(fits) < len(fits)
    if strict and some_wait:
        fits[fits.argmin() :] = False
    elif some_wait:
        left = free - np.bincount(pools, sizes * fits, len(free)).astype(np.int64)
        small = (~fits & (sizes <= left.take(pools))).nonzero()[0]
        rest = left.tolist()
        for at, size, pool in zip(small.tolist(), sizes[small].tolist(), pools[small].tolist(), strict=True):
            if size <= rest[pool]:
                fits[at] = True
                rest[pool] -= size
    return order.compress(fits), pools.compress(fits)


@dataclass(eq=False)
class Turns(JobMemory):
    """A line.

    Attributes
    ----------
    turn : (N,) ascending in the order in which jobs have their turn.
    """

    turn: Ints = of_each_job(0)

    def recall(self, state: ClusterState) -> Ints:
        """Make it the line of the jobs of `state`, new ones last; (N,) where they stood before, -1 for new ones."""
        before = self.align(state.labels)
        self.send_back(in_order_of_arrival(state, np.flatnonzero(before < 0)))
        return before

    def send_back(self, jobs: Ints) -> None:
        """Put `jobs` (positions) at the end of the line, in this order."""
        if len(jobs):
            self.turn[jobs] = self.turn.max(initial=0) + 1 + np.arange(len(jobs))
