"""The choice among optima.

An optimum of a share policy is rarely unique: one job at its limit fixes the value and leaves the rest of the cluster
undecided. The choice is part of the policy:

``balanced`` (default)
    Of all allocations that attain the optimum, take the one with the largest total normalised throughput; this leaves
    no GPU idle that some job could use, and no job can gain without another losing (Pareto efficiency). Among those,
    take shares that are as even as possible::

        max_x  sum_ij q_ij x_ij  -  e/2 sum_i (max_j q_ij) sum_j x_ij^2         u_i >= demand_i(optimum)

    with q_ij = s_i T_ij / p_i (p_i: throughput under the proportional share) and e = 1e-6. The objective is strictly
    concave, so the answer is unique: it does not depend on the solver that found the optimum, and equal jobs get equal
    shares. The square costs at most e/2 of the throughput.

    Types on which every job is as fast are one type to the program, and shares are split over them as their GPUs are.

    What it depends on: not at all on the order of jobs and types, as both are put into an order that their figures
    determine.
    Another unit of throughput or of GPUs changes the rounding of the program, and the choice is resolved to a gap of
    1e-13 only: shares then agree within 2e-4, mostly within 1e-8, and each job's throughput within 1e-6 of its fastest
    (1e-5 where weights span decades or a type has next to no GPUs). A sum of logarithms is flat at its optimum: a gap
    of 1e-9 settles throughputs to the square root of that, within 1e-4. Jobs listed twice, or a type as two halves,
    are another program to rounding: in a sum, shares of jobs that nearly tie may differ by some hundredths.
    In a sum whose gains span many decades less is resolved for jobs whose time is worth a millionth of others'; and
    another solver finds the optimum with other last digits, on which what is left for the choice may hang.

Another choice is a `Chooser` that a package brings along, under its name in the entry points ``formulations.choices``:
whom it asks, how nearly, and what it takes. ``published`` is that of `allocator.published.gavel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from formulations.core.certificate import Certificate, made_feasible
from formulations.core.objectives import Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.interior_point.structured import solve_with_floors
from formulations.prices import search as prices
from formulations.solving.backends import Backend, in_order
from formulations.solving.uniqueness import is_unique
from throughputs import InputError
from throughputs.arrays import Flags, Floats
from throughputs.entry_points import entries_of
from throughputs.errors import one_of
from throughputs.numerics import dot

EVENNESS = 1e-6
"""Weight e of the squared shares; a tenth of it where the worth is the objective itself (a sum of throughputs)."""

_RELAXATIONS = (1e-9, 4e-9, 9e-9)
"""Fractions by which the optimum is relaxed so that the choice has an interior to search, tried in turn."""

_PRECISION = 1e-13
"""Relative gap of the choice: the square is small, and is resolved only far below it."""

_NEGLIGIBLE_YIELD = 1e-9
"""Part of what a job's best share yields below which a share is taken for none."""

_ACCEPTED_LOSS = 1e-8
"""Relative loss of the objective up to which a choice is accepted."""

_MOST_CLASSES_AT_ONCE = 3000
"""Number of classes below which total worth and evenness are sought at once."""

_ROUNDING = 1e-12
"""Relative error of a difference of two sums: multipliers that are no larger than it prove nothing."""

_MOST_CLASSES_TO_EVEN = 20_000
"""Number of classes above which shares are not evened out: the last of many jobs' ties are not worth the time."""

_HOLDING_MULTIPLIER = 1e-7
"""Multiplier of a floor, relative to the gain, from which the floor holds the job's throughput."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen shares (N, M), and how far their total worth is from the most possible, relative; nan: not asked."""

    shares: Floats
    efficiency_gap: float = np.nan


@dataclass(frozen=True, eq=False)
class Among:
    """The optima of a program, of which `best` is one: the ways to choose among them that objectives ask for.

    Most contended programs leave nothing to choose, and their multipliers prove it; the others are solved for the
    total worth, and once more for evenness where that is not unique either. Should rounding keep every choice from
    attaining the optimum, its own shares are returned.
    """

    polytope: Polytope
    best: Certificate

    def as_found(self) -> Choice:
        """The optimum at hand."""
        return Choice(self.best.shares)

    def of_sum(self, gains: Floats) -> Choice:
        """Where the objective is the sum of throughputs by their `gains` (N,): the most even."""
        best = self.best
        if self._settled(gains, best.gap, np.zeros(self.polytope.n_jobs, dtype=bool)):
            return self._at_hand(best.gap)
        return _choose(self.polytope, gains, None, None, EVENNESS / 10) or self.as_found()

    def of_throughputs(self, held: Flags, *, raising: bool) -> Choice:
        """Where throughputs are unique and efficient: the most even, or where they may be `raising`, of the most worth.

        What rounding leaves of capacity is worth nothing to speak of, but it may be the world to a job that has next to
        nothing: a lexicographic optimum is kept to. `held` (N,) are jobs whose throughput the multipliers prove to be
        the only one.
        """
        u, best = self.polytope.throughput(self.best.shares), self.best
        if self._settled(best.multipliers, 0.0, held, proven=bool(held.all())):
            return self._at_hand(0.0)
        return self._efficient(0.0, lambda part: u * (1.0 - part), kept=None if raising else u)

    def of_level(self, objective: Threshold) -> Choice:
        """Where every job has what it demands at the level: the most worth, and the most even of that."""
        polytope, best = self.polytope, self.best
        gap, everyone = gap_of_level(polytope, objective, best), np.ones(polytope.n_jobs, dtype=bool)
        if self._settled(best.multipliers, gap, everyone):
            return self._at_hand(gap)
        level = objective.level(polytope.throughput(best.shares))
        return self._efficient(gap, lambda part: objective.demand(objective.relaxed(level, part)))

    def _at_hand(self, gap: float) -> Choice:
        """The optimum at hand, proven to be so far from the most worth."""
        shares = _without_negligible(self.polytope, self.best.shares)
        return Choice(shares, gap if np.isfinite(gap) else np.nan)

    def _settled(self, multipliers: Floats, gap: float, demanding: Flags, proven: bool = True) -> bool:
        """Whether nothing is left to choose: the optimum is efficient, and the only one as far as that matters."""
        polytope, best = self.polytope, self.best
        if gap > 2 * EVENNESS or polytope.n_jobs > _MOST_CLASSES_TO_EVEN:
            return gap <= 2 * EVENNESS
        return proven and is_unique(polytope, multipliers[:, None] * polytope.rates, best.prices, demanding)

    def _efficient(self, gap: float, floors: Callable[[float], Floats], kept: Floats | None = None) -> Choice:
        """The most total worth, and most even shares, at `floors` (N,) that are relaxed by some part of the optimum.

        `gap` is how far the optimum at hand is proven to be from the most worth. Throughputs that are to be `kept` (N,)
        leave no worth to seek.
        """
        polytope, best = self.polytope, self.best
        searches = [(EVENNESS, relaxation) for relaxation in _RELAXATIONS]
        if gap > 2 * EVENNESS and polytope.n_jobs >= _MOST_CLASSES_AT_ONCE:
            searches.insert(0, (0.0, _RELAXATIONS[0]))
        for evenness, relaxation in searches:
            if kept is None:
                chosen = _choose(polytope, polytope.normalised_worth, floors(relaxation), best.shares, evenness)
            else:
                chosen = _spread(polytope, kept, floors(relaxation), best.shares)
            if chosen is not None and (polytope.throughput(chosen.shares) >= floors(_ACCEPTED_LOSS)).all():
                return chosen
        return self._at_hand(gap)


@dataclass(frozen=True)
class Chooser:
    """How one of the optima is chosen: balanced here, otherwise where it is derived from.

    Attributes
    ----------
    as_stated : whether the program is solved as it is stated, types and jobs in the order in which they come; else
        interchangeable jobs are one class, in an order of its own, and a choice that costs the proof is not taken.
    """

    as_stated: bool = False

    def backends(self, solver: str, n_jobs: int) -> list[Backend]:  # noqa: ARG002
        """Who is asked in turn."""
        return in_order(solver)

    def enough(self, tolerance: float) -> float:
        """The relative gap from which nobody else is asked."""
        return tolerance

    def choose(self, objective: Objective, among: Among, solver: str) -> Choice:  # noqa: ARG002
        """One of the optima."""
        return objective.choose(among)


def choices() -> tuple[str, ...]:
    """Names of the choices that are known."""
    return ("balanced", *entries_of(_GROUP))


def chooser(choice: str) -> Chooser:
    """By name; InputError unless it is known."""
    if not isinstance(choice, str) or choice not in choices():
        raise InputError("choice among optima", found=choice, expected=one_of(choice, choices()))
    found: Chooser = Chooser() if choice == "balanced" else entries_of(_GROUP)[choice].load()
    return found


_GROUP = "formulations.choices"


def _spread(polytope: Polytope, u: Floats, floors: Floats, start: Floats) -> Choice | None:
    """The most even shares with throughputs `u` (N,), sought above `floors`; None when they are not found."""
    weights = polytope.normalised_worth * polytope.fastest
    even = weights / weights.max()
    try:
        answer = solve_with_floors(polytope, None, floors, even, start=start, precision=_PRECISION)
    except RuntimeError:
        return None
    shares = _without_negligible(polytope, polytope.repaired(answer.shares))
    found = polytope.throughput(shares)
    return Choice(shares * np.divide(u, found, out=np.ones_like(u), where=found > u)[:, None], 0.0)


def gap_of_level(polytope: Polytope, objective: Threshold, best: Certificate) -> float:
    """Efficiency gap of the optimum that was found, as far as its multipliers prove it.

    Allocations that attain the level have ``u >= d``, and ``sum n lambda (u - d)`` is at most what the bound leaves;
    so their worth exceeds ``sum n g d`` by at most that times the largest ``g / lambda``.
    """
    if not (best.multipliers > 0).all():
        return np.inf
    u = polytope.throughput(best.shares)
    owed = dot(polytope.counts * best.multipliers, objective.demand(objective.level(u)))
    supply = polytope.supply_at(best.multipliers, best.prices, best.time)
    left = max(supply - owed, _ROUNDING * supply)
    gains, total = polytope.normalised_worth, dot(polytope.counts * polytope.normalised_worth, u)
    return float((gains / best.multipliers).max()) * left / total if total > 0 else np.inf


def _without_negligible(polytope: Polytope, shares: Floats) -> Floats:
    """Interior points stop short of zero; a share that yields next to none of its job's throughput is none."""
    yields = polytope.rates * shares
    least = _NEGLIGIBLE_YIELD * reduce(np.maximum, yields.T)
    return np.where(yields <= least[:, None], 0.0, shares)


def _choose(
    polytope: Polytope, gains: Floats, floors: Floats | None, start: Floats | None, evenness: float
) -> Choice | None:
    """One attempt; None when it is not solved or not well enough, or leaves a choice without evenness."""
    try:
        if evenness == 0.0:
            answer = prices.solve_for_worth(polytope, gains, floors)
        else:
            worth = gains[:, None] * polytope.rates
            answer = solve_with_floors(polytope, worth, floors, evenness, start=start, precision=_PRECISION)
    except RuntimeError:
        return None
    shares, multipliers, at, _ = made_feasible(polytope, answer)
    shares = _without_negligible(polytope, shares)
    total, owed, earned = dot(polytope.counts * gains, polytope.throughput(shares)), 0.0, gains
    if floors is not None:
        owed, earned = dot(polytope.counts * multipliers, floors), gains + multipliers
    most = polytope.supply_at(earned, at) - owed
    gap = max(most - total, 0.0) / most if most > 0 else np.inf
    if evenness == 0.0 and polytope.n_jobs <= _MOST_CLASSES_TO_EVEN:
        # among several optima evenness has to choose
        held = multipliers > _HOLDING_MULTIPLIER * gains
        if not is_unique(polytope, earned[:, None] * polytope.rates, at, held):
            return None
    # the square costs e/2; what is missing beyond it was not found
    return Choice(shares, gap) if gap <= 2 * EVENNESS else None
