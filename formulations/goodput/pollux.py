"""Pollux' fitness as a program over configurations (A. Qiao et al., "Pollux", OSDI 2021, sec. 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.columns import ColumnProgram, ColumnSolution, Total, solve_columns
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError
from throughputs.arrays import Floats
from throughputs.numerics import exp, log, power

LARGEST_POWER = 10
"""Beyond it, powers of speedups are too far apart for a solver to tell the smaller ones."""

_SOURCE = "power mean"

_TOLERANCE = 1e-10
"""Relative gap of the sum: a job without GPUs adds up to a thousand times what tells the other columns apart."""


@dataclass(frozen=True)
class PowerMean:
    """``((1/N) sum_i (u_i + e)^p)^(1/p)``; the geometric mean for p = 0.

    Attributes
    ----------
    power : p, from -10 to 10. -1, the harmonic mean, is published: jobs with little speedup count most.
    least : e, added to the speedup of every job, so that one without GPUs does not make the mean 0.
    """

    power: float = -1.0
    least: float = 1e-3

    def __post_init__(self) -> None:
        if not abs(self.power) <= LARGEST_POWER:
            expected = f"a number from {-LARGEST_POWER} to {LARGEST_POWER}"
            raise InputError(_SOURCE, field="power", found=self.power, expected=expected)
        if not 0 < self.least < np.inf:
            raise InputError(_SOURCE, field="least", found=self.least, expected="above 0")

    def terms(self, speedup: ArrayLike) -> Floats:
        """What each speedup adds to a sum that is to be large: the mean rises with it."""
        raised = np.asarray(speedup, dtype=np.float64) + self.least
        if self.power == 0:
            return log(raised)
        terms = power(raised, self.power)
        return -terms if self.power < 0 else terms

    def of_sum(self, total: float, n_jobs: int) -> float:
        """The mean of jobs whose terms sum to `total`."""
        if not n_jobs:
            return 0.0
        if self.power == 0:
            return float(exp(total / n_jobs))
        average = total / n_jobs * float(np.sign(self.power))
        return float(power(average, 1.0 / self.power)) if average > 0 else 0.0

    def of(self, speedup: ArrayLike) -> float:
        """The mean of speedups (N,)."""
        terms = self.terms(speedup)
        return self.of_sum(float(np.add.reduce(terms)), terms.size)


@dataclass(frozen=True, eq=False)
class Selection:
    """A choice of columns by a mean over all jobs.

    Attributes
    ----------
    solution : the column program that found it.
    fitness : the mean at the choice. bound : no choice has more.
    """

    solution: ColumnSolution
    fitness: float
    bound: float


def fittest_selection(
    ways: Configurations,
    speedup: ArrayLike,
    capacity: ArrayLike,
    mean: PowerMean | None = None,
    *,
    solver: str = "auto",
    seconds: float = TIME_LIMIT_SECONDS,
) -> Selection:
    """One column for each job, or none, so that the power mean of all speedups is largest::

        max  sum_i sum_{c of i} (f(s_c) - f(0)) x_c      f(s) = sign(p) (s + e)^p
        s.t. sum_{c of i} x_c <= 1,   sum_{c on m} gpus_c x_c <= capacity_m,   x_c in {0, 1}

    A monotone function of a sum is largest where the sum is: the published genetic search looks for the optimum of a
    linear program with whole columns. Nodes are not told apart; `pollux_nodes` does that.

    Parameters
    ----------
    ways : columns, all of one GPU or more.
    speedup : (C,) s, of each column against the fair share of the job, restarts included.
    capacity : (M,) GPUs.
    mean : the published harmonic mean if omitted.
    """
    mean = PowerMean() if mean is None else mean
    s = figures(_SOURCE, "speedup", speedup, (ways.n_columns,), "numbers of at least 0")
    nothing = float(mean.terms(0.0))
    # the largest term is that of a job without GPUs: the program is scaled by it
    scale = max(abs(nothing), 1.0)
    program, goal = ColumnProgram(ways, capacity, whole=True), Total((mean.terms(s) - nothing) / scale)
    solution = solve_columns(program, goal, solver=solver, tolerance=_TOLERANCE, seconds=seconds)
    base = nothing * ways.n_jobs
    fitness = mean.of_sum(base + solution.objective * scale, ways.n_jobs)
    bound = mean.of_sum(base + solution.bound * scale, ways.n_jobs)
    return Selection(solution, fitness, max(bound, fitness))
