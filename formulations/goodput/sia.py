"""Sia's choice of configurations (S. Jayaram Subramanya et al., "Sia", SOSP 2023, sec. 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.columns import ColumnProgram, ColumnSolution, Total, solve_columns
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from throughputs import Configurations, InputError
from throughputs.arrays import Floats
from throughputs.numerics import power

_SOURCE = "Sia's program"


def relative_goodput(ways: Configurations) -> Floats:
    """(C,) goodput of each column in multiples of the least of its job.

    So a job that gains nothing from GPUs beyond its least has 1 everywhere, and goodputs of different models, in
    examples of their own per second, can be added (sec. 3.4.1).

    Parameters
    ----------
    ways : columns with their goodput as rate.

    Raises
    ------
    InputError
        A column has no goodput.
    """
    goodput, least = figures(_SOURCE, "goodput", ways.rate, (None,)), np.full(ways.n_jobs, np.inf)
    np.minimum.at(least, ways.job, goodput)
    return np.asarray(goodput / least[ways.job])


@dataclass(frozen=True, eq=False)
class SiaProgram:
    """One configuration for each job, or none, of the least total cost::

        min  sum_i w_i (sum_c A_c x_c + lambda (1 - sum_c x_c))      A_c = (r_i g_c)^p,  p < 0
        s.t. sum_{c of i} x_c <= 1,   sum_{c on m} gpus_c x_c <= capacity_m,   x_c in {0, 1}

    with r_i = 1 for the column that job i holds. With p > 0 the sum of ``A_c`` is maximised, less lambda for every job
    without GPUs. Whole nodes, or powers of two within one, always find nodes that are free (sec. 3.3), so capacity by
    pool is enough.

    Attributes
    ----------
    ways : columns; not more than N + log2 of the GPUs of a node for each pool of N nodes in the paper.
    goodput : (C,) g of `relative_goodput`.
    capacity : (M,) GPUs.
    power : p, not 0. The more negative, the more the jobs that are worst off count.
    penalty : lambda, what a job without GPUs costs; above 1, as a job with the least goodput costs 1.
    restart : (N,) r, what is left of the goodput of a job that changes its column.
    held : (N,) column that a job holds, -1: none, which makes every column cost as if it were held.
    pinned : (N,) jobs that must keep their column.
    weights : (N,) w.
    decimals, most_cost : rounding of the A_c, and their upper bound; the published code has 2 and 3,000.
    ties : (C,) added to what columns are worth in steps of rounded costs, less than one step in all: what decides
        between choices of equal cost.
    """

    ways: Configurations
    goodput: Floats
    capacity: ArrayLike
    power: float = -0.5
    penalty: float = 1.1
    restart: ArrayLike = 1.0
    held: ArrayLike = -1
    pinned: ArrayLike = False
    weights: ArrayLike = 1.0
    decimals: int | None = None
    most_cost: float = np.inf
    ties: ArrayLike = 0.0

    def __post_init__(self) -> None:
        N = self.ways.n_jobs
        for name, kind in (("restart", float), ("held", np.int64), ("pinned", bool), ("weights", float)):
            object.__setattr__(self, name, np.broadcast_to(np.asarray(getattr(self, name), dtype=kind), N))
        figures(_SOURCE, "goodput", self.goodput, (self.ways.n_columns,))
        if not np.isfinite(self.power) or self.power == 0:
            raise InputError(_SOURCE, field="power", found=self.power, expected="finite, not 0")
        held = np.asarray(self.held)
        holds = np.flatnonzero(held >= 0)
        if (held >= self.ways.n_columns).any() or (self.ways.job[held[holds]] != holds).any():
            raise InputError(_SOURCE, field="held", found=held.tolist(), expected="a column of the job itself, or -1")
        if (np.asarray(self.pinned) & (held < 0)).any():
            raise InputError(_SOURCE, field="pinned", found="a job without a column", expected="jobs that hold one")

    @cached_property
    def costs(self) -> Floats:
        """(C,) A."""
        held = np.asarray(self.held)
        left = np.where(held >= 0, np.asarray(self.restart), 1.0)[self.ways.job]
        left[held[held >= 0]] = 1.0
        # nothing of its goodput is left to a job that restarts as often as it runs
        with np.errstate(divide="ignore"):
            costs = power(np.asarray(self.goodput, dtype=np.float64) * left, self.power)
        if self.decimals is not None:
            costs = np.round(costs, self.decimals)
        return np.minimum(costs, min(self.most_cost, _WORST))

    @property
    def maximises(self) -> bool:
        """Whether the sum is to be large."""
        return self.power > 0

    @property
    def values(self) -> Floats:
        """(C,) what a column is worth beyond none: ``w (lambda - A)``, or ``w (A + lambda)`` of a sum to be large."""
        gains = self.costs + self.penalty if self.maximises else self.penalty - self.costs
        return np.asarray(np.asarray(self.weights)[self.ways.job] * gains)

    @cached_property
    def unit(self) -> float:
        """The step to which costs are rounded, where all values are multiples of it; else 1."""
        unit = float(f"1e-{self.decimals or 0}")
        steps = self.values / unit
        far = np.abs(steps - np.rint(steps)) > _ROUNDING * np.maximum(np.abs(steps), 1.0)
        return 1.0 if far.any() else unit

    def objective(self, x: Floats) -> float:
        """The sum above at a choice `x` (C,)."""
        total = float(np.add.reduce(self.values * x))
        nothing = self.penalty * float(np.add.reduce(np.asarray(self.weights)))
        return total - nothing if self.maximises else nothing - total

    def solve(self, solver: str = "auto", seconds: float = TIME_LIMIT_SECONDS) -> ColumnSolution:
        """The choice of the least cost, with its proof in `unit`; a job gets no more GPUs than its cost is lower for.

        Raises
        ------
        InfeasibleError
            The jobs that are pinned hold more GPUs than there are.
        """
        pinned, held = np.asarray(self.pinned), np.asarray(self.held)
        others = pinned[self.ways.job]
        others[held[pinned]] = False
        program = ColumnProgram(self.ways, self.capacity, whole=True, exactly=pinned, most=np.where(others, 0.0, 1.0))
        # whole numbers of steps are proven to be best as soon as the bound is less than one step away
        values = self.values if self.unit == 1 else np.rint(self.values / self.unit) + np.asarray(self.ties)
        return solve_columns(program, Total(values), solver=solver, seconds=seconds)


_WORST = 1e6
"""Cost of a column that leaves nothing of a job's goodput; more would spoil the scale of the program."""

_ROUNDING = 1e-9
"""Relative distance from a whole number of steps that rounding leaves."""
