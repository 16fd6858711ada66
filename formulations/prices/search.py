"""Solve programs over many jobs by their duals: prices of the types and, where there is one, the level.

At given prices every job's response is closed form (`responses`), and the best prices are those at which all jobs
together use what there is:

1. prices of a sample of the jobs, each standing for its neighbours in the canonical order, by the interior point;
2. Newton steps on prices and level. How usage changes with prices is measured on the sample, and corrected by what each
   step reveals (BFGS);
3. the interior point over the few jobs whose responses are the nearest to changing, beside what the others take: exact
   prices, and shares of these jobs. Where nobody else responds to these prices otherwise, the answer is exact; else all
   goes on from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from formulations.interior_point.method import StructuredProgram, solve_structured
from formulations.prices.goals import Goal, LevelGoal, LogGoal, WorthGoal
from formulations.prices.newton import Curvature
from formulations.prices.responses import Responses, Totals, Wants
from throughputs.arrays import Floats, Positions
from throughputs.numerics import dot

_SMALLEST = 3000
"""Number of classes below which the interior point over all of them is as fast."""

_PROBED = 256
"""How many jobs are looked at for whether they run alike."""

_SAMPLE = (16, 128, 4096)
"""One job in how many is in the sample, and the fewest and the most that are."""

_NEAREST = (64, 128, 4096)
"""The same of the jobs that the last program is over."""

_TIED, _MANY_TIED = 1e-5, 0.2
"""Distance at which jobs of the sample count as tied, and the part of its GPUs that such jobs may occupy."""

_MOST_STEPS, _SMALL_STEP, _LONGEST_STEP = 6, 0.003, 0.5
"""Newton steps at most; relative change of prices and level after which the next one is not worth a pass, and to which
a step is cut."""

_MOST_PROGRAMS, _MANY, _MORE = 5, 0.1, 4
"""Programs over the nearest jobs after which the search gives up; how many others respond otherwise, for each of its
jobs, before its prices are not followed, and how many times as many jobs the next one then has."""

_PRECISION = 1e-13
"""Relative gap of these programs."""

_NEARLY_LINEAR = 1e-6
"""Where demands are not linear in the level: change of the level after which they need not be drawn up again."""

_NEGLIGIBLE_WORTH, _NEGLIGIBLE_AT_FIRST = 1e-9, 1e-5
"""Part of all capacity's worth below which the worth of a type's capacity is taken for nothing; at rough prices."""

_NEGLIGIBLE_MASS = 1e-9
"""Part of all GPUs below which those of a mix are none."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve a threshold objective, a sum or a sum of logarithms over many classes of jobs.

    Raises
    ------
    NotAcceptedError
        Few classes.
    RuntimeError
        No prices are found.
    """
    return objective.accept(_PricesFirst(polytope))


@dataclass(frozen=True, eq=False)
class _PricesFirst(Method[Answer]):
    polytope: Polytope

    def weighted_sum(self, objective: MaxSum) -> Answer:
        _refuse_few(self.polytope, _SMALLEST)
        return solve_for_worth(self.polytope, objective.gains, None)

    def level(self, objective: Threshold) -> Answer:
        # demands that bend take the interior point a sequence of programs
        _refuse_few(self.polytope, _SMALLEST if objective.linear else _SMALLEST // 2)
        if _alike(self.polytope):
            raise NotAcceptedError("many jobs run alike: they change their mix all at once")
        goal = LevelGoal.of(self.polytope, objective)
        try:
            return _Search(goal).run()
        except _HeldAloneError:
            # any shares that meet the demands of the hardest job's level will do
            floors = objective.demand(objective.relaxed(goal.alone, 1e-12))
            return solve_for_worth(self.polytope, self.polytope.normalised_worth, floors)

    def log_sum(self, objective: NashWelfare) -> Answer:
        _refuse_few(self.polytope, _SMALLEST)
        return _Search(LogGoal(self.polytope, objective)).run()


def solve_for_worth(polytope: Polytope, gains: Floats, floors: Floats | None) -> Answer:
    """Maximise ``sum_i n_i g_i u_i`` while every job keeps its floor ``u_i >= f_i`` (K,); RuntimeError if it fails."""
    return _Search(WorthGoal(polytope, gains, floors)).run()


def _refuse_few(polytope: Polytope, least: int) -> None:
    if polytope.n_jobs < least:
        raise NotAcceptedError(f"{polytope.n_jobs} classes of jobs are fewer than {least}")


def _alike(polytope: Polytope) -> bool:
    """Whether most jobs have the rates of others but for the unit, as far as some of them tell."""
    rates = polytope.rates[:: max(polytope.n_jobs // _PROBED, 1)]
    relative = np.round(rates / rates.max(axis=1, keepdims=True), 9)
    return 2 * len({row.tobytes() for row in relative}) < len(relative)


class _HeldAloneError(RuntimeError):
    """A single job holds the level, so that capacity is worth nothing and prices say nothing."""


class _Search:
    """Prices and a level, the responses of all jobs to them, and how usage changes with prices."""

    responses: Responses
    curvature: Curvature
    level: float

    def __init__(self, goal: Goal) -> None:
        self.goal, self.polytope, self.capacity = goal, goal.polytope, goal.polytope.capacity
        self.iterations = 0

    def run(self) -> Answer:
        """RuntimeError where no prices are found."""
        self._from_sample()
        if not self.responses.prices.any() and (self.responses.totals.usage <= self.capacity).all():
            # capacity is worth nothing, and what all want fits
            return self._answer(np.zeros(0, dtype=np.intp), np.zeros((0, len(self.capacity))))
        self._newton()
        few = self._few(*_NEAREST)
        for _ in range(_MOST_PROGRAMS):
            before, level, near = self.responses, self.level, self._nearest(few)
            shares, by = self._crossover(near)
            other = self.responses.states != before.states
            other[near] = False
            changed = int(np.count_nonzero(other))
            if changed > _MANY * few:
                # what so few jobs leave of the capacity says nothing of what it is worth
                self.responses, self.level, few = before, level, _MORE * few
                if few > self.polytope.n_jobs // 2:
                    raise RuntimeError("prices settle too few jobs")
            elif not changed and (self.goal.linear or abs(by) <= _NEARLY_LINEAR):
                return self._answer(near, shares)
        raise RuntimeError("prices do not settle")

    def _go(self, prices: Floats, level: float) -> None:
        """To other prices and another level."""
        if self.goal.is_limit(level):
            raise _HeldAloneError("a single job holds the level")
        prices = self.goal.scaled(prices)
        if not np.isfinite(prices).all():
            raise RuntimeError("prices are beyond all measure")
        self.level = level
        self.responses = Responses(self.polytope.rates, self.polytope.loads, self.goal.wants(level), prices)

    def _from_sample(self) -> None:
        """Solve for a part of the jobs, large gangs more likely; each stands for its neighbours."""
        polytope, few = self.polytope, self._few(*_SAMPLE)
        chance = np.minimum(polytope.loads * (few / float(np.add.reduce(polytope.loads))), 1.0)
        # in the canonical order, each with its chance, as evenly as can be
        jobs = np.flatnonzero(np.diff(np.floor(np.cumsum(chance) + 0.5), prepend=0.0) > 0.0)
        part = polytope.restricted(jobs, np.arange(len(self.capacity)), polytope.counts[jobs] / chance[jobs])
        prices, level, self.iterations = self.goal.sampled(part, jobs)
        self._go(self._without_negligible(prices, _NEGLIGIBLE_AT_FIRST), level)
        some = self.responses.of(jobs, part.loads)
        tied = some.distances() <= _TIED
        if dot(some.loads, tied) > _MANY_TIED * float(np.add.reduce(some.loads)):
            raise RuntimeError("prices leave many jobs tied")
        self.curvature = Curvature.measured(lambda prices: some.to(prices).totals.usage, some.prices)

    def _few(self, one_in: int, fewest: int, most: int) -> int:
        return min(max(self.polytope.n_jobs // one_in, fewest), most, self.polytope.n_jobs)

    def _newton(self) -> None:
        """Newton steps until they are small."""
        moved = expected = np.zeros(len(self.capacity))
        for _ in range(_MOST_STEPS):
            before, usage = self.responses.prices, self.responses.totals.usage
            self.curvature.observe(moved, expected - usage)
            growth = self.responses.totals.growth
            step, by = self.curvature.step(growth, usage - self.capacity, before)
            error = max(float(np.abs(step).max()) / float(before.max() or np.inf), abs(by))
            cut = min(1.0, _LONGEST_STEP / max(error, _LONGEST_STEP))
            self._go(np.maximum(before + cut * step, 0.0), self.goal.moved(self.level, cut * by))
            if error <= _SMALL_STEP:
                break
            moved, expected = self.responses.prices - before, usage + growth * (cut * by)

    def _nearest(self, few: int) -> Positions:
        """The jobs whose responses are the nearest to changing; of equals the first."""
        distances = self.responses.distances()
        last = np.partition(distances, few - 1)[few - 1]
        nearer, equal = np.flatnonzero(distances < last), np.flatnonzero(distances == last)
        return np.sort(np.concatenate([nearer, equal[: few - len(nearer)]]))

    def _crossover(self, near: Positions) -> tuple[Floats, float]:
        """To the prices of the program over some jobs, the others responding as they do: shares (near, M) that these
        jobs have, and by how much the level is better."""
        loads, before = self.polytope.loads, self.responses
        some = before.of(near, loads[near])
        # what all jobs gain by a step of the level is too much for few of them, and would set the scale of what is
        # resolved
        part = float(np.add.reduce(some.loads)) / float(np.add.reduce(loads))
        point = solve_structured(self._program(near, some.wants, before.totals.less(some.totals), part), _PRECISION)
        self.iterations += point.iterations
        by = 0.0 if some.wants.growth is None else (point.level - 1.0) * part
        self._go(self._without_negligible(point.prices, _NEGLIGIBLE_WORTH), self.goal.moved(self.level, by))
        return point.shares.T[: len(near)], by

    def _answer(self, some: Positions, their_shares: Floats) -> Answer:
        """What all respond, but for some jobs, which have the shares that are given."""
        shares, multipliers = self.responses.shares()
        shares[some] = their_shares
        return Answer(shares, multipliers * self.polytope.scale_factors, self.responses.prices, self.iterations)

    def _program(self, jobs: Positions, wants: Wants, rest: Totals, part: float) -> StructuredProgram:
        """The program over some jobs beside what the `rest` takes; a step of its level is a `part` of the level."""
        polytope, left = self.polytope, self.capacity - rest.usage
        fastest, sizes = polytope.fastest[jobs], polytope.scale_factors[jobs].astype(np.float64)
        rates, counts = np.divide(polytope.rates[jobs].T, fastest, order="C"), polytope.counts[jobs]
        if wants.budget is not None:
            # what others take of two types by turns answers to prices, as a class of each mix does
            alone, folded, mass, budgets = rest.folded(_NEGLIGIBLE_MASS)
            return StructuredProgram(
                rates=np.hstack([rates, folded / folded.max(axis=0, initial=0.0)]),
                scale_factors=np.append(sizes, np.ones(len(mass))),
                counts=np.append(counts, mass),
                capacity=self.capacity - alone,
                budgets=np.append(wants.budget * sizes, budgets),
            )
        demand = None if wants.demand is None else wants.demand / fastest
        if wants.gain is not None:
            worth = rates * (wants.gain * sizes * fastest)
            return StructuredProgram(rates, sizes, counts, left, gains=worth, floors=demand)
        # demands in the relative level t around 1: d + g (t - 1)
        assert demand is not None
        assert wants.growth is not None
        growth, drift = wants.growth * (part / fastest), rest.growth * part
        if not growth.any():
            raise RuntimeError("the jobs nearest to changing have all that they can get")
        return StructuredProgram(rates, sizes, counts, left + drift, slopes=growth, floors=demand - growth, drift=drift)

    def _without_negligible(self, prices: Floats, negligible: float) -> Floats:
        """Prices (M,), 0 where an interior point left a capacity that is worth a part `negligible` of all at most."""
        worth = np.clip(prices, 0.0, None) * self.capacity
        return np.where(worth <= negligible * max(float(worth.sum()), self.goal.most), 0.0, prices)
