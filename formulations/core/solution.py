"""What a solve returns: the allocation and the proof that comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from throughputs import PackedColumns
from throughputs.arrays import Flags, Floats, Ints

TOLERANCE = 1e-7
"""Relative gap up to which an answer is called optimal."""


class SolverError(RuntimeError):
    """No backend that was asked returned an answer; says what each had to say."""


class InfeasibleError(SolverError):
    """No shares keep all rows: floors, coupling rows or jobs that must run exclude each other.

    Where one engine says so, no other is asked.
    """


class NotAcceptedError(RuntimeError):
    """A backend does not take a program of this kind or size; the next one is asked."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """P pairs of jobs that share GPUs, sorted by first, second and accelerator.

    Attributes
    ----------
    first, second : (P,) positions of the two jobs, first < second.
    accelerator : (P,) position of the accelerator type whose GPUs they share.
    share : (P,) share of time, above 0.
    """

    first: Ints
    second: Ints
    accelerator: Ints
    share: Floats

    @classmethod
    def none(cls) -> Pairs:
        """No pairs."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, np.zeros(0))

    def __len__(self) -> int:
        return len(self.share)

    def rates(self, columns: PackedColumns) -> Floats:
        """(P, 2) throughput of the first and the second of each pair, steps/s."""
        one, other, j = columns.group[self.first], columns.group[self.second], self.accelerator
        return np.stack([columns.together[one, other, j], columns.together[other, one, j]], axis=1)

    def throughput(self, rates: Floats, n_jobs: int) -> Floats:
        """(N,) steps/s of each job in all of its pairs, which have `rates` (P, 2)."""
        return self.of_jobs(rates[:, 0] * self.share, rates[:, 1] * self.share, n_jobs)

    def time(self, n_jobs: int) -> Floats:
        """(N,) share of time of each job in pairs."""
        return self.of_jobs(self.share, self.share, n_jobs)

    def of_jobs(self, first: Floats, second: Floats, n_jobs: int) -> Floats:
        """(N,) sums over the pairs of each job of what the first and the second of a pair have (P,)."""
        of_first = np.bincount(self.first, first, minlength=n_jobs)
        return np.asarray(of_first + np.bincount(self.second, second, minlength=n_jobs))

    def gpus(self, scale_factors: Ints, n_types: int) -> Floats:
        """(M,) GPUs in use by pairs of jobs of gangs of `scale_factors` (N,); a pair takes them once."""
        taken = scale_factors[self.first] * self.share
        return np.bincount(self.accelerator, taken, minlength=n_types).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a backend returns, unproven.

    Attributes
    ----------
    shares : (N, M) share of time of each job on each type; of programs with pairs (C,), of each column listed
        (`formulations.packed.program`).
    multipliers : (N,) of the jobs' demands, at least 0, in any common scale; empty where there are no demands.
    prices : (M,) multipliers of capacity in the same scale.
    iterations : iterations of the backend (for a sequence of programs: their number).
    solver : the backend whose method this is, where a backend left it to another's; empty for itself.
    time : (N,) multipliers of the jobs' time, where it matters with whom they spend it.
    """

    shares: Floats
    multipliers: Floats
    prices: Floats
    iterations: int = 0
    solver: str = ""
    time: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Attempt:
    """One backend that was tried, with the gap that its answer was proven to."""

    solver: str
    gap: float
    seconds: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class Solution:
    """A certified allocation.

    Attributes
    ----------
    shares : (N, M) feasible shares of time; where jobs share GPUs those of each job alone.
    status : "optimal" when `gap` is within the tolerance, "feasible" when it is not, "empty" when no job could be
        served (no jobs, no GPUs, or no job that gains anything from any type).
    objective : value at `shares`; nan when empty.
    bound : no allocation is better than this, proven from prices and multipliers.
    gap : relative distance between the two.
    efficiency_gap : relative distance of the total normalised throughput from the most that is possible at this
        objective; 0 proves Pareto efficiency. nan where no choice among optima was made.
    prices : (M,) improvement of the objective per additional GPU of each type; an upper bound on it where optimal
        prices are not unique. For a type without GPUs: what the first would bring; nan where that is not known, as
        jobs that run on no other type would then take part.
    multipliers : (N,) weight with which each job holds the objective where it is (sums to 1 over demands); 0 where
        there are no demands, as in a sum. Prices and multipliers prove the bound.
    served : (N,) whether the job can gain anything from any type.
    unit : unit of objective; prices are in it per GPU.
    solver : backend whose answer this is (of water filling: of its first level).
    seconds : time for everything, and `phases` split into build, solve (with its proof) and choose.
    attempts : every backend that was tried, in order.
    row_prices : by name, improvement per unit by which the limit of a row that an author added is loosened.
    pairs : the pairs of jobs that share GPUs, with their share of time; only those above 0.
    """

    shares: Floats
    status: str
    objective: float
    bound: float
    gap: float
    efficiency_gap: float
    prices: Floats
    multipliers: Floats
    served: Flags
    unit: str
    solver: str
    seconds: float
    iterations: int = 0
    attempts: tuple[Attempt, ...] = ()
    phases: dict[str, float] = field(default_factory=dict)
    row_prices: Mapping[str, Floats] = field(default_factory=dict)
    pairs: Pairs = field(default_factory=Pairs.none)

    @classmethod
    def empty(cls, n_jobs: int, prices: Floats, *, efficiency_gap: float = np.nan, **more: Any) -> Solution:
        """Where none of the jobs can be served; `prices` (M,) and `more` as they are."""
        return cls(
            shares=np.zeros((n_jobs, len(prices))),
            status="empty",
            objective=np.nan,
            bound=np.nan,
            gap=0.0,
            efficiency_gap=efficiency_gap,
            prices=prices,
            multipliers=np.zeros(n_jobs),
            served=np.zeros(n_jobs, dtype=bool),
            solver="",
            **more,
        )
