"""How many rounds each job gets, while rounds are interchangeable: an exact method of our own."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from formulations.shockwave.program import PlanningProgram
from throughputs.arrays import Floats, Ints

GAP_FLOOR = 1e-3
"""Objectives smaller than this are taken for this large when a gap is stated relative to them."""

_LARGEST_COMPARABLE = 1e5
"""Where a gap is stated, priorities count up to this much, so that jobs of more do not hide all others."""


def relative_gap_of(excess: float, objective: float) -> float:
    """Distance from bound to objective, relative to the objective; nan where either is."""
    return max(excess, 0.0) / max(abs(objective), GAP_FLOOR)


def at_rounds(table: Floats, rounds_per_job: Ints) -> Floats:
    """(N,) entries of a table (N, R + 1) at each job's number of rounds."""
    return table[np.arange(len(rounds_per_job)), rounds_per_job]


@dataclass(frozen=True, eq=False)
class Objective:
    """``sum_j pr_j U_j / (N R) - k max_j L_j`` of numbers of rounds (N,); `priorities` (N,) are pr_j."""

    program: PlanningProgram
    priorities: Floats

    @cached_property
    def weights(self) -> Floats:
        """(N,) of the utilities."""
        return 1.0 / max(self.program.n_jobs * self.program.rounds, 1) * self.priorities

    @cached_property
    def gains(self) -> Floats:
        """(N, R) value of each job's n-th round, not rising along a row; 0 for jobs wider than the cluster."""
        steps = np.diff(self.program.utilities_by_rounds, axis=1)
        # concave but for rounding errors
        gains: Floats = np.maximum(np.minimum.accumulate(steps, axis=1), 0.0) * self.weights[:, None]
        gains[self.program.widths > self.program.gpus] = 0.0
        return gains

    def longest(self, rounds_per_job: Ints) -> float:
        """``max_j L_j``, seconds."""
        return float(at_rounds(self.program.remaining_by_rounds, rounds_per_job).max(initial=0.0))

    def value(self, rounds_per_job: Ints, largest: float = np.inf) -> float:
        """The objective, with priorities up to the `largest`."""
        weights = self.weights * np.minimum(1.0, largest / self.priorities)
        utilities = weights * at_rounds(self.program.utilities_by_rounds, rounds_per_job)
        return math.fsum((*utilities, -self.program.makespan_weight * self.longest(rounds_per_job)))

    def gap(self, rounds_per_job: Ints, excess: float) -> float:
        """Relative gap of numbers of rounds than which no others are better by more than `excess`."""
        return relative_gap_of(excess, self.value(rounds_per_job, _LARGEST_COMPARABLE))

    def lead(self, ours: Ints, theirs: Ints) -> float:
        """How much better some numbers of rounds are than others, with no digits lost to what both have in common."""
        at = np.arange(self.program.rounds)
        more = (at < ours[:, None]).astype(np.float64) - (at < theirs[:, None])
        gained = (self.gains * more)[more != 0]
        return math.fsum((*gained, self.program.makespan_weight * (self.longest(theirs) - self.longest(ours))))


def divides(widths: Ints) -> bool:
    """Whether each of the distinct widths divides the next wider one."""
    return all(wider % width == 0 for width, wider in pairwise(np.unique(widths)))


def best_rounds(gains: Floats, widths: Ints, gpus: int, floors: Ints) -> Ints:
    """(N,) best numbers of rounds that are at least `floors` (N,), which fit, where each width divides the next::

        max  sum_j sum_{n <= n_j} gain_jn
        s.t. sum_{j: w_j >= w} (w_j / w) n_j <= R floor(G / w)     for every width w that occurs
             floor_j <= n_j <= R

    The rows of the program follow from room for every job in every round; where G is a multiple of the widest width
    they say no more than ``sum_j w_j n_j <= R G``.

    From the narrowest width up: places that hold no wider job go to the best rounds at hand, and the others are
    filled with groups of rounds, best first, which then compete with the rounds of the next width. Exact, since an
    exchange argument allows any solution to be brought into this form, and only comparisons between gains and sums of
    a few of them are made, so gains of any scales may stand side by side.
    """
    n_rounds = gains.shape[1]
    values = np.where(np.arange(n_rounds) < floors[:, None], np.inf, gains).ravel()
    width_of = np.repeat(widths, n_rounds)
    # groups of rounds by their positions in `values`, -1 for none
    chosen, groups, worth = [], np.empty((0, 1), dtype=np.intp), np.empty(0)
    for width, wider in pairwise([*(int(width) for width in np.unique(widths) if width <= gpus), gpus + 1]):
        room, size = n_rounds * (gpus // width), wider // width
        single = room - n_rounds * size * (gpus // wider)
        own = np.flatnonzero(width_of == width)
        rows = np.full((len(own), groups.shape[1]), -1)
        rows[:, 0] = own
        groups, worth = np.concatenate([groups, rows]), np.concatenate([worth, values[own]])
        best = np.argsort(-worth, kind="stable")[:room]
        chosen.append(groups[best[:single]].ravel())
        # neighbours become groups, of which the last may be smaller
        spare = -max(len(best) - single, 0) % size
        groups = np.pad(groups[best[single:]], ((0, spare), (0, 0)), constant_values=-1)
        groups = groups.reshape(-1, size * groups.shape[1])
        worth = np.pad(worth[best[single:]], (0, spare)).reshape(-1, size).sum(axis=1)
    picked = np.zeros(values.size + 1, dtype=np.bool_)
    picked[np.concatenate([[-1], *chosen])] = True
    return np.asarray((picked[:-1] & (values > 0)).reshape(gains.shape).sum(axis=1))


def solve_rounds(objective: Objective, floors: Ints, *, relative_gap: float, deadline: float) -> tuple[Ints, float]:
    """The best numbers of rounds that are at least `floors` (N,), and how much better any others could be.

    RuntimeError if these do not fit.

    For a given longest remainder ``L`` every job has a least number of rounds, and what is left is a knapsack that
    `best_rounds` answers exactly. Only the figures ``L_j(n)`` can be the longest remainder of a best plan. A price of
    a GPU round bounds what any ``L`` can yield, all of them in one pass::

        bound(L) = sum_jn max(0, r_jn) - sum of max(0, -r_jn) over rounds forced by L + price R G - k L
        r_jn = gain_jn - price w_j

    The price at which the best of these bounds is least comes from a bisection. Then the most promising ``L`` is
    answered until none promises more than the best plan found and the gap allowed. Bounds are kept as differences from
    the best plan, which are sums of few terms of one sign: gains of 1e28 beside gains of 1 cost no digits.

    Parameters
    ----------
    relative_gap : at which to stop.
    deadline : on the clock of `time.monotonic`, after which the best plan so far is returned.
    """
    program, gains, pricing = objective.program, objective.gains, _Prices(objective, floors)
    widths, weight, levels = program.widths, program.makespan_weight, pricing.levels
    if not len(levels):
        raise RuntimeError("infeasible")
    candidate, *prices = pricing.dual_optimum()
    best, promise = floors, np.full(len(levels), np.inf)
    while True:
        least = np.maximum(floors, (program.remaining_by_rounds[:, :-1] > levels[candidate]).sum(axis=1))
        found = best_rounds(gains, widths, program.gpus, least)
        ahead = objective.lead(found, best)
        if ahead > 0:
            best, promise = found, promise - ahead
        promise = np.minimum.reduce([promise, *(pricing.bound(price, best) for price in prices)])
        # this remainder is answered, and shorter ones yield no more than it but for their shorter remainder
        at_most = min(ahead, 0.0) + weight * (objective.longest(found) - levels[candidate:])
        promise[candidate:] = np.minimum(promise[candidate:], at_most)
        promise[candidate] = -math.inf
        candidate = int(np.argmax(promise))
        excess = float(promise[candidate])
        if objective.gap(best, excess) <= relative_gap or time.monotonic() > deadline:
            return best, excess


class _Prices:
    """What prices of a GPU round say of the longest remainders that a best plan can have.

    Attributes
    ----------
    levels : (L,) these remainders, longest first, as far as the rounds that they force fit.
    """

    def __init__(self, objective: Objective, floors: Ints) -> None:
        program = self.program = objective.program
        self.objective, remaining, runs = objective, program.remaining_by_rounds, program.widths <= program.gpus
        self.gains, self.widths = objective.gains.ravel(), np.repeat(program.widths, program.rounds).astype(np.float64)
        self.density, self.capacity = self.gains / self.widths, program.gpus * program.rounds
        # a round is forced when what remains without it is longer than allowed
        before = np.where(np.arange(program.rounds) < floors[:, None], np.inf, remaining[:, :-1]).ravel()
        self.by_remainder = np.argsort(-before, kind="stable")
        least = np.where(runs, remaining[:, -1], remaining[:, 0]).max(initial=0.0)
        levels = np.unique(np.append(remaining, least))[::-1]
        levels = levels[levels >= least]
        forced = np.searchsorted(-before[self.by_remainder], -levels, side="left")
        widths, fits = self.widths[self.by_remainder], np.ones(len(levels), dtype=np.bool_)
        for width in np.unique(program.widths[runs]):
            used = np.append(0.0, np.cumsum(np.where(widths >= width, widths, 0.0)))
            fits &= used[forced] <= program.rounds * (program.gpus // width) * width
        self.levels, self.forced = levels[fits], forced[fits]

    def dual_optimum(self) -> tuple[int, float, float]:
        """The least price at which no more is asked for than there is, after its best remainder, and the next lower."""
        prices = np.unique(np.append(0.0, self.density)).tolist()
        at = bisect_left(range(len(prices) - 1), True, key=lambda i: self._asked(prices[i])[0] <= self.capacity)
        return self._asked(prices[at])[1], prices[at], prices[max(at - 1, 0)]

    def _asked(self, price: float) -> tuple[float, int]:
        """GPU rounds that jobs ask for at a price, under the remainder of the largest bound; and this."""
        reduced = self.gains - price * self.widths
        best = int(np.argmax(-self._unwanted(reduced)))
        asked = reduced > 0
        asked[self.by_remainder[: self.forced[best]]] = True
        return float(self.widths[asked].sum()), best

    def _unwanted(self, reduced: Floats) -> Floats:
        """(L,) loss by the rounds that each remainder forces, and by its length."""
        losses = np.append(0.0, np.cumsum(np.maximum(-reduced, 0.0)[self.by_remainder]))
        return np.asarray(losses[self.forced] + self.program.makespan_weight * self.levels)

    def bound(self, price: float, best: Ints) -> Floats:
        """(L,) how much better than a plan those of each remainder can be, at a price."""
        reduced, program = self.gains - price * self.widths, self.program
        wrong = np.ravel(np.arange(program.rounds) < best[:, None]) != (reduced > 0)
        slack = math.fsum(np.abs(reduced[wrong])) + price * float(self.capacity - (best * program.widths).sum())
        return slack - self._unwanted(reduced) + program.makespan_weight * self.objective.longest(best)
