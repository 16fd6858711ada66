"""What a solve returns: the allocation and the proof that comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from throughputs.arrays import Flags, Floats

S = TypeVar("S", bound="Solution")

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
class Answer:
    """What a backend returns, unproven.

    Attributes
    ----------
    shares : (N, M) share of time of each job on each type.
    multipliers : (N,) of the jobs' demands, at least 0, in any common scale; empty where there are no demands.
    prices : (M,) multipliers of capacity in the same scale.
    iterations : iterations of the backend (for a sequence of programs: their number).
    solver : the backend whose method this is, where a backend left it to another's; empty for itself.
    """

    shares: Floats
    multipliers: Floats
    prices: Floats
    iterations: int = 0
    solver: str = ""


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
    shares : (N, M) feasible shares of time.
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

    @classmethod
    def empty(cls: type[S], n_jobs: int, prices: Floats, *, efficiency_gap: float = np.nan, **more: Any) -> S:
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
