"""Prices first: for programs whose jobs are too many to be iterated over.

Jobs meet only in the M capacity rows, so all that a job must know of the others is M prices and, where there is one,
the level. At given prices every job's mix of types is closed form (`mixes`), and the best prices are those at which all
jobs together use what there is:

1. prices from a sample of the jobs, each standing for its neighbours in the canonical order, by the interior point;
2. Newton steps on prices and level. One job changes its mix at once, many do so gradually: how usage changes with
   prices is measured on some of them, and corrected by what each pass reveals (BFGS). How far a step goes says how far
   off the prices still are, and jobs whose mix is the best for all prices so near are *settled*: later passes leave
   them out;
3. the interior point over the few jobs that are left, the others' use of capacity being what their mixes say: exact
   prices, and shares.

Should prices end up further off than was assumed when jobs were settled, all begins anew from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.core.objectives import MaxSum, Method, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from formulations.prices.active_set import ActiveSet, Settled
from formulations.prices.best_responses import Box, Jobs, respond_all, settle
from formulations.prices.crossover import Crossover
from formulations.prices.goals import SMALLEST_PRICE, Goal, LevelGoal, LogGoal, Place, WorthGoal
from formulations.prices.newton import Curvature, newton_step, shortened
from throughputs.arrays import Floats, Positions

_SMALLEST, _MANY_CLASSES = 3000, 16_000
"""Number of classes below which the interior point over all of them is as fast; where there are GPUs for all."""

_PROBED = 256
"""How many jobs are looked at for whether they run alike."""

_LARGEST_SAMPLE = 4096
"""Most jobs that a small program or a sample may comfortably have."""

_HARDEST_JOBS = 8
"""Jobs that need most and are in every sample, at next to no weight."""

_SMALLEST_SAMPLE, _COMFORTABLE = 128, 80
"""Fewest jobs in a sample, and undecided jobs that a small program has no trouble with, at any size."""

_MOST_UNDECIDED = 0.35
"""Part of all jobs beyond which undecided ones are too many: the interior point over all of them is the better way."""

_MOST_STEPS, _MOST_ROUNDS = 12, 3
"""Newton steps of one approach, and approaches, after which the search gives up."""

_SETTLING_ERROR = 0.5
"""Relative error of the prices from which jobs are settled."""

_SETTLING_ERROR_OF_BUDGETS, _MARGIN_OF_BUDGETS = 0.05, 3.0
"""The same where jobs spend budgets, if few enough are then undecided, and how many times this error the prices may
still be off by."""

_MORE_MARGIN = 4.0
"""How many times as far off prices are taken to be in each further approach."""

_PRICE_DIFFERENCE, _LEAST_DIFFERENCE, _MEASURED = 0.02, 1e-3, 1024
"""Relative change of a price by which slopes are measured, and about how many jobs they are measured on."""

_GOOD_STEP, _STALLS = 0.5, 3
"""Part of the error that a good step leaves; how many worse steps are put up with."""

_TIED_ERROR, _MANY_TIED = 1e-5, 0.2
"""Relative error of a price within which jobs count as tied, and the part of all GPUs that such jobs may occupy."""

_LEAST_ERROR = 1e-10
"""What a step that does not move prices at all may be wrong by."""

_NEGLIGIBLE_WORTH = 1e-5
"""Part of all capacity's worth below which the worth of a type's capacity is taken for nothing at rough prices."""


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve a threshold objective, a sum or a sum of logarithms over many classes of jobs.

    Raises
    ------
    NotAcceptedError
        Few classes.
    RuntimeError
        Prices settle too few jobs, or do not clear the market.
    """
    return objective.accept(_PricesFirst(polytope))


@dataclass(frozen=True, eq=False)
class _PricesFirst(Method[Answer]):
    polytope: Polytope

    def weighted_sum(self, objective: MaxSum) -> Answer:
        self._check(_SMALLEST)
        return _Search(self.polytope, WorthGoal.of(self.polytope, objective.gains, None)).run()

    def level(self, objective: Threshold) -> Answer:
        # demands that bend take the interior point a sequence of programs
        self._check(_SMALLEST if objective.linear else _SMALLEST // 2)
        try:
            return _Search(self.polytope, LevelGoal.of(self.polytope, objective)).run()
        except _HeldAloneError:
            # any shares that meet the demands of the hardest job's level will do
            level = objective.relaxed(objective.easiest_level(self.polytope.fastest), 1e-12)
            return solve_for_worth(self.polytope, self.polytope.normalised_worth, objective.demand(level))

    def log_sum(self, objective: NashWelfare) -> Answer:
        _refuse_few(self.polytope, _SMALLEST)
        return _Search(self.polytope, LogGoal.of(self.polytope, objective.budgets)).run()

    def _check(self, smallest: int) -> None:
        """Where there are GPUs for all, most types cost nothing, and prices are hard to find."""
        least = smallest if _contended(self.polytope) else _MANY_CLASSES
        _refuse_few(self.polytope, least)
        if _alike(self.polytope):
            raise NotAcceptedError("many jobs run alike: they change their mix all at once")


def solve_for_worth(polytope: Polytope, gains: Floats, floors: Floats | None) -> Answer:
    """Maximise ``sum_i n_i g_i u_i`` while every job keeps its floor ``u_i >= f_i`` (K,); RuntimeError if it fails."""
    return _Search(polytope, WorthGoal.of(polytope, gains, floors)).run()


def _refuse_few(polytope: Polytope, least: int) -> None:
    if polytope.n_jobs < least:
        raise NotAcceptedError(f"{polytope.n_jobs} classes of jobs are fewer than {least}")


def _contended(polytope: Polytope) -> bool:
    return float(np.add.reduce(polytope.capacity)) < float(np.add.reduce(polytope.loads))


def _alike(polytope: Polytope) -> bool:
    """Whether most jobs have the rates of others but for the unit, as far as some of them tell."""
    rates = polytope.rates[:: max(polytope.n_jobs // _PROBED, 1)]
    relative = np.round(rates / rates.max(axis=1, keepdims=True), 9)
    return 2 * len({row.tobytes() for row in relative}) < len(relative)


class _HeldAloneError(RuntimeError):
    """A single job holds the level, so that capacity is worth nothing and prices say nothing."""


class _Search:
    """Newton steps over all jobs, then over the undecided ones, and the interior point over the last of these."""

    def __init__(self, polytope: Polytope, goal: Goal) -> None:
        self.polytope, self.goal = polytope, goal
        self.capacity = polytope.capacity
        K, M = polytope.rates.shape
        kind = np.min_scalar_type((M + 1) * (M + 2) // 2 + M)
        self.everyone = ActiveSet(np.arange(K), Jobs(polytope.rates, polytope.loads), goal, np.zeros(K, dtype=kind))
        self.few = int(np.clip(K // 16, _SMALLEST_SAMPLE, _LARGEST_SAMPLE))
        self.enough = int(np.clip(K // 250, _COMFORTABLE, _LARGEST_SAMPLE))
        self.crossover = Crossover(polytope, goal, self.everyone)

    def run(self) -> Answer:
        """RuntimeError when prices settle too few jobs or do not clear the market."""
        place, curvature = self._from_sample()
        if self.goal.is_limit(place.level):
            raise _HeldAloneError("a single job holds the level")
        if not self.goal.levelled and not place.prices.any():
            return self._for_nothing(place)
        for attempt in range(_MOST_ROUNDS):
            undecided, settled, place = self._approach(place, curvature, _MORE_MARGIN**attempt)
            answer, exact = self.crossover.answer(undecided, settled, place)
            if answer is not None:
                return answer
            # where settled jobs leave no shares to the others, prices are beyond all measure
            if (np.abs(exact.prices - place.prices) <= _SETTLING_ERROR * place.prices.max()).all():
                place = exact
        raise RuntimeError("prices are further off than it seems")

    def _from_sample(self) -> tuple[Place, Curvature]:
        """Solve for a part of the jobs, every one standing for its neighbours."""
        jobs, counts = self._sample()
        part = self.polytope.restricted(jobs, np.arange(len(self.capacity)), counts)
        sample = self._some(jobs, part.loads)
        found, self.crossover.iterations = sample.goal.solve(part)
        place = Place(self.goal.without_negligible(found.prices, self.capacity, _NEGLIGIBLE_WORTH), found.level)
        if place.prices.any() and not self.goal.is_limit(place.level):
            self._refuse_ties(sample, place)
        return place, self._measured(self.everyone, place, _PRICE_DIFFERENCE)

    def _sample(self) -> tuple[Positions, Floats]:
        """Some classes, and how many jobs each stands for; those that need most are in it at next to no weight."""
        polytope, need = self.polytope, self.goal.need()
        chance = polytope.loads * need
        chance *= 0.5 * self.few / max(float(np.add.reduce(chance)), 1e-300)
        chance += polytope.loads * (0.5 * self.few / float(np.add.reduce(polytope.loads)))
        np.minimum(chance, 1.0, out=chance)
        # in the canonical order, each with its chance, as evenly as can be
        passed = np.floor(np.cumsum(chance) + 0.5)
        chosen = np.flatnonzero(np.diff(passed, prepend=0.0) > 0.0)
        counts = polytope.counts[chosen] / chance[chosen]
        least = np.partition(need, -_HARDEST_JOBS)[-_HARDEST_JOBS]
        above, equal = np.flatnonzero(need > least), np.flatnonzero(need == least)
        most = np.sort(np.concatenate([above, equal[: _HARDEST_JOBS - len(above)]]))
        return np.concatenate([chosen, most]), np.concatenate([counts, np.full(_HARDEST_JOBS, 1e-9)])

    def _some(self, jobs: Positions, loads: Floats) -> ActiveSet:
        """The active set of some jobs, with loads of its own."""
        everyone = self.everyone
        return ActiveSet(jobs, everyone.jobs.take(jobs, loads), self.goal.take(jobs), everyone.states[jobs])

    def _refuse_ties(self, sample: ActiveSet, place: Place) -> None:
        """Where many jobs are undecided at the very prices, prices do not say what they do."""
        sample.choose(place)
        tied, _, _ = settle(sample.jobs, sample.goal.market(place), Box(_TIED_ERROR * place.size, 0.0), sample.states)
        if float(np.add.reduce(sample.jobs.loads[tied])) > _MANY_TIED * float(np.add.reduce(sample.jobs.loads)):
            raise RuntimeError("prices leave many jobs tied")

    def _measured(self, active: ActiveSet, place: Place, difference: float) -> Curvature:
        """Slopes of usage, measured on one job for several where there are many."""
        each = max(1, len(active) // max(2 * self.few, _MEASURED))
        if each > 1:
            part = active.take(np.arange(each // 2, len(active), each))
            active = replace(part, jobs=replace(part.jobs, loads=part.jobs.loads * each))
        else:
            active = replace(active, states=active.states.copy())

        def usage(prices: Floats) -> Floats:
            return active.choose(Place(prices, place.level)).usage

        least = SMALLEST_PRICE * max(float(place.prices.max()), self.goal.most / float(self.capacity.sum()))
        return Curvature.measured(usage, place.prices, np.where(place.size > 0, place.size, least), difference)

    def _for_nothing(self, place: Place) -> Answer:
        """Where capacity is worth nothing, what all want if it fits."""
        usage = self.everyone.choose(place).usage
        if (usage > self.capacity).any():
            raise RuntimeError("prices of 0 do not clear the market")
        K, M = self.polytope.rates.shape
        shares, multipliers = np.empty((K, M)), np.empty(K)
        respond_all(self.everyone.jobs, self.goal.market(place), self.everyone.states, shares, multipliers)
        return Answer(shares, np.zeros(K), np.zeros(M), self.crossover.iterations)

    def _approach(self, place: Place, curvature: Curvature, margin: float) -> tuple[ActiveSet, Settled, Place]:
        """Newton steps, settling jobs on the way; the undecided ones, and the others together.

        RuntimeError where they settle too few.
        """
        active, settled = self.everyone, Settled.nobody(len(self.capacity))
        best, stalled, near = np.inf, 0, _SETTLING_ERROR_OF_BUDGETS
        expected, moved = None, np.zeros(len(self.capacity))
        for _ in range(_MOST_STEPS):
            totals = active.choose(place)
            excess = totals.usage + settled.usage - self.capacity
            growth = totals.growth + settled.growth
            if expected is not None:
                curvature.observe(moved, expected, excess)
            step, by = newton_step(curvature.matrix, growth, excess, place.prices)
            size = Place(np.maximum(place.prices, place.prices + step), 0.0).size
            relative = np.abs(step) / np.where(size > 0, size, np.inf)
            error = max(float(relative.max()), abs(by), _LEAST_ERROR)
            step, by = shortened(step, by, place.prices)
            following = Place(np.maximum(place.prices + step, 0.0), self.goal.moved(place.level, by))
            settled.moved(place.level, following.level, self.goal.sign)
            moved, expected = following.prices - place.prices, excess + growth * by
            place = following
            if self.goal.is_limit(place.level) and active is self.everyone:
                raise _HeldAloneError("a single job holds the level")
            if self.goal.budget is not None:
                if error < near:
                    # what settled jobs take goes on changing with prices, so they are settled at the end, all at once
                    together = Settled.nobody(len(self.capacity))
                    undecided = active.settle(together, place, margin * _MARGIN_OF_BUDGETS * error)
                    if len(undecided) <= self.few:
                        return undecided, together, place
                    near = error * self.few / len(undecided)
            elif error < _SETTLING_ERROR:
                undecided = active.settle(settled, place, margin * error)
                if undecided is not active:
                    self.everyone.note(active)
                active = undecided
            if len(active) <= self.enough:
                break
            if error > _GOOD_STEP * best:
                stalled += 1
                if stalled > _STALLS:
                    break
                curvature = self._measured(active, place, max(error, _LEAST_DIFFERENCE))
            best = min(best, error)
        if len(active) > min(max(_MOST_UNDECIDED * len(self.everyone), 4 * self.few), 4 * _LARGEST_SAMPLE):
            raise RuntimeError("prices settle too few jobs")
        return active, settled, place
