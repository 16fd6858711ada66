"""Prices first: for programs whose jobs are too many to be iterated over.

Jobs meet only in the M capacity rows, so all that a job must know of the others is M prices. Given good prices nearly
every job's mix of types is settled (`responses`), and what is left is a program over the few jobs that are undecided:

1. prices from a sample of the jobs, each standing for its neighbours in the canonical order;
2. the response of every job to them; jobs whose mix would change if prices moved a little are undecided;
3. the interior point over the undecided jobs alone, the others' use of capacity being what their settled mixes say:
   new prices, and shares;
4. the response of every job to the new prices is a bound on the optimum. Where it meets the value, all is proven;
   otherwise better prices settle more jobs (or, where too few could move, more of them may in the next round).

A response costs some thirty passes over the matrix, where an interior point takes some hundreds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.backends.interior_point import InteriorPoint, StructuredProgram
from formulations.backends.responses import Responses, respond
from formulations.backends.structured import own_engine, solve_threshold, solve_with_floors
from formulations.objectives import MaxSum, Objective, Threshold
from formulations.polytope import Polytope
from formulations.solution import Answer, NotAcceptedError

__all__ = ["solve", "solve_for_worth", "takes"]

Array = NDArray[np.float64]

_SMALLEST = 16_000
"""Number of classes below which the interior point over all of them is as fast."""

_SAMPLED = 16
"""Jobs for each one in the sample."""

_UNDECIDED = 3.0
"""Undecided jobs at first, in units of jobs over the root of the sample's size."""

_FEWEST = 48
_HARDEST = 8
_MOST_UNDECIDED = 0.35
"""Part of all jobs, summed over the rounds, beyond which the interior point over all of them is the better way."""

_ROOM = 0.25
"""Part of what the undecided would take that the settled must leave them of every type."""

_PRECISION = 1e-11
_ROUGH = 1e-7
"""Precision of a sample's prices: what it leaves out costs more."""

_PROVEN = 1e-10
"""Relative gap between value and bound at which the search ends."""

_TIE = 1e-9
_WORTHLESS = 1e-6
"""Part of the level that the cluster's capacity is worth below which a single job holds the level."""


def takes(polytope: Polytope) -> bool:
    """Whether the classes are many enough for this path to pay."""
    return polytope.n_jobs >= _SMALLEST


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Solve a threshold objective or a sum over many classes of jobs.

    Raises
    ------
    NotAcceptedError
        Another objective, or few classes.
    RuntimeError
        No round was proven.
    """
    if not isinstance(objective, Threshold | MaxSum):
        raise NotAcceptedError(f"{type(objective).__name__} is not piecewise linear")
    if not takes(polytope):
        raise NotAcceptedError(f"{polytope.n_jobs} classes of jobs are fewer than {_SMALLEST}")
    if isinstance(objective, MaxSum):
        return solve_for_worth(polytope, objective.gains, None)
    search = _LevelSearch(polytope, objective)
    try:
        return search.run(search.from_sample())
    except _HeldAloneError:
        return _alone(polytope, objective)


def solve_for_worth(polytope: Polytope, gains: Array, floors: Array | None) -> Answer:
    """Maximise ``sum_i n_i g_i u_i`` while every job keeps its floor ``u_i >= f_i`` (K,); RuntimeError if it fails."""
    search = _WorthSearch(polytope, gains, floors)
    return search.run(search.from_sample())


def _alone(polytope: Polytope, objective: Threshold) -> Answer:
    """Where the hardest job holds the level alone, any shares that meet the level's demands will do."""
    level = objective.relaxed(objective.easiest_level(polytope.rates.max(axis=1)), 1e-12)
    return solve_for_worth(polytope, polytope.normalised_worth, objective.demand(level))


class _HeldAloneError(Exception):
    """A single job holds the level, so that capacity is worth nothing and prices say nothing."""


@dataclass(frozen=True, eq=False)
class _Start:
    """Prices (M,), the value they come with, and how many jobs they leave undecided."""

    prices: Array
    value: float
    undecided: int


@dataclass(frozen=True, eq=False)
class _Proof:
    """Responses to prices, and how far they prove the value to be from the best, relative."""

    prices: Array
    responses: Responses
    gap: float


class _Search(ABC):
    """Rounds of responses and reduced programs. Throughputs are in units of each job's fastest type, (M, K)."""

    gain: Array | None = None

    def __init__(self, polytope: Polytope) -> None:
        self.polytope = polytope
        self.fastest = polytope.rates.max(axis=1)
        self.rates = np.divide(polytope.rates.T, self.fastest, order="C")
        self.loads = polytope.loads

    @abstractmethod
    def demand(self, value: float) -> Array | None:
        """(K,) throughput that each job needs."""

    @abstractmethod
    def prove(self, prices: Array, value: float) -> _Proof:
        """Responses to prices, and the gap that they prove."""

    @abstractmethod
    def solve_part(self, part: Polytope, jobs: NDArray[np.intp]) -> tuple[Array, float]:
        """Prices and value for some jobs."""

    @abstractmethod
    def hardness(self) -> Array:
        """(K,) jobs that need most must be in every sample."""

    @abstractmethod
    def reduced(
        self, responses: Responses, undecided: NDArray[np.intp], settled: NDArray[np.bool_], value: float
    ) -> tuple[InteriorPoint, float]:
        """The best that the undecided jobs can do when the settled keep their mixes, and its value."""

    def from_sample(self) -> _Start:
        """Solve for a part of the jobs, every one standing for its neighbours."""
        polytope = self.polytope
        K = polytope.n_jobs
        size = max(_FEWEST, K // _SAMPLED)
        edges = (np.arange(size + 1) * K) // size
        chosen = (edges[:-1] + edges[1:]) // 2
        standing_for = np.add.reduceat(polytope.counts, edges[:-1])
        hardest = np.argpartition(self.hardness(), K - _HARDEST)[K - _HARDEST :]
        jobs = np.concatenate([chosen, np.sort(hardest)])
        counts = np.concatenate([standing_for, np.full(_HARDEST, 1e-9)])
        part = polytope.restricted(jobs, np.arange(len(polytope.capacity)), counts)
        prices, value = self.solve_part(part, jobs)
        return _Start(prices, value, int(_UNDECIDED * K / np.sqrt(size)))

    def run(self, start: _Start) -> Answer:
        value, size = start.value, start.undecided
        now = self.prove(start.prices, value)
        iterations, worked = 0, 0
        wrong: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        while True:
            undecided, settled = self._undecided(now.responses, size, wrong)
            worked += len(undecided)
            if worked > _MOST_UNDECIDED * self.polytope.n_jobs:
                raise RuntimeError("prices settle too few jobs")
            point, following = self.reduced(now.responses, undecided, settled, value)
            iterations += point.iterations
            then = self.prove(point.prices, following)
            moved = settled & (then.responses.mix != now.responses.mix) & (then.responses.decided > _TIE)
            wrong = np.flatnonzero(moved)
            if then.gap <= _PROVEN and not len(wrong):
                return self._answer(now.responses, undecided, point, then, following, iterations)
            if then.gap < now.gap:
                size = max(_FEWEST, size // 4)
                now, value = then, following
            else:
                # too few could move: prices that only they had a say in are no guide to the others
                size = 4 * len(undecided)

    def _undecided(
        self, responses: Responses, size: int, wrong: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The `size` least decided jobs, all ties and those whose mix was found wrong: (U,), and the others (K,).

        More of them where the settled jobs leave too little of a type, for lack of which nothing could be solved.
        """
        while True:
            size = min(size, len(responses.decided) - 1)
            chosen = responses.decided <= max(np.partition(responses.decided, size)[size], _TIE)
            chosen[wrong] = True
            left = self.polytope.capacity - responses.usage(np.where(chosen, 0.0, self.loads))
            wanted = responses.usage(np.where(chosen, self.loads, 0.0))
            if (left >= _ROOM * wanted).all() or size >= _MOST_UNDECIDED * len(chosen):
                return np.flatnonzero(chosen), ~chosen
            size *= 2

    def _answer(
        self,
        responses: Responses,
        undecided: NDArray[np.intp],
        point: InteriorPoint,
        proof: _Proof,
        value: float,
        iterations: int,
    ) -> Answer:
        """Settled jobs keep their mixes, the undecided have the shares that the interior point gave them."""
        shares = responses.shares(self.demand(value))
        shares[:, undecided] = point.shares
        multipliers = proof.responses.multipliers(proof.prices, self.gain) * self.polytope.scale_factors / self.fastest
        return Answer(np.ascontiguousarray(shares.T), multipliers, proof.prices, iterations)

    def _program(self, undecided: NDArray[np.intp], capacity: Array, **parts: Array | None) -> StructuredProgram:
        return StructuredProgram(
            rates=np.ascontiguousarray(self.rates[:, undecided]),
            scale_factors=self.polytope.scale_factors[undecided].astype(np.float64),
            counts=self.polytope.counts[undecided],
            capacity=capacity,
            **parts,
        )


class _LevelSearch(_Search):
    """The best level of a threshold objective; the value is the level."""

    def __init__(self, polytope: Polytope, objective: Threshold) -> None:
        super().__init__(polytope)
        self.objective = objective
        self.alone = objective.easiest_level(self.fastest)
        self.sign = 1.0 if objective.higher_level_is_better else -1.0

    def demand(self, value: float) -> Array:
        return np.asarray(self.objective.demand(value) / self.fastest)

    def hardness(self) -> Array:
        return np.asarray(-self.sign * self.objective.levels(self.fastest))

    def solve_part(self, part: Polytope, jobs: NDArray[np.intp]) -> tuple[Array, float]:
        goal = self.objective.take(jobs)
        assert isinstance(goal, Threshold)
        answer = solve(part, goal) if takes(part) else solve_threshold(part, goal, precision=_ROUGH)
        level = goal.level(part.throughput(part.repaired(answer.shares)))
        self._check(answer.prices, float((part.counts * answer.multipliers) @ goal.slope(level)) * abs(level))
        return answer.prices, self._attainable(level)

    def _check(self, prices: Array, weight: float) -> None:
        if float(self.polytope.capacity @ prices) <= _WORTHLESS * weight:
            raise _HeldAloneError

    def _attainable(self, level: float) -> float:
        """The level, or the best that the hardest job attains alone."""
        return min(level, self.alone) if self.sign > 0 else max(level, self.alone)

    def prove(self, prices: Array, value: float) -> _Proof:
        responses = respond(self.rates, prices, self.demand(value))
        growth = self.objective.slope(value) / self.fastest
        dearer = float((self.loads * responses.multipliers(prices)) @ growth)
        missing = abs(float(self.polytope.capacity @ prices) - float(self.loads @ responses.cost))
        gap = missing / (dearer * abs(value)) if dearer > 0 else np.inf
        if value == self.alone and gap > _PROVEN:
            raise _HeldAloneError
        return _Proof(prices, responses, gap if np.isfinite(gap) else np.inf)

    def reduced(
        self, responses: Responses, undecided: NDArray[np.intp], settled: NDArray[np.bool_], value: float
    ) -> tuple[InteriorPoint, float]:
        # demands in the relative level t around 1: d + g (t - 1)
        growth = self.objective.slope(value) * (abs(value) / self.fastest)
        loads = np.where(settled, self.loads, 0.0)
        drift = responses.growth(loads, growth)
        program = self._program(
            undecided,
            self.polytope.capacity - responses.usage(loads) + drift,
            slopes=growth[undecided],
            floors=self.demand(value)[undecided] - growth[undecided],
            drift=drift,
        )
        point = own_engine(program, _PRECISION)
        return point, self._attainable(value + self.sign * (point.level - 1.0) * abs(value))


class _WorthSearch(_Search):
    """The largest total worth of the throughputs, above floors; the value is the worth."""

    def __init__(self, polytope: Polytope, gains: Array, floors: Array | None) -> None:
        super().__init__(polytope)
        self.gains, self.floors = gains, floors
        self.needed = None if floors is None else floors / self.fastest
        self.worth: Array = gains * self.fastest / polytope.scale_factors
        self.gain = self.worth

    def demand(self, value: float) -> Array | None:  # noqa: ARG002
        return self.needed

    def hardness(self) -> Array:
        return self.worth if self.needed is None else self.needed

    def solve_part(self, part: Polytope, jobs: NDArray[np.intp]) -> tuple[Array, float]:
        gains, floors = self.gains[jobs], None if self.floors is None else self.floors[jobs]
        if takes(part):
            answer = solve_for_worth(part, gains, floors)
        else:
            answer = solve_with_floors(part, gains[:, None] * part.rates, floors, 0.0, precision=_ROUGH)
        return answer.prices, 0.0

    def prove(self, prices: Array, value: float) -> _Proof:
        responses = respond(self.rates, prices, self.needed, self.worth)
        most = float(self.polytope.capacity @ prices) - float(self.loads @ responses.cost)
        gap = abs(most - value) / abs(most)
        return _Proof(prices, responses, gap if np.isfinite(gap) else np.inf)

    def reduced(
        self, responses: Responses, undecided: NDArray[np.intp], settled: NDArray[np.bool_], value: float
    ) -> tuple[InteriorPoint, float]:
        loads = np.where(settled, self.loads, 0.0)
        worth = self.rates[:, undecided] * (self.worth[undecided] * self.polytope.scale_factors[undecided])
        program = self._program(
            undecided,
            self.polytope.capacity - responses.usage(loads),
            gains=worth,
            floors=None if self.needed is None else self.needed[undecided],
        )
        point = own_engine(program, _PRECISION)
        value = float((loads * self.worth) @ responses.throughput())
        return point, value + float(self.polytope.counts[undecided] @ (worth * point.shares).sum(axis=0))
