"""Best responses of all jobs to given prices, in chunks of jobs whose arrays stay in the processor's cache.

A job pays ``s (p . x)`` for shares x of the types. What it can get lies on the lower convex hull of idle time, at the
origin, and the points ``(a_j, p_j)``. It goes along this hull, from each type to the next dearer one, as long as a unit
of throughput costs no more than it is worth to the job, its *multiplier*. Type k is reached at the multiplier::

    e_k = max(p_k / a_k, max over cheaper j of (p_k - p_j) / (a_k - a_j))

A job that needs a throughput d ends on the way to the first type that is fast enough, at ``min over a_k >= d of e_k``,
and takes turns between that type and the one before it. A job that is paid g for a unit of throughput ends at the last
type with ``e_k <= g``, unless it needs more. A job with a budget b, whose utility is ``b log u``, wants ``b / lambda``
at a multiplier lambda, and ends at ``min over k of max(b / a_k, e_k)``, on the way to type k or at it. (To a point
above the hull there is a steeper way than the hull has there, so that no minimum is attained at it.)

So a response is a *mix* of two types, the cheaper and the dearer one, idle time counting as type M; a type for all the
time is a mix with itself. The scale factor changes no choice: it makes all types dearer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from throughputs.arrays import Floats, Positions

States = NDArray[np.unsignedinteger]
Result = TypeVar("Result")

_CHUNK = 8192
"""Jobs whose arrays stay in the processor's cache together."""

_THREADS = 2
"""Threads that share the chunks; the passes are bound by memory, and more bring little."""

_ROUNDING = 1e-12
"""How far beyond its fastest type a demand may be."""

_NO_CHOICE = 1e-9
"""Part of its time on its fastest type that a job does not need, and yet has no choice."""

_LEAST_PRICE = 0.01
"""Part of the highest price below which errors of a price are measured as if it were so high."""


@dataclass(frozen=True, eq=False)
class Wants:
    """What jobs want, (K,) each or None.

    Attributes
    ----------
    demand, growth : throughput that they need, and its growth with the level, relative to where that is.
    gain : what a job is paid for a unit of throughput, per GPU of its gang.
    budget : what a job pays per GPU of its gang, where its utility is the logarithm of its throughput.
    """

    demand: Floats | None = None
    growth: Floats | None = None
    gain: Floats | None = None
    budget: Floats | None = None

    def take(self, jobs: Positions | slice) -> Wants:
        """What some of them want."""
        return Wants(*(None if each is None else each[jobs] for each in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over jobs by mix, (4, (M + 1)^2): GPUs, GPUs on the second type, growth of the latter with the level, and
    what is paid by budgets; at `prices` (M + 1,)."""

    sums: Floats
    prices: Floats

    def less(self, some: Totals) -> Totals:
        """Without some of the jobs."""
        return Totals(self.sums - some.sums, self.prices)

    @property
    def usage(self) -> Floats:
        """(M,) GPUs that these jobs take of each type."""
        return self._by_type(self.sums[0] - self.sums[1], self.sums[1])

    @property
    def growth(self) -> Floats:
        """(M,) how usage grows with the level."""
        return self._by_type(-self.sums[2], self.sums[2])

    def _by_type(self, of_first: Floats, of_second: Floats) -> Floats:
        types = len(self.prices)
        total = of_first.reshape(types, types).sum(axis=1) + of_second.reshape(types, types).sum(axis=0)
        return np.asarray(total[:-1])

    def folded(self, negligible: float) -> tuple[Floats, Floats, Floats, Floats]:
        """What those on one type alone take (M,), and of one class for those of each other mix: rates (M, F), how many
        jobs of one GPU it stands for (F,), and the budget of each (F,); none for a `negligible` part of all GPUs.

        A job that takes turns between j and k spends ``b / (p_k - p_j) - a_j / (a_k - a_j)`` of its time on k. The sum
        over jobs has the same form, with means of b and of the second term: the response of a class that gains 1 on k
        over j.
        """
        mass, on_second, _, paid = self.sums
        M = len(self.prices) - 1
        first, second = np.divmod(np.arange(len(mass)), M + 1)
        alone = np.asarray(mass.reshape(M + 1, M + 1).diagonal()[:M])
        some = np.flatnonzero((first != second) & (mass > negligible * float(np.add.reduce(mass))))
        first, second, mass, paid = first[some], second[some], mass[some], paid[some]
        step = self.prices[second] - self.prices[first]
        slow = np.where(first == M, 0.0, (paid / step - on_second[some]) / mass)
        rates = np.zeros((M + 1, len(some)))
        rates[first, np.arange(len(some))] = slow
        rates[second, np.arange(len(some))] = 1.0 + slow
        return alone, rates[:M], mass, paid / mass


class Responses:
    """Best responses of K jobs with `rates` (K, M) and `loads` (K,), GPUs of each, that want `wants`, to prices (M,).

    Attributes
    ----------
    states : (K,) number of each job's mix: ``(M + 1) first + second``.
    totals : what they take.
    """

    def __init__(self, rates: Floats, loads: Floats, wants: Wants, prices: Floats) -> None:
        self.rates, self.loads, self.wants, self.prices = rates, loads, wants, prices
        size = (len(prices) + 1) ** 2
        self.states = np.zeros(len(rates), dtype=np.min_scalar_type(size))
        sums = self._by_chunk(lambda chunk, part: chunk.respond(self.states[part], loads[part]))
        self.totals = Totals(np.sum([np.zeros((4, size)), *sums], axis=0), np.append(prices, 0.0))

    def of(self, jobs: Positions, loads: Floats) -> Responses:
        """Those of some of them, with other `loads`."""
        return Responses(self.rates[jobs], loads, self.wants.take(jobs), self.prices)

    def to(self, prices: Floats) -> Responses:
        """Theirs to other prices."""
        return Responses(self.rates, self.loads, self.wants, prices)

    def distances(self) -> Floats:
        """(K,) about how much prices may change, relatively, before another mix is better."""
        return np.concatenate(self._by_chunk(lambda chunk, part: chunk.distances(self.states[part])))

    def shares(self) -> tuple[Floats, Floats]:
        """(K, M) shares of time, and (K,) multipliers of demands per GPU of the gang."""
        shares, multipliers = np.empty(self.rates.shape), np.empty(len(self.rates))
        self._by_chunk(lambda chunk, part: chunk.write(self.states[part], shares[part], multipliers[part]))
        return shares, multipliers

    def _by_chunk(self, work: Callable[[_Chunk, slice], Result]) -> list[Result]:
        K, prices = len(self.rates), np.append(self.prices, 0.0)
        parts = [slice(at, min(at + _CHUNK, K)) for at in range(0, K, _CHUNK)]

        def run(part: slice) -> Result:
            # divisions by zero are expected; each thread has to be told
            with np.errstate(all="ignore"):
                return work(_Chunk(self.rates[part], self.wants.take(part), prices), part)

        if len(parts) == 1:
            return [run(parts[0])]
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(run, parts))


class _Chunk:
    """Some jobs; rates by type, idle time being the last."""

    def __init__(self, rates: Floats, wants: Wants, prices: Floats) -> None:
        self.n, self.M = rates.shape
        self.wants, self.prices = wants, prices
        self.rates = np.zeros((self.M + 1, self.n))
        self.rates[: self.M] = rates.T
        # nothing to divide time for: every mix is of one type
        self.single = wants.demand is None and wants.budget is None

    def respond(self, states: States, loads: Floats) -> Floats:
        """Write the number of each job's best mix to `states`; the sums of what they take (see `Totals`).

        Mixes are numbered as they are tried first, so that the last one that is better is the maximum: masked copies
        would take ten times as long.
        """
        rates, prices, M, wants = self.rates, self.prices.tolist(), self.M, self.wants
        best, value, ratio = np.full(self.n, np.inf), np.empty(self.n), np.empty(self.n)
        flag, number, tried = np.empty(self.n, dtype=bool), np.empty_like(states), [0]
        order = sorted(range(M), key=prices.__getitem__)

        def better(than: States, first: int, second: int) -> None:
            """The mix of two types where the flag is set."""
            tried.append((M + 1) * first + second)
            np.maximum(than, np.multiply(flag, than.dtype.type(len(tried) - 1)), out=than)

        states.fill(0)
        if wants.demand is not None or wants.budget is not None:
            need = None if wants.demand is None else wants.demand * (1.0 - _ROUNDING)
            for at, k in enumerate(order):
                number.fill(len(tried))
                tried.append((M + 1) * M + k)
                if wants.budget is None:
                    np.divide(prices[k], rates[k], out=value)
                else:
                    np.maximum(wants.budget, prices[k], out=value)
                    value /= rates[k]
                    np.greater(wants.budget, prices[k], out=flag)
                    better(number, k, k)
                for j in order[:at]:
                    if prices[j] < prices[k]:
                        np.subtract(rates[k], rates[j], out=ratio)
                        np.divide(prices[k] - prices[j], ratio, out=ratio)
                        np.greater(ratio, value, out=flag)
                        better(number, j, k)
                        np.maximum(ratio, value, out=value)
                if need is not None:
                    # a type that is too slow is beyond all multipliers
                    value /= np.greater_equal(rates[k], need, out=flag)
                np.less(value, best, out=flag)
                np.maximum(states, np.multiply(flag, number, out=number), out=states)
                np.fmin(value, best, out=best)
        if wants.gain is not None:
            # no further than it pays, unless more is needed
            paid = np.ones(self.n, dtype=bool) if wants.demand is None else best < wants.gain
            profit = np.zeros(self.n)
            flag[:] = paid
            better(states, M, M)
            for k in order:
                np.multiply(wants.gain, rates[k], out=value)
                value -= prices[k]
                np.greater(value, profit, out=flag)
                flag &= paid
                better(states, k, k)
                np.maximum(value, profit, out=profit)
        states[:] = np.array(tried, dtype=states.dtype).take(states)
        size = len(self.prices) ** 2
        sums = np.zeros((4, size))
        sums[:2] = np.bincount(states, loads, size)
        if self.single:
            return sums
        self._mix(states)
        sums[1] = np.bincount(self.states, loads * self.share, size)
        if wants.growth is not None:
            sums[2] = np.bincount(self.states, loads * wants.growth / self.span, size)
        if wants.budget is not None:
            sums[3] = np.bincount(self.states, loads * wants.budget, size)
        return sums

    def _mix(self, states: States) -> None:
        """Note the mixes: the rate of the first type, the difference to the second, and the second's share."""
        first, second = np.divmod(np.arange((self.M + 1) ** 2), self.M + 1)
        self.states, place = states.astype(np.intp), np.arange(self.n)
        self.first = self.second = first[self.states]
        flat = self.rates.ravel()
        self.low = flat.take(self.first * self.n + place)
        if self.single:
            return
        self.second = second[self.states]
        self.span = flat.take(self.second * self.n + place)
        self.span -= self.low
        self.step = (self.prices[second] - self.prices[first])[self.states]
        self.alone = (first == second)[self.states]
        if self.wants.demand is not None:
            self.share = (self.wants.demand - self.low) / self.span
        elif self.wants.budget is not None:
            # where what is left of the budget buys the step from one type to the other
            self.share = self.wants.budget / self.step - self.low / self.span
        np.minimum(np.maximum(self.share, 0.0, out=self.share), 1.0, out=self.share)
        np.fmax(self.share, self.alone, out=self.share)

    def distances(self, states: States) -> Floats:
        """Every condition under which the mix is the best one is linear in the prices."""
        self._mix(states)
        wants, prices, M = self.wants, self.prices, self.M
        # what costs nothing goes on costing nothing
        width = np.where(prices > 0, np.maximum(prices, _LEAST_PRICE * prices.max()), 0.0)
        cheap, wide = prices[self.first], width[self.first]
        multiplier, ends = np.asarray(wants.gain) if self.single else self.step / self.span, []
        if wants.gain is not None and wants.demand is not None:
            # the last of the throughput is not worth its price
            multiplier = np.where(self.alone, wants.gain, multiplier)
            ends = [multiplier - wants.gain]
        if wants.budget is not None:
            # the budget buys more than the first type and no more than the second
            multiplier = np.where(self.alone, wants.budget / self.low, multiplier)
            ends = [multiplier - wants.budget / (self.low + self.span), wants.budget / self.low - multiplier]
        nearest = np.full(self.n, np.inf)
        for kind in range(M + 1):
            # no other type lies below the line through the types of the mix
            moves = self.rates[kind] - self.low
            moves *= multiplier
            above = prices[kind] - cheap
            above -= moves
            np.abs(moves, out=moves)
            moves += wide
            moves += width[kind]
            above /= moves
            np.copyto(above, np.inf, where=(self.first == kind) | (self.second == kind))
            np.fmin(nearest, above, out=nearest)
        if wants.demand is not None:
            # who needs all of its time on its fastest type has no choice
            np.copyto(nearest, np.inf, where=wants.demand >= (1.0 - _NO_CHOICE) * self.rates.max(axis=0))
        for above in ends:
            above *= self.span / (wide + width[self.second])
            np.copyto(above, np.inf, where=self.alone)
            np.fmin(nearest, above, out=nearest)
        return nearest

    def write(self, states: States, shares: Floats, multipliers: Floats) -> None:
        """Fill in the shares and multipliers."""
        self._mix(states)
        if self.single:
            np.equal(self.first[:, None], np.arange(self.M), out=shares)
            multipliers.fill(0.0)
            return
        for kind in range(self.M):
            column = (1.0 - self.share) * (self.first == kind)
            column += self.share * (self.second == kind)
            shares[:, kind] = column
        multiplier = self.step / self.span
        if self.wants.gain is not None:
            multiplier -= self.wants.gain
        np.copyto(multipliers, np.where(self.alone, 0.0, np.maximum(multiplier, 0.0)))
