"""Numbers of rounds for jobs whose rounds are interchangeable: an exact method of our own."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from formulations.shockwave.knapsack import DivisibleKnapsack
from throughputs.arrays import Flags, Floats, Ints

GAP_FLOOR = 1e-3
"""Objectives smaller than this are taken for this large when a gap is stated relative to them."""


def relative_gap_of(excess: float, objective: float) -> float:
    """Distance from bound to objective, relative to the objective; nan where either is."""
    return max(excess, 0.0) / max(abs(objective), GAP_FLOOR)


@dataclass(frozen=True, eq=False)
class RoundsAnswer:
    """Numbers of rounds, and how much better any others could be.

    Attributes
    ----------
    rounds_per_job : (N,) n_j.
    objective : its value.
    excess : no other numbers are better by more than this.
    reference : size of the objective that the gap is relative to.
    solver : whose numbers these are.
    schedule : (N, R) their places, where they came with them.
    """

    rounds_per_job: Ints
    objective: float
    excess: float
    reference: float
    solver: str = "knapsack"
    schedule: Flags | None = None

    @property
    def gap(self) -> float:
        """Distance from what is possible, relative to the objective."""
        return relative_gap_of(self.excess, self.reference)


def solve_rounds(
    gains: Floats,
    start: Floats,
    remaining: Floats,
    widths: Ints,
    gpus: int,
    makespan_weight: float,
    floors: Ints,
    comparable: Floats,
    *,
    relative_gap: float,
    deadline: float,
) -> RoundsAnswer | None:
    """Maximise ``sum_j sum_{n <= n_j} gain_jn - k max_j L_j(n_j)`` over whole ``n_j``; None if the floors do not fit.

    For a given longest remainder ``L`` every job has a least number of rounds, and what is left is a knapsack that
    `DivisibleKnapsack` answers exactly. Only the figures ``L_j(n)`` can be the longest remainder of a best plan. A
    price of a GPU round bounds what any ``L`` can yield, all of them in one pass::

        bound(L) = sum_jn max(0, r_jn) - sum of max(0, -r_jn) over rounds forced by L + price R G - k L
        r_jn = gain_jn - price w_j

    The price at which the best of these bounds is least comes from a bisection. Then the most promising ``L`` is
    answered until none promises more than the best plan found and the gap allowed. Bounds are kept as differences from
    the best plan, which are sums of few terms of one sign: gains of 1e28 beside gains of 1 cost no digits.

    Parameters
    ----------
    gains : (N, R) gain of the n-th round, at least 0, not rising along a row.
    start : (N,) value of each job with no round at all.
    remaining : (N, R + 1) L_j after 0..R rounds, seconds.
    widths, gpus : of the jobs, of the cluster.
    makespan_weight : k, per second.
    floors : (N,) least numbers of rounds.
    comparable : (N,) factor of each job's value in the size that the gap is relative to; below 1 for jobs that would
        hide all others.
    relative_gap : at which to stop.
    deadline : on the clock of `time.monotonic`, after which the best plan so far is returned.
    """
    search = _Search(gains, start, remaining, widths, gpus, makespan_weight, floors, comparable)
    if not len(search.levels):
        return None
    candidate = search.settle_price()
    while True:
        search.answer(candidate)
        candidate = int(np.argmax(search.promise))
        excess = float(search.promise[candidate])
        if relative_gap_of(excess, search.reference) <= relative_gap or time.monotonic() > deadline:
            return RoundsAnswer(search.incumbent, search.objective, max(excess, 0.0), search.reference)


class _Search:
    """The state of `solve_rounds`: the best plan so far, and what each longest remainder promises beyond it."""

    def __init__(
        self,
        gains: Floats,
        start: Floats,
        remaining: Floats,
        widths: Ints,
        gpus: int,
        weight: float,
        floors: Ints,
        comparable: Floats,
    ) -> None:
        self.knapsack = DivisibleKnapsack(gains, widths, gpus)
        self.gains, self.start, self.remaining, self.weight, self.floors = gains, start, remaining, weight, floors
        self.widths, self.comparable = widths, comparable
        n_rounds = gains.shape[1]
        self.capacity = float(gpus * n_rounds)
        self.flat = gains.ravel()
        self.width_of = np.repeat(widths, n_rounds).astype(np.float64)
        # a round is forced when what remains without it is longer than allowed
        before = np.where(np.arange(n_rounds) < floors[:, None], np.inf, remaining[:, :-1])
        self.by_remainder = np.argsort(-before, axis=None, kind="stable")
        ordered = before.ravel()[self.by_remainder]
        self.levels = self._levels()
        self.forced = np.searchsorted(-ordered, -self.levels, side="left")
        self._drop_levels_without_room()
        self.promise = np.full(len(self.levels), np.inf)
        self.prices: list[float] = []
        self.programs = 0
        self.incumbent = np.zeros(len(widths), dtype=np.int64)
        self.longest = math.nan
        self.objective = self.reference = -math.inf

    def _levels(self) -> Floats:
        """Longest remainders that a best plan can have, longest first."""
        runs = (self.widths <= self.knapsack.gpus) & (self.gains.shape[1] > 0)
        least = np.where(runs, self.remaining[:, -1], self.remaining[:, 0]).max(initial=0.0)
        if self.weight == 0:
            return np.array([self.remaining[:, 0].max(initial=0.0)])
        levels = np.unique(np.append(self.remaining, least))
        return np.asarray(levels[levels >= least][::-1])

    def _drop_levels_without_room(self) -> None:
        """Keep the remainders whose forced rounds fit; shorter ones force more."""
        widths = self.width_of[self.by_remainder]
        n_rounds = self.gains.shape[1]
        room = np.ones(len(self.levels), dtype=np.bool_)
        for level in self.knapsack.levels:
            used = np.append(0.0, np.cumsum(np.where(widths >= level.width, widths, 0.0)))
            room &= used[self.forced] <= n_rounds * level.per_round * level.width
        if not self.knapsack.fits(self.floors):
            room[:] = False
        self.levels, self.forced = self.levels[room], self.forced[room]

    def settle_price(self) -> int:
        """Bisect for the price of the least bound; the remainder that looks best at it."""
        prices = np.unique(self.flat / self.width_of)
        prices = np.append(0.0, prices[prices > 0])
        low, high = 0, len(prices) - 1
        best = 0
        while low < high:
            middle = (low + high) // 2
            best, used = self._best_at(float(prices[middle]))
            if used > self.capacity:
                low = middle + 1
            else:
                high = middle
        self.prices = [float(prices[at]) for at in (low, max(low - 1, 0))]
        best, _ = self._best_at(self.prices[0])
        return best

    def _best_at(self, price: float) -> tuple[int, float]:
        """ResidualProgram of the largest bound at this price, and the GPU rounds that its jobs ask for."""
        reduced = self.flat - price * self.width_of
        unwanted = np.minimum(reduced, 0.0)[self.by_remainder]
        cost = np.append(0.0, np.cumsum(unwanted))[self.forced] - self.weight * self.levels
        best = int(np.argmax(cost))
        wanted = reduced > 0
        asked = float(self.width_of[wanted].sum())
        compelled = self.by_remainder[: self.forced[best]]
        return best, asked + float(self.width_of[compelled][~wanted[compelled]].sum())

    def answer(self, candidate: int) -> None:
        """Solve the knapsack of one remainder, and bring the promises up to date."""
        level = float(self.levels[candidate])
        least = np.maximum(self.floors, (self.remaining[:, :-1] > level).sum(axis=1))
        found = self.knapsack.best(least)
        assert found is not None
        self.programs += 1
        longest = self.longest_of(found)
        better = self._difference(found, longest) if self.programs > 1 else math.inf
        if better > 0:
            self.incumbent, self.longest = found, longest
            values = self.start + (self.gains * (np.arange(self.gains.shape[1]) < found[:, None])).sum(axis=1)
            self.objective = math.fsum((*values, -self.weight * longest))
            self.reference = math.fsum((*(values * self.comparable), -self.weight * longest))
            if self.programs > 1:
                self.promise -= better
            for price in (*self.prices, self._price_of(found, least)):
                self._bound(price)
            value = 0.0
        else:
            self._bound(self._price_of(found, least))
            value = better
        # this remainder is answered, and shorter ones yield no more than it but for their shorter remainder
        at_most = value + self.weight * (longest - self.levels)
        self.promise[candidate:] = np.minimum(self.promise[candidate:], at_most[candidate:])
        self.promise[candidate] = -math.inf

    def longest_of(self, rounds: Ints) -> float:
        """Longest remainder of a plan, seconds."""
        return float(self.remaining[np.arange(len(rounds)), rounds].max(initial=0.0))

    def _chosen(self, rounds: Ints) -> Flags:
        chosen: Flags = (np.arange(self.gains.shape[1]) < rounds[:, None]).ravel()
        return chosen

    def _difference(self, rounds: Ints, longest: float) -> float:
        """How much better a plan is than the best so far, with no digits lost to what both have in common."""
        ours, theirs = self._chosen(rounds), self._chosen(self.incumbent)
        terms = np.concatenate((self.flat[ours & ~theirs], -self.flat[theirs & ~ours]))
        return math.fsum((*terms, -self.weight * longest, self.weight * self.longest))

    def _price_of(self, rounds: Ints, least: Ints) -> float:
        """Best gain per GPU that a plan leaves out, the price at which its own remainder is best bounded."""
        used = float((rounds * self.widths).sum())
        if used + float(self.widths.min(initial=1)) <= self.capacity:
            return 0.0
        chosen = self._chosen(rounds)
        free = chosen & ~self._chosen(least)
        if not free.any():
            return float((self.flat / self.width_of)[~chosen].max(initial=0.0))
        return float((self.flat / self.width_of)[free].min())

    def _bound(self, price: float) -> None:
        """What each remainder promises beyond the best plan, at this price of a GPU round."""
        reduced = self.flat - price * self.width_of
        chosen = self._chosen(self.incumbent)
        unused = self.capacity - float((self.incumbent * self.widths).sum())
        slack = math.fsum(np.abs(reduced[chosen != (reduced > 0)])) + price * unused
        unwanted = np.append(0.0, np.cumsum(np.maximum(-reduced, 0.0)[self.by_remainder]))
        bound = slack - unwanted[self.forced] - self.weight * (self.levels - self.longest)
        np.minimum(self.promise, bound, out=self.promise)
