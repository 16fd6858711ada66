"""Lexicographic max-min fairness: raise all jobs together, and go on raising those that can rise further.

Water rises in *levels*. At each level the jobs that are not yet fixed rise together (`hierarchy`), as far as capacity
allows; those that the level's multipliers prove to hold it are fixed there, and the others go on. Jobs that run all
the time on their fastest type are full and simply stop rising, so only capacity ends a level: every level exhausts a
type that was not exhausted before for those who go on, and there are hardly more levels than types. Jobs that an entity
serves in turn each wait for a level of their own.

The multipliers say exactly who is held: a job whose multiplier is positive in one optimum of a level's dual cannot rise
in any allocation that attains the level (complementary slackness). No threshold on throughputs is needed. Held jobs
that have no choice left leave the programs of the levels above, with the capacity that they use (`residual_program`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from formulations.arguments import figures, instance
from formulations.core.certificate import Certificate, relative_gap
from formulations.core.objective import Method, Objective, Threshold, check_figures
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, SolverError
from formulations.levels.hierarchy import TOP, Filling, Hierarchy
from formulations.levels.residual_program import ResidualProgram
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import dot

if TYPE_CHECKING:
    from formulations.solving.choice import Among, Choice

T = TypeVar("T")

_PROVEN_ALONE = 1e-10
"""Relative distance up to which a bound is what a member of the top has with all of its time: it proves the bound."""

_HELD_BY_FIRST_LEVEL = 1e-7
"""Part of all weights in the first level's dual from which a job is held by it."""

_SAME_THROUGHPUT = 2e-8
"""Relative difference up to which a throughput is what was demanded."""

_HELD_BY_LEVEL = 1e-6
"""Part of the mean weight in a level's dual from which a job holds the level."""

_LEEWAY = 2e-10
"""Part of its throughput that a job may lose to the levels above its own."""

_MOST_STEPS = 100
"""Steps of the bracketed search for a bound's level; it ends sooner at rounding."""


@dataclass(frozen=True, eq=False)
class WaterFilling(Objective):
    """Maximise lexicographically the sorted normalised throughputs::

        lex max_x  sort( u_1 / (w_1 d_1), ..., u_N / (w_N d_N) )

    or, in a hierarchy, hand time on through its entities (`hierarchy`): an entity's members that can rise
    no further leave what they do not take to the others.

    Parameters
    ----------
    units : (N,) d_i, positive: the throughput of job i that one unit of its time buys.
    weights : (N,) w_i, positive: weight of the job within its entity, or at the top.
    hierarchy : the entities; none when omitted.
    counts : (N,) jobs that each row stands for; 1 when omitted.

    Source: Narayanan et al., OSDI 2020, section 4.3 and appendix A.1 (water filling, hierarchical policies).
    """

    units: Floats
    weights: Floats
    hierarchy: Hierarchy
    counts: Floats
    maximise = True
    unit = "normalised throughput"

    def __init__(
        self, units: Floats, weights: Floats, hierarchy: Hierarchy | None = None, counts: Floats | None = None
    ) -> None:
        vars(self).update(units=units, weights=weights, counts=counts)
        check_figures(self, units="numbers above 0", weights="numbers above 0", counts="numbers above 0")
        if hierarchy is None:
            hierarchy = Hierarchy.flat(len(self.units))
        instance("objective", "hierarchy", hierarchy, Hierarchy)
        vars(self)["hierarchy"] = hierarchy
        figures("objective", "of_job of the hierarchy", hierarchy.of_job, self.units.shape, "numbers")

    def accept(self, method: Method[T]) -> T:
        """None takes it at once: level by level, by `fill`."""
        raise method.refusal(self)

    def certify(self, polytope: Polytope, answer: Answer) -> Certificate:  # noqa: ARG002
        """None: each of the levels is proven."""
        raise TypeError(f"no certificate for {type(self).__name__}")

    def choose(self, among: Among) -> Choice:
        """Throughputs are unique. Every job is held at the level at which it was fixed; multipliers are the first's."""
        weights = among.best.multipliers * self.units
        return among.of_throughputs(weights > _HELD_BY_FIRST_LEVEL * float(weights.sum()), raising=False)

    def attained(self, u: Floats, proof: Certificate) -> tuple[float, float]:
        """With entities all at the top may have more in the end than at the first level."""
        return min(self.value(u), proof.objective), proof.gap

    def value(self, u: Floats) -> float:
        """The least that a member of the top has per weight, at throughputs `u`; no less than the first level's height.

        A job has ``u_i / d_i``, an entity what its jobs have in all. Without entities: ``min u_i / (w_i d_i)``.
        """
        return float(self._of_tops(u).min())

    def proving(self, polytope: Polytope, proof: Certificate) -> Certificate:
        """Where the least member of the top has all of its time at the bound, it holds it, whatever GPUs cost: what
        it has is linear in its jobs' throughputs."""
        top, alone = self.hierarchy.top, self._of_tops(polytope.fastest)
        least = int(alone.argmin())
        if proof.bound < alone[least] * (1.0 - _PROVEN_ALONE):
            return proof
        held = np.where(top == top[least], self._jobs / (self.counts * self._top_weights * self.units), 0.0)
        return replace(proof, multipliers=held, prices=0.0 * proof.prices, time=held * polytope.fastest)

    def _of_tops(self, u: Floats) -> Floats:
        """(N,) what each job's member of the top has per weight."""
        top = self.hierarchy.top
        return np.asarray(np.bincount(top, self._jobs * (u / self.units))[top] / self._top_weights)

    @property
    def _jobs(self) -> Floats:
        """(N,) jobs that count to a member of the top: those of an entity all do."""
        return np.where(self.hierarchy.of_job == TOP, 1.0, self.counts)

    @property
    def _top_weights(self) -> Floats:
        """(N,) weight of each job's member of the top."""
        return np.append(self.hierarchy.weights, self.weights)[self.hierarchy.top]

    def take(self, jobs: Positions) -> WaterFilling:
        """Over some jobs."""
        return WaterFilling(self.units[jobs], self.weights[jobs], self.hierarchy.take(jobs), self.counts[jobs])

    def key(self) -> Floats:
        """Unit, weight and place in the hierarchy."""
        return np.column_stack([self.units, self.weights, self.hierarchy.key()])


@dataclass(frozen=True, eq=False)
class WaterLevel(Threshold):
    """One level: every job has `base` time already, and gets more as the level rises, until it is full::

        max t      u_i >= d_i (base_i + time_i(t))

    Fixed jobs have no room, so that their demand is what they have. The level is over the jobs at `rows` of the
    filling: those that are settled have left the program, though entities still count them. `below` is the height of
    all levels before, to which a gap is relative: of a level that cannot rise at all, the gap to its own height would
    mean nothing.
    """

    units: Floats
    base: Floats
    filling: Filling
    rows: Positions
    below: float = 0.0
    maximise = True
    higher_level_is_better = True
    unit = "normalised throughput"

    def gap(self, value: float, bound: float) -> float:
        """Distance of a level from its bound, relative to the height of all levels together.

        None above the bound: jobs count as full that are nearly so.
        """
        return relative_gap(self.below + min(value, bound), self.below + bound)

    def demand(self, level: float) -> Floats:
        """``d_i (base_i + time_i(t))``."""
        return np.asarray(self.units * (self.base + self.filling.times(level)[0][self.rows]))

    def slope(self, level: float) -> Floats:
        """``d_i`` times the growth of its time; 0 for jobs that are fixed, full or waiting."""
        return np.asarray(self.units * self.filling.times(level)[1][self.rows])

    def levels(self, u: Floats) -> Floats:
        """(N,) level whose demand `u` meets; below 0 for a fixed job that lost throughput."""
        given = u / self.units - self.base
        most = self.filling.room[self.rows]
        full = given >= most - _SAME_THROUGHPUT * (self.base + most)
        everyone = self.filling.room.copy()
        everyone[self.rows] = np.where(full, most, given)
        reached = np.where(full, self.filling.full_level, self.filling.levels(everyone)[self.rows])
        # what is given to an entity does not tell what one of its jobs has lost
        lost = ~full & (given < 0.0)
        reached[lost] = np.minimum(reached[lost], self.below * given[lost] / self.base[lost])
        return reached

    def first_guess(self, fastest: Floats) -> float:  # noqa: ARG002
        """The level at which the first job is full: up to there all demands are linear."""
        filling = self.filling
        rising = filling.times(0.0)[1] > 0
        return float(filling.levels(filling.room * (1.0 - 1e-12))[rising].min(initial=filling.full_level))

    def bound(self, multipliers: Floats, supply: float) -> float:
        """Root of ``multipliers . demand(t) = supply``: the left side is piecewise linear and increasing."""
        # full jobs demand exactly what they can earn
        supply *= 1.0 + 8.0 * np.finfo(np.float64).eps
        low, high = 0.0, self.filling.full_level
        if dot(multipliers, self.demand(high)) <= supply:
            return high
        level = high
        for _ in range(_MOST_STEPS):
            excess = dot(multipliers, self.demand(level)) - supply
            low, high = (low, level) if excess > 0 else (level, high)
            growth = dot(multipliers, self.slope(level))
            following = level - excess / growth if growth > 0 else np.nan
            if abs(following - level) <= 1e-15 * level or high - low <= 1e-15 * high:
                break
            level = following if low < following < high else 0.5 * (low + high)
        return level

    def take(self, jobs: Positions) -> WaterLevel:
        """For some jobs only; time is handed on as it would be among all."""
        return WaterLevel(self.units[jobs], self.base[jobs], self.filling, self.rows[jobs], self.below)


def fill(
    objective: WaterFilling, polytope: Polytope, prove: Callable[[Polytope, Objective], Certificate]
) -> Certificate:
    """Fill level by level until all jobs are fixed: the shares of the last level, bound and prices of the first.

    Parameters
    ----------
    objective, polytope : over N jobs (or classes).
    prove : solves and proves one level.

    Raises
    ------
    SolverError : a level has multipliers from which nobody can be fixed.
    """
    rest, units = ResidualProgram(polytope), objective.units
    most = polytope.fastest / units
    base, fixed = np.zeros(len(most)), np.zeros(len(most), dtype=bool)
    levels: list[Certificate] = []
    while not fixed.all():
        below = sum(level.objective for level in levels)
        room = np.where(fixed, 0.0, np.maximum(most - base, 0.0))
        filling = Filling(objective.hierarchy, objective.weights, objective.counts, room)
        level = WaterLevel(units, base, filling, np.arange(len(base)), below)
        proof = rest.among_all(prove(rest.polytope, level.take(rest.jobs)))
        levels.append(proof)
        u = polytope.throughput(proof.shares)
        time, growth = filling.times(proof.objective)
        demand = base + time
        # what was found is feasible to the last bit
        base = np.minimum(demand, u / units)
        full = base >= most * (1.0 - _SAME_THROUGHPUT)
        if proof.objective >= filling.full_level * (1.0 - _SAME_THROUGHPUT):
            break
        # every level fixes somebody, so there are no more levels than jobs
        weight = proof.multipliers * units * growth
        holding = _holding(objective.counts, weight, u / units, demand)
        if not (holding | (full & ~fixed)).any():
            holding = weight == weight.max()
        before, fixed = fixed, fixed | full | holding
        if (fixed == before).all():
            raise SolverError(f"level {len(levels)} of water filling: its multipliers prove for no job that it is held")
        if polytope.time_follows and not fixed.all():
            most = rest.settle(proof, fixed, base * units) / units * (1.0 - _LEEWAY)
            fixed |= base >= most * (1.0 - _SAME_THROUGHPUT)
        # a little less leaves the next level an interior
        base *= 1.0 - _LEEWAY
    first = levels[0]
    bound = min(first.bound, objective.value(polytope.fastest))
    return replace(
        first,
        shares=levels[-1].shares,
        objective=min(first.objective, bound),
        bound=bound,
        gap=max(level.gap for level in levels),
        iterations=sum(level.iterations for level in levels),
    )


def _holding(counts: Floats, weight: Floats, given: Floats, demand: Floats) -> Flags:
    """(N,) jobs that the multipliers prove to be held at this level; none where a level ends because a job is full.

    Multipliers of a program that is solved nearly are never quite 0. One that means something comes with a demand that
    is just met: either it or the slack of the demand vanishes.
    """
    total = dot(counts, weight)
    mean = total / float(counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        slack = np.nan_to_num(given / demand - 1.0, nan=0.0, posinf=np.inf)
        return np.asarray((weight > _HELD_BY_LEVEL * mean) & (weight > slack * total))
